//! Agents that reach the API server through a proxy each.

use std::collections::BTreeMap;

use sandbox::region::{Agent, HOSTS_NAMESPACE, SiteConfig};

use super::ApiProxy;
use crate::fixtures::Stage;

impl Stage {
    /// Starts agents behind a proxy each that can fault their calls, and waits until all agents are ready.
    pub(crate) async fn start_proxied(
        &mut self,
        agents: &[Agent],
        config: &SiteConfig,
    ) -> BTreeMap<Agent, ApiProxy> {
        let mut proxies = BTreeMap::new();
        for agent in agents {
            let proxy = ApiProxy::to(&self.site).await;
            self.start_agent_by(*agent, config, proxy.url()).await;
            proxies.insert(*agent, proxy);
        }
        self.agents_are_ready().await;
        proxies
    }

    /// The same with the load-balancer agent, of a site with hosts in the namespace `metal`.
    pub(crate) async fn start_proxied_balancers(&mut self) -> ApiProxy {
        let config = self.config(&[HOSTS_NAMESPACE]);
        let mut proxies = self.start_proxied(&[Agent::LoadBalancer], &config).await;
        proxies.remove(&Agent::LoadBalancer).unwrap()
    }
}

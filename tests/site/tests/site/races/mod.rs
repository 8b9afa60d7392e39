//! Races by their names: between agents and whoever else writes to the same objects, on a real API server.
//!
//! A proxy between the agent and the API server holds the one call that matters until the other side has acted.

mod clocks;
mod cluster_api;
mod late_statuses;
mod leaders;
mod made_again;
mod taken;
mod writes;

use std::ops::AsyncFnOnce;

use sandbox::region::Agent;
use tokio::sync::{Mutex, OnceCell};

use crate::{
    faults::{Call, Faulty, double_labels},
    fixtures::RUNTIME,
};

static SITE: OnceCell<Mutex<Faulty>> = OnceCell::const_new();

/// Plays a race on the site that all of them share, one at a time, in a namespace of its own.
fn on_a_site_with_a_proxy(scenario: &str, play: impl AsyncFnOnce(&mut Faulty)) {
    RUNTIME.block_on(async {
        let site = SITE
            .get_or_init(async || Mutex::new(Faulty::start(&[Agent::Cluster]).await))
            .await;
        let mut site = site.lock().await;
        site.proxy().thaw(HOSTS);
        site.stage.site.create_tenant_namespace(scenario).await.unwrap();
        play(&mut site).await;
        assert_eq!(double_labels(&site.stage.asked_by_agents()), [""; 0]);
        site.stage.nothing_was_forbidden();
    });
}

const HOSTS: &str = "baremetalhosts";

/// A write to a host of a scenario.
fn writes_a_host_of(scenario: &'static str) -> impl Fn(&Call) -> bool + Send + Sync {
    move |call| call.verb == "patch" && call.resource == HOSTS && call.is_of(scenario)
}

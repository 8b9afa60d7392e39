//! What people may do to clusters and machines next.

use crate::protocol::{Action, MOST, State};

impl State {
    pub(crate) fn wishes(&self, actions: &mut Vec<Action>) {
        if self.spent.wishes >= MOST.wishes {
            return;
        }
        for (cluster, there) in (0u8..).zip(&self.world.now.clusters) {
            actions.push(Action::Make(cluster));
            let Some(there) = there.as_ref() else { continue };
            if there.deleting {
                actions.push(Action::Strip(cluster));
                continue;
            }
            actions.push(Action::Delete(cluster));
            let wants = (0..=2).filter(|want| *want != there.want);
            actions.extend(wants.map(|want| Action::Scale(cluster, want)));
        }
    }

    /// What may become of machines next.
    pub(crate) fn moves(&self, actions: &mut Vec<Action>) {
        if self.spent.remade >= MOST.remade {
            return;
        }
        let hosts = &self.world.now.hosts;
        for (index, host) in (0u8..).zip(hosts) {
            let Some(host) = host else { continue };
            let unused = self.world.unused().next();
            actions.push(Action::Remake(index, host.address));
            if host.address.is_some() {
                actions.push(Action::Remake(index, None));
            }
            if let Some(unused) = unused {
                actions.push(Action::Remake(index, Some(unused)));
                actions.push(Action::Readdress(index, unused));
            }
        }
        let addresses: Vec<_> = hosts.iter().flatten().map(|host| host.address).collect();
        if addresses.iter().all(Option::is_some) {
            actions.push(Action::Exchange);
        }
    }
}

//! What people may do to clusters and machines next.

use crate::{
    protocol::{Action, MOST, State},
    world::ADDRESSES,
};

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
            let named = self.world.balancers[usize::from(cluster)].name_last();
            actions.push(Action::Name(cluster, !named));
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
            actions.extend(unused.map(|unused| Action::Remake(index, Some(unused))));
            let others = (0..ADDRESSES).filter(|address| host.address != Some(*address));
            actions.extend(others.map(|address| Action::Readdress(index, address)));
            if host.address.is_some() {
                actions.push(Action::Silence(index));
            }
        }
    }

    /// Something becomes of a cluster or a machine.
    pub(crate) fn come_about(&mut self, action: &Action) {
        match *action {
            Action::Scale(cluster, want) => {
                self.spent.wishes += 1;
                if let Some(cluster) = &mut self.world.now.clusters[usize::from(cluster)] {
                    cluster.generation += 1;
                    cluster.want = want;
                }
            }
            Action::Name(cluster, named) => {
                self.spent.wishes += 1;
                self.world.balancers[usize::from(cluster)].set_last(named);
            }
            Action::Delete(cluster) => {
                self.spent.wishes += 1;
                if let Some(cluster) = &mut self.world.now.clusters[usize::from(cluster)] {
                    cluster.deleting = true;
                }
            }
            Action::Strip(cluster) => {
                self.spent.wishes += 1;
                self.world.now.clusters[usize::from(cluster)].take_if(|there| there.deleting);
            }
            Action::Make(cluster) => {
                self.spent.wishes += 1;
                self.world.make_cluster(cluster, 1);
            }
            Action::Remake(host, address) => {
                self.spent.remade += 1;
                self.world.remake(host, address);
            }
            Action::Readdress(host, address) => {
                self.spent.remade += 1;
                self.world.readdress(host, Some(address));
            }
            Action::Silence(host) => {
                self.spent.remade += 1;
                self.world.readdress(host, None);
            }
            _ => unreachable!("{action:?} is the protocol's"),
        }
    }
}

//! What people may do to clusters next.

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
}

//! What happens in a history.

use proptest::prelude::*;

/// What a person or an agent does, or what befalls the ledger.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// The agent declares a cluster, and writes the answer into its status.
    Apply { name: usize, workers: u32 },
    /// The agent writes hosts as the status says, reports them and confirms.
    Act { name: usize },
    /// The cluster is deleted: its agent asks for the release, and writes the answer into its status.
    Delete { name: usize },
    /// A backup is made.
    Backup,
    /// The scheduler decides again for all that wait.
    Retry,
    /// The ledger is lost; what there is of it is the backup.
    Lose { backup: bool },
    /// As much time passes as an error may last.
    Pass,
    /// Something is done to a host.
    Touch { host: usize, touch: Touch },
}

/// What people, Machines and metal3 do to a host.
#[derive(Clone, Copy, Debug)]
pub(super) enum Touch {
    /// Somebody marks it as failed.
    Mark,
    /// Somebody asks to move its member off.
    Move,
    /// metal3 says that it is in error.
    Fall,
    /// All of this is taken back.
    Clear,
    /// Somebody uses it.
    Consume,
    LetGo,
    /// It is deleted.
    Vanish,
    /// It is there again, as it was or restored under another uid.
    Return {
        again: bool,
    },
}

/// How many hosts there are.
pub(super) const HOSTS: usize = 5;

fn touch() -> impl Strategy<Value = Touch> {
    prop_oneof![
        3 => Just(Touch::Mark),
        4 => Just(Touch::Move),
        2 => Just(Touch::Fall),
        3 => Just(Touch::Clear),
        2 => Just(Touch::Consume),
        2 => Just(Touch::LetGo),
        2 => Just(Touch::Vanish),
        2 => prop::bool::ANY.prop_map(|again| Touch::Return { again }),
    ]
}

/// Any of them.
pub(super) fn step() -> impl Strategy<Value = Step> {
    let name = 0..2usize;
    prop_oneof![
        5 => (name.clone(), 0..4u32).prop_map(|(name, workers)| Step::Apply { name, workers }),
        5 => name.clone().prop_map(|name| Step::Act { name }),
        2 => name.prop_map(|name| Step::Delete { name }),
        3 => Just(Step::Backup),
        1 => Just(Step::Retry),
        2 => Just(Step::Pass),
        2 => prop::bool::weighted(0.8).prop_map(|backup| Step::Lose { backup }),
        6 => (0..HOSTS, touch()).prop_map(|(host, touch)| Step::Touch { host, touch }),
    ]
}

//! What can happen in a region.

/// One thing that happens; numbers are taken modulo what there is.
#[derive(Debug, Clone)]
pub(crate) enum Event {
    /// Somebody marks a host as failed.
    Fail(u64),
    /// Somebody marks three hosts at once.
    Outage(u64),
    /// Somebody asks to move a host off.
    Move(u64),
    /// Every mark of a host is taken away.
    Clear(u64),
    Pause(u64),
    /// The API server refuses every write of a host.
    Refuse(u64),
    Cordon(u64),
    Consume(u64),
    LetGo(u64),
    /// A host vanishes; one that is paused has not failed yet.
    Vanish(u64),
    Return(u64),
    /// A host comes under a new uid, without labels.
    MadeAgain(u64),
    /// A host comes under a new uid, with the labels that it had.
    Restored(u64),
    /// Somebody gives a host the label of another rack, or of another room, or takes the rack's away.
    Relabel(u64, u64),
    /// A host is in error; not for long yet.
    InError(u64),
    /// The grace of all paused hosts that vanished is over, and that of all hosts in error.
    GraceOver,
    /// An agent labels one claimed member of a cluster.
    Bind(u64),
    /// An agent removes the labels of one releasing member that nobody uses.
    Unlabel(u64),
    /// A Machine claims such a member's host, and the agent gives the labels back.
    LateClaim(u64),
    /// An agent frees one releasing member that nobody uses.
    Free(u64),
    Want(u64, u64),
    RemoveRole(u64),
    /// A role replaces members in error, or does not any more.
    ReplaceAfterError(u64),
    TopologyKey(u64),
    /// A role selects other hosts.
    Select(u64, u64),
    /// A cluster needs addresses in a network, or not any more.
    Networks(u64),
    /// A host gets an address in a network, or loses it.
    Address(u64, u64),
    Quota(u64),
    CordonDomain(u64),
    /// One namespace comes before the others, and members are to be spread over rooms.
    PreferNamespace,
    /// The ledger is lost, and rebuilt from labels and statuses.
    LoseLedger,
    /// A SIPCluster is deleted: all its members are released.
    Delete(u64),
    /// A SIPCluster is made again under its name: its members stay, and what is releasing goes on.
    MadeAgainCluster(u64),
}

impl Event {
    pub(crate) fn draw(bits: u64) -> Self {
        let (kind, one, other) = (bits % 51, (bits >> 8) % 1024, (bits >> 24) % 1024);
        match kind {
            0..=3 => Self::Fail(one),
            4..=8 => Self::Move(one),
            9..=12 => Self::Clear(one),
            13 => Self::Pause(one),
            14 => Self::Cordon(one),
            15..=16 => Self::Consume(one),
            17 => Self::LetGo(one),
            18..=19 => Self::Vanish(one),
            20 => Self::Return(one),
            21 => Self::MadeAgain(one),
            22 => Self::GraceOver,
            23..=27 => Self::Bind(one),
            28..=30 => Self::Free(one),
            31..=34 => Self::Want(one, other),
            35 => Self::RemoveRole(one),
            36 => Self::TopologyKey(one),
            37 => Self::Select(one, other),
            38 => match one % 2 {
                0 => Self::CordonDomain(other),
                _ => Self::PreferNamespace,
            },
            39 => Self::LoseLedger,
            40 => Self::Restored(one),
            41 => Self::InError(one),
            42 => match one % 4 {
                0 => Self::ReplaceAfterError(other),
                1 => Self::MadeAgainCluster(other),
                _ => Self::Delete(other),
            },
            43 => Self::Outage(one),
            44 => Self::Relabel(one, other),
            45 => Self::Refuse(one),
            46 => Self::Quota(other),
            47 => Self::Unlabel(one),
            48 => Self::LateClaim(one),
            49 => match one % 2 {
                0 => Self::Networks(other),
                _ => Self::Address(one, other),
            },
            _ => Self::MadeAgainCluster(one),
        }
    }
}

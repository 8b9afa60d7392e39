//! A planned change of the replicas of an object of Cluster API: `steps` plans it, `write` executes it.

use super::object::ObjectId;

/// A planned change of replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::reconcile) struct Scale {
    object: ObjectId,
    from: u32,
    to: u32,
    role: String,
}

impl Scale {
    /// A change from one number to another.
    pub(super) fn new(object: ObjectId, (from, to): (u32, u32), role: &str) -> Self {
        Self {
            object,
            from,
            to,
            role: role.to_owned(),
        }
    }

    pub(super) fn object(&self) -> &ObjectId {
        &self.object
    }

    pub(super) fn replicas(&self) -> u32 {
        self.to
    }

    /// The uid of the object, and its replicas after the change.
    pub(in crate::reconcile) fn target(&self) -> (&str, u32) {
        (&self.object.uid, self.to)
    }

    /// States why the replicas stay as they are, for messages.
    pub(in crate::reconcile) fn not_set(&self, why: &str) -> String {
        format!(
            "{}: spec.replicas stays {}, not {} for the hosts of role {}: {why}",
            self.object, self.from, self.to, self.role
        )
    }
}

/// For messages.
impl std::fmt::Display for Scale {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            object,
            from,
            to,
            role,
        } = self;
        write!(
            f,
            "{object}: spec.replicas {from} -> {to}, for the hosts of role {role}"
        )
    }
}

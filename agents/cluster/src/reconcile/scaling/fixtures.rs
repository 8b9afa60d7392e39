//! Values for the tests of this module.

use api::ScaledKind;

use super::object::ObjectId;
use crate::fixtures::key;

/// The `MachineDeployment` `metal/md`.
pub(super) fn object_id() -> ObjectId {
    ObjectId {
        kind: ScaledKind::MachineDeployment,
        key: key("md"),
        api_version: "cluster.x-k8s.io/v1beta2".to_owned(),
        uid: "u".to_owned(),
        resource_version: "7".to_owned(),
    }
}

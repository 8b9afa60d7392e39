//! The states of a host between two Machines, as the baremetal-operator goes through them (`docs/baremetalhost-states.md`, v0.13.2), without a
//! machine: each lasts for one pass.

/// Every state that a host can be in: the constants of `ProvisioningState` in `apis/metal3.io/v1alpha1/baremetalhost_types.go`, v0.13.2.
pub const STATES: [&str; 14] = [
    "",
    "unmanaged",
    "registering",
    "match profile",
    "preparing",
    "ready",
    "available",
    "provisioning",
    "provisioned",
    "externally provisioned",
    "deprovisioning",
    "inspecting",
    "powering off before delete",
    "deleting",
];

/// Whether a host in this state can be claimed: `available`, which was `ready` before 2021.
#[must_use]
pub fn can_be_claimed(state: &str) -> bool {
    ["ready", "available"].contains(&state)
}

/// The next state of a host that is to have an image, or none; `None` if it stays.
#[must_use]
pub fn next(state: &str, has_image: bool) -> Option<&'static str> {
    match (state, has_image) {
        ("available" | "ready", true) => Some("provisioning"),
        ("provisioning", true) => Some("provisioned"),
        ("provisioning" | "provisioned", false) => Some("deprovisioning"),
        ("deprovisioning", _) => Some("available"),
        _ => None,
    }
}

/// Whether a host that has no image any more may be let go.
#[must_use]
pub fn is_deprovisioned(state: &str) -> bool {
    [
        "registering",
        "match profile",
        "inspecting",
        "ready",
        "available",
        "",
        "unmanaged",
    ]
    .contains(&state)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_provisioned_and_deprovisioned_by_its_image() {
        let run = |mut state: &'static str, has_image| {
            let mut all = vec![state];
            while let Some(next) = next(state, has_image) {
                state = next;
                all.push(state);
            }
            all
        };
        assert_eq!(
            run("available", true),
            ["available", "provisioning", "provisioned"]
        );
        assert_eq!(
            run("provisioned", false),
            ["provisioned", "deprovisioning", "available"]
        );
        assert_eq!(
            run("provisioning", false),
            ["provisioning", "deprovisioning", "available"]
        );
        assert_eq!(run("inspecting", true), ["inspecting"]);
        let begin = STATES
            .into_iter()
            .filter(|state| next(state, true) == Some("provisioning"));
        let claimed = STATES.into_iter().filter(|state| can_be_claimed(state));
        assert_eq!(begin.collect::<Vec<_>>(), claimed.collect::<Vec<_>>());
        assert!(
            is_deprovisioned("available")
                && !is_deprovisioned("deprovisioning")
                && !is_deprovisioned("provisioned")
        );
    }
}

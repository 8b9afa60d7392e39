//! The states that metal3 gives a host. They are text in its schema; one that it adds later is kept as it is.

use std::fmt;

use smol_str::SmolStr;

macro_rules! reported_state {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal,)+ } $($(#[$edoc:meta])* $extra:ident = $etext:literal,)*) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[$vdoc])* $variant,)+
            $($(#[$edoc])* $extra,)*
            /// A state that this version does not know.
            Unknown(SmolStr),
        }

        impl $name {
            /// Reads metal3's text; never fails, so that a new state of metal3 is only [`Self::Unknown`].
            #[must_use]
            pub fn parse(text: &str) -> Self {
                match text {
                    $($text => Self::$variant,)+
                    other => Self::Unknown(SmolStr::new(other)),
                }
            }

            /// The texts that [`Self::parse`] knows, but for the empty one.
            pub fn known() -> impl Iterator<Item = &'static str> {
                [$($text),+].into_iter().filter(|text| !text.is_empty())
            }

            /// The text that metal3 uses.
            #[must_use]
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$variant => $text,)+
                    $(Self::$extra => $etext,)*
                    Self::Unknown(text) => text,
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self.as_str() {
                    "" => f.write_str("none"),
                    text => f.write_str(text),
                }
            }
        }
    };
}

reported_state!(
    /// Where a host is in its life: `status.provisioning.state` of metal3's `BareMetalHost` v1alpha1.
    /// <https://github.com/metal3-io/baremetal-operator/blob/main/docs/baremetalhost-states.md>
    ProvisioningState {
        /// Nothing known yet (the empty state).
        None = "",
        /// Not enough is known to register it.
        Unmanaged = "unmanaged",
        /// Its BMC is being checked.
        Registering = "registering",
        /// A hardware profile is being matched (older metal3).
        MatchProfile = "match profile",
        /// Firmware and RAID are being set.
        Preparing = "preparing",
        /// Can be consumed (metal3's older name).
        Ready = "ready",
        /// Can be consumed.
        Available = "available",
        /// An image is being written.
        Provisioning = "provisioning",
        /// An image is on it.
        Provisioned = "provisioned",
        /// An image is on it that metal3 did not write.
        ExternallyProvisioned = "externally provisioned",
        /// Its image is being removed.
        Deprovisioning = "deprovisioning",
        /// Its hardware is being inspected.
        Inspecting = "inspecting",
        /// It is being deleted.
        Deleting = "deleting",
        /// It is being powered off before its deletion.
        PoweringOffBeforeDelete = "powering off before delete",
    }
    /// The source has no status at all (files, not a live site): eligible, and reported. A live site without a
    /// status is [`ProvisioningState::None`].
    NotReported = "not reported",
);

reported_state!(
    /// Whether metal3 can manage a host: `status.operationalStatus` of metal3's `BareMetalHost` v1alpha1.
    OperationalStatus {
        /// Nothing reported.
        None = "",
        /// No error.
        Ok = "OK",
        /// Only discovered: BMC details are missing.
        Discovered = "discovered",
        /// In error.
        Error = "error",
        /// An operation waits for capacity of the provisioner.
        Delayed = "delayed",
        /// Not managed at present.
        Detached = "detached",
        /// Firmware is being changed while an image is on it.
        Servicing = "servicing",
    }
);

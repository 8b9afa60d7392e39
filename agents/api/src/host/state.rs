//! The states that metal3 gives a host. Text in its schema; one that it adds later is kept as it is.

use std::fmt;

macro_rules! metal3_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)*
            /// One that this version does not know.
            Other(String),
        }

        impl $name {
            /// As metal3 writes it.
            #[must_use]
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$variant => $text,)*
                    Self::Other(text) => text,
                }
            }

            /// Those that this version knows, but for the empty one.
            pub(super) fn known() -> Vec<&'static str> {
                [$($text),*].into_iter().filter(|text| !text.is_empty()).collect()
            }

            pub(super) fn parse(text: &str) -> Self {
                match text {
                    $($text => Self::$variant,)*
                    other => Self::Other(other.to_owned()),
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

metal3_enum! {
    /// Where a host is in its life, `status.provisioning.state`.
    /// <https://github.com/metal3-io/baremetal-operator/blob/main/docs/baremetalhost-states.md>
    ProvisioningState {
        /// Not known yet.
        None = "",
        /// No BMC details yet.
        Unmanaged = "unmanaged",
        /// The BMC is being checked.
        Registering = "registering",
        /// A hardware profile is being chosen (older metal3).
        MatchProfile = "match profile",
        /// Firmware and RAID are being set up.
        Preparing = "preparing",
        /// The older name of `available`.
        Ready = "ready",
        /// Can be provisioned.
        Available = "available",
        /// An image is being written.
        Provisioning = "provisioning",
        /// An image has been written.
        Provisioned = "provisioned",
        /// An image is there that metal3 did not write.
        ExternallyProvisioned = "externally provisioned",
        /// The image is being removed.
        Deprovisioning = "deprovisioning",
        /// The hardware is being inspected.
        Inspecting = "inspecting",
        /// Being shut down before it is removed.
        PoweringOffBeforeDelete = "powering off before delete",
        /// Being removed.
        Deleting = "deleting",
    }
}

metal3_enum! {
    /// How metal3 gets on with a host, `status.operationalStatus`.
    OperationalStatus {
        /// Not known yet.
        None = "",
        /// All is well.
        Ok = "OK",
        /// Known, but BMC details are missing.
        Discovered = "discovered",
        /// See the error message.
        Error = "error",
        /// Waiting for capacity of the provisioner.
        Delayed = "delayed",
        /// Not managed at present.
        Detached = "detached",
        /// Firmware or settings are being changed in place.
        Servicing = "servicing",
    }
}

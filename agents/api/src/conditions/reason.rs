//! Reasons of conditions, and what each means for each type.

use std::fmt;

/// The status of a condition that has a reason.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Status {
    /// `True`.
    True,
    /// `False`.
    False,
}

impl Status {
    /// As it is written.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
        }
    }
}

/// What a reason means for one type of condition.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Meaning {
    /// The reason.
    pub reason: Reason,
    /// The status that it has.
    pub status: Status,
    /// Whether only a user can change that: neither time nor another program does, and a retry does not help.
    pub stalls: bool,
    /// For the reference page, as sentences.
    pub text: &'static str,
}

macro_rules! reasons {
    ($($variant:ident,)+) => {
        /// Why a condition has its status. The name of the variant is what is written.
        #[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
        #[expect(missing_docs, reason = "what a reason means depends on the type: see `ConditionType::reasons`")]
        pub enum Reason {
            $($variant,)+
        }

        impl Reason {
            /// Every reason, in the order of the alphabet.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            /// `reason` as it is written.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => stringify!($variant),)+
                }
            }
        }
    };
}

reasons! {
    Available,
    BadTemplate,
    BindingsRemain,
    Blocked,
    BmcUnreachable,
    CertificateInvalid,
    CertificateNotReady,
    ConfigurationInvalid,
    ConnectorMissing,
    Deleting,
    DirectoryRefusesBind,
    DirectoryUnreachable,
    EvenControlPlane,
    HostKeyInvalid,
    ImagePull,
    InfraServiceFailure,
    InvalidKey,
    InvalidSpec,
    IssuerConflict,
    IssuerUnknown,
    IssuerUnreachable,
    KeySecretInvalid,
    KeySecretMissing,
    KubeconfigInvalid,
    KubeconfigMissing,
    Labeled,
    NameConflict,
    NamespaceNotGranted,
    NetworkAttachmentMissing,
    NoAddress,
    NoKeys,
    NoReachableBackend,
    NodesNotReady,
    NotInstalled,
    NotOfCluster,
    OverrideNotAllowed,
    OwnedByOthers,
    Placed,
    PodsFail,
    PortConflict,
    PowerServiceUnavailable,
    Progressing,
    ReconciliationSucceeded,
    Refused,
    Removed,
    SecretInvalid,
    SecretMissing,
    SiteFull,
    StaticPasswords,
    StorageMissing,
    StorageUnreachable,
    Synced,
    TenantRefuses,
    TenantUnreachable,
    UnableToApplyLabels,
    UnableToDecommission,
    Unschedulable,
    Waiting,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A condition of an object has its reason as text.
impl PartialEq<Reason> for String {
    fn eq(&self, other: &Reason) -> bool {
        self == other.as_str()
    }
}

/// Reasons of [`super::READY`], those of SIP.
pub mod ready {
    use super::Reason;

    /// Reconciliation is in progress.
    pub const PROGRESSING: Reason = Reason::Progressing;
    /// No hosts can be found for every role.
    pub const UNSCHEDULABLE: Reason = Reason::Unschedulable;
    /// A load balancer, jump host or identity provider is not as specified.
    pub const INFRA_SERVICE_FAILURE: Reason = Reason::InfraServiceFailure;
    /// A member could not be labelled.
    pub const UNABLE_TO_APPLY_LABELS: Reason = Reason::UnableToApplyLabels;
    /// The cluster is being deleted, and that is held up.
    pub const UNABLE_TO_DECOMMISSION: Reason = Reason::UnableToDecommission;
    /// All entries are as specified.
    pub const RECONCILIATION_SUCCEEDED: Reason = Reason::ReconciliationSucceeded;
}

/// Reasons of [`super::LOAD_BALANCER_READY`], besides [`ready::PROGRESSING`], [`super::NAMESPACE_NOT_GRANTED`] and [`super::REMOVED`].
pub mod load_balancer {
    use super::Reason;

    /// All entries are as specified.
    pub const AVAILABLE: Reason = Reason::Available;
    /// All entries are as specified, and no member answers, as HAProxy observes, mostly because no program listens on the members yet. The
    /// condition is True: a cluster is Ready before its hosts can be provisioned.
    pub const NO_REACHABLE_BACKEND: Reason = Reason::NoReachableBackend;
    /// All entries are as specified, and the Nodes of some members are not ready: these get connections only where no other member answers. The
    /// condition is True.
    pub const NODES_NOT_READY: Reason = Reason::NodesNotReady;
    /// Another Service has node ports of the spec, or an older cluster requested them.
    pub const PORT_CONFLICT: Reason = Reason::PortConflict;
    /// An object of a needed name has another owner.
    pub const NAME_CONFLICT: Reason = Reason::NameConflict;
    /// The spec overrides something of a Service that the site's configuration does not list.
    pub const OVERRIDE_NOT_ALLOWED: Reason = Reason::OverrideNotAllowed;
    /// The API server refuses an object.
    pub const REFUSED: Reason = Reason::Refused;
    /// A member has no address in the network that the entry names.
    pub const NO_ADDRESS: Reason = Reason::NoAddress;
    /// A pod's image cannot be had.
    pub const IMAGE_PULL: Reason = Reason::ImagePull;
    /// Pods end or cannot be started.
    pub const PODS_FAIL: Reason = Reason::PodsFail;
    /// The site's template cannot be used, and the last one that could still is.
    pub const BAD_TEMPLATE: Reason = Reason::BadTemplate;
    /// A `NetworkAttachmentDefinition` does not exist, or a pod has no address in the network of one.
    pub const NETWORK_ATTACHMENT_MISSING: Reason = Reason::NetworkAttachmentMissing;
}

/// Reasons of [`super::JUMP_HOST_READY`], besides those that it shares with [`load_balancer`].
pub mod jump_host {
    use super::Reason;

    /// All entries are as specified, and the spec names no key and no authority with which a user can log in. The condition is True.
    pub const NO_KEYS: Reason = Reason::NoKeys;
    /// An entry of `sshAuthorizedKeys` or `sshUserCA` cannot be used; the other entries work.
    pub const INVALID_KEY: Reason = Reason::InvalidKey;
    /// The Secret of `nodeSSHPrivateKeys` does not exist, or the agent may not read it.
    pub const KEY_SECRET_MISSING: Reason = Reason::KeySecretMissing;
    /// The Secret of `nodeSSHPrivateKeys` has a value that is no private key; the other values are used.
    pub const KEY_SECRET_INVALID: Reason = Reason::KeySecretInvalid;
    /// The Secret of `kubeconfigSecret` does not exist or has no kubeconfig.
    pub const KUBECONFIG_MISSING: Reason = Reason::KubeconfigMissing;
    /// A host key in the jump host's own Secret cannot be used. The agent creates missing keys and does not change existing ones: correct
    /// this key in the Secret.
    pub const HOST_KEY_INVALID: Reason = Reason::HostKeyInvalid;
    /// `PowerService` is not served, or pods cannot verify it. The condition is True: ssh works.
    pub const POWER_SERVICE_UNAVAILABLE: Reason = Reason::PowerServiceUnavailable;
    /// The BMC of a member gave no usable answer to the last call. The condition is True: ssh works.
    pub const BMC_UNREACHABLE: Reason = Reason::BmcUnreachable;
}

/// Reasons of [`super::AUTH_READY`], besides those that it shares with [`load_balancer`], [`ready::PROGRESSING`] and [`super::REMOVED`].
pub mod auth {
    use super::Reason;

    /// All entries are as specified, and there are users with a password of their own.
    pub const STATIC_PASSWORDS: Reason = Reason::StaticPasswords;
    /// All entries are as specified, and bindings of groups may remain in a cluster that the entry named before.
    pub const BINDINGS_REMAIN: Reason = Reason::BindingsRemain;
    /// No user can log in: the entry has no connector and no static passwords.
    pub const CONNECTOR_MISSING: Reason = Reason::ConnectorMissing;
    /// A Secret that the entry names does not exist, or lacks the key.
    pub const SECRET_MISSING: Reason = Reason::SecretMissing;
    /// A Secret that the entry names cannot be used as it is.
    pub const SECRET_INVALID: Reason = Reason::SecretInvalid;
    /// The Dex agent runs without its argument `--storage-endpoint`.
    pub const STORAGE_MISSING: Reason = Reason::StorageMissing;
    /// The site's storage for identity providers does not answer or refuses requests.
    pub const STORAGE_UNREACHABLE: Reason = Reason::StorageUnreachable;
    /// No certificate can be made for the provider, or its CA certificates do not fit into the status.
    pub const CERTIFICATE_INVALID: Reason = Reason::CertificateInvalid;
    /// cert-manager has not issued the provider's certificate.
    pub const CERTIFICATE_NOT_READY: Reason = Reason::CertificateNotReady;
    /// The configuration of Dex that was made is not read back as it was meant.
    pub const CONFIGURATION_INVALID: Reason = Reason::ConfigurationInvalid;
    /// The Secret of `kubeconfigSecret` does not exist or has no kubeconfig.
    pub const KUBECONFIG_MISSING: Reason = Reason::KubeconfigMissing;
    /// The kubeconfig of `kubeconfigSecret` cannot be used.
    pub const KUBECONFIG_INVALID: Reason = Reason::KubeconfigInvalid;
    /// The tenant's API server does not answer, so that it lacks bindings of groups.
    pub const TENANT_UNREACHABLE: Reason = Reason::TenantUnreachable;
    /// The tenant's API server refuses a binding of a group.
    pub const TENANT_REFUSES: Reason = Reason::TenantRefuses;
    /// Another provider answers at the issuer.
    pub const ISSUER_CONFLICT: Reason = Reason::IssuerConflict;
    /// The entry does not state where users reach the provider.
    pub const ISSUER_UNKNOWN: Reason = Reason::IssuerUnknown;
    /// The discovery document cannot be fetched from the issuer's address.
    pub const ISSUER_UNREACHABLE: Reason = Reason::IssuerUnreachable;
    /// A directory does not answer.
    pub const DIRECTORY_UNREACHABLE: Reason = Reason::DirectoryUnreachable;
    /// A directory refuses name or password of the account that searches.
    pub const DIRECTORY_REFUSES_BIND: Reason = Reason::DirectoryRefusesBind;
}

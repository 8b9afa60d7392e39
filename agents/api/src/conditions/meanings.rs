//! What each reason means for each type of condition.

use super::{ConditionType, Meaning, Reason, Status};

const fn yes(reason: Reason, text: &'static str) -> Meaning {
    Meaning {
        reason,
        status: Status::True,
        stalls: false,
        text,
    }
}

const fn no(reason: Reason, text: &'static str) -> Meaning {
    Meaning {
        reason,
        status: Status::False,
        stalls: false,
        text,
    }
}

/// `False` until a person acts.
const fn stalls(reason: Reason, text: &'static str) -> Meaning {
    Meaning {
        stalls: true,
        ..no(reason, text)
    }
}

// What reasons mean for several types of condition alike.

const PROGRESSING: Meaning = no(
    Reason::Progressing,
    "Reconciliation is in progress; the message states what it waits for.",
);
const PORT_CONFLICT: Meaning = stalls(
    Reason::PortConflict,
    "Another Service has a node port that the spec requests, or an older SIPCluster of the same namespace requests the same port. The \
     message names the port, and the owner if it is in the same namespace.",
);
const NAME_CONFLICT: Meaning = stalls(
    Reason::NameConflict,
    "An object that the agent did not make for this SIPCluster has the name of one of the objects that it makes, or a pod of another \
     SIPCluster still has that name. The message states which. If the message names another `SIPCluster`, give the entry another `name`. \
     If the object belongs to no `SIPCluster`, delete it or give the entry another `name`. If it belongs to a former `SIPCluster`, or a pod \
     is ending, wait. The agent retries within a minute.",
);
const OVERRIDE_NOT_ALLOWED: Meaning = stalls(
    Reason::OverrideNotAllowed,
    "`override.service` sets something that the site's configuration does not allow; the message names it. Existing objects and pods \
     stay as they are.",
);
const REFUSED: Meaning = no(
    Reason::Refused,
    "The API server refuses to create, change or delete an object; the message quotes it.",
);
const NO_ADDRESS: Meaning = no(
    Reason::NoAddress,
    "A member has no address in the network that the entry names.",
);
const NETWORK_ATTACHMENT_MISSING: Meaning = no(
    Reason::NetworkAttachmentMissing,
    "A `NetworkAttachmentDefinition` does not exist, or a pod has no address in the network of one.",
);
const NAMESPACE_NOT_GRANTED: Meaning = stalls(
    Reason::NamespaceNotGranted,
    "The agent has no rights in the cluster's namespace. Existing objects and pods stay as they are; the message states what to apply.",
);
const REMOVED: Meaning = no(
    Reason::Removed,
    "The cluster is being deleted, and every object that was made for it is removed.",
);

const READY: &[Meaning] = &[
    yes(Reason::ReconciliationSucceeded, "The cluster is as specified."),
    PROGRESSING,
    no(
        Reason::Unschedulable,
        "`Scheduled` is `Unschedulable`, `InvalidSpec` or `SiteFull`; the message has its cause. Existing objects and pods stay as they are.",
    ),
    no(
        Reason::InfraServiceFailure,
        "A load balancer, jump host or identity provider is not as specified, or its agent does not answer (`NoAgent` in the message).",
    ),
    no(
        Reason::UnableToApplyLabels,
        "`HostsLabeled` is `Blocked` or `Refused`: a host cannot be labelled, unlabelled or confirmed as gone, or another cluster uses it; the message names the host and the cause.",
    ),
    no(
        Reason::UnableToDecommission,
        "The SIPCluster is being deleted, and one of its hosts cannot be released: it has labels or a consumer of another cluster, or the \
         release mark of a newer release (annotation `sip.airshipit.org/placement-revision`), or the API server refuses to write it, or the \
         agent cannot confirm that it is gone.",
    ),
];

const SCHEDULED: &[Meaning] = &[
    yes(
        Reason::Placed,
        "Every role has its hosts. The message has the first five reports of the scheduler about them.",
    ),
    no(
        Reason::Unschedulable,
        "A role lacks a host, a member waits to be replaced, the namespace holds as many hosts as its quota in the site policy allows, or \
         an older SIPCluster, which waits too, is decided first. The message states what is missing, where, and what would help. It also has \
         the first five reports of the scheduler about members.",
    ),
    stalls(
        Reason::InvalidSpec,
        "The spec is not valid; the message lists every fault. The reason is also `InvalidSpec` if the agent cannot read `status.placement`, \
         which an agent of another version has written: it keeps that field and releases no host, even while the SIPCluster is being \
         deleted. Existing objects and pods stay as they are.",
    ),
    no(
        Reason::SiteFull,
        "A limit of the site in the scheduler is reached; the message names it and what would help. The cluster agent retries. Existing objects and pods stay as they are.",
    ),
    no(Reason::Deleting, "The cluster is being deleted."),
];

const HOSTS_LABELED: &[Meaning] = &[
    yes(Reason::Labeled, "Every member has the labels."),
    no(
        Reason::Waiting,
        "Members wait to be labelled or released; the message names hosts and what each waits for.",
    ),
    stalls(
        Reason::Blocked,
        "A host has labels, a consumer or a release mark that prevents the write, for example the consumer of another cluster. A person has \
         to act. (A member whose host is gone is `Waiting`: the scheduler replaces it.)",
    ),
    no(
        Reason::Refused,
        "The API server refuses a write to a host that has or had the labels, or the agent cannot confirm that the host of a releasing \
         member is gone. The message states which. (A refused write to a host that never had the labels does not make the condition `False`; \
         the message names the host.)",
    ),
];

const SERVICES_SKIPPED: &[Meaning] = &[yes(
    Reason::NotInstalled,
    "The site's configuration states that the site has no such agents.",
)];

/// None of these stalls a cluster: it is Ready without Cluster API.
const CLUSTER_API_SYNCED: &[Meaning] = &[
    yes(
        Reason::Synced,
        "Every object has the replicas that its role sets.",
    ),
    no(
        Reason::Waiting,
        "The agent has not set the replicas of an object yet. It waits until hosts are labelled, until the Machines on surplus hosts are \
         marked for deletion, until the Machine on a host that is released for another reason is deleted, or while the object is paused or \
         being deleted. The message states which.",
    ),
    no(
        Reason::EvenControlPlane,
        "The role of a KubeadmControlPlane has an even `count.active`, or 0. The agent leaves the replicas at an odd number.",
    ),
    no(
        Reason::NotOfCluster,
        "The namespace of the hosts has no such object, or the object does not belong to this SIPCluster: its Metal3MachineTemplate does not \
         select the hosts of the role, or it belongs to another Cluster. The agent writes nothing; the message states what is expected.",
    ),
    no(
        Reason::OwnedByOthers,
        "Another field manager applies `spec.replicas` or changes it repeatedly, or the autoscaler sets it; the message names it. The agent \
         writes nothing.",
    ),
    no(
        Reason::NamespaceNotGranted,
        "The cluster agent has no rights on these objects in the namespace of the hosts; the message states what to apply.",
    ),
    no(
        Reason::Refused,
        "The API server refuses to write an object, or to read it.",
    ),
];

const LOAD_BALANCER_READY: &[Meaning] = &[
    yes(Reason::Available, "All entries are as specified."),
    yes(
        Reason::NoReachableBackend,
        "All entries are as specified, and HAProxy reaches no member, mostly because no program listens on the members yet.",
    ),
    yes(
        Reason::NodesNotReady,
        "All entries are as specified. The Nodes of some members are not ready in the tenant's cluster, so these get connections only if no other member answers; the message names them.",
    ),
    PROGRESSING,
    PORT_CONFLICT,
    NAME_CONFLICT,
    OVERRIDE_NOT_ALLOWED,
    REFUSED,
    NO_ADDRESS,
    no(Reason::ImagePull, "A pod's image cannot be pulled."),
    no(
        Reason::PodsFail,
        "Pods end or cannot be started, HAProxy rejected the newest configuration and runs the previous one, or the check of a template could not run.",
    ),
    stalls(
        Reason::BadTemplate,
        "The site's template cannot be used. The load balancer runs with the last template that was accepted, or with the built-in configuration if there is none; the message states which.",
    ),
    NETWORK_ATTACHMENT_MISSING,
    NAMESPACE_NOT_GRANTED,
    REMOVED,
];

const JUMP_HOST_READY: &[Meaning] = &[
    yes(
        Reason::Available,
        "All entries are as specified. After a change of the spec, every pod that the agent can reach has confirmed its files; a pod that \
         the agent cannot reach is ready. After a change of the members the condition can stay `True` until the agent has checked that the \
         pods have the new configuration: use `Ready` to wait for new members.",
    ),
    yes(
        Reason::NoKeys,
        "All entries are as specified, and the spec names no key and no CA with which a user can log in.",
    ),
    yes(
        Reason::PowerServiceUnavailable,
        "ssh works, but the command `host` fails or soon will: the agent does not serve PowerService or has no CA for it, or jump hosts \
         refuse the certificate of PowerService, or this certificate expires soon. The message states which.",
    ),
    yes(
        Reason::BmcUnreachable,
        "ssh works, and the BMC of a member gave no usable answer to the last call from a jump host, less than ten minutes ago. The \
         message names the host and what failed.",
    ),
    PROGRESSING,
    stalls(
        Reason::InvalidKey,
        "An entry of `sshAuthorizedKeys` or `sshUserCA` cannot be used; the message names it by its index. The other entries work.",
    ),
    no(
        Reason::KeySecretMissing,
        "The Secret of `nodeSSHPrivateKeys` does not exist, or the agent may not read it.",
    ),
    stalls(
        Reason::KeySecretInvalid,
        "The Secret of `nodeSSHPrivateKeys` has a value that is no private key; the message names its key in the Secret. The other values are used.",
    ),
    no(
        Reason::KubeconfigMissing,
        "The Secret of `kubeconfigSecret` does not exist, has no key `value`, or the agent may not read it.",
    ),
    stalls(
        Reason::HostKeyInvalid,
        "A host key in the jump host's own Secret cannot be used. The agent creates missing keys and does not change existing ones: correct \
         this key in the Secret.",
    ),
    PORT_CONFLICT,
    NAME_CONFLICT,
    OVERRIDE_NOT_ALLOWED,
    REFUSED,
    NO_ADDRESS,
    no(Reason::ImagePull, "A pod's image cannot be pulled."),
    no(
        Reason::PodsFail,
        "Pods end or cannot be started: for example, the image has no sshd or no user `ubuntu` with the UID 1000.",
    ),
    NETWORK_ATTACHMENT_MISSING,
    NAMESPACE_NOT_GRANTED,
    REMOVED,
];

const AUTH_READY: &[Meaning] = &[
    yes(
        Reason::Available,
        "All entries are as specified: the discovery document answers with the right issuer at the published address.",
    ),
    yes(
        Reason::StaticPasswords,
        "All entries are as specified. `staticPasswords` is set, so users of its Secret can log in too. (If `BindingsRemain` applies too, \
         the reason is `BindingsRemain`, and the message states both.)",
    ),
    yes(
        Reason::BindingsRemain,
        "All entries are as specified. `kubeconfigSecret` named another Secret before, and bindings of groups may remain in the tenant \
         cluster of the former Secret's kubeconfig. The message names that Secret and the cause. The agent retries 10 s after each check. \
         Keep the former Secret unchanged until this reason is gone; while the entry has another problem, that is the reason instead. If the \
         agent cannot use the former Secret any more, since it, the cluster or the credentials are gone, see [Rights of \
         groups](auth.md#rights-of-groups).",
    ),
    PROGRESSING,
    stalls(
        Reason::ConnectorMissing,
        "The entry has no connector and no static passwords, so no user could log in. The agent makes no provider for it.",
    ),
    no(
        Reason::SecretMissing,
        "A Secret that the entry names does not exist or lacks a key (if a `caSecret` lacks `tls.crt` or `tls.key`, the reason is \
         `CertificateInvalid`). Existing objects and pods stay as they are; only the users of `staticPasswords` are removed from the \
         provider.",
    ),
    stalls(
        Reason::SecretInvalid,
        "A Secret that the entry names cannot be used; the message names the rule. Existing objects and pods stay as they are.",
    ),
    stalls(
        Reason::StorageMissing,
        "The Dex agent runs without its argument `--storage-endpoint`. It creates nothing for the entry.",
    ),
    no(
        Reason::StorageUnreachable,
        "The site's storage for identity providers does not answer, refuses the agent, or does not separate the data of the providers: the \
         message states why.",
    ),
    no(
        Reason::CertificateInvalid,
        "No certificate can be made for the provider, or its CA certificates do not fit into `status.endpoints`; the message states why.",
    ),
    no(
        Reason::CertificateNotReady,
        "cert-manager has not issued the provider's certificate for all its names, or is not installed. Existing objects and pods stay as they are.",
    ),
    stalls(
        Reason::ConfigurationInvalid,
        "Dex would not interpret the configuration as the agent intends: this is a bug of the agent, report it. Existing objects and pods \
         stay as they are.",
    ),
    no(
        Reason::IssuerConflict,
        "Another provider answers at the issuer's address: the keys that it publishes are not those of this entry's provider.",
    ),
    stalls(
        Reason::IssuerUnknown,
        "The entry has none of `hostname`, `clusterIP` and `issuer`, and its Service is not of type LoadBalancer. (While the load balancer has not assigned an address, the reason is `Progressing`.)",
    ),
    no(
        Reason::IssuerUnreachable,
        "The agent cannot fetch the discovery document from the published address with the published CA, or is not allowed to connect there, \
         or the document names another issuer.",
    ),
    no(
        Reason::DirectoryUnreachable,
        "A directory does not answer, answers that it is busy or fails, has a certificate that does not chain to the connector's `rootCA` \
         (default: the CAs that the image trusts), or has an address to which the agent may not connect.",
    ),
    no(
        Reason::DirectoryRefusesBind,
        "A directory refuses the bind as `bindDN`; the message has its result code.",
    ),
    no(
        Reason::KubeconfigMissing,
        "The Secret of `kubeconfigSecret` does not exist or has no key `value`, so the bindings of groups are not applied. The provider \
         runs.",
    ),
    stalls(
        Reason::KubeconfigInvalid,
        "The kubeconfig of `kubeconfigSecret` cannot be used; the message names the rule. The provider runs.",
    ),
    no(
        Reason::TenantUnreachable,
        "The tenant's API server does not answer, or the agent may not connect to its address, so the bindings of groups are not applied. \
         The provider runs.",
    ),
    no(
        Reason::TenantRefuses,
        "The tenant's API server refuses the credentials of the kubeconfig, or to list bindings, or to write one binding; in the last case \
         the agent has applied the others. The message states which. The provider runs.",
    ),
    PORT_CONFLICT,
    NAME_CONFLICT,
    OVERRIDE_NOT_ALLOWED,
    REFUSED,
    no(Reason::ImagePull, "A pod's image cannot be pulled."),
    no(Reason::PodsFail, "Pods end or cannot be started."),
    NETWORK_ATTACHMENT_MISSING,
    NAMESPACE_NOT_GRANTED,
    REMOVED,
];

impl ConditionType {
    /// The reasons that its owner gives; none for [`ConditionType::Stalled`], which has those of the others.
    #[must_use]
    pub fn reasons(self) -> &'static [Meaning] {
        match self {
            Self::Ready => READY,
            Self::Scheduled => SCHEDULED,
            Self::HostsLabeled => HOSTS_LABELED,
            Self::ServicesSkipped => SERVICES_SKIPPED,
            Self::ClusterAPISynced => CLUSTER_API_SYNCED,
            Self::LoadBalancerReady => LOAD_BALANCER_READY,
            Self::JumpHostReady => JUMP_HOST_READY,
            Self::AuthReady => AUTH_READY,
            Self::Stalled => &[],
        }
    }

    /// Whether the condition stays until a person acts, by the reason that it has.
    #[must_use]
    pub fn stalls(self, reason: Reason) -> bool {
        let mut reasons = self.reasons().iter();
        reasons.any(|meaning| meaning.reason == reason && meaning.stalls)
    }

    /// The reason that a condition of this type has, by its text.
    #[must_use]
    pub fn reason(self, text: &str) -> Option<Reason> {
        let mut reasons = self.reasons().iter().map(|meaning| meaning.reason);
        reasons.find(|reason| reason.as_str() == text)
    }
}

//! What `--help` prints below the options of a command: exit codes and examples.

pub(super) const KUBECONFIG_HELP: &str = "\
Reads the status of the SIPCluster with the kubeconfig of kubectl. The result holds no secret; it needs kubectl's plugin kubelogin
(`kubectl oidc-login`), which opens a browser at the cluster's identity provider.

Exit code: 0 when it is printed, 2 when the SIPCluster does not exist or its status lacks what is needed, 1 when the API server or a
file cannot be read.

  sipctl kubeconfig bank/payments --certificate-authority ca.crt > payments.yaml";

pub(super) const ADOPT_HELP: &str = "\
Reads the site with the kubeconfig of kubectl, or files. Nothing changes: the scheduler adopts hosts once the agents run.

Exit code: 0 when every labelled host is kept and nothing else changes, 2 when there is a conflict, such as a template of load
balancers that is not translated, 1 when the site or the files cannot be read.

  sipctl adopt --dry-run
  kubectl get baremetalhosts,sipclusters,secrets,configmaps -A -o yaml | sipctl adopt --dry-run -f -";

pub(super) const CHECK_HELP: &str = "\
Exit code: 0 when every record is valid, 2 when one is not, 1 when the file or ledger cannot be read.";

pub(super) const SHOW_HELP: &str = "\
Exit code: 0 when no certificate is due for renewal, 2 when one is, 1 when the directory cannot be read.";

pub(super) const REHEARSE_HELP: &str = "\
Loads the export in memory as a scheduler would, and reads the site with the kubeconfig of kubectl, or files. Nothing changes.
The command reads the log of decisions entry by entry, so it may be of any size. The rest of the export may have at most 1 GiB.

Exit code: 0 when there is no conflict, such as a claim that would change or be lost, 2 when there is one or the export is damaged,
1 when the export, the site or the files cannot be read.

  sipctl ledger rehearse ledger.export --site site-a
  kubectl get baremetalhosts,sipclusters -A -o yaml | sipctl ledger rehearse ledger.export --site site-a -f -";

pub(super) const OVERRIDE_HELP: &str = "\
Prints what it changed. With --dry-run it prints what it would change, and changes nothing.

Exit code: 0 when it is done, 2 when the scheduler refuses it, 1 when the scheduler cannot be reached.

docs/install.md, \"Commands of an operator\", has a complete example.";

/// The help of a command that writes a host, with an example of it.
macro_rules! host_help {
    ($example:literal) => {
        concat!(
            "\
Prints what it changed. With --dry-run it prints what it would change, and changes nothing. It writes to the API server of the host's
site, with the kubeconfig that kubectl uses.

Exit code: 0 when the host is as requested, 2 when it is refused, 1 when the API server cannot be reached.

  ",
            $example
        )
    };
}

/// The help of a command that writes a host or a site policy, with the name of the command.
macro_rules! domain_help {
    ($command:literal) => {
        concat!(
            "\
Prints what it changed. With --dry-run it prints what it would change, and changes nothing. For a host, it annotates the BareMetalHost.
For a domain, it writes the domain to the site policy, which the scheduler reads again without a restart.

Exit code: 0 when the host or site policy is as requested, 2 when it is refused, 1 when the API server or the file cannot be reached.

  sipctl ",
            $command,
            " metal/r001-h0002\n  sipctl ",
            $command,
            " vino.airshipit.org/rack=r006 --policy-configmap sip-system/sip-policies"
        )
    };
}

pub(super) const CORDON_HELP: &str = domain_help!("cordon");
pub(super) const UNCORDON_HELP: &str = domain_help!("uncordon");
pub(super) const REPLACE_HELP: &str =
    host_help!("sipctl replace metal/r001-h0002\n  sipctl replace metal/r001-h0002 --undo");
pub(super) const MARK_FAILED_HELP: &str =
    host_help!("sipctl mark-failed metal/r001-h0002\n  sipctl mark-failed metal/r001-h0002 --undo");
pub(super) const CONFIRM_RELEASE_HELP: &str = host_help!("sipctl confirm-release metal/r001-h0002 --dry-run");

//! What `--help` prints below the options of a command: exit codes and examples.

pub(super) const PLAN_HELP: &str = "\
Reads BareMetalHosts, SIPClusters and the Secrets that networkData names; other objects are skipped with a note.
The command calls no server and changes nothing.

Exit code: 0 when every cluster is placed, 2 when one is refused, partial or invalid, 1 when the input cannot be read.

  kubectl get baremetalhosts,sipclusters,secrets -A -o yaml | sipctl plan -f -";

pub(super) const LOSE_HELP: &str = "\
Members are the hosts that labels and status.placement name; releasing hosts do not count. With --planned, members are the hosts that
each cluster has after the changes that `sipctl plan` prints for the same input.

Exit code: 0 when every role keeps more than half of its members, 2 when one does not, 1 when the input cannot be read.

  kubectl get baremetalhosts,sipclusters -A -o yaml | sipctl lose vino.airshipit.org/rack=r006 -f -";

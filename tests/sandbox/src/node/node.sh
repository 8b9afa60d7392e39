# Process 1 of a real node, in network, pid and mount namespaces of its own. What it mounts and sets, nobody else sees.
#
#   $1  the node's directory, which its programs know as /run/node
#   $2  catatonit, which reaps whatever loses its parent
set -eu
mount -t tmpfs tmpfs /run
mkdir -p /run/netns /run/lock /run/node /run/var/upper /run/var/work /run/sysctl
mount --bind "$1" /run/node
# Kubelet, containerd and CNI plugins write below /var at fixed paths.
mount --bind "$1/log" /var/log
mount -t overlay overlay -o lowerdir=/var/lib,upperdir=/run/var/upper,workdir=/run/var/work /var/lib
# The kubelet sets these, which are the whole machine's. It finds the values that it wants, and may write them.
while read -r key value; do
  [ -e "/proc/sys/$key" ] || continue
  file=/run/sysctl/$(echo "$key" | tr / -)
  echo "$value" >"$file"
  mount --bind "$file" "/proc/sys/$key"
done <<'SYSCTLS'
vm/overcommit_memory 1
vm/panic_on_oom 0
kernel/panic 10
kernel/panic_on_oops 1
kernel/keys/root_maxkeys 1000000
kernel/keys/root_maxbytes 25000000
SYSCTLS
# These are the network namespace's own.
echo 1 >/proc/sys/net/ipv4/ip_forward
echo 1 >/proc/sys/net/ipv4/conf/all/route_localnet
# Volumes that the kubelet mounts must be seen by containers that run already.
mount --make-rshared /
: >/run/node/isolated
exec "$2" -P

//! What kubelet, kube-proxy and the CNI plugins are told. Paths below `/run/node` are in the node's directory.

use std::path::Path;

use serde_json::{Value, json};

use super::{NAME_SERVER, NODE_NAME, block::Block};
use crate::pki::Files;

/// `KubeletConfiguration`; JSON is YAML.
pub(super) fn kubelet(block: Block, cgroup: &str, ca: &Path, serving: &Files) -> Value {
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": block.node(),
        "readOnlyPort": 0,
        "authentication": {
            "anonymous": {"enabled": false},
            "webhook": {"enabled": true},
            "x509": {"clientCAFile": ca},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": serving.certificate,
        "tlsPrivateKeyFile": serving.key,
        "containerRuntimeEndpoint": "unix:///run/node/containerd.sock",
        "podLogsDir": "/var/log/pods",
        "volumePluginDir": "/run/volume-plugins",
        "resolvConf": "/run/node/resolv.conf",
        "clusterDomain": "cluster.local",
        // Nobody answers there; without it every pod would get an Event about that.
        "clusterDNS": [block.services().address(NAME_SERVER)],
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": format!("/{cgroup}"),
        "failCgroupV1": false,
        "failSwapOn": false,
        "seccompDefault": true,
        // Lower ones need CAP_SYS_RESOURCE, as does a higher limit of open files.
        "oomScoreAdj": 0,
        "maxOpenFiles": 20_000,
        // Tests kill containers of one pod again and again; by default it would wait for five minutes in the end.
        "crashLoopBackOff": {"maxContainerRestartPeriod": "20s"},
        // The disk is the machine's: how full it is, is not this node's concern.
        "evictionHard": {
            "memory.available": "100Mi",
            "nodefs.available": "1%",
            "nodefs.inodesFree": "1%",
            "imagefs.available": "1%",
        },
        // There is no registry to get a removed image back from.
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
    })
}

/// `KubeProxyConfiguration`.
pub(super) fn kube_proxy(block: Block, kubeconfig: &Path) -> Value {
    json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "iptables",
        "clientConnection": {"kubeconfig": kubeconfig},
        "clusterCIDR": block.pods().to_string(),
        "hostnameOverride": NODE_NAME,
        "oomScoreAdj": 0,
        // These limits are the whole machine's.
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        // A changed Endpoint is in effect at once: tests count failed requests.
        "iptables": {"minSyncPeriod": "0s"},
    })
}

/// The network of the pods.
pub(super) fn cni(block: Block) -> Value {
    json!({
        "cniVersion": "0.4.0",
        "name": "node",
        "plugins": [
            {
                "type": "ptp",
                "ipMasq": true,
                "ipam": {
                    "type": "host-local",
                    "dataDir": "/run/cni",
                    "ranges": [[{"subnet": block.pods().to_string()}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": true}},
        ],
    })
}

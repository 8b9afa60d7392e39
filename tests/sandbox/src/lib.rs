//! Brings a site up: etcd, kube-apiserver, controllers, the scheduler and the agents as real processes.

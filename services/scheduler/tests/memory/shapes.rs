//! Hosts of different shapes.

use std::collections::BTreeMap;

use proto::inventory::v1::{self as wire, HostRef};

/// The host of a number.
pub(crate) type Shape = fn(usize) -> wire::Host;

/// The shapes by name.
pub(crate) const ALL: &[(&str, Shape)] = &[
    ("bare", bare),
    ("usual", usual),
    ("values of its own", values),
    ("long values of its own", long_values),
    ("keys of its own", keys),
    ("networks of its own", networks),
    ("a namespace of its own", namespace),
    ("a cluster of its own", cluster),
    ("a long consumer", consumer),
    ("short problems", problems),
    ("a forged mark", mark),
];

fn bare(number: usize) -> wire::Host {
    wire::Host {
        r#ref: Some(HostRef {
            namespace: "metal".to_owned(),
            name: format!("h{number}"),
            uid: format!("u{number}"),
        }),
        provisioning_state: wire::ProvisioningState::Available.into(),
        operational_status: wire::OperationalStatus::Ok.into(),
        ..wire::Host::default()
    }
}

fn usual(number: usize) -> wire::Host {
    let rack = number / 40;
    let label = |(key, value): (&str, String)| (key.to_owned(), value);
    let labels = [
        ("topology.example/rack", format!("rack-{rack}")),
        ("topology.example/row", format!("row-{}", rack / 20)),
        ("hardware.example/serial", format!("serial-{number}")),
        ("hardware.example/flavor", format!("flavor-{}", number % 5)),
        ("hardware.example/vendor", "vendor".to_owned()),
        ("hardware.example/model", format!("model-{}", number % 9)),
        ("hardware.example/cpus", "96".to_owned()),
        ("hardware.example/memory", "768".to_owned()),
    ];
    let address = |network: usize| {
        let address = format!("10.{network}.{}.{}", number / 256 % 256, number % 256);
        (format!("network-{network}"), address)
    };
    wire::Host {
        r#ref: Some(HostRef {
            namespace: "metal3".to_owned(),
            name: format!("rack-{rack}-host-{number:05}"),
            uid: format!("3f1c2a52-0000-4000-8000-{number:012}"),
        }),
        labels: labels.map(label).into(),
        addresses: [1, 2].map(address).into(),
        bmc_address: format!(
            "idrac-virtualmedia://10.9.{}.{}/redfish/v1/Systems/1",
            number / 256,
            number % 256
        ),
        ..bare(number)
    }
}

fn values(number: usize) -> wire::Host {
    labelled(number, |label| {
        (format!("key-{label}"), format!("{label}-{number}"))
    })
}

fn long_values(number: usize) -> wire::Host {
    labelled(number, |label| {
        (format!("key-{label}"), format!("{label:0>30}-{number:0>30}"))
    })
}

fn keys(number: usize) -> wire::Host {
    labelled(number, |label| (format!("key-{label}-{number}"), "v".to_owned()))
}

fn labelled(number: usize, label: impl Fn(usize) -> (String, String)) -> wire::Host {
    wire::Host {
        labels: (0..40).map(label).collect(),
        ..bare(number)
    }
}

fn networks(number: usize) -> wire::Host {
    let address = |network: usize| (format!("n-{network}-{number}"), format!("10.0.0.{network}"));
    wire::Host {
        addresses: (0..16).map(address).collect(),
        ..bare(number)
    }
}

fn namespace(number: usize) -> wire::Host {
    let mut host = bare(number);
    if let Some(reference) = &mut host.r#ref {
        reference.namespace = format!("namespace-{number}");
    }
    host
}

fn cluster(number: usize) -> wire::Host {
    let label = |(key, value): (&str, String)| (key.to_owned(), value);
    let labels = [
        (vocabulary::labels::CLUSTER_NAMESPACE, "tenant".to_owned()),
        (vocabulary::labels::CLUSTER_NAME, format!("cluster-{number}")),
        (vocabulary::labels::NODE_TYPE, "Worker".to_owned()),
    ];
    wire::Host {
        labels: BTreeMap::from(labels.map(label)),
        ..bare(number)
    }
}

fn consumer(number: usize) -> wire::Host {
    wire::Host {
        consumer: Some(wire::Consumer {
            api_version: "infrastructure.cluster.x-k8s.io/v1beta1".to_owned(),
            kind: "K".repeat(500),
            namespace: "n".repeat(500),
            name: format!("{number:0>500}"),
        }),
        ..bare(number)
    }
}

fn problems(number: usize) -> wire::Host {
    wire::Host {
        problems: (0..20).map(|problem| format!("p{problem}")).collect(),
        error_message: "e".repeat(100),
        ..bare(number)
    }
}

fn mark(number: usize) -> wire::Host {
    wire::Host {
        release_mark: 1 << 40,
        ..bare(number)
    }
}

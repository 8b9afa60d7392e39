//! The list of descriptors against the proto files, and who may call what.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use prost::Message as _;
use prost_types::FileDescriptorSet;

use super::*;

/// What a proto file says of a method.
fn proto_methods() -> BTreeMap<String, Streams> {
    let sets = [
        proto::FILE_DESCRIPTOR_SET,
        tonic_health::pb::FILE_DESCRIPTOR_SET,
        tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET,
        tonic_reflection::pb::v1alpha::FILE_DESCRIPTOR_SET,
    ];
    let mut methods = BTreeMap::new();
    for set in sets {
        for file in FileDescriptorSet::decode(set).unwrap().file {
            for service in &file.service {
                for method in &service.method {
                    let path = format!("/{}.{}/{}", file.package(), service.name(), method.name());
                    let streams = match (method.client_streaming(), method.server_streaming()) {
                        (false, false) => Streams::Neither,
                        (false, true) => Streams::Answers,
                        (true, true) => Streams::Both,
                        (true, false) => panic!("{path}: only requests come one after the other"),
                    };
                    methods.insert(path, streams);
                }
            }
        }
    }
    methods
}

#[test]
fn every_method_of_the_proto_files_has_one_descriptor() {
    let described: BTreeMap<String, Streams> = Call::ALL
        .into_iter()
        .map(|call| (call.descriptor().path.to_owned(), call.descriptor().streams))
        .collect();
    assert_eq!(described.len(), Call::ALL.len(), "a path is there twice");
    assert_eq!(described, proto_methods());
}

#[test]
fn paths_lead_to_their_calls() {
    for call in Call::ALL {
        assert_eq!(Call::at(call.descriptor().path), Some(call));
    }
    for path in ["", "/", "/sip.placement.v1.PlacementService/", "/x/ApplyCluster"] {
        assert_eq!(Call::at(path), None, "{path}");
    }
}

#[test]
fn changing_and_exporting_calls_are_audited() {
    for call in Call::ALL {
        let Descriptor {
            path,
            effect,
            streams,
            who,
            kind: _,
            longest,
            largest: _,
            audited,
            weight: _,
        } = call.descriptor();
        assert_eq!(
            audited,
            effect == Effect::Write || who == Callers::Operators,
            "{path}"
        );
        assert_eq!(longest.is_none(), streams != Streams::Neither, "{path}");
    }
}

fn agent(name: &str) -> Caller {
    Caller::Agent {
        site: "a".parse().unwrap(),
        name: name.parse().unwrap(),
    }
}

/// The calls of our own services that a caller may make.
fn own(caller: Caller) -> BTreeSet<&'static str> {
    let identity = PeerIdentity::Verified(Arc::new(caller));
    let calls = Call::ALL.into_iter();
    calls
        .filter(|call| call.descriptor().path.starts_with("/sip."))
        .filter(|call| reach(&identity, *call).is_some())
        .map(Call::name)
        .collect()
}

const OVERRIDES: [&str; 4] = ["ExportLedger", "ReleaseOrphan", "RepairSite", "ResetSiteFence"];
const CHANGES: [&str; 4] = ["ApplyCluster", "ConfirmHosts", "ReleaseCluster", "ReportHosts"];

#[test]
fn agents_have_the_calls_that_they_need() {
    let region = ["FindCapacity", "ListSites"];
    let cluster = own(agent("cluster"));
    assert_eq!(cluster.len(), 18 - OVERRIDES.len() - region.len());
    assert!(cluster.is_disjoint(&OVERRIDES.into()) && cluster.is_disjoint(&region.into()));
    assert_eq!(
        own(agent("load-balancer")),
        ["GetPlacement", "WatchPlacements"].into()
    );
    for name in ["cluster", "load-balancer"] {
        let identity = PeerIdentity::Verified(Arc::new(agent(name)));
        let watch = reach(&identity, Call::WatchPlacements);
        assert_eq!(watch, Some(Reach::Site("a")), "of its own site only");
    }
}

#[test]
fn people_read_and_only_operators_override() {
    let operator = own(Caller::Operator {
        name: "o".parse().unwrap(),
    });
    let reader = own(Caller::Reader {
        name: "r".parse().unwrap(),
    });
    assert!(operator.is_superset(&OVERRIDES.into()));
    assert!(reader.is_disjoint(&OVERRIDES.into()));
    assert!(operator.is_disjoint(&CHANGES.into()));
    assert!(reader.is_disjoint(&CHANGES.into()));
    assert_eq!((operator.len(), reader.len()), (14, 10));
    assert!(own(Caller::Scheduler).is_empty());
}

//! Every number that a request can have, with every value at the border of what it may be: the answer is one for people, and
//! another site does not notice. A number without a row in the table fails.
//!
//! Each value of a report is sent to a site of its own, and each value of a cluster is declared for a cluster of its own: what one
//! value has moved, such as the number of the reporter or a generation, must not keep the next one from being read.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use prost::{
    Message as _,
    bytes::Bytes,
    encoding::{self, WireType},
};
use prost_types::{
    DescriptorProto, FieldDescriptorProto, FileDescriptorSet,
    field_descriptor_proto::{Label, Type},
};
use proto::inventory::v1::{
    self as inventory, ListSitesRequest, inventory_service_client::InventoryServiceClient,
};
use proto::placement::v1::ApplyClusterRequest;
use runtime::tls::Channel;
use scheduler::{
    call_rules::{Call, Callers},
    ledger::position,
    site::Limits,
};
use tokio_stream::StreamExt as _;
use tonic::{Code, Status};

use crate::{
    fixtures::{Served, agent, apply, cluster, operator},
    raw::{answered, request, send},
};

/// How long a call may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// Where a site stands at most after all of these calls, if nobody of another site moves it.
const FEW: u64 = 100_000;

/// The borders of what a number may be, by its message and field: of each, the last value before, itself, and the first one after.
fn borders(message: &str, field: &str) -> &'static [i128] {
    const NONE: &[i128] = &[];
    const REVISION: &[i128] = &[position::MAX_REPORTED as i128];
    match (message, field) {
        ("Revision", "epoch" | "revision")
        | ("ObservedMember" | "ReleaseConfirmation", "revision")
        | ("Host", "release_mark") => REVISION,
        // One is the first of all.
        ("ReportHostsRequest", "sequence")
        | ("ObservedCluster" | "ApplyClusterRequest", "generation")
        | ("Hello", "lease_transitions") => NONE,
        (
            "ListHostsRequest" | "ListSitesRequest" | "ListPlacementsRequest" | "ListDecisionsRequest",
            "page_size",
        )
        | ("FindCapacityRequest", "max_copies") => &[1000],
        ("Role", "active" | "standby") => &[100_000],
        ("ObservedMember", "ordinal") => &[10_000],
        // From here on members have less room in the status, and none.
        ("ClusterSpec", "other_bytes") => &[258_048, 1_568_768],
        // The years 1 and 9999, and a second's nanoseconds.
        ("Timestamp" | "Duration", "seconds") => &[-62_135_596_800, 253_402_300_799, 315_576_000_000],
        ("Timestamp" | "Duration", "nanos") => &[999_999_999],
        ("Host", "provisioning_state") => &[inventory::ProvisioningState::Deleting as i128],
        ("Host", "operational_status") => &[inventory::OperationalStatus::Servicing as i128],
        ("ObservedMember", "state") => &[inventory::MemberState::Releasing as i128],
        unknown => panic!("{unknown:?} has no row in the table of borders"),
    }
}

/// Numbers with a value that is older than another one was, or that was never reached: who sends it is told that it is outdated.
fn may_be_outdated(number: &str) -> bool {
    number.starts_with("at_least.")
}

/// A number in a request: the message that has it, and the fields that lead to it.
#[derive(Clone, Debug)]
struct Number {
    message: String,
    path: Vec<FieldDescriptorProto>,
}

impl Number {
    fn field(&self) -> &FieldDescriptorProto {
        self.path.last().unwrap()
    }

    /// For people.
    fn name(&self) -> String {
        let names: Vec<&str> = self.path.iter().map(FieldDescriptorProto::name).collect();
        names.join(".")
    }

    /// Values that its type can have.
    fn values(&self) -> BTreeSet<i128> {
        let (least, most): (i128, i128) = match self.field().r#type() {
            Type::Uint64 => (0, u64::MAX.into()),
            Type::Uint32 => (0, u32::MAX.into()),
            Type::Int64 => (i64::MIN.into(), i64::MAX.into()),
            Type::Int32 | Type::Enum => (i32::MIN.into(), i32::MAX.into()),
            other => panic!("{}: {other:?} has no row", self.name()),
        };
        let borders = borders(&self.message, self.field().name());
        let around = borders
            .iter()
            .flat_map(|border| [border - 1, *border, border + 1]);
        let values = around.chain([least, least + 1, -1, 0, 1, 2, most - 1, most]);
        values.filter(|value| (least..=most).contains(value)).collect()
    }

    /// What is to be added to a request so that the number has a value there: fields that a message has once are merged, and
    /// to those that it has often one more is added, which is good but for the number.
    fn encoded(&self, value: i128) -> Vec<u8> {
        let mut bytes = Vec::new();
        // Negative numbers of 32 bits have ten bytes as well.
        let value = u64::from_le_bytes(value.to_le_bytes()[..8].try_into().unwrap());
        encoding::encode_key(tag(self.field()), WireType::Varint, &mut bytes);
        encoding::encode_varint(value, &mut bytes);
        for parent in self.path.iter().rev().skip(1) {
            let mut message = template(parent);
            message.extend(bytes);
            bytes = Vec::new();
            encoding::encode_key(tag(parent), WireType::LengthDelimited, &mut bytes);
            encoding::encode_varint(u64::try_from(message.len()).unwrap(), &mut bytes);
            bytes.extend(message);
        }
        bytes
    }
}

fn tag(field: &FieldDescriptorProto) -> u32 {
    u32::try_from(field.number()).unwrap()
}

/// A good message of a field that a request has often.
fn template(field: &FieldDescriptorProto) -> Vec<u8> {
    if field.label() != Label::Repeated {
        return Vec::new();
    }
    let host = || inventory::HostRef {
        namespace: "metal".to_owned(),
        name: "h1".to_owned(),
        uid: "uid-h1".to_owned(),
    };
    match field.type_name() {
        ".sip.inventory.v1.Host" => inventory::Host {
            r#ref: Some(host()),
            provisioning_state: inventory::ProvisioningState::Available.into(),
            operational_status: inventory::OperationalStatus::Ok.into(),
            ..inventory::Host::default()
        }
        .encode_to_vec(),
        ".sip.inventory.v1.ObservedCluster" => inventory::ObservedCluster {
            r#ref: Some(cluster("observed")),
            generation: 1,
            ..inventory::ObservedCluster::default()
        }
        .encode_to_vec(),
        ".sip.inventory.v1.ObservedMember" => inventory::ObservedMember {
            host: Some(host()),
            role: "Worker".to_owned(),
            state: inventory::MemberState::Claimed.into(),
            revision: 1,
            ..inventory::ObservedMember::default()
        }
        .encode_to_vec(),
        ".sip.inventory.v1.Role" => inventory::Role {
            name: "Other".to_owned(),
            label_selector: Some(inventory::LabelSelector::default()),
            active: 1,
            ..inventory::Role::default()
        }
        .encode_to_vec(),
        ".sip.placement.v1.ReleaseConfirmation" => proto::placement::v1::ReleaseConfirmation {
            host: Some(host()),
            revision: 1,
        }
        .encode_to_vec(),
        other => panic!("{other} has no good example"),
    }
}

/// The proto files.
struct Files(FileDescriptorSet);

impl Files {
    fn load() -> Self {
        Self(FileDescriptorSet::decode(proto::FILE_DESCRIPTOR_SET).unwrap())
    }

    fn message(&self, name: &str) -> &DescriptorProto {
        let mut found = self.0.file.iter().flat_map(|file| {
            let package = file.package();
            let named = move |message: &&DescriptorProto| format!(".{package}.{}", message.name()) == name;
            file.message_type.iter().filter(named)
        });
        found
            .next()
            .unwrap_or_else(|| panic!("{name} is not in the proto files"))
    }

    /// The numbers in a message and in all that it can contain.
    fn numbers(&self, message: &DescriptorProto, path: &[FieldDescriptorProto], found: &mut Vec<Number>) {
        for field in &message.field {
            let path: Vec<_> = path.iter().chain([field]).cloned().collect();
            match field.r#type() {
                Type::String | Type::Bool | Type::Bytes => {}
                Type::Message => {
                    let (_, name) = field.type_name().rsplit_once('.').unwrap();
                    // The only messages within messages are entries of maps, which have texts alone.
                    if !message.nested_type.iter().any(|entry| entry.name() == name) {
                        self.numbers(self.message(field.type_name()), &path, found);
                    }
                }
                _ => found.push(Number {
                    message: message.name().to_owned(),
                    path,
                }),
            }
        }
    }

    /// The numbers in the requests of a call.
    fn numbers_of(&self, call: Call) -> Vec<Number> {
        let path = call.descriptor().path;
        let mut methods = self.0.file.iter().flat_map(|file| {
            let services = file.service.iter();
            services.flat_map(move |service| {
                let prefix = format!("/{}.{}/", file.package(), service.name());
                service
                    .method
                    .iter()
                    .map(move |method| (format!("{prefix}{}", method.name()), method))
            })
        });
        let mut found = Vec::new();
        // Health checks and reflection are not ours.
        if let Some((_, method)) = methods.find(|(name, _)| name == path) {
            self.numbers(self.message(method.input_type()), &[], &mut found);
        }
        found
    }
}

/// The messages of a report about `site`, with bytes added to the one that they are for.
fn report(site: &str, number: &Number, added: Vec<u8>) -> Vec<Bytes> {
    use inventory::report_hosts_request::Message;
    let changes = inventory::HostChanges::default();
    let messages = [
        ("hello", None),
        ("changes", Some(Message::Changes(changes))),
        (
            "snapshot_end",
            Some(Message::SnapshotEnd(inventory::SnapshotEnd {})),
        ),
    ];
    let mut added = Some(added);
    let messages = messages.into_iter().zip(1..).map(|((name, message), sequence)| {
        let mut bytes = match message {
            None => request(Call::ReportHosts, site).to_vec(),
            Some(message) => inventory::ReportHostsRequest {
                sequence,
                message: Some(message),
            }
            .encode_to_vec(),
        };
        let first = number.path[0].name();
        if first == name || first == "sequence" {
            bytes.extend(added.take().unwrap_or_default());
        }
        bytes.into()
    });
    messages.collect()
}

/// How many of the messages in which a number may come were taken, and what the call's end was.
struct Answered {
    taken: usize,
    ended: Result<(), Status>,
}

/// Reports with a value of a number, to a site that nobody has reported before.
async fn reported(served: &Served, site: &str, number: &Number, value: i128) -> Answered {
    let channel = served.channel(&agent(site, "cluster"));
    let messages = report(site, number, number.encoded(value));
    let all = messages.len();
    let open = tokio_stream::iter(messages).chain(tokio_stream::pending());
    let (taken, ended) = answered(&channel, Call::ReportHosts.descriptor().path, open, all).await;
    Answered { taken, ended }
}

async fn called(channel: &Channel, call: Call, (number, value): (&Number, i128), name: &str) -> Answered {
    let named = match call {
        Call::ApplyCluster => ApplyClusterRequest {
            cluster: Some(cluster(name)),
            ..ApplyClusterRequest::default()
        }
        .encode_to_vec(),
        _ => Vec::new(),
    };
    let message = [&*request(call, "a"), &named, &number.encoded(value)].concat();
    let one = tokio_stream::once(message.into());
    let ended = send(channel, call.descriptor().path, one).await;
    Answered {
        taken: ended.is_ok().into(),
        ended,
    }
}

/// Answers that tell whoever asked what is wrong, or that nothing is.
const FOR_PEOPLE: [Code; 6] = [
    Code::Ok,
    Code::InvalidArgument,
    Code::FailedPrecondition,
    Code::NotFound,
    Code::OutOfRange,
    Code::ResourceExhausted,
];

/// How many values of a number were sent, and how many of them got past the first message of their call, and to its end.
#[derive(Default)]
struct Tally {
    sent: usize,
    read: usize,
    whole: usize,
}

/// Asserts that the values of a number were looked at: none was refused because of what came before it.
fn assert_read(number: &Number, tally: &Tally) {
    let Tally { sent, read, whole } = tally;
    let name = number.name();
    assert!(*whole > 0, "{name}: no value of {sent} is taken");
    if name.starts_with("changes.") {
        assert_eq!(
            read, sent,
            "{name}: some values were refused before they were read"
        );
    }
}

#[tokio::test]
async fn no_value_of_a_number_concerns_another_site() {
    // It opens hundreds of connections, which takes all cores.
    let _alone = crate::ALONE.lock().await;
    let files = Files::load();
    let served = Served::start().await;
    // Each value has a site of its own.
    let limits = Limits {
        sites: 10_000,
        ..Limits::default()
    };
    // The region is one, however often it is cloned.
    let _ = served.region.clone().limited(limits);
    let _b = served.report("b").await;
    let reporter = served.channel(&agent("a", "cluster"));
    let person = served.channel(&operator("ana"));
    let mut others = served.placements(&agent("b", "cluster"));
    let (mut calls, mut generation) = (0, 0);
    let mut tallies: BTreeMap<String, Tally> = BTreeMap::new();
    for call in Call::ALL {
        for number in files.numbers_of(call) {
            let mut tally = Tally::default();
            for value in number.values() {
                let what = format!("{}: {} = {value}", call.name(), number.name());
                calls += 1;
                let site = format!("n{calls}");
                let answered = async {
                    match (call, call.descriptor().who) {
                        (Call::ReportHosts, _) => reported(&served, &site, &number, value).await,
                        (_, Callers::ClusterAgent) => called(&reporter, call, (&number, value), &site).await,
                        _ => called(&person, call, (&number, value), &site).await,
                    }
                };
                let Answered { taken, ended } = tokio::time::timeout(PATIENCE, answered)
                    .await
                    .unwrap_or_else(|_| panic!("{what} is not answered"));
                let code = ended.as_ref().map_or_else(Status::code, |()| Code::Ok);
                let outdated = code == Code::Aborted && may_be_outdated(&number.name());
                assert!(outdated || FOR_PEOPLE.contains(&code), "{what}: {ended:?}");
                tally.sent += 1;
                tally.read += usize::from(taken > 0);
                tally.whole += usize::from(ended.is_ok());
            }
            if matches!(call, Call::ReportHosts | Call::ApplyCluster) {
                assert_read(&number, &tally);
            }
            tallies.insert(format!("{}: {}", call.name(), number.name()), tally);
            generation += 1;
            let change = apply("b", "measured", generation, 2);
            let answered = others.apply_cluster(change).await;
            let placement = answered.unwrap().into_inner().placement.unwrap();
            assert_eq!(placement.members.len(), 2, "{}", number.name());
        }
    }
    for (number, Tally { sent, read, whole }) in &tallies {
        println!("{number}: {sent} values, {read} read, {whole} taken");
    }
    println!("{calls} calls with {generation} numbers");
    assert!(calls > 300, "{calls}");

    let mut inventory = InventoryServiceClient::new(person);
    let mut from = ListSitesRequest {
        page_size: 1000,
        ..ListSitesRequest::default()
    };
    let mut sites = Vec::new();
    loop {
        let page = inventory.list_sites(from.clone()).await.unwrap().into_inner();
        sites.extend(page.sites);
        if page.next_page_token.is_empty() {
            break;
        }
        from.page_token = page.next_page_token;
    }
    let b = sites.into_iter().find(|site| site.name == "b").unwrap();
    let position = b.revision.unwrap();
    assert!(
        b.synced && position.epoch == 1 && position.revision < FEW,
        "{position:?}"
    );
}

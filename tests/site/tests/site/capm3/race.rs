//! Releases race with claims: a Machine chooses a host, SIP gives the host to another cluster, and then the patch arrives.
//!
//! `SOAK_CLAIMS` says how many rounds are played, with up to 20 s between choice and patch; `SOAK_SEED` which delays.

use std::{
    cell::RefCell,
    env,
    hash::{BuildHasher as _, RandomState},
    time::Duration,
};

use futures::{StreamExt as _, future::join_all};
use k8s_openapi::api::core::v1::Event as CoreEvent;
use kube::{
    Api, ResourceExt as _,
    api::{DynamicObject, ListParams},
    runtime::watcher::{self, Event},
};
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};
use sandbox::{region::Agent, sip_clusters::holder, site::HOST_CONSUMERS, wait};
use serde_json::json;
use tokio::{sync::watch, task::JoinSet, time::sleep};

use super::{ACCOUNT, CLUSTER, Capm3, Claim, Metal3Machine, NAMESPACE, Pauses, metal3_machine};
use crate::fixtures::{AGENTS, Cluster, PATIENCE, Role, Stage, cluster, host, requested};

const SCENARIO: &str = "claims";

/// As long as no claim has come late, so many times the planned rounds are played at most: on a busy machine releases are late themselves.
const MORE: usize = 20;

/// How much is played.
#[derive(Clone, Copy, Debug)]
struct Size {
    rounds: u32,
    lanes: u32,
    delay: Duration,
    seed: u64,
}

impl Size {
    fn from_environment() -> Self {
        let seed = requested("SOAK_SEED").unwrap_or_else(|| RandomState::new().hash_one(SCENARIO) >> 32);
        let size = match requested("SOAK_CLAIMS") {
            None => Self {
                rounds: 24,
                lanes: 6,
                delay: Duration::from_millis(1_500),
                seed,
            },
            Some(rounds) => Self {
                rounds: u32::try_from(rounds).unwrap(),
                lanes: 24,
                delay: Duration::from_secs(requested("SOAK_CLAIMS_SECONDS").unwrap_or(20)),
                seed,
            },
        };
        println!("{size:?}: SOAK_SEED={seed} plays it again");
        size
    }
}

/// What came of the rounds.
#[derive(Debug, Default)]
struct Counts {
    /// The host had left before the Machine chose it.
    no_host: u32,
    /// The patch was refused.
    refused: u32,
    /// The patch came before the release, which waited for the Machine.
    before_release: u32,
    /// The patch came after the release, and the host went back to the Machine's cluster.
    labels_back: u32,
    /// The patch came when another cluster held the host, and that was reported.
    reported: u32,
}

impl Counts {
    /// Claims that came when the host was not the Machine's any more.
    fn late(&self) -> u32 {
        self.refused + self.labels_back + self.reported
    }

    fn add(&mut self, more: &Self) {
        let Self {
            no_host,
            refused,
            before_release,
            labels_back,
            reported,
        } = more;
        self.no_host += no_host;
        self.refused += refused;
        self.before_release += before_release;
        self.labels_back += labels_back;
        self.reported += reported;
    }
}

/// Hosts seen with a consumer of another Cluster than that of their labels, as a watch shows every state.
fn watch_strangers(stage: &Stage, into: &mut JoinSet<()>) -> watch::Receiver<Vec<String>> {
    let (found, seen) = watch::channel(Vec::new());
    let hosts = stage.hosts();
    into.spawn(async move {
        let mut events = std::pin::pin!(watcher::watcher(hosts, watcher::Config::default()));
        while let Some(event) = events.next().await {
            if let Ok(Event::InitApply(host) | Event::Apply(host)) = event
                && let Some(stranger) = stranger(&host)
            {
                found.send_modify(|all: &mut Vec<String>| all.push(stranger));
            }
        }
    });
    seen
}

/// Who uses a host that its labels do not give to it.
fn stranger(host: &DynamicObject) -> Option<String> {
    let consumer = host.data.pointer("/spec/consumerRef/name")?.as_str()?;
    let cluster = host.labels().get(CLUSTER).map_or("", String::as_str);
    let held = holder(host).map(|(of, _)| of).unwrap_or_default();
    (held != format!("{SCENARIO}/{cluster}"))
        .then(|| format!("{} is used by {consumer} and held by {held:?}", host.name_any()))
}

/// Two clusters that want the same host.
struct Lane {
    host: String,
    holder: Cluster,
    next: Cluster,
    capm3: Capm3,
    random: StdRng,
    played: usize,
}

impl Lane {
    async fn start(stage: &Stage, capm3: &Capm3, index: u32, size: Size) -> Self {
        let name = format!("lane{index}");
        let flavor = format!("lane{index}");
        stage.load(&[host(SCENARIO, &flavor, "r1", &name)]).await;
        let [holder, next] = ["a", "b"].map(|side| {
            let selector =
                json!({"matchLabels": {sandbox::inventory::FLAVOR: format!("{SCENARIO}-{flavor}")}});
            cluster(SCENARIO, &format!("{name}{side}"))
                .role(Role::Worker, 1)
                .with("/nodes/Worker/labelSelector", selector)
        });
        stage.create(&holder).await;
        stage.ready(&holder).await;
        stage.create(&next).await;
        let seed = size.seed.wrapping_add(u64::from(index));
        Self {
            host: format!("{SCENARIO}-{name}"),
            holder,
            next,
            capm3: capm3.another(seed),
            random: StdRng::seed_from_u64(!seed),
            played: 0,
        }
    }

    async fn until_host(
        &self,
        stage: &Stage,
        what: &str,
        true_now: impl Fn(&DynamicObject) -> bool,
    ) -> DynamicObject {
        wait::until(stage.hosts(), &self.host, what, PATIENCE, true_now)
            .await
            .unwrap()
    }

    fn held_by(host: &DynamicObject, cluster: &Cluster) -> bool {
        holder(host).is_some_and(|(of, _)| of == format!("{SCENARIO}/{}", cluster.name))
    }

    /// One round: a Machine of the holder claims the host while the host goes to the other cluster.
    async fn play(&mut self, stage: &Stage, delay: Duration, counts: &mut Counts) {
        // Of its own name, so that what is reported of it is of this round.
        self.played += 1;
        let machine = metal3_machine(&self.holder, Role::Worker, self.played);
        let longest = u64::try_from(delay.as_millis()).unwrap();
        let pause = Duration::from_millis(self.random.random_range(0..=longest));
        let leave = async {
            sleep(pause).await;
            stage
                .edit(
                    &self.holder,
                    json!({"nodes": {"Worker": {"count": {"active": 0}}}}),
                )
                .await;
        };
        let (claim, ()) = tokio::join!(self.capm3.associate(&machine), leave);
        match claim {
            Claim::NoHost => counts.no_host += 1,
            Claim::Refused { .. } => counts.refused += 1,
            Claim::Has(_) => self.settle(stage, &machine, counts).await,
        }
        self.capm3.release(&machine).await;
        let (holder, next) = (&self.holder, &self.next);
        self.until_host(stage, "go to the next cluster", |host| {
            Self::held_by(host, next) && host.data["spec"]["consumerRef"].is_null()
        })
        .await;
        stage
            .edit(holder, json!({"nodes": {"Worker": {"count": {"active": 1}}}}))
            .await;
        stage.ready(next).await;
        std::mem::swap(&mut self.holder, &mut self.next);
    }

    /// A Machine has the host: its cluster holds it, or the one that does reports it.
    async fn settle(&self, stage: &Stage, machine: &Metal3Machine, counts: &mut Counts) {
        let before = stage.hosts().get(&self.host).await.unwrap();
        if Self::held_by(&before, &self.holder) {
            counts.before_release += 1;
            return;
        }
        let back = self.until_host(stage, "be its Machine's", |host| {
            Self::held_by(host, &self.holder)
        });
        let text = format!("Metal3Machine metal/{}", machine.name);
        let reported = async {
            self.event_on_host(stage, &text).await;
            let now = stage.hosts().get(&self.host).await.unwrap();
            if Self::held_by(&now, &self.next) {
                let reason = "UnableToApplyLabels";
                stage
                    .condition_mentions(&self.next, "Ready", "False", reason, &text)
                    .await;
            }
        };
        tokio::select! {
            _ = back => counts.labels_back += 1,
            () = reported => counts.reported += 1,
        }
    }

    /// Waits for an Event on the host that names its user.
    async fn event_on_host(&self, stage: &Stage, text: &str) {
        let events: Api<CoreEvent> = Api::namespaced(stage.site.client(), "metal");
        let selected = format!(
            "involvedObject.kind=BareMetalHost,involvedObject.name={}",
            self.host
        );
        let config = watcher::Config::default().fields(&selected);
        wait::until_all(events, config, "an Event on the host", PATIENCE, |events| {
            events
                .iter()
                .any(|event| event.message.as_deref().is_some_and(|note| note.contains(text)))
        })
        .await
        .unwrap();
    }
}

/// Plays all rounds, several lanes at once, and returns what came of them and the strangers that were seen.
async fn play(stage: &Stage, size: Size) -> (Counts, Vec<String>) {
    stage.site.create_tenant_namespace(SCENARIO).await.unwrap();
    let pauses = Pauses {
        delay: size.delay,
        ..Pauses::default()
    };
    let capm3 = Capm3::install(&stage.site, pauses, size.seed).await;
    let mut watching = JoinSet::new();
    let strangers = watch_strangers(stage, &mut watching);
    let all = RefCell::new(Counts::default());
    let lanes = (0..size.lanes).map(async |index| {
        let mut lane = Lane::start(stage, &capm3, index, size).await;
        let planned = (index..size.rounds).step_by(size.lanes as usize).count();
        let mut played = 0;
        while played < planned || (all.borrow().late() == 0 && played < planned * MORE) {
            let mut counts = Counts::default();
            lane.play(stage, size.delay, &mut counts).await;
            all.borrow_mut().add(&counts);
            played += 1;
        }
    });
    join_all(lanes).await;
    let all = all.into_inner();
    // No state of a host is missing: a later write of every host has been seen by now.
    stage.hosts().list(&ListParams::default()).await.unwrap();
    let strangers = strangers.borrow().clone();
    println!("{all:?}, {} states with a stranger", strangers.len());
    (all, strangers)
}

/// Refused claims that a long form prints, as the audit log has them.
const PRINTED: usize = 10;

/// Prints the first claims that the API server refused, for whoever reports what came of a long form.
fn print_refusals(stage: &Stage) {
    let user = format!("system:serviceaccount:{NAMESPACE}:{ACCOUNT}");
    let refused = stage.site.audit_log().unwrap().into_iter().filter(|entry| {
        entry.user.username == user && entry.verb == "patch" && entry.response_status.code == 403
    });
    for entry in refused.take(PRINTED) {
        let object = entry.object_ref.unwrap_or_default();
        println!(
            "audit: {} {} {} {}/{} {} {}",
            entry.stage_timestamp,
            entry.user.username,
            entry.verb,
            object.namespace,
            object.name,
            entry.response_status.code,
            entry.request_object
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn with_the_policy_no_host_is_ever_a_strangers() {
    let stage = Stage::start("fenced", &AGENTS).await;
    let size = Size::from_environment();
    let (counts, strangers) = play(&stage, size).await;
    if env::var_os("SOAK_CLAIMS").is_some() {
        print_refusals(&stage);
    }
    assert_eq!(strangers, [""; 0]);
    assert_eq!((counts.labels_back, counts.reported), (0, 0), "{counts:?}");
    assert!(counts.refused > 0, "no claim came late: {counts:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_policy_every_stranger_is_reported() {
    let mut stage = Stage::start("open", &[Agent::LoadBalancer]).await;
    stage
        .kubectl(&["delete", "validatingadmissionpolicybinding", HOST_CONSUMERS])
        .await;
    // Shorter than claims take here: some come when another cluster holds the host already.
    stage
        .start_agent_where(Agent::Cluster, |config| config.claims_in_flight_seconds = Some(1))
        .await;
    stage.agents_are_ready().await;
    let size = Size::from_environment();
    let (counts, strangers) = play(&stage, size).await;
    // Every round that ended with a stranger has waited for its report.
    assert_eq!(counts.refused, 0, "{counts:?}");
    assert!(
        counts.late() > 0 && !strangers.is_empty(),
        "no claim came late: {counts:?}"
    );
}

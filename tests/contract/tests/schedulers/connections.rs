//! Agents behind a Service find the scheduler that leads, whatever has become of the one that they were connected to.

use std::time::{Duration, Instant};

use sandbox::{process::Program, proxy::Proxy, tools};

use crate::{
    agent::{Reporter, Watcher},
    client::{Client, reason},
    region::{HOSTS, LEASE, PATIENCE, Region},
    service::Service,
};

/// After a new leader begins: until an agent has connected, has reported all hosts, and is answered. Its pauses are the most
/// of it, a few seconds; a busy machine may take as long again. Who is kept by one that does not lead waits for ever.
const AGENT: Duration = Duration::from_secs(20);

/// Agents of a site, connected to the leader through a Service.
struct Site {
    reporters: Reporter,
    watcher: Watcher,
    /// The watcher's own, so that it can be kept away.
    watchers: Service,
    _service: Service,
}

impl Site {
    async fn start(region: &Region) -> Self {
        region.leader(None).await;
        let service = Service::before(&region.schedulers).await;
        let watchers = Service::before(&region.schedulers).await;
        let mut site = Self {
            reporters: Reporter::start(&service, HOSTS),
            watcher: Watcher::start(&watchers),
            watchers,
            _service: service,
        };
        site.reporters.place("before").await;
        site.watcher.hears_of(&["before"]).await;
        site
    }

    /// The agents come to the next leader, and miss nothing of what happens meanwhile.
    async fn goes_on(&mut self, what: &str, since: Instant, within: Duration) {
        self.reporters.place("first").await;
        let answered = since.elapsed();
        println!("{what} -> agents are answered: {answered:?}, lease {LEASE:?}");
        assert!(answered < within, "{what}: {answered:?}");
        self.reporters.place("second").await;
        self.watchers.open(true);
        let told = self.watcher.hears_of(&["first", "second"]).await;
        assert!(told.interruptions > 0, "it was never away: {told:?}");
        assert_eq!(told.resets, 0, "it goes on where it was: {told:?}");
        assert!(!told.clusters.contains("before"), "{told:?}");
    }
}

#[tokio::test]
async fn agents_follow_the_next_leader_when_theirs_is_killed() {
    let mut region = Region::start(1, 3).await;
    let mut site = Site::start(&region).await;
    let leader = region.leader(None).await;
    site.watchers.open(false);
    let since = Instant::now();
    region.schedulers[leader].process.kill9().await.unwrap();
    site.goes_on("killed", since, LEASE + AGENT).await;
}

#[tokio::test]
async fn agents_follow_the_next_leader_when_theirs_becomes_standby() {
    let region = Region::start(1, 3).await;
    let mut site = Site::start(&region).await;
    let old = region.leader(None).await;
    site.watchers.open(false);
    region.schedulers[old].process.pause().unwrap();
    region.leader(Some(old)).await;
    region.schedulers[old].process.resume().unwrap();
    let since = Instant::now();
    site.goes_on("stopped, and goes on", since, AGENT).await;
}

#[tokio::test]
async fn agents_follow_the_next_leader_when_theirs_hangs() {
    let region = Region::start(1, 3).await;
    let mut site = Site::start(&region).await;
    let old = region.leader(None).await;
    site.watchers.open(false);
    let since = Instant::now();
    region.schedulers[old].process.pause().unwrap();
    // Nothing but its silence tells of it: a machine without power says as little.
    let silence = Duration::from_secs(8);
    site.goes_on("stopped for ever", since, LEASE + silence + AGENT)
        .await;
}

#[tokio::test]
async fn agents_follow_the_next_leader_when_theirs_loses_etcd() {
    let mut region = Region::new(1).await;
    let proxy = Proxy::to(region.etcd.members()[0].address()).await.unwrap();
    region.add(&[format!("http://{}", proxy.address())]);
    assert_eq!(region.leader(None).await, 0);
    let endpoints = region.etcd.endpoints();
    region.add(&endpoints);
    region.add(&endpoints);
    let mut site = Site::start(&region).await;
    site.watchers.open(false);
    let since = Instant::now();
    proxy.cut(true);
    site.goes_on("cut off from etcd", since, LEASE + AGENT).await;
}

async fn grpcurl(address: &str, arguments: &[&str]) -> String {
    let program = Program::new("grpcurl", tools::path("grpcurl").unwrap());
    let mut command = tokio::process::Command::new(program.binary());
    let output = command
        .args(["-plaintext", address])
        .args(arguments)
        .output()
        .await;
    let output = output.unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{arguments:?}: {text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    text
}

#[tokio::test]
async fn a_standby_identifies_itself_and_keeps_no_client() {
    let region = Region::start(1, 2).await;
    let leader = region.leader(None).await;
    let standby = &region.schedulers[1 - leader];
    let through = Service::past_probes(standby).await;
    let client = Client::new(&through.address);
    let begun = Instant::now();
    // It may have been told to wait a moment ago.
    while reason(&client.list().await.unwrap_err()).1.is_none() {
        assert!(begun.elapsed() < PATIENCE);
    }

    let services = grpcurl(&standby.address, &["list"]).await;
    assert!(
        services.contains("sip.placement.v1.PlacementService"),
        "{services}"
    );
    let health = grpcurl(&standby.address, &["grpc.health.v1.Health/Check"]).await;
    assert!(
        health.contains("\"SERVING\""),
        "the process itself is well: {health}"
    );

    let connections = through.connections();
    let begun = Instant::now();
    while through.connections() < connections + 2 {
        assert!(begun.elapsed() < PATIENCE, "clients are kept");
        let status = client.list().await.unwrap_err();
        let told = matches!(reason(&status).0.as_str(), "NOT_LEADER");
        // The client has learnt that the connection ends before it has sent this by it.
        assert!(told || status.code() == tonic::Code::Cancelled, "{status:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

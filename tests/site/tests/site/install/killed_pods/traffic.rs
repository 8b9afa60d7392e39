//! Requests of a tenant's users, which never pause: how many had no answer, and for how long nobody had one.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    ops::RangeInclusive,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use tokio::{
    io::BufReader,
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::{
    fixtures::PATIENCE,
    real_node::followed::{machine, request},
};

/// Between two requests of a client.
const PAUSE: Duration = Duration::from_millis(50);
/// Requests on a connection, of each client of a port. Those of one request notice at once where new connections go; the others have
/// connections that a pod which ends must serve for a while.
const CLIENTS: [usize; 4] = [1, 1, 40, 40];
/// A client gives up a connection that is not made in this time; `request` gives up an answer in the same time.
const CONNECT: Duration = Duration::from_secs(10);
/// After so long without a failure no node routes to a pod that has ended: it learns of that within a second or two.
const STEADY: Duration = Duration::from_secs(3);

/// What the clients of a port observe in a period.
#[derive(Debug)]
struct Window {
    began: Instant,
    /// The last answer, or the beginning.
    last_answer: Instant,
    last_failure: Option<Instant>,
    longest_pause: Duration,
    answers: usize,
    failures: Vec<String>,
}

/// What the clients of all ports observed in a period.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Report {
    pub(super) answers: usize,
    /// Why requests had no answer.
    pub(super) failures: Vec<String>,
    /// The longest time in which one port gave no answer.
    pub(super) stopped: Duration,
}

impl Report {
    /// Requests that were sent.
    pub(super) fn sent(&self) -> usize {
        self.answers + self.failures.len()
    }
}

impl Window {
    fn begin(at: Instant) -> Self {
        Self {
            began: at,
            last_answer: at,
            last_failure: None,
            longest_pause: Duration::ZERO,
            answers: 0,
            failures: Vec::new(),
        }
    }

    fn answer(&mut self, at: Instant) {
        self.longest_pause = self
            .longest_pause
            .max(at.saturating_duration_since(self.last_answer));
        self.last_answer = at;
        self.answers += 1;
    }

    fn failure(&mut self, at: Instant, why: &io::Error) {
        let after = at.saturating_duration_since(self.began);
        self.failures
            .push(format!("after {:.1} s: {why}", after.as_secs_f64()));
        self.last_failure = Some(at);
    }

    /// Whether there have been answers, and no failure for some time.
    fn is_steady(&self, now: Instant) -> bool {
        let recent = |at: Instant| now.saturating_duration_since(at) < STEADY;
        self.answers > 0 && recent(self.last_answer) && !self.last_failure.is_some_and(recent)
    }

    /// Adds the window to a report of other ports. The time since the last answer counts as a pause.
    fn end(self, at: Instant, report: &mut Report) {
        let pause = at.saturating_duration_since(self.last_answer);
        report.answers += self.answers;
        report.failures.extend(self.failures);
        report.stopped = report.stopped.max(self.longest_pause).max(pause);
    }
}

/// A member that answers on ports, and clients that send requests to these ports of a node.
pub(super) struct Traffic {
    ports: Vec<Arc<Mutex<Window>>>,
    // They end with this.
    _member: Vec<JoinSet<()>>,
    _clients: JoinSet<()>,
}

impl Traffic {
    /// Starts the member, and the clients once every port leads to it.
    pub(super) async fn start(node: Ipv4Addr, member: Ipv4Addr, ports: RangeInclusive<u16>) -> Self {
        let mut serving = Vec::new();
        for port in ports.clone() {
            let listener = TcpListener::bind((member, port)).await.unwrap();
            serving.push(machine(member, listener));
        }
        let mut windows = Vec::new();
        let mut clients = JoinSet::new();
        for port in ports {
            let to = SocketAddr::from((node, port));
            is_reached(to).await;
            let window = Arc::new(Mutex::new(Window::begin(Instant::now())));
            for requests in CLIENTS {
                clients.spawn(send_requests(Arc::clone(&window), to, requests));
            }
            windows.push(window);
        }
        Self {
            ports: windows,
            _member: serving,
            _clients: clients,
        }
    }

    /// Ends the present period and begins the next one.
    pub(super) fn report(&self) -> Report {
        let mut report = Report::default();
        for port in &self.ports {
            let mut window = port.lock().unwrap();
            let now = Instant::now();
            std::mem::replace(&mut *window, Window::begin(now)).end(now, &mut report);
        }
        report
    }

    /// Waits until all ports answer without failures, so that none is taken for one of the next period.
    pub(super) async fn is_steady(&self) {
        let started = Instant::now();
        loop {
            let steady = |port: &Arc<Mutex<Window>>| port.lock().unwrap().is_steady(Instant::now());
            if self.ports.iter().all(steady) {
                return;
            }
            assert!(started.elapsed() < PATIENCE, "requests fail: {:#?}", self.ports);
            sleep(PAUSE).await;
        }
    }
}

/// Waits until the node leads to pods of the load balancer, and these to the member.
async fn is_reached(to: SocketAddr) {
    let started = Instant::now();
    loop {
        let ended = Mutex::new(Window::begin(started));
        let Err(why) = use_connection(&ended, to, 1).await else {
            return;
        };
        assert!(started.elapsed() < PATIENCE, "nobody answers at {to}: {why}");
        sleep(PAUSE).await;
    }
}

/// A client: one connection after the other, each for so many requests.
async fn send_requests(window: Arc<Mutex<Window>>, to: SocketAddr, requests: usize) {
    loop {
        if let Err(why) = use_connection(&window, to, requests).await {
            window.lock().unwrap().failure(Instant::now(), &why);
            sleep(PAUSE).await;
        }
    }
}

async fn use_connection(window: &Mutex<Window>, to: SocketAddr, requests: usize) -> io::Result<()> {
    let mut stream = BufReader::new(timeout(CONNECT, TcpStream::connect(to)).await??);
    for _ in 0..requests {
        request(&mut stream).await?;
        window.lock().unwrap().answer(Instant::now());
        sleep(PAUSE).await;
    }
    Ok(())
}

#[test]
fn a_report_has_the_longest_pause_of_all_ports() {
    let start = Instant::now();
    let after = |seconds| start + Duration::from_secs(seconds);
    let [mut first, mut second] = [(); 2].map(|()| Window::begin(start));
    first.answer(after(1));
    first.failure(after(2), &io::ErrorKind::ConnectionRefused.into());
    first.answer(after(5));
    second.answer(after(3));

    let mut report = Report::default();
    first.end(after(6), &mut report);
    assert_eq!((report.answers, report.stopped), (2, Duration::from_secs(4)));
    second.end(after(10), &mut report);

    assert_eq!(report.answers, 3);
    assert_eq!(
        report.stopped,
        Duration::from_secs(7),
        "the last answer was 7 s ago"
    );
    assert_eq!(report.failures, ["after 2.0 s: connection refused"]);
}

#[test]
fn traffic_is_steady_once_failures_are_some_time_ago() {
    let start = Instant::now();
    let mut window = Window::begin(start);
    assert!(!window.is_steady(start), "nothing has been answered");

    window.failure(start, &io::ErrorKind::ConnectionRefused.into());
    window.answer(start + STEADY / 2);
    assert!(!window.is_steady(start + STEADY / 2));
    assert!(window.is_steady(start + STEADY));
    assert!(
        !window.is_steady(start + STEADY * 2),
        "nothing is answered any more"
    );
}

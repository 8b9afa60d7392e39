//! What goes through the rendered configuration, beside a minimal one by hand: connections that fetch 16 KiB each.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use render::load_balancer::{Member, worker};

use crate::{goals::Goals, haproxy, large};

const FRONT: Ipv4Addr = Ipv4Addr::new(127, 77, 2, 1);
const MEMBER: Ipv4Addr = Ipv4Addr::new(127, 77, 2, 2);
const PORT: u16 = 31_020;
const ANSWER: [u8; 16_384] = [b'x'; 16_384];
const PAIRS: usize = 10;
const CLIENTS: usize = 4;
/// Long enough that what else the machine does hardly shows.
const RUN: Duration = Duration::from_secs(3);

const BY_HAND: &str = "
global
  maxconn 4000
defaults
  mode tcp
  timeout connect 30s
  timeout client 600s
  timeout server 600s
listen workers
  bind FRONT
  server one MEMBER
";

/// A member: answers whoever asks, until the end of the process.
fn serve() {
    let listener = TcpListener::bind((MEMBER, PORT)).expect("the member's address is free");
    for _ in 0..CLIENTS {
        let listener = listener.try_clone().expect("a second handle of a listener");
        std::thread::spawn(move || {
            for mut connection in listener.incoming().filter_map(Result::ok) {
                // Health checks connect and leave.
                if connection.read_exact(&mut [0]).is_ok() {
                    let _ = connection.write_all(&ANSWER);
                }
            }
        });
    }
}

/// Answers per second.
fn rate(config: &str) -> f64 {
    let front: SocketAddr = (FRONT, PORT).into();
    let (_running, _) = haproxy::start(config, front);
    let ended = AtomicBool::new(false);
    let started = Instant::now();
    let answers: u64 = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| {
                scope.spawn(|| {
                    let (mut count, mut answer) = (0, vec![0; ANSWER.len()]);
                    while !ended.load(Ordering::Relaxed) {
                        haproxy::request(front, &mut answer).expect("an answer");
                        count += 1;
                    }
                    count
                })
            })
            .collect();
        std::thread::sleep(RUN);
        ended.store(true, Ordering::Relaxed);
        clients
            .into_iter()
            .map(|client| client.join().expect("a client that answers"))
            .sum::<u64>()
    });
    answers as f64 / started.elapsed().as_secs_f64()
}

pub(crate) fn run(goals: &mut Goals) {
    serve();
    let cluster = large::cluster(PORT, PORT);
    let member = Member {
        namespace: "tenant-hosts".to_owned(),
        name: "one".to_owned(),
        address: MEMBER.into(),
        is_backup: false,
    };
    let ours = worker(&cluster, &cluster.load_balancers_worker()[0], &[member]).config;
    let ours = haproxy::on(FRONT, &ours);
    let by_hand = BY_HAND
        .replace("FRONT", &format!("{FRONT}:{PORT}"))
        .replace("MEMBER", &format!("{MEMBER}:{PORT}"));
    let mut pairs: Vec<(f64, f64)> = (0..PAIRS)
        .map(|pair| {
            // Whoever comes first is not always the same.
            if pair % 2 == 0 {
                (rate(&ours), rate(&by_hand))
            } else {
                let by_hand = rate(&by_hand);
                (rate(&ours), by_hand)
            }
        })
        .collect();
    pairs.sort_by(|a, b| (a.0 / a.1).total_cmp(&(b.0 / b.1)));
    // They are an even number: the median is between the two in the middle.
    let middle = [pairs[PAIRS / 2 - 1], pairs[PAIRS / 2]];
    let median = middle.iter().map(|(ours, by_hand)| ours / by_hand).sum::<f64>() / 2.0;
    let (ours, by_hand) = middle[0];
    let percent = 100.0 * median;
    println!(
        "{:<64} median {percent:>7.1} %           {} ({ours:.0} of {by_hand:.0} connections/s)",
        "throughput, of a minimal configuration by hand",
        goals.at_least(percent, 95.0, "%")
    );
}

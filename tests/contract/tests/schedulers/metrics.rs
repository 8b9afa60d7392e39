//! What a scheduler's process serves at `/metrics`.

use std::collections::BTreeMap;

use runtime::metrics::{self, Definition, Kind};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::{
    client::SITE,
    region::{HOSTS, Region},
};

/// One sample: its metric, its labels, its value.
#[derive(Debug)]
struct Sample {
    metric: String,
    labels: BTreeMap<String, String>,
    value: f64,
}

/// A metric, its labels, and its value.
type Expected<'a> = (&'a str, &'a [(&'a str, &'a str)], f64);

async fn scrape(port: u16) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let request = "GET /metrics HTTP/1.1\r\nhost: scheduler\r\nconnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

fn samples(text: &str) -> Vec<Sample> {
    let lines = text.lines().map(str::trim);
    let lines = lines.filter(|line| line.starts_with("sip_") || line.starts_with("process_"));
    lines
        .map(|line| {
            let (series, value) = line.rsplit_once(' ').unwrap();
            let (metric, labels) = series.split_once('{').unwrap_or((series, "}"));
            let labels = labels
                .trim_end_matches('}')
                .split("\",")
                .filter(|label| !label.is_empty());
            let labels = labels.map(|label| {
                let (name, value) = label.split_once("=\"").unwrap();
                (name.to_owned(), value.trim_end_matches('"').to_owned())
            });
            Sample {
                metric: metric.to_owned(),
                labels: labels.collect(),
                value: value.parse().unwrap(),
            }
        })
        .collect()
}

/// Name of a sample's metric in the table: those of histograms have suffixes.
fn definition(sample: &Sample) -> Option<&'static Definition> {
    let all = || {
        scheduler::metrics::DEFINITIONS
            .into_iter()
            .chain(metrics::DEFINITIONS)
    };
    let histogram = ["_bucket", "_sum", "_count"];
    let base = histogram
        .iter()
        .find_map(|suffix| sample.metric.strip_suffix(suffix));
    all()
        .find(|definition| definition.name == sample.metric)
        .or_else(|| {
            all().find(|definition| definition.kind == Kind::Histogram && Some(definition.name) == base)
        })
}

fn value(samples: &[Sample], metric: &str, labels: &[(&str, &str)]) -> Option<f64> {
    let wanted: BTreeMap<String, String> = labels
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    let found = samples
        .iter()
        .find(|sample| sample.metric == metric && sample.labels == wanted);
    found.map(|sample| sample.value)
}

#[tokio::test]
async fn a_scrape_holds_to_the_table_and_tells_the_state() {
    let mut region = Region::new(1).await;
    let file = region.directory().join("ledger.redb");
    region.add_on_file(&file);
    let leader = region.leader(None).await;
    let scheduler = &region.schedulers[leader];
    let reports = region.reported(leader).await;
    scheduler.client.apply("placed", 2).await.unwrap();
    scheduler.client.apply("large", 2_000).await.unwrap();

    let text = scrape(scheduler.health).await;
    let (_, body) = text.split_once("\r\n\r\n").unwrap();
    sandbox::promtool::check_metrics(body).unwrap();
    let found = samples(&text);

    for sample in &found {
        let definition = definition(sample).unwrap_or_else(|| panic!("{sample:?} is not in a table"));
        let labels = sample.labels.keys().filter(|label| *label != "le");
        let mut known = definition.labels.to_vec();
        known.sort_unstable();
        assert_eq!(labels.collect::<Vec<_>>(), known, "{sample:?}");
        for (label, value) in &sample.labels {
            // A method is spelled as in its proto file, and the last bucket is +Inf.
            let lower =
                label == "method" || label == "le" || value.chars().all(|letter| !letter.is_uppercase());
            assert!(lower, "{sample:?}");
        }
    }
    let hosts = f64::from(u32::try_from(HOSTS).unwrap());
    let site = ("site", SITE);
    let expected: [Expected<'_>; 9] = [
        ("sip_scheduler_is_leader", &[], 1.0),
        ("sip_scheduler_terms_total", &[], 1.0),
        ("sip_scheduler_leader_changes_total", &[], 0.0),
        ("sip_scheduler_site_synced", &[site], 1.0),
        ("sip_scheduler_hosts", &[site, ("state", "claimed")], 2.0),
        ("sip_scheduler_hosts", &[site, ("state", "free")], hosts - 2.0),
        (
            "sip_scheduler_clusters_pending",
            &[site, ("reason", "no-fit")],
            1.0,
        ),
        (
            "sip_scheduler_calls_total",
            &[("method", "ApplyCluster"), ("code", "ok")],
            2.0,
        ),
        (
            "sip_scheduler_decision_duration_seconds_count",
            &[("action", "apply")],
            2.0,
        ),
    ];
    for (metric, labels, expected) in expected {
        assert_eq!(
            value(&found, metric, labels),
            Some(expected),
            "{metric}{labels:?}\n{text}"
        );
    }
    let positive = [
        "sip_scheduler_ledger_bytes",
        "sip_scheduler_commit_duration_seconds_count",
        "sip_scheduler_commit_batch_changes_count",
        "sip_scheduler_queue_wait_duration_seconds_count",
        "process_resident_memory_bytes",
        "process_start_time_seconds",
        "process_open_fds",
    ];
    for metric in positive {
        assert!(
            value(&found, metric, &[]).is_some_and(|value| value > 0.0),
            "{metric}\n{text}"
        );
    }
    let reported = value(
        &found,
        "sip_scheduler_site_last_report_timestamp_seconds",
        &[site],
    );
    assert!(reported.is_some_and(|time| time > 1.7e9), "{text}");
    drop(reports);
}

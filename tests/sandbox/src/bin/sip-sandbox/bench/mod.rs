//! `sip-sandbox bench`: how long whole sites take to hand over hosts, and what the agents need for it.

mod agents;
mod clusters;
mod figure;
pub(crate) mod hostile;
mod room;
mod scene;

use std::time::Duration;

use clap::Args;

use crate::steps::Steps;
use clusters::Shape;
use figure::Figure;
use scene::Scene;

/// What is measured, and on what.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Number of hosts of each site; the sites are measured one after the other
    #[arg(long, value_name = "NUMBER", value_delimiter = ',', default_values_t = [1_000, 10_000])]
    hosts: Vec<u32>,
    /// Number of clusters of 3 control-plane hosts and 20 workers that are created one after the other
    #[arg(long, default_value_t = 10)]
    clusters: u16,
    /// Number of clusters of 3 control-plane hosts and 4 workers that are created at once in the last site
    #[arg(long, default_value_t = 100)]
    burst: u16,
    /// Number of clusters that the last site holds when clusters of 3 control-plane hosts and 20 workers are measured the second time
    #[arg(long, default_value_t = 500)]
    standing: u16,
    /// Seconds at the end during which any write of an agent makes the benchmark fail
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    idle: u64,
    /// Also list the API calls for clusters that are created one after the other, by agent, verb and resource
    #[arg(long)]
    list_calls: bool,
}

/// One cluster: SIP itself needs 0.75 s among 1,000 hosts and 1.8 to 2.0 s among 10,000 on such a machine.
const PLACED: Duration = Duration::from_millis(250);
const BURST: Duration = Duration::from_secs(15);
const COLD_START: Duration = Duration::from_secs(5);
/// In MiB; SIP needs 150 to 160 among 10,000 hosts.
const RESIDENT: u64 = 60;
const CALLS_PER_HOST: f64 = 3.0;
/// One on each host, and few about the cluster.
const EVENTS_PER_HOST: f64 = 1.5;

const LARGE: Shape = Shape {
    control_plane: 3,
    workers: 20,
};
const SMALL: Shape = Shape {
    control_plane: 3,
    workers: 4,
};

pub(crate) async fn run(options: Options) -> anyhow::Result<()> {
    room::require(&options)?;
    let steps = Steps::new();
    let mut figures = Vec::new();
    let last = options.hosts.len().saturating_sub(1);
    for (index, hosts) in options.hosts.iter().enumerate() {
        let mut scene = Box::pin(Scene::set(&steps, *hosts)).await?;
        figures.push(Figure::duration(
            format!("{hosts} hosts: cold start of the cluster agent until its site is placeable"),
            COLD_START,
            scene.cold_start,
        ));
        figures.extend(one_by_one(&mut scene, &options, "").await?);
        if index == last {
            figures.extend(many(&mut scene, &options).await?);
        }
        figures.extend(scene.residents(RESIDENT)?);
        let title = format!("nobody writes for {} s", options.idle);
        let writes = steps
            .step(&title, scene.writes_within(Duration::from_secs(options.idle)))
            .await?;
        figures.push(Figure::count(
            format!("{hosts} hosts: writes in {} s without a change", options.idle),
            0,
            writes,
        ));
    }
    steps.finish();
    println!("{}", figure::table(&figures));
    figure::require(&figures)
}

/// Clusters of 3 + 20, one after the other.
async fn one_by_one(scene: &mut Scene, options: &Options, beside: &str) -> anyhow::Result<Vec<Figure>> {
    let clusters = options.clusters;
    let before = scene.calls()?.len();
    let mut times = Vec::new();
    for index in 0..clusters {
        let title = format!("cluster {index} of {LARGE}{beside}");
        let placed = scene.steps.clone();
        times.push(placed.step(&title, scene.place(LARGE)).await?);
        // What comes after the labels, of one cluster, is no part of the next one's time.
        scene.settle().await?;
    }
    times.sort();
    let hosts = u32::from(clusters) * LARGE.hosts();
    let calls = scene.calls()?.split_off(before);
    if options.list_calls {
        println!("{}", agents::table(&calls, clusters));
    }
    let per_host = |calls: usize| anyhow::Ok(f64::from(u32::try_from(calls)?) / f64::from(hosts));
    let events = calls.iter().filter(|call| agents::is_event(call)).count();
    let of = format!("{LARGE} of {} hosts{beside}", scene.hosts);
    Ok(vec![
        Figure::median(
            format!("{of}: created to last label, {clusters} clusters one by one"),
            PLACED,
            &times,
        ),
        Figure::ratio(
            format!("{of}: API calls per placed host, besides watches, Leases and Events"),
            CALLS_PER_HOST,
            per_host(calls.len() - events)?,
        ),
        Figure::ratio(
            format!("{of}: Events per placed host"),
            EVENTS_PER_HOST,
            per_host(events)?,
        ),
    ])
}

/// Clusters of 3 + 4, all at once, then more of them, and then clusters of 3 + 20 beside them.
async fn many(scene: &mut Scene, options: &Options) -> anyhow::Result<Vec<Figure>> {
    let steps = scene.steps.clone();
    let title = format!("{} clusters of {SMALL} at once", options.burst);
    let burst = steps
        .step(&title, scene.place_at_once(SMALL, options.burst))
        .await?;
    let mut figures = vec![Figure::duration(
        format!("{} hosts: {title}, until all are labelled", scene.hosts),
        BURST,
        burst,
    )];
    let more = options.standing.saturating_sub(scene.clusters);
    if more > 0 {
        let title = format!("{more} more clusters of {SMALL}");
        steps.step(&title, scene.place_at_once(SMALL, more)).await?;
    }
    scene.settle().await?;
    let beside = format!(" beside {} clusters", scene.clusters);
    figures.extend(one_by_one(scene, options, &beside).await?);
    Ok(figures)
}

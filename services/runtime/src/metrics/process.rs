//! What the operating system counts of the process, under the names that every Prometheus client library uses.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

use super::{Definition, Kind};

const fn gauge(name: &'static str, help: &'static str) -> Definition {
    Definition {
        name,
        kind: Kind::Gauge,
        labels: &[],
        help,
    }
}

pub(super) const CPU: Definition = Definition {
    name: "process_cpu_seconds_total",
    kind: Kind::Counter,
    labels: &[],
    help: "User and system CPU time, in seconds (Linux)",
};
pub(super) const MAX_FDS: Definition = gauge("process_max_fds", "Limit of open file descriptors (Linux)");
pub(super) const OPEN_FDS: Definition = gauge("process_open_fds", "Open file descriptors (Linux)");
pub(super) const RESIDENT_MEMORY: Definition = gauge(
    "process_resident_memory_bytes",
    "Resident memory, in bytes (Linux)",
);
pub(super) const START_TIME: Definition = gauge(
    "process_start_time_seconds",
    "Start of the process, in seconds since 1970 (Linux)",
);
pub(super) const THREADS: Definition = gauge("process_threads", "Threads (Linux)");
pub(super) const VIRTUAL_MEMORY: Definition =
    gauge("process_virtual_memory_bytes", "Virtual memory, in bytes (Linux)");

/// Reads `/proc/self` at each scrape; what cannot be read is left out.
#[derive(Debug)]
pub(crate) struct ProcessCollector;

#[cfg(target_os = "linux")]
impl Collector for ProcessCollector {
    #[expect(
        clippy::cast_precision_loss,
        reason = "exact up to 2^53 bytes, which no process has"
    )]
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        use procfs::{WithCurrentSystemInfo as _, process::LimitValue};
        use prometheus_client::metrics::{counter::ConstCounter, gauge::ConstGauge};

        let Ok(process) = procfs::process::Process::myself() else {
            return Ok(());
        };
        let Ok(stat) = process.stat() else { return Ok(()) };
        let ticks = procfs::ticks_per_second() as f64;
        let cpu = (stat.utime + stat.stime) as f64 / ticks;
        CPU.encode(&mut encoder, &ConstCounter::new(cpu))?;
        let mut gauge =
            |definition: &Definition, value: f64| definition.encode(&mut encoder, &ConstGauge::new(value));
        if let Ok(limits) = process.limits()
            && let LimitValue::Value(most) = limits.max_open_files.soft_limit
        {
            gauge(&MAX_FDS, most as f64)?;
        }
        if let Ok(open) = process.fd_count() {
            gauge(&OPEN_FDS, open as f64)?;
        }
        gauge(&RESIDENT_MEMORY, stat.rss_bytes().get() as f64)?;
        if let Ok(booted) = procfs::boot_time_secs() {
            gauge(&START_TIME, booted as f64 + stat.starttime as f64 / ticks)?;
        }
        gauge(&THREADS, stat.num_threads as f64)?;
        gauge(&VIRTUAL_MEMORY, stat.vsize as f64)
    }
}

#[cfg(not(target_os = "linux"))]
impl Collector for ProcessCollector {
    fn encode(&self, _: DescriptorEncoder<'_>) -> fmt::Result {
        Ok(())
    }
}

//! The two formats that a scraper may ask for.

use std::fmt::Write as _;

/// The media type of `OpenMetrics`, with its parameters.
pub(crate) const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// The media type of Prometheus's older text format, with its parameters.
pub(crate) const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Whether the `Accept` header of a request names `OpenMetrics`. Prometheus's does; that of curl and of simpler scrapers does not.
pub(crate) fn accepts_openmetrics(accept: &str) -> bool {
    let mut media = accept
        .split(',')
        .map(|range| range.split(';').next().unwrap_or_default().trim());
    media.any(|name| name.eq_ignore_ascii_case("application/openmetrics-text"))
}

/// What [`super::Metrics::encode`] wrote, in the text format 0.0.4: counters and infos have their whole name in their head, an info is
/// a gauge, and there are no units and no end mark. Exemplars, which no metric of ours has, would stay.
pub(crate) fn text(openmetrics: &str) -> String {
    let mut text = String::with_capacity(openmetrics.len() + openmetrics.len() / 16);
    // It comes before the type, and needs the name that follows from the type.
    let mut help = "";
    for line in openmetrics.lines() {
        let Some(comment) = line.strip_prefix("# ") else {
            text.push_str(line);
            text.push('\n');
            continue;
        };
        let mut words = comment.splitn(3, ' ');
        match (words.next(), words.next(), words.next()) {
            (Some("HELP"), Some(_), words) => help = words.unwrap_or_default(),
            (Some("TYPE"), Some(name), Some(kind)) => {
                let (suffix, kind) = match kind {
                    "counter" => ("_total", "counter"),
                    "info" => ("_info", "gauge"),
                    "unknown" => ("", "untyped"),
                    other => ("", other),
                };
                // Writing to a String cannot fail.
                let _ = writeln!(text, "# HELP {name}{suffix} {help}\n# TYPE {name}{suffix} {kind}");
                help = "";
            }
            _ => {}
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use prometheus_client::metrics::counter::Counter;
    use prometheus_client::metrics::gauge::Gauge;
    use prometheus_client::metrics::histogram::Histogram;
    use prometheus_client::metrics::info::Info;
    use prometheus_client::registry::{Registry, Unit};

    use super::*;

    #[test]
    fn both_formats_have_the_same_samples() {
        let mut registry = Registry::default();
        let (counter, gauge, histogram) = (
            Counter::<u64>::default(),
            Gauge::<i64>::default(),
            Histogram::new([0.5]),
        );
        counter.inc_by(7);
        histogram.observe(0.25);
        registry.register("calls", "Calls", counter);
        registry.register("hosts", "Hosts", gauge);
        registry.register_with_unit("wait", "Wait", Unit::Seconds, histogram);
        registry.register("build", "Build", Info::new([("name", "a # HELP b")]));
        let mut openmetrics = String::new();
        prometheus_client::encoding::text::encode(&mut openmetrics, &registry).unwrap();
        let expected = "\
# HELP calls_total Calls.
# TYPE calls_total counter
calls_total 7
# HELP hosts Hosts.
# TYPE hosts gauge
hosts 0
# HELP wait_seconds Wait.
# TYPE wait_seconds histogram
wait_seconds_sum 0.25
wait_seconds_count 1
wait_seconds_bucket{le=\"0.5\"} 1
wait_seconds_bucket{le=\"+Inf\"} 1
# HELP build_info Build.
# TYPE build_info gauge
build_info{name=\"a # HELP b\"} 1
";
        assert_eq!(text(&openmetrics), expected, "{openmetrics}");
    }

    #[test]
    fn openmetrics_is_for_those_who_name_it() {
        let prometheus =
            "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.2,*/*;q=0.1";
        for (accept, expected) in [
            (prometheus, true),
            ("text/plain, Application/OpenMetrics-Text", true),
            ("*/*", false),
            ("text/plain; version=0.0.4", false),
            ("", false),
        ] {
            assert_eq!(accepts_openmetrics(accept), expected, "{accept}");
        }
    }
}

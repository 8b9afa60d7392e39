use super::*;
use crate::fixtures::Log;

#[test]
fn answers_of_kubernetes_are_logged_only_by_name() {
    let lines = |filter: &str| {
        let log = Log::default();
        let layer = fmt::layer().with_ansi(false).with_writer(log.clone());
        let filter = EnvFilter::try_new(directives(filter)).unwrap();
        tracing::subscriber::with_default(Registry::default().with(layer.with_filter(filter)), || {
            tracing::warn!(target: "kube_client::client", "answer");
            tracing::error!(target: "kube_client::client::builder", "failure");
            tracing::info!(target: "kube_client::config", "other");
            tracing::info!(target: AUDIT, "who");
        });
        let log = log.text();
        let words = log.lines().filter_map(|line| line.split(' ').next_back());
        words.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(lines("info"), ["failure", "other", "who"]);
    assert_eq!(lines("off"), ["failure", "who"]);
    assert_eq!(
        lines("off,kube_client::client=info"),
        ["answer", "failure", "who"]
    );
}

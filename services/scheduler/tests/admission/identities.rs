//! Every method × every identity. A method without a row does not compile.

use std::time::{Duration, SystemTime};

use runtime::{
    identity::Caller,
    metrics::Metrics,
    telemetry::InjectTrace,
    tls::{self, Channel, ClientTls, ClientTlsArgs, TlsMetrics},
};
use scheduler::call_rules::Call;
use tonic::{
    Code, Status,
    service::interceptor::InterceptedService,
    transport::{Certificate, ClientTlsConfig, Endpoint, Identity},
};

use crate::{
    fixtures::{Authority, Served, agent, operator, reader, realm, revoked},
    raw::{send, send_request},
};

/// Who may call a method about site `a`, of those that have a certificate of the region: that site's cluster agent, its other
/// agents, every agent of site `b`, a reader, an operator, the scheduler itself.
fn row(call: Call) -> [bool; 6] {
    const NO: bool = false;
    const YES: bool = true;
    match call {
        Call::ApplyCluster | Call::ReleaseCluster | Call::ConfirmHosts | Call::ReportHosts => {
            [YES, NO, NO, NO, NO, NO]
        }
        Call::GetPlacement | Call::WatchPlacements => [YES, YES, NO, YES, YES, NO],
        Call::PlanCluster
        | Call::ListPlacements
        | Call::ListDecisions
        | Call::ListHosts
        | Call::GetHost
        | Call::ExplainHost => [YES, NO, NO, YES, YES, NO],
        Call::ListSites | Call::FindCapacity => [NO, NO, NO, YES, YES, NO],
        Call::ReleaseOrphan | Call::ResetSiteFence | Call::RepairSite | Call::ExportLedger => {
            [NO, NO, NO, NO, YES, NO]
        }
        Call::HealthCheck | Call::HealthWatch | Call::Reflection | Call::ReflectionAlpha => {
            [YES, YES, YES, YES, YES, YES]
        }
    }
}

/// The agents of a site besides the cluster agent.
const OTHER_AGENTS: [&str; 3] = ["load-balancer", "jump-host", "dex"];

#[tokio::test]
async fn every_method_is_for_whom_the_table_says() {
    let served = Served::start().await;
    let mut callers = vec![
        (0, agent("a", "cluster")),
        (2, agent("b", "cluster")),
        (3, reader("ben")),
        (4, operator("ana")),
        (5, Caller::Scheduler),
    ];
    for name in OTHER_AGENTS {
        callers.extend([(1, agent("a", name)), (2, agent("b", name))]);
    }
    let mut calls = 0;
    for (column, caller) in &callers {
        let column = *column;
        for call in Call::ALL {
            // A connection each: one identity's refusals are not another's, whatever they share.
            let made = send_request(&served.channel(caller), call, "a").await;
            let code = made.as_ref().map_or_else(Status::code, |()| Code::Ok);
            assert_ne!(code, Code::Unauthenticated, "{caller} {call:?}");
            let denied = code == Code::PermissionDenied;
            assert_eq!(denied, !row(call)[column], "{caller} {call:?}: {made:?}");
            if let Err(status) = made
                && denied
            {
                let says = format!("{caller} may not call {}", call.name());
                assert!(status.message().starts_with(&says), "{status}");
            }
            calls += 1;
        }
    }
    println!(
        "{calls} calls: {} methods × {} identities",
        Call::ALL.len(),
        callers.len()
    );
}

#[tokio::test]
async fn a_method_that_is_not_described_is_refused() {
    let served = Served::start().await;
    let channel = served.channel(&operator("ana"));
    for path in [
        "/sip.placement.v1.PlacementService/Nothing",
        "/sip.other.v1.Service/ApplyCluster",
    ] {
        let refused = send(&channel, path, tokio_stream::empty()).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unimplemented, "{refused}");
        assert!(refused.message().contains(path), "{refused}");
    }
}

/// A client with these files that trusts the scheduler.
fn client(served: &Served, files: Option<(std::path::PathBuf, std::path::PathBuf)>) -> Option<Channel> {
    let (tls_cert, tls_key) = files.unzip();
    let args = ClientTlsArgs {
        tls_cert,
        tls_key,
        tls_ca: Some(served.authority.path("ca.pem")),
        plaintext_loopback: false,
        tls_reload_seconds: Duration::from_secs(10),
    };
    let metrics = TlsMetrics::registered(&Metrics::default());
    let (tls, _) = ClientTls::load(&args, &realm(), Caller::Scheduler, &metrics).ok()??;
    let endpoint = format!("https://{}", served.address).parse().unwrap();
    tls::channel(&endpoint, Some(tls)).ok()
}

/// A client of another make, with or without a certificate.
fn foreign_client(served: &Served, files: Option<(std::path::PathBuf, std::path::PathBuf)>) -> Channel {
    let read = |path: std::path::PathBuf| std::fs::read(path).unwrap();
    let authority = Certificate::from_pem(read(served.authority.path("ca.pem")));
    let mut tls = ClientTlsConfig::new().ca_certificate(authority);
    if let Some((certificate, key)) = files {
        tls = tls.identity(Identity::from_pem(read(certificate), read(key)));
    }
    let endpoint = Endpoint::from_shared(format!("https://{}", served.address)).unwrap();
    InterceptedService::new(endpoint.tls_config(tls).unwrap().connect_lazy(), InjectTrace)
}

#[tokio::test]
async fn only_certificates_of_the_region_are_accepted() {
    let served = Served::start().await;
    let soon = SystemTime::now() + Duration::from_hours(1);
    let cluster = agent("a", "cluster");
    let stranger = Authority::new("stranger");
    let expiring = served
        .authority
        .issue(&operator("late"), SystemTime::now() + Duration::from_secs(2));
    let late = client(&served, Some(expiring)).unwrap();
    tokio::time::sleep(Duration::from_secs(3)).await;
    let foreign = client(&served, Some(stranger.issue(&cluster, soon))).unwrap();
    let denied = client(&served, Some(served.authority.issue(&revoked(), soon))).unwrap();
    let plain = tls::channel(&format!("http://{}", served.address).parse().unwrap(), None).unwrap();
    for (who, channel) in [
        ("wrong authority", foreign),
        ("expired", late),
        ("revoked", denied),
        ("no certificate", foreign_client(&served, None)),
        ("no TLS", plain),
    ] {
        for call in Call::ALL {
            let refused = send_request(&channel, call, "a").await.unwrap_err();
            let before_any_handler = [Code::Unavailable, Code::Unknown, Code::Internal, Code::Cancelled];
            assert!(
                before_any_handler.contains(&refused.code()),
                "{who} {call:?}: {refused}"
            );
        }
    }
    // And with one all is well.
    let good = client(&served, Some(served.authority.issue(&cluster, soon))).unwrap();
    send_request(&good, Call::ListHosts, "a").await.unwrap();
    let good = foreign_client(&served, Some(served.authority.issue(&cluster, soon)));
    send_request(&good, Call::ListHosts, "a").await.unwrap();
}

//! A pod with HAProxy that answers by itself, and how to reach it.

use std::{
    net::{Ipv4Addr, SocketAddr},
    time::{Duration, Instant},
};

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Pod, Service},
};
use kube::{Api, api::ListParams};
use sandbox::{site::Site, wait};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use super::{HAPROXY, there_is_one, with_haproxy};

const NODE_PORT: u16 = 30_080;
const API_NODE_PORT: u16 = 30_443;
const PATIENCE: Duration = Duration::from_mins(1);

/// As a load balancer is: nobody's user, no rights, nothing to write to.
fn manifest(image: &str, kubernetes: Ipv4Addr) -> String {
    format!(
        "
apiVersion: v1
kind: Namespace
metadata: {{name: web, labels: {{pod-security.kubernetes.io/enforce: restricted}}}}
---
apiVersion: v1
kind: ConfigMap
metadata: {{name: web, namespace: web}}
data:
  haproxy.cfg: |
    defaults
      timeout client 10s
      timeout connect 5s
      timeout server 10s
    frontend web
      mode http
      bind :::8080 v4v6
      http-request return status 200 content-type text/plain lf-string \"from %[hostname]\"
    listen api
      mode tcp
      bind :::6443 v4v6
      server kubernetes {kubernetes}:443
---
apiVersion: apps/v1
kind: Deployment
metadata: {{name: web, namespace: web}}
spec:
  replicas: 2
  selector: {{matchLabels: {{app: web}}}}
  template:
    metadata: {{labels: {{app: web}}}}
    spec:
      securityContext: {{runAsNonRoot: true, runAsUser: 65534, seccompProfile: {{type: RuntimeDefault}}}}
      containers:
        - name: haproxy
          image: {image}
          command: [haproxy, -W, -db, -f, /etc/haproxy/haproxy.cfg]
          readinessProbe: {{tcpSocket: {{port: 8080}}, periodSeconds: 1}}
          securityContext: {{allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {{drop: [ALL]}}}}
          volumeMounts: [{{name: config, mountPath: /etc/haproxy}}]
      volumes: [{{name: config, configMap: {{name: web}}}}]
---
apiVersion: v1
kind: Service
metadata: {{name: web, namespace: web}}
spec:
  type: NodePort
  selector: {{app: web}}
  ports:
    - {{name: web, port: 80, targetPort: 8080, nodePort: {NODE_PORT}}}
    - {{name: api, port: 443, targetPort: 6443, nodePort: {API_NODE_PORT}}}
"
    )
}

/// Applies it and waits until both pods are ready.
pub(crate) async fn run(site: &Site) {
    let kubernetes = cluster_ip(site, "default", "kubernetes").await;
    site.apply_yaml(&manifest(HAPROXY, kubernetes)).await.unwrap();
    let deployments: Api<Deployment> = Api::namespaced(site.client(), "web");
    wait::until(deployments, "web", "both pods to be ready", PATIENCE, |web| {
        web.status
            .as_ref()
            .is_some_and(|status| status.ready_replicas == Some(2))
    })
    .await
    .unwrap();
}

async fn cluster_ip(site: &Site, namespace: &str, name: &str) -> Ipv4Addr {
    let services: Api<Service> = Api::namespaced(site.client(), namespace);
    let service = services.get(name).await.unwrap();
    service.spec.unwrap().cluster_ip.unwrap().parse().unwrap()
}

pub(crate) fn at_node(site: &Site) -> SocketAddr {
    SocketAddr::from((site.node().unwrap().address(), NODE_PORT))
}

pub(crate) async fn at_cluster_ip(site: &Site) -> SocketAddr {
    SocketAddr::from((cluster_ip(site, "web", "web").await, 80))
}

async fn get(address: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    stream
        .write_all(b"GET / HTTP/1.1\r\nHost: web\r\nConnection: close\r\n\r\n")
        .await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

/// Which pod answers. kube-proxy learns of a ready pod a moment after the Deployment.
pub(crate) async fn until_answers(address: SocketAddr) -> String {
    let started = Instant::now();
    loop {
        let answer = tokio::time::timeout(Duration::from_secs(2), get(address)).await;
        if let Ok(Ok(answer)) = &answer
            && let Some((_, pod)) = answer.split_once("from ")
        {
            return pod.trim().to_owned();
        }
        assert!(started.elapsed() < PATIENCE, "{address}: {answer:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn restricted_pods_serve_and_outlive_the_kubelet() {
    if !there_is_one() {
        return;
    }
    let started = Instant::now();
    let mut site = with_haproxy("pods").start().await.unwrap();
    println!("the site came up in {:?}", started.elapsed());
    run(&site).await;

    let pods: Api<Pod> = Api::namespaced(site.client(), "web");
    let names: Vec<String> = pods
        .list(&ListParams::default())
        .await
        .unwrap()
        .items
        .into_iter()
        .map(|pod| pod.metadata.name.unwrap())
        .collect();
    for address in [at_node(&site), at_cluster_ip(&site).await] {
        let pod = until_answers(address).await;
        assert!(names.contains(&pod), "{pod} is none of {names:?}");
    }
    for name in &names {
        let ip = pods.get(name).await.unwrap().status.unwrap().pod_ip.unwrap();
        assert_eq!(
            until_answers(SocketAddr::new(ip.parse().unwrap(), 8080)).await,
            *name
        );
        // The API server asks the kubelet for it.
        let log = site.kubectl_ok(&["logs", "--namespace=web", name]).await.unwrap();
        assert!(log.contains("New worker"), "{log}");
    }
    let by_pod = format!("https://{}:{API_NODE_PORT}", site.node().unwrap().address());
    let ready = site
        .kubectl_ok(&[
            "--server",
            &by_pod,
            "--tls-server-name=kubernetes",
            "get",
            "--raw=/readyz",
        ])
        .await
        .unwrap();
    assert_eq!(ready, "ok");
    let kubelet = &mut site.node_mut().unwrap().kubelet;
    kubelet.kill9().await.unwrap();
    until_answers(at_node(&site)).await;
    site.node_mut().unwrap().kubelet.restart().await.unwrap();
    let restarted = Instant::now();
    while !site
        .kubectl(&["logs", "--namespace=web", &names[0]])
        .await
        .unwrap()
        .success
    {
        assert!(restarted.elapsed() < PATIENCE, "the kubelet does not come back");
    }
    let privileged = site
        .kubectl(&[
            "run",
            "--namespace=web",
            "--image",
            HAPROXY,
            "--privileged",
            "refused",
        ])
        .await
        .unwrap();
    assert!(
        !privileged.success && privileged.stderr.contains("violates PodSecurity"),
        "{privileged:?}"
    );
}

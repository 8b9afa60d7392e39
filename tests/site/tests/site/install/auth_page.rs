//! `docs/auth.md`, command by command, on a real node: from an installed region to a person who lists the nodes of a tenant's cluster, and back.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr, SocketAddrV4},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use sandbox::{
    dex,
    installation::{Names, Target},
    kubelogin,
    login::Provider,
    node::{self, Image},
    process::Group,
    proxy::Proxy,
    repository,
    site::{Nodes, Site},
    slapd::{Directory, Person},
    tools,
};
use tokio::task::JoinSet;

use super::{
    commands::{sample, steps},
    desk::{Desk, furnished, nothing_was_refused},
    page::PAGE as INSTALLATION,
};
use crate::{fixtures::PATIENCE, real_tenant::hangs_up};

const PAGE: &str = "docs/auth.md";
/// Where the page of the installation goes on with what identity providers do not need.
const INSTALLED: &str = "## 6.";
const PROVIDER: &str = "sso.example.org";
const PROVIDER_PORT: u16 = 30_556;
const DIRECTORY: &str = "ldap.example.org";
const DIRECTORY_PORT: u16 = 636;
const BIND_PASSWORD: &str = "password of the account that searches";
/// What the certificate of the tenant's API server has among its names, and the port of the cluster's load balancer.
const API_SERVERS: &str = "kubernetes";
const API_SERVERS_PORT: u16 = 30_100;
/// Of a control-plane machine.
const API_SERVER_PORT: u16 = 6443;
const ADA: Person<'_> = Person {
    uid: "ada",
    password: "correct horse",
    groups: &["admins"],
};

/// The tenant's cluster, on one machine of the site, and a person who opens what kubelogin asks to open.
struct Tenant {
    _site: Site,
    _machine: Proxy,
    _browser: JoinSet<()>,
}

impl Tenant {
    /// With the files of its administrators on the desk, as the page names them.
    async fn start(desk: &Desk, site: &Site) -> Self {
        let [machine, _, _] = site.node().unwrap().machines();
        let tenant = Site::builder("orders")
            .nodes(Nodes::Kwok(1))
            .authentication(&desk.file("authentication.json"))
            .hosts(&desk.file("hosts"))
            .start()
            .await
            .unwrap();
        fs::copy(tenant.admin_kubeconfig(), desk.file("orders-admin.kubeconfig")).unwrap();
        fs::copy(tenant.directory().join("pki/ca.crt"), desk.file("orders-ca.crt")).unwrap();
        let server = tenant.server().trim_start_matches("https://").to_owned();
        let machine = Proxy::at((machine, API_SERVER_PORT).into(), server).await;
        let node = site.node().unwrap().address();
        is_reached((node, API_SERVERS_PORT).into()).await;

        let address = SocketAddrV4::new(node, PROVIDER_PORT);
        let issuer = format!("https://{PROVIDER}:{PROVIDER_PORT}/dex");
        let bundle = fs::read_to_string(desk.file("oidc-ca.crt")).unwrap();
        let provider = Provider::at(address, &issuer, &bundle).unwrap();
        let mut browser = JoinSet::new();
        browser.spawn(browse(desk.file("opened"), provider));
        Self {
            _site: tenant,
            _machine: machine.unwrap(),
            _browser: browser,
        }
    }
}

/// Waits until the load balancer has found out that the API server runs, as that of a tenant does before people log in.
async fn is_reached(at: SocketAddr) {
    let reached = async {
        while hangs_up(at).await {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    tokio::time::timeout(PATIENCE, reached).await.unwrap();
}

/// Logs in at each address that a program has written to a file.
async fn browse(opened: PathBuf, provider: Provider) {
    let mut pace = tokio::time::interval(Duration::from_millis(50));
    loop {
        pace.tick().await;
        if let Ok(address) = fs::read_to_string(&opened) {
            fs::remove_file(&opened).unwrap();
            let login = kubelogin::browse(&address, &provider, (ADA.uid, ADA.password));
            login.await.unwrap();
        }
    }
}

/// What desktops have to open a browser: it writes the address to a file.
fn write_opener(directory: &Path, opened: &Path) {
    fs::create_dir(directory).unwrap();
    let file = directory.join("xdg-open");
    let opened = opened.display();
    let script = format!("#!/bin/sh\nprintf %s \"$1\" >'{opened}.new' && mv '{opened}.new' '{opened}'\n");
    fs::write(&file, script).unwrap();
    fs::set_permissions(file, fs::Permissions::from_mode(0o755)).unwrap();
}

/// What the page tells people to write into files.
fn write_files(desk: &Desk, page: &str, directory: &Directory) {
    let storage = desk.file("deploy/examples/my-site-storage");
    fs::create_dir(&storage).unwrap();
    let kustomization = sample(page, "registry.example/etcd");
    fs::write(storage.join("kustomization.yaml"), kustomization).unwrap();
    let entry = sample(page, "services:\n  auth:");
    let lines = entry.lines().filter(|line| !line.contains("kubeconfigSecret"));
    let lines: Vec<String> = lines.map(|line| format!("\n  {line}")).collect();
    fs::write(desk.file("auth.yaml"), format!("spec:{}", lines.concat())).unwrap();
    fs::write(desk.file("sip-agents.yaml"), sample(page, "kind: ServiceAccount")).unwrap();
    fs::write(desk.file("directory-ca.crt"), directory.authority().unwrap()).unwrap();
    fs::write(desk.file("search-password"), BIND_PASSWORD).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn every_command_of_the_page_on_logins_works() {
    if let Some(why) = node::obstacle() {
        println!("not shown here: {why}");
        return;
    }
    let text = |page: &str| fs::read_to_string(repository::root().join(page)).unwrap();
    let (installation, page) = (text(INSTALLATION), text(PAGE));
    let (installation, _) = installation.split_once(INSTALLED).unwrap();
    let (before, steps) = (steps(installation), steps(&page));
    assert!(before.len() > 4 && steps.len() > 12, "{before:?} {steps:?}");
    let images = vec![
        dex::image("dexidp/dex:v2.45.0").unwrap(),
        Image::new("registry.example/etcd:v3.6.16", tools::path("etcd").unwrap()),
    ];
    let mut desk = Desk::new();
    let site = furnished("install-auth", Vec::new(), images).await;
    let (here, node): (Ipv4Addr, Ipv4Addr) = {
        let node = site.node().unwrap();
        (node.host_address(), node.address())
    };
    let outside = vec![
        (PROVIDER, Target::Address(node)),
        (DIRECTORY, Target::Address(here)),
    ];
    let _names = Names::serve(&site, outside).await.unwrap();
    let group = Group::new("install-auth-directory").unwrap();
    let address = SocketAddrV4::new(here, DIRECTORY_PORT);
    let directory = Directory::start_named(&group, address, DIRECTORY, &[ADA], BIND_PASSWORD);
    let directory = directory.await.unwrap();
    write_files(&desk, &page, &directory);
    write_opener(&desk.file("programs"), &desk.file("opened"));
    desk.add_programs(&desk.file("programs"));
    desk.add_programs(tools::path("kubectl-oidc_login").unwrap().parent().unwrap());
    desk.add_hosts(&[(PROVIDER, node), (API_SERVERS, node)]);
    desk.set("SERVER", format!("https://{API_SERVERS}:{API_SERVERS_PORT}"));
    for step in &before {
        desk.follow(INSTALLATION, step, &site).await;
    }

    let mut tenant = None;
    for step in &steps {
        desk.follow(PAGE, step, &site).await;
        if tenant.is_none() && desk.file("oidc-ca.crt").exists() {
            tenant = Some(Tenant::start(&desk, &site).await);
        }
    }

    nothing_was_refused(&site);
}

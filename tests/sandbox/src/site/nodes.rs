//! The nodes that run the site's own pods: load balancers, jump hosts.

use std::fs;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::Node;
use kube::{Api, api::PostParams, runtime::watcher};
use serde_json::json;

use super::{Error, PATIENCE, access::Access, access::api_error};
use crate::{
    node::{self, Obstacle},
    process::{Group, Process, Program},
    tools, wait,
};

/// Who runs pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Nodes {
    /// Nobody: pods stay pending. Quickest to start.
    #[default]
    None,
    /// KWOK: so many nodes whose pods become Ready without running anything.
    Kwok(u32),
    /// One node that really runs pods; only root on Linux can have it.
    Real,
}

impl Nodes {
    /// One real node where that is possible, else so many fake ones, and why.
    #[must_use]
    pub fn real_or_kwok(fake: u32) -> (Self, Option<Obstacle>) {
        match node::obstacle() {
            None => (Self::Real, None),
            Some(obstacle) => (Self::Kwok(fake), Some(obstacle)),
        }
    }

    pub(super) fn any(self) -> bool {
        match self {
            Self::None | Self::Kwok(0) => false,
            Self::Kwok(_) | Self::Real => true,
        }
    }

    /// Brings fake nodes up, and waits until all are Ready.
    pub(super) async fn start_fake(
        self,
        group: &Group,
        access: &Access,
        say: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<Option<Process>, Error> {
        match self {
            Self::None | Self::Kwok(0) | Self::Real => Ok(None),
            Self::Kwok(count) => {
                say("nodes become ready");
                kwok(group, access, count).await.map(Some)
            }
        }
    }
}

/// Marks the nodes that KWOK answers for.
const MANAGED_BY_KWOK: (&str, &str) = ("kwok.x-k8s.io/node", "fake");

async fn kwok(group: &Group, access: &Access, count: u32) -> Result<Process, Error> {
    let (annotation, value) = MANAGED_BY_KWOK;
    let ready_again = group.directory().join("pod-ready-again.yaml");
    fs::write(&ready_again, include_str!("pod-ready-again.yaml")).map_err(|source| Error::File {
        path: ready_again.clone(),
        source,
    })?;
    let process = group.spawn(
        Program::new("kwok", tools::path("kwok")?)
            .flag("--kubeconfig", access.admin())
            .flag("--config", tools::path("kwok-stages")?)
            .flag("--config", ready_again)
            .flag(
                "--manage-nodes-with-annotation-selector",
                format!("{annotation}={value}"),
            )
            .flag("--node-lease-duration-seconds", "40")
            .flag("--cidr", "10.0.0.0/16"),
    )?;
    let api: Api<Node> = Api::all(access.client());
    stream::iter((0..count).map(|index| fake_node(&format!("node-{index}"))))
        .map(|node| {
            let api = api.clone();
            async move {
                let node = node?;
                api.create(&PostParams::default(), &node)
                    .await
                    .map_err(api_error("create a Node".to_owned()))
            }
        })
        .buffer_unordered(16)
        .try_for_each(|_| async { Ok(()) })
        .await?;
    let expected = usize::try_from(count).unwrap_or(usize::MAX);
    let all_ready = |nodes: &[&Node]| nodes.len() == expected && nodes.iter().all(|one| node::is_ready(one));
    wait::until_all(
        api,
        watcher::Config::default(),
        "all nodes to be Ready",
        PATIENCE,
        all_ready,
    )
    .await?;
    Ok(process)
}

fn fake_node(name: &str) -> Result<Node, Error> {
    let (annotation, value) = MANAGED_BY_KWOK;
    serde_json::from_value(json!({
        "metadata": {
            "name": name,
            "annotations": { annotation: value },
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                "type": "kwok",
            },
        },
    }))
    .map_err(|source| api_error("describe a Node".to_owned())(kube::Error::SerdeError(source)))
}

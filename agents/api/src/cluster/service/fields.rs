//! Checks the single fields that every entry has.

use std::{collections::BTreeSet, net::IpAddr};

use vocabulary::{NetworkId, dns};

use super::{BadImage, Balance, Image};
use crate::fault::Fault;

pub(super) fn image(text: Option<&str>, path: &str, faults: &mut Vec<Fault>) -> Option<Image> {
    let Some(text) = text.filter(|text| !text.is_empty()) else {
        faults.push(Fault::absent(path, "must be set"));
        return None;
    };
    text.parse()
        .map_err(|BadImage| {
            faults.push(Fault::text(
                path,
                text,
                "must not contain white space or control characters",
            ));
        })
        .ok()
}

pub(super) fn network_id(text: Option<&str>, path: &str, faults: &mut Vec<Fault>) -> Option<NetworkId> {
    match text {
        None | Some("") => {
            faults.push(Fault::absent(
                path,
                "must be set: the id of a network in the hosts' networkData",
            ));
            None
        }
        Some(text) => {
            let id = NetworkId::new(text);
            id.map_err(|error| {
                let rule = if text.contains(char::is_control) {
                    "must not contain control characters"
                } else {
                    error.rule
                };
                faults.push(Fault::text(path, text, rule));
            })
            .ok()
        }
    }
}

/// As in SIP, empty is absent.
pub(super) fn cluster_ip(text: Option<&str>, path: &str, faults: &mut Vec<Fault>) -> Option<IpAddr> {
    let text = text.filter(|text| !text.is_empty())?;
    text.parse()
        .map_err(|_| faults.push(Fault::text(path, text, "must be an IPv4 or IPv6 address")))
        .ok()
}

pub(super) fn balance(text: Option<&str>, path: &str, faults: &mut Vec<Fault>) -> Option<Balance> {
    let Some(text) = text else {
        return Some(Balance::default());
    };
    let known = [Balance::RoundRobin, Balance::LeastConn];
    let balance = known.into_iter().find(|balance| balance.as_str() == text);
    if balance.is_none() {
        faults.push(Fault::text(path, text, "must be roundrobin or leastconn"));
    }
    balance
}

/// Each once, in the order of the spec.
pub(super) fn network_attachments(
    names: Option<&Vec<String>>,
    path: &str,
    faults: &mut Vec<Fault>,
) -> Vec<String> {
    let mut attachments = Vec::new();
    let mut known = BTreeSet::new();
    for (index, name) in names.into_iter().flatten().enumerate() {
        let path = format!("{path}[{index}]");
        if !dns::is_subdomain(name) {
            let rule = "must be the name of a NetworkAttachmentDefinition in the same namespace: at most 253 lowercase letters, digits, '-' and '.'";
            faults.push(Fault::text(&path, name, rule));
        } else if known.insert(name) {
            attachments.push(name.clone());
        } else {
            faults.push(Fault::text(&path, name, "is named twice"));
        }
    }
    attachments
}

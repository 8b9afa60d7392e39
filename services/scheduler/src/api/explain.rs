//! Why a host would not be taken.

use std::collections::BTreeSet;

use ::placement::{HostName, NetworkId, Role};
use proto::inventory::v1::{ExplainHostRequest, ExplainHostResponse, Ineligibility};

use super::{
    authorizer::Authorized,
    capacity,
    inventory::{host_name, invalid, not_found},
};
use crate::{
    convert,
    error::Error,
    site::Site,
    violation::{MAX_VIOLATIONS, Violation},
};

/// An `ExplainHost`, parsed.
#[derive(Debug)]
pub(super) struct Explain {
    site: String,
    host: HostName,
    role: Role,
    networks: BTreeSet<NetworkId>,
}

impl Explain {
    /// Parses it.
    ///
    /// # Errors
    /// Every field that breaks a rule.
    pub(super) fn parse(request: ExplainHostRequest) -> Result<Self, Error> {
        let ExplainHostRequest {
            site,
            namespace,
            name,
            role,
            network_ids,
        } = request;
        let host = host_name(&namespace, &name, "name")?;
        let role = role.ok_or_else(|| invalid("role", "is missing"))?;
        let mut violations = Vec::new();
        let role = convert::parse_role(&role, "role", &mut violations);
        let mut networks = BTreeSet::new();
        for (index, id) in network_ids.iter().enumerate() {
            // A request may have millions of them; no more are told.
            if violations.len() > MAX_VIOLATIONS {
                break;
            }
            match NetworkId::new(id) {
                Ok(id) => {
                    networks.insert(id);
                }
                Err(error) => violations.push(Violation::new(format!("network_ids[{index}]"), error)),
            }
        }
        let Some(role) = role.filter(|_| violations.is_empty()) else {
            return Err(Error::Invalid(violations));
        };
        Ok(Self {
            site,
            host,
            role,
            networks,
        })
    }
}

/// Answers it.
///
/// # Errors
/// [`Error::NotFound`].
pub(super) async fn answer(authorized: Authorized<Explain>) -> Result<ExplainHostResponse, Error> {
    let (request, caller, terms) = authorized.into_parts();
    let Explain {
        site,
        host,
        role,
        networks,
    } = request;
    let region = terms.region()?;
    let shared = region.site(&site)?;
    let request = ::placement::Request {
        cluster: capacity::probe(host.namespace(), 0)?,
        roles: Vec::new(),
        networks,
    };
    let explain = {
        let region = region.clone();
        move |site: &Site| {
            if !site.hosts().contains_key(&host) {
                return Err(not_found(&host, site.name()));
            }
            let reasons = ::placement::explain(site.model(), &request, &role, &host);
            Ok((reasons, region.state(site)))
        }
    };
    let (reasons, state) = region.read(&caller, &shared, explain).await??;
    let reasons = reasons
        .into_iter()
        .map(|reason| Ineligibility {
            reason: reason.kind().to_owned(),
            message: reason.to_string(),
        })
        .collect();
    Ok(ExplainHostResponse {
        reasons,
        site_state: Some(state.into()),
    })
}

//! Reading a host from its BMC, and carrying an action out: once, on the host of the caller's cluster.

use std::{collections::BTreeSet, time::Duration};

use k8s_openapi::api::core::v1::ObjectReference;
use kit::placement::HostId;
use kube::Client as Kubernetes;
use proto::power::v1::{Accepted, Done, set_power_response::Step};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::{
    action::{Action, Goal, Impossible},
    bmc::Credentials,
    bmc_locks::BmcLocks,
    convert,
    effects::Effect,
    error::Error,
    host::Host,
    idempotency::Operation,
    members::Membership,
    reads::Reads,
    redfish::{ActionConnection, Client, Failure, Network, System, Unsent},
    tenant::Tenant,
};

/// Timeout of all steps before an action.
const PREPARATION_TIMEOUT: Duration = Duration::from_secs(90);
/// Timeout of a read of a host.
pub(crate) const READ_TIMEOUT: Duration = Duration::from_secs(45);
/// Age that the last checks before an action may have when it is sent.
const MAX_CHECK_AGE: Duration = Duration::from_secs(2);

/// How long and how often the host is read after an action until its effect is observed.
#[derive(Clone, Copy, Debug)]
pub struct EffectPolling {
    /// How long a BMC may take to show the effect of an action: an operating system shuts down before.
    pub timeout: Duration,
    /// How often it is read.
    pub interval: Duration,
}

impl Default for EffectPolling {
    fn default() -> Self {
        Self {
            timeout: Duration::from_mins(10),
            interval: Duration::from_secs(1),
        }
    }
}

/// Reads hosts and executes actions; shared by all calls.
#[derive(Debug)]
pub(crate) struct Executor<M> {
    pub(crate) client: DebugClient,
    pub(crate) namespaces: BTreeSet<String>,
    pub(crate) network: Network,
    pub(crate) membership: M,
    pub(crate) reads: Reads,
    pub(crate) bmc_locks: BmcLocks,
    pub(crate) effect_polling: EffectPolling,
    pub(crate) stop: CancellationToken,
}

/// A client of the API server.
#[derive(Clone)]
pub(crate) struct DebugClient(pub(crate) Kubernetes);

impl std::fmt::Debug for DebugClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Client")
    }
}

/// How an action ended.
#[derive(Debug)]
pub(crate) struct Ending {
    /// The host, where it was read.
    pub(crate) host: Option<ObjectReference>,
    /// What was sent.
    pub(crate) did: String,
    pub(crate) outcome: Result<(), Error>,
}

/// An action that may be sent.
struct Prepared {
    client: Client,
    system: System,
    /// What to send, and over what; `None`: the host has the requested state.
    send: Option<(&'static str, ActionConnection)>,
    /// When the last checks have begun.
    checked: Instant,
}

impl<M: Membership> Executor<M> {
    /// A host as its BMC shows it, and the reset types that the BMC offers. Must not be cancelled: a session that the BMC has made
    /// would be left there. It ends within the time that a BMC has for the login, [`READ_TIMEOUT`], and the time for the logout.
    ///
    /// # Errors
    /// Every [`Error`] about a host.
    pub(crate) async fn read(
        &self,
        tenant: &Tenant,
        id: &HostId,
    ) -> Result<(Host, System, Option<Vec<String>>), Error> {
        let before = async {
            let host = Host::read(&self.client.0, &self.namespaces, id).await?;
            let (address, _) = host.bmc(tenant.bmc_proxy)?;
            let slot = self
                .reads
                .slot(&address.authority(), tenant.cluster.namespace())
                .await?;
            let credentials = host.credentials(&self.client.0).await?;
            Ok((host, slot, credentials))
        };
        let before = timeout(READ_TIMEOUT, before)
            .await
            .unwrap_or(Err(Error::TooLate(READ_TIMEOUT)));
        let (host, _slot, credentials) = before?;
        let mut client = self.login_with(tenant, &host, &credentials).await?;
        let read = async {
            let system = client.system().await?;
            let offered = client.offered(&system).await?;
            Ok((system, offered))
        };
        let read = self.stop.run_until_cancelled(timeout(READ_TIMEOUT, read)).await;
        client.logout().await;
        let read = read
            .ok_or(Error::Ending)?
            .map_err(|_elapsed| Error::TooLate(READ_TIMEOUT))?;
        let (system, offered) = read.map_err(|failure| failed(&host, failure))?;
        Ok((host, system, offered))
    }

    /// Executes an action, and sends it once at most, whatever fails. Calls `sending` with the reset type before the request can reach the
    /// BMC.
    pub(crate) async fn carry_out(
        &self,
        tenant: &Tenant,
        id: &HostId,
        (action, operation): (Action, &Operation),
        sending: impl Fn(&'static str) + Send,
    ) -> Ending {
        let mut ending = Ending {
            host: None,
            did: "nothing was sent".to_owned(),
            outcome: Ok(()),
        };
        let what = (action, operation);
        ending.outcome = self.carried_out(tenant, id, what, &mut ending, sending).await;
        ending
    }

    async fn carried_out(
        &self,
        tenant: &Tenant,
        id: &HostId,
        (action, operation): (Action, &Operation),
        ending: &mut Ending,
        sending: impl Fn(&'static str) + Send,
    ) -> Result<(), Error> {
        let host = Host::read(&self.client.0, &self.namespaces, id).await?;
        ending.host = Some(host.reference());
        let (address, route) = host.bmc(tenant.bmc_proxy)?;
        let (bmc, namespace) = (address.authority(), tenant.cluster.namespace());
        let taking = async {
            let resolved = self.network.resolve(&address, route).await;
            self.bmc_locks.take(&bmc, &resolved, namespace).await
        };
        let lock = self
            .stop
            .run_until_cancelled(taking)
            .await
            .ok_or(Error::Ending)??;
        let (host, prepared) = self.prepare(tenant, &host, action, operation).await?;
        let Prepared {
            client,
            system,
            send,
            checked,
        } = prepared;
        let Some((reset_type, connection)) = send else {
            client.logout().await;
            operation.step(Step::Done(Done {
                power_state: convert::power(system.reading.power).into(),
                changed: false,
            }));
            return Ok(());
        };
        if checked.elapsed() > MAX_CHECK_AGE {
            client.logout().await;
            return Err(Error::ChecksTooOld(MAX_CHECK_AGE));
        }
        sending(reset_type);
        operation.sending();
        let sent = client.reset_over(connection, &system, reset_type).await;
        drop(lock);
        if let Err(unsent) = sent {
            client.logout().await;
            let name = host.name();
            return Err(match unsent {
                Unsent::Refused(failure) => Error::BmcFailed { host: name, failure },
                Unsent::Unknown(failure) => {
                    ending.did = format!("{reset_type} was sent");
                    Error::OutcomeUnknown { host: name, failure }
                }
            });
        }
        ending.did = format!("{reset_type} was sent");
        operation.sent();
        let effect = Effect {
            tenant,
            host: &host,
            bmc: &bmc,
            goal: action.goal(),
            reset_type,
        };
        self.observe(client, effect, system.reading, operation).await
    }

    /// Prepares an action, and repeats the checks right before it, when its connection is open already. The host cannot go to another cluster in
    /// between: before that it is released, which takes a write to its BareMetalHost and a report of it.
    async fn prepare(
        &self,
        tenant: &Tenant,
        earlier: &Host,
        action: Action,
        operation: &Operation,
    ) -> Result<(Host, Prepared), Error> {
        let id = earlier.id();
        let before = async {
            let host = self.reread(tenant, earlier).await?;
            let credentials = host.credentials(&self.client.0).await?;
            Ok((host, credentials))
        };
        let before = self.stop.run_until_cancelled(timeout(READ_TIMEOUT, before)).await;
        let before = before.ok_or(Error::Ending)?;
        let (host, credentials) = before.unwrap_or(Err(Error::TooLate(READ_TIMEOUT)))?;
        // As in `read`, not cancelled: a session that the BMC has made would be left there.
        let mut client = self.login_with(tenant, &host, &credentials).await?;
        let decided = async {
            let read = async {
                let system = client.system().await?;
                let offered = client.offered(&system).await?;
                Ok((system, offered))
            };
            let (system, offered) = read.await.map_err(|failure| failed(&host, failure))?;
            let decision = action.decide(system.reading.power, offered.as_deref());
            let reset_type = decision.map_err(|impossible| match impossible {
                Impossible::HostIsOff => Error::HostIsOff { host: host.name() },
                Impossible::NotOffered { wanted } => Error::NotOffered {
                    host: host.name(),
                    wanted,
                    offered: offered.unwrap_or_default(),
                },
            })?;
            let send = match reset_type {
                None => None,
                Some(reset_type) => {
                    let connection = client
                        .connect_for_action()
                        .await
                        .map_err(|failure| failed(&host, failure))?;
                    Some((reset_type, connection))
                }
            };
            let checked = Instant::now();
            self.check_still_held(tenant, id).await?;
            let host = self.reread(tenant, &host).await?;
            Ok((host, system, send, checked))
        };
        let decided = self
            .stop
            .run_until_cancelled(timeout(PREPARATION_TIMEOUT, decided))
            .await;
        let decided = decided.map(|decided| decided.unwrap_or(Err(Error::TooLate(PREPARATION_TIMEOUT))));
        match decided.unwrap_or(Err(Error::Ending)) {
            Ok((host, system, send, checked)) => {
                let reset_type = send.as_ref().map(|(reset_type, _)| *reset_type);
                operation.step(Step::Accepted(Accepted {
                    host: host.name(),
                    power_state: convert::power(system.reading.power).into(),
                    reset_type: reset_type.unwrap_or_default().to_owned(),
                    notes: host.notes(action.goal() != Goal::Off),
                }));
                let prepared = Prepared {
                    client,
                    system,
                    send,
                    checked,
                };
                Ok((host, prepared))
            }
            Err(error) => {
                client.logout().await;
                Err(error)
            }
        }
    }

    /// Reads the host again, and checks that this cluster may change its power state and that its BMC is the same as before. Checks the labels,
    /// too, since the users of the host rely on them, not on the scheduler's answer.
    async fn reread(&self, tenant: &Tenant, earlier: &Host) -> Result<Host, Error> {
        let host = Host::read(&self.client.0, &self.namespaces, earlier.id()).await?;
        allowed(&host)?;
        if host.is_labelled_for_another(&tenant.cluster) {
            return Err(Error::NotAMember {
                cluster: tenant.cluster.key().to_string(),
                host: host.name(),
            });
        }
        if !host.has_bmc_of(earlier) {
            return Err(Error::Busy {
                host: host.name(),
                why: "its spec.bmc was changed a moment ago".to_owned(),
            });
        }
        Ok(host)
    }

    /// Checks that the cluster holds the host now, and does not release it.
    pub(crate) async fn check_still_held(&self, tenant: &Tenant, id: &HostId) -> Result<(), Error> {
        let members = self.membership.members(&tenant.cluster).await?;
        let member = members.iter().find(|member| member.host == *id);
        let cluster = tenant.cluster.key().to_string();
        match member {
            Some(member) if member.is_releasing() => Err(Error::Releasing {
                cluster,
                host: id.to_string(),
            }),
            Some(_) => Ok(()),
            None => Err(Error::NotAMember {
                cluster,
                host: id.to_string(),
            }),
        }
    }

    pub(crate) async fn login_with(
        &self,
        tenant: &Tenant,
        host: &Host,
        credentials: &Credentials,
    ) -> Result<Client, Error> {
        let (address, route) = host.bmc(tenant.bmc_proxy)?;
        let login = Client::login(&self.network, &address, route, credentials).await;
        login.map_err(|failure| failed(host, failure))
    }
}

fn allowed(host: &Host) -> Result<(), Error> {
    host.blocked().map_or(Ok(()), |why| {
        Err(Error::Busy {
            host: host.name(),
            why,
        })
    })
}

fn failed(host: &Host, failure: Failure) -> Error {
    Error::BmcFailed {
        host: host.name(),
        failure,
    }
}

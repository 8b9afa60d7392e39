//! The gRPC service.

use std::{
    collections::BTreeSet,
    pin::Pin,
    sync::{Arc, OnceLock},
    time::Duration,
};

use futures::{Stream, StreamExt as _, TryStreamExt as _, stream};
use kit::events::Events;
use proto::power::v1::{
    Action as WireAction, GetConsoleRequest, GetConsoleResponse, GetHostRequest, GetHostResponse,
    Host as WireHost, ListHostsRequest, ListHostsResponse, SetPowerRequest, SetPowerResponse,
    power_service_server::PowerService,
};
use tokio::time::timeout;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::{Request, Response, Status, metadata::MetadataMap};

use crate::{
    action::Action,
    answers::Answers,
    audit::{Audit, CallDetails, Caller},
    bmc_locks::BmcLocks,
    connections::{Call, Peer},
    convert,
    error::{Error, clipped},
    execution::{DebugClient, EffectPolling, Ending, Executor, READ_TIMEOUT},
    host::Host,
    idempotency::{ActionRequest, Key, Operations},
    limits::{CallSlot, Limits},
    members::{Intent, Member, Membership, named},
    metrics::PowerMetrics,
    reads::Reads,
    redfish::{Network, System},
    tenant::{Tenant, tenant},
    token::Reviews,
};

/// Timeout of a list.
const LIST_TIMEOUT: Duration = Duration::from_secs(30);
/// Concurrent reads of `BareMetalHost`s for one list.
const MAX_CONCURRENT_READS: usize = 16;
/// Name of the controller in Events.
const REPORTING_CONTROLLER: &str = "sip-jump-host-agent";

/// What power control needs to serve.
#[derive(Debug)]
pub struct Config {
    /// Namespaces with `BareMetalHosts`; hosts in others are refused.
    pub host_namespaces: BTreeSet<String>,
    /// How BMCs are reached.
    pub network: Network,
    /// How long effects are waited for.
    pub effect_polling: EffectPolling,
    /// What is counted.
    pub metrics: PowerMetrics,
    /// Where it is noted which BMCs fail.
    pub answers: Answers,
    /// Cancelled when the process ends. Actions that were not sent by then are not sent.
    pub stop: CancellationToken,
}

/// Power control by the replica that holds the Lease.
#[derive(Debug)]
pub struct Power<M> {
    executor: Executor<M>,
    reviews: Reviews,
    limits: Limits,
    operations: Arc<Operations>,
    answers: Answers,
    audit: Audit,
    tasks: TaskTracker,
    term: String,
}

impl<M: Membership> Power<M> {
    /// Power control by this API server, for the hosts that `membership` names.
    #[must_use]
    pub fn new(client: kube::Client, membership: M, config: Config) -> Self {
        let Config {
            host_namespaces,
            network,
            effect_polling,
            metrics,
            answers,
            stop,
        } = config;
        Self {
            reviews: Reviews::new(client.clone()),
            limits: Limits::default(),
            operations: Arc::default(),
            answers,
            audit: Audit::new(Events::new(client.clone(), REPORTING_CONTROLLER), metrics),
            executor: Executor {
                client: DebugClient(client),
                namespaces: host_namespaces,
                network,
                membership,
                reads: Reads::default(),
                bmc_locks: BmcLocks::default(),
                effect_polling,
                stop,
            },
            tasks: TaskTracker::new(),
            term: uuid::Uuid::new_v4().to_string(),
        }
    }

    /// Waits until the actions that have begun have ended. The process must be ending.
    pub(crate) async fn drained(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }
}

/// Power control of a replica, which serves once it holds the Lease. Cheap to clone.
#[derive(Debug)]
pub struct Replica<M>(Arc<OnceLock<Arc<Power<M>>>>);

impl<M> Clone for Replica<M> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<M> Default for Replica<M> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<M> Replica<M> {
    /// Begins to serve, until the process ends.
    pub fn lead(&self, power: Power<M>) {
        // A replica wins the election once in its life.
        let _ = self.0.set(Arc::new(power));
    }

    pub(crate) fn power(&self) -> Option<Arc<Power<M>>> {
        self.0.get().cloned()
    }
}

/// The gRPC service.
#[derive(Debug)]
pub(crate) struct Api<M>(pub(crate) Replica<M>);

/// A call whose caller was admitted.
struct Admitted<M> {
    power: Arc<Power<M>>,
    caller: Caller,
    tenant: Tenant,
    /// Its places in the limits while it lasts.
    held: (CallSlot, Call),
    call: &'static str,
    host: String,
    action: Option<Action>,
}

impl<M: Membership> Api<M> {
    async fn admit(
        &self,
        (peer, headers): (&Peer, &MetadataMap),
        call: &'static str,
        host: &str,
    ) -> Result<Admitted<M>, Status> {
        let power = self.0.power().ok_or(Error::Standby)?;
        let mut caller = Caller::new(peer.address(), headers);
        let host = clipped(host);
        let admitted = async {
            let holder = power.reviews.holder(headers, peer.address().ip()).await?;
            caller.set_holder(&holder);
            power.limits.call(&holder)?;
            let tenant = tenant(&power.executor.client.0, &holder).await?;
            caller.set_tenant(&tenant);
            let namespace = tenant.cluster.namespace();
            let place = power.limits.enter(namespace, tenant.cluster.uid())?;
            let held = (place, peer.call(namespace));
            Ok::<_, Error>((tenant, held))
        };
        match admitted.await {
            Ok((tenant, held)) => Ok(Admitted {
                power,
                caller,
                tenant,
                held,
                call,
                host,
                action: None,
            }),
            Err(error) => {
                let status = Status::from(error);
                let about = CallDetails {
                    call,
                    host: &host,
                    action: None,
                };
                power.audit.answered(&caller, about, Some(&status));
                Err(status)
            }
        }
    }
}

impl<M: Membership> Admitted<M> {
    fn details(&self) -> CallDetails<'_> {
        CallDetails {
            call: self.call,
            host: &self.host,
            action: self.action,
        }
    }

    /// Audits the answer.
    fn answer<T>(&self, result: Result<T, Error>) -> Result<T, Status> {
        let result = result.map_err(Status::from);
        let refusal = result.as_ref().err();
        self.power.audit.answered(&self.caller, self.details(), refusal);
        result
    }

    async fn member(&self, intent: Intent) -> Result<Member, Error> {
        let members = self
            .power
            .executor
            .membership
            .members(&self.tenant.cluster)
            .await?;
        named(&members, &self.tenant.cluster, &self.host, intent).cloned()
    }

    async fn list(&self, request: ListHostsRequest) -> Result<ListHostsResponse, Error> {
        let ListHostsRequest { without_hosts } = request;
        if without_hosts {
            return Ok(self.listed(Vec::new()));
        }
        let executor = &self.power.executor;
        let mut members = executor.membership.members(&self.tenant.cluster).await?;
        let namespace = self.tenant.cluster.namespace();
        executor.reads.count_list(namespace, members.len())?;
        members.sort_by(|a, b| {
            let key = |member: &Member| {
                (
                    member.host.key().name.clone(),
                    member.host.key().namespace.clone(),
                )
            };
            key(a).cmp(&key(b))
        });
        let hosts = stream::iter(members).map(async |member| {
            match Host::read(&executor.client.0, &executor.namespaces, &member.host).await {
                Ok(host) => Ok(convert::host(&member, Ok((&host, host.last_power())))),
                Err(error @ Error::BmcUnusable { .. }) => Ok(convert::host(&member, Err(&error.to_string()))),
                Err(error) => Err(error),
            }
        });
        let hosts = timeout(LIST_TIMEOUT, hosts.buffered(MAX_CONCURRENT_READS).try_collect()).await;
        Ok(self.listed(hosts.unwrap_or(Err(Error::TooLate(LIST_TIMEOUT)))?))
    }

    fn listed(&self, hosts: Vec<WireHost>) -> ListHostsResponse {
        ListHostsResponse {
            cluster: self.tenant.cluster.key().to_string(),
            hosts,
            term: self.power.term.clone(),
        }
    }

    /// Reads a host in a task of its own, which logs out of the BMC also when the caller disconnects or does not wait.
    async fn read(&self, member: &Member) -> Result<(Host, System, Option<Vec<String>>), Error> {
        let power = Arc::clone(&self.power);
        let (tenant, id) = (self.tenant.clone(), member.host.clone());
        power.executor.reads.count(tenant.cluster.uid(), id.uid())?;
        let reading = self.power.tasks.spawn(async move {
            let read = power.executor.read(&tenant, &id).await;
            power.answers.note(&tenant.cluster, &id, &read);
            read
        });
        match timeout(READ_TIMEOUT, reading).await {
            Ok(read) => read.unwrap_or(Err(Error::Ending)),
            Err(_elapsed) => Err(Error::TooLate(READ_TIMEOUT)),
        }
    }

    async fn get(&self) -> Result<GetHostResponse, Error> {
        let member = self.member(Intent::Read).await?;
        let (host, system, offered) = self.read(&member).await?;
        let boot = system.reading.boot;
        Ok(GetHostResponse {
            host: Some(convert::host(&member, Ok((&host, system.reading.power)))),
            offered: offered.unwrap_or_default(),
            boot_progress: boot.unwrap_or_default(),
            term: self.power.term.clone(),
        })
    }

    async fn consoles(&self) -> Result<GetConsoleResponse, Error> {
        let member = self.member(Intent::Read).await?;
        let (host, system, _) = self.read(&member).await?;
        Ok(GetConsoleResponse {
            host: host.name(),
            consoles: system.consoles.into_iter().map(convert::console).collect(),
        })
    }

    async fn begin(&mut self, request: &SetPowerRequest) -> Result<ActionRequest, Error> {
        let SetPowerRequest {
            host: _,
            action,
            idempotency_key,
            term,
        } = request;
        let wire = WireAction::try_from(*action).unwrap_or(WireAction::Unspecified);
        let action = Action::parse(wire).ok_or_else(|| Error::Invalid {
            field: "action",
            value: action.to_string(),
            rule: "must be one of the named actions, such as ACTION_REBOOT".to_owned(),
        })?;
        self.action = Some(action);
        let key = Key::parse(idempotency_key)?;
        if term.is_empty() {
            return Err(Error::Invalid {
                field: "term",
                value: String::new(),
                rule: "must be the term of an answer of GetHost or ListHosts".to_owned(),
            });
        }
        if *term != self.power.term {
            return Err(Error::TermOver {
                requested: clipped(term),
            });
        }
        let cluster = self.tenant.cluster.uid();
        // A repetition gets the same answer, even after the host has left the cluster.
        let operations = &self.power.operations;
        if let Some(follower) = operations.repeated(cluster, &key, &self.host, action) {
            return Ok(ActionRequest::Repeated(follower));
        }
        let member = self.member(Intent::Change).await?;
        self.power
            .executor
            .check_still_held(&self.tenant, &member.host)
            .await?;
        let (host, name) = (member.host.uid(), member.host.to_string());
        let begun = operations.begin(cluster, key, (host, &name, &self.host), action, || {
            self.power.limits.act(cluster, host)
        })?;
        if let ActionRequest::New(operation, follower) = begun {
            self.carry_out(member, action, operation);
            return Ok(ActionRequest::Repeated(follower));
        }
        Ok(begun)
    }

    /// Executes the action in a task of its own: it continues when the caller disconnects.
    fn carry_out(&self, member: Member, action: Action, operation: crate::idempotency::Operation) {
        let (power, caller, tenant) = (Arc::clone(&self.power), self.caller.clone(), self.tenant.clone());
        let call = self.call;
        power.audit.metrics().begun();
        self.power.tasks.spawn(async move {
            let name = member.host.to_string();
            let about = CallDetails {
                call,
                host: &name,
                action: Some(action),
            };
            let sending = |reset_type| power.audit.sending(&caller, about, reset_type);
            let Ending { host, did, outcome } = power
                .executor
                .carry_out(&tenant, &member.host, (action, &operation), sending)
                .await;
            power.answers.note(&tenant.cluster, &member.host, &outcome);
            let outcome = outcome.map_err(Status::from);
            power.audit.acted(&caller, about, &outcome);
            operation.end(outcome.clone());
            // The end of the action does not wait for the API server to accept an Event.
            if let Some(host) = &host {
                power
                    .audit
                    .announce(&caller, action, host, (&did, &outcome))
                    .await;
            }
        });
    }
}

fn caller<T>(request: &Request<T>) -> Result<(&Peer, &MetadataMap), Status> {
    let peer = request.extensions().get::<Peer>();
    let peer = peer.ok_or_else(|| Status::internal("the connection of this request is not known"))?;
    Ok((peer, request.metadata()))
}

#[tonic::async_trait]
impl<M: Membership> PowerService for Api<M> {
    type SetPowerStream = Pin<Box<dyn Stream<Item = Result<SetPowerResponse, Status>> + Send>>;

    async fn list_hosts(
        &self,
        request: Request<ListHostsRequest>,
    ) -> Result<Response<ListHostsResponse>, Status> {
        let admitted = self.admit(caller(&request)?, "ListHosts", "").await?;
        let listed = admitted.list(request.into_inner()).await;
        admitted.answer(listed).map(Response::new)
    }

    async fn get_host(&self, request: Request<GetHostRequest>) -> Result<Response<GetHostResponse>, Status> {
        let admitted = self
            .admit(caller(&request)?, "GetHost", &request.get_ref().host)
            .await?;
        let got = admitted.get().await;
        admitted.answer(got).map(Response::new)
    }

    async fn set_power(
        &self,
        request: Request<SetPowerRequest>,
    ) -> Result<Response<Self::SetPowerStream>, Status> {
        let mut admitted = self
            .admit(caller(&request)?, "SetPower", &request.get_ref().host)
            .await?;
        let begun = admitted.begin(request.get_ref()).await;
        let (ActionRequest::Repeated(follower) | ActionRequest::New(_, follower)) = admitted.answer(begun)?;
        let held = admitted.held;
        // The call keeps its place until its last step.
        let steps = follower.steps().inspect(move |_| {
            let _ = &held;
        });
        Ok(Response::new(Box::pin(steps)))
    }

    async fn get_console(
        &self,
        request: Request<GetConsoleRequest>,
    ) -> Result<Response<GetConsoleResponse>, Status> {
        let admitted = self
            .admit(caller(&request)?, "GetConsole", &request.get_ref().host)
            .await?;
        let consoles = admitted.consoles().await;
        admitted.answer(consoles).map(Response::new)
    }
}

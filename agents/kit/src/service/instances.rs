//! The steps of a pass that concern instances. Each step handles all instances of a cluster at once.

use std::time::Instant;

use futures::future::join_all;

use super::{
    apply,
    context::Context,
    definition::{Scope, Service},
    error::{Error, Errors},
    network_attachments,
    objects::{Applied, Exposed, Objects},
    observed::Observed,
    outcome::{Findings, Instance, Outcome, Probe, Rendered},
    overrides, pods, port_cycles,
    problem::{PROGRESSING, Problem, Unserved},
    readiness::{self, config_hash},
};

/// What a step yields for an instance, or why the instance is not served.
pub(super) type OrUnserved<T> = Result<T, Unserved>;

/// An instance whose Service and configuration are on the API server.
pub(super) struct ExposedInstance {
    pub(super) objects: Objects<Exposed>,
    findings: Findings,
}

/// The entries that are refused, and why.
pub(super) fn refused<'a, Entry>(
    entries: &'a [Entry],
    exposed: &'a [OrUnserved<ExposedInstance>],
) -> impl Iterator<Item = (&'a Entry, &'a Problem)> {
    let each = entries.iter().zip(exposed);
    each.filter_map(|(entry, exposed)| match exposed {
        Err(Unserved::Refused(why)) => Some((entry, why)),
        Err(Unserved::Failed(_)) | Ok(_) => None,
    })
}

/// The entries that are not served, whether they are refused or a call failed: their configuration may not be applied.
pub(super) fn unserved<'a, Entry, T>(
    entries: &'a [Entry],
    exposed: &'a [OrUnserved<T>],
) -> impl Iterator<Item = &'a Entry> {
    let each = entries.iter().zip(exposed);
    each.filter_map(|(entry, exposed)| exposed.is_err().then_some(entry))
}

/// Prepares rendering: checks whether the site allows the entry's overrides, runs the service's own step, then checks the networks that pods
/// join.
pub(super) async fn prepare<S: Service>(
    context: &Context<S>,
    scope: Scope<'_>,
    entries: &[S::Entry],
    errors: &mut Errors,
) -> Vec<OrUnserved<S::Prepared>> {
    let preparing = entries.iter().map(|entry| async move {
        if let Some(problem) = overrides::refused(&context.site.overrides, S::service(entry)) {
            return Ok(Err(Unserved::Refused(problem)));
        }
        let prepared = match context.service.prepare(scope, entry).await {
            Err(Error::Refused(problem)) => return Ok(Err(Unserved::Refused(problem))),
            prepared => prepared?,
        };
        let client = &context.site.client;
        let undefined = network_attachments::undefined(client, scope.cluster, S::service(entry)).await?;
        Ok(undefined.map_or(Ok(prepared), |problem| Err(Unserved::Refused(problem))))
    });
    without_errors(join_all(preparing.collect::<Vec<_>>()).await, errors)
}

/// Moves the errors of a step to `errors`; an instance with an error is not served in this pass.
fn without_errors<T>(results: Vec<Result<OrUnserved<T>, Error>>, errors: &mut Errors) -> Vec<OrUnserved<T>> {
    let results = results.into_iter();
    results
        .map(|result| result.unwrap_or_else(|error| Err(failed(error, errors))))
        .collect()
}

/// Moves an error to `errors`: the instance is not served in this pass.
pub(super) fn failed(error: Error, errors: &mut Errors) -> Unserved {
    let problem = Problem::new(PROGRESSING, runtime::error_chain::chain(&error));
    errors.push(error);
    Unserved::Failed(problem)
}

/// Renders every prepared entry. Pure.
pub(super) fn render<S: Service>(
    context: &Context<S>,
    scope: Scope<'_>,
    entries: &[S::Entry],
    prepared: Vec<OrUnserved<S::Prepared>>,
) -> Vec<OrUnserved<Rendered>> {
    let each = entries.iter().zip(prepared);
    each.map(|(entry, prepared)| Ok(context.service.render(scope, entry, prepared?)))
        .collect()
}

pub(super) async fn expose<S: Service>(
    context: &Context<S>,
    observed: &Observed<'_>,
    rendered: Vec<OrUnserved<Rendered>>,
    errors: &mut Errors,
) -> Vec<OrUnserved<ExposedInstance>> {
    let services = rendered
        .iter()
        .flatten()
        .map(|rendered| rendered.objects.service());
    errors.extend(port_cycles::free(&context.site, observed, services).await.err());
    let exposing = rendered.into_iter().map(|rendered| async move {
        let Rendered { objects, findings } = match rendered {
            Ok(rendered) => rendered,
            Err(unserved) => return Ok(Err(unserved)),
        };
        let exposed = apply::expose(&context.site, observed, objects).await?;
        let exposed = exposed.map(|objects| ExposedInstance { objects, findings });
        Ok(exposed.map_err(Unserved::Refused))
    });
    without_errors(join_all(exposing.collect::<Vec<_>>()).await, errors)
}

/// The outcomes until what runs the instances is applied.
pub(super) fn outcomes_before_run<S: Service>(
    context: &Context<S>,
    observed: &Observed<'_>,
    entries: &[S::Entry],
    exposed: &[OrUnserved<ExposedInstance>],
) -> Vec<Outcome> {
    let each = entries.iter().zip(exposed);
    each.map(|(entry, exposed)| match exposed {
        Ok(exposed) => {
            let objects = &exposed.objects;
            let probe = Probe {
                problem: rollout_before_run(context, observed, objects),
                ..Probe::default()
            };
            outcome::<S, _>(entry, objects, exposed.findings.clone(), probe)
        }
        Err(unserved) => Outcome::unserved(unserved, S::service(entry).object_name().as_str(), observed),
    })
    .collect()
}

/// What pods lack until what runs the instance is applied. If the condition describes this generation already, pods with the desired
/// configuration count, and an instance that starts no pods lacks none.
fn rollout_before_run<S: Service>(
    context: &Context<S>,
    observed: &Observed<'_>,
    objects: &Objects<Exposed>,
) -> Option<Problem> {
    let desired = objects.deployment();
    if !observed.has_condition_of_generation() {
        return readiness::rollout(objects.running().unwrap_or(desired));
    }
    if objects.is_service_only() || desired.spec.replicas == Some(0) {
        return None;
    }
    let known = context.site.stores.deployment(objects);
    let known = known.filter(|known| config_hash(known) == config_hash(desired));
    readiness::rollout(objects.running().or(known.as_deref()).unwrap_or(desired))
}

/// Whether what runs the instances may be applied now: labelling hosts has priority.
pub(super) fn may_run<S: Service>(context: &Context<S>, exposed: &[OrUnserved<ExposedInstance>]) -> bool {
    let exposed = exposed.iter().flatten();
    let since = exposed.filter_map(|exposed| exposed.objects.waits_since()).min();
    let clusters = &context.site.stores.clusters;
    since.is_none_or(|since| context.label_priority.admits(clusters, since, Instant::now()))
}

/// The instances whose configuration is on the API server, by name and configuration digest.
pub(super) fn desired(exposed: &[OrUnserved<ExposedInstance>]) -> Vec<(String, String)> {
    let exposed = exposed.iter().flatten();
    exposed
        .map(|exposed| (exposed.objects.name(), exposed.objects.config_digest().to_owned()))
        .collect()
}

/// An instance after the step that applies what runs it.
pub(super) struct RunningInstance {
    objects: apply::Running,
    findings: Findings,
}

pub(super) async fn run<S: Service>(
    context: &Context<S>,
    observed: &Observed<'_>,
    exposed: Vec<OrUnserved<ExposedInstance>>,
    errors: &mut Errors,
) -> Vec<OrUnserved<RunningInstance>> {
    let running = exposed.into_iter().map(|exposed| async move {
        match exposed {
            Ok(ExposedInstance { objects, findings }) => {
                let objects = apply::run(&context.site, observed.object(), objects).await?;
                Ok(Ok(RunningInstance { objects, findings }))
            }
            Err(unserved) => Ok(Err(unserved)),
        }
    });
    without_errors(join_all(running.collect::<Vec<_>>()).await, errors)
}

/// The outcome of every instance, by its Deployment, its pods, and their answers.
pub(super) async fn probe<S: Service>(
    context: &Context<S>,
    scope: Scope<'_>,
    entries: &[S::Entry],
    running: Vec<OrUnserved<RunningInstance>>,
) -> Vec<Outcome> {
    let each = entries.iter().zip(running);
    let probing = each.map(|(entry, running)| async move {
        let RunningInstance { objects, findings } = match running {
            Ok(running) => running,
            Err(unserved) => {
                let name = S::service(entry).object_name();
                return Outcome::unserved(&unserved, name.as_str(), scope.observed);
            }
        };
        match objects {
            apply::Running::Applied(objects) => {
                let probe = probe_applied(context, scope, entry, &objects).await;
                outcome::<S, _>(entry, &objects, findings, probe)
            }
            // The findings of rendering state what the instance waits for.
            apply::Running::ServiceOnly(objects) => {
                outcome::<S, _>(entry, &objects, findings, Probe::default())
            }
            apply::Running::Refused(objects, problem) => {
                let probe = Probe {
                    problem: Some(problem),
                    ..Probe::default()
                };
                outcome::<S, _>(entry, &objects, findings, probe)
            }
        }
    });
    join_all(probing.collect::<Vec<_>>()).await
}

async fn probe_applied<S: Service>(
    context: &Context<S>,
    scope: Scope<'_>,
    entry: &S::Entry,
    objects: &Objects<Applied>,
) -> Probe {
    let site = &context.site;
    let pods = pods::lasting(&site.stores.pods, objects);
    let problem = readiness::rollout(objects.deployment())
        .map(|progress| readiness::trouble(&pods).unwrap_or(progress))
        .or_else(|| network_attachments::not_joined(&pods, scope.cluster, S::service(entry)));
    let confirmed = site.last_applied.is_confirmed(objects);
    let probe = context.service.probe(scope, entry, objects, confirmed).await;
    if probe.confirmed && !confirmed {
        site.last_applied.confirm(objects);
    }
    Probe {
        problem: problem.or(probe.problem),
        ..probe
    }
}

fn outcome<S: Service, State>(
    entry: &S::Entry,
    objects: &Objects<State>,
    findings: Findings,
    probe: Probe,
) -> Outcome {
    let Findings {
        mut problems,
        substitutes,
        requeue,
        endpoint,
        warnings,
    } = findings;
    problems.extend(probe.fault);
    let address = S::service(entry).cluster_ip();
    Outcome::Applied(Box::new(Instance {
        name: objects.name(),
        service: objects.service().clone(),
        address: address.map(|address| address.to_string()),
        problems,
        problem: probe.problem,
        substitutes,
        remark: probe.remark,
        warnings,
        requeue: requeue.into_iter().chain(probe.requeue).min(),
        endpoint,
    }))
}

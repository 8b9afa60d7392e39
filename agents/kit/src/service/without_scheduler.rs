//! What a pass does as long as the scheduler does not answer: it applies the spec with the members of the last answer, for services that
//! ask for it.

use std::{pin::pin, time::Duration};

use api::{Cluster, Placement};
use tokio::time::timeout;

use super::{
    context::Context,
    definition::{Scope, Service},
    error::{Error, Errors},
    instances,
    members::{Members, members},
    observed::Observed,
    revocation,
};

/// How long the scheduler may take for the members until the last ones are used.
const PATIENCE: Duration = Duration::from_secs(3);

/// The members that a cluster holds, as [`members`] answers them.
pub(super) async fn members_or_last<S: Service>(
    context: &Context<S>,
    observed: &Observed<'_>,
    held: &Placement,
    cluster: &Cluster,
    entries: &[S::Entry],
) -> Result<Option<Members>, Error> {
    let mut asked = pin!(members(&context.scheduler, observed, held));
    if !S::APPLIES_WITHOUT_SCHEDULER {
        return asked.await;
    }
    let early = timeout(PATIENCE, asked.as_mut()).await;
    if !matches!(early, Ok(Ok(Some(_)))) {
        apply_with_last_members(context, observed, held, cluster, entries).await?;
    }
    match early {
        Ok(answer) => answer,
        Err(_elapsed) => asked.await,
    }
}

/// Applies the instances with the members of the scheduler's last answer. Nothing is reported: no host waits for it.
async fn apply_with_last_members<S: Service>(
    context: &Context<S>,
    observed: &Observed<'_>,
    held: &Placement,
    cluster: &Cluster,
    entries: &[S::Entry],
) -> Result<(), Error> {
    let Some(members) = context.last_members.still_held(observed.object(), held) else {
        return Ok(());
    };
    let scope = Scope {
        observed,
        cluster,
        members: &members,
    };
    let mut errors = Errors::new();
    let prepared = instances::prepare(context, scope, entries, &mut errors).await;
    let rendered = instances::render(context, scope, entries, prepared);
    let exposed = instances::expose(context, observed, rendered, &mut errors).await;
    // The pass fails, and is repeated.
    let _revoked = revocation::revoke(
        context,
        (observed, cluster),
        instances::refused(entries, &exposed),
    )
    .await;
    if instances::may_run(context, &exposed) {
        instances::run(context, observed, exposed, &mut errors).await;
    }
    errors.into_iter().next().map_or(Ok(()), Err)
}

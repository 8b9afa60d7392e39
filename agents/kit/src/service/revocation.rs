//! What a refused entry takes away: whatever it is refused for, nobody keeps a right that it no longer gives.

use futures::future::join_all;

use super::{
    context::Context,
    definition::{Scope, Service},
    instances::{ExposedInstance, OrUnserved},
    problem::Unserved,
};

/// Has the service take away what refused entries no longer give. A failure holds up no other entry, and the report tells why the entry is
/// refused all the same: passes over a cluster with a refused entry are repeated anyway.
pub(super) async fn revoke<S: Service>(
    context: &Context<S>,
    scope: Scope<'_>,
    entries: &[S::Entry],
    exposed: &[OrUnserved<ExposedInstance>],
) {
    let each = entries.iter().zip(exposed);
    let revoking = each.filter_map(|(entry, exposed)| {
        let Err(Unserved::Refused(why)) = exposed else {
            return None;
        };
        Some(async move {
            if let Err(error) = context.service.revoke(scope, entry, why).await {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(
                    namespace = scope.cluster.namespace(),
                    name = S::common(entry).object_name().as_str(),
                    error,
                    "what a refused entry no longer gives was not taken away; requeued"
                );
            }
        })
    });
    join_all(revoking.collect::<Vec<_>>()).await;
}

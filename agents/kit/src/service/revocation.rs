//! What a refused entry takes away: whatever it is refused for, nobody keeps a right that it no longer gives.

use api::Cluster;
use futures::future::join_all;

use super::{context::Context, definition::Service, observed::Observed};

/// Has the service take away what refused entries no longer give. A failure holds up no other entry. Returns whether everything was
/// taken away; where it was not, the pass has to be repeated.
pub(super) async fn revoke<'a, S: Service>(
    context: &Context<S>,
    (observed, cluster): (&Observed<'_>, &Cluster),
    refused: impl Iterator<Item = &'a S::Entry>,
) -> bool {
    let revoking = refused.map(async |entry| {
        let revoked = context.service.revoke((observed, cluster), entry).await;
        if let Err(error) = &revoked {
            let error = error as &dyn std::error::Error;
            tracing::warn!(
                namespace = cluster.namespace(),
                name = S::common(entry).object_name().as_str(),
                error,
                "rights that a refused entry of spec.services no longer grants could not be revoked; requeued"
            );
        }
        revoked.is_ok()
    });
    join_all(revoking.collect::<Vec<_>>())
        .await
        .into_iter()
        .all(|done| done)
}

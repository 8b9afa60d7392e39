//! What the agent does for an entry that is not served: nobody keeps a right that the entry no longer gives, whatever it is refused for, or
//! whichever call failed.

use api::Cluster;
use futures::future::join_all;

use super::{context::Context, definition::Service, observed::Observed};

/// Makes the service revoke what these entries no longer give. A failure for one entry does not stop the others. Returns whether everything was
/// revoked; if not, the pass has to be repeated.
pub(super) async fn revoke<'a, S: Service>(
    context: &Context<S>,
    (observed, cluster): (&Observed<'_>, &Cluster),
    unserved: impl Iterator<Item = &'a S::Entry>,
) -> bool {
    let revoking = unserved.map(async |entry| {
        let revoked = context.service.revoke((observed, cluster), entry).await;
        if let Err(error) = &revoked {
            let error = error as &dyn std::error::Error;
            tracing::warn!(
                namespace = cluster.namespace(),
                name = S::service(entry).object_name().as_str(),
                error,
                "rights that an entry of spec.services no longer grants could not be revoked; requeued"
            );
        }
        revoked.is_ok()
    });
    join_all(revoking.collect::<Vec<_>>())
        .await
        .into_iter()
        .all(|done| done)
}

//! How many hosts the clusters of a namespace may hold together.

use crate::decision::RefusalKind;
use crate::request::Request;
use crate::site::Site;

/// The quota that the request would break by growing. What other clusters hold counts, and all that this one wants, and its members that stay
/// beside their replacements (`moving`, asked for only where it matters); a replacement never breaks it.
pub(crate) fn exceeded(site: &Site, request: &Request, moving: impl FnOnce() -> u32) -> Option<RefusalKind> {
    let namespace = request.cluster.namespace();
    let limit = *site.policy().quotas.get(namespace)?;
    let wanted = request
        .roles
        .iter()
        .map(|role| role.want)
        .fold(0, u32::saturating_add);
    let others = site
        .usage(namespace)
        .saturating_sub(site.usage_of(&request.cluster));
    let needed = others.saturating_add(wanted);
    let moving = if needed > limit { 0 } else { moving() };
    (needed.saturating_add(moving) > limit).then(|| RefusalKind::Quota {
        namespace: namespace.clone(),
        limit,
        others,
        wanted,
        moving,
    })
}

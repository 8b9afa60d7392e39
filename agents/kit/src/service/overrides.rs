//! Overrides of an entry's Service that the site's configuration does not list.

use super::problem::{OVERRIDE_NOT_ALLOWED, Problem};
use crate::config::ServiceOverrides;

/// Overrides that a message names.
const MAX_NAMED_OVERRIDES: usize = 10;
/// Bytes of an override that a message quotes: a key can have more than 300.
const MAX_QUOTED_BYTES: usize = 120;

/// Why an entry is refused: every override that the site does not list.
pub(super) fn refused(site: &ServiceOverrides, entry: &api::Service) -> Option<Problem> {
    let refused = site.refused(entry.changes());
    if refused.is_empty() {
        return None;
    }
    let named: Vec<&str> = refused
        .iter()
        .take(MAX_NAMED_OVERRIDES)
        .map(|path| &path[..path.floor_char_boundary(MAX_QUOTED_BYTES)])
        .collect();
    let more = match refused.len().saturating_sub(MAX_NAMED_OVERRIDES) {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    let message = format!(
        "{}: override.service has what the site's configuration (serviceOverrides) does not list: {}{more}",
        entry.object_name(),
        named.join("; ")
    );
    Some(Problem::new(OVERRIDE_NOT_ALLOWED, message))
}

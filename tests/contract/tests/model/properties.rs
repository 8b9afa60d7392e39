//! What the model checks in every state.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use stateright::Property;

use crate::{
    fair,
    protocol::{Protocol, SEEN, State},
};

/// That everything settles.
pub(crate) const ENDS: &str = "when nothing bad happens any more, all releases end";

/// That a report on pods is not replaced by a lower one.
pub(crate) const REPORTS_RISE: &str = "in one epoch no report on pods is replaced by a lower one";

/// The promises, and what has to be seen somewhere.
pub(crate) fn all() -> Vec<Property<Protocol>> {
    vec![
        Property::always("no host is held twice", |_, state: &State| !state.held_twice()),
        Property::always(
            "a host with a cluster's labels is held by that cluster",
            |_, state: &State| state.labels_are_claims(),
        ),
        Property::always(
            "a host that becomes free has no labels, or is gone",
            |_, state: &State| state.freed_early.is_none(),
        ),
        Property::always(
            "a free host is in no running configuration",
            |_, state: &State| !state.routes_to_free_hosts(),
        ),
        Property::always(
            "a host is claimed only when no other cluster's pods route to it",
            |_, state: &State| state.claimed_early.is_none(),
        ),
        Property::always(
            "no placement in a status is replaced by an older one",
            |_, state: &State| state.went_back.is_none(),
        ),
        Property::always(REPORTS_RISE, |_, state: &State| state.report_went_back.is_none()),
        Property::always(
            "what was answered is held until it is released",
            |_, state: &State| state.promises_are_kept(),
        ),
        Property::always(
            "a cluster is released only when it is deleted",
            |_, state: &State| !state.released_unasked(),
        ),
        Property::always(ENDS, |model, state: &State| {
            let mut hash = DefaultHasher::new();
            state.hash(&mut hash);
            !hash.finish().is_multiple_of(model.settle_every) || fair::settle(state).is_ok()
        }),
        Property::sometimes(SEEN[0], |_, state: &State| state.seen.contains(&0)),
        Property::sometimes(SEEN[1], |_, state: &State| state.seen.contains(&1)),
        Property::sometimes(SEEN[2], |_, state: &State| state.seen.contains(&2)),
        Property::sometimes(SEEN[3], |_, state: &State| state.seen.contains(&3)),
        Property::sometimes(SEEN[4], |_, state: &State| state.seen.contains(&4)),
        Property::sometimes(SEEN[5], |_, state: &State| state.seen.contains(&5)),
        Property::sometimes(SEEN[6], |_, state: &State| state.seen.contains(&6)),
        Property::sometimes(SEEN[7], |_, state: &State| state.seen.contains(&7)),
        Property::sometimes(SEEN[8], |_, state: &State| state.seen.contains(&8)),
        Property::sometimes(SEEN[9], |_, state: &State| state.seen.contains(&9)),
    ]
}

//! What every agent shares: scheduler client, apply, conditions, events.

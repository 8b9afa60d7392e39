//! Errors for logs and messages.

use std::{error::Error, iter::successors};

/// An error and its causes, on one line: `the ledger cannot be opened: disk full`.
#[must_use]
pub fn chain(error: &(dyn Error + 'static)) -> String {
    successors(Some(error), |error| error.source())
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(": ")
}

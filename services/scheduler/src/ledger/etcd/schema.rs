//! Which layout the keys have.

use crate::ledger::Error;

/// Version of the layout in [`super::keys`].
///
/// 2 says when the last record of each site was removed. 3 has a history for each site in the place of one epoch and revision
/// for all.
pub(super) const SCHEMA: u64 = 3;
/// In the place of the schema's version while an import is not finished.
pub(super) const IMPORTING: &str = "importing";

/// The version of a layout, which this version understands.
pub(super) fn parse(value: &[u8]) -> Result<u64, Error> {
    let text = String::from_utf8_lossy(value);
    match text.parse() {
        Ok(found @ 1..=SCHEMA) => Ok(found),
        Ok(found) => Err(Error::Schema {
            found,
            understood: SCHEMA,
        }),
        Err(_) => Err(Error::Corrupt {
            what: "schema".to_owned(),
            rule: if text == IMPORTING {
                "states that an import is not finished: delete all keys of the prefix and import again"
                    .to_owned()
            } else {
                format!("is {text:?}, not a number")
            },
        }),
    }
}

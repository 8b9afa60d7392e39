//! Files that are not usable at a reload.

use super::Error;

/// Faults of files whose former content stays in use. Each file is taken over by itself, so that one which is not usable does not delay what
/// another one denies or withdraws.
#[derive(Debug, Default)]
pub(super) struct Faults(Vec<Error>);

impl Faults {
    /// What was read; if it is not usable, what is in use, and the fault is kept for the report.
    ///
    /// # Errors
    /// The fault, if nothing is in use yet.
    pub(super) fn or_former<T>(&mut self, read: Result<T, Error>, former: Option<T>) -> Result<T, Error> {
        match (read, former) {
            (Ok(read), _) => Ok(read),
            (Err(fault), Some(former)) => {
                self.0.push(fault);
                Ok(former)
            }
            (Err(fault), None) => Err(fault),
        }
    }

    /// All faults, in the order in which they were found.
    pub(super) fn into_errors(self) -> Vec<Error> {
        let Self(errors) = self;
        errors
    }
}

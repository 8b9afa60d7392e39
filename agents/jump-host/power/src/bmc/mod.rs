//! A host's BMC as its BareMetalHost describes it: where it is, and who may log in.

mod address;
mod credentials;

pub(crate) use address::is_identifier;
pub use address::{Address, Kind, Refused};
pub use credentials::{Credentials, Incomplete};

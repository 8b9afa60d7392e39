//! The gRPC contract: generated messages, clients and servers.
//!
//! The `.proto` files beside this crate are the documentation; every message and field is commented there.

/// Package `sip.inventory.v1`: hosts and sites.
pub mod inventory {
    /// Version 1.
    #[allow(
        missing_docs,
        clippy::pedantic,
        reason = "generated; documented in the .proto files"
    )]
    pub mod v1 {
        tonic::include_proto!("sip.inventory.v1");
    }
}

/// Package `sip.ledger.v1`: what the scheduler keeps on disk, and how it is exported.
pub mod ledger {
    /// Version 1.
    #[allow(
        missing_docs,
        clippy::pedantic,
        reason = "generated; documented in the .proto files"
    )]
    pub mod v1 {
        tonic::include_proto!("sip.ledger.v1");
    }
}

/// Package `sip.placement.v1`: which hosts a cluster gets.
pub mod placement {
    /// Version 1.
    #[allow(
        missing_docs,
        clippy::pedantic,
        reason = "generated; documented in the .proto files"
    )]
    pub mod v1 {
        tonic::include_proto!("sip.placement.v1");
    }
}

/// Package `sip.power.v1`: power control of a cluster's hosts.
pub mod power {
    /// Version 1.
    #[allow(
        missing_docs,
        clippy::pedantic,
        reason = "generated; documented in the .proto files"
    )]
    pub mod v1 {
        tonic::include_proto!("sip.power.v1");
    }

    /// Descriptors of this package, for gRPC reflection.
    pub const FILE_DESCRIPTOR_SET: &[u8] = tonic::include_file_descriptor_set!("power");
}

/// Descriptors of the packages that the scheduler serves, for gRPC reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = tonic::include_file_descriptor_set!("sip");

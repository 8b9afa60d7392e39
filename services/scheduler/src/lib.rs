//! The scheduler service: gRPC, inventory, ledger.

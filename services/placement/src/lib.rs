//! The decision: which hosts a cluster gets. Pure.

//! The SIPCluster life cycle: inventory, placement, status, labels.

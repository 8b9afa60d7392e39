//! SIPCluster, BareMetalHost and networkData: types, and parsing into validated types.

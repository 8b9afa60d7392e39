//! HAProxy for tenant API servers and workers.

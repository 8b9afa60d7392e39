//! What every process needs once: telemetry, TLS identity, health, supervision, shutdown.

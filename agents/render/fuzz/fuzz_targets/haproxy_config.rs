//! See `haproxy`.
#![no_main]

#[path = "../haproxy.rs"]
mod haproxy;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| haproxy::haproxy_config(bytes));

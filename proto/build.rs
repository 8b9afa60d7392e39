//! Compiles the protobuf contract, and its descriptor set for gRPC reflection.

use std::{env, io, path::PathBuf};

fn main() -> io::Result<()> {
    // Served by the scheduler.
    let files = [
        "sip/inventory/v1/inventory_service.proto",
        "sip/ledger/v1/ledger_service.proto",
        "sip/placement/v1/placement_service.proto",
    ];
    compile("sip.bin", &files)?;
    // Served by another process, whose reflection lists no service of the scheduler.
    compile("power.bin", &["sip/power/v1/power_service.proto"])
}

fn compile(descriptor_set: &str, files: &[&str]) -> io::Result<()> {
    let descriptor =
        PathBuf::from(env::var_os("OUT_DIR").ok_or(io::ErrorKind::NotFound)?).join(descriptor_set);
    tonic_prost_build::configure()
        .file_descriptor_set_path(descriptor)
        // Same bytes for the same message, and order that people can rely on.
        .btree_map(".")
        .compile_protos(files, &["."])
}

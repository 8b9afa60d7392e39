//! The region's placement scheduler.

use std::process::ExitCode;

use clap::Parser as _;

/// What a call needs is allocated on one thread and freed on another one, where glibc's allocator takes turns: with this one the
/// same cores answer a sixth more of them.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    runtime::exit::run(scheduler::server::run(scheduler::server::Args::parse()))
}

//! How a program runs and how it ends.

use std::error::Error;
use std::io;
use std::process::ExitCode;

use crate::error_chain::chain;

/// Runs `program` on all cores, and then drops every task that it left. Success, or failure after one line on standard error
/// with the error and its causes.
///
/// The line is the last that the process prints: tasks that log while they are dropped have been dropped by then. It never
/// prints a backtrace, also where `RUST_BACKTRACE` is set: most ends, such as a lost Lease, are operational, and the frames
/// would hide the sentence.
pub fn run<E>(program: impl Future<Output = Result<(), E>>) -> ExitCode
where
    E: AsRef<dyn Error + Send + Sync>,
{
    match complete(program) {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(error)) => failure(error.as_ref()),
        Err(error) => failure(&error),
    }
}

/// What `program` returned, once every task that it left has been dropped.
fn complete<T>(program: impl Future<Output = T>) -> io::Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let completed = runtime.block_on(program);
    drop(runtime);
    Ok(completed)
}

fn failure(error: &dyn Error) -> ExitCode {
    eprintln!("error: {}", chain(error));
    ExitCode::FAILURE
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread::sleep;
    use std::time::Duration;

    use super::*;

    /// What a task owns, which takes a while to drop.
    struct SlowToDrop(Arc<AtomicBool>);

    impl Drop for SlowToDrop {
        fn drop(&mut self) {
            sleep(Duration::from_millis(100));
            self.0.store(true, Ordering::SeqCst);
        }
    }

    #[test]
    fn tasks_are_dropped_before_the_end_is_reported() {
        let dropped = Arc::new(AtomicBool::new(false));
        let owned = SlowToDrop(Arc::clone(&dropped));
        let program = async move {
            let task = tokio::spawn(async move {
                let _owned = owned;
                std::future::pending::<()>().await;
            });
            task.abort();
        };
        complete(program).unwrap();
        assert!(dropped.load(Ordering::SeqCst));
    }
}

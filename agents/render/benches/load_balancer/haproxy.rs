//! A haproxy that runs on an address of its own.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Ends with the value.
pub(crate) struct Running {
    process: Child,
    files: tempfile::TempDir,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Starts it with this configuration, as one process so that killing it ends it, and waits until this address answers. Its log goes to a file.
pub(crate) fn start(config: &str, answers: SocketAddr) -> (Running, Duration) {
    let files = tempfile::tempdir().expect("a directory");
    let path = files.path().join("haproxy.cfg");
    std::fs::write(&path, config).expect("a file can be written");
    let log = File::create(files.path().join("log")).expect("a file can be made");
    let started = Instant::now();
    let process = Command::new("haproxy")
        .args(["-db", "-f"])
        .arg(&path)
        .stdin(Stdio::null())
        .stdout(log.try_clone().expect("a second handle of a file"))
        .stderr(log)
        .spawn()
        .expect("haproxy is in PATH");
    let mut running = Running { process, files };
    while TcpStream::connect(answers).is_err() {
        let ended = running.process.try_wait().expect("the process can be asked");
        if ended.is_some() {
            let said = std::fs::read_to_string(running.files.path().join("log"));
            panic!("haproxy has ended: {}", said.unwrap_or_default());
        }
        assert!(
            started.elapsed() < Duration::from_secs(30),
            "haproxy does not answer"
        );
        std::thread::sleep(Duration::from_millis(1));
    }
    (running, started.elapsed())
}

/// The rendered configuration on one address, so that it clashes with nobody.
pub(crate) fn on(address: Ipv4Addr, config: &str) -> String {
    config
        .replace("bind :::", &format!("bind {address}:"))
        .replace(" v4v6", "")
}

/// One question, one answer of this many bytes, over a connection of its own.
pub(crate) fn request(address: SocketAddr, answer: &mut [u8]) -> std::io::Result<()> {
    let mut connection = TcpStream::connect(address)?;
    connection.write_all(b"?")?;
    connection.read_exact(answer)
}

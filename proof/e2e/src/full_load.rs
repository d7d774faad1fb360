//! Puts at full speed: `kattu bench put` with 256 clients on 100 connections.
//!
//! It goes on despite refusals: those show in the members' metrics, and in its exit code only at the end.
//! Knows nothing of: members, metrics.

use kattu_rig::programs::kattu;
use std::process::{Child, Command, Stdio};

/// The load; ends when dropped.
pub(crate) struct FullLoad(Child);

impl FullLoad {
    /// Puts values of `value_bytes` over so many keys, until it is dropped.
    pub(crate) fn start(endpoints: &str, keys: u64, value_bytes: u64) -> FullLoad {
        let mut command = Command::new(kattu());
        command
            .args(["bench", "put", "--clients", "256", "--conns", "100", "--endpoints", endpoints])
            .args(["--total", "1000000000", "--key-space", &keys.to_string()])
            .args(["--key-size", "16", "--val-size", &value_bytes.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        FullLoad(command.spawn().expect("the load can be run"))
    }

    /// `None` while it runs; then whether it ended with success.
    pub(crate) fn ended(&mut self) -> Option<bool> {
        self.0.try_wait().ok().flatten().map(|status| status.success())
    }
}

impl Drop for FullLoad {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

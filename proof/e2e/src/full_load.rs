//! Puts at full speed: `kattu bench put` with 256 clients on 100 connections.
//!
//! It goes on whatever it is told: what was refused shows in the metrics of the members, and in its exit code only at the end.
//! Knows nothing of: who looks at the members meanwhile.

use crate::process::kattu;
use std::process::{Child, Command, Stdio};

/// The load; dropped, it ends.
pub(crate) struct FullLoad(Child);

impl FullLoad {
    /// Values of so many bytes over so many keys, until it is dropped.
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

    /// Whether it has ended, and well.
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

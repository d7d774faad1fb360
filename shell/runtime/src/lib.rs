//! Carries out what nodes decide: clock, threads, log I/O, peer links.
//!
//! One driver thread owns one node, its log, its links and (unless configured otherwise) its store and its clients'
//! connections: on few cores a hand-off between threads costs more than the work it would share out
//! (docs/performance.md). Three settings move work to threads of its own: log I/O, apply, and the client face.
//!
//! Reading order:
//!
//! | Files | What they do |
//! |---|---|
//! | `config`, `start` | what a member is told; putting its parts together |
//! | `driver` | the loop |
//! | `disk`, `apply_thread` | the log, here or on a thread; a keeper on its own thread |
//! | `snapshots`, `computing`, `scrub` | the workers beside |
//! | `links`, `lane`, `outgoing`, `tls` | connections to peers |
//! | `peer_table`, `handshake`, `listener`, `vouching`, `join` | which members are known, and how they meet |
//! | `engine`, `asked`, `mailbox` | the door for clients |
//! | `operator`, `settings`, `name_clash`, `report`, `readings`, `metrics` | words and numbers for the operator |
//! | `lookout`, `groups`, `allocator`, `memory`, `watchdog`, `clock` | the machine around it |
//!
//! Knows nothing of: etcd, protobuf, the simulator.

pub mod allocator;
mod apply_thread;
mod asked;
mod clock;
mod computing;
mod config;
mod delays;
mod disk;
mod driver;
pub mod engine;
mod groups;
mod handshake;
mod head_start;
mod inbox;
mod join;
mod lane;
mod links;
mod listener;
mod lookout;
mod mailbox;
pub mod memory;
pub mod metrics;
mod name_clash;
mod operator;
mod outgoing;
mod peer_table;
mod readings;
pub mod report;
mod scrub;
mod settings;
mod snapshots;
pub mod stages;
mod start;
mod timer;
mod tls;
mod vouching;
mod watchdog;

pub use asked::{Asked, Behind};
pub use config::{Began, Member, RuntimeConfig};
pub use driver::End;
pub use engine::Engine;
pub use kattu_member::streams;
pub use kattu_member::tuning::{self, Threading};

pub use lookout::{default_quota, memory_limit};
pub use mailbox::{Arrived, Mailbox};
pub use start::{Running, StartError, start};

use kattu_wire::Codec;

/// Encodes and decodes frames and records, with the fastest CRC32C this processor has.
pub(crate) fn codec() -> Codec {
    Codec::new(crc32c::crc32c_append)
}

/// Sends small messages at once, and detects a machine that vanished. Options that the system refuses are skipped:
/// liveness is judged by answers, not by sockets. [fault-model NT6]
pub(crate) fn prepare(socket: &tokio::net::TcpStream) {
    let _ = socket.set_nodelay(true);
    let socket = socket2::SockRef::from(socket);
    let keepalive = socket2::TcpKeepalive::new()
        .with_time(kattu_member::lanes::SILENCE_MAX / 2)
        .with_interval(kattu_member::lanes::SILENCE_MAX / 5);
    let _ = socket.set_tcp_keepalive(&keepalive);
    let _ = socket.set_tcp_user_timeout(Some(kattu_member::lanes::SILENCE_MAX));
}

/// An unpredictable number.
pub(crate) fn entropy() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    // The standard library seeds its hashers from the operating system; each state differs.
    let hasher = std::collections::hash_map::RandomState::new().build_hasher();
    hasher.finish() ^ clock::now().0.rotate_left(32) ^ u64::from(std::process::id())
}

/// Aborts the process when the thread that holds it panics: a member without one of its threads would still answer
/// heartbeats. [fault-model F04]
pub(crate) struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::abort();
        }
    }
}

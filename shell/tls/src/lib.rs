//! TLS for the ports of a member: certificates from files, checked when they are read, and read again while the member
//! runs.
//!
//! | File | One idea |
//! |---|---|
//! | `policy.rs` | which versions and cipher suites |
//! | `files.rs` | the contents of the files, and one line for each way in which they cannot be used |
//! | `leaf.rs` | validity and names of a certificate |
//! | `clients.rs` | which clients' certificates are accepted: by authority, revocations, names |
//! | `client.rs` | the connecting side: what it trusts, what it presents |
//! | `members.rs` | how one member dials another, and which hosts a certificate is for |
//! | `handshake.rs` | handshakes of incoming connections, a step at a time |
//! | `signed.rs` | whether a list of revoked certificates is signed by its authority |
//! | `socket.rs` | a socket with TLS or without |
//! | `server.rs` | a port's side of TLS, renewed when its files are |
//! | `auto.rs` | self-signed certificates, for `--auto-tls` |
//! | `refused.rs` | why a handshake failed, in words |
//!
//! Only suites with forward secrecy and authenticated encryption can be chosen, and verification is never skipped.
//! [fault-model SE1–SE3]
//! Knows nothing of: ports, the protocols inside.

mod auto;
mod client;
mod clients;
mod files;
pub mod handshake;
mod leaf;
mod members;
mod policy;
mod refused;
mod server;
mod signed;
mod socket;

/// The native protocol's name in a handshake. [docs/formats/native.md]
pub const NATIVE: &[u8] = b"kattu";

pub use auto::{SELF_SIGNED_DAYS, ensure_self_signed};
pub use client::ClientTls;
pub use clients::{Allowed, INTERMEDIATES_MAX, is_name};
pub use files::{FileError, TlsFiles};
pub use leaf::Leaf;
pub use members::{Dials, is_for};
pub use policy::{Policy, PolicyError, Version};
pub use refused::{Asker, Refused, refused, why_of_server};
pub use server::{Current, Looked, ServerTls, Speaks};
pub use socket::Socket;

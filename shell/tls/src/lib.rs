//! TLS for the ports of a member: certificates from files, judged when they are read, and read again while the member runs.
//!
//! | File | One idea |
//! |---|---|
//! | `policy.rs` | which versions and cipher suites |
//! | `files.rs` | what stands in the files, and one line for each way in which it cannot work |
//! | `leaf.rs` | what a certificate says: until when, of whom |
//! | `clients.rs` | which clients' certificates are taken: by whom they were signed, revoked, named |
//! | `client.rs` | the side that asks: whom it trusts, what it shows |
//! | `members.rs` | how one member dials another, and which hosts a certificate is for |
//! | `handshake.rs` | handshakes of those who come, a step at a time |
//! | `signed.rs` | whether a list of revoked certificates is its authority's |
//! | `socket.rs` | a socket with TLS or without |
//! | `server.rs` | a port's side of TLS, renewed when its files are |
//! | `auto.rs` | a certificate that nobody signed but its own key, for `--auto-tls` |
//! | `refused.rs` | why a handshake failed, in words |
//!
//! Only suites with forward secrecy and authenticated encryption are there to be chosen from, and nothing skips verification.
//! [fault-model SE1–SE3]
//! Knows nothing of: ports, what is said inside.

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

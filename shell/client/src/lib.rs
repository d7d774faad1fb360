//! Clients of a cluster over several endpoints, with outcomes instead of bare status codes: by etcd's v3 API
//! ([`Client`]), or by Kattu's native protocol ([`NativeClient`]), which has sessions: each command executed once.
//!
//! Every call ends in one of three ways [fault-model §1]: `Ok` is final; a [`Failure`] that is `Refused` or
//! `Unreachable` certainly had no effect; one that is `Unknown` may have had one, or may still have it. Calls that are
//! safe to repeat are repeated here (reads on any endpoint, writes only while it is certain that no member has received
//! them); everything else is left to the caller, because only the caller knows whether doing it twice is harmless.
//!
//! Reading order: `failure`, `error` (what an answer means) · `endpoint` (one member's address) · `client` (which endpoint,
//! how often) · `level` (how fresh) · `rpc` (bytes there and back) · `calls`, `maintenance` (the RPCs) · `status` (what
//! etcd's status does not tell) · `native` (the native protocol, sessions) · `store` (one API over both; `convert`) ·
//! `tree` (files in directories over keys).
//! Knows nothing of: verbs, output, histories.
#![forbid(unsafe_code)]

mod calls;
mod client;
mod convert;
mod dial;
mod endpoint;
mod error;
mod failure;
mod keys;
mod level;
mod maintenance;
mod native;
mod rpc;
mod status;
mod store;
pub mod tree;

pub use client::{Client, Options};
pub use endpoint::{AddressError, Endpoint};
pub use error::Error;
pub use failure::{Failure, Kind};
pub use kattu_kv::api;
pub use kattu_kv::sessions::{Order, SessionError, SessionId};
pub use kattu_proto as proto;
pub use keys::prefix_end;
pub use level::{Level, Seen};
pub use maintenance::SnapshotError;
pub use native::{
    Accepted, ListedSession, LostWrite, NativeClient, Pending, PendingWeak, Pipe, Session, SessionOptions,
};
pub use store::Store;
pub use tonic::Code;

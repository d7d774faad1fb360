//! Server: the etcd v3 API of one replica over gRPC and HTTP (its *face*), and the configuration of a member.
//!
//! | File | Its idea |
//! |---|---|
//! | `replica.rs` | the trait through which a face uses a replica |
//! | `face.rs` | the etcd face: limits, versions, dispatch of RPCs |
//! | `rpc.rs` | every RPC: path, shape |
//! | `gate.rs` | checks before a request is proposed |
//! | `convert.rs`, `encode.rs` | messages ↔ the store's types, responses → bytes |
//! | `level.rs` | consistency level of a read |
//! | `errors.rs` | errors with etcd's codes and texts |
//! | `kv.rs`, `maintenance.rs`, `cluster.rs`, `auth.rs`, `health.rs` | the services |
//! | `grpc.rs`, `body.rs` | one message in, one response out |
//! | `http.rs`, `metrics.rs`, `counters.rs`, `process.rs` | plain HTTP and metrics |
//! | `listen.rs`, `http2.rs`, `bell.rs`, `cork.rs`, `gather.rs`, `patience.rs`, `turns.rs` | connections |
//! | `hot.rs`, `hot/` | Range and Put over gRPC, past the library |
//! | `native.rs`, `native/` | the native face |
//! | `budget.rs` | bytes held for clients |
//! | `compactor.rs`, `history.rs` | auto-compaction, by time and by bytes |
//! | `config.rs`, `config/` | flags, environment, file: one member's configuration |
//! | `serve.rs` | one member from start to stop |
//! | `status.rs`, `json.rs` | status fields beyond etcd's |
//!
//! Knows nothing of: Raft's internals, files.
#![forbid(unsafe_code)]

pub mod ahead;
mod auth;
mod bell;
mod body;
pub mod budget;
mod cluster;
pub mod compactor;
pub mod config;
mod convert;
mod cork;
pub mod counters;
mod encode;
pub mod errors;
pub mod face;
mod frames;
mod gate;
mod gather;
mod grpc;
mod health;
pub mod history;
mod hot;
mod http;
mod http2;
mod json;
mod kv;
pub mod level;
pub mod listen;
mod maintenance;
mod metrics;
pub mod native;
mod no_tls;
mod patience;
mod process;
pub mod rebuild;
pub mod replica;
pub mod rpc;
pub mod serve;
mod skim;
mod stages;
mod status;
mod streams;
pub mod tls;
mod tune;
mod turns;
mod unsent;

pub use compactor::Retention;
pub use errors::NO_FSYNC;
pub use face::FaceConfig;
#[cfg(fuzzing)]
pub use hot::judge::{framed as hot_frames, judge as judge_hot_input};
pub use kattu_rebuild::backup;
pub use listen::{serve_clients, serve_metrics};
pub use replica::{Asked, Replica};

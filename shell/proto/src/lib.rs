//! Messages and services of the etcd v3 API, generated from the files in `proto/`: `src/generated/` is written by
//! `KATTU_UPDATE=1 cargo test -p kattu-proto --test generated`, and that test keeps it up to date, so that a build of
//! Kattu needs no protobuf compiler.
//!
//! Every RPC of etcd exists here, also those that Kattu does not serve yet: a service trait's method without an
//! implementation answers `Unimplemented`. Numbers and names are etcd's and never change; see [etcd rpc.proto].
//! Knows nothing of: the node, the store, ports.
#![forbid(unsafe_code)]

/// Keys, watches, leases, members, maintenance, users.
#[allow(missing_docs, clippy::all)]
pub mod etcdserverpb {
    include!("generated/etcdserverpb.rs");
}

/// Pairs and events.
#[allow(missing_docs, clippy::all)]
pub mod mvccpb {
    include!("generated/mvccpb.rs");
}

/// Users, roles, permissions.
#[allow(missing_docs, clippy::all)]
pub mod authpb {
    include!("generated/authpb.rs");
}

/// Locks.
#[allow(missing_docs, clippy::all)]
pub mod v3lockpb {
    include!("generated/v3lockpb.rs");
}

/// Elections among clients.
#[allow(missing_docs, clippy::all)]
pub mod v3electionpb {
    include!("generated/v3electionpb.rs");
}

/// The health service of gRPC.
#[allow(missing_docs, clippy::all)]
pub mod healthpb {
    include!("generated/grpc.health.v1.rs");
}

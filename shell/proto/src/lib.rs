//! Messages and services of the etcd v3 API, made from the files in `proto/`: what is in `src/generated/` is
//! written by `KATTU_UPDATE=1 cargo test -p kattu-proto --test generated`, and that test keeps it equal to what is meant, so
//! that whoever builds Kattu builds no compiler of protobuf.
//!
//! Every RPC of etcd exists here, also those that Kattu does not serve yet: a service trait's method that nobody wrote
//! answers `Unimplemented`. Numbers and names are etcd's and never change; see [etcd rpc.proto].
//! Knows nothing of: everything of ours.
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

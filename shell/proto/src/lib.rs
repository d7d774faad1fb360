//! Messages and services of the etcd v3 API, made from the files in `proto/` when the crate is built.
//!
//! Every RPC of etcd exists here, also those that Kattu does not serve yet: a service trait's method that nobody wrote
//! answers `Unimplemented`. Numbers and names are etcd's and never change; see [etcd rpc.proto].
//! Knows nothing of: everything of ours.
#![forbid(unsafe_code)]

/// Keys, watches, leases, members, maintenance, users.
#[allow(missing_docs, clippy::all)]
pub mod etcdserverpb {
    tonic::include_proto!("etcdserverpb");
}

/// Pairs and events.
#[allow(missing_docs, clippy::all)]
pub mod mvccpb {
    tonic::include_proto!("mvccpb");
}

/// Users, roles, permissions.
#[allow(missing_docs, clippy::all)]
pub mod authpb {
    tonic::include_proto!("authpb");
}

/// Locks.
#[allow(missing_docs, clippy::all)]
pub mod v3lockpb {
    tonic::include_proto!("v3lockpb");
}

/// Elections among clients.
#[allow(missing_docs, clippy::all)]
pub mod v3electionpb {
    tonic::include_proto!("v3electionpb");
}

/// The health service of gRPC.
#[allow(missing_docs, clippy::all)]
pub mod healthpb {
    tonic::include_proto!("grpc.health.v1");
}

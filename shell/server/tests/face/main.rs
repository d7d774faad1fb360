//! The etcd face over loopback: a real client, a real port, and a store behind a lock instead of a cluster.

mod bad_input;
mod compactor;
mod fixture;
mod hot;
mod hot_connection;
mod kv;
mod limits;
mod members;
mod native;
mod operations;
mod plain_http;
mod services;

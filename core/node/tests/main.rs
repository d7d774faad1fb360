//! The node: raft, store and clients together, without a machine. A file is a subject: `cargo test -p kattu-node frozen::`.

mod bundles;
mod frozen;
mod golden;
mod health;
mod leadership;
mod lost_ways;
mod member_storms;
mod members;
mod replica;
mod sessions;
mod slices;
mod snapshots;
mod storms;
mod transfers;
mod tuning;
mod weak;

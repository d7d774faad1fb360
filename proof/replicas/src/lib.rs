//! Replicas: a few whole replicas in one test, each a node and its keeper.
//!
//! A disk is a vector of records, the network a queue of messages, the clock a number that the test moves. Situations
//! of whole replicas are played here: forwards, reads, changes of members, snapshots, digests.
//!
//! ```
//! use kattu_replicas::{World, is_done, put};
//!
//! let mut world = World::new(3);
//! let leader = world.elect();
//! let ticket = world.ask(leader, put("key", "value"));
//! world.deliver();
//! assert!(is_done(world.outcome(leader, ticket)));
//! ```
//! Knows nothing of: bytes on a wire, real disks, threads, etcd.
#![forbid(unsafe_code)]

pub mod weak;
mod world;

pub use world::{
    ET, Member, World, entries, get, is_done, look_up, put, raft_config, recovered, urls, value_of, values_of,
};

//! Peers: a small world of raft peers that a test moves step by step, and a peer that lies.
//!
//! The tests of `core/raft`, its scripts and its storms run in this world, and so do the planted bugs and the fuzzer:
//! it costs microseconds per step, so rare orders of events come up in seconds.
//!
//! ```text
//!   test, script or storm ──step──▶ World ── Peer · Peer · Peer     wire     clock of the world
//!                                     │     (Raft + Disk + Clock)
//!                                     ├── safety    every step keeps what Raft guarantees
//!                                     └── leading   campaigns, transfers and leases are as the rules say
//! ```
//!
//! ```
//! use kattu_peers::{World, config};
//! use kattu_raft::NodeId;
//!
//! let mut world = World::started((1..=3).map(|id| config(id, 3, 0)).collect(), 7);
//! assert!(world.elect(NodeId(1)));
//! world.propose(NodeId(1), b"x").expect("it leads");
//! world.settle();
//! assert_eq!(world.raft(NodeId(3)).last_id(), world.raft(NodeId(1)).last_id());
//! ```
//! Knows nothing of: stores, clients, real disks; bytes on a wire.
#![forbid(unsafe_code)]

pub mod clock;
pub mod disk;
pub mod late;
pub mod leading;
pub mod liars;
pub mod receipts;
pub mod safety;
pub mod show;
pub mod storm;
mod world;

pub use world::{HEADER, Held, Jobs, Peer, Proof, Watch, Work, World, config, encoder};

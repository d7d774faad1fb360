//! The store: etcd's revision model as a pure function of commands.
//!
//! A [`Store`](store::Store) applies [`Command`](api::Command)s in log order and answers each; between them it answers
//! [`Query`](api::Query)s. The same commands give the same state and the same answers on every member, in every
//! version.
//!
//! | File | Its idea |
//! |---|---|
//! | `api.rs` | requests and answers |
//! | `command.rs` | the encoding of a command |
//! | `answer.rs` | the encoding of an answer |
//! | `check.rs` | checks of a request before it is proposed |
//! | `cost.rs` | the cost of a request, known before it runs |
//! | `store.rs` | the state, and the writes |
//! | `range.rs` | the reads |
//! | `lookup.rs` | the newest versions of many keys at once |
//! | `txn.rs` | transactions: decide, check, execute |
//! | `work.rs` | a request in progress, in slices |
//! | `history.rs` | the versions of one key |
//! | `superseded.rs` | the versions that newer ones have replaced |
//! | `changes.rs` | which keys each revision changed |
//! | `digest.rs` | digests that compare the stores of members |
//! | `dump.rs` | a store as bytes: the dump format |
//! | `kept.rs` | which older versions a dump writes |
//! | `load.rs` | a store from a dump |
//! | `index.rs` | keys in order, with ranks |
//! | `queue.rs` | a long queue whose copy shares nearly all with the original |
//! | `run.rs` | a few sorted keys, found quickly: a node of the index |
//! | `sessions.rs` | which commands of each client were executed, with which answers |
//! | `hash.rs` | a 64-bit hash that tells two states apart |
//! | `span.rs` | the keys that a request names |
//! | `value.rs` | the bytes of a value with its generation, shared |
//!
//! ```
//! use kattu_kv::api::{Answer, Command, KeyRange, Put, Query, Range, Revision};
//! use kattu_kv::store::Store;
//!
//! let mut store = Store::new();
//! let put = Put { key: b"a".to_vec(), value: b"1".to_vec(), ..Put::default() };
//! assert_eq!(store.apply(&Command::Put(put)).unwrap().revision, Revision(2));
//!
//! let range = Range { keys: KeyRange { start: b"a".to_vec(), end: Vec::new() }, ..Range::default() };
//! let Answer::Range(read) = store.query(&Query::Range(range)).unwrap().answer else { unreachable!() };
//! assert_eq!(&*read.kvs[0].value, b"1");
//! ```
//!
//! Knows nothing of: raft, terms, leaders, clocks, disks, protobuf.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod answer;
pub mod api;
mod changes;
pub mod check;
pub mod command;
pub mod cost;
pub mod digest;
pub mod dump;
mod dump_format;
mod hash;
mod history;
mod index;
mod kept;
mod load;
pub mod lookup;
mod queue;
mod range;
mod revision;
mod run;
pub mod sessions;
mod span;
pub mod store;
mod superseded;
mod txn;
mod value;
pub mod work;

//! Raft, one peer at a time, as a pure function of events.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

pub mod bytes;
pub mod config;
pub mod contract;
pub mod entry;
pub mod message;
pub mod policy;
pub mod trace;
pub mod types;

pub use bytes::SharedBytes;
pub use config::{Config, Limits};
pub use contract::{
    Effects, Fetch, FetchFor, HardState, Job, LogBody, LogRecord, ReadBatch, ReadVerdict, Recovered,
};
pub use entry::{Entry, EntryHead, EntryKind, Form, RecordEncoder};
pub use message::{Envelope, Message};
pub use policy::Policies;
pub use trace::Trace;
pub use types::{
    Duration, EntryId, GroupId, Incarnation, Instant, LogIndex, Lsn, NodeId, Round, Stamp, Term,
};

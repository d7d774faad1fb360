//! Judges of service: whether a cluster works in bounded time and with bounded resources, not only correctly.
//!
//! | Judge | Guarantee | Input |
//! |---|---|---|
//! | [`Goodput`] | most of what crosses a link is new to the receiver | bytes that crossed, entries and pieces taken |
//! | [`no_metastable_state()`] | overload costs little while it lasts, and nothing after it | requests completed |
//! | [`Progress`] | a connected majority is led; a reachable member advances, and catches up if it could | samples |
//! | [`BoundedStep`] | no step of an owner is above a stated amount of work | entries, keys, bytes of each step |
//! | [`BoundedMemory`] | what is held for others stays within its budgets | bytes held |
//! | [`tail()`] | the slowest writes stay about as fast during other work | times of writes |
//!
//! Each takes what happened and returns its verdict as a value: simulated storms and rigs of real processes use the
//! same judges. No judge measures anything by itself.
//! Knows nothing of: the source of the figures, clocks.

mod bounded_memory;
mod bounded_step;
mod goodput;
mod no_metastable_state;
mod progress;
mod tail;

pub use crate::judges::Violation;
pub use bounded_memory::{BoundedMemory, Held};
pub use bounded_step::{BYTES_PER_UNIT, BoundedStep, Work};
pub use goodput::{Goodput, LinkCount};
/// Types of the judges' input.
pub use kattu_raft::{LogIndex, NodeId};
pub use no_metastable_state::{DURING_MIN, Done, RECOVERY, no_metastable_state};
pub use progress::{Bounds, Progress, Standing};
pub use tail::{LEAST, Slower, Tails, percentile, tail};

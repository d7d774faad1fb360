//! Judges of service: whether a cluster does its work in bounded time and with bounded means, not only rightly.
//!
//! | Judge | Promise | Told of |
//! |---|---|---|
//! | [`Goodput`] | what crosses a link is mostly new to who gets it | bytes that crossed, entries and pieces taken |
//! | [`no_metastable_state()`] | load above capacity costs little while it lasts, and nothing after it | requests done |
//! | [`Progress`] | a majority that can talk is led; who is behind and can be reached gets more, and comes closer if it could | looks at members |
//! | [`BoundedStep`] | no step of an owner is above a stated amount of work | entries, keys, bytes of each step |
//! | [`BoundedMemory`] | what is held for others stays within its budgets | bytes held |
//! | [`tail()`] | the slowest writes stay about as fast, whatever goes on | times of writes |
//!
//! Each is fed with what happened and gives its verdict as a value: simulated storms and rigs of real processes ask the
//! same judges. None of them measures anything by itself.
//! Knows nothing of: where the figures come from, clocks.

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
/// What judges are told in.
pub use kattu_raft::{LogIndex, NodeId};
pub use no_metastable_state::{DURING_MIN, Done, RECOVERY, no_metastable_state};
pub use progress::{Bounds, Progress, Standing};
pub use tail::{LEAST, Slower, Tails, percentile, tail};

//! Judges of service: whether a cluster does its work in bounded time and with bounded means, not only rightly.
//!
//! | Judge | Promise | Told of |
//! |---|---|---|
//! | [`Goodput`] | what crosses a link is mostly new to who gets it | bytes that crossed, entries and pieces taken |
//!
//! Each is fed with what happened and gives its verdict as a value: simulated storms and rigs of real processes ask the
//! same judges. None of them measures anything by itself.
//! Knows nothing of: where the figures come from, clocks.

mod goodput;

pub use crate::judges::Violation;
pub use goodput::{Goodput, LinkCount};

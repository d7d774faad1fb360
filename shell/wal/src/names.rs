//! Names: what the files of a data directory are called, and where a segment's first block begins. For programs that
//! look into a directory from outside: simulated disks, rigs.
//!
//! Knows nothing of: the content of files.

pub use crate::segment::{DATA_START, generation_of as segment_of, name_of as segment_name};
pub use crate::slots::name_of as slots_name;
pub use crate::snapshot::named as snapshot_of;

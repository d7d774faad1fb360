//! Power loss below a real file system.
//!
//! The unmodified release binary writes to a real ext4, on a loop device, on a file that the rig serves through FUSE:
//! every block write and every flush passes through the rig. At moments chosen by the seed the power is cut: of the
//! unflushed writes some are lost, some survive out of order, some are torn between sectors. The members are killed,
//! the remaining images are mounted again, and the same judges as everywhere look for lost acknowledged writes.
//!
//! | Read in this order | Contents |
//! |---|---|
//! | `volatile_disk.rs` | the contents of a disk, and those that survive |
//! | `fuse_disk.rs` | a disk served through FUSE, with a switch for its power |
//! | `disk.rs` | loop device and ext4 on it |
//! | `mount_namespace.rs` | mounts and processes that cannot outlive a run |
//! | `files.rs` | the rig alone, without members |
//! | `plan.rs` | the plan of a seed |
//! | `trial.rs` | one trial: load, power cuts, recovery, verdict |
//! | `control.rs` | lying disks: the rig and the judges must notice |
//! | `campaign.rs` | many trials: progress, tables, the last line |
//!
//! Members, clients and the recording of histories are those of `kattu_rig`, the judges those of `kattu_verify`.
//! Knows nothing of: the insides of Kattu; only of what a client or an operator can see.
#![forbid(unsafe_code)]

pub mod campaign;
pub mod control;
pub mod disk;
pub mod files;
pub mod fuse_disk;
pub mod mount_namespace;
pub mod plan;
pub mod trial;
pub mod volatile_disk;

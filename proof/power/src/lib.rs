//! Power loss below a real file system.
//!
//! The unmodified release binary writes to a real ext4, on a loop device, on a file that we serve ourselves through
//! FUSE: every block write and every flush passes through our hands. At a moment of the seed's choosing the power goes:
//! of what was not flushed some is lost, some survives out of order, some is torn between sectors. The members are
//! killed, the images that are left are mounted again, and the same judges as everywhere decide whether anything that
//! was acknowledged is gone.
//!
//! | Read in this order | What it is |
//! |---|---|
//! | `volatile_disk.rs` | what a disk holds and what survives |
//! | `fuse_disk.rs` | a disk served through FUSE, with a switch for its power |
//! | `disk.rs` | loop device and ext4 on it |
//! | `mount_namespace.rs` | mounts and processes that cannot outlive a run |
//! | `files.rs` | the rig alone, without members |
//! | `plan.rs` | what a seed decides |
//! | `trial.rs` | one trial: load, losses, recovery, verdict |
//! | `control.rs` | disks that lie: the rig and the judges must notice |
//! | `campaign.rs` | many trials: progress, tables, the last line |
//!
//! Members, clients and the recording of histories are those of `kattu_chaos`, the judges those of `kattu_verify`.
//! Knows nothing of: the insides of Kattu; what a client or an operator cannot see is not looked at.
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

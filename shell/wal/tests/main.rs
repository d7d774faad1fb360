//! The log and its files, on a simulated disk. A file is a subject: `cargo test -p kattu-wal crash::`.

mod crash;
mod damage;
mod directory;
mod disk;
mod faults;
mod golden;
mod images;
mod known_members;
mod lives;
mod prune;
mod repair;
mod repair_snapshot;
mod small_files;
mod snapshot;
mod truth;
mod twin;
mod vote_hold;

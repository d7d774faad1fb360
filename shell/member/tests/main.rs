//! The member's tasks, beside what they work with. A file is a subject: `cargo test -p kattu-member apply::`.

mod apply;
mod batch;
mod dialling;
mod log;
mod log_moves;
mod newcomers;
mod replay;
mod snapshots;
mod stages;
mod start;
mod tuning;

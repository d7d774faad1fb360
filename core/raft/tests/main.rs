//! The protocol core, driven by messages and by hand. A file is a subject: `cargo test -p kattu-raft asking::`.

mod asking;
mod counts;
mod distrust;
mod floors;
mod flows;
mod heeding;
mod installing;
mod joined;
mod leader_leases;
mod log_twin;
mod rules;
mod runs;
mod scripts;
mod shared_bytes;
mod storms;
mod yielding;

//! The real binary, driven from outside. A file is a subject: `cargo test -p kattu-e2e tls::`.

mod bad_bytes;
mod bad_configuration;
mod bad_requests;
mod checked_arithmetic;
mod command;
mod disk_faults;
mod divergence;
mod durability;
mod etcd_tools;
mod floods;
mod heavy;
mod lives;
mod log_output;
mod members;
mod native;
mod no_bugs_aboard;
mod once;
mod operations;
mod peer_tls;
mod protocol;
mod stages;
mod strangers;
mod timing;
mod tls;
mod tuning;
mod upgrades;

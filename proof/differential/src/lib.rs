//! Differential test: the same requests to etcd and to Kattu, every answer compared.
//!
//! A seed decides the requests. They go to two fresh servers in small groups: consecutive reads are sent together, a
//! write alone, so both sides have the same history and their revisions agree. Answers are compared whole: code,
//! message, every field; of cluster id, member id and term only whether they are there. Each difference must match a
//! rule of `docs/compatibility.md`; one that does not ends the run with the shortest history that still shows it.
//! Knows nothing of: how either server works.
#![forbid(unsafe_code)]

pub mod answer;
pub mod call;
pub mod compare;
pub mod episode;
pub mod generate;
pub mod reduce;
pub mod rules;
pub mod server;

//! The same requests to etcd and to Kattu, every answer compared.
//!
//! A seed decides the requests. They go to two fresh servers in small groups: consecutive reads travel together, a
//! write travels alone, so both sides see the same history and revisions agree. Answers are compared whole: code,
//! message, every field; of cluster id, member id and term only whether they are there. Each difference must be
//! matched by a rule of `docs/compatibility.md`; an unmatched one ends the run with the shortest history that still
//! shows it.
//! Knows nothing of: how either server works.
#![forbid(unsafe_code)]

pub mod answer;
pub mod call;
pub mod compare;
pub mod episode;
pub mod generate;
pub mod random;
pub mod reduce;
pub mod rules;
pub mod server;

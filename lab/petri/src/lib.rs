//! A timed, stochastic, coloured Petri net of log replication: Raft and Non-Blocking Raft.
//!
//! ```text
//!   net.rs: places, transitions, arcs ──▶ marking.rs: moves tokens along arcs
//!        │                                     ▲
//!        │            parameters.rs ──▶ simulator/ ──▶ measured.rs: the eleven times
//!        ▼                                     └──▶ recording.rs
//!   drawing.rs ──▶ player.rs ◀─────────────────────────┘
//! ```
//! ```
//! use kattu_petri::{Setting, predict, profiles};
//!
//! let setting = Setting { requests: 500, warm_up: 100, ..Setting::raft(16) };
//! let prediction = predict(&profiles::iotdb(), &setting)?;
//! assert!(0.0 < prediction.report.accepted_per_s);
//! # Ok::<(), String>(())
//! ```
//! Published shapes that the model does not show: throughput of Raft has its peak near 768 clients, not 512, and that of NB-Raft
//! none, because bandwidth ends its rise; larger payloads make less disorder, because fewer requests are on the way; losses fall with
//! follower timeouts of milliseconds, not of seconds, because no way of the net is so long; t_append is 0.04 % of the time, not
//! 0.1 %. `docs/petri.md` has the numbers, and says which hang on parameters that are stated nowhere.
//!
//! Source: Non-Blocking Raft, S4 in `docs/replication-protocols.md`, whose section 13 describes the net.
//! Knows nothing of: Kattu's own code; clusters of real processes.
#![forbid(unsafe_code)]

mod agenda;
pub mod delay;
pub mod drawing;
mod entries;
pub mod histogram;
mod layout;
mod link;
pub mod marking;
pub mod measured;
pub mod net;
pub mod parameters;
pub mod player;
mod predict;
pub mod profiles;
mod recording;
pub mod simulator;
pub mod stages;
pub mod wait;

pub use delay::Delay;
pub use measured::{Report, Stage};
pub use parameters::{ClientLink, Host, Load, LogWork, OwnLog, Parameters, Setting, Weak};
pub use predict::{Prediction, predict};
pub use recording::Recording;
pub use simulator::{Failure, Finished, Losses, Simulator};
pub use stages::Stages;

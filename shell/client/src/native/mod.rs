//! The native protocol: many requests in one frame, sessions in which each command is executed once.
//!
//! | File | One idea |
//! |---|---|
//! | `reach.rs` | from an address to a connection: name, TCP, TLS, hello and welcome |
//! | `ask.rs` | a request, before it is in a frame |
//! | `listener.rs` | where its answer goes |
//! | `outbox.rs` | requests on their way into the next frame |
//! | `connection.rs` | many requests under way on one socket, which one task owns |
//! | `under_way.rs` | the requests under way, by name |
//! | `window.rs` | how many may be |
//! | `answer.rs` | a member's reply, and each failure in words |
//! | `members.rs` | which member is asked next, and the connection to each |
//! | `client.rs` | which member a request goes to, and how often |
//! | `calls.rs` | the calls, one function each |
//! | `pipeline.rs` | numbers of a session, and what is sent again; without a clock or a socket |
//! | `session.rs` | a session, as its caller has it |
//! | `live.rs` | a session at work: window, connection, steering |
//! | `weak.rs` | writes whose caller goes on when a quorum has received them |
//! | `pipe.rs` | many requests under way for one caller, in batches in and out |
//! | `desk.rs` | where their outcomes come together |
//! | `caller.rs` | where the outcome of one request goes |
//! | `alive.rs` | signs of life of all sessions of one client |
//! | `dice.rs` | chance |
//!
//! Source: [docs/formats/native.md; replication-protocols §10].
//! Knows nothing of: etcd's API.

mod alive;
mod answer;
mod ask;
mod caller;
mod calls;
mod client;
mod connection;
mod desk;
mod dice;
mod listener;
mod live;
mod members;
mod outbox;
mod pipe;
mod pipeline;
mod reach;
mod session;
mod under_way;
mod weak;
mod window;

pub use calls::ListedSession;
pub use client::NativeClient;
pub use pipe::Pipe;
pub use session::{Pending, Session, SessionOptions};
pub use weak::{Accepted, LostWrite, PendingWeak};

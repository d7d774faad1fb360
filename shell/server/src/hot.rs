//! Hot calls: Range and Put, answered without the library that serves all other calls of their connection.
//!
//! ```text
//!            ┌─ hot: whole requests ──▶ calls ──▶ static heads, data ─┐
//!  socket ──▶│ frames                                                 │──▶ socket
//!            └─ cold: frames ────────▶ library ──▶ frames ────────────┘
//! ```
//! | File | Its idea |
//! |---|---|
//! | `huffman.rs`, `hpack.rs` | heads, decoded and written anew |
//! | `heads.rs` | which calls are hot |
//! | `input.rs`, `cold.rs` | whole hot calls for the owner, all else for the library |
//! | `windows.rs`, `stream.rs` | how much may be sent |
//! | `table.rs` | the client's table of heads, once it is to be smaller |
//! | `part.rs`, `output.rs` | responses between the library's frames |
//! | `kept.rs` | the library's frames that wait for a window |
//! | `line.rs` | the socket that both share |
//! | `call.rs` | one hot call |
//! | `judge.rs` | of tests: input as the library alone sees it |
//!
//! Knows nothing of: what a call asks for.

pub(crate) mod call;
mod cold;
mod heads;
mod hpack;
mod huffman;
mod input;
#[cfg(any(test, fuzzing))]
pub(crate) mod judge;
mod kept;
pub(crate) mod line;
mod output;
mod part;
mod stream;
mod table;
mod windows;

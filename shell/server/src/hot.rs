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
//!
//! Knows nothing of: what a call asks for.

mod heads;
mod hpack;
mod huffman;

//! The store, as its users and its oracle see it. A file is a subject: `cargo test -p kattu-kv check::`.

mod check;
mod codec;
mod common;
mod cost;
mod digest;
mod dump;
mod lookup;
mod raise;
mod sessions;
mod twin;
mod vectors;

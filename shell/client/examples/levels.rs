//! How fresh reads are, and how long they take, level by level.
//!
//! With `cargo run --release -- dev` in another terminal:
//! `cargo run -p kattu-client --example levels [ENDPOINT …]`; with all three endpoints reads below linearizable are spread.
//! Knows nothing of: which member serves a read.

use kattu_client::{Level, NativeClient, Options, Seen};
use std::error::Error;
use std::time::{Duration, Instant};

const READS: u32 = 200;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut endpoints: Vec<String> = std::env::args().skip(1).collect();
    if endpoints.is_empty() {
        endpoints.push("127.0.0.1:2379".to_string());
    }
    let client = NativeClient::connect(endpoints, Options::default(), None)?;
    let seen = Seen::new();
    let own_writes = client.at_level(Level::AtLeast(seen.clone()));
    own_writes.put("level", "fresh").await?;
    println!("written at position {} of the log", seen.position());
    for (name, client) in [
        ("linearizable: every write answered before", client.at_level(Level::Linearizable)),
        ("at least: what this client has seen or done", own_writes),
        (
            "bounded: every write older than 100 ms",
            client.at_level(Level::Bounded(Duration::from_millis(100))),
        ),
        ("serializable: some state that existed", client.at_level(Level::Serializable)),
    ] {
        let begin = Instant::now();
        let mut fresh = 0;
        for _ in 0..READS {
            let pair = client.get("level").await?;
            fresh += u32::from(pair.is_some_and(|pair| &pair.value[..] == b"fresh"));
        }
        println!("{name}: {:?} a read, {fresh} of {READS} fresh", begin.elapsed() / READS);
    }
    Ok(())
}

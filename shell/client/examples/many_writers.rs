//! Many writers, each with a session and a window full of puts under way.
//!
//! With `cargo run --release -- dev` in another terminal:
//! `cargo run --release -p kattu-client --example many_writers [ENDPOINT …]`
//! Knows nothing of: frames; the client gathers the puts of all writers.

use kattu_client::{NativeClient, Options, Order, SessionOptions};
use std::error::Error;
use std::time::Instant;

const WRITERS: usize = 16;
const PUTS: usize = 5_000;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut endpoints: Vec<String> = std::env::args().skip(1).collect();
    if endpoints.is_empty() {
        endpoints.push("127.0.0.1:2379".to_string());
    }
    let client = NativeClient::connect(endpoints, Options::default(), None)?;
    let begin = Instant::now();
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let client = client.clone();
            tokio::spawn(async move {
                // The keys are different: their order does not matter.
                let options = SessionOptions { order: Order::Any, window: 256 };
                let session = client.open_session(options).await?;
                for n in 0..PUTS {
                    // Its answer is not looked at here; `close` tells if one has not come.
                    session.put(format!("writer/{writer}/{n}"), "value").await?;
                }
                session.close().await
            })
        })
        .collect();
    for writer in writers {
        writer.await??;
    }
    let seconds = begin.elapsed().as_secs_f64();
    println!(
        "{} puts in {seconds:.2} s: {:.0} per second",
        WRITERS * PUTS,
        (WRITERS * PUTS) as f64 / seconds
    );
    Ok(())
}

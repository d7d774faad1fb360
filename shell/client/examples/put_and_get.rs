//! A put and a get by the native protocol.
//!
//! With `cargo run --release -- dev` in another terminal: `cargo run -p kattu-client --example put_and_get [ENDPOINT …]`
//! Knows nothing of: sessions.

use kattu_client::{NativeClient, Options};
use std::error::Error;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut endpoints: Vec<String> = std::env::args().skip(1).collect();
    if endpoints.is_empty() {
        endpoints.push("127.0.0.1:2379".to_string());
    }
    let client = NativeClient::connect(endpoints, Options::default(), None)?;
    let put = client.put("greeting", "hello").await?;
    println!("put at revision {}", put.revision.0);
    match client.get("greeting").await? {
        Some(pair) => println!("{} (version {})", String::from_utf8_lossy(&pair.value), pair.version),
        None => println!("another client has deleted it"),
    }
    Ok(())
}

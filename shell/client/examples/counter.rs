//! A counter that several tasks raise: each raise is a transaction in a session, and is executed exactly once.
//!
//! Without the session a raise whose answer is lost could not be repeated: it may have been counted.
//!
//! With `cargo run --release -- dev` in another terminal: `cargo run -p kattu-client --example counter [ENDPOINT …]`
//! Knows nothing of: lost connections; the session repeats.

use kattu_client::api::{Answer, Compare, CompareResult, CompareTarget, KeyRange, Operation, Put, Txn};
use kattu_client::{NativeClient, Options, Session, SessionOptions};
use std::error::Error;

const KEY: &str = "counter";
const TASKS: usize = 4;
const RAISES: usize = 100;

/// Raises the counter by one, from whatever it is.
async fn raise(client: &NativeClient, session: &Session) -> Result<(), kattu_client::Error> {
    loop {
        let pair = client.get(KEY).await?;
        let version = pair.as_ref().map_or(0, |pair| pair.version);
        let count = pair.and_then(|pair| String::from_utf8_lossy(&pair.value).parse().ok()).unwrap_or(0u64);
        let keys = KeyRange { start: KEY.into(), end: vec![] };
        let is_unchanged =
            Compare { keys, result: CompareResult::Equal, target: CompareTarget::Version(version) };
        let put = Put { key: KEY.into(), value: (count + 1).to_string().into(), ..Put::default() };
        let txn = Txn { compare: vec![is_unchanged], success: vec![Operation::Put(put)], failure: vec![] };
        if let Answer::Txn { succeeded: true, .. } = session.txn(txn).await?.await?.answer {
            return Ok(());
        }
        // Another task was quicker.
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut endpoints: Vec<String> = std::env::args().skip(1).collect();
    if endpoints.is_empty() {
        endpoints.push("127.0.0.1:2379".to_string());
    }
    let client = NativeClient::connect(endpoints, Options::default(), None)?;
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move {
                let session = client.open_session(SessionOptions::default()).await?;
                for _ in 0..RAISES {
                    raise(&client, &session).await?;
                }
                session.close().await
            })
        })
        .collect();
    for task in tasks {
        task.await??;
    }
    let pair = client.get(KEY).await?.ok_or("another client has deleted the counter")?;
    println!(
        "{TASKS} tasks have raised the counter {RAISES} times each: it is {}",
        String::from_utf8_lossy(&pair.value)
    );
    Ok(())
}

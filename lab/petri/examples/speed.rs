//! Speed: transitions per second of the simulator on this machine.
//!
//! `cargo run --release -p kattu-petri --example speed`

use kattu_petri::{Setting, predict, profiles};
use std::time::Instant;

fn main() -> Result<(), String> {
    for (name, setting) in [("raft", Setting::raft(512)), ("nb-raft", Setting::nb_raft(512))] {
        let began = Instant::now();
        let prediction = predict(&profiles::iotdb(), &Setting { requests: 200_000, ..setting })?;
        let seconds = began.elapsed().as_secs_f64();
        let per_second = prediction.transitions as f64 / seconds / 1e6;
        println!(
            "{name}: {} transitions in {seconds:.2} s: {per_second:.2} million/s",
            prediction.transitions
        );
    }
    Ok(())
}

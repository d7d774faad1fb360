//! What the removal of a large file costs the syncs of a log on the same disk: `cargo run --release -p kattu-wal --example removal DIR`.
//!
//! Per round and way a file of a gigabyte is written and removed, while another thread overwrites 4 KiB of a small file and syncs it,
//! again and again, as a log does.
//! Knows nothing of: snapshots.

use kattu_wal::{Files, RealFiles};
use std::io::{Error, Result};
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const LARGE: u64 = 1 << 30;
const PIECE: usize = 1 << 20;
const PAGE: usize = 4096;
const ROUNDS: usize = 5;
/// Between two steps, as in a member.
const PAUSE: Duration = Duration::from_millis(20);
/// Syncs are measured so long after a removal: the file system does a part of the work with its next commits.
const AFTER: Duration = Duration::from_secs(6);

#[derive(Clone, Copy)]
enum Way {
    Not,
    AtOnce,
    InSteps,
}

fn main() -> ExitCode {
    let Some(dir) = std::env::args().nth(1) else {
        eprintln!("usage: removal DIR   (on the disk to measure; a gigabyte must be free)");
        return ExitCode::from(2);
    };
    match measure(Path::new(&dir)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("removal: {dir}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(dir: &Path) -> Result<()> {
    let files = RealFiles::create(dir).map_err(Error::other)?;
    println!("longest sync, and the 99th percentile, in ms");
    println!("round   not removed      at once     in steps");
    for round in 1..=ROUNDS {
        let mut line = format!("{round:>5}");
        for way in [Way::Not, Way::AtOnce, Way::InSteps] {
            let mut took = beside(&files, way)?;
            took.sort_unstable();
            let ms = |part: usize| took[(took.len() - 1) * part / 100].as_secs_f64() * 1e3;
            line += &format!("{:>8.1} {:>4.1}", ms(100), ms(99));
        }
        println!("{line}");
    }
    files.remove("small")?;
    files.remove("large")
}

/// How long syncs take beside the removal of a large file.
fn beside(files: &RealFiles, way: Way) -> Result<Vec<Duration>> {
    let large = files.create("large")?;
    let piece = vec![7; PIECE];
    for at in (0..LARGE).step_by(PIECE) {
        large.write_at(at, &piece)?;
    }
    large.sync()?;
    drop(large);
    let small = files.create("small")?;
    small.write_at(0, &piece)?;
    small.sync()?;
    files.sync_names()?;
    let (ended, mut took) = (AtomicBool::new(false), Vec::new());
    std::thread::scope(|scope| {
        let removal = scope.spawn(|| {
            let removed = remove(files, way);
            std::thread::sleep(AFTER);
            ended.store(true, Ordering::Relaxed);
            removed
        });
        while !ended.load(Ordering::Relaxed) {
            let begun = Instant::now();
            small.write_at(0, &piece[..PAGE])?;
            small.sync()?;
            took.push(begun.elapsed());
        }
        removal.join().map_err(|_| Error::other("a thread panicked"))?
    })?;
    Ok(took)
}

fn remove(files: &RealFiles, way: Way) -> Result<()> {
    match way {
        Way::Not => Ok(()),
        Way::AtOnce => files.remove("large"),
        Way::InSteps => {
            let mut remains = files.remove_large("large")?;
            while let Some(left) = &mut remains
                && left.shrink()?
            {
                std::thread::sleep(PAUSE);
            }
            Ok(())
        }
    }
}

//! The scrub: all files of the data directory are read and checked in the background, so that damage is found while every
//! other copy is still good. [fault-model ST12]
//!
//! A thread of its own reads slowly. Members write meanwhile, and files come and go: what looks like damage counts only if
//! it is seen at the same place twice. Damage to the log of a member that has peers ends the process, with the reason: the
//! next start mends the log from them, and nothing damaged is ever served or sent, since every entry is checked when it is
//! read. All other damage is told: one bad slot is repaired by the next start, a snapshot is one of two, and by the time
//! that it is needed a newer one has taken its place.
//! What the system still has in memory is not read from the disk.
//! Knows nothing of: what is in the files.

use crate::metrics::Metrics;
use crate::report;
use kattu_raft::Duration;
use kattu_wal::{Item, RealFiles, Verdict, WalError, inspect};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

/// Blocks after which it rests, and for how long: some 30 MiB in a second at most.
const BLOCKS_AT_ONCE: u64 = 16;
const REST: Duration = Duration::from_millis(1);
/// Between two looks at something that looked like damage.
const SECOND_LOOK: Duration = Duration::from_secs(1);
/// The first scrub begins soon after the start: the files have just been read once.
const FIRST: u32 = 8;

/// A place that looks damaged: its file, and the words for the operator.
type Found = BTreeSet<(String, String)>;

/// Starts it, unless `period` is zero. It ends with the process.
pub(crate) fn start(
    place: PathBuf,
    period: Duration,
    has_peers: bool,
    metrics: Arc<Metrics>,
) -> std::io::Result<()> {
    if period.is_zero() {
        return Ok(());
    }
    let work = move || {
        let _ = rustix::process::nice(10);
        std::thread::sleep(period / FIRST);
        loop {
            for (file, what) in &confirmed(&place) {
                metrics.scrub_damages.add(1);
                report::warn(format_args!("the scrub found damage: {what}"));
                if has_peers && file.starts_with("log-") {
                    report::warn(format_args!(
                        "stopping, so that the next start mends the log from the other members"
                    ));
                    std::process::exit(1);
                }
            }
            metrics.scrubs.add(1);
            std::thread::sleep(period);
        }
    };
    std::thread::Builder::new().name("kattu-scrub".into()).spawn(work).map(|_| ())
}

/// What looks damaged at the same place twice.
fn confirmed(place: &std::path::Path) -> Found {
    let first = look(place);
    if first.is_empty() {
        return first;
    }
    std::thread::sleep(SECOND_LOOK);
    let second = look(place);
    first.intersection(&second).cloned().collect()
}

/// Reads everything once. What cannot be read because it goes just now is looked at the next time.
fn look(place: &std::path::Path) -> Found {
    let mut found = Found::new();
    let Ok(files) = RealFiles::existing(place) else { return found };
    let mut items = 0_u64;
    let verdict = inspect(&files, &mut |item| {
        items += 1;
        if items.is_multiple_of(BLOCKS_AT_ONCE) {
            std::thread::sleep(REST);
        }
        match item {
            Item::Slot { group, place, state: Err(what) } => {
                let file = format!("slots-{:08x}", group.0);
                let what =
                    format!("{file}: slot {place}: {what}; the next start repairs it from the other one");
                found.insert((file, what));
            }
            Item::Snapshot { file, state: Err(what) } => {
                let what = format!("{file}: {what}; the one before it, or a peer's, stands in for it");
                found.insert((file, what));
            }
            _ => {}
        }
    });
    match verdict {
        Ok(Verdict::Damaged { file, offset, what }) => {
            let what = format!("{file}: damaged at byte {offset}: {what}");
            found.insert((file, what));
        }
        Err(error @ (WalError::Damaged { .. } | WalError::Foreign { .. })) => {
            found.insert(("identity".into(), error.to_string()));
        }
        Ok(Verdict::Clean { .. } | Verdict::TornTail { .. }) | Err(_) => {}
    }
    found
}

//! Settings: what a member does about the settings that the cluster's configuration makes.
//!
//! In:    the timing in force, and the length of vote holds that is to be recorded; the flags of this process.
//! Out:   the file `promise`, log lines.
//! Rules: 1. A vote hold is recorded before it is granted. A record that failed is tried again after an election timeout;
//!           meanwhile this member grants holds of the recorded length, and reads of its leader may take rounds. A sync that
//!           failed ends the process. [replication-protocols L-4, fault-model ST3]
//!        2. Flags begin a cluster's timing. A flag that differs from it later is named at the start, and has no effect.
//!           [decision 61]
//!
//! Knows nothing of: elections, the cause of a change.

use crate::disk::sync_failed;
use crate::report::{self, Cause};
use kattu_member::opening::VoteHolds;
use kattu_raft::{Duration, Instant, Raft, Timing};
use kattu_wal::VoteHoldRecord;

/// The record of how long vote holds last: the file `promise`.
pub(crate) struct Promise {
    record: VoteHoldRecord,
    /// After a failure the record is left alone for so long.
    pause: Duration,
    /// No record is tried before this.
    again_at: Instant,
}

impl Promise {
    /// At the start, with this timing.
    pub(crate) fn new(record: VoteHoldRecord, timing: Timing) -> Promise {
        Promise { record, pause: timing.election_timeout, again_at: Instant(0) }
    }

    /// Another timing is in force.
    pub(crate) fn follow(&mut self, timing: Timing) {
        self.pause = timing.election_timeout;
    }

    /// Makes durable that vote holds last this long from now on; whether it is. [Rule 1]
    pub(crate) fn record(&mut self, now: Instant, length: Duration) -> bool {
        if now < self.again_at {
            return false;
        }
        let Err(error) = self.record.set(length) else { return true };
        if error.is_failed_sync() {
            sync_failed(&error);
        }
        self.again_at = now + self.pause;
        let cause = Cause { what: "vote holds that are not recorded", whose: 0 };
        report::warn_of(
            cause,
            format_args!(
                "cannot record in file `promise` that vote holds last {length:?} now: {error}; until it is recorded, this \
                 member's answers earn its leader no lease on a longer election timeout"
            ),
        );
        false
    }
}

/// Logs that another timing is in force than the last one.
pub(crate) fn note_timing(timing: Timing, raft: &Raft) {
    report::info(format_args!(
        "the cluster's configuration sets {} from now on; this member was started with {}",
        words(timing),
        words(raft.own_timing())
    ));
}

/// Logs that the flags of this start do not count, if they differ from the cluster's timing. [Rule 2]
pub(crate) fn note_flags(flags: Option<Timing>, cluster: Option<Timing>) {
    if let (Some(flags), Some(cluster)) = (flags, cluster)
        && flags != cluster
    {
        report::warn(format_args!(
            "the flags say {}, but the cluster has {}, which counts: flags begin a new cluster only; `kattu timing` changes \
             it for all members",
            words(flags),
            words(cluster)
        ));
    }
}

/// Logs that earlier runs may have granted longer vote holds, or that their record cannot be read.
pub(crate) fn note_vote_holds(recorded: &Result<Duration, String>, holds: &VoteHolds) {
    let VoteHolds { earlier, own, .. } = holds;
    if let Err(what) = recorded {
        report::warn(format_args!(
            "file `promise` (vote hold of an earlier run) is unreadable: {what}; assuming the longest one, {earlier:?}"
        ));
    }
    if own < earlier {
        report::info(format_args!(
            "this member votes in {earlier:?} at the earliest: an earlier run may have granted leaders a vote hold of that \
             length (--lease-reads), and the present one is shorter"
        ));
    }
}

fn words(timing: Timing) -> String {
    let Timing { election_timeout, heartbeat_interval } = timing;
    format!("an election timeout of {election_timeout:?} and a heartbeat interval of {heartbeat_interval:?}")
}

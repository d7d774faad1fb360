//! Settings: the parameters that the configuration in force gives to all members alike.
//!
//! In:    a configuration that comes into force: appended, restored by a truncation, installed with a snapshot, found
//!        at a start.
//! Out:   the timing and the policies that every other rule of this peer reads from its [`Config`].
//! Rules: [replication-protocols §14, L-3, L-4; decision 7]
//!   1. A setting of the newest configuration counts, committed or not, from the moment that configuration does. (M1)
//!      Where the configuration is silent, the setting that this peer was started with counts.
//!   2. A leader computes leases only from rounds that began under the election timeout now in force: its own change of
//!      it is a new configuration, which ends the lease. (L-7) So it compares vote holds and computes the lease with one
//!      and the same election timeout.
//!   3. An answer states the vote hold of the election timeout in force when it *leaves*, which may be longer than the
//!      one that was in force when the round was heard. So a follower whose election timeout grows lengthens the hold
//!      that it has granted. One that shrinks shortens no hold granted before.
//!   4. An answer states no longer hold than the driver has recorded as durable: after a crash the member withholds votes
//!      for that long, whatever became of the configuration that asked for it. Until the record is made this member's
//!      answers earn no lease on the longer timeout, and reads are confirmed by rounds. A shorter length is recorded when
//!      all longer holds are over.
//!
//! Knows nothing of: the origin of a configuration, files.

use crate::config::{Config, Limits};
use crate::configurations::newest_found;
use crate::extensions::{Extensions, Timing};
use crate::membership::Membership;
use crate::policy::Policies;
use crate::raft::Raft;
use crate::role::{Follower, Role};
use crate::snapshot::SnapshotMeta;
use crate::types::{Duration, Instant, LogIndex};

/// The settings that this peer was started with. They count where the configuration in force has none.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct OwnSettings {
    timing: Timing,
    policies: Policies,
    limits: Limits,
}

impl OwnSettings {
    pub(crate) fn of(config: &Config) -> OwnSettings {
        OwnSettings { timing: config.timing(), policies: config.policies, limits: config.limits }
    }

    /// The limits that this peer was started with: what it takes of others, whatever it is tuned to since.
    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The settings in force under such a configuration.
    fn under(&self, extensions: &Extensions) -> (Timing, Policies) {
        let policies = extensions.protocol.map_or(self.policies, |protocol| protocol.policies());
        (extensions.timing.unwrap_or(self.timing), policies)
    }
}

impl Config {
    /// Its election timeout and heartbeat interval.
    #[must_use]
    pub fn timing(&self) -> Timing {
        Timing { election_timeout: self.election_timeout, heartbeat_interval: self.heartbeat_interval }
    }

    /// Takes over the settings of a configuration that is in force. [Rule 1]
    pub(crate) fn follow(&mut self, own: &OwnSettings, extensions: &Extensions) {
        let (timing, policies) = own.under(extensions);
        let Timing { election_timeout, heartbeat_interval } = timing;
        (self.election_timeout, self.heartbeat_interval) = (election_timeout, heartbeat_interval);
        self.policies = policies;
    }
}

/// The timing that the newest configuration found at a start sets, if any does.
#[must_use]
pub fn timing_found(in_log: &[(LogIndex, Membership)], snapshot: Option<&SnapshotMeta>) -> Option<Timing> {
    newest_found(in_log, snapshot).and_then(|newest| newest.extensions.timing)
}

impl Raft {
    /// A configuration came into force: its settings count from now on. [Rules 1, 3]
    pub(crate) fn take_settings(&mut self) {
        let before = self.config.election_timeout;
        self.config.follow(&self.own_settings, &self.configurations.newest().extensions);
        if self.config.election_timeout == before {
            return;
        }
        self.lengthen_vote_hold();
        if self.config.election_timeout < before {
            self.longer_holds_until = self.longer_holds_until.max(self.vote_hold);
        }
        self.draw_election_timer_again();
    }

    /// With leases: the vote hold lasts as long as the next answer to the leader states. [Rule 3]
    pub(crate) fn lengthen_vote_hold(&mut self) {
        if let Role::Follower(Follower { following: Some(following), .. }) = &self.role
            && let Some(heard) = following.last_contact
        {
            self.vote_hold_for_leader(heard);
        }
    }

    /// A follower's election timer, begun when it was.
    pub(crate) fn draw_election_timer_again(&mut self) {
        if let Role::Follower(Follower { timer, .. }) = &self.role {
            let drawn = self.election_timer(timer.started);
            let Role::Follower(Follower { timer, .. }) = &mut self.role else { unreachable!("just seen") };
            *timer = drawn;
        }
    }

    /// The election timeout and the heartbeat interval in force here.
    #[must_use]
    pub fn timing(&self) -> Timing {
        self.config.timing()
    }

    /// The timing that this peer was started with; it counts while the configuration sets none.
    #[must_use]
    pub fn own_timing(&self) -> Timing {
        self.own_settings.timing
    }

    /// The length of this member's vote holds, which the driver makes durable and reports with
    /// [`Raft::vote_hold_recorded`] before it lets this peer take another step; `None` if that is on record. A longer
    /// one is due at once, a shorter one when all longer holds are over. [Rule 4]
    #[must_use]
    pub fn vote_hold_to_record(&self, now: Instant) -> Option<Duration> {
        let wanted = self.wanted_vote_hold();
        let is_due = self.hold_recorded < wanted || self.longer_holds_until <= now;
        (wanted != self.hold_recorded && is_due).then_some(wanted)
    }

    /// The driver has made durable that vote holds of this member last no longer than `length` from now on. [Rule 4]
    pub fn vote_hold_recorded(&mut self, length: Duration) {
        self.hold_recorded = length;
    }

    /// The vote hold that leases here call for; zero without leases.
    fn wanted_vote_hold(&self) -> Duration {
        self.config.leadership.leader_lease.map_or(Duration::ZERO, |_| self.config.election_timeout)
    }

    /// At the start: vote holds of earlier runs may last for `recorded`, and the driver has recorded what this run
    /// grants, if that is more. [L-4]
    pub(crate) fn note_longer_hold(&mut self, now: Instant, recorded: Duration) {
        self.hold_recorded = self.wanted_vote_hold().max(recorded);
        if self.wanted_vote_hold() < recorded {
            self.longer_holds_until = now + recorded;
            self.vote_hold = self.vote_hold.max(self.longer_holds_until);
        }
    }

    /// The vote hold in this peer's answers to its leader; zero without leases. [L-3; rule 4]
    pub(crate) fn own_vote_hold(&self) -> Duration {
        self.wanted_vote_hold().min(self.hold_recorded)
    }
}

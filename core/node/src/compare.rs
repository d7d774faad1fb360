//! Compare: when members compare their digests.
//!
//! The leader marks a place of the log an interval after the first entry since the last mark: an idle cluster stays
//! idle, and a single write is not followed by a comparison at once. Every member then owes a report of its digest
//! there, and sends it like any other write, until the log holds it. A lost mark or report costs only time; a repeated
//! one has no effect.
//!
//! In:    entries delivered to the keeper; its alarms, and the report that is owed.
//! Out:   writes of this replica's own, for which no client waits.
//! Knows nothing of: the content of digests, verdicts.

use crate::alarms::{Alarm, Alarms};
use crate::command::is_for_store;
use crate::contract::{Effects, Outcome, Refusal, Request, Ticket};
use crate::digests::{MARK_BYTE, REPORT_BYTE, Report, mark};
use crate::node::{Node, answer};
use crate::session::is_of_session;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use kattu_raft::{Duration, Entry, EntryKind, Instant, LeadershipConfig, NodeId};

/// Election timeouts between two attempts of a divergent leader to transfer leadership.
const TRANSFERS_APART: u32 = 10;

/// Alarms, the report that this member owes, and the feature level: from the keeper's tables.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Health {
    /// All alarms that are raised.
    pub alarms: Alarms,
    /// This member's digest at the newest mark, as long as the log does not hold its report.
    pub owed: Option<Report>,
    /// The cluster's feature level. [`crate::level`]
    pub level: u16,
}

/// The replica's side of the comparison.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Compare {
    /// Time between two marks; zero for none.
    interval: Duration,
    /// An entry was delivered to the keeper after the last mark.
    is_due: bool,
    /// When the next mark is due, if entries wait for one.
    mark_at: Option<Instant>,
    /// The report is not sent again before this.
    report_after: Instant,
    health: Health,
    /// The priorities for leadership that other members announced.
    priorities: BTreeMap<NodeId, u8>,
    /// A divergent leader does not transfer leadership before this.
    transfer_after: Instant,
}

impl Compare {
    pub(crate) fn new(interval: Duration) -> Compare {
        Compare {
            interval,
            is_due: false,
            mark_at: None,
            report_after: Instant(0),
            health: Health::default(),
            priorities: BTreeMap::new(),
            transfer_after: Instant(0),
        }
    }

    /// An entry is delivered to the keeper.
    pub(crate) fn delivered(&mut self, entry: &Entry) {
        if entry.head.kind == EntryKind::Command {
            match entry.payload().and_then(<[u8]>::first) {
                Some(&MARK_BYTE) => (self.is_due, self.mark_at) = (false, None),
                Some(&REPORT_BYTE) => {}
                _ => self.is_due = true,
            }
        }
    }

    /// The cluster's feature level.
    pub(crate) fn level(&self) -> u16 {
        self.health.level
    }

    /// All alarms that this replica knows of.
    pub(crate) fn alarms(&self) -> &Alarms {
        &self.health.alarms
    }
}

impl Node {
    /// When the next mark or report is due, if this replica is the one to make it.
    pub(crate) fn compare_deadline(&self) -> Instant {
        let mark = self.compare.mark_at.filter(|_| self.may_mark()).unwrap_or(Instant::NEVER);
        let report = if self.may_report() { self.compare.report_after } else { Instant::NEVER };
        mark.min(report)
    }

    fn may_mark(&self) -> bool {
        let Compare { interval, is_due, .. } = self.compare;
        // A single member has no other to compare with.
        is_due && !interval.is_zero() && self.raft.is_leader() && self.raft.membership().members().count() > 1
    }

    fn may_report(&self) -> bool {
        self.compare.health.owed.is_some() && self.is_confirmed() && self.raft.leader().is_some()
    }

    /// Makes the mark or the report that is due.
    pub(crate) fn compare_if_due(&mut self, now: Instant) {
        if self.may_mark() {
            let later = now + self.compare.interval;
            if *self.compare.mark_at.get_or_insert(later) <= now {
                self.compare.mark_at = Some(later);
                self.write_own(now, mark());
            }
        } else {
            self.compare.mark_at = None;
        }
        if self.may_report() && self.compare.report_after <= now {
            self.compare.report_after = now + self.request_timeout();
            let owed = self.compare.health.owed.expect("just looked");
            self.write_own(now, owed.encode());
        }
    }

    /// The keeper's alarms, owed report or level have changed.
    pub(crate) fn on_health(&mut self, now: Instant, health: Health, out: &mut kattu_raft::Effects) {
        if health.owed != self.compare.health.owed {
            self.compare.report_after = now;
        }
        let before = core::mem::replace(&mut self.compare.health, health);
        if before.alarms != self.compare.health.alarms {
            let members: Vec<NodeId> = self.raft.membership().members().collect();
            members.into_iter().for_each(|member| self.weigh(member));
            self.compare.transfer_after = now;
            self.transfer_if_divergent(now, out);
        }
    }

    /// A divergent leader transfers leadership, whenever it was elected: its log is as good as any, but not the answers
    /// from its store. If the transfer fails it goes on leading for a while.
    pub(crate) fn transfer_if_divergent(&mut self, now: Instant, out: &mut kattu_raft::Effects) {
        let named = Alarm::corrupt(self.raft.id());
        if self.raft.is_leader()
            && self.compare.transfer_after <= now
            && self.compare.alarms().contains(named)
            && let Some(other) = self.raft.best_successor(now)
        {
            self.compare.transfer_after = now + self.raft.timing().election_timeout * TRANSFERS_APART;
            let _ = self.raft.transfer(now, other, out); // an ineligible target is ignored
        }
    }

    /// A member announced its priority for leadership.
    pub(crate) fn on_priority(&mut self, member: NodeId, told: u8) {
        self.compare.priorities.insert(member, told);
        self.weigh(member);
    }

    /// Sets the priority of a member: 0 if it is divergent, else as announced, the default if it has not announced one.
    fn weigh(&mut self, member: NodeId) {
        let told = self.compare.priorities.get(&member).copied();
        let told = told.unwrap_or(LeadershipConfig::default().priority);
        let is_divergent = self.compare.alarms().contains(Alarm::corrupt(member));
        self.raft.set_priority(member, if is_divergent { 0 } else { told });
    }

    /// Whether writes that grow the store are refused.
    pub(crate) fn is_short(&self) -> bool {
        self.space.short || self.compare.alarms().forbids_growth()
    }

    /// A divergent replica refuses all reads and writes of the store and of sessions, but accepts the clearing of its
    /// alarm. Returns whether it refused this request.
    pub(crate) fn refuses_as_corrupt(
        &self,
        ticket: Ticket,
        request: &Request,
        effects: &mut Effects,
    ) -> bool {
        let is_of_store = match request {
            Request::Write(command) | Request::CommitOnly(command) => {
                is_of_session(command) || is_for_store(command)
            }
            Request::Weigh(..) | Request::Read(..) | Request::LookUp(..) => true,
            _ => false,
        };
        let refuses = is_of_store && self.compare.alarms().is_corrupt(self.raft.id());
        if refuses {
            answer(effects, ticket, Outcome::Refused(Refusal::Corrupt));
        }
        refuses
    }
}

//! One member of the tiny cluster: the production peer, its disk, and everything that can happen to it.
//!
//! In:    an event.
//! Out:   the member after it; its messages, commits, election, answers.
//! Rules: 1. The driver's contract: effects are carried out as they come; the driver calls `drained` after every event
//!           (or later, when the scope allows it); the store applies at once.
//!        2. After every event the peer is brought into canonical form, so that equal situations are equal values.
//!        3. Rules that one member alone can violate are judged here: its own invariants, marks that move back,
//!           messages that its disk does not back yet. A panic of the core is a violation with the panic's text.
//!
//! Knows nothing of: other members, messages under way, commits elsewhere.

use crate::clocks::{self, Observer, Rate, Turns};
use crate::disk::{Disk, Snapshot};
use crate::position::{Configuration, PLACE_BYTES, Position};
use crate::scope::{Lie, Scope, Sync};
use kattu_raft::canonical::{CANONICAL_NOW, Moment};
use kattu_raft::message::{AppendReply, Message};
use kattu_raft::policy::{Capacity, Intake, Weak};
use kattu_raft::{
    ChunkStored, Config, Duration, Effects, EntryId, EntryKind, Envelope, LeadershipConfig, LinkEnd,
    LogIndex, Membership, NodeId, Policies, Raft, ReadBatch, ReadVerdict, RecordEncoder, Term, Trace,
    invariants,
};
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Something that happens to one member.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// A message arrives.
    Deliver(Envelope),
    /// Time passes, up to this deadline.
    Fire(Moment),
    /// The disk has completed its oldest records, this many.
    Sync(usize),
    /// The process ends; this many of the records that were not synced survive.
    Crash(usize),
    /// It starts again.
    Restart,
    /// A client's command arrives; the number is its name.
    Propose(u8),
    /// A client asks for a linearizable read; the number is its name.
    Read(u8),
    /// The driver has no more events for now.
    Drain,
    /// An operator asks for a change of members; the number counts those of the scope from 1.
    Change(u8),
    /// It is asked to transfer leadership.
    Transfer(NodeId),
    /// It takes a snapshot of what is applied.
    Snapshot,
    /// Its link to this peer is closed by the other end's kernel.
    Close(NodeId),
    /// A step of shared time, as its clock shows it.
    Pass(Rate),
}

/// One member: all of its state, and the part of its past that the judges need.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Member {
    /// Its id.
    pub id: NodeId,
    /// The process, if it runs.
    pub raft: Option<Raft>,
    /// The disk, which outlives it.
    pub disk: Disk,
    /// How often it was started: every run has a seed of its own.
    pub runs: u8,
    /// Highest index that earlier runs delivered to apply: what clients may have seen. [fault-model ST17]
    pub served: LogIndex,
    /// The proof that this run serves nothing older. [fault-model ST17]
    pub proof: Proof,
    /// Something happened since the driver called `drained`.
    pub dirty: bool,
    /// A leader's snapshot has replaced its log, in this run.
    pub installed: bool,
    /// What the lease judge recorded; empty where time is not measured.
    pub observer: Observer,
}

/// How far a member has come with the read that its node asks for in each run: the index of a read covers all that
/// earlier runs have served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Proof {
    /// There was an earlier run, and nothing is asked.
    Missing,
    /// A read was asked for, this one or a client's; this is the newest one.
    Asked(u8),
    /// A read was answered; or there is nothing to prove in a first run.
    #[default]
    Found,
}

/// The number of a member's own read: clients' reads count from 1.
const OWN_READ: u8 = 0;

/// What an event led to, beside the member itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepResult {
    /// Messages sent.
    pub sends: Vec<Envelope>,
    /// Positions newly known to be committed.
    pub commits: Vec<Position>,
    /// The term it was elected in.
    pub elected: Option<Term>,
    /// Entries reported as received.
    pub received: Vec<EntryId>,
    /// Reads answered.
    pub verdicts: Vec<ReadVerdict>,
    /// Whether the event had no effect that is worth a choice: a proposal or a read that was refused at once.
    pub refused: bool,
    /// Trace events of the core.
    pub trace: Vec<Trace>,
    /// Changes of its lease.
    pub lease: Turns,
}

/// The configuration of a member: timeouts so short that the log's clock stands still.
fn config(id: NodeId, scope: &Scope) -> Config {
    let Membership { voters, learners, .. } = scope.first_configuration(id);
    let mut leadership = LeadershipConfig::default();
    let (mut election_timeout, mut heartbeat_interval) = (Duration::from_nanos(30), Duration::from_nanos(10));
    if scope.clocks.is_some() {
        leadership.leader_lease = Some(clocks::LEASE);
        (election_timeout, heartbeat_interval) = (clocks::ELECTION_TIMEOUT, clocks::HEARTBEAT_INTERVAL);
    }
    let mut policies = Policies::default();
    if scope.window != 0 {
        policies.intake = Intake::Window(Capacity { entries: scope.window, bytes: 1 << 20 });
    }
    policies.weak = scope.weak;
    Config {
        policies,
        learners,
        election_timeout,
        heartbeat_interval,
        pre_vote: scope.guarded,
        check_quorum: scope.guarded,
        leadership,
        ..Config::new(id, voters, RecordEncoder::BARE)
    }
}

impl Member {
    /// A member with an empty disk, started.
    ///
    /// # Errors
    /// The guarantee that it violated by starting.
    pub fn new(id: NodeId, scope: &Scope) -> Result<Member, String> {
        let (served, disk, observer) = (LogIndex(0), Disk::default(), Observer::default());
        let member = Member {
            id,
            raft: None,
            disk,
            runs: 0,
            served,
            proof: Proof::Found,
            dirty: false,
            installed: false,
            observer,
        };
        member.after(&Event::Restart, scope).map(|(member, _)| member)
    }

    /// Whether its process runs.
    #[must_use]
    pub fn runs(&self) -> bool {
        self.raft.is_some()
    }

    /// This member after `event`, and the result.
    ///
    /// # Errors
    /// The guarantee that it violated, in words.
    pub fn after(&self, event: &Event, scope: &Scope) -> Result<(Member, StepResult), String> {
        let mut member = self.clone();
        let result = silently(|| member.meet(event, scope))??;
        Ok((member, result))
    }

    fn meet(&mut self, event: &Event, scope: &Scope) -> Result<StepResult, String> {
        match event {
            Event::Crash(surviving) => {
                self.crash(*surviving, scope.lie)?;
                return Ok(StepResult::default());
            }
            Event::Pass(rate) => return self.pass(*rate),
            Event::Restart => self.start(scope),
            _ => {}
        }
        let before = match event {
            Event::Restart => None,
            _ => self.raft.clone(),
        };
        let raft = self.raft.as_mut().ok_or("something happens to a member that is down")?;
        let mut effects = Effects::default();
        let mut now = CANONICAL_NOW;
        let mut refused = false;
        match event {
            Event::Deliver(envelope) => raft.step(now, envelope.clone(), &mut effects),
            Event::Fire(_) if scope.clocks.is_some() => raft.tick(now, &mut effects), // all that is due
            Event::Fire(moment) => {
                let due = raft.moments(now).into_iter().find(|(kind, _)| kind == moment);
                now = due.ok_or_else(|| format!("{moment:?} is not ahead"))?.1;
                raft.tick(now, &mut effects);
            }
            Event::Sync(records) => {
                let lsn = self.disk.sync(*records)?;
                raft.persisted(now, lsn, &mut effects);
            }
            Event::Propose(command) => {
                refused = raft.propose(now, EntryKind::Command, &[*command], &mut effects).is_err();
            }
            Event::Read(batch) => {
                raft.read(now, ReadBatch(u64::from(*batch)), &mut effects);
                refused = effects.reads.iter().any(|verdict| verdict.index.is_none());
                if self.proof != Proof::Found {
                    self.proof = Proof::Asked(*batch);
                }
            }
            Event::Change(number) => {
                let target = &scope.changes[usize::from(*number) - 1];
                let list = |ids: &[u64]| ids.iter().copied().map(NodeId).collect();
                let target = Membership::new(list(target.voters), list(target.learners));
                refused = raft.propose_change(now, &target, &[], &mut effects).is_err();
                raft.tick(now, &mut effects); // a member with its first peers sends to them at once
            }
            Event::Transfer(to) => refused = raft.transfer(now, *to, &mut effects).is_err(),
            Event::Snapshot => refused = !self.take_snapshot(now, &mut effects)?,
            Event::Close(peer) => raft.link_closed(now, *peer, LinkEnd::ByPeer, &mut effects),
            Event::Restart => raft.tick(now, &mut effects), // deliver committed entries to apply
            Event::Drain => {}
            Event::Crash(_) => return Err("a crash leaves no process to go on with".into()),
            Event::Pass(_) => return Err("time passes for everybody, and tells nobody".into()),
        }
        self.ask_for_proof(now, &mut effects);
        self.dirty = scope.late_drain && *event != Event::Drain;
        self.settle(now, &mut effects, scope)?;
        self.judge_proof(&mut effects)?;
        self.judge_transfer(event, before.as_ref(), &effects)?;
        self.judge_campaign(event, &effects, scope)?;
        let mut turns = Turns::default();
        if let (Some(_), Some(raft)) = (scope.clocks, &self.raft) {
            turns = self.observer.judge(event, before.as_ref(), raft, &effects)?;
        }
        let mut result = self.judge(before.as_ref(), effects, scope)?;
        (result.refused, result.lease) = (refused, turns);
        Ok(result)
    }

    /// Asks for a read of its own as soon as it knows a leader, as a node does.
    fn ask_for_proof(&mut self, now: kattu_raft::Instant, effects: &mut Effects) {
        let Some(raft) = self.raft.as_mut().filter(|raft| raft.leader().is_some()) else { return };
        if self.proof == Proof::Missing {
            self.proof = Proof::Asked(OWN_READ);
            raft.read(now, ReadBatch(OWN_READ.into()), effects);
        }
    }

    /// Takes the verdicts of reads for its proof; those on its own reads concern no client.
    fn judge_proof(&mut self, effects: &mut Effects) -> Result<(), String> {
        for verdict in &effects.reads {
            let Proof::Asked(newest) = self.proof else { break };
            match verdict.index {
                Some(index) if index < self.served => {
                    return Err(format!(
                        "would serve from {}, but has served {} before its restart [ST17]",
                        index.0, self.served.0
                    ));
                }
                Some(_) => self.proof = Proof::Found,
                None if ReadBatch(newest.into()) <= verdict.upto => self.proof = Proof::Missing,
                None => {}
            }
        }
        effects.reads.retain(|verdict| verdict.upto != ReadBatch(OWN_READ.into()));
        Ok(())
    }

    /// Its clock advances, and its core is not notified.
    fn pass(&mut self, rate: Rate) -> Result<StepResult, String> {
        let mut result = StepResult::default();
        let leads = self.raft.as_ref().is_some_and(Raft::is_leader);
        self.observer.passes(rate.shows(), leads);
        if let Some(raft) = &mut self.raft {
            let held = clocks::holds_lease(raft);
            let shift = raft.canonicalize_in_time(CANONICAL_NOW + rate.shows());
            self.disk.renumber(shift);
            result.lease.ended = held && !clocks::holds_lease(raft);
            invariants::check(raft).map_err(|violation| violation.to_string())?;
        }
        Ok(result)
    }

    /// Carries out the effects of an event, and theirs in turn.
    fn settle(
        &mut self,
        now: kattu_raft::Instant,
        effects: &mut Effects,
        scope: &Scope,
    ) -> Result<(), String> {
        self.carry_out(now, effects)?;
        while scope.sync == Sync::AtOnce && !self.disk.unsynced.is_empty() {
            let lsn = self.disk.sync(self.disk.unsynced.len())?;
            if let Some(raft) = &mut self.raft {
                raft.persisted(now, lsn, effects);
            }
            self.carry_out(now, effects)?;
        }
        let Some(raft) = &mut self.raft else { return Ok(()) };
        let shift = match scope.clocks {
            Some(_) => raft.canonicalize_in_time(now),
            None => raft.canonicalize(now),
        };
        self.disk.renumber(shift);
        Ok(())
    }

    fn carry_out(&mut self, now: kattu_raft::Instant, effects: &mut Effects) -> Result<(), String> {
        let Some(raft) = self.raft.as_mut() else { return Ok(()) };
        if !self.dirty {
            raft.drained(now, effects);
        }
        let mut applied = LogIndex(0);
        loop {
            for piece in std::mem::take(&mut effects.store_chunks) {
                let last = piece.meta.last;
                let is_known = self.disk.snapshots.iter().any(|snapshot| snapshot.meta.last == last);
                // One piece is the whole file; an empty one asks how much is stored.
                let is_whole = piece.offset == 0 && piece.bytes.len() as u64 == piece.total;
                let complete = is_known || is_whole;
                if complete && !is_known {
                    let places = piece.bytes.chunks_exact(PLACE_BYTES).map(Position::from_bytes).collect();
                    self.disk.keep(Snapshot { meta: piece.meta, places });
                }
                let stored = ChunkStored { last, next: if complete { piece.total } else { 0 }, complete };
                raft.chunk_stored(now, stored, effects);
            }
            for request in std::mem::take(&mut effects.read_chunks) {
                let read = self.disk.read(&request, Position::to_bytes);
                raft.chunk_read(now, request, read, effects);
            }
            if applied < raft.applied_delivered() {
                applied = raft.applied_delivered();
                raft.applied(now, applied, effects);
            } else if effects.store_chunks.is_empty() && effects.read_chunks.is_empty() {
                break;
            }
        }
        self.installed |= effects.trace.iter().any(|event| matches!(event, Trace::Installs(_)));
        if let Some(fetch) = effects.fetch.first() {
            return Err(format!("reads {fetch:?} back, though all entries are in memory"));
        }
        self.disk.write(std::mem::take(&mut effects.persist));
        Ok(())
    }

    /// Takes a snapshot of everything applied, and prunes the log; false if there is nothing to take.
    fn take_snapshot(&mut self, now: kattu_raft::Instant, effects: &mut Effects) -> Result<bool, String> {
        let Some(raft) = &mut self.raft else { return Ok(false) };
        let delivered = raft.applied_delivered();
        let places = self.disk.history(&self.disk.written()?)?;
        let Some(places) = places.get(..delivered.0 as usize) else { return Ok(false) };
        let Some(last) = places.last().map(|place| place.id) else { return Ok(false) };
        let stamp = raft.entry(last.index).map(|entry| entry.head.stamp).unwrap_or_default();
        let Some(meta) = raft.snapshot_meta(last, stamp) else { return Ok(false) };
        let newest = places.iter().rev().find_map(|place| Some((place.id.index, place.configuration?)));
        let said = (meta.membership_at, Configuration::of(&meta.membership));
        if newest.is_some_and(|newest| newest != said) {
            return Err(format!(
                "N1: takes a snapshot of {last} with the members of {}, {}",
                said.0.0, said.1
            ));
        }
        self.disk.keep(Snapshot { meta: meta.clone(), places: places.to_vec() });
        raft.snapshot_taken(now, meta, last.index.next(), effects);
        Ok(true)
    }

    /// No member obeys a leader whose term is over. [replication-protocols M9]
    fn judge_transfer(&self, event: &Event, before: Option<&Raft>, effects: &Effects) -> Result<(), String> {
        let (Event::Deliver(envelope), Some(before)) = (event, before) else { return Ok(()) };
        let late = matches!(envelope.message, Message::TimeoutNow(_)) && envelope.term < before.term();
        let campaigns = |sent: &Envelope| matches!(sent.message, Message::Vote(_) | Message::PreVote(_));
        let began = effects.trace.iter().any(|event| matches!(event, Trace::BecameCandidate(_)));
        if late && (began || effects.send.iter().any(campaigns)) {
            return Err(format!(
                "M9: campaigns at the word of the leader of term {}, in term {}",
                envelope.term.0,
                before.term().0
            ));
        }
        Ok(())
    }

    /// With pre-vote, no member campaigns without the pre-votes of a quorum, whatever made it ask. [E2, E3a]
    fn judge_campaign(&self, event: &Event, effects: &Effects, scope: &Scope) -> Result<(), String> {
        let Some(raft) = self.raft.as_ref().filter(|_| scope.guarded) else { return Ok(()) };
        let campaigns = effects.trace.iter().any(|event| matches!(event, Trace::BecameCandidate(_)));
        let may = match event {
            Event::Deliver(envelope) => {
                matches!(envelope.message, Message::PreVoteReply(_) | Message::TimeoutNow(_))
            }
            _ => false,
        };
        match campaigns && !may && !raft.membership().is_alone(self.id) {
            true => Err("E2: campaigns, and no quorum said that it would vote".into()),
            false => Ok(()),
        }
    }

    fn start(&mut self, scope: &Scope) {
        self.runs += 1;
        let seed = u64::from(self.runs);
        self.raft = Some(Raft::recover(config(self.id, scope), seed, CANONICAL_NOW, self.disk.recover()));
    }

    fn crash(&mut self, surviving: usize, lie: Option<Lie>) -> Result<(), String> {
        if let Some(raft) = self.raft.take() {
            self.served = self.served.max(raft.applied_delivered());
        }
        self.proof = Proof::Missing;
        (self.dirty, self.installed) = (false, false);
        self.observer.crashed();
        self.disk.crash(surviving)?;
        self.disk.history(&self.disk.durable)?;
        match lie {
            None => {}
            Some(Lie::LosesTheLastEntry) => {
                self.disk.durable.log.pop();
                let last = self.disk.durable.last().index;
                self.disk.durable.committed = self.disk.durable.committed.min(last);
            }
            Some(Lie::ForgetsTheVote) => self.disk.durable.hard.vote = None,
        }
        Ok(())
    }

    /// Judges this member's step by its own state alone.
    fn judge(&self, before: Option<&Raft>, effects: Effects, scope: &Scope) -> Result<StepResult, String> {
        let Some(raft) = &self.raft else { return Ok(StepResult::default()) };
        invariants::check(raft).map_err(|violation| violation.to_string())?;
        let written = self.disk.written()?;
        let same_log = (written.base, written.last()) == (raft.base(), raft.last_id())
            && written.log.iter().all(|entry| raft.entry(entry.id().index) == Some(entry));
        if !same_log {
            return Err("the log in memory is not what was written".into());
        }
        self.disk.history(&written)?;
        let committed_before = before.map_or(LogIndex(0), Raft::committed);
        if let Some(before) = before {
            Member::matches_are_kept(before, raft)?;
            let fell = raft.term() < before.term()
                || raft.committed() < before.committed()
                || raft.applied_delivered() < before.applied_delivered();
            if fell {
                return Err("term, commit or apply moved back within a run [marks are monotone]".into());
            }
        }
        effects.send.iter().try_for_each(|envelope| self.judge_message(raft, envelope, scope))?;
        let received = Member::judge_reports(raft, committed_before, &effects, scope)?;
        let commits = (committed_before.0 + 1..=raft.committed().0)
            .filter_map(|index| raft.entry(LogIndex(index)).map(Position::of))
            .collect();
        let elected = effects.trace.iter().find_map(|event| match event {
            Trace::BecameLeader(term) => Some(*term),
            _ => None,
        });
        if let Some((peer, falsehood)) = effects.distrust.first() {
            return Err(format!("nobody lies here, but member {} is said to: {falsehood}", peer.0));
        }
        let Effects { send: sends, reads: verdicts, trace, .. } = effects;
        let (refused, lease) = (false, Turns::default());
        Ok(StepResult { sends, commits, elected, received, verdicts, refused, trace, lease })
    }

    /// A leader's match of a peer does not fall within its term.
    fn matches_are_kept(before: &Raft, after: &Raft) -> Result<(), String> {
        if before.term() != after.term() || !after.is_leader() {
            return Ok(());
        }
        for peer in after.voters() {
            let (was, is) = (before.matched(*peer), after.matched(*peer));
            if was.is_some() && is < was {
                return Err(format!("the match of member {} falls from {was:?} to {is:?}", peer.0));
            }
        }
        Ok(())
    }

    /// A message states nothing that its sender's disk could lose. [replication-protocols O1]
    fn judge_message(&self, raft: &Raft, envelope: &Envelope, scope: &Scope) -> Result<(), String> {
        let durable = &self.disk.durable;
        if durable.hard.term < envelope.term {
            return Err(format!("speaks of term {} before its disk knows it", envelope.term.0));
        }
        match &envelope.message {
            Message::AppendReply(reply) if durable.last().index < reply.upto => {
                Err(format!("acknowledges {} before its disk has it [O1]", reply.upto.0))
            }
            Message::AppendReply(reply) => self.judge_names(raft, reply, scope),
            Message::VoteReply(reply) if reply.granted && durable.hard.vote != Some(envelope.to) => {
                Err(format!("gives member {} a vote it could forget", envelope.to.0))
            }
            Message::Vote(_) if durable.hard.vote != Some(self.id) => {
                Err("campaigns before its own vote is on disk".into())
            }
            Message::Append(_)
            | Message::StaleTerm(_)
            | Message::PreVote(_)
            | Message::PreVoteReply(_)
            | Message::Vote(_)
            | Message::VoteReply(_)
            | Message::ReadIndex(_)
            | Message::ReadIndexReply(_)
            | Message::SnapshotChunk(_)
            | Message::SnapshotReply(_)
            | Message::TimeoutNow(_)
            | Message::Lost(_)
            | Message::Remind(_)
            | Message::Reminder(_) => Ok(()),
        }
    }
}

impl Member {
    /// The entries that a leader reports as received: of its log, and not known to be committed before.
    /// [replication-protocols W5, W7] A quorum's part is judged in [`crate::receipts`].
    fn judge_reports(
        raft: &Raft,
        committed: LogIndex,
        effects: &Effects,
        scope: &Scope,
    ) -> Result<Vec<EntryId>, String> {
        if scope.weak == Weak::Off && !effects.received.is_empty() {
            return Err(format!("WK1: reports {:?} as received, where reports are off", effects.received));
        }
        let indexes = effects.received.iter().flat_map(|run| run.first.0..=run.last.0).map(LogIndex);
        let report = |index: LogIndex| match raft.entry(index) {
            Some(_) if index <= committed => {
                Err(format!("WK4: reports {} as received, which it knows to be committed", index.0))
            }
            Some(entry) => Ok(entry.id()),
            None => Err(format!("WK2: reports {} as received, which is not in its log", index.0)),
        };
        indexes.map(report).collect()
    }

    /// An answer names only what its sender holds: durably or in its window; in any way where receipt is reported.
    /// [fault-model WK2]
    fn judge_names(&self, raft: &Raft, reply: &AppendReply, scope: &Scope) -> Result<(), String> {
        let last = match scope.weak {
            Weak::Off | Weak::Gap => self.disk.durable.last().index,
            Weak::Receipt => raft.last_id().index,
        };
        let kept = reply.early.iter().flat_map(|run| run.first.0..=run.last.0).map(LogIndex);
        let lacks = Some(reply.received).filter(|named| last < *named);
        match lacks.or_else(|| kept.into_iter().find(|index| raft.received_at(*index).is_none())) {
            Some(index) => Err(format!("WK2: names entry {}, which it does not hold", index.0)),
            None => Ok(()),
        }
    }
}

thread_local! {
    static LISTENING: Cell<bool> = const { Cell::new(false) };
    static HEARD: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Runs work that may panic; a panic becomes text and is not printed.
fn silently<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: std::sync::Once = std::sync::Once::new();
    HOOK.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if LISTENING.get() {
                let payload = panic.payload();
                let text = payload.downcast_ref::<String>().cloned();
                let text = text.or_else(|| payload.downcast_ref::<&str>().map(|text| (*text).to_string()));
                HEARD.set(text.unwrap_or_else(|| "a panic without words".into()));
            } else {
                usual(panic);
            }
        }));
    });
    LISTENING.set(true);
    let result = catch_unwind(AssertUnwindSafe(work));
    LISTENING.set(false);
    result.map_err(|_| format!("the core stopped itself: {}", HEARD.take()))
}

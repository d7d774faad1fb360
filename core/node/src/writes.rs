//! Writes: from a client's command to its place in the log, and to its answer.
//!
//! ```text
//!                    leader here: propose ───────────────────────────▶ placed ──applied, same term──▶ Done
//!  client ─▶ unplaced                                                    ▲  └──another term there───▶ Unknown
//!                    leader there: Forward ─▶ forwarded ──ForwardReply───┘
//!     ▲                                          ├──term, leader or link moved──▶ Unknown
//!     └───────────────── could not leave ────────┘
//!
//!  Forward ─▶ leader: propose, or unplaced until there is room ─▶ ForwardReply, one verdict for each
//! ```
//! Small puts of a member's own clients that wait together share an entry (`bundle.rs`).
//!
//! A request that waits for a leader has certainly had no effect. A forwarded one may have an effect from the moment it
//! could have been sent, and is never sent twice [replication-protocols B13]. One that is in the log keeps waiting
//! through leader changes: applying that very entry answers it, whichever member leads by then.
//! Changes of members are forwarded and wait as writes do, except for how they are checked (`members.rs`), and for a
//! change in two steps: a client that waits for the first is answered by the second.
//! Knows nothing of: reads, the effects of commands (except whether one grows the store).

use crate::bundle::{Parts, Payloads, is_bundle, may_share};
use crate::command::{is_change, is_command};
use crate::command_bytes::CommandBytes;
use crate::contract::{
    Admitted, Doubt, Effects, Forward, ForwardReply, Outcome, PeerMessage, Refusal, Reply, ReplyBody, Ticket,
    Tickets,
};
use crate::level::{BUNDLES, SESSIONS};
use crate::members::ChangeRequest;
use crate::node::{Node, OWN, PUBLISH, answer};
use crate::session::is_of_session;
use crate::weak::{WeakAnswers, Weakly};
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use kattu_raft::ProposeError;
use kattu_raft::distrust::COUNT_MAX;
use kattu_raft::message::Run;
use kattu_raft::{
    Duration, Entry, EntryId, EntryKind, Falsehood, Incarnation, Instant, LogIndex, Membership, NodeId,
    SharedBytes,
};

/// Writes that a leader puts into its log at once.
const RUN_MAX: usize = 1024;

/// Runs of one follower from which a leader accepts writes in one term.
const RUNS_MAX: usize = 16_384;

/// The progress of this replica's own publication. [contract `MemberInfo`]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Publication {
    Due,
    Underway,
    Done,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Unplaced {
    whose: Whose,
    command: CommandBytes,
    /// When it arrived here.
    since: Instant,
    expires: Instant,
}

impl Unplaced {
    /// Whether a follower has forwarded it.
    fn is_of_others(&self) -> bool {
        matches!(self.whose, Whose::Forwarded { .. })
    }
}

/// The recipient of the verdict on a waiting write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Whose {
    /// A client of this replica, or the replica itself.
    Ours(Ticket),
    /// A follower in this term, which has forwarded it in this run under this sequence number. It was accepted: its
    /// verdict is sent once, and it enters the log in no other term. [B13]
    Forwarded { from: NodeId, run: Incarnation, seq: u64 },
}

/// Whether an honest member can reach so many sequence numbers from this one on.
fn can_be_counted(first: u64, count: usize) -> bool {
    first.checked_add(count as u64).is_some_and(|past_last| past_last < COUNT_MAX)
}

/// Verdicts on forwarded writes; consecutive ones share a reply.
#[derive(Default)]
struct Verdicts(Vec<ForwardReply>);

impl Verdicts {
    /// Adds a verdict to the last reply if it is for the next sequence number there, otherwise to `fresh`.
    fn add(&mut self, seq: u64, verdict: Result<EntryId, Refusal>, fresh: ForwardReply) {
        let continues = |last: &&mut ForwardReply| {
            let next = last.first_seq + last.verdicts.len() as u64;
            (last.to, last.incarnation, next) == (fresh.to, fresh.incarnation, seq)
        };
        match self.0.last_mut().filter(continues) {
            Some(last) => last.verdicts.push(verdict),
            None => self.0.push(ForwardReply { first_seq: seq, verdicts: alloc::vec![verdict], ..fresh }),
        }
    }

    fn send(self, effects: &mut Effects) {
        effects.send.extend(self.0.into_iter().map(PeerMessage::ForwardReply));
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Forwarded {
    seq: u64,
    /// Its place in the command that was sent, if that is a bundle; otherwise 0.
    place: u32,
    ticket: Ticket,
    /// Shared with the message; for a retry if a leader that is transferring leadership refuses it.
    command: SharedBytes,
    expires: Instant,
    /// For a change of members: how long it waits for the change before it.
    patient_until: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Placed {
    pub(crate) id: EntryId,
    /// Its place in the entry, if that is a bundle; otherwise 0.
    place: u32,
    pub(crate) ticket: Ticket,
    expires: Instant,
    /// Whether its client may be told before.
    pub(crate) weakly: Weakly,
}

/// All waiting writes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Writes {
    /// Waiting for a leader, or at the leader for space in its log; certainly without effect.
    unplaced: VecDeque<Unplaced>,
    unplaced_bytes: usize,
    /// As many of them, at the end, have come since the last batch was complete; or more, if some of those are gone.
    fresh: usize,
    /// Expiries of those among them that followers have forwarded: an election timeout earlier than for a client's
    /// write of the same time. In queue order; empty except at a leader.
    others_expire: VecDeque<Instant>,
    /// The oldest of them waits for others until then. Never while none does. [tuning, rule 3]
    lingers_until: Instant,
    /// No write is forwarded before this: the last forward could not be sent. Zero if it could.
    forward_after: Instant,
    /// Sent to the leader of this term, by ascending sequence number and place; their verdicts are not known yet.
    forwarded: VecDeque<Forwarded>,
    forwarded_bytes: usize,
    /// In the log, by strictly ascending index, and place in an entry.
    placed: VecDeque<Placed>,
    /// Waits for the end of a change of members whose first step is this entry.
    completing: Option<Placed>,
    seq: u64,
    /// Leader: highest sequence number accepted in this term from each run of each follower. [B13]
    taken: BTreeMap<(NodeId, Incarnation), u64>,
    /// Bytes of existing values that pending writes of this replica's clients will write again; only writes that have
    /// some.
    keeping: BTreeMap<Ticket, u64>,
    /// Writes whose clients do not want the result.
    commit_only: BTreeSet<Ticket>,
    pub(crate) weak: WeakAnswers,
    publication: Publication,
    publish: Vec<u8>,
}

impl Writes {
    pub(crate) fn new(publish: Vec<u8>) -> Writes {
        Writes {
            unplaced: VecDeque::new(),
            unplaced_bytes: 0,
            fresh: 0,
            others_expire: VecDeque::new(),
            lingers_until: Instant::NEVER,
            forward_after: Instant(0),
            forwarded: VecDeque::new(),
            forwarded_bytes: 0,
            placed: VecDeque::new(),
            completing: None,
            seq: 0,
            taken: BTreeMap::new(),
            keeping: BTreeMap::new(),
            commit_only: BTreeSet::new(),
            weak: WeakAnswers::default(),
            publication: Publication::Due,
            publish,
        }
    }

    /// Whether this run is recorded, or there is room for it: each stays recorded for the rest of the term.
    fn may_take_from(&self, run: (NodeId, Incarnation)) -> bool {
        let of_member = (run.0, Incarnation(0))..=(run.0, Incarnation(u64::MAX));
        self.taken.contains_key(&run) || self.taken.range(of_member).count() < RUNS_MAX
    }

    pub(crate) fn pending_bytes(&self) -> usize {
        self.unplaced_bytes + self.forwarded_bytes
    }

    pub(crate) fn pending(&self) -> usize {
        self.unplaced.len()
            + self.forwarded.len()
            + self.placed.len()
            + usize::from(self.completing.is_some())
    }

    /// The entry of a write, looked for among those placed since an older one.
    pub(crate) fn entry_of(&self, ticket: Ticket) -> Option<EntryId> {
        let latest = self.placed.iter().rev().take_while(|placed| ticket <= placed.ticket);
        latest.filter(|placed| placed.ticket == ticket).map(|placed| placed.id).next()
    }

    pub(crate) fn deadline(&self) -> Instant {
        let fronts = [
            self.unplaced.front().map(|w| w.expires),
            self.others_expire.front().copied(),
            self.forwarded.front().map(|w| w.expires),
            self.placed.front().map(|w| w.expires),
            self.completing.map(|w| w.expires),
            Some(self.forward_after).filter(|&at| at != Instant(0)),
            Some(self.lingers_until),
        ];
        fronts.into_iter().flatten().min().unwrap_or(Instant::NEVER)
    }

    /// The write that waits for the entry about to be applied. A write that waits for another entry at its index, or
    /// before it, will never be applied here in order: its outcome is unknown.
    fn take_waiting(&mut self, id: EntryId, effects: &mut Effects) -> Option<Placed> {
        while let Some(&front) = self.placed.front() {
            if front.id.index > id.index {
                break;
            }
            self.placed.pop_front();
            if front.id == id {
                self.weak.settled(front.weakly);
                if front.ticket == PUBLISH {
                    self.publication = Publication::Done;
                    return None;
                }
                self.keeping.remove(&front.ticket);
                return Some(front);
            }
            match front.weakly {
                // What is committed at its index is another leader's: its own entry never will be.
                Weakly::Answered(_) if front.id.index == id.index => self.overwritten(front, effects),
                _ => self.doubt_placed(front, Doubt::LeaderChanged, effects),
            }
        }
        None
    }

    /// The writes that wait for these entries.
    pub(crate) fn placed_in(&mut self, run: Run) -> impl Iterator<Item = &mut Placed> {
        let first = self.placed.partition_point(|placed| placed.id.index < run.first);
        self.placed.range_mut(first..).take_while(move |placed| placed.id.index <= run.last)
    }

    /// A write that was answered weakly is lost.
    fn overwritten(&mut self, placed: Placed, effects: &mut Effects) {
        self.weak.settled(placed.weakly);
        self.weak.lost();
        self.refuse(placed.ticket, Refusal::Overwritten, effects);
    }

    fn doubt_placed(&mut self, placed: Placed, doubt: Doubt, effects: &mut Effects) {
        self.weak.settled(placed.weakly);
        self.doubt(placed.ticket, doubt, effects);
    }

    /// The client of this write does not want its result.
    pub(crate) fn wants_no_result(&mut self, ticket: Ticket) {
        self.commit_only.insert(ticket);
    }

    /// The tickets to answer when this entry is applied. One that waits for no result is answered now.
    pub(crate) fn answered_by(&mut self, entry: &Entry, effects: &mut Effects) -> Tickets {
        let id = entry.id();
        let waiting = self.take_waiting(id, effects);
        match entry.head.kind {
            EntryKind::Command if entry.payload().is_some_and(is_bundle) => {
                let mut each = Vec::new();
                let mut next = waiting;
                while let Some(write) = next {
                    if self.waits_for_result(id, write.ticket, effects) {
                        each.push((write.place, write.ticket));
                    }
                    next = self.take_waiting(id, effects);
                }
                Tickets::Each(each)
            }
            EntryKind::Command => {
                let ticket = waiting.map(|write| write.ticket).filter(|&ticket| ticket != OWN);
                ticket.filter(|&ticket| self.waits_for_result(id, ticket, effects)).into()
            }
            EntryKind::Noop => Tickets::None,
            EntryKind::Config => {
                let membership = entry.payload().and_then(|payload| Membership::decode(payload).ok());
                let is_first_step = membership.is_some_and(|(membership, _)| membership.is_joint());
                if is_first_step {
                    self.completing = waiting;
                    return Tickets::None;
                }
                let change = waiting.or(self.completing.take()).map(|write| write.ticket);
                change.filter(|&ticket| ticket != OWN).into()
            }
        }
    }

    /// Whether the client waits until its command is applied. If not, it is answered now: the entry is committed.
    fn waits_for_result(&mut self, id: EntryId, ticket: Ticket, effects: &mut Effects) -> bool {
        if !self.commit_only.remove(&ticket) {
            return true;
        }
        let reply = Reply { term: id.term, strong: 0, body: ReplyBody::Committed };
        answer(effects, ticket, Outcome::Done(reply));
        false
    }

    /// A snapshot replaces all entries up to `last`: they will never be applied here one by one.
    pub(crate) fn overtaken(&mut self, last: LogIndex, effects: &mut Effects) {
        if let Some(change) = self.completing.take() {
            self.doubt(change.ticket, Doubt::LeaderChanged, effects);
        }
        while let Some(write) = self.placed.pop_front_if(|write| write.id.index <= last) {
            self.doubt_placed(write, Doubt::LeaderChanged, effects);
        }
    }

    /// Records the place of a write. A write placed earlier at this index or a later one was overwritten, unless it
    /// stands before this one in the same entry.
    fn place(&mut self, placed: Placed, effects: &mut Effects) {
        while let Some(&back) = self.placed.back()
            && back.id.index >= placed.id.index
            && !(back.id == placed.id && back.place < placed.place)
        {
            self.placed.pop_back();
            self.doubt_placed(back, Doubt::LeaderChanged, effects);
        }
        self.placed.push_back(placed);
    }

    /// A change of members is in the log.
    pub(crate) fn await_change(&mut self, id: EntryId, change_request: ChangeRequest, effects: &mut Effects) {
        let ChangeRequest { ticket, expires, .. } = change_request;
        self.place(Placed { id, place: 0, ticket, expires, weakly: Weakly::No }, effects);
    }

    fn doubt(&mut self, ticket: Ticket, doubt: Doubt, effects: &mut Effects) {
        self.keeping.remove(&ticket);
        self.commit_only.remove(&ticket);
        self.weak.wanted.remove(&ticket);
        if ticket == PUBLISH {
            self.publication = Publication::Due;
        } else {
            answer(effects, ticket, Outcome::Unknown(doubt));
        }
    }

    fn refuse(&mut self, ticket: Ticket, refusal: Refusal, effects: &mut Effects) {
        self.keeping.remove(&ticket);
        self.commit_only.remove(&ticket);
        self.weak.wanted.remove(&ticket);
        if ticket == PUBLISH {
            self.publication = Publication::Due;
        } else {
            answer(effects, ticket, Outcome::Refused(refusal));
        }
    }

    /// Removes from the queue the writes that followers have forwarded and that expire by `until`.
    fn take_others(&mut self, until: Instant) -> VecDeque<Unplaced> {
        if self.others_expire.front().is_none_or(|&expires| until < expires) {
            return VecDeque::new();
        }
        let goes = |write: &Unplaced| write.is_of_others() && write.expires <= until;
        let (taken, rest): (VecDeque<Unplaced>, _) =
            core::mem::take(&mut self.unplaced).into_iter().partition(goes);
        self.unplaced = rest;
        self.unplaced_bytes -= taken.iter().map(|write| write.command.len()).sum::<usize>();
        self.others_expire.retain(|&expires| until < expires);
        taken
    }

    /// Adds a write at the end of the queue.
    fn queue(&mut self, write: Unplaced) {
        self.fresh += 1;
        self.unplaced_bytes += write.command.len();
        if write.is_of_others() {
            self.others_expire.push_back(write.expires);
        }
        self.unplaced.push_back(write);
    }

    /// Puts a write that was taken off the queue back at its head.
    fn queue_first(&mut self, write: Unplaced) {
        self.unplaced_bytes += write.command.len();
        if write.is_of_others() {
            self.others_expire.push_front(write.expires);
        }
        self.unplaced.push_front(write);
    }

    /// The batch is complete: what has come with it and waits on has bytes of its own.
    fn settle(&mut self) {
        let fresh = core::mem::take(&mut self.fresh);
        self.unplaced.iter_mut().rev().take(fresh).for_each(|write| write.command.leave_others());
    }

    fn pop_unplaced(&mut self) -> Option<Unplaced> {
        let write = self.unplaced.pop_front()?;
        self.unplaced_bytes -= write.command.len();
        if write.is_of_others() {
            self.others_expire.pop_front();
        }
        Some(write)
    }

    /// Takes the oldest waiting writes to those on their way to the leader, under the newest sequence number: one, or all that
    /// are in this bundle. Returns the command to send.
    fn forward(&mut self, count: usize, bundle: Option<SharedBytes>) -> SharedBytes {
        let mut parts = bundle.as_ref().and_then(|bundle| Some((bundle, Parts::of(bundle)?)));
        let mut sent = bundle.clone();
        for place in 0..count as u32 {
            let write = self.pop_unplaced().expect("the caller has counted them");
            let Whose::Ours(ticket) = write.whose else {
                unreachable!("only a leader keeps writes of others")
            };
            let command = match parts.as_mut() {
                Some((bundle, parts)) => {
                    parts.next();
                    let end = bundle.len() - parts.left();
                    bundle.slice(end - write.command.len()..end)
                }
                None => write.command.into_shared(),
            };
            sent.get_or_insert_with(|| command.clone());
            self.forwarded_bytes += command.len();
            let (seq, expires) = (self.seq, write.expires);
            self.forwarded.push_back(Forwarded { seq, place, ticket, command, expires, patient_until: None });
        }
        sent.expect("a command at least")
    }

    /// Removes the first of the writes that were forwarded under this sequence number; `None` if all of them are answered.
    fn take_forwarded_as(&mut self, seq: u64) -> Option<Forwarded> {
        let at = self.forwarded.partition_point(|write| write.seq < seq);
        self.forwarded
            .get(at)
            .is_some_and(|write| write.seq == seq)
            .then(|| self.take_forwarded(at))
            .flatten()
    }

    /// Removes the forwarded write at this position.
    fn take_forwarded(&mut self, at: usize) -> Option<Forwarded> {
        let write = self.forwarded.remove(at)?;
        self.forwarded_bytes -= write.command.len();
        Some(write)
    }

    /// The process stops: answers all waiting clients.
    pub(crate) fn stop(&mut self, effects: &mut Effects) {
        while let Some(write) = self.pop_unplaced() {
            if let Whose::Ours(ticket) = write.whose {
                self.refuse(ticket, Refusal::Stopping, effects);
            }
        }
        while let Some(write) = self.take_forwarded(0) {
            self.doubt(write.ticket, Doubt::Stopping, effects);
        }
        while let Some(write) = self.placed.pop_front().or_else(|| self.completing.take()) {
            self.doubt_placed(write, Doubt::Stopping, effects);
        }
        self.publication = Publication::Done; // too late for it
    }
}

impl Node {
    /// A client's write: held until the batch is complete.
    ///
    /// Only the first byte, which says whose command it is, is checked: the API layer of this process has just encoded
    /// the rest. A command from a peer is decoded in full. [fault-model F71]
    ///
    /// # Panics
    /// If a client may not put this command into the log: every keeper would stop at it, now and after each start.
    pub(crate) fn on_write(
        &mut self,
        now: Instant,
        ticket: Ticket,
        command: CommandBytes,
        effects: &mut Effects,
    ) {
        assert!(
            crate::command::is_of_client(&command),
            "a client's write is for the store, of a session or an alarm, this begins with {:?}",
            command.first()
        );
        debug_assert!(is_command(&command), "a face made what is no command");
        let expires = now + self.request_timeout();
        let too_many = self.pending() >= self.config.pending_max
            || self.writes.unplaced_bytes + self.writes.forwarded_bytes + command.len()
                > self.config.pending_bytes_max
            || self.raft.apply_is_behind();
        if too_many {
            return self.writes.refuse(ticket, Refusal::TooManyRequests, effects);
        }
        self.writes.queue(Unplaced { whose: Whose::Ours(ticket), command, since: now, expires });
    }

    /// A client's write whose cost was checked. The values that it keeps are written again when it is applied. Their
    /// bytes count as those of waiting writes do, until it is applied or its client has got another answer.
    pub(crate) fn on_admitted(&mut self, now: Instant, admitted: Admitted, effects: &mut Effects) {
        let Admitted { ticket, command, kept_bytes } = admitted;
        if kept_bytes > 0 {
            let under_way: u64 = self.writes.keeping.values().sum();
            let is_too_much = under_way > 0 && under_way + kept_bytes > self.config.pending_bytes_max as u64;
            if is_too_much {
                return self.writes.refuse(ticket, Refusal::TooManyRequests, effects);
            }
            self.writes.keeping.insert(ticket, kept_bytes);
        }
        self.on_write(now, ticket, command.into(), effects);
    }

    /// A write of this replica's own: no client waits for it, and its sender repeats it.
    pub(crate) fn write_own(&mut self, now: Instant, command: Vec<u8>) {
        let (command, expires) = (command.into(), now + self.request_timeout());
        self.writes.queue(Unplaced { whose: Whose::Ours(OWN), command, since: now, expires });
    }

    /// Leader: puts the oldest waiting write into the log, or refuses it. `false` if it keeps waiting: log space is
    /// being prepared, this leader is transferring leadership to a member that will soon accept it, earlier leaders
    /// have left too much to be committed first, or clients are slowed.
    fn propose_next(
        &mut self,
        now: Instant,
        out: &mut kattu_raft::Effects,
        verdicts: &mut Verdicts,
        effects: &mut Effects,
    ) -> bool {
        let waits_since = self.writes.unplaced.front().map_or(now, |write| write.since);
        if self.raft.transferring().is_some() || !self.raft.admits(now, waits_since) {
            return false;
        }
        let write = self.writes.pop_unplaced().expect("the caller has looked");
        match self.propose_command(now, &write.command, out) {
            Err(Refusal::NoSpace) if !self.is_short() => {
                self.writes.queue_first(write);
                return false;
            }
            Err(Refusal::TooManyRequests) if self.raft.inherits() => {
                self.writes.queue_first(write);
                return false;
            }
            verdict => self.settle_unplaced(write, verdict, 0, verdicts, effects),
        }
        true
    }

    /// Leader: puts the oldest waiting writes into the log, up to the first that may have to wait or be refused. Small puts of
    /// its clients share entries.
    fn propose_run(
        &mut self,
        now: Instant,
        out: &mut kattu_raft::Effects,
        verdicts: &mut Verdicts,
        effects: &mut Effects,
    ) {
        let (is_short, level) = (self.is_short(), self.compare.level());
        let (has_sessions, has_bundles) = (SESSIONS <= level, BUNDLES <= level && self.batches());
        let mut payloads = Payloads::with_capacity(self.writes.unplaced.len().min(RUN_MAX));
        let may_run = |command: &[u8]| !is_short && (has_sessions || !is_of_session(command));
        for write in self.writes.unplaced.iter().take(RUN_MAX).take_while(|write| may_run(&write.command)) {
            // A follower is told the entry of each write that it forwarded, not a place in it.
            let shares = has_bundles && !write.is_of_others() && may_share(&write.command);
            payloads.push(&write.command, shares);
        }
        let last = self.raft.last_id().index;
        let (accepted, _) = self.raft.propose_run(now, &payloads.bytes(), out);
        let counts = payloads.counts();
        let term = self.raft.term();
        for (number, count) in (1..).zip(&counts[..accepted]) {
            let id = EntryId { term, index: LogIndex(last.0 + number) };
            for place in 0..*count as u32 {
                let write = self.writes.pop_unplaced().expect("it was proposed");
                self.settle_unplaced(write, Ok(id), place, verdicts, effects);
            }
        }
    }

    /// Ends the wait of a write: it is in the log now, or never will be. Its place is that in the entry, if it shares one.
    fn settle_unplaced(
        &mut self,
        write: Unplaced,
        verdict: Result<EntryId, Refusal>,
        place: u32,
        verdicts: &mut Verdicts,
        effects: &mut Effects,
    ) {
        match (write.whose, verdict) {
            (Whose::Ours(ticket), Ok(id)) => {
                let wants = self.writes.weak.wanted.remove(&ticket);
                let weakly = self.follow_sessions(&write.command, id.index, wants);
                self.writes.place(Placed { id, place, ticket, expires: write.expires, weakly }, effects);
            }
            (Whose::Ours(ticket), Err(refusal)) => self.writes.refuse(ticket, refusal, effects),
            (Whose::Forwarded { from, run, seq }, verdict) => {
                if let Ok(id) = verdict {
                    self.follow_sessions(&write.command, id.index, false);
                }
                self.judge_forwarded(from, run, seq, verdict, verdicts);
            }
        }
    }

    /// Gives a follower the verdict on one of its writes; if that is in the log, the commit is reported, too.
    fn judge_forwarded(
        &mut self,
        to: NodeId,
        run: Incarnation,
        seq: u64,
        verdict: Result<EntryId, Refusal>,
        verdicts: &mut Verdicts,
    ) {
        if verdict.is_ok() {
            self.raft.notify_commit(to);
        }
        let (from, term) = (self.raft.id(), self.raft.term());
        let fresh = ForwardReply { from, to, incarnation: run, term, first_seq: 0, verdicts: Vec::new() };
        verdicts.add(seq, verdict, fresh);
    }

    /// Puts a command into the log of this leader, or returns why not; a refused one leaves no trace.
    fn propose_command(
        &mut self,
        now: Instant,
        command: &[u8],
        out: &mut kattu_raft::Effects,
    ) -> Result<EntryId, Refusal> {
        if self.is_short() && crate::command::grows(command) {
            return Err(Refusal::NoSpace);
        }
        let level = self.compare.level();
        if is_of_session(command) && level < SESSIONS {
            return Err(Refusal::LevelTooLow);
        }
        if is_bundle(command) && level < BUNDLES {
            return Err(Refusal::LeaderChanged); // its follower is ahead of this leader, which will be there soon
        }
        self.raft.propose(now, EntryKind::Command, command, out).map_err(|error| match error {
            ProposeError::NotLeader => Refusal::NoLeader,
            ProposeError::TooMuch => Refusal::TooManyRequests,
            ProposeError::NoSpace => Refusal::NoSpace,
            ProposeError::Transferring => Refusal::LeaderChanged,
        })
    }

    /// The batch is complete: waiting writes go into this replica's log, or to the leader, or keep waiting.
    pub(crate) fn place_writes(
        &mut self,
        now: Instant,
        out: &mut kattu_raft::Effects,
        effects: &mut Effects,
    ) {
        self.writes.lingers_until = Instant::NEVER;
        let Some(oldest) = self.writes.unplaced.front().map(|write| write.since) else {
            self.writes.fresh = 0;
            return;
        };
        if let Some(until) = self.lingers(now, oldest, self.writes.unplaced.len()) {
            self.writes.lingers_until = until;
        } else if self.raft.is_leader() {
            let mut verdicts = Verdicts::default();
            while !self.writes.unplaced.is_empty() && !self.is_gated() {
                if !self.raft.slows_clients() && !self.config.apply_gate {
                    self.propose_run(now, out, &mut verdicts, effects);
                }
                // What stopped the run, if anything did, is judged alone.
                if !self.writes.unplaced.is_empty() && !self.propose_next(now, out, &mut verdicts, effects) {
                    break;
                }
            }
            verdicts.send(effects);
        } else if let Some(leader) = self.raft.leader()
            && self.writes.forward_after <= now
            && !self.raft.suspects_leader()
        {
            self.forward_writes(leader, effects);
        }
        self.writes.settle();
    }

    /// Refuses forwarded writes that wait here: they will not enter this log, and their followers keep them for the
    /// next leader.
    pub(crate) fn return_forwarded(&mut self, effects: &mut Effects) {
        let mut verdicts = Verdicts::default();
        for write in self.writes.take_others(Instant::NEVER) {
            self.settle_unplaced(write, Err(Refusal::LeaderChanged), 0, &mut verdicts, effects);
        }
        verdicts.send(effects);
    }

    /// Follower: sends the leader all waiting writes, in batches. Small puts share a command, and so an entry.
    fn forward_writes(&mut self, leader: NodeId, effects: &mut Effects) {
        let batch_bytes_max = self.config.raft.limits.batch_bytes_max;
        let has_bundles = BUNDLES <= self.compare.level() && self.batches();
        let run_max = if self.batches() { RUN_MAX } else { 1 };
        // Only a leader keeps writes of others; what it kept is void.
        self.writes.take_others(Instant::NEVER);
        while !self.writes.unplaced.is_empty() {
            let first_seq = self.writes.seq + 1;
            let mut payloads = Payloads::with_capacity(self.writes.unplaced.len().min(run_max));
            let mut bytes = 0;
            for write in self.writes.unplaced.iter().take(run_max) {
                if bytes != 0 && bytes + write.command.len() > batch_bytes_max {
                    break;
                }
                bytes += write.command.len();
                payloads.push(&write.command, has_bundles && may_share(&write.command));
            }
            let (counts, bundles) = (payloads.counts(), payloads.bundles());
            let mut commands = Vec::with_capacity(counts.len());
            for (count, bundle) in counts.into_iter().zip(bundles) {
                self.writes.seq += 1;
                commands.push(self.writes.forward(count, bundle));
            }
            effects.send.push(PeerMessage::Forward(self.forward_to(leader, first_seq, commands)));
        }
    }

    fn forward_to(&self, leader: NodeId, first_seq: u64, commands: Vec<SharedBytes>) -> Forward {
        let (from, term) = (self.raft.id(), self.raft.term());
        Forward { from, to: leader, incarnation: self.run, term, first_seq, commands }
    }

    /// A change of members goes to the leader in a batch of its own.
    pub(crate) fn forward_change(&mut self, leader: NodeId, change_request: ChangeRequest) -> Forward {
        let ChangeRequest { ticket, command, patient_until, expires } = change_request;
        self.writes.seq += 1;
        let (seq, command) = (self.writes.seq, SharedBytes::from(command));
        let commands = alloc::vec![command.clone()];
        self.writes.forwarded_bytes += command.len();
        let patient_until = Some(patient_until);
        self.writes.forwarded.push_back(Forwarded { seq, place: 0, ticket, command, expires, patient_until });
        self.forward_to(leader, seq, commands)
    }

    /// Writes that could not be sent have certainly had no effect: they wait again, at the head of the queue, for a
    /// link or for another leader.
    pub(crate) fn on_unsent(&mut self, now: Instant, forward: Forward) {
        let seqs = forward.first_seq..forward.first_seq + forward.commands.len() as u64;
        for seq in seqs.rev() {
            let writes: Vec<_> = core::iter::from_fn(|| self.writes.take_forwarded_as(seq)).collect();
            writes.into_iter().rev().for_each(|write| self.take_back(now, write));
        }
    }

    /// A write that was forwarded and has certainly had no effect waits again, at the head of the queue.
    fn take_back(&mut self, now: Instant, write: Forwarded) {
        let Forwarded { ticket, command, expires, patient_until, .. } = write;
        let command = command.to_vec();
        if let Some(patient_until) = patient_until {
            return self.wait_again(now, ChangeRequest { ticket, command, patient_until, expires });
        }
        let command = command.into();
        self.writes.queue_first(Unplaced { whose: Whose::Ours(ticket), command, since: now, expires });
        self.writes.forward_after = now + self.raft.timing().heartbeat_interval;
    }

    /// Leader: accepts each forwarded write at most once, and only in the term it was meant for. [B13]
    ///
    /// A repeated or late copy is neither proposed nor answered: an earlier copy may be in the log, so "refused" would
    /// be false.
    pub(crate) fn on_forward(
        &mut self,
        now: Instant,
        forward: Forward,
        out: &mut kattu_raft::Effects,
        effects: &mut Effects,
    ) {
        let meant_for_us = forward.to == self.raft.id();
        let same_term = forward.term == self.raft.term();
        let leads_that_term = self.raft.is_leader() && same_term;
        let known = self.raft.membership().contains(forward.from);
        if !meant_for_us || !leads_that_term || !known {
            return;
        }
        // A member that sends an invalid command is broken; no part of the batch may reach the log. [fault-model F71]
        if forward.first_seq == 0 || !can_be_counted(forward.first_seq, forward.commands.len()) {
            return self.distrust(forward.from, Falsehood::Count, effects);
        }
        if !forward.commands.iter().all(|bytes| is_command(bytes)) {
            return;
        }
        let run = (forward.from, forward.incarnation);
        if !self.writes.may_take_from(run) {
            return;
        }
        let highest = self.writes.taken.get(&run).copied().unwrap_or(0);
        let fresh_from = highest.max(forward.first_seq - 1) + 1;
        let skip = usize::try_from(fresh_from - forward.first_seq).unwrap_or(usize::MAX);
        let last_seq = forward.first_seq - 1 + forward.commands.len() as u64;
        if last_seq < fresh_from {
            return;
        }
        self.writes.taken.insert(run, last_seq);
        let mut verdicts = Verdicts::default();
        for (seq, command) in (fresh_from..).zip(forward.commands.iter().skip(skip)) {
            let verdict = if self.raft.apply_is_behind() {
                Some(Err(Refusal::TooManyRequests))
            } else if is_change(command) {
                Some(self.begin_change(now, command, out))
            } else {
                let (from, run) = run;
                self.propose_forwarded(now, command, Whose::Forwarded { from, run, seq }, out)
            };
            if let Some(Ok(id)) = verdict {
                self.follow_sessions(command, id.index, false);
            }
            if let Some(verdict) = verdict {
                self.judge_forwarded(forward.from, forward.incarnation, seq, verdict, &mut verdicts);
            }
        }
        verdicts.send(effects);
    }

    /// Leader: the verdict on a forwarded write; `None` if it waits, like a write of this replica's clients, in the
    /// queue until its log space is prepared or clients are no longer slowed. It expires an election timeout before its
    /// follower gives it up, so that the client learns that it had no effect.
    fn propose_forwarded(
        &mut self,
        now: Instant,
        command: &SharedBytes,
        whose: Whose,
        out: &mut kattu_raft::Effects,
    ) -> Option<Result<EntryId, Refusal>> {
        let holds_back = self.is_gated() || self.lingers(now, now, 1).is_some();
        let waits = !self.writes.unplaced.is_empty() || !self.raft.admits(now, now) || holds_back;
        if !waits || self.raft.transferring().is_some() {
            match self.propose_command(now, command, out) {
                Err(Refusal::NoSpace) if !self.is_short() => {}
                verdict => return Some(verdict),
            }
        }
        let bytes = self.writes.unplaced_bytes + self.writes.forwarded_bytes + command.len();
        if self.pending() >= self.config.pending_max || bytes > self.config.pending_bytes_max {
            return Some(Err(Refusal::TooManyRequests));
        }
        let patience = self.request_timeout().saturating_sub(self.raft.timing().election_timeout);
        let (command, expires) = (command.to_vec().into(), now + patience);
        self.writes.queue(Unplaced { whose, command, since: now, expires });
        None
    }

    /// Follower: the verdicts on its writes. It answers its clients when it applies those entries itself.
    pub(crate) fn on_forward_reply(&mut self, now: Instant, reply: ForwardReply, effects: &mut Effects) {
        let meant_for_us = reply.to == self.raft.id() && reply.incarnation == self.run;
        if !meant_for_us || reply.term != self.raft.term() {
            return;
        }
        if !can_be_counted(reply.first_seq, reply.verdicts.len()) {
            return self.distrust(reply.from, Falsehood::Count, effects);
        }
        let mut again = Vec::new();
        for (seq, verdict) in (reply.first_seq..).zip(reply.verdicts) {
            // None: they are expired, or this is a repeated reply.
            while let Some(write) = self.writes.take_forwarded_as(seq) {
                match verdict {
                    Err(refusal) if write.patient_until.is_some() => {
                        self.refuse_or_take_back(now, write, refusal, effects);
                    }
                    Err(Refusal::LeaderChanged) => again.push(write),
                    Err(refusal) => self.writes.refuse(write.ticket, refusal, effects),
                    Ok(id) if id.index <= self.delivered => {
                        // The entry overtook this reply and was applied when no client was known to wait for it.
                        self.writes.doubt(write.ticket, Doubt::LeaderChanged, effects);
                    }
                    Ok(id) => {
                        let Forwarded { place, ticket, expires, .. } = write;
                        let placed = Placed { id, place, ticket, expires, weakly: Weakly::No };
                        self.writes.place(placed, effects);
                    }
                }
            }
        }
        // The leader is transferring leadership and accepted none of these: they wait for it to go on, or for another
        // one.
        for write in again.into_iter().rev() {
            self.take_back(now, write);
        }
    }

    /// The leader refused this change of members.
    fn refuse_or_take_back(
        &mut self,
        now: Instant,
        write: Forwarded,
        refusal: Refusal,
        effects: &mut Effects,
    ) {
        let Forwarded { ticket, command, expires, patient_until, .. } = write;
        let patient_until = patient_until.unwrap_or(expires);
        let change_request = ChangeRequest { ticket, command: command.to_vec(), patient_until, expires };
        self.retry_or_refuse(now, change_request, refusal, effects);
    }

    /// Another term or another leader: forwarded writes may or may not have been accepted.
    pub(crate) fn on_leadership_change(&mut self, term_moved: bool, effects: &mut Effects) {
        while let Some(write) = self.writes.take_forwarded(0) {
            self.writes.doubt(write.ticket, Doubt::LeaderChanged, effects);
        }
        self.writes.forward_after = Instant(0);
        if !self.raft.is_leader() || term_moved {
            // Accepted in an old term: to its follower the outcome is unknown, too.
            self.writes.take_others(Instant::NEVER);
        }
        if term_moved {
            self.writes.taken.clear();
            self.writes.weak.forget_sessions();
        }
    }

    /// The leader's link has closed: writes in flight on it may or may not have arrived.
    pub(crate) fn on_link_closed(&mut self, peer: NodeId, effects: &mut Effects) {
        if self.raft.leader() == Some(peer) {
            self.on_leadership_change(false, effects);
        }
    }

    /// Answers clients that have waited too long.
    pub(crate) fn expire_writes(&mut self, now: Instant, effects: &mut Effects) {
        if self.writes.forward_after <= now {
            self.writes.forward_after = Instant(0);
        }
        let never_placed = match self.raft.is_leader() {
            true if self.is_short() => Refusal::NoSpace,
            true => Refusal::TooManyRequests, // there is space, but it cannot be prepared in time
            false => Refusal::NoLeader,
        };
        let mut verdicts = Verdicts::default();
        while self.writes.unplaced.front().is_some_and(|write| write.expires <= now) {
            let write = self.writes.pop_unplaced().expect("its front was just seen");
            self.settle_unplaced(write, Err(never_placed), 0, &mut verdicts, effects);
        }
        for write in self.writes.take_others(now) {
            self.settle_unplaced(write, Err(never_placed), 0, &mut verdicts, effects);
        }
        verdicts.send(effects);
        while self.writes.forwarded.front().is_some_and(|write| write.expires <= now) {
            let write = self.writes.take_forwarded(0).expect("its front was just seen");
            self.writes.doubt(write.ticket, Doubt::TimedOut, effects);
        }
        if let Some(change) = self.writes.completing.take_if(|change| change.expires <= now) {
            self.writes.doubt(change.ticket, Doubt::TimedOut, effects);
        }
        while self.writes.placed.front().is_some_and(|write| write.expires <= now) {
            let write = self.writes.placed.pop_front().expect("its front was just seen");
            self.writes.weak.settled(write.weakly);
            self.writes.doubt(write.ticket, Doubt::TimedOut, effects);
        }
    }

    /// Publishes this member's name and client URLs, once per start, as soon as there is a leader.
    pub(crate) fn publish_when_led(&mut self, now: Instant) {
        let due = self.writes.publication == Publication::Due;
        if due && self.is_confirmed() && self.raft.leader().is_some() {
            self.writes.publication = Publication::Underway;
            let command = self.writes.publish.clone().into();
            let expires = now + self.request_timeout().max(Duration::from_secs(1));
            self.writes.queue(Unplaced { whose: Whose::Ours(PUBLISH), command, since: now, expires });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::{Event, Request};
    use crate::node::NodeConfig;
    use kattu_kv::api as kv;
    use kattu_raft::{Config, EntryHead, RecordEncoder, Recovered, Stamp, Term};

    #[test]
    fn a_write_that_waits_beyond_its_batch_holds_no_buffer_of_others() {
        let put = kv::Put { key: b"a".to_vec(), ..kv::Put::default() };
        let command = crate::command::encode_kv(&kv::Command::Put(put));
        let len = command.len();
        let buffer = SharedBytes::from([&command[..], &command[..]].concat());
        let raft = Config::new(NodeId(1), [NodeId(1), NodeId(2)], RecordEncoder::BARE);
        let mut node = Node::recover(NodeConfig::new(raft), 1, Instant(0), Recovered::default());
        let mut effects = Effects::default();
        for (ticket, at) in [(1, 0), (2, len)] {
            let request = Request::Write(buffer.slice(at..at + len).into());
            node.handle(Instant(0), Event::Client { ticket: Ticket(ticket), request }, &mut effects);
        }
        assert_eq!(buffer.clone().into_buffer(), None, "both hold it");
        node.handle(Instant(0), Event::Drained, &mut effects);
        assert_eq!(node.writes.pending_bytes(), 2 * len, "no member leads: they wait");
        assert_eq!(buffer.into_buffer().map(|bytes| bytes.len()), Some(2 * len));
        assert!(node.writes.unplaced.iter().all(|write| *write.command == command[..]));
    }

    #[test]
    fn of_a_bundle_the_clients_that_still_wait_are_answered_by_their_places() {
        let put = |key: &[u8]| {
            let put = kv::Put { key: key.to_vec(), ..kv::Put::default() };
            crate::command::encode_kv(&kv::Command::Put(put))
        };
        let puts = [put(b"a"), put(b"b"), put(b"c"), put(b"d")];
        let bytes = crate::bundle::encode(puts.iter().map(Vec::as_slice));
        let id = EntryId { term: Term(2), index: LogIndex(7) };
        let head = EntryHead { id, kind: EntryKind::Command, stamp: Stamp(0) };
        let (mut writes, mut effects) = (Writes::new(Vec::new()), Effects::default());
        let earlier = EntryId { term: Term(1), index: LogIndex(7) };
        for (id, place) in [(earlier, 0), (earlier, 1), (id, 0), (id, 1), (id, 2), (id, 3)] {
            let ticket = Ticket(10 * id.term.0 + u64::from(place));
            writes.place(Placed { id, place, ticket, expires: Instant(5), weakly: Weakly::No }, &mut effects);
        }
        let overwritten = [11, 10].map(|ticket| (Ticket(ticket), Outcome::Unknown(Doubt::LeaderChanged)));
        assert_eq!(effects.reply, overwritten);
        writes.placed.pop_front(); // it has waited too long
        writes.wants_no_result(Ticket(22));
        let tickets = writes.answered_by(&Entry::new(head, bytes.into(), 0), &mut effects);
        assert_eq!(tickets, Tickets::Each(alloc::vec![(1, Ticket(21)), (3, Ticket(23))]));
        assert_eq!(effects.reply.len(), 3, "the third client is answered already");
        assert_eq!(writes.pending(), 0);
    }
}

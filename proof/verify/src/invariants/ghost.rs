//! Ghost state: the complete history of a cluster, recorded from outside.
//!
//! For each member: its log as emitted to the disk, and the durable part of it. For the cluster: every entry ever
//! created, the leader of each term with its log, votes, acknowledgements, commits.
//! Knows nothing of: the rules (each invariant has its own).

use super::Violation;
use kattu_node::contract::Ticket;
use kattu_raft::{Entry, EntryId, HardState, LogBody, LogIndex, LogRecord, Lsn, Membership, NodeId, Term};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

/// One entry: the term that created it, a hash of its bytes, and how many its payload has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) term: Term,
    pub(super) hash: u64,
    pub(super) bytes: u32,
}

impl Line {
    pub(super) fn of(entry: &Entry) -> Line {
        Line {
            term: entry.id().term,
            hash: hash(entry.record(), entry.len() as u64),
            bytes: entry.payload().map_or(0, |payload| payload.len() as u32),
        }
    }
}

/// Eight bytes at a time; two different entries of one index and term must not have the same hash.
fn hash(bytes: &[u8], seed: u64) -> u64 {
    const K: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut hash = seed.wrapping_mul(K);
    let mut mix = |word: u64| {
        hash = (hash ^ word).wrapping_mul(K);
        hash ^= hash >> 29;
    };
    let (words, rest) = bytes.as_chunks::<8>();
    words.iter().for_each(|word| mix(u64::from_le_bytes(*word)));
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    mix(u64::from_le_bytes(last));
    hash
}

/// A log, from index 1 on: the ghost keeps entries that were pruned because a snapshot covers them. For a snapshot from
/// another member it takes the committed entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Log {
    lines: Vec<Line>,
    /// Where each term's entries begin, ascending.
    starts: Vec<EntryId>,
    /// A snapshot has replaced the log up to here.
    base: EntryId,
}

impl Log {
    pub(super) fn base(&self) -> EntryId {
        self.base
    }

    pub(super) fn last(&self) -> EntryId {
        let index = LogIndex(self.lines.len() as u64);
        EntryId { term: self.lines.last().map_or(Term(0), |line| line.term), index }
    }

    /// A log that begins after a base, all of it committed, and goes on with these.
    pub(super) fn after(base: EntryId, lines: impl Iterator<Item = Line>, chosen: &Log) -> Log {
        let mut log = Log::default();
        log.rebase(base, LogIndex(0), chosen);
        lines.for_each(|line| log.append(line));
        log
    }

    /// The entry at an index; `None` at 0 and beyond the last.
    pub(super) fn line(&self, index: LogIndex) -> Option<Line> {
        let place = usize::try_from(index.0.checked_sub(1)?).ok()?;
        self.lines.get(place).copied()
    }

    /// The term at an index; 0 at 0.
    pub(super) fn term(&self, index: LogIndex) -> Option<Term> {
        if index == LogIndex(0) { Some(Term(0)) } else { self.line(index).map(|line| line.term) }
    }

    pub(super) fn starts(&self) -> &[EntryId] {
        &self.starts
    }

    /// Where each term's entries begin, of those after the base.
    pub(super) fn starts_after_base(&self) -> Vec<EntryId> {
        let first = self.base.index.next();
        let begins = self.term(first).map(|term| EntryId { term, index: first });
        let later = self.starts.iter().copied().filter(|start| first < start.index);
        begins.into_iter().chain(later).collect()
    }

    /// A snapshot up to `base` replaces the entries up to there; if the log does not hold that entry, all entries. The
    /// two are known to agree up to `agreed`.
    pub(super) fn rebase(&mut self, base: EntryId, agreed: LogIndex, chosen: &Log) {
        if self.term(base.index) != Some(base.term) {
            self.truncate(agreed.min(base.index).next());
            while self.last().index < base.index {
                let line =
                    chosen.line(self.last().index.next()).expect("what a snapshot covers is committed");
                self.append(line);
            }
        }
        self.base = base;
    }

    pub(super) fn append(&mut self, line: Line) {
        self.lines.push(line);
        if self.starts.last().is_none_or(|start| start.term != line.term) {
            self.starts.push(self.last());
        }
    }

    pub(super) fn truncate(&mut self, first: LogIndex) {
        self.lines.truncate(first.previous().0 as usize);
        while self.starts.last().is_some_and(|start| first <= start.index) {
            self.starts.pop();
        }
    }
}

/// A record on its way to a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pending {
    Hard(HardState),
    Truncate(LogIndex),
    Entry(Line),
    Commit,
    Base(EntryId),
    VoteFloor(EntryId),
}

/// The ghost of one member.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) id: NodeId,
    pub(super) runs: bool,
    /// Term and vote as emitted to the disk.
    pub(super) hard: HardState,
    /// The log as emitted to the disk.
    pub(super) log: Log,
    /// Number of the last record emitted.
    pub(super) emitted: Lsn,
    /// Emitted records that may not be durable yet.
    pub(super) pending: VecDeque<(Lsn, Pending)>,
    /// Everything up to this record is durable.
    pub(super) durable: Lsn,
    pub(super) disk_hard: HardState,
    pub(super) disk: Log,
    /// The marks as of its last event.
    pub(super) term: Term,
    pub(super) committed: LogIndex,
    pub(super) delivered: LogIndex,
    pub(super) persisted: LogIndex,
    pub(super) verified: (Term, LogIndex),
    /// The term it leads.
    pub(super) leads: Option<Term>,
    pub(super) matched: BTreeMap<NodeId, LogIndex>,
    /// What its store has applied.
    pub(super) applied: LogIndex,
    /// The commit mark it found at its start.
    pub(super) marked: LogIndex,
    /// The newest state it has served since its start, and before that.
    pub(super) served: LogIndex,
    pub(super) served_before: LogIndex,
    /// Its log is known to agree with the committed one up to here.
    pub(super) agreed: LogIndex,
    /// The last entry that the newest snapshot on its disk covers.
    pub(super) snapshot: EntryId,
    /// A snapshot is to replace its store, and has not yet.
    pub(super) installs: bool,
    /// The fault that changes its log before it starts again.
    pub(super) harm: Option<Harm>,
    /// Its disk has lost something at some time.
    pub(super) has_lost: bool,
    /// What its disk once held and has lost, as long as the disk holds no log that is as complete.
    pub(super) lost: Option<Lost>,
    /// Its vote floor, as a leader sent it: as emitted to the disk, and as it is on the disk.
    pub(super) vote_floor: Option<EntryId>,
    pub(super) disk_vote_floor: Option<EntryId>,
    /// Weak answers that have no end.
    pub(super) weak: BTreeMap<Ticket, EntryId>,
}

/// A fault of a log while its member is down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Harm {
    /// It is cut before damage, which is noticed. [fault-model ST7]
    Cut,
    /// It is an older one, and nothing in the directory shows that; what still counts of the log before it, if any.
    /// [fault-model F18, F19]
    Older(Option<Owed>),
}

/// A log that a disk has lost. It still counts for votes, and as a copy.
#[derive(Clone, Debug)]
pub(super) struct Lost {
    pub(super) log: Log,
    /// The log lies in a newer directory than the member's: only so much of it counts. `None` for all of it.
    owed: Option<Owed>,
}

impl Lost {
    /// All of a log that was cut.
    pub(super) fn all(log: Log) -> Lost {
        Lost { log, owed: None }
    }

    /// What is owed of a log, of which the member's directory is an older copy.
    pub(super) fn owed(mut log: Log, owed: Owed) -> Lost {
        log.truncate(owed.upto().next());
        Lost { log, owed: Some(owed) }
    }
}

/// What the other members know of a log whose directory was rolled back. A reminder covers it. [fault-model ST18]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Owed {
    committed: LogIndex,
    /// What each leader counts as acknowledged. A leader that stops leading counts nothing any more: what it has not
    /// committed by then is void, because no later leader counts it unless it is acknowledged again.
    counted: BTreeMap<NodeId, LogIndex>,
}

impl Owed {
    fn upto(&self) -> LogIndex {
        self.counted.values().copied().fold(self.committed, LogIndex::max)
    }

    /// A leader counts no more, and has committed so much.
    fn stops_counting(&mut self, leader: NodeId, committed: LogIndex) {
        if let Some(counted) = self.counted.remove(&leader) {
            self.committed = self.committed.max(counted.min(committed));
        }
    }
}

impl Member {
    pub(super) fn new(id: NodeId) -> Member {
        Member {
            id,
            runs: false,
            hard: HardState::default(),
            log: Log::default(),
            emitted: Lsn(0),
            pending: VecDeque::new(),
            durable: Lsn(0),
            disk_hard: HardState::default(),
            disk: Log::default(),
            term: Term(0),
            committed: LogIndex(0),
            delivered: LogIndex(0),
            persisted: LogIndex(0),
            verified: (Term(0), LogIndex(0)),
            leads: None,
            matched: BTreeMap::new(),
            applied: LogIndex(0),
            marked: LogIndex(0),
            served: LogIndex(0),
            served_before: LogIndex(0),
            agreed: LogIndex(0),
            snapshot: EntryId::default(),
            installs: false,
            harm: None,
            has_lost: false,
            lost: None,
            vote_floor: None,
            disk_vote_floor: None,
            weak: BTreeMap::new(),
        }
    }

    /// The end of the most complete log that it has held: it votes by this.
    pub(super) fn promised(&self) -> EntryId {
        self.lost_upto().max(self.log.last()).max(self.vote_floor.unwrap_or_default())
    }

    /// The end of the log that its disk has lost.
    pub(super) fn lost_upto(&self) -> EntryId {
        self.lost.as_ref().map_or(EntryId::default(), |lost| lost.log.last())
    }

    /// The same without what lies in a newer directory than the member's: of that this directory knows nothing until the others
    /// remind the member, and then their floor is on its disk.
    pub(super) fn lost_here_upto(&self) -> EntryId {
        self.lost
            .as_ref()
            .filter(|lost| lost.owed.is_none())
            .map_or(EntryId::default(), |lost| lost.log.last())
    }

    /// Whether an entry counts as held: on its disk, or in the log that its disk has lost.
    pub(super) fn owes(&self, index: LogIndex, line: Line) -> bool {
        let holds = |log: &Log| log.line(index) == Some(line);
        holds(&self.disk) || self.lost.as_ref().is_some_and(|lost| holds(&lost.log))
    }

    /// What was lost matters no more as soon as the disk holds a log that is as complete.
    fn makes_good(&mut self) {
        let last = self.disk.last();
        let _made_good = self.lost.take_if(|lost| lost.log.last() <= last);
    }

    /// A leader stops leading: what it counted of a log that this member has lost, and did not commit, is void.
    fn is_void_by(&mut self, leader: NodeId, committed: LogIndex) {
        if let Some(Harm::Older(Some(owed))) = &mut self.harm {
            owed.stops_counting(leader, committed);
        }
        if let Some(Lost { log, owed: Some(owed) }) = &mut self.lost {
            owed.stops_counting(leader, committed);
            log.truncate(owed.upto().next());
            self.makes_good();
        }
    }

    /// A record was emitted to the disk.
    pub(super) fn emit(&mut self, record: &LogRecord, line: Option<Line>, chosen: &Log) {
        let pending = match &record.body {
            LogBody::HardState(hard) => {
                self.hard = *hard;
                self.leads = self.leads.filter(|&term| term == hard.term);
                Pending::Hard(*hard)
            }
            LogBody::Truncate(first) => {
                self.log.truncate(*first);
                self.agreed = self.agreed.min(first.previous());
                self.persisted = self.persisted.min(first.previous());
                Pending::Truncate(*first)
            }
            LogBody::Entry(_) => {
                let line = line.expect("an entry has a line");
                self.log.append(line);
                Pending::Entry(line)
            }
            LogBody::Commit(_) => Pending::Commit,
            LogBody::VoteFloor(vote_floor) => {
                self.vote_floor = self.vote_floor.max(Some(*vote_floor));
                Pending::VoteFloor(*vote_floor)
            }
            LogBody::Base(base) => {
                if self.log.term(base.index) != Some(base.term) {
                    self.persisted = self.persisted.min(self.committed); // the rest of the log is gone
                }
                self.log.rebase(*base, self.agreed, chosen);
                self.agreed = self.agreed.max(base.index).min(self.log.last().index);
                Pending::Base(*base)
            }
        };
        self.emitted = record.lsn;
        self.pending.push_back((record.lsn, pending));
    }

    /// The oldest pending record reached the disk.
    pub(super) fn sink(&mut self, chosen: &Log) -> Option<Pending> {
        let (_, pending) = self.pending.pop_front()?;
        match pending {
            Pending::Hard(hard) => self.disk_hard = hard,
            Pending::Truncate(first) => self.disk.truncate(first),
            Pending::Entry(line) => self.disk.append(line),
            Pending::Commit => {}
            Pending::VoteFloor(vote_floor) => {
                self.disk_vote_floor = self.disk_vote_floor.max(Some(vote_floor))
            }
            Pending::Base(base) => self.disk.rebase(base, LogIndex(0), chosen),
        }
        self.makes_good();
        let last = self.disk.last();
        if self.disk_vote_floor.is_some_and(|vote_floor| vote_floor <= last) {
            (self.vote_floor, self.disk_vote_floor) =
                (self.vote_floor.filter(|vote_floor| last < *vote_floor), None);
        }
        Some(pending)
    }
}

/// The leader of a term, and its log when it was elected.
#[derive(Clone, Debug)]
pub(super) struct Reign {
    pub(super) leader: NodeId,
    /// The last entry before the term's own.
    last: EntryId,
    starts: Vec<EntryId>,
}

impl Reign {
    pub(super) fn new(leader: NodeId, log: &Log) -> Reign {
        Reign { leader, last: log.last(), starts: log.starts().to_vec() }
    }

    /// The term at an index of the leader's log: what it had when elected, then its own entries without end. By log
    /// matching, terms suffice.
    pub(super) fn term_at(&self, own: Term, index: LogIndex) -> Term {
        if self.last.index < index {
            return own;
        }
        let begun = self.starts.partition_point(|start| start.index <= index);
        if begun == 0 { Term(0) } else { self.starts[begun - 1].term }
    }
}

/// An entry as it was created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Created {
    pub(super) hash: u64,
    pub(super) bytes: u32,
    /// The term of the entry before it.
    pub(super) after: Term,
    pub(super) by: NodeId,
}

/// The ghost of the whole cluster.
#[derive(Clone, Debug)]
pub(super) struct Ghost {
    /// The configuration before any entry has another one.
    first: Membership,
    /// Every configuration, by its entry.
    pub(super) configurations: BTreeMap<EntryId, Membership>,
    members: Vec<Member>,
    /// Everything that is committed.
    pub(super) chosen: Log,
    /// The term of the leader that committed each entry first; never falls.
    pub(super) chosen_in: Vec<Term>,
    pub(super) created: HashMap<EntryId, Created>,
    pub(super) reigns: BTreeMap<Term, Reign>,
    /// (term, candidate) → the last entries it campaigned with: several if its directory was rolled back in between.
    pub(super) campaigns: BTreeMap<(Term, NodeId), BTreeSet<EntryId>>,
    /// (term, voter) → the candidate it voted for.
    pub(super) votes: BTreeMap<(Term, NodeId), NodeId>,
    /// (term, candidate) → voters whose vote for it is on disk.
    pub(super) ballots: BTreeMap<(Term, NodeId), BTreeSet<NodeId>>,
    /// (term, peer) → highest index it acknowledged to the leader of that term.
    pub(super) acknowledged: BTreeMap<(Term, NodeId), LogIndex>,
    pub(super) digests: BTreeMap<LogIndex, (u64, NodeId)>,
    /// Holder of a lease → its term, and its end by a clock that all share.
    pub(super) leases: BTreeMap<NodeId, (Term, u64)>,
}

impl Ghost {
    pub(super) fn new(voters: &[NodeId]) -> Ghost {
        Ghost {
            first: Membership::new(voters.to_vec(), Vec::new()),
            configurations: BTreeMap::new(),
            members: Vec::new(),
            chosen: Log::default(),
            chosen_in: Vec::new(),
            created: HashMap::new(),
            reigns: BTreeMap::new(),
            campaigns: BTreeMap::new(),
            votes: BTreeMap::new(),
            ballots: BTreeMap::new(),
            acknowledged: BTreeMap::new(),
            digests: BTreeMap::new(),
            leases: BTreeMap::new(),
        }
    }

    /// The place of a member's ghost, created on first use. Clusters are small: the search is linear.
    pub(super) fn place(&mut self, id: NodeId) -> usize {
        match self.members.iter().position(|member| member.id == id) {
            Some(place) => place,
            None => {
                self.members.push(Member::new(id));
                self.members.len() - 1
            }
        }
    }

    pub(super) fn at(&self, place: usize) -> &Member {
        &self.members[place]
    }

    /// A member, and what is committed.
    pub(super) fn member_and_chosen(&mut self, place: usize) -> (&mut Member, &Log) {
        (&mut self.members[place], &self.chosen)
    }

    pub(super) fn at_mut(&mut self, place: usize) -> &mut Member {
        &mut self.members[place]
    }

    /// The newest configuration of a log, and its index. It is in force, committed or not. [M1]
    pub(super) fn configuration_of(&self, log: &Log) -> (LogIndex, &Membership) {
        // Ids ascend by term and then by index, and so do those of one log.
        let mut newest_first = self.configurations.iter().rev();
        let said = newest_first.find(|(id, _)| log.term(id.index) == Some(id.term));
        said.map_or((LogIndex(0), &self.first), |(id, membership)| (id.index, membership))
    }

    /// What the others know of a member's log: what is committed, and what each leader counts.
    pub(super) fn owed_by(&self, member: NodeId) -> Owed {
        let leaders = self.members.iter().filter(|other| other.runs && other.leads.is_some());
        let counts = |leader: &Member| Some((leader.id, *leader.matched.get(&member)?));
        Owed { committed: self.chosen.last().index, counted: leaders.filter_map(counts).collect() }
    }

    /// A member's votes for itself that nobody else shares are void when its directory is rolled back: it led with none
    /// of them, and never will, because a candidate counts only votes for its present log.
    pub(super) fn forget_campaigns(&mut self, member: NodeId) {
        for ((term, candidate), voters) in &mut self.ballots {
            if *candidate == member && voters.iter().all(|voter| *voter == member) {
                voters.clear();
                self.votes.remove(&(*term, member));
            }
        }
    }

    /// A member leads no more, or its process ended.
    pub(super) fn stops_leading(&mut self, place: usize) {
        let leader = &self.members[place];
        let (id, committed) = (leader.id, leader.committed);
        self.members.iter_mut().for_each(|member| member.is_void_by(id, committed));
    }

    pub(super) fn member(&self, id: NodeId) -> Option<&Member> {
        self.members.iter().find(|member| member.id == id)
    }
}

/// Fails with the story unless the fact holds.
pub(super) fn expect(
    holds: bool,
    property: &'static str,
    story: impl FnOnce() -> String,
) -> Result<(), Violation> {
    if holds { Ok(()) } else { Err(Violation { property, story: story(), operations: Vec::new() }) }
}

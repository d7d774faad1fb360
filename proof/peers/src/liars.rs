//! Liars: one member receives arbitrary well-formed messages, in a story generated from bytes.
//!
//! The same bytes give the same story in the test, in the fuzzer and in the hunt for planted bugs.
//! Knows nothing of: the source of the bytes.

use kattu_raft::distrust::TERMS_AHEAD_MAX;
use kattu_raft::invariants::{self, Violation};
use kattu_raft::message::{
    Append, AppendReply, Gap, Lost, PreVote, PreVoteReply, ReadIndex, ReadIndexReply, Remind, Reminder, Room,
    Run, SnapshotChunk, SnapshotReply, StaleTerm, Standing, TimeoutNow, Vote, VoteReply,
};
use kattu_raft::{
    ChunkRead, ChunkStored, ClockReading, Config, Duration, Effects, Entry, EntryHead, EntryId, EntryKind,
    Envelope, GroupId, Incarnation, Instant, LeaderLease, Limits, LinkEnd, LogBody, LogIndex, LogRecord,
    Membership, Message, NodeId, PayloadReader, Raft, ReadBatch, RecordEncoder, Recovered, Round,
    SnapshotMeta, Stamp, Term,
};

/// A command that the member's reader rejects.
const UNREADABLE: &[u8] = b"?";

/// The member under test; 2 and 3 vote as well, 4 is a learner.
pub(crate) const ME: NodeId = NodeId(1);

/// The rest of a story's bytes.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn is_over(&self) -> bool {
        self.0.is_empty()
    }

    /// The next byte; 0 at the end.
    fn byte(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        *first
    }

    fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    /// Numbers that provoke errors: those in use here, those beside powers of two, and the largest there are.
    fn number(&mut self) -> u64 {
        match self.byte() {
            small @ 0..=199 => u64::from(small % 12),
            200..=229 => {
                let power = 1_u64 << (self.byte() % 64);
                power.wrapping_add(u64::from(self.byte() % 3)).wrapping_sub(1)
            }
            230..=245 => u64::MAX - u64::from(self.byte() % 4),
            _ => u64::from_le_bytes([0; 8].map(|_: u8| self.byte())),
        }
    }

    fn position(&mut self) -> EntryId {
        EntryId::new(self.number(), self.number())
    }

    fn member(&mut self) -> NodeId {
        match self.byte() {
            240.. => NodeId(self.number()),
            small => NodeId(u64::from(small % 6)),
        }
    }

    fn members(&mut self) -> Vec<NodeId> {
        let mut members: Vec<NodeId> = (0..self.byte() % 4).map(|_| self.member()).collect();
        members.sort_unstable();
        members.dedup();
        members
    }

    fn membership(&mut self) -> Membership {
        match self.byte() % 8 {
            0 => Membership {
                voters: self.members(),
                outgoing: self.members(),
                learners: self.members(),
                learners_next: self.members(),
                ..Membership::default()
            },
            1 => Membership::new(vec![NodeId(2), NodeId(3)], vec![]),
            2 => Membership::new(vec![NodeId(7)], vec![ME]),
            3 => Membership::default(),
            _ => Membership::new(vec![ME, NodeId(2), NodeId(3)], vec![NodeId(4)]),
        }
    }

    fn entries(&mut self, prev: EntryId) -> Vec<Entry> {
        let in_order = !self.byte().is_multiple_of(8);
        let mut at = prev;
        let list = (0..self.byte() % 4).map(|_| {
            at = match in_order {
                true => {
                    let term = at.term.0.saturating_add(u64::from(self.byte().is_multiple_of(8)));
                    EntryId::new(term, at.index.0.saturating_add(1))
                }
                false => self.position(),
            };
            let mut payload = Vec::new();
            let kind = match self.byte() % 4 {
                0 => EntryKind::Noop,
                1 => {
                    self.membership().encode(&mut payload);
                    EntryKind::Config
                }
                _ => {
                    if self.byte().is_multiple_of(4) {
                        payload.extend_from_slice(UNREADABLE);
                    }
                    EntryKind::Command
                }
            };
            let head = EntryHead { id: at, kind, stamp: Stamp(self.number()) };
            Entry::new(head, payload.into(), 0)
        });
        list.collect()
    }

    fn meta(&mut self) -> SnapshotMeta {
        let last = self.position();
        let (stamp, membership) = (Stamp(self.number()), self.membership());
        let membership_at = LogIndex(self.number().min(last.index.0)); // the decoder of frames ensures that
        SnapshotMeta { last, stamp, membership, membership_at }
    }

    fn runs(&mut self) -> Vec<Run> {
        (0..self.byte() % 3)
            .map(|_| Run { first: LogIndex(self.number()), last: LogIndex(self.number()) })
            .collect()
    }

    fn append_reply(&mut self) -> AppendReply {
        AppendReply {
            round: Round(self.number()),
            vote_hold: Duration::from_nanos(self.number()),
            clock: self.flag().then(|| ClockReading { run: self.number(), at: Instant(self.number()) }),
            disk: Duration::from_nanos(self.number()),
            bulk: Round(self.number()),
            upto: LogIndex(self.number()),
            gap: self.flag().then(|| Gap {
                prev: LogIndex(self.number()),
                hint: self.position(),
                last: LogIndex(self.number()),
            }),
            room: Room(self.number()),
            received: LogIndex(self.number()),
            early: self.runs(),
        }
    }

    /// Mostly messages of this term and this log: others would be ignored.
    fn message(&mut self, raft: &Raft) -> Message {
        match self.byte() % 22 {
            0..=4 => {
                let prev = if self.byte().is_multiple_of(4) { self.position() } else { raft.last_id() };
                let entries = self.entries(prev);
                let tail = self.flag() && entries.is_empty();
                let (commit, round) = (LogIndex(self.number()), Round(self.number()));
                Message::Append(Append { prev, entries, commit, round, tail })
            }
            5..=8 => Message::AppendReply(self.append_reply()),
            9 => {
                let campaign_term = Term(self.number());
                Message::PreVote(PreVote {
                    campaign_term,
                    last: self.position(),
                    round: Round(self.number()),
                })
            }
            10 => {
                let campaign_term = if self.flag() { raft.term().next() } else { Term(self.number()) };
                let (granted, round) = (self.flag(), Round(self.number()));
                Message::PreVoteReply(PreVoteReply { campaign_term, granted, round })
            }
            11 => Message::Vote(Vote { last: self.position(), transfer: self.flag() }),
            12 => Message::VoteReply(VoteReply { granted: self.flag(), last: self.position() }),
            13 => Message::ReadIndex(ReadIndex { batch: self.number() }),
            14 => {
                let index = self.flag().then(|| LogIndex(self.number()));
                Message::ReadIndexReply(ReadIndexReply { batch: self.number(), index })
            }
            15 | 16 => {
                let (meta, offset, total) = (self.meta(), self.number(), self.number());
                let bytes = vec![0; usize::from(self.byte() % 9)].into();
                Message::SnapshotChunk(SnapshotChunk { meta: Box::new(meta), offset, bytes, total })
            }
            17 => {
                let (last, next, refused) = (self.position(), self.number(), self.flag());
                Message::SnapshotReply(SnapshotReply { last, next, refused })
            }
            18 => Message::Lost(Lost { upto: self.position() }),
            19 => {
                let (committed, acknowledged) = (self.position(), self.position());
                let standings = [Standing::Alone, Standing::HasMetAll, Standing::TakesPart];
                let standing = standings[usize::from(self.byte() % 3)];
                Message::Reminder(Reminder { nonce: self.number(), standing, committed, acknowledged })
            }
            20 => Message::Remind(Remind { nonce: self.number() }),
            _ => match self.flag() {
                true => Message::TimeoutNow(TimeoutNow),
                false => Message::StaleTerm(StaleTerm),
            },
        }
    }
}

/// The member, and its effects.
struct Among {
    raft: Raft,
    now: Instant,
    effects: Effects,
    reads: u64,
    /// Messages that it received.
    heard: u64,
}

fn config(flags: u8) -> Config {
    let lease =
        (flags & 1 == 1).then_some(LeaderLease { rho: 500, margin: Duration::ZERO, watch_clocks: true });
    Config {
        incarnation: Incarnation(100),
        learners: vec![NodeId(4)],
        leadership: kattu_raft::LeadershipConfig { leader_lease: lease, ..Default::default() },
        parallel_append: flags & 4 == 0,
        pipelining: flags & 8 == 0,
        limits: Limits {
            read_apart_bytes_min: if flags & 16 == 16 { 1 } else { usize::MAX },
            ..Limits::default()
        },
        ..Config::new(ME, [ME, NodeId(2), NodeId(3)], RecordEncoder::BARE)
    }
}

impl Among {
    /// A member that has just started, and if `leads`, was elected.
    fn liars(flags: u8, leads: bool) -> Among {
        let now = Instant(1_000_000_000);
        let raft = Raft::recover(config(flags), u64::from(flags), now, Recovered::default())
            .with_reader(PayloadReader(|_, payload| payload != UNREADABLE));
        let mut among = Among { raft, now, effects: Effects::default(), reads: 0, heard: 0 };
        if leads {
            among.wait(5_000);
            let campaign_term = among.raft.term().next();
            let granted = PreVoteReply { campaign_term, granted: true, round: Round(0) };
            among.hears(NodeId(2), 200, 0, Message::PreVoteReply(granted));
            among.settle();
            let term = among.raft.term().0;
            among.hears(
                NodeId(2),
                200,
                term,
                Message::VoteReply(VoteReply { granted: true, last: EntryId::default() }),
            );
            among.settle();
        }
        among
    }

    fn hears(&mut self, from: NodeId, incarnation: u64, term: u64, message: Message) {
        let incarnation = Incarnation(incarnation);
        let envelope = Envelope { group: GroupId(0), from, incarnation, to: ME, term: Term(term), message };
        let before = self.raft.term().0;
        self.raft.step(self.now, envelope, &mut self.effects);
        let after = self.raft.term().0;
        // One more than the message may bring: a campaign of its own.
        assert!(after.saturating_sub(before) <= TERMS_AHEAD_MAX + 1, "term {after} after {before}");
        self.heard += 1;
    }

    fn wait(&mut self, ms: u64) {
        self.now += Duration::from_millis(ms);
        self.raft.tick(self.now, &mut self.effects);
    }

    /// The disk, the store and the driver complete the requested work.
    fn settle(&mut self) {
        let now = self.now;
        self.raft.drained(now, &mut self.effects);
        let done = std::mem::take(&mut self.effects);
        let is_unreadable = |record: &LogRecord| matches!(&record.body, LogBody::Entry(entry) if entry.payload() == Some(UNREADABLE));
        assert!(!done.persist.iter().any(is_unreadable), "what nobody can read is in the log");
        if let Some(record) = done.persist.last() {
            self.raft.persisted(now, record.lsn, &mut self.effects);
        }
        for request in done.read_chunks {
            let read = ChunkRead::Bytes { bytes: vec![0; 3].into(), total: request.offset.saturating_add(3) };
            self.raft.chunk_read(now, request, read, &mut self.effects);
        }
        for piece in done.store_chunks {
            let next = piece.offset.saturating_add(piece.bytes.len() as u64);
            let last = piece.meta.last;
            if next == piece.total && piece.total % 2 == 1 {
                // An intact one up to the same entry may have been installed before.
                let before = self.raft.base();
                self.raft.snapshot_unreadable(last, &mut self.effects);
                assert_eq!(self.raft.base(), before, "a snapshot that nobody can read is installed");
                continue;
            }
            let stored = ChunkStored { last: piece.meta.last, next, complete: next == piece.total };
            self.raft.chunk_stored(now, stored, &mut self.effects);
        }
        for fetch in done.fetch {
            self.raft.fetched(now, fetch, vec![], &mut self.effects);
        }
        for job in done.compute.into_iter().rev() {
            let done = job.run();
            self.raft.computed(now, done.clone(), &mut self.effects);
            self.raft.computed(now, done, &mut self.effects);
        }
        let applied = done.apply.last().map(|entry| entry.id().index);
        if let Some(index) = applied.or(done.install.map(|meta| meta.last.index)) {
            self.raft.applied(now, index, &mut self.effects);
        }
    }

    fn goes_on(&mut self, bytes: &mut Bytes<'_>) {
        match bytes.byte() % 16 {
            0..=8 => {
                let (from, incarnation) = (bytes.member(), bytes.number());
                let incarnation = if incarnation < 10 { from.0.wrapping_mul(100) } else { incarnation };
                let term = match bytes.byte() {
                    240.. => bytes.number(),
                    near => self.raft.term().0.saturating_add(u64::from(near / 200)),
                };
                let message = bytes.message(&self.raft);
                self.hears(from, incarnation, term, message);
            }
            9 => self.wait(u64::from(bytes.byte()) * 10),
            10 => {
                let _ = self.raft.propose(self.now, EntryKind::Command, b"x", &mut self.effects);
            }
            11 => {
                self.reads += 1;
                self.raft.read(self.now, ReadBatch(self.reads), &mut self.effects);
            }
            12 => {
                let (peer, by_peer) = (bytes.member(), bytes.flag());
                let end = if by_peer { LinkEnd::ByPeer } else { LinkEnd::Otherwise };
                self.raft.link_closed(self.now, peer, end, &mut self.effects);
            }
            _ => self.settle(),
        }
    }
}

/// The message that these bytes mean to a peer in this state.
pub fn message(bytes: &[u8], to: &Raft) -> Message {
    Bytes(bytes).message(to)
}

/// Runs the story that these bytes mean. Returns how many messages the member received.
///
/// # Errors
/// Its own state contradicts itself.
pub fn story(bytes: &[u8]) -> Result<u64, Violation> {
    let mut bytes = Bytes(bytes);
    let (flags, leads) = (bytes.byte(), bytes.flag());
    let mut among = Among::liars(flags, leads);
    while !bytes.is_over() {
        among.goes_on(&mut bytes);
        invariants::check(&among.raft)?;
    }
    Ok(among.heard)
}

//! Goodput: the share of bytes of entries and snapshot pieces on a link that were new to the receiving member.
//!
//! In:    bytes that crossed each link; entries and pieces that a member took into its log or its snapshot.
//! Out:   for each link, new bytes / bytes that crossed; the first link that is below a bound.
//! Rule:  an entry counts as new once for each member, however often it is sent. An entry that a member lost in a
//!        crash, before it was synced, may be new a second time. A link that has carried little is not judged, because
//!        one append under way at the end would decide.
//! Why:   a leader that repeats what is still under way fills a slow link with copies. The copies delay the answers
//!        that would stop it, so that it goes on for ever: a metastable state. [fault-model F33, F51]
//! Knows nothing of: the causes of repeated sends.

use super::Violation;
use kattu_raft::{EntryId, LogIndex, NodeId};
use std::collections::{BTreeMap, BTreeSet};

/// What one direction of a link has carried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCount {
    /// Bytes of entries and pieces that crossed it.
    pub sent: u64,
    /// Bytes of these that were new to the receiver. At most `sent`, except for what is counted late.
    pub taken: u64,
}

impl LinkCount {
    /// New bytes / bytes that crossed; 1 where nothing crossed.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        if self.sent == 0 { 1.0 } else { self.taken as f64 / self.sent as f64 }
    }

    /// What crossed between this count and a later one.
    #[must_use]
    pub fn until(&self, later: LinkCount) -> LinkCount {
        LinkCount { sent: later.sent - self.sent, taken: later.taken - self.taken }
    }
}

/// The counts of all links, by sender and receiver.
#[derive(Clone, Debug, Default)]
pub struct Goodput {
    links: BTreeMap<(NodeId, NodeId), LinkCount>,
    /// Entries that each member has taken.
    entries: BTreeMap<NodeId, BTreeMap<LogIndex, BTreeSet<u64>>>,
    /// Pieces of snapshots, each by what the snapshot covers and where the piece begins.
    pieces: BTreeSet<(NodeId, EntryId, u64)>,
}

impl Goodput {
    /// Bytes of entries or pieces have crossed a link.
    pub fn sent(&mut self, from: NodeId, to: NodeId, bytes: u64) {
        self.links.entry((from, to)).or_default().sent += bytes;
    }

    /// A member has taken an entry of this many bytes from its leader.
    pub fn took_entry(&mut self, from: NodeId, to: NodeId, id: EntryId, bytes: u64) {
        if self.entries.entry(to).or_default().entry(id.index).or_default().insert(id.term.0) {
            self.took(from, to, bytes);
        }
    }

    /// A member has taken a piece of a snapshot that covers the log up to `last`.
    pub fn took_piece(&mut self, from: NodeId, to: NodeId, last: EntryId, offset: u64, bytes: u64) {
        if self.pieces.insert((to, last, offset)) {
            self.took(from, to, bytes);
        }
    }

    /// New bytes, for a caller that can count but not identify them.
    pub fn took(&mut self, from: NodeId, to: NodeId, bytes: u64) {
        self.links.entry((from, to)).or_default().taken += bytes;
    }

    /// A member has lost its log above this index, and its unfinished snapshots: they may be new to it once more.
    pub fn lost(&mut self, member: NodeId, last: LogIndex) {
        if let Some(entries) = self.entries.get_mut(&member) {
            entries.split_off(&last.next());
        }
        self.pieces.retain(|(owner, ..)| *owner != member);
    }

    /// What one link has carried so far.
    #[must_use]
    pub fn count(&self, from: NodeId, to: NodeId) -> LinkCount {
        self.links.get(&(from, to)).copied().unwrap_or_default()
    }

    /// All links.
    pub fn links(&self) -> impl Iterator<Item = (NodeId, NodeId, LinkCount)> + '_ {
        self.links.iter().map(|(&(from, to), &count)| (from, to, count))
    }

    /// Whether every link that has carried at least `least` bytes was used well: new bytes are at least `bound` of
    /// those that crossed. `under_way` bytes may have crossed and not be taken yet.
    ///
    /// # Errors
    /// The first link that is below the bound.
    pub fn judge(&self, bound: f64, least: u64, under_way: u64) -> Result<(), Violation> {
        for (from, to, count) in self.links().filter(|(.., count)| count.sent >= least) {
            let needed = bound * count.sent.saturating_sub(under_way) as f64;
            if (count.taken as f64) < needed {
                let story = format!(
                    "{} bytes of entries and pieces crossed the link from n{} to n{}, and {} of them were new to it: \
                     {:.2}, at least {bound:.2} is promised",
                    count.sent,
                    from.0,
                    to.0,
                    count.taken,
                    count.ratio()
                );
                return Err(Violation { property: "goodput", story, operations: Vec::new() });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kattu_raft::Term;

    const A: NodeId = NodeId(1);
    const B: NodeId = NodeId(2);
    const C: NodeId = NodeId(3);

    fn id(term: u64, index: u64) -> EntryId {
        EntryId { term: Term(term), index: LogIndex(index) }
    }

    #[test]
    fn what_is_sent_once_is_all_good() {
        let mut goodput = Goodput::default();
        for index in 1..=100 {
            goodput.sent(A, B, 1000);
            goodput.took_entry(A, B, id(1, index), 1000);
        }
        assert_eq!(goodput.count(A, B), LinkCount { sent: 100_000, taken: 100_000 });
        assert_eq!(goodput.judge(1.0, 1, 0), Ok(()));
    }

    #[test]
    fn copies_are_seen_and_the_link_is_named() {
        let mut goodput = Goodput::default();
        for copy in 0..3 {
            for index in 1..=100 {
                goodput.sent(A, B, 1000);
                goodput.took_entry(A, B, id(1, index), 1000);
                goodput.sent(A, C, 1000);
                goodput.took_entry(A, C, id(1, 100 * copy + index), 1000);
            }
        }
        let violation = goodput.judge(0.9, 1, 0).expect_err("two of three bytes were copies");
        assert_eq!(violation.property, "goodput");
        assert!(violation.story.contains("from n1 to n2") && violation.story.contains("0.33"), "{violation}");
        assert_eq!(goodput.judge(0.33, 1, 0), Ok(()), "a weaker promise holds");
    }

    #[test]
    fn a_link_that_carried_little_is_not_judged_and_what_is_under_way_is_no_copy() {
        let mut goodput = Goodput::default();
        goodput.sent(A, B, 5000);
        goodput.took_entry(A, B, id(1, 1), 1000);
        assert_eq!(goodput.judge(0.9, 5001, 0), Ok(()));
        assert_eq!(goodput.judge(0.9, 1, 4000), Ok(()));
        assert!(goodput.judge(0.9, 1, 3000).is_err());
    }

    #[test]
    fn an_entry_in_the_place_of_another_one_is_new_and_so_is_what_a_crash_has_taken() {
        let mut goodput = Goodput::default();
        goodput.took_entry(A, B, id(1, 7), 10);
        goodput.took_entry(A, B, id(2, 7), 10); // a later leader's
        goodput.took_entry(A, B, id(1, 7), 10); // known
        assert_eq!(goodput.count(A, B).taken, 20);
        goodput.took_piece(A, B, id(1, 5), 0, 3);
        goodput.took_piece(A, B, id(1, 5), 0, 3);
        assert_eq!(goodput.count(A, B).taken, 23);
        goodput.lost(B, LogIndex(6));
        goodput.took_entry(A, B, id(2, 7), 10);
        goodput.took_piece(A, B, id(1, 5), 0, 3);
        assert_eq!(goodput.count(A, B).taken, 36);
    }

    #[test]
    fn two_counts_tell_what_happened_between_them() {
        let first = LinkCount { sent: 10, taken: 10 };
        let between = first.until(LinkCount { sent: 110, taken: 60 });
        assert_eq!(between, LinkCount { sent: 100, taken: 50 });
        assert!((between.ratio() - 0.5).abs() < 1e-9 && (LinkCount::default().ratio() - 1.0).abs() < 1e-9);
    }
}

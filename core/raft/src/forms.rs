//! Forms: which voter holds which part of an entry that not every voter holds whole.
//!
//! In:    the form of an entry at one member; each voter's match index.
//! Out:   the end of what later leaders can rebuild, for the commit rule.
//! Rule:  an entry is *recoverable* if a quorum of voters has acknowledged it, and every quorum holds one whole copy, or
//!        all the shards of one split that rebuild it. A later leader is elected by a quorum, and needs no other member.
//!        Of two sets of voters, a quorum is one of both. [replication-protocols §5.4]
//!
//! A voter that has acknowledged an entry holds it whole unless the ledger says otherwise: followers take no other form
//! (`acceptance.rs`). So under plain Raft the ledger is empty, and the commit rule is the quorum value of the match
//! indexes alone. What is noted here can delay a commit, and never brings one about.
//! Knows nothing of: messages, bytes, the making of shards.

use crate::configurations::Configurations;
use crate::entry::{Entry, Form};
use crate::membership::Membership;
use crate::types::{LogIndex, NodeId};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// One way to split a payload into shards. Shards of different splits do not fit together. [fault-model CD2]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Split {
    /// The index of the configuration whose voters the shards are numbered by. [replication-protocols R2]
    pub(crate) epoch: LogIndex,
    /// How many shards rebuild the payload.
    pub(crate) data: u8,
}

/// Numbers of shards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct ShardSet([u128; 2]);

impl ShardSet {
    fn insert(&mut self, shard: u8) {
        self.0[usize::from(shard / 128)] |= 1 << (shard % 128);
    }

    fn extend(&mut self, other: ShardSet) {
        self.0[0] |= other.0[0];
        self.0[1] |= other.0[1];
    }

    fn len(self) -> u32 {
        self.0[0].count_ones() + self.0[1].count_ones()
    }
}

/// The shards of an entry in one place, by split. Empty where only the entry's identity is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Parts(BTreeMap<Split, ShardSet>);

impl Parts {
    fn insert(&mut self, split: Split, shard: u8) {
        assert!(0 < split.data, "a split into no shards");
        self.0.entry(split).or_default().insert(shard);
    }

    /// These parts and those.
    fn with(&self, other: &Parts) -> Parts {
        let mut sum = self.clone();
        for (split, shards) in &other.0 {
            sum.0.entry(*split).or_default().extend(*shards);
        }
        sum
    }

    /// Whether the payload can be rebuilt from them.
    fn are_enough(&self) -> bool {
        self.0.iter().any(|(split, shards)| u32::from(split.data) <= shards.len())
    }
}

/// What one voter has acknowledged of an entry.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Held<'a> {
    /// All of it.
    Whole,
    /// Parts of it.
    Parts(&'a Parts),
}

/// Whether every later leader can rebuild an entry, given what each voter has acknowledged of it; `None` is a voter that
/// has not acknowledged it. [replication-protocols §5.4]
pub(crate) fn recoverable<'a>(
    membership: &Membership,
    held: impl Fn(NodeId) -> Option<Held<'a>> + Copy,
) -> bool {
    let mut voters: Vec<NodeId> = membership.all_voters().collect();
    voters.sort_by_key(|&voter| held(voter).is_some()); // those with nothing first: they make the poorest quorums
    let lacks = !membership.has_quorum(|voter| held(voter).is_some());
    !lacks && !has_poor_quorum(membership, held, &mut Vec::new(), &voters, &Parts::default())
}

/// Whether a quorum that cannot rebuild the entry is made of the `chosen` voters, who hold `parts` together, and some of
/// the `rest`. A search with returns: a choice that can rebuild the entry still can with more voters.
fn has_poor_quorum<'a>(
    membership: &Membership,
    held: impl Fn(NodeId) -> Option<Held<'a>> + Copy,
    chosen: &mut Vec<NodeId>,
    rest: &[NodeId],
    parts: &Parts,
) -> bool {
    if membership.has_quorum(|voter| chosen.contains(&voter)) {
        return true;
    }
    let Some((&next, rest)) = rest.split_first() else { return false };
    if !membership.has_quorum(|voter| chosen.contains(&voter) || voter == next || rest.contains(&voter)) {
        return false;
    }
    let together = match held(next) {
        None => parts.clone(),
        Some(Held::Parts(more)) => parts.with(more),
        Some(Held::Whole) => return has_poor_quorum(membership, held, chosen, rest, parts),
    };
    let adds_nothing = together == *parts;
    if !together.are_enough() {
        chosen.push(next);
        let found = has_poor_quorum(membership, held, chosen, rest, &together);
        chosen.pop();
        if found || adds_nothing {
            return found; // a voter that adds nothing is in every poorest quorum
        }
    }
    has_poor_quorum(membership, held, chosen, rest, parts)
}

/// A leader's ledger: the members that hold an uncommitted entry in part, and what they hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Forms(BTreeMap<LogIndex, BTreeMap<NodeId, Parts>>);

impl Forms {
    /// The ledger of a new leader: its own log shows which entries it holds in part. Of other members it knows nothing
    /// yet: they have acknowledged nothing in its term. `uncommitted` are the entries after its commit index: a walk
    /// over the whole log would delay its first append.
    pub(crate) fn of_leader<'a>(
        me: NodeId,
        uncommitted: impl Iterator<Item = &'a Entry>,
        configurations: &Configurations,
    ) -> Forms {
        let mut forms = Forms::default();
        for entry in uncommitted.filter(|entry| entry.payload().is_none()) {
            let index = entry.id().index;
            let (epoch, _) = configurations.at(index);
            forms.note(index, me, entry.body().form(), *epoch);
        }
        forms
    }

    /// The member holds this form of the entry at `index`, besides what it holds already: forms only grow. `epoch` is
    /// the index of the configuration that counts there. [replication-protocols R4]
    pub(crate) fn note(&mut self, index: LogIndex, member: NodeId, form: Form, epoch: LogIndex) {
        let row = self.0.entry(index).or_default();
        match form {
            Form::Whole => drop(row.remove(&member)),
            Form::Shard { shard, data } => {
                row.entry(member).or_default().insert(Split { epoch, data }, shard)
            }
            Form::Missing => drop(row.entry(member).or_default()),
        }
        if row.is_empty() {
            self.0.remove(&index);
        }
    }

    /// Entries up to `index` are committed: the rule has nothing more to ask about them.
    pub(crate) fn committed(&mut self, index: LogIndex) {
        while self.0.first_key_value().is_some_and(|(at, _)| *at <= index) {
            self.0.pop_first();
        }
    }

    /// The end of what is recoverable in the log up to `upto`, given each voter's match index. [O3]
    pub(crate) fn recoverable_to(
        &self,
        upto: LogIndex,
        membership: &Membership,
        matched: impl Fn(NodeId) -> LogIndex + Copy,
    ) -> LogIndex {
        let is_lost = |&(index, row): &(&LogIndex, &BTreeMap<NodeId, Parts>)| {
            !recoverable(membership, |voter| {
                let acknowledged = *index <= matched(voter);
                acknowledged.then(|| row.get(&voter).map_or(Held::Whole, Held::Parts))
            })
        };
        let first_lost = self.0.range(..=upto).find(is_lost);
        first_lost.map_or(upto, |(index, _)| index.previous())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::{EntryHead, EntryKind};
    use crate::types::{EntryId, Stamp};
    use proptest::prelude::*;

    const EPOCH: LogIndex = LogIndex(3);

    #[test]
    fn a_set_of_shards_tells_all_numbers_apart() {
        let mut all = ShardSet::default();
        for (count, shard) in (1..).zip(0..=u8::MAX) {
            let mut one = ShardSet::default();
            one.insert(shard);
            all.extend(one);
            assert_eq!((one.len(), all.len()), (1, count), "shard {shard}");
        }
    }

    /// What a voter has acknowledged, as bits: for each split its shards.
    #[derive(Clone, Debug)]
    enum Bits {
        Nothing,
        Whole,
        Shards([u32; SPLITS.len()]),
    }

    /// The second differs from the first in its epoch only.
    const SPLITS: [Split; 4] = [
        Split { epoch: EPOCH, data: 2 },
        Split { epoch: LogIndex(9), data: 2 },
        Split { epoch: EPOCH, data: 3 },
        Split { epoch: EPOCH, data: 1 },
    ];

    impl Bits {
        fn parts(&self) -> Option<Option<Parts>> {
            match self {
                Bits::Nothing => None,
                Bits::Whole => Some(None),
                Bits::Shards(splits) => {
                    let mut parts = Parts::default();
                    for (split, bits) in SPLITS.iter().zip(splits) {
                        for shard in (0..32).filter(|shard| bits & (1 << shard) != 0) {
                            parts.insert(*split, shard);
                        }
                    }
                    Some(Some(parts))
                }
            }
        }
    }

    fn bits() -> impl Strategy<Value = Bits> {
        // Mostly one shard of one split, as a leader would send them; sometimes several, or of several splits.
        let one = (prop_oneof![6 => Just(0), 1 => Just(1), 3 => Just(2), 1 => Just(3)], 0..8_u32);
        prop_oneof![
            2 => Just(Bits::Nothing),
            2 => Just(Bits::Whole),
            6 => proptest::collection::vec(one, 0..3).prop_map(|shards| {
                let mut splits = [0; SPLITS.len()];
                for (split, shard) in shards {
                    splits[split] |= 1 << shard;
                }
                Bits::Shards(splits)
            }),
        ]
    }

    /// The rule by enumeration: each set of members is a mask; bit 0 is member 1.
    fn naive(sets: &[u32], held: &[Bits]) -> bool {
        let is_quorum = |mask: u32| sets.iter().all(|set| 2 * (mask & set).count_ones() > set.count_ones());
        let of = |mask: u32| held.iter().enumerate().filter(move |(at, _)| mask & (1 << at) != 0);
        let acknowledged = of(u32::MAX).filter(|(_, bits)| !matches!(bits, Bits::Nothing));
        let is_enough = |mask: u32| {
            let mut sum = [0; SPLITS.len()];
            for (_, bits) in of(mask) {
                match bits {
                    Bits::Nothing => {}
                    Bits::Whole => return true,
                    Bits::Shards(splits) => sum.iter_mut().zip(splits).for_each(|(sum, bits)| *sum |= bits),
                }
            }
            SPLITS.iter().zip(sum).any(|(split, bits)| u32::from(split.data) <= bits.count_ones())
        };
        is_quorum(acknowledged.map(|(at, _)| 1 << at).sum())
            && (0..1 << held.len()).all(|mask| !is_quorum(mask) || is_enough(mask))
    }

    fn members(mask: u32) -> Vec<NodeId> {
        (0..32).filter(|at| mask & (1 << at) != 0).map(|at| NodeId(at + 1)).collect()
    }

    fn by_search(sets: &[u32], held: &[Bits]) -> bool {
        let outgoing = sets.get(1).copied().unwrap_or_default();
        let membership =
            Membership { voters: members(sets[0]), outgoing: members(outgoing), ..Membership::default() };
        let parts: Vec<_> = held.iter().map(Bits::parts).collect();
        recoverable(&membership, |voter| {
            let held = parts[voter.0 as usize - 1].as_ref()?;
            Some(held.as_ref().map_or(Held::Whole, Held::Parts))
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn the_search_agrees_with_all_quorums_of_one_set(held in proptest::collection::vec(bits(), 1..=7)) {
            let all = (1 << held.len()) - 1;
            prop_assert_eq!(by_search(&[all], &held), naive(&[all], &held));
        }

        #[test]
        fn the_search_agrees_with_all_quorums_of_two_sets(
            held in proptest::collection::vec(bits(), 7),
            voters in 1..128_u32,
            outgoing in 1..128_u32,
        ) {
            prop_assert_eq!(by_search(&[voters, outgoing], &held), naive(&[voters, outgoing], &held));
        }

        #[test]
        fn the_ledger_ends_before_the_first_entry_that_is_lost(
            voters in 1..8_u32,
            outgoing in 0..8_u32,
            matched in proptest::collection::vec(0..6_u64, 3),
            noted in proptest::collection::vec((1..6_u64, 1..4_u64, 0..4_u8), 0..12),
            upto in 0..6_u64,
        ) {
            let (mut forms, mut twin) = (Forms::default(), alloc::vec![alloc::vec![Bits::Whole; 3]; 6]);
            for (index, member, what) in noted {
                let held = &mut twin[index as usize][member as usize - 1];
                let form = match what {
                    0 => Form::Whole,
                    1 => Form::Missing,
                    shard => Form::Shard { shard, data: 2 },
                };
                *held = match (&held, form) {
                    (_, Form::Whole) => Bits::Whole,
                    (Bits::Shards(splits), Form::Shard { shard, .. }) => {
                        Bits::Shards([splits[0] | 1 << shard, 0, 0, 0])
                    }
                    (_, Form::Shard { shard, .. }) => Bits::Shards([1 << shard, 0, 0, 0]),
                    (Bits::Shards(splits), Form::Missing) => Bits::Shards(*splits),
                    (_, Form::Missing) => Bits::Shards([0; 4]),
                };
                forms.note(LogIndex(index), NodeId(member), form, EPOCH);
            }
            let sets = if outgoing == 0 { alloc::vec![voters] } else { alloc::vec![voters, outgoing] };
            let is_lost = |index: u64| {
                let row = &twin[index as usize];
                let acknowledged = |at: usize| if index <= matched[at] { row[at].clone() } else { Bits::Nothing };
                let is_noted = row.iter().any(|held| !matches!(held, Bits::Whole));
                is_noted && !naive(&sets, &[acknowledged(0), acknowledged(1), acknowledged(2)])
            };
            let naive_end = (1..=upto).find(|index| is_lost(*index)).map_or(upto, |first| first - 1);
            let membership =
                Membership { voters: members(voters), outgoing: members(outgoing), ..Membership::default() };
            let of = |voter: NodeId| LogIndex(matched[voter.0 as usize - 1]);
            prop_assert_eq!(forms.recoverable_to(LogIndex(upto), &membership, of), LogIndex(naive_end));
            forms.committed(LogIndex(upto));
            prop_assert!(forms.0.keys().all(|index| upto < index.0));
        }
    }

    /// c whole copies and f single shards of a split into k suffice iff c ≥ F + 1 or c + f ≥ F + k: the closed form of
    /// replication-protocols §5.4, and with c = 1 or 0 the table of §5.2.
    #[test]
    fn single_shards_suffice_as_the_closed_form_says() {
        for voters in [1, 3, 5, 7] {
            let spare = voters / 2;
            for (data, split) in [(2, 0), (3, 2), (1, 3)] {
                for whole in 0..=voters {
                    for single in 0..=voters - whole {
                        let held = |at: usize| {
                            let mut splits = [0; SPLITS.len()];
                            splits[split] = 1 << at;
                            match at {
                                at if at < whole => Bits::Whole,
                                at if at < whole + single => Bits::Shards(splits),
                                _ => Bits::Nothing,
                            }
                        };
                        let held: Vec<Bits> = (0..voters).map(held).collect();
                        assert_eq!(
                            by_search(&[(1 << voters) - 1], &held),
                            spare < whole || spare + data <= whole + single,
                            "{voters} voters, {whole} whole, {single} of {data} shards"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn a_new_leader_knows_what_it_holds_in_part_itself() {
        let entry = |index: u64, form| {
            let (kind, stamp) = (EntryKind::Command, Stamp(0));
            let head = EntryHead { id: EntryId::new(1, index), kind, stamp };
            Entry::in_form(form, head, alloc::vec![7].into(), 0)
        };
        let shard = Form::Shard { shard: 1, data: 2 };
        let log = [entry(6, Form::Whole), entry(7, shard), entry(8, Form::Missing)];
        let (me, first) = (NodeId(1), Membership::new(members(0b111), Vec::new()));
        let configurations = Configurations::recover(first.clone(), None, Vec::new());
        let forms = Forms::of_leader(me, log.iter(), &configurations);
        assert_eq!(forms.0.keys().map(|index| index.0).collect::<Vec<_>>(), [7, 8]);
        let all = |_| LogIndex(8);
        assert_eq!(forms.recoverable_to(LogIndex(8), &first, all), LogIndex(8), "members 2 and 3 hold all");
        let two = |voter| if voter == NodeId(3) { LogIndex(0) } else { LogIndex(8) };
        assert_eq!(forms.recoverable_to(LogIndex(8), &first, two), LogIndex(6), "members 1 and 3 do not");
        assert_eq!(Forms::of_leader(me, log[..1].iter(), &configurations), Forms::default());
    }

    #[test]
    fn shards_that_are_the_same_count_once_and_numbers_go_to_255() {
        let mut shards = ShardSet::default();
        for shard in [0, 127, 128, 255, 255, 0] {
            shards.insert(shard);
        }
        assert_eq!(shards.len(), 4);
        let same = [Bits::Shards([1, 0, 0, 0]), Bits::Shards([1, 0, 0, 0]), Bits::Whole];
        assert!(!by_search(&[0b111], &same), "members 1 and 2 hold one shard of two");
    }
}

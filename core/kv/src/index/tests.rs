//! Goal: the index is a `BTreeMap` with ranks. Method: random changes to both, on keys that share prefixes of every
//! length, then the same queries to both.

use super::*;
use crate::run::RUN_MAX;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec::Vec;
use proptest::collection::vec;
use proptest::prelude::*;

/// A value whose weight is independent of its key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Weighty(u64);

impl Weigh for Weighty {
    fn weight(&self) -> u64 {
        self.0 % 3
    }
}

#[derive(Clone, Debug)]
enum Change {
    Upsert(Vec<u8>, u64),
    Update(Vec<u8>, u64),
    Remove(Vec<u8>),
    /// So many ascending or descending keys at once that nodes split, or empty and join.
    Run {
        first: u16,
        length: u16,
        descending: bool,
        remove: bool,
    },
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        vec(prop::sample::select(&[0u8, 1, b'a', 0xff]), 0..12),
        (0..2000u16).prop_map(numbered),
        (0..2000u16).prop_map(|n| format!("/registry/pods/{}/name-{n}", n % 7).into_bytes()),
    ]
}

fn numbered(n: u16) -> Vec<u8> {
    format!("run/{n:05}").into_bytes()
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        10 => (key(), 0..9u64).prop_map(|(key, value)| Change::Upsert(key, value)),
        3 => (key(), 0..9u64).prop_map(|(key, value)| Change::Update(key, value)),
        3 => key().prop_map(Change::Remove),
        2 => (0..2000u16, 0..400u16, any::<bool>(), any::<bool>()).prop_map(
            |(first, length, descending, remove)| Change::Run { first, length, descending, remove }
        ),
    ]
}

fn upsert(index: &mut Index<Weighty>, naive: &mut BTreeMap<Vec<u8>, Weighty>, key: Vec<u8>, value: u64) {
    let before = index.upsert(&key, |seen, slot| {
        assert_eq!(**seen, *key);
        core::mem::replace(slot, Weighty(value))
    });
    assert_eq!(before, naive.insert(key, Weighty(value)).unwrap_or_default());
}

fn make(index: &mut Index<Weighty>, naive: &mut BTreeMap<Vec<u8>, Weighty>, change: Change) {
    match change {
        Change::Upsert(key, value) => upsert(index, naive, key, value),
        Change::Update(key, value) => {
            let before = index.update(&key, |_, slot| core::mem::replace(slot, Weighty(value)));
            let slot = naive.get_mut(&key);
            assert_eq!(before, slot.map(|slot| core::mem::replace(slot, Weighty(value))));
        }
        Change::Remove(key) => assert_eq!(index.remove(&key), naive.remove(&key)),
        Change::Run { first, length, descending, remove } => {
            let numbers = first..first + length;
            let numbers: Vec<u16> = if descending { numbers.rev().collect() } else { numbers.collect() };
            for n in numbers {
                if remove {
                    assert_eq!(index.remove(&numbered(n)), naive.remove(&numbered(n)));
                } else {
                    upsert(index, naive, numbered(n), u64::from(n));
                }
            }
        }
    }
}

/// Checks the invariants of every node; returns the height.
fn check_shape<V: Weigh + Clone + Default>(node: &Node<V>, low: Option<&[u8]>, high: Option<&[u8]>) -> usize {
    let check_key = |key: &[u8], before: Option<&[u8]>| {
        assert!(before.is_none_or(|before| before < key), "keys ascend");
        assert!(
            low.is_none_or(|low| low <= key) && high.is_none_or(|high| key < high),
            "keys keep to bounds"
        );
    };
    match node {
        Node::Leaf(leaf) => {
            assert!(leaf.len() <= RUN_MAX);
            (0..leaf.len()).for_each(|i| check_key(leaf.key(i), i.checked_sub(1).map(|i| &**leaf.key(i))));
            1
        }
        Node::Branch(branch) => {
            assert!(branch.len() <= RUN_MAX && branch.len() > 0);
            assert!(branch.len() == 1 || branch.key(0) < branch.key(1), "the first key is below the second");
            let mut heights = (0..branch.len()).map(|i| {
                let key = |i: usize| (0 < i && i < branch.len()).then(|| &**branch.key(i));
                if let Some(bound) = key(i) {
                    check_key(bound, key(i - 1));
                }
                assert_eq!(branch.get(i).weight, branch.get(i).node.weight());
                check_shape(&branch.get(i).node, key(i).or(low), key(i + 1).or(high))
            });
            let height = heights.next().expect("at least one child");
            assert!(heights.all(|other| other == height), "all leaves are equally deep");
            height + 1
        }
    }
}

fn leaves<V>(node: &Node<V>) -> usize {
    match node {
        Node::Leaf(_) => 1,
        Node::Branch(branch) => branch.entries().iter().map(|(_, child)| leaves(&child.node)).sum(),
    }
}

fn entries(
    index: &Index<Weighty>,
    start: &[u8],
    end: Option<&[u8]>,
    most: usize,
    back: bool,
) -> Vec<(Vec<u8>, u64)> {
    let mut found = Vec::new();
    let visit = |key: &Key, value: &Weighty| {
        if found.len() == most {
            return ControlFlow::Break(());
        }
        found.push((key.to_vec(), value.0));
        ControlFlow::Continue(())
    };
    if back {
        index.walk_back(start, end, false, visit)
    } else {
        index.walk(start, end, false, visit)
    }
    found
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn an_index_is_a_btreemap_with_ranks(
        changes in vec(change(), 1..120),
        questions in vec((key(), key(), 0..50usize), 1..20),
    ) {
        let (mut index, mut naive) = (Index::new(), BTreeMap::new());
        for change in changes {
            make(&mut index, &mut naive, change);
        }
        check_shape(&index.root, None, None);
        prop_assert_eq!(index.entries(), naive.len() as u64);
        prop_assert_eq!(index.weight(), naive.values().map(Weigh::weight).sum::<u64>());
        for (start, end, most) in questions {
            prop_assert_eq!(index.get(&start).map(|(_, value)| value), naive.get(&start));
            for end in [None, Some(&*end)].into_iter().filter(|end| end.is_none_or(|end| end >= &*start)) {
                let upper = end.map_or(core::ops::Bound::Unbounded, core::ops::Bound::Excluded);
                let within = || naive.range::<[u8], _>((core::ops::Bound::Included(&*start), upper));
                let pair = |(key, value): (&Vec<u8>, &Weighty)| (key.clone(), value.0);
                prop_assert_eq!(index.weight_between(&start, end), within().map(|(_, v)| v.weight()).sum::<u64>());
                let ascending: Vec<_> = within().take(most).map(pair).collect();
                let descending: Vec<_> = within().rev().take(most).map(pair).collect();
                prop_assert_eq!(entries(&index, &start, end, most, false), ascending);
                prop_assert_eq!(entries(&index, &start, end, most, true), descending);
            }
        }
    }

    #[test]
    fn heavy_entries_are_never_left_out(changes in vec(change(), 1..60), back in any::<bool>()) {
        let (mut index, mut naive) = (Index::new(), BTreeMap::new());
        changes.into_iter().for_each(|change| make(&mut index, &mut naive, change));
        let mut seen = 0;
        let visit = |_: &Key, value: &Weighty| { seen += value.weight(); ControlFlow::Continue(()) };
        if back { index.walk_back(&[], None, true, visit) } else { index.walk(&[], None, true, visit) }
        prop_assert_eq!(seen, index.weight());
    }

    #[test]
    fn changing_a_stretch_changes_what_has_weight_there_and_leaves_clones_as_they_were(
        changes in vec(change(), 1..60),
        stretches in vec((key(), key(), any::<bool>(), 0..200usize), 1..8),
    ) {
        let (mut index, mut naive) = (Index::new(), BTreeMap::new());
        changes.into_iter().for_each(|change| make(&mut index, &mut naive, change));
        let (clone, as_was) = (index.clone(), naive.clone());
        for (start, end, is_open, most) in stretches {
            let end = (!is_open && end >= start).then_some(&*end);
            let upper = end.map_or(core::ops::Bound::Unbounded, core::ops::Bound::Excluded);
            let (mut seen, mut met) = (0, Vec::new());
            index.change_from(&start, end, |key, value| {
                if seen == most {
                    return ControlFlow::Break(());
                }
                if value.weight() > 0 {
                    seen += 1;
                    met.push(key.to_vec());
                    *value = Weighty(0);
                }
                ControlFlow::Continue(())
            });
            let within = naive.range_mut::<[u8], _>((core::ops::Bound::Included(&*start), upper));
            let heavy = within.filter(|(_, value)| value.weight() > 0).take(most);
            let expected: Vec<Vec<u8>> = heavy
                .map(|(key, value)| {
                    *value = Weighty(0);
                    key.clone()
                })
                .collect();
            prop_assert_eq!(met, expected);
            check_shape(&index.root, None, None);
            prop_assert_eq!(index.weight(), naive.values().map(Weigh::weight).sum::<u64>());
        }
        let as_was: Vec<_> = as_was.into_iter().map(|(key, value)| (key, value.0)).collect();
        prop_assert_eq!(entries(&clone, &[], None, usize::MAX, false), as_was);
    }

    #[test]
    fn a_clone_does_not_see_later_changes(before in vec(change(), 1..60), after in vec(change(), 1..60)) {
        let (mut index, mut naive) = (Index::new(), BTreeMap::new());
        before.into_iter().for_each(|change| make(&mut index, &mut naive, change));
        let (clone, as_was) = (index.clone(), naive.clone());
        after.into_iter().for_each(|change| make(&mut index, &mut naive, change));
        check_shape(&clone.root, None, None);
        let as_was: Vec<_> = as_was.into_iter().map(|(key, value)| (key, value.0)).collect();
        prop_assert_eq!(entries(&clone, &[], None, usize::MAX, false), as_was);
    }
}

#[derive(Clone, Debug)]
struct Sweep {
    first: usize,
    count: usize,
    step: usize,
    descending: bool,
    remove: bool,
}

fn sweep() -> impl Strategy<Value = Sweep> {
    (0..20_000usize, 0..6000usize, 1..4usize, any::<bool>(), any::<bool>())
        .prop_map(|(first, count, step, descending, remove)| Sweep { first, count, step, descending, remove })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    /// Sweeps back and forth over the same keys make whole branches split, empty and join.
    #[test]
    fn a_tall_index_keeps_its_shape(sweeps in vec(sweep(), 1..25)) {
        let (mut index, mut naive) = (Index::new(), BTreeMap::new());
        for Sweep { first, count, step, descending, remove } in sweeps {
            let numbers = (first..20_000).step_by(step).take(count);
            let numbers: Vec<usize> = if descending { numbers.rev().collect() } else { numbers.collect() };
            for n in numbers {
                let key = numbered(n as u16);
                if remove {
                    prop_assert_eq!(index.remove(&key), naive.remove(&key));
                } else {
                    upsert(&mut index, &mut naive, key, 1);
                }
            }
            check_shape(&index.root, None, None);
        }
        let found = entries(&index, &[], None, usize::MAX, false);
        prop_assert!(found.iter().map(|(key, _)| key).eq(naive.keys()));
    }
}

/// Keys in ascending order, in descending order, and in ascending order at two places between keys that were there before:
/// each way, all leaves but a few are full.
#[test]
fn keys_that_come_in_order_fill_their_leaves() {
    let ascending = |key: &str| (0..64 * 100u32).map(|n| format!("{key}/{n:05}")).collect::<Vec<_>>();
    let descending = || ascending("b").into_iter().rev().collect::<Vec<_>>();
    let at_two_places = || ascending("b").into_iter().zip(ascending("d")).flat_map(|(b, d)| [b, d]).collect();
    let around = || ["a", "c", "e"].into_iter().flat_map(|key| (0..40).map(move |n| format!("{key}/{n:02}")));
    for (keys, before) in [
        (ascending("b"), Vec::new()),
        (descending(), Vec::new()),
        (ascending("b"), around().collect()),
        (at_two_places(), around().collect::<Vec<_>>()),
    ] {
        let mut index = Index::new();
        for key in before.iter().chain(&keys) {
            index.upsert(key.as_bytes(), |_, slot| *slot = Weighty(1));
        }
        check_shape(&index.root, None, None);
        let (full, most) = (keys.len() / RUN_MAX, keys.len() / RUN_MAX + 6);
        let found = leaves(&index.root);
        assert!((full..=most).contains(&found), "{found} leaves for {full} full ones, from {}", keys[0]);
    }
}

#[test]
fn an_index_that_shrinks_gives_its_nodes_back() {
    let mut index = Index::new();
    (0..10_000).for_each(|n| index.upsert(&numbered(n), |_, slot| *slot = Weighty(1)));
    for n in (0..10_000).filter(|n| n % 100 != 0) {
        assert_eq!(index.remove(&numbered(n)), Some(Weighty(1)));
    }
    assert_eq!(index.weight(), 100);
    assert!(
        leaves(&index.root) <= 100 / (super::node::NODE_LOW / 2),
        "{} leaves hold 100 entries",
        leaves(&index.root)
    );
    for n in 0..10_000 {
        index.remove(&numbered(n));
    }
    assert!(matches!(&index.root, Node::Leaf(leaf) if leaf.len() == 0), "nothing is left but an empty leaf");
}

/// An index of so many keys, built at once.
fn built(keys: u16) -> Index<Weighty> {
    let mut builder = Builder::default();
    (0..keys).for_each(|n| builder.push(Key::from(numbered(n)), Weighty(1)));
    builder.finish()
}

#[test]
fn an_index_that_is_built_at_once_has_full_nodes_at_every_size() {
    for keys in (0..300).chain([2999, 3000, 3001, 20_000]) {
        let index = built(keys);
        check_shape(&index.root, None, None);
        assert_eq!((index.entries(), index.weight()), (u64::from(keys), u64::from(keys)));
        let most = (usize::from(keys) / (RUN_MAX / 2)).max(1);
        assert!(leaves(&index.root) <= most, "{} leaves hold {keys} keys", leaves(&index.root));
        assert!((0..keys).all(|n| index.get(&numbered(n)).is_some()));
    }
}

#[test]
fn a_leaf_that_empties_is_gone_at_once_wherever_it_stands() {
    let keys = 300;
    let bounds: Vec<usize> = match &built(keys).root {
        Node::Branch(branch) => (0..branch.len()).map(|i| branch.get(i).node.len()).collect(),
        Node::Leaf(_) => panic!("several leaves"),
    };
    let mut first = 0;
    for (place, &length) in bounds.iter().enumerate() {
        let mut index = built(keys);
        for n in first..first + length {
            index.remove(&numbered(n as u16)).expect("it is there");
        }
        check_shape(&index.root, None, None);
        assert_eq!(leaves(&index.root), bounds.len() - 1, "leaf {place} of {}", bounds.len());
        first += length;
    }
    assert_eq!(first, usize::from(keys));
}

#[test]
fn a_group_is_found_together_and_what_is_not_there_is_left_out() {
    let mut index = Index::new();
    (0..3000u16)
        .filter(|n| n % 2 == 0)
        .for_each(|n| index.upsert(&numbered(n), |_, slot| *slot = Weighty(u64::from(n))));
    let found = |numbers: &[u16]| {
        let keys: Vec<Vec<u8>> = numbers.iter().map(|&n| numbered(n)).collect();
        let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
        let mut found = Vec::new();
        let seen = index.glance_group(&keys);
        found.extend(seen.into_iter().flatten().map(|(key, value)| (key.to_vec(), value.0)));
        let got = index.get_group(&keys[..keys.len().min(GROUP_MAX)], seen);
        assert!(got.into_iter().flatten().map(|value| value.0).eq(found.iter().map(|(_, value)| *value)));
        found
    };
    let even = |n: u16| (numbered(n), u64::from(n));
    assert_eq!(found(&[]), []);
    assert_eq!(found(&[2998, 0, 7, 1500]), [even(2998), even(0), even(1500)]);
    let many: Vec<u16> = (0..1000u32).map(|n| (n * 1234 % 3000 / 2 * 2) as u16).collect();
    for group in many.chunks(GROUP_MAX + 1) {
        let looked_for = &group[..group.len().min(GROUP_MAX)];
        assert_eq!(found(group), looked_for.iter().map(|&n| even(n)).collect::<Vec<_>>());
    }
    let empty = Index::<Weighty>::new();
    assert!(empty.glance_group(&[b"a"]).into_iter().flatten().next().is_none(), "nothing is there");
}

proptest! {
    /// Goal: ways that a group was found on never change a result. Method: ways of one group, gone by changes of another,
    /// between changes that move the keys, so that most ways are wrong.
    #[test]
    fn a_wrong_way_leads_to_the_right_key(
        first in vec(change(), 0..40),
        between in vec(change(), 0..6),
        looked_for in vec(key(), 0..GROUP_MAX),
        changed in vec((key(), 0..9u64), 0..GROUP_MAX),
    ) {
        let (mut index, mut naive) = (Index::new(), BTreeMap::new());
        first.into_iter().for_each(|change| make(&mut index, &mut naive, change));
        let keys: Vec<&[u8]> = looked_for.iter().map(Vec::as_slice).collect();
        let (_, paths) = index.glance_on_paths(&keys);
        for change in between {
            index.go_next(paths);
            make(&mut index, &mut naive, change);
        }
        index.go_next(paths);
        let same = looked_for.iter().take(changed.len() / 2).map(|key| (key.clone(), 1));
        for (key, value) in same.chain(changed) {
            upsert(&mut index, &mut naive, key, value);
        }
        prop_assert_eq!(index.entries(), naive.len() as u64);
        for (key, value) in &naive {
            prop_assert_eq!(index.get(key).map(|(_, value)| value), Some(value));
        }
        check_shape(&index.root, None, None);
    }
}

#[test]
fn a_way_is_gone_by_the_change_that_it_was_found_for() {
    let mut index = Index::new();
    (0..2000).for_each(|n| index.upsert(&numbered(n), |_, slot| *slot = Weighty(u64::from(n))));
    let keys = [7, 77, 777, 1777].map(numbered);
    let (_, paths) = index.glance_on_paths(&keys.each_ref().map(Vec::as_slice));
    for (key, path) in keys.iter().zip(paths) {
        let (mut node, mut path) = (&index.root, path);
        loop {
            let (i, below) = path.split();
            match node {
                Node::Branch(branch) => {
                    assert!(branch.is_floor(i, key) || **branch.key(i) == **key, "{i}");
                    node = &branch.get(i).node;
                }
                Node::Leaf(leaf) => break assert!(leaf.is_at(i, key), "{i}"),
            }
            path = below;
        }
    }
    index.go_next(paths);
    for (gone, key) in keys.iter().enumerate() {
        assert_eq!(index.paths_gone, gone);
        index.upsert(key, |_, _| ());
    }
}

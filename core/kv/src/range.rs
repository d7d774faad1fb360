//! Range: reading keys, now or as of an older revision.
//!
//! Rule:  pick the keys of the range at the revision, drop those that fail the revision filters, sort, cut at the
//!        limit. `count` is taken before the filters. [etcd rpc.proto, RangeRequest]
//! Cost:  with n keys in the store, k in the range and `limit` requested:
//!        - by key, either direction, no filters, now: O(log n + limit), the count included;
//!        - the same at an older revision: O(log n + limit) for the pairs; the count walks either the range, or the
//!          changes made since that revision if those are few;
//!        - filters or another order: O(k), and O(log limit) for each key that passes.
//!
//! A [`Reading`] continues where its last slice ended; the store must not change between two slices.
//! Knows nothing of: writes, transactions, limits on the cost of a read.

use crate::api::{
    Error, Key, KeyRange, KeyValue, Range, RangeResult, Revision, SortOrder, SortTarget, Value,
};
use crate::history::{History, Version};
use crate::index::Weigh;
use crate::span::Span;
use crate::store::Store;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::ops::ControlFlow;

/// One lookup costs about as much as walking over this many keys.
const WALK_PER_LOOKUP: u64 = 16;

/// Most changes that a count walks back over.
const COUNT_BACK_MAX: u64 = 256;

/// Units for sorting one pair into an order other than by key.
pub(crate) const SORT_UNITS: u64 = 4;

/// Bytes of a pair besides its key and value: the struct, and at least 10 bytes of tags and lengths in the response.
/// Key and value are shared with the store, but the pair may be their last holder.
const PAIR_BYTES: usize = size_of::<KeyValue>() + 10;

/// Further bytes of a pair while it is being sorted.
const SORTED_BYTES: usize = size_of::<((Rank, Key), KeyValue)>();

/// Bytes that a pair counts as while an answer is gathered.
pub(crate) fn pair_bytes(kv: &KeyValue) -> usize {
    kv.key.len() + kv.value.len() + PAIR_BYTES
}

/// A range read in progress.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    range: Range,
    /// Limit on the bytes of gathered pairs. [`pair_bytes`]
    bytes_max: usize,
    bytes: usize,
    /// Keys visited so far, including those that were not live at the revision.
    looked_at: u64,
    stage: Stage,
    /// Where the next slice begins.
    resume: Option<Key>,
    /// Keys of the range at its revision; complete from the start, unless the walk counts.
    count: u64,
    /// Pairs that passed the filters.
    matched: u64,
    kvs: Vec<KeyValue>,
    /// The first pairs so far, in an order other than by key.
    sorted: BTreeMap<(Rank, Key), KeyValue>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Begin,
    /// `counts`: the count is not known otherwise, so the walk goes to the end of the range.
    Walk {
        counts: bool,
    },
    /// The walk is over; the sorted pairs move into the answer.
    Gather,
}

/// The sort key of a pair. One read uses one of the variants.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Number(i64),
    NumberDown(Reverse<i64>),
    Value(ByBytes),
    ValueDown(Reverse<ByBytes>),
}

/// A value, ordered by its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ByBytes(Value);

impl Ord for ByBytes {
    fn cmp(&self, other: &ByBytes) -> core::cmp::Ordering {
        self.0.as_ref().cmp(other.0.as_ref())
    }
}

impl PartialOrd for ByBytes {
    fn partial_cmp(&self, other: &ByBytes) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Reading {
    /// A read that has not begun. It is refused as soon as its pairs are seen to take more than `bytes_max` bytes.
    pub(crate) fn new(range: Range, bytes_max: usize) -> Reading {
        Reading {
            range,
            bytes_max,
            bytes: 0,
            looked_at: 0,
            stage: Stage::Begin,
            resume: None,
            count: 0,
            matched: 0,
            kvs: Vec::new(),
            sorted: BTreeMap::new(),
        }
    }

    /// Bytes of pairs gathered so far.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Keys visited so far.
    pub(crate) fn looked_at(&self) -> u64 {
        self.looked_at
    }

    /// Continues until the read is answered or the allowance is used up.
    pub(crate) fn step(&mut self, store: &Store, allowance: &mut i64) -> Option<Result<RangeResult, Error>> {
        if self.stage == Stage::Begin {
            match self.begin(store, allowance) {
                Ok(None) => {}
                Ok(Some(result)) => return Some(Ok(result)),
                Err(error) => return Some(Err(error)),
            }
        }
        if let Stage::Walk { counts } = self.stage {
            match self.walk(store, counts, allowance) {
                Ok(true) => self.stage = Stage::Gather,
                Ok(false) => return None,
                Err(error) => return Some(Err(error)),
            }
        }
        self.kvs.reserve_exact(self.sorted.len());
        while let Some((_, kv)) = self.sorted.pop_first() {
            self.bytes -= SORTED_BYTES;
            self.kvs.push(kv);
            if !spend(allowance, 1) && !self.sorted.is_empty() {
                return None;
            }
        }
        let kvs = core::mem::take(&mut self.kvs);
        let found = if is_plain(&self.range) { self.count } else { self.matched };
        let more = !self.range.count_only && found > kvs.len() as u64;
        Some(Ok(self.result(store, kvs, more)))
    }

    /// Checks the revision, counts, and answers at once a read that needs no walk.
    fn begin(&mut self, store: &Store, allowance: &mut i64) -> Result<Option<RangeResult>, Error> {
        let range = &self.range;
        store.judge_revision(range)?;
        if let Some(result) = store.read_one(range) {
            spend(allowance, 1);
            return Ok(Some(result));
        }
        let (view, span) = (View::of(store, range), range.keys.span());
        let known = view.count(span, allowance);
        self.count = known.unwrap_or(0);
        if range.count_only && known.is_some() {
            return Ok(Some(self.result(store, Vec::new(), false)));
        }
        if is_plain(range) && !range.count_only && known.is_some() {
            let wanted = usize::try_from(self.count).unwrap_or(usize::MAX).min(limit(range));
            if wanted.saturating_mul(PAIR_BYTES) > self.bytes_max {
                return Err(Error::AnswerTooLarge);
            }
            self.kvs.reserve_exact(wanted);
        }
        self.stage = Stage::Walk { counts: known.is_none() };
        Ok(None)
    }

    /// Continues the walk; returns whether it is over.
    fn walk(&mut self, store: &Store, counts: bool, allowance: &mut i64) -> Result<bool, Error> {
        let Reading { range, bytes_max, bytes, looked_at, resume, count, matched, kvs, sorted, .. } = self;
        let (view, limit) = (View::of(store, range), limit(range));
        let by_key = range.target == SortTarget::Key;
        let (plain, backwards) = (is_plain(range), by_key && range.order == SortOrder::Descend);
        let mut too_large = false;
        let is_over = store.walk_some(
            &range.keys,
            resume,
            backwards,
            view.as_of.is_none(),
            allowance,
            |key, history, left| {
                *looked_at += 1;
                let Some(version) = view.version(history) else { return ControlFlow::Continue(()) };
                *count += u64::from(counts);
                if range.count_only || !passes(version, range) {
                    return ControlFlow::Continue(());
                }
                *matched += 1;
                if by_key && kvs.len() == limit {
                    // One more than the limit: enough to know that there are more.
                    return if counts { ControlFlow::Continue(()) } else { ControlFlow::Break(()) };
                }
                let kv = pair(store, range, key, version);
                *bytes += pair_bytes(&kv);
                spend(left, 1);
                if by_key {
                    kvs.push(kv);
                } else {
                    spend(left, SORT_UNITS + units_to_rank(range, version, sorted.len()));
                    *bytes += SORTED_BYTES;
                    sorted.insert((rank(store, range, key, version), key.clone()), kv);
                    if sorted.len() > limit
                        && let Some((_, last)) = sorted.pop_last()
                    {
                        *bytes -= pair_bytes(&last) + SORTED_BYTES;
                    }
                }
                too_large = *bytes > *bytes_max;
                if too_large || plain && !counts && kvs.len() == limit {
                    return ControlFlow::Break(());
                }
                ControlFlow::Continue(())
            },
        );
        if too_large { Err(Error::AnswerTooLarge) } else { Ok(is_over) }
    }

    fn result(&self, store: &Store, kvs: Vec<KeyValue>, more: bool) -> RangeResult {
        RangeResult { kvs, more, count: self.count as i64, revision: store.changing_revision() }
    }
}

/// Subtracts units from an allowance; returns whether any are left. A negative allowance is the amount overspent.
pub(crate) fn spend(allowance: &mut i64, units: u64) -> bool {
    *allowance = allowance.saturating_sub_unsigned(units);
    *allowance > 0
}

/// Whole KiB of so many bytes: the units for reading or writing them.
pub(crate) fn kib(bytes: usize) -> u64 {
    (bytes / 1024) as u64
}

/// The most pairs requested.
fn limit(range: &Range) -> usize {
    usize::try_from(range.limit).ok().filter(|&limit| limit > 0).unwrap_or(usize::MAX)
}

/// Whether the read wants all pairs of the range, sorted by key.
pub(crate) fn is_plain(range: &Range) -> bool {
    range.target == SortTarget::Key && !has_filters(range)
}

fn pair(store: &Store, range: &Range, key: &Key, version: &Version) -> KeyValue {
    let empty = &store.empty;
    if range.keys_only { version.to_bare(key, empty) } else { version.to_key_value(key, empty) }
}

/// Units of a slice for sorting a value into so many others, as if it began like each one it is compared with.
fn units_to_rank(range: &Range, version: &Version, sorted: usize) -> u64 {
    if range.target != SortTarget::Value {
        return 0;
    }
    kib(version.value_len()) * u64::from(1 + (sorted + 1).ilog2())
}

/// Ties are in key order, in both directions, so that every member answers the same.
fn rank(store: &Store, range: &Range, key: &Key, version: &Version) -> Rank {
    let number = match range.target {
        SortTarget::Version => version.life().version,
        SortTarget::Create => version.life().create_revision.0,
        SortTarget::Mod => version.mod_revision.0,
        SortTarget::Key => 0,
        SortTarget::Value => {
            let value = ByBytes(version.to_key_value(key, &store.empty).value);
            return match range.order {
                SortOrder::Descend => Rank::ValueDown(Reverse(value)),
                SortOrder::None | SortOrder::Ascend => Rank::Value(value),
            };
        }
    };
    match range.order {
        SortOrder::Descend => Rank::NumberDown(Reverse(number)),
        SortOrder::None | SortOrder::Ascend => Rank::Number(number),
    }
}

impl Store {
    /// Checks that a revision can be read.
    pub(crate) fn judge_revision(&self, range: &Range) -> Result<(), Error> {
        if range.revision > self.changing_revision() {
            return Err(Error::FutureRevision);
        }
        if range.revision > Revision::NONE && range.revision < self.compacted {
            return Err(Error::Compacted);
        }
        Ok(())
    }

    /// Reads a single key, the most frequent read of all, with one lookup for both pair and count. `None` for a range
    /// of keys. The revision must be readable.
    pub(crate) fn read_one(&self, range: &Range) -> Option<RangeResult> {
        let Span::One(key) = range.keys.span() else { return None };
        let found = View::of(self, range).one(key);
        let count = i64::from(found.is_some());
        let found = found.filter(|(_, version)| !range.count_only && passes(version, range));
        let kvs = found.map(|(key, version)| pair(self, range, key, version)).into_iter().collect();
        Some(RangeResult { kvs, more: false, count, revision: self.changing_revision() })
    }

    /// Visits the entries of a range, from where the last slice ended, until `visit` breaks or the allowance is used
    /// up. Each entry takes one unit, and `visit` may take more. Returns whether the walk is over; if not, `resume` is
    /// the next entry.
    pub(crate) fn walk_some<'a>(
        &'a self,
        keys: &KeyRange,
        resume: &mut Option<Key>,
        backwards: bool,
        live_only: bool,
        allowance: &mut i64,
        mut visit: impl FnMut(&'a Key, &'a History, &mut i64) -> ControlFlow<()>,
    ) -> bool {
        let from = resume.take();
        let visit = |key: &'a Key, history: &'a History| {
            if *allowance <= 0 {
                *resume = Some(key.clone());
                return ControlFlow::Break(());
            }
            *allowance -= 1;
            visit(key, history, allowance)
        };
        match keys.span() {
            Span::One(key) => {
                let mut visit = visit;
                let _ = self
                    .index
                    .get(key)
                    .map_or(ControlFlow::Continue(()), |(key, history)| visit(key, history));
            }
            Span::Many { end: Some(end), start } if end <= start => {}
            Span::Many { start, end } if backwards => {
                // The entry `resume` is still to be visited, and the end of a walk is exclusive.
                let bound = from.map(|key| [&*key, &[0]].concat());
                self.index.walk_back(start, bound.as_deref().or(end), live_only, visit);
            }
            Span::Many { start, end } => {
                self.index.walk(from.as_deref().unwrap_or(start), end, live_only, visit);
            }
        }
        resume.is_none()
    }

    /// Live keys of a span, without a walk.
    pub(crate) fn count_now(&self, span: Span<'_>) -> u64 {
        match span {
            Span::One(key) => self.index.get(key).map_or(0, |(_, history)| history.weight()),
            Span::Many { end: Some(end), start } if end <= start => 0,
            Span::Many { start, end } => self.index.weight_between(start, end),
        }
    }
}

/// The store as of a revision; `None` is now, with the writes of a transaction in progress.
#[derive(Clone, Copy)]
struct View<'a> {
    store: &'a Store,
    as_of: Option<Revision>,
}

impl<'a> View<'a> {
    fn of(store: &'a Store, range: &Range) -> View<'a> {
        let is_old = range.revision > Revision::NONE && range.revision < store.changing_revision();
        View { store, as_of: is_old.then_some(range.revision) }
    }

    fn version(&self, history: &'a History) -> Option<&'a Version> {
        match self.as_of {
            Some(revision) => self.store.versions(history).at(revision),
            None => history.live(),
        }
    }

    fn one(&self, key: &[u8]) -> Option<(&'a Key, &'a Version)> {
        let (key, history) = self.store.index.get(key)?;
        self.version(history).map(|version| (key, version))
    }

    /// The number of keys, if it is known without a walk.
    fn count(&self, span: Span<'_>, allowance: &mut i64) -> Option<u64> {
        spend(allowance, 1);
        let now = self.store.count_now(span);
        let Some(revision) = self.as_of else { return Some(now) };
        let changes = self.store.changes.start_of(revision.next());
        let since = self.store.changes.end() - changes;
        if since * WALK_PER_LOOKUP >= now || since > COUNT_BACK_MAX {
            return None;
        }
        spend(allowance, since * WALK_PER_LOOKUP);
        Some(self.count_back(span, now, revision, changes))
    }

    /// From the count now to the count then, using the keys changed since.
    fn count_back(&self, span: Span<'_>, now: u64, revision: Revision, changes: u64) -> u64 {
        let touched = self.store.changes.keys_from(changes).filter(|key| span.contains(key));
        let mut count = now;
        for key in touched.collect::<BTreeSet<_>>() {
            let Some((_, history)) = self.store.index.get(key) else { continue };
            count -= u64::from(history.live().is_some());
            count += u64::from(self.store.versions(history).at(revision).is_some());
        }
        count
    }
}

fn has_filters(range: &Range) -> bool {
    let filters = [
        range.min_mod_revision,
        range.max_mod_revision,
        range.min_create_revision,
        range.max_create_revision,
    ];
    filters.iter().any(|&bound| bound != Revision::NONE)
}

/// Bounds are inclusive, and 0 is no bound.
fn passes(version: &Version, range: &Range) -> bool {
    let within = |revision: Revision, min: Revision, max: Revision| {
        (min == Revision::NONE || min <= revision) && (max == Revision::NONE || revision <= max)
    };
    within(version.mod_revision, range.min_mod_revision, range.max_mod_revision)
        && ((range.min_create_revision, range.max_create_revision) == (Revision::NONE, Revision::NONE)
            || within(version.life().create_revision, range.min_create_revision, range.max_create_revision))
}

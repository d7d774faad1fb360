//! Range: reading keys, now or as of an older revision.
//!
//! Rule:  pick the keys of the range at the revision, drop what the revision filters drop, sort, cut at the limit.
//!        `count` is taken before the filters. [etcd rpc.proto, RangeRequest]
//! Cost:  with n keys in the store and k in the range, of which `limit` are wanted:
//!        - by key, either direction, no filters, now: O(log n + limit), the count included;
//!        - the same at an older revision: O(log n + limit) for the pairs; the count walks either the range, or the
//!          changes made since that revision if those are few;
//!        - filters or another order: O(k), and a sort of what is wanted only.
//!
//! Knows nothing of: writes, transactions.

use crate::api::{Error, Key, Range, RangeResult, Revision, SortOrder, SortTarget};
use crate::history::{History, Version};
use crate::index::Weigh;
use crate::span::Span;
use crate::store::Store;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::ops::ControlFlow;

/// Looking one key up costs about as much as walking over this many.
const WALK_PER_LOOKUP: u64 = 16;

type Match<'a> = (&'a Key, &'a Version);

impl Store {
    /// Reads a range; within a transaction, with the writes made so far.
    pub(crate) fn range(&self, range: &Range) -> Result<RangeResult, Error> {
        let current = self.changing_revision();
        if range.revision > current {
            return Err(Error::FutureRevision);
        }
        if range.revision > 0 && range.revision < self.compacted && !self.forgets_late() {
            return Err(Error::Compacted);
        }
        let is_old = range.revision > 0 && range.revision < current;
        let view = View { store: self, as_of: is_old.then_some(range.revision) };

        let span = range.keys.span();
        if let Span::One(key) = span {
            // The most frequent read of all looks its key up once, not once more for the count.
            let found = view.one(key);
            let count = found.iter().count();
            let matches = found.filter(|(_, version)| !range.count_only && passes(version, range));
            return Ok(self.answer(range, matches, false, count as u64));
        }
        let count = view.count(span);
        if range.count_only {
            return Ok(self.answer(range, [], false, count));
        }
        let limit = usize::try_from(range.limit).ok().filter(|&limit| limit > 0).unwrap_or(usize::MAX);
        if range.target == SortTarget::Key && !has_filters(range) {
            let matches = view.first(span, limit, range.order == SortOrder::Descend);
            let more = count > matches.len() as u64;
            return Ok(self.answer(range, matches, more, count));
        }
        let mut matches = view.filtered(span, range);
        let more = matches.len() > limit;
        sort_first(&mut matches, range, limit);
        Ok(self.answer(range, matches, more, count))
    }

    fn answer<'a>(
        &'a self,
        range: &Range,
        matches: impl IntoIterator<Item = Match<'a>>,
        more: bool,
        count: u64,
    ) -> RangeResult {
        let key_value = |(key, version): Match<'_>| {
            let empty = &self.empty;
            if range.keys_only { version.to_bare(key, empty) } else { version.to_key_value(key, empty) }
        };
        let kvs = matches.into_iter().map(key_value).collect();
        RangeResult { kvs, more, count: count as i64, revision: self.changing_revision() }
    }

    /// Visits the keys of a span that live now, in ascending order, until told to stop.
    pub(crate) fn each_live<'a>(
        &'a self,
        span: Span<'_>,
        mut visit: impl FnMut(&'a Key, &'a Version) -> ControlFlow<()>,
    ) {
        View { store: self, as_of: None }.each(span, false, |(key, version)| visit(key, version));
    }
}

/// The store as of a revision; `None` is now, with the writes of a transaction under way.
#[derive(Clone, Copy)]
struct View<'a> {
    store: &'a Store,
    as_of: Option<Revision>,
}

impl<'a> View<'a> {
    fn version(&self, history: &'a History) -> Option<&'a Version> {
        match self.as_of {
            Some(revision) => history.at(revision),
            None => history.live(),
        }
    }

    fn one(&self, key: &[u8]) -> Option<Match<'a>> {
        let (key, history) = self.store.index.get(key)?;
        self.version(history).map(|version| (key, version))
    }

    /// Visits the pairs of a span in the order of keys, until told to stop.
    fn each(&self, span: Span<'_>, backwards: bool, mut visit: impl FnMut(Match<'a>) -> ControlFlow<()>) {
        let index = &self.store.index;
        let visit_history = |key: &'a Key, history: &'a History| match self.version(history) {
            Some(version) => visit((key, version)),
            None => ControlFlow::Continue(()),
        };
        // What lives now tells nothing about older revisions.
        let live_only = self.as_of.is_none();
        match span {
            Span::One(key) => {
                let _ = self.one(key).map_or(ControlFlow::Continue(()), visit);
            }
            Span::Many { end: Some(end), start } if end <= start => {}
            Span::Many { start, end } if backwards => index.walk_back(start, end, live_only, visit_history),
            Span::Many { start, end } => index.walk(start, end, live_only, visit_history),
        }
    }

    fn first(&self, span: Span<'_>, limit: usize, backwards: bool) -> Vec<Match<'a>> {
        let mut matches = Vec::new();
        self.each(span, backwards, |found| {
            matches.push(found);
            if matches.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        matches
    }

    fn filtered(&self, span: Span<'_>, range: &Range) -> Vec<Match<'a>> {
        let mut matches = Vec::new();
        self.each(span, false, |found| {
            if passes(found.1, range) {
                matches.push(found);
            }
            ControlFlow::Continue(())
        });
        matches
    }

    fn count(&self, span: Span<'_>) -> u64 {
        let Some(revision) = self.as_of else { return self.count_now(span) };
        let now = self.count_now(span);
        let changes = self.store.changes.start_of(revision + 1);
        if (self.store.changes.end() - changes) * WALK_PER_LOOKUP < now {
            return self.count_back(span, now, revision, changes);
        }
        let mut count = 0;
        self.each(span, false, |_| {
            count += 1;
            ControlFlow::Continue(())
        });
        count
    }

    fn count_now(&self, span: Span<'_>) -> u64 {
        match span {
            Span::One(key) => self.store.index.get(key).map_or(0, |(_, history)| history.weight()),
            Span::Many { end: Some(end), start } if end <= start => 0,
            Span::Many { start, end } => self.store.index.weight_between(start, end),
        }
    }

    /// From the count now to the count then, by way of the keys changed since.
    fn count_back(&self, span: Span<'_>, now: u64, revision: Revision, changes: u64) -> u64 {
        let touched = self.store.changes.keys_from(changes).filter(|key| span.contains(key));
        let mut count = now;
        for key in touched.collect::<BTreeSet<_>>() {
            let Some((_, history)) = self.store.index.get(key) else { continue };
            count -= u64::from(history.live().is_some());
            count += u64::from(history.at(revision).is_some());
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
    filters.iter().any(|&bound| bound != 0)
}

/// Bounds are inclusive, and 0 is no bound.
fn passes(version: &Version, range: &Range) -> bool {
    let within = |revision: Revision, min: Revision, max: Revision| {
        (min == 0 || min <= revision) && (max == 0 || revision <= max)
    };
    within(version.mod_revision, range.min_mod_revision, range.max_mod_revision)
        && ((range.min_create_revision, range.max_create_revision) == (0, 0)
            || within(version.life().create_revision, range.min_create_revision, range.max_create_revision))
}

/// Leaves the first `limit` of the order asked for, in that order. Ties stand in the order of keys, both ways, so that
/// every member answers the same.
fn sort_first(matches: &mut Vec<Match<'_>>, range: &Range, limit: usize) {
    let order = |a: &Match<'_>, b: &Match<'_>| {
        let by_target = compare_by(range.target, a, b);
        let by_target = if range.order == SortOrder::Descend { by_target.reverse() } else { by_target };
        by_target.then_with(|| a.0.cmp(b.0))
    };
    if limit < matches.len() {
        matches.select_nth_unstable_by(limit, order);
        matches.truncate(limit);
    }
    matches.sort_unstable_by(order);
}

fn compare_by(target: SortTarget, a: &Match<'_>, b: &Match<'_>) -> Ordering {
    match target {
        SortTarget::Key => a.0.cmp(b.0),
        SortTarget::Version => a.1.life().version.cmp(&b.1.life().version),
        SortTarget::Create => a.1.life().create_revision.cmp(&b.1.life().create_revision),
        SortTarget::Mod => a.1.mod_revision.cmp(&b.1.mod_revision),
        SortTarget::Value => a.1.value().cmp(&b.1.value()),
    }
}

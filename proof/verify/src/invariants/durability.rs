//! Durability: everything durable before a crash is there after it; everything recovered had been written; record
//! numbers are used once. A log that is cut before damage is one that the member had before, and its vote floor covers
//! at least what it had held. [fault-model P1, ST1, ST3, ST7, ST11; replication-protocols §1.2]

use super::Checked;
use super::ghost::{Ghost, Harm, Line, Log, Lost, Pending, expect};
use kattu_raft::{EntryId, HardState, LogIndex, LogRecord, Lsn, Recovered};

const NAME: &str = "durability";

/// A record is emitted to the disk.
pub(super) fn emitted(ghost: &Ghost, place: usize, record: &LogRecord) -> Checked {
    let member = ghost.at(place);
    expect(record.lsn == member.emitted.next(), NAME, || {
        format!("{:?} writes record {} after {}", member.id, record.lsn.0, member.emitted.0)
    })
}

/// Everything up to this record is durable.
pub(super) fn durable(ghost: &mut Ghost, place: usize, lsn: Lsn) -> Checked {
    let member = ghost.at_mut(place);
    let (id, emitted) = (member.id, member.emitted);
    expect(lsn <= emitted, NAME, || {
        format!("record {} of {id:?} is durable, {} was the last", lsn.0, emitted.0)
    })?;
    while let Some((pending, _)) = ghost.at(place).pending.front()
        && *pending <= lsn
    {
        let number = *pending;
        let (member, chosen) = ghost.member_and_chosen(place);
        match member.sink(chosen) {
            // A commit mark is a hint: it travels with the next block, and losing it costs only time [ST17]. A vote
            // floor has a place of its own and no number.
            None | Some(Pending::Commit | Pending::VoteFloor(_)) => continue,
            Some(Pending::Hard(hard)) => super::votes::durable(ghost, place, hard),
            Some(Pending::Truncate(_) | Pending::Entry(_) | Pending::Base(_)) => {}
        }
        ghost.at_mut(place).durable = number;
    }
    Ok(())
}

/// A member starts from what its disk recovered.
///
/// Of the records that were not durable, any prefix may have survived; term and vote are stored in a place of their
/// own, and may have survived alone.
pub(super) fn recovered(ghost: &mut Ghost, place: usize, recovered: &Recovered) -> Checked {
    let committed = ghost.chosen.last().index;
    let (member, chosen) = ghost.member_and_chosen(place);
    let id = member.id;
    let harm = member.harm.take();
    expect(harm.is_some() || member.durable <= recovered.lsn, NAME, || {
        format!("{id:?} comes back at record {}; {} was durable", recovered.lsn.0, member.durable.0)
    })?;
    let hards: Vec<HardState> = std::iter::once(member.disk_hard)
        .chain(member.pending.iter().filter_map(|(_, pending)| match pending {
            Pending::Hard(hard) => Some(*hard),
            Pending::Truncate(_)
            | Pending::Entry(_)
            | Pending::Commit
            | Pending::Base(_)
            | Pending::VoteFloor(_) => None,
        }))
        .collect();
    // A floor that a leader sent comes back, unless the whole directory is older than that.
    let says = recovered.vote_floor.unwrap_or_default().max(recovered.last);
    let is_older = matches!(harm, Some(Harm::Older(_)));
    expect(is_older || member.disk_vote_floor.unwrap_or_default() <= says, NAME, || {
        format!(
            "{id:?} comes back with a log up to {} and the floor {:?}; its disk held the floor {:?}",
            recovered.last, recovered.vote_floor, member.disk_vote_floor
        )
    })?;
    member.vote_floor =
        member.vote_floor.filter(|vote_floor| recovered.last < *vote_floor).min(recovered.vote_floor);
    let snapshot = recovered.snapshot.as_ref().map_or(EntryId::default(), |snapshot| snapshot.last);
    let committed_there = chosen.term(snapshot.index);
    expect(committed_there == Some(snapshot.term), NAME, || {
        format!("{id:?} starts from a snapshot up to {snapshot}; committed there is {committed_there:?}")
    })?;
    if member.snapshot.index < snapshot.index {
        member.snapshot = snapshot; // complete when the process ended, but not yet reported
    }
    // A member that stored a snapshot and stopped before its log recorded the base does so at its start.
    let is_made_to_fit =
        snapshot != EntryId::default() && snapshot == recovered.base && snapshot == recovered.last;
    let fits = HardState { term: snapshot.term, vote: None };
    let is_known = hards.contains(&recovered.hard) || is_made_to_fit && recovered.hard == fits;
    expect(is_known || is_older, NAME, || {
        format!(
            "{id:?} comes back with {:?}; written were {hards:?}, the first of them durable",
            recovered.hard
        )
    })?;
    if let Some(harm) = harm {
        harmed(ghost, place, recovered, harm)?;
        return written_once(ghost, place, recovered, committed);
    }
    let durable = member.disk.last();
    let found = |log: &super::ghost::Log| {
        (log.base(), log.last()) == (recovered.base, recovered.last)
            && log.starts_after_base() == recovered.term_starts
    };
    while !found(&member.disk) {
        if member.sink(chosen).is_none() {
            if is_made_to_fit {
                member.disk.rebase(snapshot, LogIndex(0), chosen);
                break;
            }
            return expect(false, NAME, || {
                format!(
                    "{id:?} comes back with a log from {} to {}, which it never had; durable was {durable}",
                    recovered.base, recovered.last
                )
            });
        }
    }
    written_once(ghost, place, recovered, committed)
}

/// The newest entries come back byte by byte, and the commit mark is not above what is committed.
fn written_once(ghost: &Ghost, place: usize, recovered: &Recovered, committed: LogIndex) -> Checked {
    let member = ghost.at(place);
    let id = member.id;
    for entry in &recovered.tail {
        let (line, held) = (Line::of(entry), member.disk.line(entry.id().index));
        expect(held == Some(line), NAME, || format!("{id:?} comes back with other bytes of {}", entry.id()))?;
    }
    expect(recovered.committed <= committed, NAME, || {
        format!("{id:?} comes back with commit mark {:?}; committed is {committed:?}", recovered.committed)
    })?;
    Ok(())
}

/// A member starts from a log that lacks entries it had: every entry left had been created after the one before it. If
/// damage was noticed, a vote floor covers at least what this directory had held.
fn harmed(ghost: &mut Ghost, place: usize, recovered: &Recovered, harm: Harm) -> Checked {
    let member = ghost.at(place);
    let id = member.id;
    let lost = member.lost_upto();
    let owed = member.disk.last().max(member.lost_here_upto());
    let says = recovered.vote_floor.unwrap_or_default().max(recovered.last);
    expect(matches!(harm, Harm::Older(_)) || owed <= says, NAME, || {
        format!(
            "{id:?} comes back with a log up to {} and the floor {:?}; it had promised to keep {owed}",
            recovered.last, recovered.vote_floor
        )
    })?;
    let term_at = |index: LogIndex| {
        let begun = recovered.term_starts.partition_point(|start| start.index <= index);
        begun.checked_sub(1).map(|at| recovered.term_starts[at].term)
    };
    expect(ghost.chosen.term(recovered.base.index) == Some(recovered.base.term), NAME, || {
        format!("{id:?} comes back with a log after {}, which was never committed", recovered.base)
    })?;
    let mut before = recovered.base.term;
    let mut lines = Vec::new();
    for index in (recovered.base.index.next().0..=recovered.last.index.0).map(LogIndex) {
        let term = term_at(index).unwrap_or_default();
        let created = ghost.created.get(&EntryId { term, index });
        let is_right = created.is_some_and(|created| created.after == before);
        expect(is_right, NAME, || {
            format!("{id:?} comes back with an entry of {term:?} at {index:?}; {created:?} was created")
        })?;
        lines.extend(created.map(|created| Line { term, hash: created.hash, bytes: created.bytes }));
        before = term;
    }
    let (member, chosen) = ghost.member_and_chosen(place);
    let found = Log::after(recovered.base, lines.into_iter(), chosen);
    let had = std::mem::replace(&mut member.disk, found);
    member.has_lost = true;
    match harm {
        Harm::Older(owed) => {
            let lost = owed.map(|owed| Lost::owed(had, owed));
            member.lost = lost.filter(|lost| recovered.last < lost.log.last());
        }
        Harm::Cut if lost < had.last() && recovered.last < had.last() => member.lost = Some(Lost::all(had)),
        Harm::Cut if lost <= recovered.last => member.lost = None,
        Harm::Cut => {}
    }
    Ok(())
}

//! Durability: what was durable before a crash is there after it; what comes back was written once; record numbers are
//! used once. [fault-model P1, ST1, ST3, ST11; replication-protocols §1.2]

use super::Checked;
use super::ghost::{Ghost, Pending, expect};
use kattu_raft::{EntryId, HardState, LogIndex, LogRecord, Lsn, Recovered};

const NAME: &str = "durability";

/// A record leaves for the disk.
pub(super) fn emitted(ghost: &Ghost, place: usize, record: &LogRecord) -> Checked {
    let member = ghost.at(place);
    expect(record.lsn == member.emitted.next(), NAME, || {
        format!("{:?} writes record {} after {}", member.id, record.lsn.0, member.emitted.0)
    })
}

/// The disk holds everything up to this record for good.
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
            // A hint: it travels with the next block, and losing it costs time only. [ST17]
            None | Some(Pending::Commit) => continue,
            Some(Pending::Hard(hard)) => super::votes::durable(ghost, place, hard),
            Some(Pending::Truncate(_) | Pending::Entry(_) | Pending::Base(_)) => {}
        }
        ghost.at_mut(place).durable = number;
    }
    Ok(())
}

/// A member starts from what its disk gave back.
///
/// Of the records that were not durable, any first part may have survived; term and vote have a place of their own, and
/// may have survived alone.
pub(super) fn recovered(ghost: &mut Ghost, place: usize, recovered: &Recovered) -> Checked {
    let committed = ghost.chosen.last().index;
    let (member, chosen) = ghost.member_and_chosen(place);
    let id = member.id;
    expect(member.durable <= recovered.lsn, NAME, || {
        format!("{id:?} comes back at record {}; {} was durable", recovered.lsn.0, member.durable.0)
    })?;
    let hards: Vec<HardState> = std::iter::once(member.disk_hard)
        .chain(member.pending.iter().filter_map(|(_, pending)| match pending {
            Pending::Hard(hard) => Some(*hard),
            Pending::Truncate(_) | Pending::Entry(_) | Pending::Commit | Pending::Base(_) => None,
        }))
        .collect();
    let snapshot = recovered.snapshot.as_ref().map_or(EntryId::default(), |snapshot| snapshot.last);
    let committed_there = chosen.term(snapshot.index);
    expect(committed_there == Some(snapshot.term), NAME, || {
        format!("{id:?} starts from a snapshot up to {snapshot}; committed there is {committed_there:?}")
    })?;
    if member.snapshot.index < snapshot.index {
        member.snapshot = snapshot; // it was complete when the process ended, and nobody could be told
    }
    // A member that had stored a snapshot, and stopped before its log could say so, says so at its start.
    let is_made_to_fit =
        snapshot != EntryId::default() && snapshot == recovered.base && snapshot == recovered.last;
    let fits = HardState { term: snapshot.term, vote: None };
    expect(hards.contains(&recovered.hard) || is_made_to_fit && recovered.hard == fits, NAME, || {
        format!(
            "{id:?} comes back with {:?}; written were {hards:?}, the first of them durable",
            recovered.hard
        )
    })?;
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
    for entry in &recovered.tail {
        let (line, held) = (super::ghost::Line::of(entry), member.disk.line(entry.id().index));
        expect(held == Some(line), NAME, || format!("{id:?} comes back with other bytes of {}", entry.id()))?;
    }
    expect(recovered.committed <= committed, NAME, || {
        format!("{id:?} comes back with commit mark {:?}; committed is {committed:?}", recovered.committed)
    })?;
    Ok(())
}

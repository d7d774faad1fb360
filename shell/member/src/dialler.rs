//! Dialler: what one lane to one peer does when an attempt has failed, or a connection has ended.
//!
//! Rules: 1. A peer that does not answer is dialled again after a pause; one that refuses, after the longest. ([`Pauses`])
//!        2. The operator is told of each refusal once, until a connection has opened or the reason is another one.
//!        3. A refusal by a peer that is no member any more ends the dialler: its address may belong to another member by now.
//!        4. A refusal because this member was removed ends this member, and so the dialler.
//!        5. A lane on demand is dialled when a message waits for it. ([`LaneOnDemand`])
//! Knows nothing of: clocks, chance, addresses, sockets.

use crate::lane_on_demand::LaneOnDemand;
use crate::pauses::Pauses;
use crate::peer_table::PeerTable;
use kattu_raft::{Duration, Instant, NodeId};
use kattu_wire::Lane;

/// Why a lane could not be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// No answer, or none in time.
    Away,
    /// The peer refuses this member, for this reason.
    Refused(String),
    /// The peer reports that this member was removed.
    Removed,
    /// The peer asks for a proof, but its challenge does not arrive: it does not reach this member.
    Unproven,
}

/// What the operator is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// The peer refuses this member, for this reason.
    Refused(String),
    /// The peer accepts this member, but does not reach it at its own peer URLs, which is its proof of identity.
    NotReached,
}

/// What the dialler does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// It dials at this moment.
    Dial(Instant),
    /// It dials when a message waits for the lane. ([`Dialler::wanted`])
    Wait,
    /// It dials no more.
    End,
}

/// Keeps one lane to one peer open.
#[derive(Clone, Debug)]
pub struct Dialler {
    peer: NodeId,
    pauses: Pauses,
    told: Option<Note>,
    on_demand: Option<LaneOnDemand>,
}

impl Dialler {
    /// A dialler of this lane to this peer.
    #[must_use]
    pub fn new(peer: NodeId, lane: Lane) -> Dialler {
        let on_demand = (lane == Lane::Snapshot).then(LaneOnDemand::default);
        Dialler { peer, pauses: Pauses::default(), told: None, on_demand }
    }

    /// What it does first.
    #[must_use]
    pub fn first(&self, now: Instant) -> Next {
        if self.on_demand.is_some() { Next::Wait } else { Next::Dial(now) }
    }

    /// A message waits for a lane on demand. Returns when to dial, if no attempt is planned or under way.
    pub fn wanted(&mut self, now: Instant) -> Option<Instant> {
        self.on_demand.as_mut()?.wanted(now)
    }

    /// A connection is open.
    pub fn opened(&mut self) {
        self.told = None;
        if let Some(lane) = &mut self.on_demand {
            lane.opened();
        }
    }

    /// A connection has ended that lived for so long. Returns what follows after a pause of at most `pause_max`; `spread` makes
    /// it a little shorter by chance, so that members do not dial in step.
    pub fn ended(
        &mut self,
        now: Instant,
        life: Duration,
        pause_max: Duration,
        spread: impl FnOnce(Duration) -> Duration,
    ) -> Next {
        self.pauses.lived(life, pause_max);
        self.rest(now, pause_max, spread)
    }

    /// An attempt has failed. Returns what follows, after a pause as in [`Dialler::ended`], and what the operator is told.
    pub fn failed(
        &mut self,
        now: Instant,
        failure: Failure,
        table: &mut PeerTable,
        pause_max: Duration,
        spread: impl FnOnce(Duration) -> Duration,
    ) -> (Next, Option<Note>) {
        let note = match failure {
            Failure::Away => None,
            Failure::Refused(_) if !table.is_linked(self.peer) => return (Next::End, None),
            Failure::Refused(reason) => Some(Note::Refused(reason)),
            Failure::Unproven => Some(Note::NotReached),
            Failure::Removed => {
                table.told_of_removal();
                return (Next::End, None);
            }
        };
        let mut news = None;
        if note.is_some() {
            self.pauses.refused(pause_max);
            if self.told != note {
                self.told.clone_from(&note);
                news = note;
            }
        }
        (self.rest(now, pause_max, spread), news)
    }

    /// What follows after a pause, as in [`Dialler::ended`].
    pub fn rest(
        &mut self,
        now: Instant,
        pause_max: Duration,
        spread: impl FnOnce(Duration) -> Duration,
    ) -> Next {
        let end = now + spread(self.pauses.take(pause_max));
        match &mut self.on_demand {
            Some(lane) => {
                lane.rests_until(end);
                Next::Wait
            }
            None => Next::Dial(end),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pauses::PAUSE_MIN;
    use crate::peer_table::Own;
    use kattu_node::contract::{MemberInfo, Members};
    use std::collections::BTreeMap;

    const PEER: NodeId = NodeId(2);
    const MAX: Duration = Duration::from_millis(500);
    const NOW: Instant = Instant(7);

    fn table() -> PeerTable {
        let mut table = PeerTable::new(Own { id: NodeId(1), ..Own::default() }, BTreeMap::new());
        let list = vec![MemberInfo { id: PEER, ..MemberInfo::default() }];
        table.follow(Members { list, ..Members::default() });
        table
    }

    fn failed(dialler: &mut Dialler, failure: Failure, table: &mut PeerTable) -> (Next, Option<Note>) {
        dialler.failed(NOW, failure, table, MAX, |pause| pause)
    }

    fn after(pause: Duration) -> Next {
        Next::Dial(NOW + pause)
    }

    #[test]
    fn a_refusal_is_told_once_and_followed_by_the_longest_pause() {
        let (mut dialler, mut table) = (Dialler::new(PEER, Lane::Bulk), table());
        assert_eq!(dialler.first(NOW), Next::Dial(NOW));
        let no = |why: &str| Failure::Refused(why.into());
        let told = |why: &str| Some(Note::Refused(why.into()));
        let mut fails = |dialler: &mut Dialler, failure| failed(dialler, failure, &mut table);
        assert_eq!(fails(&mut dialler, Failure::Away), (after(PAUSE_MIN), None));
        assert_eq!(fails(&mut dialler, no("a")), (after(MAX), told("a")));
        assert_eq!(fails(&mut dialler, no("a")), (after(MAX), None), "told already");
        assert_eq!(fails(&mut dialler, no("b")), (after(MAX), told("b")));
        assert_eq!(fails(&mut dialler, Failure::Unproven), (after(MAX), Some(Note::NotReached)));
        assert_eq!(fails(&mut dialler, Failure::Unproven), (after(MAX), None));
        dialler.opened();
        assert_eq!(
            dialler.ended(NOW, MAX * 2, MAX, |pause| pause / 2),
            after(PAUSE_MIN / 2),
            "spread over time"
        );
        assert_eq!(fails(&mut dialler, no("b")), (after(MAX), told("b")), "it was open since");
        assert_eq!(dialler.wanted(NOW), None, "it is dialled without a message");
    }

    #[test]
    fn a_removal_ends_this_member_and_a_refusal_by_a_former_member_the_dialler() {
        let (mut dialler, mut table) = (Dialler::new(PEER, Lane::Control), table());
        assert!(!table.is_removed());
        assert_eq!(failed(&mut dialler, Failure::Removed, &mut table), (Next::End, None));
        assert!(table.is_removed());
        table.follow(Members { removed: vec![PEER], ..Members::default() });
        let no = Failure::Refused("another member answers".into());
        assert_eq!(failed(&mut dialler, no, &mut table), (Next::End, None));
        let away = failed(&mut dialler, Failure::Away, &mut table);
        assert!(matches!(away, (Next::Dial(_), None)), "it may be back");
    }

    #[test]
    fn a_lane_on_demand_is_dialled_for_a_message_and_after_a_pause() {
        let (mut dialler, mut table) = (Dialler::new(PEER, Lane::Snapshot), table());
        assert_eq!(dialler.first(NOW), Next::Wait);
        assert_eq!(dialler.wanted(NOW), Some(NOW));
        assert_eq!(failed(&mut dialler, Failure::Away, &mut table), (Next::Wait, None));
        assert_eq!(dialler.wanted(NOW), Some(NOW + PAUSE_MIN));
        assert_eq!(dialler.wanted(NOW), None, "that attempt is planned");
        dialler.opened();
        assert_eq!(dialler.ended(NOW, Duration::ZERO, MAX, |pause| pause), Next::Wait);
        assert_eq!(dialler.wanted(NOW), Some(NOW + PAUSE_MIN * 2));
    }
}

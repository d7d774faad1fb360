//! Joining: how a member with an empty directory gets its identity, and how a member asks others about a stranger.
//!
//! In:    the answers of the other members.
//! Out:   whom to ask next; at the end the identity of the directory: the cluster, its id, the founding members and the
//!        present ones.
//! Every answer is a linearizable read: a member without a quorum does not answer, so no answer is outdated and one is
//! enough. All are asked nevertheless: a member that any of them knows with an earlier directory is refused. Why no
//! vote or acknowledgement is lost that way: [`kattu_node::newcomer`].
//!
//! A member that was away may be called by one that others have added meanwhile, and that may be the leader. Its claim
//! alone does not count, and the address it announces is not dialled: otherwise a stranger could make a member dial any
//! address. The known members are asked instead, and name all members that they know. No quorum has to confirm that: it may
//! need the vote of the member that asks.
//! Knows nothing of: how members are added, addresses, clocks, the messages of a stranger.

use crate::dialler::Failure;
use crate::peer_table::PeerTable;
use kattu_node::contract::MemberInfo;
use kattu_node::newcomer::{CannotJoin, admit};
use kattu_raft::{Duration, GroupId, Incarnation, NodeId};
use kattu_wal::{Identity, InitialMember};
use kattu_wire::MemberList;
use std::collections::VecDeque;

/// How long one member may take to answer: longer than a quorum may take to confirm the answer.
pub const ANSWER_MAX: Duration = Duration::from_secs(3);
/// Rounds of questions while no member answers.
const ROUNDS_MAX: u32 = 20;
/// Pause between two rounds.
const PAUSE: Duration = Duration::from_millis(250);

/// Why a newcomer has no identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotJoined<A> {
    /// It knows no other member to ask.
    NobodyToAsk,
    /// No member answered with the members; the reasons of those that refused.
    NoAnswer(Vec<(A, String)>),
    /// The members asked belong to different clusters.
    DifferentClusters(u64, u64),
    /// The cluster refuses it.
    Refused(CannotJoin),
}

/// What a newcomer does next.
#[derive(Debug)]
pub enum Step<A> {
    /// It asks the member at this address; the answer goes to [`Joining::told`].
    Ask(A),
    /// It waits, and asks for the next step.
    Pause(Duration),
    /// It is over.
    Over(Result<Identity, NotJoined<A>>),
}

/// What a newcomer brings.
#[derive(Clone, Debug)]
pub struct Newcomer {
    /// Its name.
    pub name: String,
    /// The group whose log will be in its directory.
    pub group: GroupId,
    /// The incarnation of that directory.
    pub incarnation: Incarnation,
}

/// A newcomer that asks the other members, at addresses `A`, until one has answered.
#[derive(Debug)]
pub struct Joining<A> {
    newcomer: Newcomer,
    others: Vec<A>,
    /// Those of them that are still to be asked in this round.
    waiting: VecDeque<A>,
    asked: Option<A>,
    rounds: u32,
    lists: Vec<MemberList>,
    refusals: Vec<(A, String)>,
}

impl<A: Clone> Joining<A> {
    /// A newcomer that knows these other members.
    #[must_use]
    pub fn new(newcomer: Newcomer, others: Vec<A>) -> Joining<A> {
        let waiting = others.clone().into();
        let (lists, refusals) = (Vec::new(), Vec::new());
        Joining { newcomer, others, waiting, asked: None, rounds: 1, lists, refusals }
    }

    /// The next step. `is_me` selects the member that has this one's peer URLs.
    pub fn next(&mut self, is_me: impl Fn(&MemberInfo) -> bool) -> Step<A> {
        if self.others.is_empty() {
            return Step::Over(Err(NotJoined::NobodyToAsk));
        }
        if let Some(address) = self.waiting.pop_front() {
            self.asked = Some(address.clone());
            return Step::Ask(address);
        }
        if !self.lists.is_empty() {
            return Step::Over(self.newcomer.judge(std::mem::take(&mut self.lists), is_me));
        }
        if self.rounds == ROUNDS_MAX {
            return Step::Over(Err(NotJoined::NoAnswer(std::mem::take(&mut self.refusals))));
        }
        self.rounds += 1;
        self.waiting.extend(self.others.iter().cloned());
        self.refusals.clear();
        Step::Pause(PAUSE)
    }

    /// The answer of the member that was asked last.
    pub fn told(&mut self, answer: Result<MemberList, Failure>) {
        match (answer, self.asked.take()) {
            (Ok(list), _) => self.lists.push(list),
            (Err(Failure::Refused(reason)), Some(address)) => self.refusals.push((address, reason)),
            (Err(Failure::Refused(_) | Failure::Away | Failure::Removed | Failure::Unproven), _) => {}
        }
    }
}

impl Newcomer {
    fn judge<A>(
        &self,
        lists: Vec<MemberList>,
        is_me: impl Fn(&MemberInfo) -> bool,
    ) -> Result<Identity, NotJoined<A>> {
        let heard: Vec<NodeId> = lists.iter().flat_map(|list| list.heard.iter().copied()).collect();
        if let Some(other) = lists.iter().find(|list| list.cluster != lists[0].cluster) {
            return Err(NotJoined::DifferentClusters(lists[0].cluster, other.cluster));
        }
        let newest = lists.into_iter().max_by_key(|list| list.members.at).expect("at least one answer");
        let id = admit(&newest.members, &heard, is_me).map_err(NotJoined::Refused)?;
        let remembered = |member: MemberInfo| InitialMember {
            id: member.id,
            name: member.name,
            peer_urls: member.peer_urls,
        };
        Ok(Identity {
            cluster: newest.cluster,
            node: id,
            incarnation: self.incarnation,
            name: self.name.clone(),
            groups: vec![self.group],
            members: newest.began_with.into_iter().map(remembered).collect(),
            joined: Some(newest.members.list.into_iter().map(remembered).collect()),
        })
    }
}

/// The pauses between questions about strangers.
#[derive(Clone, Copy, Debug)]
pub struct Vouching {
    pause: Duration,
    has_news: bool,
}

/// The pause after a question, however many unknown callers come.
const VOUCH_PAUSE_MIN: Duration = Duration::from_millis(500);
/// The same while questions bring no news.
const VOUCH_PAUSE_MAX: Duration = Duration::from_secs(30);

impl Default for Vouching {
    fn default() -> Vouching {
        Vouching { pause: VOUCH_PAUSE_MIN, has_news: false }
    }
}

impl Vouching {
    /// A known member has answered. Returns whether it has named a member that was not known; otherwise the next one is
    /// asked.
    pub fn is_settled(&mut self, answer: Result<MemberList, Failure>, table: &mut PeerTable) -> bool {
        self.has_news = answer.is_ok_and(|list| table.vouched_for(list));
        self.has_news
    }

    /// The known members were asked: the pause before the next question.
    pub fn pause(&mut self) -> Duration {
        self.pause = match std::mem::take(&mut self.has_news) {
            true => VOUCH_PAUSE_MIN,
            false => (self.pause * 2).min(VOUCH_PAUSE_MAX),
        };
        self.pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer_table::Own;
    use kattu_node::contract::Members;
    use kattu_raft::LogIndex;
    use std::collections::BTreeMap;

    fn member(id: u64, learner: bool) -> MemberInfo {
        let peer_urls = vec![format!("http://n{id}:2380")];
        MemberInfo { id: NodeId(id), peer_urls, learner, ..MemberInfo::default() }
    }

    fn member_list(at: u64, list: Vec<MemberInfo>, heard: &[u64]) -> MemberList {
        let members = Members { at: LogIndex(at), list, removed: vec![] };
        let heard = heard.iter().copied().map(NodeId).collect();
        MemberList { cluster: 7, began_with: vec![member(1, false)], members, heard }
    }

    fn newcomer() -> Newcomer {
        Newcomer { name: "n4".into(), group: GroupId(0), incarnation: Incarnation(44) }
    }

    fn is_me(member: &MemberInfo) -> bool {
        member.id == NodeId(4)
    }

    /// Runs a newcomer that asks as many members as there are answers.
    fn joins(answers: Vec<Result<MemberList, Failure>>) -> Result<Identity, NotJoined<usize>> {
        let mut joining = Joining::new(newcomer(), (0..answers.len()).collect());
        loop {
            match joining.next(is_me) {
                Step::Ask(number) => joining.told(answers[number].clone()),
                Step::Pause(pause) => assert_eq!(pause, PAUSE),
                Step::Over(identity) => return identity,
            }
        }
    }

    #[test]
    fn the_newest_table_counts_and_so_does_each_member_that_has_heard_of_the_newcomer() {
        let old = || Ok(member_list(3, vec![member(1, false)], &[1]));
        let new = |heard: &[u64]| Ok(member_list(9, vec![member(1, false), member(4, true)], heard));
        assert_eq!(joins(vec![old()]), Err(NotJoined::Refused(CannotJoin::NotListed)));
        let identity = joins(vec![new(&[1]), Err(Failure::Away), old()]).expect("it was added");
        assert_eq!((identity.cluster, identity.node, identity.members.len()), (7, NodeId(4), 1));
        assert_eq!((identity.name.as_str(), identity.incarnation), ("n4", Incarnation(44)));
        assert_eq!(identity.joined.map(|found| found.len()), Some(2));
        let heard = Ok(member_list(3, vec![member(1, false)], &[1, 4]));
        assert_eq!(joins(vec![new(&[1]), heard]), Err(NotJoined::Refused(CannotJoin::WasHere(NodeId(4)))));
        let other = MemberList { cluster: 8, ..member_list(3, vec![], &[]) };
        assert_eq!(joins(vec![old(), Ok(other)]), Err(NotJoined::DifferentClusters(7, 8)));
    }

    #[test]
    fn members_that_do_not_answer_are_asked_again_for_a_while() {
        assert_eq!(joins(vec![]), Err(NotJoined::NobodyToAsk));
        let no = Err(Failure::Refused("no quorum".into()));
        assert_eq!(
            joins(vec![Err(Failure::Away), no]),
            Err(NotJoined::NoAnswer(vec![(1, "no quorum".into())])),
            "the reasons of the last round"
        );
        let mut joining = Joining::new(newcomer(), vec![1]);
        let mut rounds = 0;
        while let Step::Ask(_) | Step::Pause(_) = joining.next(is_me) {
            rounds += 1;
        }
        assert_eq!(rounds, 2 * ROUNDS_MAX - 1, "questions, and a pause between two of them");
        let mut joining = Joining::new(newcomer(), vec![1]);
        assert!(matches!(joining.next(is_me), Step::Ask(1)));
        joining.told(Err(Failure::Away));
        assert!(matches!(joining.next(is_me), Step::Pause(_)) && matches!(joining.next(is_me), Step::Ask(1)));
        joining.told(Ok(member_list(9, vec![member(4, true)], &[1])));
        assert!(matches!(joining.next(is_me), Step::Over(Ok(_))), "one answer is enough");
    }

    #[test]
    fn questions_about_strangers_become_rarer_while_they_bring_no_news() {
        let own = Own { cluster: 7, id: NodeId(1), ..Own::default() };
        let mut table = PeerTable::new(own, BTreeMap::new());
        let mut vouching = Vouching::default();
        assert!(!vouching.is_settled(Err(Failure::Away), &mut table));
        let of_another = MemberList { cluster: 8, ..member_list(9, vec![member(4, false)], &[]) };
        assert!(!vouching.is_settled(Ok(of_another), &mut table));
        let pauses = [1, 2, 4, 8, 16, 30, 30];
        assert!(pauses.iter().all(|&secs| vouching.pause() == Duration::from_secs(secs)));
        assert!(vouching.is_settled(Ok(member_list(9, vec![member(4, false)], &[])), &mut table));
        assert!(table.knows(NodeId(4)));
        assert_eq!(vouching.pause(), VOUCH_PAUSE_MIN, "it brought news");
        assert!(!vouching.is_settled(Ok(member_list(9, vec![member(4, false)], &[])), &mut table));
        assert_eq!(vouching.pause(), VOUCH_PAUSE_MIN * 2, "it named no other");
    }
}

//! The peer table: this member's identity, the members that it knows, and what they have announced. [fault-model NT1, NT2]
//!
//! ```text
//!   the applied table of members ─┐                 ┌─▶ which members are dialled, at which addresses
//!   what known members name ──────┼─▶ peer table ───┼─▶ which callers are admitted, and which are refused   (`handshake`)
//!   what members announce ────────┘                 └─▶ Output: what is to be done, and told to the operator
//! ```
//! Rules: 1. A caller that is missing in this table may have been added while this member was away, and may be the leader
//!           [Ongaro14 §4.1]. The known members are asked; a member that they do not name is neither dialled nor heard. They
//!           name all members that they know, and no quorum is needed for that: this table, too, may be old, and a caller
//!           that it lists is admitted. Ids are never used again, so a member that was removed before is known as removed.
//!           What they have named is known after a restart, too.
//!        2. A voter has one directory for life. A member that is about to make another one, or comes with another one than
//!           before, is refused: the votes and acknowledgements it gave in the first one are forgotten. [fault-model F61]
//!        3. All members hold the same data, so the least quota of any member is the limit.
//! Knows nothing of: frames, connections, files, clocks.

use crate::peer_address::PeerAddress;
use crate::proofs::Proofs;
use kattu_node::contract::{MemberInfo, Members};
use kattu_raft::{Incarnation, LeadershipConfig, LogIndex, NodeId};
use kattu_wire::{Hello, Introduction, MemberList};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

/// The incarnation of a member that has no directory yet.
pub(crate) const NO_DIRECTORY: Incarnation = Incarnation(0);

/// Longest list of peer URLs that is accepted: more than a member has.
const TOLD_PLACES_MAX: usize = 16;

/// Longest peer URL that is accepted.
const TOLD_PLACE_BYTES_MAX: usize = 512;

/// Members that are kept of what others have named: more than any cluster has in its time.
const FOUND_MAX: usize = 4096;

/// The other members that this one knows, with their peer URLs.
pub type PeerUrls = BTreeMap<NodeId, Vec<String>>;

/// What the table is told of its own member.
#[derive(Clone, Debug, Default)]
pub struct Own {
    /// The cluster.
    pub cluster: u64,
    /// This member.
    pub id: NodeId,
    /// The incarnation of its directory.
    pub incarnation: Incarnation,
    /// The members the cluster began with, for newcomers.
    pub began_with: Vec<MemberInfo>,
    /// Its peer URLs, for as long as the table of members does not list them.
    pub peer_urls: Vec<String>,
    /// Its leader priority.
    pub priority: u8,
    /// The quota of its store, in bytes.
    pub quota: u64,
}

/// What the operator is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// A member has a smaller quota than this one, and it applies.
    SmallerQuota {
        /// The member.
        of: NodeId,
        /// Its quota, in bytes.
        bytes: u64,
        /// This member's, in bytes.
        own: u64,
    },
}

/// What is to be done.
#[derive(Debug, Default)]
pub struct Output {
    /// The addresses of members may have changed: links follow [`PeerTable::places`].
    pub places_changed: bool,
    /// A caller came that is not known here: the known members are asked. (`join::Vouching`)
    pub stranger_came: bool,
    /// Challenges, secrets or arrivals have changed: diallers look at [`PeerTable::proofs`].
    pub proofs_changed: bool,
    /// To be written to the disk, and confirmed by [`PeerTable::remembered`]: the directory that a voter came from. What is
    /// not confirmed is ordered again when the voter comes again.
    pub remember: Option<(NodeId, Incarnation)>,
    /// To be written to the disk, and confirmed by [`PeerTable::noted`]: all other members that this one knows, if they are
    /// not those that are there. What is not confirmed is ordered again with the next change.
    pub note_members: Option<PeerUrls>,
    /// For the operator.
    pub notes: Vec<Note>,
}

/// This member's identity, the members it knows, and what they have announced.
#[derive(Debug, Default)]
pub struct PeerTable {
    own: Own,
    /// Challenges and proofs of identity.
    pub proofs: Proofs,
    /// The feature level of the cluster, as far as known here.
    level: u16,
    /// The table of members, as applied here.
    members: Members,
    /// Members that others have named, when this one joined or asked them since, and those that earlier runs knew; the table
    /// may not list them yet.
    found: PeerUrls,
    /// The newest table that named any of them.
    found_at: LogIndex,
    /// The members that are on the disk.
    noted: PeerUrls,
    /// The leader priorities that others have announced.
    priorities: BTreeMap<NodeId, u8>,
    /// Peer URLs that members have announced after their proof: a table that this member has not been able to follow
    /// may be older.
    told_places: BTreeMap<NodeId, Vec<String>>,
    /// Quotas of the stores of others, in bytes, as announced.
    quotas: BTreeMap<NodeId, u64>,
    /// The least of them, among the members that the table lists.
    least_quota: Option<u64>,
    /// Members that have completed a handshake here, in this run or an earlier one.
    heard: BTreeSet<NodeId>,
    /// The directory that each voter came from.
    lives: BTreeMap<NodeId, Incarnation>,
    /// Those of them that are on the disk.
    remembered: BTreeSet<NodeId>,
    /// A member of this cluster reported that this one was removed.
    was_removed: bool,
    /// A member of this cluster reported that it knows this one with another directory.
    was_known: bool,
    output: Output,
}

impl PeerTable {
    /// A table that knows the members that others have named, when this one joined. The identity of the directory names
    /// them, or else the members that the cluster began with.
    #[must_use]
    pub fn new(own: Own, found: PeerUrls) -> PeerTable {
        let mut noted = found.clone();
        if found.is_empty() {
            noted.extend(own.began_with.iter().map(|member| (member.id, member.peer_urls.clone())));
        }
        noted.remove(&own.id);
        PeerTable { own, found, noted, ..PeerTable::default() }
    }

    /// What is to be done since the last call.
    pub fn take_output(&mut self) -> Output {
        Output { proofs_changed: self.proofs.take_changed(), ..std::mem::take(&mut self.output) }
    }

    /// This member and its cluster.
    #[must_use]
    pub fn own(&self) -> &Own {
        &self.own
    }

    // ── Members ──

    /// The table of members has changed.
    pub fn follow(&mut self, members: Members) {
        self.members = members;
        let removed = &self.members.removed;
        self.found.retain(|id, _| !removed.contains(id));
        self.told_places.retain(|id, _| !removed.contains(id));
        self.quotas.retain(|id, _| !removed.contains(id));
        self.find_least_quota();
        self.members_changed();
    }

    /// A known member has named these members. Returns whether that is news: a member of this cluster that was neither known
    /// nor removed.
    pub fn vouched_for(&mut self, list: MemberList) -> bool {
        if list.cluster != self.own.cluster {
            return false;
        }
        let is_newer = self.found_at < list.members.at;
        self.found_at = self.found_at.max(list.members.at);
        let mut is_news = false;
        for MemberInfo { id, peer_urls, .. } in list.members.list {
            let has_room = self.found.len() < FOUND_MAX || self.found.contains_key(&id);
            if self.members.removed.contains(&id) || !has_room || !is_bounded(&peer_urls) {
                continue;
            }
            is_news |= !self.knows(id);
            match self.found.entry(id) {
                Entry::Vacant(entry) => drop(entry.insert(peer_urls)),
                Entry::Occupied(mut entry) if is_newer => drop(entry.insert(peer_urls)),
                Entry::Occupied(_) => {}
            }
        }
        if is_news || is_newer {
            self.members_changed();
        }
        is_news
    }

    /// The members that this one knows, for a member that asks about a stranger.
    pub(crate) fn named(&self) -> MemberList {
        let is_unlisted = |id: &NodeId| !self.is_listed(*id) && !self.members.removed.contains(id);
        let found = self.found.iter().filter(|(id, _)| is_unlisted(id));
        let found =
            found.map(|(&id, urls)| MemberInfo { id, peer_urls: urls.clone(), ..MemberInfo::default() });
        let Members { at, list, removed } = self.members.clone();
        self.member_list(Members { at, list: list.into_iter().chain(found).collect(), removed })
    }

    /// All members but this one that the table lists, or others have named so far, with their peer URLs.
    fn peer_urls(&self) -> PeerUrls {
        let mut urls = self.found.clone();
        urls.extend(self.members.list.iter().map(|member| (member.id, member.peer_urls.clone())));
        urls.retain(|id, _| self.is_linked(*id));
        urls
    }

    fn members_changed(&mut self) {
        let known = self.peer_urls();
        self.output.note_members = Some(known).filter(|known| *known != self.noted);
        self.output.places_changed = true;
        let PeerTable { proofs, found, members, .. } = self;
        proofs.put(|id| is_known(members, found, id));
    }

    /// The caller with this number has read it: its challenge leaves as soon as the member that it claims to be is known.
    pub(crate) fn challenge(&mut self, number: u64) {
        let PeerTable { proofs, found, members, .. } = self;
        proofs.ready(number, |id| is_known(members, found, id));
    }

    /// The addresses of all other members: those the table lists, and those that only known members have named so far.
    #[must_use]
    pub fn places(&self) -> BTreeMap<NodeId, Vec<PeerAddress>> {
        self.peer_urls().into_iter().map(|(id, urls)| (id, self.addresses_of(id, &urls))).collect()
    }

    /// Whether this member keeps connections to another one: a member that the table lists, or known members have named.
    #[must_use]
    pub fn is_linked(&self, id: NodeId) -> bool {
        id != self.own.id
            && !self.members.removed.contains(&id)
            && (self.found.contains_key(&id) || self.is_listed(id))
    }

    fn addresses_of(&self, id: NodeId, urls: &[String]) -> Vec<PeerAddress> {
        let mut addresses: Vec<PeerAddress> = urls.iter().filter_map(|url| PeerAddress::of(url)).collect();
        let told = self.told_places.get(&id).into_iter().flatten();
        for address in told.filter_map(|url| PeerAddress::of(url)) {
            // An announced address may add TLS, but never move a member from TLS to the clear.
            let is_no_worse = address.is_tls || addresses.iter().all(|known| !known.is_tls);
            if is_no_worse && !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        addresses
    }

    /// The hosts of a member's peer URLs, as far as known here.
    pub(crate) fn hosts_of(&self, id: NodeId) -> BTreeSet<String> {
        let listed = self.members.list.iter().find(|member| member.id == id).map(|member| &member.peer_urls);
        let urls = listed.or_else(|| self.found.get(&id)).into_iter().flatten();
        urls.filter_map(|url| PeerAddress::of(url)).map(|address| address.host).collect()
    }

    /// Whether this member knows, by its table or from a peer, that it was removed.
    #[must_use]
    pub fn is_removed(&self) -> bool {
        self.was_removed || self.members.removed.contains(&self.own.id)
    }

    /// Whether the table of members, as applied here, lists this one.
    #[must_use]
    pub fn is_listed(&self, id: NodeId) -> bool {
        self.members.list.iter().any(|member| member.id == id)
    }

    /// Whether `id` is a member as far as known here: by the table, or because known members named it.
    #[must_use]
    pub fn knows(&self, id: NodeId) -> bool {
        is_known(&self.members, &self.found, id)
    }

    /// Whether another member was removed.
    #[must_use]
    pub fn has_removed(&self, id: NodeId) -> bool {
        self.members.removed.contains(&id)
    }

    pub(crate) fn is_learner(&self) -> bool {
        self.members.list.iter().any(|member| member.id == self.own.id && member.learner)
    }

    /// This member's peer URLs, as others know them.
    #[must_use]
    pub fn own_peer_urls(&self) -> &[String] {
        let own = self.members.list.iter().find(|member| member.id == self.own.id);
        own.map_or(&self.own.peer_urls, |own| &own.peer_urls)
    }

    /// The feature level of the cluster has been applied.
    pub fn set_level(&mut self, level: u16) {
        self.level = level;
    }

    /// The feature level of the cluster, as far as known here.
    #[must_use]
    pub fn level(&self) -> u16 {
        self.level
    }

    /// A caller came that is not known here.
    pub(crate) fn stranger_came(&mut self) {
        self.output.stranger_came = true;
    }

    // ── What members announce ──

    /// A member announces its peer URLs, after its proof.
    pub(crate) fn learnt_places(&mut self, of: NodeId, urls: Vec<String>) {
        if is_bounded(&urls) && self.knows(of) && self.told_places.get(&of) != Some(&urls) {
            self.told_places.insert(of, urls);
            self.output.places_changed = true;
        }
    }

    /// Forgets the peer URLs that a member announced.
    pub fn forget_places(&mut self, of: NodeId) {
        self.output.places_changed |= self.told_places.remove(&of).is_some();
    }

    /// A member announces its leader priority. Returns whether it changed.
    pub(crate) fn learnt_priority(&mut self, of: NodeId, priority: u8) -> bool {
        let known = self.priorities.insert(of, priority);
        known.unwrap_or(LeadershipConfig::default().priority) != priority
    }

    /// A member announces its quota.
    pub(crate) fn learnt_quota(&mut self, of: NodeId, bytes: u64) {
        let is_news = self.quotas.insert(of, bytes) != Some(bytes);
        self.find_least_quota();
        if is_news && self.is_listed(of) && bytes < self.own.quota {
            self.output.notes.push(Note::SmallerQuota { of, bytes, own: self.own.quota });
        }
    }

    fn find_least_quota(&mut self) {
        let listed = self.quotas.iter().filter(|(id, _)| **id != self.own.id && self.is_listed(**id));
        self.least_quota = listed.map(|(_, bytes)| *bytes).min();
    }

    /// The least quota of any other member that the table lists, as far as announced; in bytes.
    #[must_use]
    pub fn least_quota(&self) -> Option<u64> {
        self.least_quota
    }

    /// What this member announces.
    pub(crate) fn introduction(&self) -> Introduction {
        Introduction { peer_urls: self.own_peer_urls().to_vec(), priority: self.own.priority }
    }

    /// The answer to a newcomer or a member; for a newcomer, `members` are confirmed by a quorum.
    pub(crate) fn member_list(&self, members: Members) -> MemberList {
        let mut heard = self.heard.clone();
        heard.insert(self.own.id);
        MemberList {
            cluster: self.own.cluster,
            began_with: self.own.began_with.clone(),
            members,
            heard: heard.into_iter().collect(),
        }
    }

    /// Takes over the members that were written down in earlier runs.
    pub fn recall_members(&mut self, known: PeerUrls) {
        self.found.extend(known.iter().map(|(&id, urls)| (id, urls.clone())));
        self.noted = known;
    }

    /// These members are on the disk.
    pub fn noted(&mut self, known: PeerUrls) {
        self.noted = known;
    }

    // ── Directories ──

    /// Takes over the directories that were written down in earlier runs.
    pub fn recall(&mut self, lives: impl Iterator<Item = (NodeId, Incarnation)>) {
        for (voter, life) in lives {
            self.heard.insert(voter);
            self.remembered.insert(voter);
            self.lives.insert(voter, life);
        }
    }

    /// The directory of this voter is on the disk.
    pub fn remembered(&mut self, voter: NodeId) {
        self.remembered.insert(voter);
    }

    /// Whether the caller is known with another directory than the one it has or is about to make. What this member has
    /// applied or heard stays true, however old it is; not knowing proves nothing. A learner may begin again: nothing
    /// it acknowledged counts yet.
    pub(crate) fn knows_otherwise(&self, hello: &Hello) -> bool {
        if hello.incarnation == NO_DIRECTORY {
            let listed = self.members.list.iter().find(|member| member.id == hello.from);
            return self.heard.contains(&hello.from) || listed.is_some_and(MemberInfo::is_published);
        }
        self.lives.get(&hello.from).is_some_and(|life| *life != hello.incarnation)
    }

    /// A member has proved its identity.
    pub(crate) fn let_in(&mut self, hello: &Hello) {
        self.heard.insert(hello.from);
        self.meet(hello.from, hello.incarnation);
        self.proofs.arrived(hello.from);
    }

    /// Records the directory of a member. A voter keeps that directory for life, so this record is never changed.
    fn meet(&mut self, member: NodeId, life: Incarnation) {
        let is_voter = |other: &MemberInfo| other.id == member && !other.learner;
        if self.members.list.iter().any(is_voter) {
            let life = *self.lives.entry(member).or_insert(life);
            if !self.remembered.contains(&member) {
                self.output.remember = Some((member, life));
            }
        }
    }

    /// The members that have completed a handshake here, in this run or an earlier one.
    #[must_use]
    pub fn heard(&self) -> &BTreeSet<NodeId> {
        &self.heard
    }

    /// A peer has reported that this member was removed.
    pub(crate) fn told_of_removal(&mut self) {
        self.was_removed = true;
    }

    /// A peer has reported that it knows this member with another directory.
    pub(crate) fn told_of_another_directory(&mut self) {
        self.was_known = true;
    }

    /// Whether a peer has reported that it knows this member with another directory.
    #[must_use]
    pub fn was_known(&self) -> bool {
        self.was_known
    }

    /// Whether anything is kept of members beside the applied table and the challenges.
    #[must_use]
    pub fn is_blank(&self) -> bool {
        self.heard.is_empty()
            && self.lives.is_empty()
            && self.priorities.is_empty()
            && self.quotas.is_empty()
            && self.told_places.is_empty()
    }
}

fn is_bounded(urls: &[String]) -> bool {
    urls.len() <= TOLD_PLACES_MAX && urls.iter().all(|url| url.len() <= TOLD_PLACE_BYTES_MAX)
}

fn is_known(members: &Members, found: &PeerUrls, id: NodeId) -> bool {
    let is_named = found.contains_key(&id) && !members.removed.contains(&id);
    is_named || members.list.iter().any(|member| member.id == id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer_address;
    use kattu_wire::{Lane, PROTOCOL_MAX, PROTOCOL_MIN};

    const US: NodeId = NodeId(1);

    fn table() -> PeerTable {
        PeerTable::new(Own { cluster: 0xC1, id: US, quota: 100, ..Own::default() }, BTreeMap::new())
    }

    fn member(id: u64, url: &str) -> MemberInfo {
        MemberInfo { id: NodeId(id), peer_urls: vec![url.into()], ..MemberInfo::default() }
    }

    fn named(at: u64, list: Vec<MemberInfo>) -> MemberList {
        let members = Members { at: LogIndex(at), list, removed: vec![] };
        MemberList { cluster: 0xC1, began_with: vec![], members, heard: vec![] }
    }

    fn hello(from: u64, incarnation: u64) -> Hello {
        Hello {
            protocol_min: PROTOCOL_MIN,
            protocol_max: PROTOCOL_MAX,
            cluster: 0xC1,
            from: NodeId(from),
            incarnation: Incarnation(incarnation),
            to: US,
            lane: Lane::Bulk,
            learner: false,
        }
    }

    fn places(table: &PeerTable) -> Vec<String> {
        let all = table.places().into_iter();
        all.map(|(id, addresses)| format!("{} {}", id.0, peer_address::join(&addresses))).collect()
    }

    #[test]
    fn places_come_from_the_table_and_from_the_members_that_it_lists() {
        let mut table = table();
        let list = vec![member(1, "http://a:1"), member(2, "http://b:2")];
        table.follow(Members { list: list.clone(), ..Members::default() });
        assert_eq!(places(&table), ["2 b:2"]);
        assert!(!table.knows(NodeId(3)) && table.take_output().places_changed);
        assert!(!table.take_output().places_changed, "once");
        let all = vec![member(2, "http://elsewhere:2"), member(3, "http://c:3")];
        assert!(!table.vouched_for(MemberList { cluster: 0xC2, ..named(1, all.clone()) }));
        assert!(table.vouched_for(named(1, all.clone())));
        assert!(table.take_output().places_changed && table.knows(NodeId(3)), "others have added it");
        assert!(!table.vouched_for(named(2, all)), "it names no other");
        assert_eq!(places(&table), ["2 b:2", "3 c:3"], "of its own members the table knows better");
        let removed = vec![NodeId(3)];
        table.follow(Members { list, removed, ..Members::default() });
        assert_eq!(places(&table), ["2 b:2"]);
        assert!(!table.knows(NodeId(3)) && !table.is_linked(NodeId(3)) && !table.is_removed());
        table.follow(Members { removed: vec![US], ..Members::default() });
        assert!(table.is_removed());
    }

    #[test]
    fn of_a_named_member_the_newest_address_counts_and_lists_are_bounded() {
        let mut table = table();
        assert!(table.vouched_for(named(5, vec![member(2, "http://b:2")])));
        assert!(table.vouched_for(named(4, vec![member(2, "http://older:2"), member(3, "http://c:3")])));
        assert_eq!(
            places(&table),
            ["2 b:2", "3 c:3"],
            "an older table still names a member that was not known"
        );
        assert!(!table.vouched_for(named(6, vec![member(2, "http://newer:2")])));
        assert_eq!(places(&table), ["2 newer:2", "3 c:3"]);
        for too_much in [vec!["http://x:1".to_string(); 17], vec![format!("http://{}:1", "x".repeat(512))]] {
            let of = MemberInfo { id: NodeId(4), peer_urls: too_much, ..MemberInfo::default() };
            assert!(!table.vouched_for(named(7, vec![of])) && !table.knows(NodeId(4)));
        }
        let many = (1000..1000 + FOUND_MAX as u64).map(|id| member(id, "http://x:1"));
        assert!(table.vouched_for(named(8, many.collect())));
        assert_eq!(table.places().len(), FOUND_MAX);
        assert!(!table.vouched_for(named(9, vec![member(9, "http://x:1")])), "there is no room");
        assert!(!table.vouched_for(named(10, vec![member(3, "http://c:4")])) && table.knows(NodeId(3)));
        assert!(places(&table).contains(&"3 c:4".to_string()), "the known ones keep their place");
    }

    #[test]
    fn the_members_that_are_known_are_written_down_and_known_in_the_next_run() {
        let known = |ids: &[u64]| -> PeerUrls {
            ids.iter().map(|&id| (NodeId(id), vec![format!("http://n{id}:1")])).collect()
        };
        let of =
            |ids: &[u64]| ids.iter().map(|&id| member(id, &format!("http://n{id}:1"))).collect::<Vec<_>>();
        let began_with = of(&[1, 2, 3]);
        let own = || Own { cluster: 0xC1, id: US, began_with: began_with.clone(), ..Own::default() };
        let mut table = PeerTable::new(own(), BTreeMap::new());
        let first = Members { list: began_with.clone(), ..Members::default() };
        table.follow(first.clone());
        assert_eq!(table.take_output().note_members, None, "the identity of the directory names them");
        assert!(table.vouched_for(named(7, of(&[3, 4]))));
        assert_eq!(table.take_output().note_members, Some(known(&[2, 3, 4])));
        assert!(!table.vouched_for(named(8, of(&[3, 4]))));
        assert_eq!(table.take_output().note_members, Some(known(&[2, 3, 4])), "it was not confirmed");
        table.noted(known(&[2, 3, 4]));
        assert!(!table.vouched_for(named(9, of(&[3, 4]))));
        assert_eq!(table.take_output().note_members, None);

        let mut next_run = PeerTable::new(own(), BTreeMap::new());
        next_run.recall_members(known(&[2, 3, 4]));
        next_run.follow(first);
        assert!(
            next_run.knows(NodeId(4)) && next_run.is_linked(NodeId(4)),
            "its table is older than the file"
        );
        assert_eq!(next_run.take_output().note_members, None);
        next_run.follow(Members { list: of(&[1, 4]), removed: vec![NodeId(2), NodeId(3)], at: LogIndex(9) });
        assert_eq!(
            next_run.take_output().note_members,
            Some(known(&[4])),
            "those that were removed are not kept"
        );

        let joined = PeerTable::new(own(), known(&[1, 2, 4]));
        assert_eq!(joined.noted, known(&[2, 4]), "the members that it found when it joined");
    }

    #[test]
    fn an_announced_address_is_added_and_never_moves_a_member_out_of_tls() {
        let mut table = table();
        table.follow(Members { list: vec![member(2, "https://b:2")], ..Members::default() });
        table.take_output();
        table.learnt_places(NodeId(2), vec!["http://b:2".into(), "https://new:2".into()]);
        assert_eq!(places(&table), ["2 https://b:2,https://new:2"]);
        assert!(table.take_output().places_changed);
        table.learnt_places(NodeId(2), vec!["http://b:2".into(), "https://new:2".into()]);
        assert!(!table.take_output().places_changed, "no news");
        for too_much in [vec!["http://x:1".into(); 17], vec![format!("http://{}:1", "x".repeat(512))]] {
            table.learnt_places(NodeId(2), too_much);
        }
        table.learnt_places(NodeId(9), vec!["http://x:1".into()]);
        assert_eq!(places(&table), ["2 https://b:2,https://new:2"], "bounded, and of known members only");
        table.forget_places(NodeId(2));
        assert_eq!(places(&table), ["2 https://b:2"]);
        assert!(table.take_output().places_changed);
    }

    #[test]
    fn the_least_quota_is_that_of_a_member() {
        let mut table = table();
        let follow = |table: &mut PeerTable, ids: &[u64]| {
            let list = ids.iter().map(|id| member(*id, "http://a:1")).collect();
            table.follow(Members { list, ..Members::default() });
            table.least_quota()
        };
        assert_eq!(follow(&mut table, &[1, 2, 3]), None, "no quota is known");
        for (of, bytes, least, why) in [
            (2, 170, 170, "larger than this member's"),
            (2, 70, 70, "it was started with another"),
            (3, 50, 50, "the least"),
            (4, 10, 50, "a stranger's"),
            (3, 90, 70, "it was started with another"),
        ] {
            table.learnt_quota(NodeId(of), bytes);
            assert_eq!(table.least_quota(), Some(least), "{why}");
        }
        let told = |of: u64, bytes| Note::SmallerQuota { of: NodeId(of), bytes, own: 100 };
        assert_eq!(table.take_output().notes, [told(2, 70), told(3, 50), told(3, 90)]);
        assert_eq!(follow(&mut table, &[1, 2, 3, 4]), Some(10), "it is a member now");
        assert_eq!(follow(&mut table, &[1, 3]), Some(90), "it is none any more");
    }

    #[test]
    fn the_directory_of_a_voter_is_written_down_once_and_again_until_it_is_on_the_disk() {
        let mut table = table();
        let learner = MemberInfo { learner: true, ..member(3, "http://c:3") };
        table.follow(Members { list: vec![member(2, "http://b:2"), learner], ..Members::default() });
        let orders = |table: &mut PeerTable, from, incarnation| {
            assert!(!table.knows_otherwise(&hello(from, incarnation)));
            table.let_in(&hello(from, incarnation));
            table.take_output().remember
        };
        assert_eq!(orders(&mut table, 2, 7), Some((NodeId(2), Incarnation(7))));
        assert_eq!(orders(&mut table, 2, 7), Some((NodeId(2), Incarnation(7))), "not confirmed");
        table.remembered(NodeId(2));
        assert_eq!(orders(&mut table, 2, 7), None);
        assert!(table.knows_otherwise(&hello(2, 8)) && table.knows_otherwise(&hello(2, 0)));
        assert_eq!(orders(&mut table, 3, 7), None, "a learner has no votes that count");
        assert!(!table.knows_otherwise(&hello(3, 8)) && table.knows_otherwise(&hello(3, 0)));
        assert!(!table.knows_otherwise(&hello(4, 0)), "not knowing proves nothing");

        let mut next_run = self::table();
        next_run.follow(Members { list: vec![member(2, "http://b:2")], ..Members::default() });
        next_run.recall([(NodeId(2), Incarnation(7))].into_iter());
        assert!(next_run.knows_otherwise(&hello(2, 8)) && next_run.heard().contains(&NodeId(2)));
        assert_eq!(orders(&mut next_run, 2, 7), None);
        let published = MemberInfo { name: "n5".into(), ..member(5, "http://e:5") };
        next_run.follow(Members { list: vec![published], ..Members::default() });
        assert!(next_run.knows_otherwise(&hello(5, 0)), "the log says that it was there");
    }
}

//! The peer table, and the handshake on peer connections, on both sides. [fault-model NT1, NT2]
//!
//! ```text
//!   member   ── Hello ──▶ Welcome, Removed, Conflict or Refused; then Introduction (peer URLs), Level, Quota
//!   founder  ── Hello ──▶ the same, without an incarnation and an Introduction: is this id known already?
//!   newcomer ── Join ───▶ MemberList, confirmed by a quorum, or Refused; then the connection is closed
//! ```
//! Cluster, addressee and membership are checked before anything else is read. A caller that does not belong gets the
//! reason, and the connection is closed. A caller that claims to be a member has to prove it ([`crate::proofs`]):
//! before that nothing it sends counts, and nothing of it is kept. A caller that is missing in this table may have been
//! added while this member was away, and may be the leader [Ongaro14 §4.1]: then the known members are asked
//! ([`crate::vouching`]), and a member that they do not name is neither dialled nor heard.
//! A voter has one directory for life. A member that is about to make another one, or comes with another one than
//! before, is refused: the votes and acknowledgements it gave in the first one are forgotten. [fault-model F61]
//! Knows nothing of: raft messages, entries, the node.

use crate::links::Failure;
use crate::peer_address::PeerAddress;
use crate::proofs::{Asked, Proofs};
use crate::report;
use crate::tls;
use kattu_node::contract::{MemberInfo, Members};
use kattu_node::level;
use kattu_raft::{Incarnation, LeadershipConfig, NodeId, SharedBytes};
use kattu_tls::ServerTls;
use kattu_wal::Incarnations;
use kattu_wire::{ASK_ME, Conflict, Introduction, Join, MemberList, Removed};
use kattu_wire::{
    Frame, FrameWriter, Hello, Lane, PROTOCOL_MAX, PROTOCOL_MIN, PROTOCOL_PROOFS, Refused, Welcome,
};
use rustls::pki_types::CertificateDer;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::Notify;

/// Advice for the operator of a member that has lost its directory.
pub(crate) const LOST_PROMISES: &str = "its votes and acknowledgements are lost: remove this member and add it as a \
     new one with an empty directory";

/// A connection, in TLS or in the clear.
pub(crate) trait Duplex: AsyncRead + AsyncWrite + Unpin {}

impl<S: AsyncRead + AsyncWrite + Unpin> Duplex for S {}

/// Longest frame of a handshake: most are a few dozen bytes, a reason is a sentence.
pub(crate) const HANDSHAKE_BYTES_MAX: usize = 4096;

/// Longest list of peer URLs that is accepted: more than a member has.
const TOLD_PLACES_MAX: usize = 16;

/// The incarnation of a member that has no directory yet.
const NO_DIRECTORY: Incarnation = Incarnation(0);

/// Longest member list: it names all members and all removed ones.
const MEMBER_LIST_BYTES_MAX: usize = 1 << 20;

/// This member's identity, the members it knows, and what they have announced.
#[derive(Debug, Default)]
pub(crate) struct PeerTable {
    pub(crate) cluster: u64,
    pub(crate) id: NodeId,
    pub(crate) incarnation: Incarnation,
    /// The members the cluster began with, for newcomers.
    pub(crate) began_with: Vec<MemberInfo>,
    /// Members that others have named, when this one joined or asked them since; the table may not list them yet.
    pub(crate) found: RefCell<BTreeMap<NodeId, Vec<String>>>,
    /// TLS settings for dialling other members, where TLS is spoken.
    pub(crate) tls: Option<Arc<ServerTls>>,
    /// Challenges and proofs of identity.
    pub(crate) proofs: Rc<Proofs>,
    /// The feature level of the cluster, as far as known here.
    pub(crate) level: Cell<u16>,
    /// A caller came that is not known here.
    pub(crate) stranger_came: Notify,
    /// This member's peer URLs, if the table does not list them.
    pub(crate) own_urls: Vec<String>,
    /// This member's leader priority.
    pub(crate) priority: u8,
    /// The leader priorities that others have announced.
    pub(crate) priorities: RefCell<BTreeMap<NodeId, u8>>,
    /// Peer URLs that members have announced after their proof: a table that this member has not been able to follow
    /// may be older.
    pub(crate) told_places: RefCell<BTreeMap<NodeId, Vec<String>>>,
    /// Quota of this member's store, in bytes.
    pub(crate) quota: u64,
    /// Quotas of the stores of others, in bytes, as announced.
    pub(crate) quotas: RefCell<BTreeMap<NodeId, u64>>,
    /// The least of them, among the members that the table lists.
    pub(crate) least_quota: Cell<Option<u64>>,
    /// The table of members, as applied here.
    pub(crate) members: RefCell<Members>,
    /// Members that have completed a handshake here, in this run or an earlier one.
    pub(crate) heard: RefCell<BTreeSet<NodeId>>,
    /// The directory that each voter came from.
    pub(crate) lives: RefCell<BTreeMap<NodeId, Incarnation>>,
    /// The same on disk.
    pub(crate) book: RefCell<Option<Incarnations>>,
    /// Members' addresses may have changed since the driver looked.
    pub(crate) is_news: Cell<bool>,
    /// A member of this cluster reported that this one was removed.
    pub(crate) was_removed: Cell<bool>,
    /// A member of this cluster reported that it knows this one with another directory.
    pub(crate) was_known: Cell<bool>,
}

/// A caller that passed the handshake.
pub(crate) enum Received {
    /// A caller that claims to be a member, and the challenge it has to answer, if any.
    Member(Hello, Option<Asked>),
    /// A newcomer, which waits for [`tell`].
    Joiner(Join),
    /// A founding member that is about to make its directory; no other directory of it is known here.
    Bootstrap,
}

impl PeerTable {
    /// Takes over what was recorded of other members in earlier runs.
    pub(crate) fn remember(&self, book: Incarnations) {
        self.heard.borrow_mut().extend(book.all().map(|(voter, _)| voter));
        self.lives.borrow_mut().extend(book.all());
        *self.book.borrow_mut() = Some(book);
    }

    /// The table of members has changed.
    pub(crate) fn follow(&self, members: Members) {
        *self.members.borrow_mut() = members;
        let removed = &self.members.borrow().removed;
        self.told_places.borrow_mut().retain(|id, _| !removed.contains(id));
        self.quotas.borrow_mut().retain(|id, _| !removed.contains(id));
        self.find_least_quota();
        self.is_news.set(true);
        self.proofs.put(|id| self.knows(id));
    }

    /// Known members have named these, as a quorum confirmed to them.
    pub(crate) fn vouched_for(&self, members: Members) {
        let named = members.list.into_iter().map(|member| (member.id, member.peer_urls));
        self.found.borrow_mut().extend(named);
        self.is_news.set(true);
        self.proofs.put(|id| self.knows(id));
    }

    /// The addresses of all other members: those the table lists, and those that only known members have named so far.
    pub(crate) fn places(&self) -> BTreeMap<NodeId, Vec<PeerAddress>> {
        let members = self.members.borrow();
        let mut urls: BTreeMap<NodeId, Vec<String>> = self.found.borrow().clone();
        urls.extend(members.list.iter().map(|member| (member.id, member.peer_urls.clone())));
        urls.retain(|id, _| *id != self.id && !members.removed.contains(id));
        let told = self.told_places.borrow();
        let all = |id: &NodeId, urls: Vec<String>| {
            let mut addresses: Vec<PeerAddress> =
                urls.iter().filter_map(|url| PeerAddress::of(url)).collect();
            for address in told.get(id).into_iter().flatten().filter_map(|url| PeerAddress::of(url)) {
                // An announced address may add TLS, but never move a member from TLS to the clear.
                let is_no_worse = address.is_tls || addresses.iter().all(|known| !known.is_tls);
                if is_no_worse && !addresses.contains(&address) {
                    addresses.push(address);
                }
            }
            addresses
        };
        urls.into_iter().map(|(id, urls)| (id, all(&id, urls))).collect()
    }

    /// A proven member announces its peer URLs.
    pub(crate) fn learnt_places(&self, of: NodeId, urls: Vec<String>) {
        let is_bounded =
            urls.len() <= TOLD_PLACES_MAX && urls.iter().all(|url| url.len() <= HANDSHAKE_BYTES_MAX / 8);
        let is_new = |id: &NodeId| is_bounded && self.told_places.borrow().get(id) != Some(&urls);
        if self.knows(of) && is_new(&of) {
            self.told_places.borrow_mut().insert(of, urls);
            self.is_news.set(true);
        }
    }

    /// Forgets the peer URLs that a member announced.
    pub(crate) fn forget_places(&self, of: NodeId) {
        if self.told_places.borrow_mut().remove(&of).is_some() {
            self.is_news.set(true);
        }
    }

    /// The hosts of a member's peer URLs, as far as known here.
    fn hosts_of(&self, id: NodeId) -> BTreeSet<String> {
        let members = self.members.borrow();
        let listed =
            members.list.iter().find(|member| member.id == id).map(|member| member.peer_urls.clone());
        let urls = listed.or_else(|| self.found.borrow().get(&id).cloned()).unwrap_or_default();
        urls.iter().filter_map(|url| PeerAddress::of(url)).map(|address| address.host).collect()
    }

    /// Whether this member knows, by its table or from a peer, that it was removed.
    pub(crate) fn is_removed(&self) -> bool {
        self.was_removed.get() || self.members.borrow().removed.contains(&self.id)
    }

    /// A member announces its leader priority. Returns whether it changed.
    pub(crate) fn learnt_priority(&self, of: NodeId, priority: u8) -> bool {
        let known = self.priorities.borrow_mut().insert(of, priority);
        known.unwrap_or(LeadershipConfig::default().priority) != priority
    }

    /// A member announces its quota.
    pub(crate) fn learnt_quota(&self, of: NodeId, bytes: u64) {
        let is_news = self.quotas.borrow_mut().insert(of, bytes) != Some(bytes);
        self.find_least_quota();
        if is_news && self.is_listed(of) && bytes < self.quota {
            report::info(format_args!(
                "member {:x} has a quota of {bytes} bytes, this one of {}: the smallest quota of any member applies",
                of.0, self.quota
            ));
        }
    }

    /// All members hold the same data, so the least quota of any member is the limit.
    fn find_least_quota(&self) {
        let quotas = self.quotas.borrow();
        let listed = quotas.iter().filter(|(id, _)| **id != self.id && self.is_listed(**id));
        self.least_quota.set(listed.map(|(_, bytes)| *bytes).min());
    }

    /// Whether the table of members, as applied here, lists this one.
    pub(crate) fn is_listed(&self, id: NodeId) -> bool {
        self.members.borrow().list.iter().any(|member| member.id == id)
    }

    /// Whether `id` is a member as far as known here: by the table, or because known members named it.
    pub(crate) fn knows(&self, id: NodeId) -> bool {
        let is_named = self.found.borrow().contains_key(&id) && !self.members.borrow().removed.contains(&id);
        is_named || self.is_listed(id)
    }

    fn is_learner(&self) -> bool {
        self.members.borrow().list.iter().any(|member| member.id == self.id && member.learner)
    }

    /// This member's peer URLs, as others know them.
    pub(crate) fn own_peer_urls(&self) -> Vec<String> {
        let members = self.members.borrow();
        let own = members.list.iter().find(|member| member.id == self.id);
        own.map_or_else(|| self.own_urls.clone(), |own| own.peer_urls.clone())
    }

    fn introduction(&self) -> Introduction {
        Introduction { peer_urls: self.own_peer_urls(), priority: self.priority }
    }

    /// The answer to a newcomer; `members` are confirmed by a quorum.
    fn member_list(&self, members: Members) -> MemberList {
        let mut heard = self.heard.borrow().clone();
        heard.insert(self.id);
        MemberList {
            cluster: self.cluster,
            began_with: self.began_with.clone(),
            members,
            heard: heard.into_iter().collect(),
        }
    }

    /// Whether the caller is known with another directory than the one it has or is about to make. What this member has
    /// applied or heard stays true, however old it is; not knowing proves nothing. A learner may begin again: nothing
    /// it acknowledged counts yet.
    fn knows_otherwise(&self, hello: &Hello) -> bool {
        if hello.incarnation == NO_DIRECTORY {
            let members = self.members.borrow();
            let listed = members.list.iter().find(|member| member.id == hello.from);
            return self.heard.borrow().contains(&hello.from) || listed.is_some_and(MemberInfo::is_published);
        }
        self.lives.borrow().get(&hello.from).is_some_and(|life| *life != hello.incarnation)
    }

    /// Whether a caller that passed the handshake a moment ago has been removed since, or is known with another
    /// directory.
    pub(crate) fn has_left(&self, hello: &Hello) -> bool {
        self.members.borrow().removed.contains(&hello.from) || self.knows_otherwise(hello)
    }

    /// A member has proved its identity.
    pub(crate) fn let_in(&self, hello: &Hello) {
        self.heard.borrow_mut().insert(hello.from);
        self.meet(hello.from, hello.incarnation);
    }

    /// Records the directory of a member. A voter keeps that directory for life, so this record is never changed.
    fn meet(&self, member: NodeId, life: Incarnation) {
        let is_voter = |other: &MemberInfo| other.id == member && !other.learner;
        if !self.members.borrow().list.iter().any(is_voter) {
            return;
        }
        self.lives.borrow_mut().entry(member).or_insert(life);
        // A record that could not be written is retried when the member comes again.
        if let Some(book) = &mut *self.book.borrow_mut()
            && book.all().all(|(noted, _)| noted != member)
            && let Err(error) = book.meet(member, life)
        {
            report::warn(format_args!(
                "cannot record the data directory of member {:x}: {error}; after a restart this member may admit it with \
                 another one, which lacks its votes and acknowledgements",
                member.0
            ));
        }
    }
}

/// Sends the handshake of a connection to `to`, and returns the answer.
pub(crate) async fn handshake(
    socket: &mut impl Duplex,
    peer_table: &PeerTable,
    to: NodeId,
    lane: Lane,
) -> Result<Welcome, Failure> {
    let hello = Hello {
        incarnation: peer_table.incarnation,
        lane,
        learner: peer_table.is_learner(),
        ..first_hello(peer_table.cluster, peer_table.id, to)
    };
    say(socket, &Frame::Hello(hello)).await.map_err(|error| tls::failed(&error))?;
    match hear(socket, HANDSHAKE_BYTES_MAX).await {
        Ok(Frame::Welcome(welcome)) if welcome.from == to => {
            let protocol = welcome.protocol;
            if !(PROTOCOL_MIN..=PROTOCOL_MAX).contains(&protocol) {
                return Err(Failure::Refused(format!(
                    "the peer chose protocol version {protocol}, this member speaks {PROTOCOL_MIN}..={PROTOCOL_MAX}"
                )));
            }
            Ok(welcome)
        }
        Ok(Frame::Welcome(welcome)) => Err(Failure::Refused(format!(
            "member {:x} answers at this address: check --initial-cluster",
            welcome.from.0
        ))),
        Ok(Frame::Refused(refused)) => Err(Failure::Refused(refused.reason)),
        Ok(Frame::Removed(removed))
            if (removed.cluster, removed.member) == (peer_table.cluster, peer_table.id) =>
        {
            Err(Failure::Removed)
        }
        Ok(Frame::Conflict(known)) => {
            let is_of_us = (known.cluster, known.member) == (peer_table.cluster, peer_table.id);
            peer_table.was_known.set(peer_table.was_known.get() || is_of_us);
            Err(Failure::Refused(format!(
                "the peer knows this member with another data directory; {LOST_PROMISES}"
            )))
        }
        Ok(_) => Err(Failure::Refused("the peer answered the handshake with an unexpected frame".into())),
        Err(Unheard::Gone(error)) => Err(tls::failed(&error)),
        Err(Unheard::Nonsense(reason)) => Err(Failure::Refused(reason)),
    }
}

/// Gives the proof that a welcome asked for, as soon as the peer has sent its secret to this member's own address;
/// meanwhile forwards the challenges for that peer. It does not time out: the caller bounds it.
pub(crate) async fn prove(
    socket: &mut impl Duplex,
    peer_table: &PeerTable,
    welcome: &Welcome,
) -> Result<(), Failure> {
    if welcome.proof == 0 {
        return Ok(());
    }
    let proofs = &peer_table.proofs;
    let expected = proofs.expect(welcome.from, welcome.proof);
    say(socket, &Frame::Proof(ASK_ME)).await.map_err(|_| Failure::Away)?;
    loop {
        let news = proofs.news();
        for challenge in proofs.take_untold(welcome.from) {
            say(socket, &Frame::Challenge(challenge)).await.map_err(|_| Failure::Away)?;
        }
        if let Some(secret) = expected.secret() {
            return say(socket, &Frame::Proof(secret)).await.map_err(|_| Failure::Away);
        }
        tokio::select! {
            () = news => {}
            ended = ends(socket) => return Err(ended),
        }
    }
}

/// Returns when the other side closes; its data on this connection is ignored.
async fn ends(socket: &mut impl Duplex) -> Failure {
    let mut scrap = [0; 64];
    loop {
        match socket.read(&mut scrap).await {
            Ok(0) => return Failure::Away,
            Ok(_) => {}
            Err(error) => return tls::failed(&error),
        }
    }
}

/// Announces this member's URLs, priority, feature level and quota to a peer that has accepted it.
pub(crate) async fn introduce(socket: &mut impl Duplex, peer_table: &PeerTable) -> Result<(), Failure> {
    let introduction = Frame::Introduction(peer_table.introduction());
    for frame in [introduction, Frame::Level(level::KNOWN), Frame::Quota(peer_table.quota)] {
        say(socket, &frame).await.map_err(|_| Failure::Away)?;
    }
    Ok(())
}

fn first_hello(cluster: u64, from: NodeId, to: NodeId) -> Hello {
    Hello {
        protocol_min: PROTOCOL_MIN,
        protocol_max: PROTOCOL_MAX,
        cluster,
        from,
        incarnation: NO_DIRECTORY,
        to,
        lane: Lane::Control,
        learner: false,
    }
}

/// Asks `to` whether it knows `from`, which has no directory, with an earlier one.
pub(crate) async fn is_known(socket: &mut impl Duplex, cluster: u64, from: NodeId, to: NodeId) -> bool {
    say(socket, &Frame::Hello(first_hello(cluster, from, to))).await.is_ok()
        && matches!(hear(socket, HANDSHAKE_BYTES_MAX).await, Ok(Frame::Conflict(known))
            if (known.cluster, known.member) == (cluster, from))
}

/// Asks the member at the other end for the list of members.
pub(crate) async fn ask(socket: &mut impl Duplex, peer_urls: &[String]) -> Result<MemberList, Failure> {
    let join = Join { protocol_min: PROTOCOL_MIN, protocol_max: PROTOCOL_MAX, peer_urls: peer_urls.to_vec() };
    say(socket, &Frame::Join(join)).await.map_err(|_| Failure::Away)?;
    match hear(socket, MEMBER_LIST_BYTES_MAX).await {
        Ok(Frame::MemberList(member_list)) => Ok(member_list),
        Ok(Frame::Refused(refused)) => Err(Failure::Refused(refused.reason)),
        Ok(_) => Err(Failure::Refused("the peer answered the join request with an unexpected frame".into())),
        Err(Unheard::Gone(error)) => Err(tls::failed(&error)),
        Err(Unheard::Nonsense(reason)) => Err(Failure::Refused(reason)),
    }
}

/// Answers the handshake of a caller: returns its kind, or why the connection was closed. `signed` is the certificate
/// that it has shown, if an authority of ours has signed it.
pub(crate) async fn receive(
    socket: &mut impl Duplex,
    peer_table: &PeerTable,
    signed: Option<&CertificateDer<'_>>,
) -> Result<Received, String> {
    let hello = match hear(socket, HANDSHAKE_BYTES_MAX).await {
        Ok(Frame::Hello(hello)) => hello,
        Ok(Frame::Join(join)) => return accept(socket, join).await,
        Ok(_) => return refuse(socket, "a peer connection must begin with a handshake".into()).await,
        Err(Unheard::Gone(_)) => return Err("closed before the handshake".into()),
        Err(Unheard::Nonsense(reason)) => return refuse(socket, reason).await,
    };
    let protocol = match hello.judge(peer_table.cluster, peer_table.id) {
        Ok(protocol) => protocol,
        Err(reason) if hello.incarnation == NO_DIRECTORY && hello.cluster != peer_table.cluster => {
            // A founder asks under each id that its cluster may have, and only one of them is right. If its flags name
            // another cluster, both sides report that when it comes with its directory.
            let _: Result<(), String> = refuse(socket, reason).await;
            return Ok(Received::Bootstrap);
        }
        Err(reason) => return refuse(socket, reason).await,
    };
    if peer_table.members.borrow().removed.contains(&hello.from) {
        let removed = Removed { cluster: peer_table.cluster, member: hello.from };
        let _ = say(socket, &Frame::Removed(removed)).await;
        let _ = socket.shutdown().await;
        return Err(format!("member {:x} was removed", hello.from.0));
    }
    // The certificate of an unknown caller cannot be checked: its hosts are not known.
    let knows = peer_table.knows(hello.from);
    let signed = signed.filter(|_| knows);
    if let Some(certificate) = signed {
        let hosts = peer_table.hosts_of(hello.from);
        if !hosts.iter().any(|host| kattu_tls::is_for(certificate, host)) {
            let (member, hosts) = (hello.from.0, hosts.into_iter().collect::<Vec<_>>().join(", "));
            let reason = format!("its certificate is not for {hosts}, where member {member:x} is reached");
            return refuse(socket, reason).await;
        }
    }
    if peer_table.knows_otherwise(&hello) {
        let known = Conflict { cluster: peer_table.cluster, member: hello.from };
        let _ = say(socket, &Frame::Conflict(known)).await;
        let _ = socket.shutdown().await;
        return Err(format!("member {:x} is known here with another data directory", hello.from.0));
    }
    let mut welcome =
        Welcome { protocol, from: peer_table.id, incarnation: peer_table.incarnation, proof: 0 };
    if hello.incarnation == NO_DIRECTORY {
        say(socket, &Frame::Welcome(welcome)).await.map_err(|error| error.to_string())?;
        let _ = socket.shutdown().await;
        return Ok(Received::Bootstrap);
    }
    if !knows {
        peer_table.stranger_came.notify_one();
    }
    let asked = (signed.is_none() && PROTOCOL_PROOFS <= protocol).then(|| peer_table.proofs.ask(hello.from));
    match &asked {
        Some(asked) => welcome.proof = asked.number,
        None if signed.is_some() => {} // the certificate is its proof
        None if level::PROOFS <= peer_table.level.get() => {
            let reason = "the caller's version cannot prove its identity, as members of this cluster must: run the version of the others";
            return refuse(socket, reason.into()).await;
        }
        None if !knows => {
            let reason = "the caller is not in the receiver's member list yet; the receiver is asking the other members";
            return refuse(socket, reason.into()).await;
        }
        None => {} // its version predates proofs, and so may other members' versions
    }
    say(socket, &Frame::Welcome(welcome)).await.map_err(|error| error.to_string())?;
    Ok(Received::Member(hello, asked))
}

async fn accept(socket: &mut impl Duplex, join: Join) -> Result<Received, String> {
    if join.protocol_max < PROTOCOL_MIN || PROTOCOL_MAX < join.protocol_min {
        let reason = format!(
            "the joining member speaks protocol versions {}..={}, this member speaks {PROTOCOL_MIN}..={PROTOCOL_MAX}: upgrade \
             the older one",
            join.protocol_min, join.protocol_max
        );
        return refuse(socket, reason).await;
    }
    Ok(Received::Joiner(join))
}

/// Answers a newcomer: with the members that a quorum has just confirmed, or with why they are not known. Members know
/// each other's tables, so nothing in them is secret among them.
pub(crate) async fn tell(
    socket: &mut impl Duplex,
    peer_table: &PeerTable,
    members: Result<Members, String>,
) -> Result<(), String> {
    let members = match members {
        Ok(members) => members,
        Err(reason) => return refuse(socket, reason).await,
    };
    say(socket, &Frame::MemberList(peer_table.member_list(members)))
        .await
        .map_err(|error| error.to_string())?;
    let _ = socket.shutdown().await;
    Ok(())
}

/// Refuses a caller with this reason, and closes the connection.
pub(crate) async fn turn_away(socket: &mut impl Duplex, reason: &str) {
    let _: Result<(), String> = refuse(socket, reason.to_string()).await;
}

async fn refuse<T>(socket: &mut impl Duplex, reason: String) -> Result<T, String> {
    let _ = say(socket, &Frame::Refused(Refused { reason: reason.clone() })).await;
    let _ = socket.shutdown().await;
    Err(reason)
}

pub(crate) async fn say(socket: &mut impl Duplex, frame: &Frame) -> std::io::Result<()> {
    let mut writer = FrameWriter::default();
    crate::codec().encode(frame, &mut writer);
    let bytes: Vec<u8> = writer.pieces().flatten().copied().collect();
    socket.write_all(&bytes).await?;
    socket.flush().await // what TLS holds back
}

enum Unheard {
    Gone(std::io::Error),
    Nonsense(String),
}

/// Reads exactly one frame, so that none of the bytes behind it are lost.
async fn hear(socket: &mut impl Duplex, bytes_max: usize) -> Result<Frame, Unheard> {
    let codec = crate::codec();
    let mut bytes = vec![0; kattu_wire::frame::HEADER_BYTES];
    socket.read_exact(&mut bytes).await.map_err(Unheard::Gone)?;
    let len = codec
        .peek_len(&bytes, bytes_max)
        .map_err(|error| Unheard::Nonsense(error.to_string()))?
        .expect("a whole header was read");
    let header = bytes.len();
    bytes.resize(len, 0);
    socket.read_exact(&mut bytes[header..]).await.map_err(Unheard::Gone)?;
    codec.decode(&SharedBytes::from(bytes)).map_err(|error| Unheard::Nonsense(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(id: u64, url: &str) -> MemberInfo {
        MemberInfo { id: NodeId(id), peer_urls: vec![url.into()], ..MemberInfo::default() }
    }

    #[test]
    fn places_come_from_the_table_and_from_whom_its_members_name() {
        let peer_table = PeerTable { id: NodeId(1), ..PeerTable::default() };
        let list = vec![member(1, "http://a:1"), member(2, "http://b:2")];
        peer_table.follow(Members { list: list.clone(), ..Members::default() });
        let places = |peer_table: &PeerTable| {
            let all = peer_table.places().into_iter();
            all.map(|(id, addresses)| format!("{} {}", id.0, crate::peer_address::join(&addresses)))
                .collect::<Vec<_>>()
        };
        assert_eq!(places(&peer_table), ["2 b:2"]);
        assert!(!peer_table.knows(NodeId(3)));
        peer_table.is_news.set(false);
        let named = vec![member(2, "http://elsewhere:2"), member(3, "http://c:3")];
        peer_table.vouched_for(Members { list: named, ..Members::default() });
        assert!(peer_table.is_news.get() && peer_table.knows(NodeId(3)), "others have added it");
        assert_eq!(places(&peer_table), ["2 b:2", "3 c:3"], "of its own members the table knows better");
        let removed = vec![NodeId(3)];
        peer_table.follow(Members { list, removed, ..Members::default() });
        assert_eq!(places(&peer_table), ["2 b:2"]);
        assert!(!peer_table.knows(NodeId(3)) && !peer_table.is_removed());
        peer_table.follow(Members { removed: vec![NodeId(1)], ..Members::default() });
        assert!(peer_table.is_removed());
    }

    #[test]
    fn the_least_quota_is_that_of_a_member() {
        let peer_table = PeerTable { id: NodeId(1), quota: 100, ..PeerTable::default() };
        let follow = |ids: &[u64]| {
            let list = ids.iter().map(|id| member(*id, "http://a:1")).collect();
            peer_table.follow(Members { list, ..Members::default() });
            peer_table.least_quota.get()
        };
        assert_eq!(follow(&[1, 2, 3]), None, "no quota is known");
        let told = |of: u64, bytes: u64| {
            peer_table.learnt_quota(NodeId(of), bytes);
            peer_table.least_quota.get()
        };
        assert_eq!(told(2, 70), Some(70));
        assert_eq!(told(3, 50), Some(50));
        assert_eq!(told(4, 10), Some(50), "a stranger's");
        assert_eq!(told(3, 90), Some(70), "it was started with another");
        assert_eq!(follow(&[1, 2, 3, 4]), Some(10), "it is a member now");
        assert_eq!(follow(&[1, 3]), Some(90), "it is none any more");
    }

    /// Goal: no false alarm when a cluster starts for the first time: its members ask each other under the ids that the
    /// cluster would have from earlier URLs, too, and one that has begun already has only one of them.
    #[test]
    fn a_founder_that_asks_under_another_cluster_id_is_refused_without_an_alarm() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let peer_table = PeerTable { cluster: 0xC1, id: NodeId(1), ..PeerTable::default() };
        let hears = |cluster: u64, incarnation: Incarnation| {
            let hello = Hello { incarnation, ..first_hello(cluster, NodeId(2), NodeId(1)) };
            runtime.block_on(async {
                let (mut theirs, mut ours) = tokio::io::duplex(1 << 12);
                say(&mut theirs, &Frame::Hello(hello)).await.expect("it is open");
                let received = receive(&mut ours, &peer_table, None).await;
                let Ok(answer) = hear(&mut theirs, HANDSHAKE_BYTES_MAX).await else { panic!("no answer") };
                (received.map(|received| matches!(received, Received::Bootstrap)), answer)
            })
        };
        let (received, answer) = hears(0xC2, NO_DIRECTORY);
        assert_eq!(received, Ok(true), "an error would be logged as a warning");
        assert!(matches!(answer, Frame::Refused(_)), "{answer:?}");
        let (received, _) = hears(0xC2, Incarnation(7));
        assert!(
            received.is_err_and(|why| why.contains("cluster c2")),
            "a member of another cluster is reported"
        );
        let (received, answer) = hears(0xC1, NO_DIRECTORY);
        assert!(received == Ok(true) && matches!(answer, Frame::Welcome(_)), "{answer:?}");
    }
}

//! The first words on a peer connection, on both sides. [fault-model NT1, NT2]
//!
//! ```text
//!   member    ── Hello ──▶ Welcome, Removed, Known or Refused; then Introduction: where it is reached, Level: what it knows, Quota: what it can hold
//!   beginner  ── Hello ──▶ the same, without an incarnation and without an Introduction: is anything known of me?
//!   newcomer  ── Join ───▶ Roll: who is in the cluster, as a quorum confirms it, or Refused; and the connection is closed
//! ```
//! Cluster, addressee and membership are checked before anything else is read; whoever does not belong is told why and
//! closed. Of whoever says that it is a member, proof is asked for ([`crate::proofs`]): until that is there nothing it says
//! counts, and nothing of it is kept. Whoever is not in the table here may have been added by others while this member was
//! away, and may be the one that leads [Ongaro14 §4.1]: then the members that are known here are asked ([`crate::vouching`]),
//! and nobody whom they do not name is dialled or heard.
//! A voter has one directory for life. Whoever is about to make one, and is known from another, or comes with another than
//! before, is not let in: what it promised in that one is forgotten. [fault-model F61]
//! Knows nothing of: what is said afterwards.

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

/// What whoever has lost its directory is to do.
pub(crate) const LOST_PROMISES: &str =
    "what that one has promised is lost: remove this member, and add it as a new one with an empty directory";

/// A connection, in TLS or in the clear.
pub(crate) trait Duplex: AsyncRead + AsyncWrite + Unpin {}

impl<S: AsyncRead + AsyncWrite + Unpin> Duplex for S {}

/// A greeting is a few dozen bytes, a reason a sentence.
pub(crate) const HANDSHAKE_BYTES_MAX: usize = 4096;

/// More places than a member has. Whoever says more is not listened to.
const TOLD_PLACES_MAX: usize = 16;

/// The incarnation of whoever has no directory yet.
const NO_DIRECTORY: Incarnation = Incarnation(0);

/// A roll tells of all members and of everybody who was removed.
const MEMBER_LIST_BYTES_MAX: usize = 1 << 20;

/// Who we are, who belongs to us, and who has shown up.
#[derive(Debug, Default)]
pub(crate) struct PeerTable {
    pub(crate) cluster: u64,
    pub(crate) id: NodeId,
    pub(crate) incarnation: Incarnation,
    /// The members the cluster began with, for newcomers.
    pub(crate) began_with: Vec<MemberInfo>,
    /// Whom other members named, when this one joined or asked them since, for want of better knowledge.
    pub(crate) found: RefCell<BTreeMap<NodeId, Vec<String>>>,
    /// What other members are dialled with, where TLS is spoken.
    pub(crate) tls: Option<Arc<ServerTls>>,
    /// Who has proved to be whom.
    pub(crate) proofs: Rc<Proofs>,
    /// The feature level of the cluster, as far as it is known here.
    pub(crate) level: Cell<u16>,
    /// Somebody came who is not known here.
    pub(crate) stranger_came: Notify,
    /// Where we are reached, if the table does not say.
    pub(crate) own_urls: Vec<String>,
    /// How eager we are to lead.
    pub(crate) priority: u8,
    /// How eager others said they are.
    pub(crate) priorities: RefCell<BTreeMap<NodeId, u8>>,
    /// Where members have said themselves that they are reached, on connections on which they are believed: a table that this
    /// member has not been able to follow may be older.
    pub(crate) told_places: RefCell<BTreeMap<NodeId, Vec<String>>>,
    /// Bytes that our store may hold.
    pub(crate) quota: u64,
    /// Bytes that the stores of others may hold, as they said.
    pub(crate) quotas: RefCell<BTreeMap<NodeId, u64>>,
    /// The least of them, of those whom the table has.
    pub(crate) least_quota: Cell<Option<u64>>,
    /// The table of members, as far as it is applied here.
    pub(crate) members: RefCell<Members>,
    /// Who has greeted us.
    pub(crate) heard: RefCell<BTreeSet<NodeId>>,
    /// The directories from which voters have.
    pub(crate) lives: RefCell<BTreeMap<NodeId, Incarnation>>,
    /// The same on disk.
    pub(crate) book: RefCell<Option<Incarnations>>,
    /// Who is reached where may have changed since the driver looked.
    pub(crate) is_news: Cell<bool>,
    /// A member of this cluster said that we are none any more.
    pub(crate) was_removed: Cell<bool>,
    /// A member of this cluster said that it knows us from another directory.
    pub(crate) was_known: Cell<bool>,
}

/// Who has opened a connection towards us.
pub(crate) enum Received {
    /// Somebody who says that it is a member; with what it was asked for, if it was.
    Member(Hello, Option<Asked>),
    /// A newcomer, which waits for [`tell`].
    Joiner(Join),
    /// One of the first members, which is about to make its directory, and has been told that nothing speaks against it.
    Bootstrap,
}

impl PeerTable {
    /// Whom this member has met in earlier runs.
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

    /// Members that are known here have named these, as a quorum confirmed to them.
    pub(crate) fn vouched_for(&self, members: Members) {
        let named = members.list.into_iter().map(|member| (member.id, member.peer_urls));
        self.found.borrow_mut().extend(named);
        self.is_news.set(true);
        self.proofs.put(|id| self.knows(id));
    }

    /// Who is reached where, this member aside: by the table; and those whom it does not know yet by the word of others whom it
    /// knows.
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
                // In TLS, or as the table says: nobody goes from TLS to the clear on a word.
                let is_no_worse = address.is_tls || addresses.iter().all(|known| !known.is_tls);
                if is_no_worse && !addresses.contains(&address) {
                    addresses.push(address);
                }
            }
            addresses
        };
        urls.into_iter().map(|(id, urls)| (id, all(&id, urls))).collect()
    }

    /// A member that is believed says where it is reached.
    pub(crate) fn learnt_places(&self, of: NodeId, urls: Vec<String>) {
        let is_bounded =
            urls.len() <= TOLD_PLACES_MAX && urls.iter().all(|url| url.len() <= HANDSHAKE_BYTES_MAX / 8);
        let is_new = |id: &NodeId| is_bounded && self.told_places.borrow().get(id) != Some(&urls);
        if self.knows(of) && is_new(&of) {
            self.told_places.borrow_mut().insert(of, urls);
            self.is_news.set(true);
        }
    }

    /// Where a member has said that it is reached is not believed any more.
    pub(crate) fn forget_places(&self, of: NodeId) {
        if self.told_places.borrow_mut().remove(&of).is_some() {
            self.is_news.set(true);
        }
    }

    /// The hosts at which a member is reached, as far as this one knows.
    fn hosts_of(&self, id: NodeId) -> BTreeSet<String> {
        let members = self.members.borrow();
        let listed =
            members.list.iter().find(|member| member.id == id).map(|member| member.peer_urls.clone());
        let urls = listed.or_else(|| self.found.borrow().get(&id).cloned()).unwrap_or_default();
        urls.iter().filter_map(|url| PeerAddress::of(url)).map(|address| address.host).collect()
    }

    /// Whether this member knows, or was told, that it is none any more.
    pub(crate) fn is_removed(&self) -> bool {
        self.was_removed.get() || self.members.borrow().removed.contains(&self.id)
    }

    /// A member says how eager it is to lead. Returns whether that is news.
    pub(crate) fn learnt_priority(&self, of: NodeId, priority: u8) -> bool {
        let known = self.priorities.borrow_mut().insert(of, priority);
        known.unwrap_or(LeadershipConfig::default().priority) != priority
    }

    /// A member says how many bytes its store may hold.
    pub(crate) fn learnt_quota(&self, of: NodeId, bytes: u64) {
        let is_news = self.quotas.borrow_mut().insert(of, bytes) != Some(bytes);
        self.find_least_quota();
        if is_news && self.is_listed(of) && bytes < self.quota {
            report::info(format_args!(
                "member {:x} has a quota of {bytes} bytes, this one of {}: the least of all rules while it is a member",
                of.0, self.quota
            ));
        }
    }

    /// All members hold the same, so the one that can hold least says how much that may be.
    fn find_least_quota(&self) {
        let quotas = self.quotas.borrow();
        let listed = quotas.iter().filter(|(id, _)| **id != self.id && self.is_listed(**id));
        self.least_quota.set(listed.map(|(_, bytes)| *bytes).min());
    }

    /// Whether the table of members, as far as it is applied here, has this one.
    pub(crate) fn is_listed(&self, id: NodeId) -> bool {
        self.members.borrow().list.iter().any(|member| member.id == id)
    }

    /// Whether somebody is a member as far as this one can tell: by its table, or by the word of others whom it knows.
    pub(crate) fn knows(&self, id: NodeId) -> bool {
        let is_named = self.found.borrow().contains_key(&id) && !self.members.borrow().removed.contains(&id);
        is_named || self.is_listed(id)
    }

    fn is_learner(&self) -> bool {
        self.members.borrow().list.iter().any(|member| member.id == self.id && member.learner)
    }

    /// Where others believe that this member is reached.
    pub(crate) fn own_peer_urls(&self) -> Vec<String> {
        let members = self.members.borrow();
        let own = members.list.iter().find(|member| member.id == self.id);
        own.map_or_else(|| self.own_urls.clone(), |own| own.peer_urls.clone())
    }

    fn introduction(&self) -> Introduction {
        Introduction { peer_urls: self.own_peer_urls(), priority: self.priority }
    }

    /// What a newcomer is told; `members` are confirmed by a quorum.
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

    /// Whether somebody is known from another directory than the one it has, or is about to make. What this member has
    /// applied or heard is true for ever, however old it is; that it knows nothing is no proof of anything. A learner may
    /// begin again: nothing it promised counts yet.
    fn knows_otherwise(&self, hello: &Hello) -> bool {
        if hello.incarnation == NO_DIRECTORY {
            let members = self.members.borrow();
            let listed = members.list.iter().find(|member| member.id == hello.from);
            return self.heard.borrow().contains(&hello.from) || listed.is_some_and(MemberInfo::is_published);
        }
        self.lives.borrow().get(&hello.from).is_some_and(|life| *life != hello.incarnation)
    }

    /// Whether somebody whom a moment ago nothing spoke against is none of this cluster's members any more.
    pub(crate) fn has_left(&self, hello: &Hello) -> bool {
        self.members.borrow().removed.contains(&hello.from) || self.knows_otherwise(hello)
    }

    /// A member has proved who it is.
    pub(crate) fn let_in(&self, hello: &Hello) {
        self.heard.borrow_mut().insert(hello.from);
        self.meet(hello.from, hello.incarnation);
    }

    /// A member speaks from this directory. A voter has no other from here on, and this member knows that for ever.
    fn meet(&self, member: NodeId, life: Incarnation) {
        let is_voter = |other: &MemberInfo| other.id == member && !other.learner;
        if !self.members.borrow().list.iter().any(is_voter) {
            return;
        }
        self.lives.borrow_mut().entry(member).or_insert(life);
        // What could not be written is tried again when it comes again.
        if let Some(book) = &mut *self.book.borrow_mut()
            && book.all().all(|(noted, _)| noted != member)
            && let Err(error) = book.meet(member, life)
        {
            report::warn(format_args!(
                "cannot note from which data directory member {:x} comes: {error}; after a restart this member may admit it \
                 from another one, which has forgotten what it promised",
                member.0
            ));
        }
    }
}

/// Opens a connection towards `to`: how far it has come.
pub(crate) async fn greet(
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
                    "it wants to speak protocol version {protocol}, this member speaks {PROTOCOL_MIN}..={PROTOCOL_MAX}"
                )));
            }
            Ok(welcome)
        }
        Ok(Frame::Welcome(welcome)) => Err(Failure::Refused(format!(
            "member {:x} answers at its address: check --initial-cluster",
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
                "it knows this member from another data directory: {LOST_PROMISES}"
            )))
        }
        Ok(_) => Err(Failure::Refused("it answered the greeting with something else".into())),
        Err(Unheard::Gone(error)) => Err(tls::failed(&error)),
        Err(Unheard::Nonsense(reason)) => Err(Failure::Refused(reason)),
    }
}

/// Gives the proof that a welcome asked for, as soon as the member that asked has told us the secret; meanwhile tells it what
/// it is asked itself. Must be given up from outside.
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

/// Comes back when the other side closes, which says nothing on this connection.
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

/// Says who we are, to somebody who believes us.
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

/// Asks `to` whether it knows `from`, which has no directory, from one that it had.
pub(crate) async fn is_known(socket: &mut impl Duplex, cluster: u64, from: NodeId, to: NodeId) -> bool {
    say(socket, &Frame::Hello(first_hello(cluster, from, to))).await.is_ok()
        && matches!(hear(socket, HANDSHAKE_BYTES_MAX).await, Ok(Frame::Conflict(known))
            if (known.cluster, known.member) == (cluster, from))
}

/// Asks whoever listens here who is in the cluster.
pub(crate) async fn ask(socket: &mut impl Duplex, peer_urls: &[String]) -> Result<MemberList, Failure> {
    let join = Join { protocol_min: PROTOCOL_MIN, protocol_max: PROTOCOL_MAX, peer_urls: peer_urls.to_vec() };
    say(socket, &Frame::Join(join)).await.map_err(|_| Failure::Away)?;
    match hear(socket, MEMBER_LIST_BYTES_MAX).await {
        Ok(Frame::MemberList(member_list)) => Ok(member_list),
        Ok(Frame::Refused(refused)) => Err(Failure::Refused(refused.reason)),
        Ok(_) => Err(Failure::Refused("it answered the question for its members with something else".into())),
        Err(Unheard::Gone(error)) => Err(tls::failed(&error)),
        Err(Unheard::Nonsense(reason)) => Err(Failure::Refused(reason)),
    }
}

/// Answers a connection that somebody opened towards us, and on which it has shown this certificate, if it has one that an
/// authority of ours has signed: who it is, and for what; or why it was closed.
pub(crate) async fn receive(
    socket: &mut impl Duplex,
    peer_table: &PeerTable,
    signed: Option<&CertificateDer<'_>>,
) -> Result<Received, String> {
    let hello = match hear(socket, HANDSHAKE_BYTES_MAX).await {
        Ok(Frame::Hello(hello)) => hello,
        Ok(Frame::Join(join)) => return accept(socket, join).await,
        Ok(_) => return refuse(socket, "a peer connection starts with a greeting".into()).await,
        Err(Unheard::Gone(_)) => return Err("closed before the greeting".into()),
        Err(Unheard::Nonsense(reason)) => return refuse(socket, reason).await,
    };
    let protocol = match hello.judge(peer_table.cluster, peer_table.id) {
        Ok(protocol) => protocol,
        Err(reason) => return refuse(socket, reason).await,
    };
    if peer_table.members.borrow().removed.contains(&hello.from) {
        let removed = Removed { cluster: peer_table.cluster, member: hello.from };
        let _ = say(socket, &Frame::Removed(removed)).await;
        let _ = socket.shutdown().await;
        return Err(format!("member {:x} was removed", hello.from.0));
    }
    // Of whoever is not known yet nobody can say what its certificate must be for.
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
        return Err(format!("member {:x} is known here from another data directory", hello.from.0));
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
        None if signed.is_some() => {} // the certificate says who it is
        None if level::PROOFS <= peer_table.level.get() => {
            let reason = "the members of this cluster prove who they are, and your version cannot: run the version of the others";
            return refuse(socket, reason.into()).await;
        }
        None if !knows => {
            let reason = "this member does not know you yet, and asks the others";
            return refuse(socket, reason.into()).await;
        }
        None => {} // its version comes before proofs, and the cluster has not seen the last of those
    }
    say(socket, &Frame::Welcome(welcome)).await.map_err(|error| error.to_string())?;
    Ok(Received::Member(hello, asked))
}

async fn accept(socket: &mut impl Duplex, join: Join) -> Result<Received, String> {
    if join.protocol_max < PROTOCOL_MIN || PROTOCOL_MAX < join.protocol_min {
        let reason = format!(
            "the newcomer speaks protocol versions {}..={}, this member speaks {PROTOCOL_MIN}..={PROTOCOL_MAX}: upgrade \
             the older one",
            join.protocol_min, join.protocol_max
        );
        return refuse(socket, reason).await;
    }
    Ok(Received::Joiner(join))
}

/// Answers a newcomer: with the members that a quorum has confirmed just now, or why they are not known. Members know of
/// each other what is in the table, so nothing of it is a secret among them.
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

/// Says why this connection is closed, and closes it.
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

/// Reads exactly one frame, so that nothing of what follows is swallowed.
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
        assert_eq!(follow(&[1, 2, 3]), None, "nobody has said anything");
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
}

//! The handshake on peer connections, on both sides, frame by frame. [fault-model NT1, NT2]
//!
//! ```text
//!   member   ── Hello ──▶ Welcome, Removed, Conflict or Refused; then Introduction (peer URLs), Level, Quota, messages
//!   founder  ── Hello ──▶ the same, without an incarnation and an Introduction: is this id known already?
//!   newcomer ── Join ───▶ MemberList, confirmed by a quorum, or Refused; then the connection is closed
//!   member   ── Join, without peer URLs ──▶ MemberList, all members known here: is a stranger among them?
//! ```
//! Cluster, addressee and membership are checked before anything else is read. A caller that does not belong gets the
//! reason, and the connection is closed. A caller that claims to be a member has to prove it ([`crate::proofs`]):
//! before that nothing it sends counts, and nothing of it is kept. A certificate is a proof, too, if it is for a host at which
//! the table lists that member.
//! Knows nothing of: sockets, bytes, TLS, raft messages beyond their sender and addressee.

use crate::dialler::Failure;
use crate::peer_table::{NO_DIRECTORY, PeerTable};
use crate::streams;
use kattu_node::contract::{Event, Members, PeerMessage};
use kattu_node::level;
use kattu_raft::{GroupId, Instant, Message, NodeId};
use kattu_wire::{
    ASK_ME, Conflict, Frame, Hello, Join, Lane, MemberList, Order, PROTOCOL_MAX, PROTOCOL_MIN,
    PROTOCOL_PROOFS, Refused, Removed, Welcome,
};

/// Longest frame of a handshake: most are a few dozen bytes, a reason is a sentence.
pub const HANDSHAKE_BYTES_MAX: usize = 4096;

/// Longest member list: it names all members and all removed ones.
pub const MEMBER_LIST_BYTES_MAX: usize = 1 << 20;

/// Advice for the operator of a member that has lost its directory.
pub const LOST_PROMISES: &str = "its votes and acknowledgements are lost: remove this member and add it as a new one \
     with an empty directory";

// ── The listener ──

/// What a connection is, by its first frame.
#[derive(Debug)]
pub enum First {
    /// A caller that claims to be a member: it is answered with this frame, and goes on.
    Member(Frame, Caller),
    /// A newcomer, which waits for [`answer_to_newcomer`].
    Newcomer(Join),
    /// A founder that is about to make its directory, or a member that asks about a stranger: it is answered with this frame,
    /// and the connection is closed.
    Answered(Frame),
    /// It is answered with this frame, and the connection is closed; the text says why.
    Refused(Frame, String),
}

/// A caller that does not get any further, and why.
#[must_use]
pub fn refused(reason: String) -> First {
    First::Refused(Frame::Refused(Refused { reason: reason.clone() }), reason)
}

/// Whether a certificate is for this host.
pub type IsFor<'a> = &'a dyn Fn(&str) -> bool;

/// Where a connection comes in.
#[derive(Clone, Copy)]
pub struct Door<'a> {
    /// The caller has shown a certificate that an authority of this member has signed.
    pub signed: Option<IsFor<'a>>,
    /// The group that this member has.
    pub group: GroupId,
    /// The present time.
    pub now: Instant,
    /// The number and the secret of a challenge: unpredictable, and not 0.
    pub challenge: (u64, u64),
}

impl Door<'_> {
    /// The first frame of a connection.
    pub fn first(&self, frame: Frame, table: &mut PeerTable) -> First {
        match frame {
            Frame::Hello(hello) => self.on_hello(hello, table),
            Frame::Join(join) => newcomer(join, table),
            _ => refused("a peer connection must begin with a handshake".into()),
        }
    }

    fn on_hello(&self, hello: Hello, table: &mut PeerTable) -> First {
        let (cluster, own) = (table.own().cluster, table.own().id);
        let protocol = match hello.judge(cluster, own) {
            Ok(protocol) => protocol,
            // A founder asks under each id that its cluster may have, and only one of them is right. If its flags name
            // another cluster, both sides report that when it comes with its directory.
            Err(reason) if hello.incarnation == NO_DIRECTORY && hello.cluster != cluster => {
                return First::Answered(Frame::Refused(Refused { reason }));
            }
            Err(reason) => return refused(reason),
        };
        let (from, member) = (hello.from, hello.from.0);
        if table.has_removed(from) {
            let removed = Removed { cluster, member: from };
            return First::Refused(Frame::Removed(removed), format!("member {member:x} was removed"));
        }
        // The certificate of an unknown caller cannot be checked: its hosts are not known.
        let knows = table.knows(from);
        let signed = self.signed.filter(|_| knows);
        if let Some(is_for) = signed {
            let hosts = table.hosts_of(from);
            if !hosts.iter().any(|host| is_for(host)) {
                let hosts = hosts.into_iter().collect::<Vec<_>>().join(", ");
                let why = format!("its certificate is not for {hosts}, where member {member:x} is reached");
                return refused(why);
            }
        }
        if table.knows_otherwise(&hello) {
            let why = format!("member {member:x} is known here with another data directory");
            return First::Refused(Frame::Conflict(Conflict { cluster, member: from }), why);
        }
        let mut welcome = Welcome { protocol, from: own, incarnation: table.own().incarnation, proof: 0 };
        if hello.incarnation == NO_DIRECTORY {
            return First::Answered(Frame::Welcome(welcome));
        }
        if !knows {
            table.stranger_came();
        }
        let is_asked = signed.is_none() && PROTOCOL_PROOFS <= protocol;
        if is_asked {
            let (number, secret) = self.challenge;
            table.proofs.ask(from, number, secret);
            welcome.proof = number;
        } else if signed.is_some() {
            // The certificate is its proof.
        } else if level::PROOFS <= table.level() {
            return refused(
                "the caller's version cannot prove its identity, as members of this cluster must: run the version of the others"
                    .into(),
            );
        } else if !knows {
            return refused(
                "the caller is not in the receiver's member list yet; the receiver is asking the other members"
                    .into(),
            );
        }
        // Otherwise its version predates proofs, and so may other members' versions.
        let asked = is_asked.then_some(welcome.proof);
        let (group, came) = (self.group, self.now);
        let caller = Caller { hello, protocol, own, group, came, asked, level: None, order: None };
        First::Member(Frame::Welcome(welcome), caller)
    }
}

fn newcomer(join: Join, table: &PeerTable) -> First {
    if join.protocol_max < PROTOCOL_MIN || PROTOCOL_MAX < join.protocol_min {
        return refused(format!(
            "the joining member speaks protocol versions {}..={}, this member speaks {PROTOCOL_MIN}..={PROTOCOL_MAX}: upgrade \
             the older one",
            join.protocol_min, join.protocol_max
        ));
    }
    match join.peer_urls.is_empty() {
        true => First::Answered(Frame::MemberList(table.named())),
        false => First::Newcomer(join),
    }
}

/// The answer to a newcomer: the members that a quorum has just confirmed, or why they are not known, which both sides log.
/// Members know each other's tables, so nothing in them is secret among them.
pub fn answer_to_newcomer(
    table: &PeerTable,
    confirmed: Result<Members, String>,
) -> (Frame, Result<(), String>) {
    match confirmed {
        Ok(members) => (Frame::MemberList(table.member_list(members)), Ok(())),
        Err(reason) => (Frame::Refused(Refused { reason: reason.clone() }), Err(reason)),
    }
}

/// A caller that claims to be a member, after its welcome.
#[derive(Debug)]
pub struct Caller {
    hello: Hello,
    protocol: u16,
    own: NodeId,
    group: GroupId,
    came: Instant,
    /// The number of the challenge, while its proof is due.
    asked: Option<u64>,
    /// The feature level that it has announced.
    level: Option<u16>,
    /// The place of the message that follows.
    order: Option<Order>,
}

/// What a frame of a caller brings.
#[allow(clippy::large_enum_variant)] // a box would cost each message an allocation
#[derive(Debug, PartialEq, Eq)]
pub enum Heard {
    /// Nothing for the replica.
    Nothing,
    /// The caller has proved its identity: its frames count from here on, and those of its earlier connection no more.
    Believed,
    /// For the replica.
    Event(Event),
    /// For the replica, at this place among what comes on all streams of this caller. ([`streams::InOrder`])
    InOrder(Order, Event),
}

impl Caller {
    /// Its first frame.
    #[must_use]
    pub fn hello(&self) -> &Hello {
        &self.hello
    }

    /// The protocol version of the connection, as its welcome says.
    #[must_use]
    pub fn protocol(&self) -> u16 {
        self.protocol
    }

    /// Whether it has proved its identity.
    #[must_use]
    pub fn is_believed(&self) -> bool {
        self.asked.is_none()
    }

    /// The number of the challenge, while its proof is due: forgotten when the connection ends before.
    #[must_use]
    pub fn asked(&self) -> Option<u64> {
        self.asked
    }

    /// Records that this member has come. Of a caller that has no proof to give, the executor calls it after the welcome.
    pub fn let_in(&self, table: &mut PeerTable) {
        table.let_in(&self.hello);
    }

    /// A further frame of this connection.
    ///
    /// # Errors
    /// What is wrong with it; the connection is to be closed.
    pub fn hear(&mut self, frame: Frame, table: &mut PeerTable) -> Result<Heard, String> {
        match self.asked {
            Some(number) => self.judge(number, frame, table),
            None => self.deliver(frame, table),
        }
    }

    /// A frame of a caller without a proof.
    fn judge(&mut self, number: u64, frame: Frame, table: &mut PeerTable) -> Result<Heard, String> {
        let from = self.hello.from;
        match frame {
            Frame::Challenge(challenge) => table.proofs.told(from, challenge),
            Frame::Proof(ASK_ME) => table.challenge(number),
            Frame::Proof(secret) => {
                if !table.proofs.is_proven(number, secret) {
                    return Err(format!("wrong proof of identity for member {:x}", from.0));
                }
                if table.has_removed(from) || table.knows_otherwise(&self.hello) {
                    return Err(format!("member {:x} was removed, or has another data directory", from.0));
                }
                table.proofs.forget_asked(number);
                self.asked = None;
                self.let_in(table);
                return Ok(Heard::Believed);
            }
            Frame::Goodbye(_) | Frame::Unknown { .. } => {}
            Frame::Hello(_)
            | Frame::Welcome(_)
            | Frame::Refused(_)
            | Frame::Join(_)
            | Frame::MemberList(_)
            | Frame::Removed(_)
            | Frame::Conflict(_)
            | Frame::Introduction(_)
            | Frame::Level(_)
            | Frame::Quota(_)
            | Frame::Order(_)
            | Frame::Message(_) => return Err("a frame before the proof of identity".into()),
        }
        Ok(Heard::Nothing)
    }

    fn deliver(&mut self, frame: Frame, table: &mut PeerTable) -> Result<Heard, String> {
        let from = self.hello.from;
        match frame {
            Frame::Message(message) => {
                self.admits(&message)?;
                if let PeerMessage::Raft(envelope) = &message
                    && let Message::Remind(remind) = &envelope.message
                {
                    table.proofs.started(from, remind.nonce, self.came);
                }
                return Ok(match self.order.take().filter(|_| streams::is_stream(self.hello.lane)) {
                    Some(order) => Heard::InOrder(order, Event::Peer(message)),
                    None => Heard::Event(Event::Peer(message)),
                });
            }
            Frame::Level(level) => {
                if self.level.replace(level) != Some(level) {
                    return Ok(Heard::Event(Event::Knows(from, level)));
                }
            }
            Frame::Introduction(introduction) => {
                table.learnt_places(from, introduction.peer_urls);
                if table.learnt_priority(from, introduction.priority) {
                    return Ok(Heard::Event(Event::Priority(from, introduction.priority)));
                }
            }
            Frame::Quota(bytes) => table.learnt_quota(from, bytes),
            Frame::Order(order) => self.order = Some(order),
            Frame::Challenge(challenge) => table.proofs.told(from, challenge),
            Frame::Proof(_) => {} // not asked for, or not any more
            Frame::Goodbye(_) | Frame::Unknown { .. } => {}
            Frame::Hello(_)
            | Frame::Welcome(_)
            | Frame::Refused(_)
            | Frame::Join(_)
            | Frame::MemberList(_)
            | Frame::Removed(_)
            | Frame::Conflict(_) => return Err("a second handshake".into()),
        }
        Ok(Heard::Nothing)
    }

    /// Whether a message may come on this connection.
    fn admits(&self, message: &PeerMessage) -> Result<(), String> {
        let from = self.hello.from;
        if message.from() != from || message.to() != self.own {
            return Err(format!(
                "a message from {:x} to {:x} on the link of {:x}",
                message.from().0,
                message.to().0,
                from.0
            ));
        }
        match message {
            PeerMessage::Raft(envelope) if envelope.group != self.group => {
                Err(format!("a message of group {}, which this member does not have", envelope.group.0))
            }
            PeerMessage::Raft(_) | PeerMessage::Forward(_) | PeerMessage::ForwardReply(_) => Ok(()),
        }
    }
}

// ── The dialer ──

/// Opens a connection to `to`.
#[must_use]
pub fn hello(table: &PeerTable, to: NodeId, lane: Lane) -> Frame {
    Frame::Hello(Hello {
        incarnation: table.own().incarnation,
        lane,
        learner: table.is_learner(),
        ..founders_hello(table.own().cluster, table.own().id, to)
    })
}

fn founders_hello(cluster: u64, from: NodeId, to: NodeId) -> Hello {
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

/// What the answer of `to` to a hello means.
///
/// # Errors
/// Why the connection cannot be used.
pub fn answered(answer: Frame, to: NodeId, table: &mut PeerTable) -> Result<Welcome, Failure> {
    let (cluster, own) = (table.own().cluster, table.own().id);
    match answer {
        Frame::Welcome(welcome) if welcome.from != to => Err(Failure::Refused(format!(
            "member {:x} answers at this address: check --initial-cluster",
            welcome.from.0
        ))),
        Frame::Welcome(Welcome { protocol, .. }) if !(PROTOCOL_MIN..=PROTOCOL_MAX).contains(&protocol) => {
            Err(Failure::Refused(format!(
                "the peer chose protocol version {protocol}, this member speaks {PROTOCOL_MIN}..={PROTOCOL_MAX}"
            )))
        }
        Frame::Welcome(welcome) => Ok(welcome),
        Frame::Refused(refused) => Err(Failure::Refused(refused.reason)),
        Frame::Removed(removed) if (removed.cluster, removed.member) == (cluster, own) => {
            Err(Failure::Removed)
        }
        Frame::Conflict(known) => {
            if (known.cluster, known.member) == (cluster, own) {
                table.told_of_another_directory();
            }
            Err(Failure::Refused(format!(
                "the peer knows this member with another data directory; {LOST_PROMISES}"
            )))
        }
        _ => Err(Failure::Refused("the peer answered the handshake with an unexpected frame".into())),
    }
}

/// Gives the proof that a welcome asked for, as soon as the peer has sent its secret to this member's own address; forwards
/// the challenges for that peer meanwhile.
#[derive(Debug)]
pub struct Proving {
    to: NodeId,
    number: u64,
}

impl Proving {
    /// Begins with a frame; `None` if no proof is asked for.
    pub fn begin(welcome: &Welcome, table: &mut PeerTable) -> Option<(Proving, Frame)> {
        let (to, number) = (welcome.from, welcome.proof);
        if number == 0 {
            return None;
        }
        table.proofs.expect(to, number);
        Some((Proving { to, number }, Frame::Proof(ASK_ME)))
    }

    /// The frames to send now, and whether the proof is among them: then all is said.
    pub fn next(&self, table: &mut PeerTable) -> (Vec<Frame>, bool) {
        let mut frames: Vec<Frame> =
            table.proofs.take_untold(self.to).into_iter().map(Frame::Challenge).collect();
        let proof = table.proofs.secret(self.number).map(Frame::Proof);
        let is_over = proof.is_some();
        frames.extend(proof);
        (frames, is_over)
    }

    /// The connection has given its proof, or is given up.
    pub fn end(&self, table: &mut PeerTable) {
        table.proofs.forget_expected(self.number);
    }
}

/// Announces this member's URLs, priority, feature level and quota to a peer that has accepted it.
#[must_use]
pub fn introduction(table: &PeerTable) -> [Frame; 3] {
    let introduction = Frame::Introduction(table.introduction());
    [introduction, Frame::Level(level::KNOWN), Frame::Quota(table.own().quota)]
}

/// Asks `to` whether it knows `from`, a founder without a directory, with an earlier one.
#[must_use]
pub fn founder_asks(cluster: u64, from: NodeId, to: NodeId) -> Frame {
    Frame::Hello(founders_hello(cluster, from, to))
}

/// Whether the answer to a founder says that it had a directory.
#[must_use]
pub fn founder_is_known(answer: &Frame, cluster: u64, from: NodeId) -> bool {
    matches!(answer, Frame::Conflict(known) if (known.cluster, known.member) == (cluster, from))
}

/// Asks for the list of members; the newcomer will have these peer URLs.
#[must_use]
pub fn newcomer_asks(peer_urls: &[String]) -> Frame {
    Frame::Join(Join {
        protocol_min: PROTOCOL_MIN,
        protocol_max: PROTOCOL_MAX,
        peer_urls: peer_urls.to_vec(),
    })
}

/// Asks which members a known member knows. One of an older version answers as to a newcomer.
#[must_use]
pub fn member_asks() -> Frame {
    newcomer_asks(&[])
}

/// What the answer to a newcomer or a member means.
///
/// # Errors
/// Why there is no list of members.
pub fn members_are_told(answer: Frame) -> Result<MemberList, Failure> {
    match answer {
        Frame::MemberList(member_list) => Ok(member_list),
        Frame::Refused(refused) => Err(Failure::Refused(refused.reason)),
        _ => Err(Failure::Refused("the peer answered the join request with an unexpected frame".into())),
    }
}

#[cfg(test)]
mod tests;

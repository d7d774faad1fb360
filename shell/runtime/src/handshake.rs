//! The handshake over sockets: carries the frames of [`kattu_member::handshake`] between two processes.
//!
//! In:    a connection, in TLS or in the clear.
//! Out:   a connection on which the peer accepts this member; or a caller, and what it wants.
//! Knows nothing of: what the frames mean.

use crate::clock;
use crate::peer_table::PeerTable;
use crate::tls;
use kattu_member::dialler::Failure;
use kattu_member::handshake::{
    self, Caller, Door, First, HANDSHAKE_BYTES_MAX, MEMBER_LIST_BYTES_MAX, Proving,
};
use kattu_node::contract::Members;
use kattu_raft::{GroupId, NodeId, SharedBytes};
use kattu_wire::{Frame, FrameWriter, Join, Lane, MemberList, Refused, Welcome};
use rustls::pki_types::CertificateDer;
use std::rc::Rc;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// A connection, in TLS or in the clear.
pub(crate) trait Duplex: AsyncRead + AsyncWrite + Unpin {}

impl<S: AsyncRead + AsyncWrite + Unpin> Duplex for S {}

/// A caller that passed the handshake.
pub(crate) enum Received {
    /// A caller that claims to be a member, and the challenge it has to answer, if any.
    Member(Caller, Option<Asked>),
    /// A newcomer, which waits for [`tell`].
    Newcomer(Join),
    /// A founder or a member that only asked, and has its answer.
    Answered,
}

/// An incoming connection that was challenged; forgotten when dropped.
pub(crate) struct Asked {
    peer_table: Rc<PeerTable>,
    number: u64,
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.peer_table.with(|table| table.proofs.forget_asked(self.number));
    }
}

/// An outgoing connection that waits for its secret; forgotten when dropped.
struct Expected<'a> {
    peer_table: &'a PeerTable,
    proving: Proving,
}

impl Drop for Expected<'_> {
    fn drop(&mut self) {
        self.peer_table.with(|table| self.proving.end(table));
    }
}

/// Sends the handshake of a connection to `to`, and returns the answer.
pub(crate) async fn open(
    socket: &mut impl Duplex,
    peer_table: &PeerTable,
    to: NodeId,
    lane: Lane,
) -> Result<Welcome, Failure> {
    let hello = peer_table.ask(|table| handshake::hello(table, to, lane));
    say(socket, &hello).await.map_err(|error| tls::failed(&error))?;
    let answer = hear(socket, HANDSHAKE_BYTES_MAX).await.map_err(Unheard::failure)?;
    peer_table.with(|table| handshake::answered(answer, to, table))
}

/// Gives the proof that a welcome asked for, as soon as the peer has sent its secret to this member's own address;
/// meanwhile forwards the challenges for that peer. It does not time out: the caller bounds it.
pub(crate) async fn prove(
    socket: &mut impl Duplex,
    peer_table: &PeerTable,
    welcome: &Welcome,
) -> Result<(), Failure> {
    let begun = peer_table.with(|table| Proving::begin(welcome, table));
    let Some((proving, ask_me)) = begun else { return Ok(()) };
    let expected = Expected { peer_table, proving };
    say(socket, &ask_me).await.map_err(|_| Failure::Away)?;
    loop {
        let news = peer_table.news();
        let (frames, is_over) = peer_table.with(|table| expected.proving.next(table));
        for frame in frames {
            say(socket, &frame).await.map_err(|_| Failure::Away)?;
        }
        if is_over {
            return Ok(());
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

/// Announces this member to a peer that has accepted it.
pub(crate) async fn introduce(socket: &mut impl Duplex, peer_table: &PeerTable) -> Result<(), Failure> {
    for frame in peer_table.ask(handshake::introduction) {
        say(socket, &frame).await.map_err(|_| Failure::Away)?;
    }
    Ok(())
}

/// Asks `to` whether it knows `from`, which has no directory, with an earlier one.
pub(crate) async fn is_known(socket: &mut impl Duplex, cluster: u64, from: NodeId, to: NodeId) -> bool {
    say(socket, &handshake::founder_asks(cluster, from, to)).await.is_ok()
        && hear(socket, HANDSHAKE_BYTES_MAX)
            .await
            .is_ok_and(|answer| handshake::founder_is_known(&answer, cluster, from))
}

/// Asks the member at the other end for the list of members, as [`handshake::newcomer_asks`] or [`handshake::member_asks`].
pub(crate) async fn ask(socket: &mut impl Duplex, question: &Frame) -> Result<MemberList, Failure> {
    say(socket, question).await.map_err(|_| Failure::Away)?;
    let answer = hear(socket, MEMBER_LIST_BYTES_MAX).await.map_err(Unheard::failure)?;
    handshake::members_are_told(answer)
}

/// Answers the handshake of a caller: returns its kind, or why the connection was closed. `signed` is the certificate
/// that it has shown, if an authority of ours has signed it.
pub(crate) async fn receive(
    socket: &mut impl Duplex,
    peer_table: &Rc<PeerTable>,
    group: GroupId,
    signed: Option<&CertificateDer<'_>>,
) -> Result<Received, String> {
    let first = match hear(socket, HANDSHAKE_BYTES_MAX).await {
        Ok(frame) => {
            let is_for = signed.map(|certificate| move |host: &str| kattu_tls::is_for(certificate, host));
            let signed = is_for.as_ref().map(|is_for| is_for as handshake::IsFor<'_>);
            let door = Door { signed, group, now: clock::now(), challenge: (number(), number()) };
            peer_table.with(|table| door.first(frame, table))
        }
        Err(Unheard::Gone(_)) => return Err("closed before the handshake".into()),
        Err(Unheard::Nonsense(reason)) => handshake::refused(reason),
    };
    match first {
        First::Member(welcome, caller) => {
            let asked = caller.asked().map(|number| Asked { peer_table: peer_table.clone(), number });
            say(socket, &welcome).await.map_err(|error| error.to_string())?;
            Ok(Received::Member(caller, asked))
        }
        First::Newcomer(join) => Ok(Received::Newcomer(join)),
        First::Answered(answer) => {
            close_with(socket, &answer).await;
            Ok(Received::Answered)
        }
        First::Refused(answer, reason) => {
            close_with(socket, &answer).await;
            Err(reason)
        }
    }
}

/// Answers a newcomer: with the members that a quorum has just confirmed, or with why they are not known.
pub(crate) async fn tell(
    socket: &mut impl Duplex,
    peer_table: &PeerTable,
    members: Result<Members, String>,
) -> Result<(), String> {
    let (answer, outcome) = peer_table.ask(|table| handshake::answer_to_newcomer(table, members));
    let said = say(socket, &answer).await;
    let _ = socket.shutdown().await;
    outcome.and(said.map_err(|error| error.to_string()))
}

/// Refuses a caller with this reason, and closes the connection.
pub(crate) async fn turn_away(socket: &mut impl Duplex, reason: &str) {
    close_with(socket, &Frame::Refused(Refused { reason: reason.to_string() })).await;
}

async fn close_with(socket: &mut impl Duplex, answer: &Frame) {
    let _ = say(socket, answer).await;
    let _ = socket.shutdown().await;
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

impl Unheard {
    fn failure(self) -> Failure {
        match self {
            Unheard::Gone(error) => tls::failed(&error),
            Unheard::Nonsense(reason) => Failure::Refused(reason),
        }
    }
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

/// An unpredictable number; never 0, which means that no proof is asked for.
///
/// # Panics
/// If the operating system gives no random bytes: there is no secret then.
fn number() -> u64 {
    let drawn = getrandom::u64().expect("the system gives random bytes");
    drawn.max(1)
}

//! The first words on a peer connection, on both sides. [fault-model NT1, NT2]
//!
//! Cluster, addressee and membership are checked before anything else is read; whoever does not belong is told why and
//! closed.
//! Knows nothing of: what is said afterwards.

use crate::links::Failure;
use kattu_raft::{Incarnation, NodeId, SharedBytes};
use kattu_wire::{Frame, FrameWriter, Hello, Lane, PROTOCOL_MAX, PROTOCOL_MIN, Refused, Welcome};
use std::collections::BTreeSet;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A greeting is a few dozen bytes, a reason a sentence.
const GREETING_BYTES_MAX: usize = 4096;

/// Who we are, and who may talk to us.
#[derive(Clone, Debug)]
pub(crate) struct Greeting {
    pub(crate) cluster: u64,
    pub(crate) id: NodeId,
    pub(crate) incarnation: Incarnation,
    pub(crate) learner: bool,
    pub(crate) members: BTreeSet<NodeId>,
}

/// Opens a connection towards `to`.
pub(crate) async fn greet(
    socket: &mut TcpStream,
    greeting: &Greeting,
    to: NodeId,
    lane: Lane,
) -> Result<(), Failure> {
    let hello = Hello {
        protocol_min: PROTOCOL_MIN,
        protocol_max: PROTOCOL_MAX,
        cluster: greeting.cluster,
        from: greeting.id,
        incarnation: greeting.incarnation,
        to,
        lane,
        learner: greeting.learner,
    };
    say(socket, &Frame::Hello(hello)).await.map_err(|_| Failure::Away)?;
    match hear(socket).await {
        Ok(Frame::Welcome(welcome)) if welcome.from == to => Ok(()),
        Ok(Frame::Welcome(welcome)) => Err(Failure::Refused(format!(
            "member {:x} answers at its address: check --initial-cluster",
            welcome.from.0
        ))),
        Ok(Frame::Refused(refused)) => Err(Failure::Refused(refused.reason)),
        Ok(_) => Err(Failure::Refused("it answered the greeting with something else".into())),
        Err(Unheard::Gone) => Err(Failure::Away),
        Err(Unheard::Nonsense(reason)) => Err(Failure::Refused(reason)),
    }
}

/// Answers a connection that somebody opened towards us: who it is, and for what; or why it was closed.
pub(crate) async fn receive(socket: &mut TcpStream, greeting: &Greeting) -> Result<Hello, String> {
    let hello = match hear(socket).await {
        Ok(Frame::Hello(hello)) => hello,
        Ok(_) => return refuse(socket, "a peer connection starts with a greeting".into()).await,
        Err(Unheard::Gone) => return Err("closed before the greeting".into()),
        Err(Unheard::Nonsense(reason)) => return refuse(socket, reason).await,
    };
    let verdict = judge(&hello, greeting);
    match verdict {
        Err(reason) => refuse(socket, reason).await,
        Ok(protocol) => {
            let welcome = Welcome { protocol, from: greeting.id, incarnation: greeting.incarnation };
            say(socket, &Frame::Welcome(welcome)).await.map_err(|error| error.to_string())?;
            Ok(hello)
        }
    }
}

fn judge(hello: &Hello, greeting: &Greeting) -> Result<u16, String> {
    if hello.cluster != greeting.cluster {
        return Err(format!(
            "you belong to cluster {:x}, this member to cluster {:x}: check --initial-cluster and \
             --initial-cluster-token",
            hello.cluster, greeting.cluster
        ));
    }
    if hello.to != greeting.id {
        return Err(format!(
            "you look for member {:x}, this is member {:x}: check --initial-cluster",
            hello.to.0, greeting.id.0
        ));
    }
    if hello.from == greeting.id || !greeting.members.contains(&hello.from) {
        return Err(format!("member {:x} is not a peer of this member", hello.from.0));
    }
    hello.agree()
}

async fn refuse<T>(socket: &mut TcpStream, reason: String) -> Result<T, String> {
    let _ = say(socket, &Frame::Refused(Refused { reason: reason.clone() })).await;
    let _ = socket.shutdown().await;
    Err(reason)
}

async fn say(socket: &mut TcpStream, frame: &Frame) -> std::io::Result<()> {
    let mut writer = FrameWriter::default();
    crate::codec().encode(frame, &mut writer);
    let bytes: Vec<u8> = writer.pieces().flatten().copied().collect();
    socket.write_all(&bytes).await
}

enum Unheard {
    Gone,
    Nonsense(String),
}

/// Reads exactly one frame, so that nothing of what follows is swallowed.
async fn hear(socket: &mut TcpStream) -> Result<Frame, Unheard> {
    let codec = crate::codec();
    let mut bytes = vec![0; kattu_wire::frame::HEADER_BYTES];
    socket.read_exact(&mut bytes).await.map_err(|_| Unheard::Gone)?;
    let len = codec
        .peek_len(&bytes, GREETING_BYTES_MAX)
        .map_err(|error| Unheard::Nonsense(error.to_string()))?
        .expect("a whole header was read");
    let header = bytes.len();
    bytes.resize(len, 0);
    socket.read_exact(&mut bytes[header..]).await.map_err(|_| Unheard::Gone)?;
    codec.decode(&SharedBytes::from(bytes)).map_err(|error| Unheard::Nonsense(error.to_string()))
}

//! Stranger: a hostile client that reaches a peer port and knows docs/formats/frame.md.
//!
//! Written from that page alone, with code of its own, so that it can send no more than any other stranger could.
//! Knows nothing of: keys, the members' directories, the network between members.

use kattu_rig::authority::Signed;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How long it waits for an answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Kinds of frames that it uses.
pub mod kind {
    /// Opens a connection.
    pub const HELLO: u8 = 1;
    /// Accepts it.
    pub const WELCOME: u8 = 2;
    /// Announces the sender's peer URL.
    pub const INTRODUCTION: u8 = 5;
    /// Requests the member list.
    pub const JOIN: u8 = 6;
    /// Answers `JOIN`.
    pub const MEMBER_LIST: u8 = 7;
    /// Claims to know the requested secret.
    pub const PROOF: u8 = 13;
    /// Entries of a leader.
    pub const APPEND: u8 = 16;
    /// An acknowledgement.
    pub const APPEND_REPLY: u8 = 17;
    /// Asks for a vote.
    pub const VOTE: u8 = 20;
    /// Makes a member campaign.
    pub const TIMEOUT_NOW: u8 = 26;
}

/// One frame.
#[must_use]
pub fn frame(kind: u8, fields: &[u8]) -> Vec<u8> {
    let len = (24 + fields.len()) as u32;
    let mut out = b"KTF\xA7".to_vec();
    out.extend([1, kind, 0, 0]);
    out.extend(len.to_le_bytes());
    out.extend((fields.len() as u32).to_le_bytes());
    out.extend(crc32c::crc32c(fields).to_le_bytes());
    let head = crc32c::crc32c(&out);
    out.extend(head.to_le_bytes());
    out.extend(fields);
    out
}

/// The head of a frame that announces so many bytes, of which none follow.
#[must_use]
pub fn half_frame(kind: u8, fields: u32) -> Vec<u8> {
    let mut out = b"KTF\xA7".to_vec();
    out.extend([1, kind, 0, 0]);
    out.extend((24 + fields).to_le_bytes());
    out.extend(fields.to_le_bytes());
    out.extend(0_u32.to_le_bytes());
    let head = crc32c::crc32c(&out);
    out.extend(head.to_le_bytes());
    out
}

fn texts(out: &mut Vec<u8>, texts: &[&str]) {
    out.extend((texts.len() as u32).to_le_bytes());
    for text in texts {
        out.extend((text.len() as u16).to_le_bytes());
        out.extend(text.as_bytes());
    }
}

/// A cluster's answer to a `JOIN` frame.
#[derive(Clone, Debug, Default)]
pub struct Told {
    /// Its id.
    pub cluster: u64,
    /// Its members' ids.
    pub members: Vec<u64>,
}

/// Requests the member list at a peer port.
///
/// # Errors
/// No answer, or another one.
pub fn join(address: &str) -> io::Result<Told> {
    join_on(&mut connect(address)?)
}

/// The same on an open connection.
///
/// # Errors
/// It is closed, or another answer comes.
pub fn join_on(socket: &mut (impl Read + Write)) -> io::Result<Told> {
    let mut fields = Vec::new();
    fields.extend(1_u16.to_le_bytes());
    fields.extend(99_u16.to_le_bytes());
    texts(&mut fields, &["http://10.9.9.9:2380"]);
    socket.write_all(&frame(kind::JOIN, &fields))?;
    let (said, fields) = hear(socket)?;
    if said != kind::MEMBER_LIST {
        return Err(io::Error::other(format!("it answers with a frame of kind {said}")));
    }
    let mut rest = &fields[..];
    let cluster = u64_of(&mut rest);
    let mut members = Vec::new();
    for _ in 0..u32_of(&mut rest) {
        members.push(u64_of(&mut rest));
        rest = &rest[2..];
        let name = usize::from(u16::from_le_bytes([rest[0], rest[1]]));
        rest = &rest[2 + name..];
        for _ in 0..2 {
            for _ in 0..u32_of(&mut rest) {
                let text = usize::from(u16::from_le_bytes([rest[0], rest[1]]));
                rest = &rest[2 + text..];
            }
        }
    }
    Ok(Told { cluster, members })
}

fn u32_of(rest: &mut &[u8]) -> u32 {
    let (taken, behind) = rest.split_first_chunk::<4>().expect("four bytes");
    *rest = behind;
    u32::from_le_bytes(*taken)
}

fn u64_of(rest: &mut &[u8]) -> u64 {
    let (taken, behind) = rest.split_first_chunk::<8>().expect("eight bytes");
    *rest = behind;
    u64::from_le_bytes(*taken)
}

/// Sender and target of a handshake; any of it may be false.
#[derive(Clone, Copy, Debug)]
pub struct Name {
    /// The cluster.
    pub cluster: u64,
    /// The sender's id.
    pub from: u64,
    /// The sender's incarnation.
    pub incarnation: u64,
    /// The target's id.
    pub to: u64,
    /// 1 control, 2 bulk, 3 snapshot.
    pub lane: u8,
    /// The newest protocol version that the sender claims to speak.
    pub newest: u16,
}

impl Name {
    /// The handshake.
    #[must_use]
    pub fn hello(&self) -> Vec<u8> {
        let mut fields = Vec::new();
        fields.extend(1_u16.to_le_bytes());
        fields.extend(self.newest.to_le_bytes());
        for number in [self.cluster, self.from, self.incarnation, self.to] {
            fields.extend(number.to_le_bytes());
        }
        fields.extend([self.lane, 0]);
        frame(kind::HELLO, &fields)
    }

    /// The fields that begin every message of the protocol.
    #[must_use]
    pub fn envelope(&self, term: u64) -> Vec<u8> {
        let mut fields = 0_u32.to_le_bytes().to_vec();
        for number in [self.from, self.incarnation, self.to, term] {
            fields.extend(number.to_le_bytes());
        }
        fields
    }

    /// An append without entries.
    #[must_use]
    pub fn append(&self, term: u64) -> Vec<u8> {
        let mut fields = self.envelope(term);
        for number in [0_u64, 0, 0, 1] {
            fields.extend(number.to_le_bytes()); // prev, commit, round
        }
        fields.extend(0_u32.to_le_bytes());
        fields.push(0);
        frame(kind::APPEND, &fields)
    }

    /// An acknowledgement of all entries up to `upto`, in answer to a round.
    #[must_use]
    pub fn append_reply(&self, term: u64, upto: u64, round: u64) -> Vec<u8> {
        let mut fields = self.envelope(term);
        fields.extend(round.to_le_bytes());
        fields.extend(upto.to_le_bytes());
        fields.push(0);
        frame(kind::APPEND_REPLY, &fields)
    }

    /// A vote request that claims to come from a leadership transfer.
    #[must_use]
    pub fn vote(&self, term: u64) -> Vec<u8> {
        let mut fields = self.envelope(term);
        fields.extend(u64::MAX.to_le_bytes());
        fields.extend(u64::MAX.to_le_bytes());
        fields.push(1);
        frame(kind::VOTE, &fields)
    }

    /// A request to campaign now, as in a leadership transfer.
    #[must_use]
    pub fn timeout_now(&self, term: u64) -> Vec<u8> {
        frame(kind::TIMEOUT_NOW, &self.envelope(term))
    }

    /// Sends a handshake and these frames at a peer port; returns whether it was accepted, and how many bytes came
    /// back.
    ///
    /// # Errors
    /// No connection.
    pub fn says(&self, address: &str, frames: &[Vec<u8>]) -> io::Result<(bool, usize)> {
        self.says_on(&mut connect(address)?, frames)
    }

    /// The same on an open connection.
    ///
    /// # Errors
    /// It is closed.
    pub fn says_on(&self, socket: &mut impl Connection, frames: &[Vec<u8>]) -> io::Result<(bool, usize)> {
        socket.write_all(&self.hello())?;
        let is_welcome = matches!(hear(socket), Ok((kind::WELCOME, _)));
        for frame in frames {
            let _ = socket.write_all(frame); // the connection may be closed by now
        }
        // Reads the answers until the connection is closed, or for a moment.
        socket.tcp().set_read_timeout(Some(Duration::from_millis(100)))?;
        let mut rest = Vec::new();
        let _ = socket.take(1 << 20).read_to_end(&mut rest);
        Ok((is_welcome, rest.len()))
    }

    /// The target's incarnation, which an accepted handshake returns.
    ///
    /// # Errors
    /// No connection, or the handshake is refused.
    pub fn asks_incarnation(&self, address: &str) -> io::Result<u64> {
        let mut socket = self.opens(address)?;
        match hear(&mut socket)? {
            (kind::WELCOME, fields) => Ok(u64_of(&mut &fields[10..])),
            (said, _) => Err(io::Error::other(format!("it answers with a frame of kind {said}"))),
        }
    }

    /// A connection on which the handshake has been sent, accepted or not.
    ///
    /// # Errors
    /// No connection.
    pub fn opens(&self, address: &str) -> io::Result<TcpStream> {
        let mut socket = connect(address)?;
        socket.write_all(&self.hello())?;
        Ok(socket)
    }
}

/// Announces a peer URL.
#[must_use]
pub fn introduction(url: &str) -> Vec<u8> {
    let mut fields = Vec::new();
    texts(&mut fields, &[url]);
    fields.push(255);
    frame(kind::INTRODUCTION, &fields)
}

/// Claims that this is the secret.
#[must_use]
pub fn proof(secret: u64) -> Vec<u8> {
    frame(kind::PROOF, &secret.to_le_bytes())
}

/// A connection, with TLS or without.
pub trait Connection: Read + Write {
    /// The TCP connection below.
    fn tcp(&self) -> &TcpStream;
}

impl Connection for TcpStream {
    fn tcp(&self) -> &TcpStream {
        self
    }
}

impl Connection for StreamOwned<ClientConnection, TcpStream> {
    fn tcp(&self) -> &TcpStream {
        &self.sock
    }
}

/// A TLS connection to a peer port whose certificate is signed by this authority, or is this very one; presents a
/// certificate, if given. The server's verdict about that shows when something is read.
///
/// # Errors
/// No connection, another certificate, or files that do not work.
pub fn connect_in_tls(
    address: &str,
    ca: &Path,
    shows: Option<&Signed>,
) -> io::Result<StreamOwned<ClientConnection, TcpStream>> {
    let mut roots = RootCertStore::empty();
    let authority = CertificateDer::from_pem_file(ca).map_err(io::Error::other)?;
    roots.add(authority).map_err(io::Error::other)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots);
    let config = match shows {
        None => config.with_no_client_auth(),
        Some(signed) => {
            let cert = CertificateDer::from_pem_file(&signed.cert).map_err(io::Error::other)?;
            let key = PrivateKeyDer::from_pem_file(&signed.key).map_err(io::Error::other)?;
            config.with_client_auth_cert(vec![cert], key).map_err(io::Error::other)?
        }
    };
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host).to_string();
    let name = ServerName::try_from(host).map_err(io::Error::other)?;
    let mut connection = ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?;
    let mut socket = connect(address)?;
    while connection.is_handshaking() {
        connection.complete_io(&mut socket)?;
    }
    Ok(StreamOwned::new(connection, socket))
}

/// A connection.
///
/// # Errors
/// No listener.
pub fn connect(address: &str) -> io::Result<TcpStream> {
    let socket = TcpStream::connect(address)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.set_write_timeout(Some(PATIENCE))?;
    socket.set_nodelay(true)?;
    Ok(socket)
}

/// Reads one frame: its kind and its fields.
fn hear(socket: &mut impl Read) -> io::Result<(u8, Vec<u8>)> {
    let mut head = [0; 24];
    socket.read_exact(&mut head)?;
    let len = u32::from_le_bytes(head[8..12].try_into().expect("four bytes")) as usize;
    let mut rest = vec![0; len.saturating_sub(24).min(1 << 20)];
    socket.read_exact(&mut rest)?;
    Ok((head[5], rest))
}

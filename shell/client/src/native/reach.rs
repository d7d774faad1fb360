//! Reach: from an address to a connection on which both sides have said hello.
//!
//! ```text
//!  host:port ─ resolve ─▶ addresses ─ each in turn ─▶ TCP ─▶ [TLS, ALPN kattu] ─▶ hello ⇄ welcome ─▶ connection
//! ```
//! Rules: 1. A name is resolved anew each time, and all of its addresses are tried: a member may have moved, and one of two
//!           addresses may lead nowhere.
//!        2. No request is sent before the welcome: a server that then refuses this client has received nothing.
//!        3. A server of another protocol is named: it is the most common mistake in an endpoint.
//! Knows nothing of: requests, when to dial.

use crate::failure::Failure;
use crate::native::connection::{Connection, Limits};
use kattu_native::frame::{FrameError, FrameReader, FrameWriter};
use kattu_native::handshake::{Hello, Welcome};
use kattu_native::{PREFACE, VERSION_MAX, VERSION_MIN};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

/// Most bytes of a welcome: URLs are short. [docs/formats/native.md]
const WELCOME_BYTES_MAX: u32 = 64 << 10;

/// Where a member listens, and how it is spoken to.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// As the user wrote it.
    pub(crate) name: String,
    /// `host:port`.
    pub(crate) address: String,
    pub(crate) tls: Option<Arc<ClientConfig>>,
}

impl Place {
    /// Connects until then; `cluster` is the one that is meant, 0 for any.
    pub(crate) async fn connect(
        &self,
        cluster: u64,
        limits: Limits,
        until: Instant,
    ) -> Result<Connection, Failure> {
        let failed = |why: String| Failure::unreachable(&self.name, why);
        let resolved = timeout_at(until, tokio::net::lookup_host(&self.address)).await;
        let addresses: Vec<SocketAddr> = match resolved {
            Err(_) => return Err(failed("its name was not resolved in time".to_string())),
            Ok(Err(error)) => return Err(failed(format!("its name cannot be resolved: {error}"))),
            Ok(Ok(addresses)) => addresses.collect(),
        };
        let mut last = "its name has no address".to_string();
        for (tried, address) in addresses.iter().enumerate() {
            // One address that swallows everything must leave time for the others.
            let left = until.saturating_duration_since(Instant::now());
            let share = left / u32::try_from(addresses.len() - tried).unwrap_or(u32::MAX);
            let dialled = timeout_at(Instant::now() + share, self.dial(*address, cluster, limits)).await;
            last = match dialled {
                Ok(Ok(connection)) => return Ok(connection),
                Ok(Err(why)) => why,
                Err(_) => format!("no connection to {address} with a welcome within {share:?}"),
            };
        }
        Err(failed(last))
    }

    async fn dial(&self, address: SocketAddr, cluster: u64, limits: Limits) -> Result<Connection, String> {
        let in_words = |error: io::Error| match kattu_tls::why_of_server(&error, kattu_tls::Asker::Client) {
            Some(why) => why.to_string(),
            None => error.to_string(),
        };
        let stream = TcpStream::connect(address).await.map_err(in_words)?;
        stream.set_nodelay(true).map_err(in_words)?;
        let Some(config) = self.tls.clone() else {
            return self.meet(stream, cluster, limits).await;
        };
        let host = self.address.rsplit_once(':').map_or(&*self.address, |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']').to_string();
        let name = ServerName::try_from(host).map_err(|error| error.to_string())?;
        let stream = TlsConnector::from(config).connect(name, stream).await.map_err(in_words)?;
        if stream.get_ref().1.alpn_protocol() != Some(kattu_tls::NATIVE) {
            return Err("it speaks TLS, but not Kattu's native protocol: is it a Kattu member?".to_string());
        }
        self.meet(stream, cluster, limits).await
    }

    /// Says hello, and hears the welcome.
    async fn meet<S>(&self, mut stream: S, cluster: u64, limits: Limits) -> Result<Connection, String>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let mut first = PREFACE.to_vec();
        let mut writer = FrameWriter::new(crc32c::crc32c_append);
        Hello { version_min: VERSION_MIN, version_max: VERSION_MAX, cluster, principal: 0 }
            .write(&mut writer);
        writer.append_to(&mut first);
        let in_words = |error: io::Error| match kattu_tls::why_of_server(&error, kattu_tls::Asker::Client) {
            Some(why) => why.to_string(),
            None => format!("the connection broke before a welcome came: {error}"),
        };
        stream.write_all(&first).await.map_err(in_words)?;
        stream.flush().await.map_err(in_words)?;
        let reader = FrameReader::new(crc32c::crc32c_append, WELCOME_BYTES_MAX);
        let mut read = Vec::with_capacity(1024);
        loop {
            if let Some((welcome, length)) = hear(&reader, &read)? {
                judge(&welcome, cluster)?;
                read.drain(..length);
                return Ok(Connection::start(stream, welcome, read, &self.name, limits));
            }
            if stream.read_buf(&mut read).await.map_err(in_words)? == 0 {
                let why = "it closed the connection before a welcome: does it speak Kattu's native protocol?";
                return Err(why.to_string());
            }
        }
    }
}

/// The welcome at the beginning, with the length of its frame; `None` if it is incomplete so far.
fn hear(reader: &FrameReader, read: &[u8]) -> Result<Option<(Welcome, usize)>, String> {
    let frame = match reader.next(read) {
        Ok(frame) => frame,
        Err(FrameError::Length { .. }) => return Err(other_protocol(read).to_string()),
        Err(error) => return Err(format!("its welcome is {error}")),
    };
    let Some((mut messages, length)) = frame else { return Ok(None) };
    let message = messages.next().ok_or("its first frame is empty")?;
    let message = message.map_err(|error| format!("its welcome: {error}"))?;
    let welcome = Welcome::read(&message).map_err(|error| format!("its welcome: {error}"))?;
    match messages.next() {
        None => Ok(Some((welcome, length))),
        Some(_) => Err("its welcome is followed by another message in one frame".to_string()),
    }
}

/// What speaks at the other end, if its first bytes are no frame that a welcome may have: read as a length, those of each of
/// these protocols are far above its limit.
fn other_protocol(read: &[u8]) -> &'static str {
    match read {
        // A record: an alert, or a handshake.
        [0x15 | 0x16, 3, 1..=4, ..] => "it speaks TLS: begin the endpoint with https://",
        [b'H', b'T', b'T', b'P', ..] => {
            "it speaks HTTP, and not Kattu's native protocol: is it a Kattu member?"
        }
        // The settings of HTTP/2: a length in three bytes, highest first, and the type.
        [0, 0, _, 4, ..] => {
            "it speaks HTTP/2 (gRPC), and not Kattu's native protocol: is it a Kattu member of this version?"
        }
        _ => "it does not speak Kattu's native protocol",
    }
}

/// Whether the client can go on after this welcome to a hello for this cluster.
fn judge(welcome: &Welcome, cluster: u64) -> Result<(), String> {
    if cluster != 0 && welcome.cluster != cluster {
        return Err(format!(
            "it is of another cluster: {:016x}, expected {cluster:016x}; is the endpoint right?",
            welcome.cluster
        ));
    }
    if !(VERSION_MIN..=VERSION_MAX).contains(&welcome.version) {
        let chosen = match welcome.version {
            0 => "none of them".to_string(),
            version => version.to_string(),
        };
        return Err(format!(
            "no version of the native protocol in common: this client speaks {VERSION_MIN} to {VERSION_MAX}, the member \
             chose {chosen}; upgrade the older of the two"
        ));
    }
    if welcome.requests_max == 0 || welcome.frame_bytes_max == 0 {
        return Err("its welcome allows no requests".to_string());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(welcome: &Welcome) -> Vec<u8> {
        let mut writer = FrameWriter::new(crc32c::crc32c_append);
        welcome.write(&mut writer);
        writer.take()
    }

    fn heard(read: &[u8]) -> Result<Option<(Welcome, usize)>, String> {
        hear(&FrameReader::new(crc32c::crc32c_append, WELCOME_BYTES_MAX), read)
    }

    #[test]
    fn a_welcome_is_heard_when_its_last_byte_is_there() {
        // Also with URLs of lengths at which the first bytes look like those of TLS.
        for length in [0, 200, 789 - 56, 790 - 56] {
            let url = "u".repeat(length);
            let welcome = Welcome {
                version: 1,
                cluster: 7,
                leader: kattu_native::handshake::Leader { id: 3, url },
                frame_bytes_max: 1,
                requests_max: 1,
                ..Welcome::default()
            };
            let bytes = bytes(&welcome);
            for end in 0..bytes.len() {
                assert_eq!(heard(&bytes[..end]), Ok(None), "{end} bytes");
            }
            assert_eq!(heard(&bytes), Ok(Some((welcome, bytes.len()))));
        }
    }

    #[test]
    fn other_protocols_are_named() {
        for (read, named) in [
            (&b"\x15\x03\x03\x00\x02\x02\x46"[..], "TLS"),
            (b"HTTP/1.1 400 Bad Request\r\n", "HTTP"),
            (b"\x00\x00\x12\x04\x00\x00\x00\x00\x00", "HTTP/2"),
            (b"SSH-2.0-OpenSSH_9.6\r\n", "native protocol"),
        ] {
            let error = heard(read).unwrap_err();
            assert!(error.contains(named), "{error}");
        }
        let mut damaged = bytes(&Welcome { version: 1, ..Welcome::default() });
        *damaged.last_mut().unwrap() ^= 1;
        assert!(heard(&damaged).unwrap_err().contains("checksum"));
    }

    #[test]
    fn a_welcome_of_another_cluster_or_version_ends_the_attempt() {
        let good =
            Welcome { version: 1, cluster: 7, frame_bytes_max: 1, requests_max: 1, ..Welcome::default() };
        assert_eq!((judge(&good, 7), judge(&good, 0)), (Ok(()), Ok(())));
        for (welcome, cluster, named) in [
            (good.clone(), 8, "another cluster"),
            (Welcome { version: 0, ..good.clone() }, 7, "none of them"),
            (Welcome { version: VERSION_MAX + 1, ..good.clone() }, 7, "chose 3"),
            (Welcome { requests_max: 0, ..good.clone() }, 7, "no requests"),
        ] {
            let error = judge(&welcome, cluster).unwrap_err();
            assert!(error.contains(named), "{error}");
        }
    }
}

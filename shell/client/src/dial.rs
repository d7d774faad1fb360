//! Dialling in TLS: a connection, a handshake, and a host name that the certificate must have.
//!
//! In TLS 1.3 a client is done with the handshake before the server has checked its certificate. A request sent to a
//! server that then refuses it would have an unknown outcome. So the first bytes of the server are awaited: in HTTP/2
//! it sends its settings first. [RFC 9113 §3.4]
//! Knows nothing of: requests, when to dial.

use http::Uri;
use hyper_util::rt::TokioIo;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;
use tower_service::Service;

/// Dials one address.
#[derive(Clone)]
pub(crate) struct Dialler {
    address: String,
    config: Arc<ClientConfig>,
    /// A connection that takes longer was never made: nothing was sent on it.
    limit: Duration,
}

impl Dialler {
    pub(crate) fn new(address: String, config: Arc<ClientConfig>, limit: Duration) -> Dialler {
        Dialler { address, config, limit }
    }
}

/// How long the first bytes are awaited: not every server sends them so soon.
const FIRST_WORD_MAX: Duration = Duration::from_secs(1);

/// A connection whose first bytes have been read.
pub(crate) struct Heard {
    stream: TlsStream<TcpStream>,
    first: Vec<u8>,
    /// How many of them were taken.
    taken: usize,
}

impl Heard {
    async fn hear(mut stream: TlsStream<TcpStream>, patience: Duration) -> io::Result<Heard> {
        let mut first = vec![0; 1024];
        let len = match tokio::time::timeout(patience, stream.read(&mut first)).await {
            Ok(Ok(0)) => return Err(io::ErrorKind::ConnectionReset.into()),
            Ok(heard) => heard.map_err(in_words)?,
            Err(_) => 0, // it is silent: it may send later
        };
        first.truncate(len);
        Ok(Heard { stream, first, taken: 0 })
    }
}

impl AsyncRead for Heard {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let heard = self.get_mut();
        let rest = &heard.first[heard.taken..];
        if rest.is_empty() {
            return Pin::new(&mut heard.stream).poll_read(context, into);
        }
        let len = rest.len().min(into.remaining());
        into.put_slice(&rest[..len]);
        heard.taken += len;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Heard {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

type Dialled = TokioIo<Heard>;

impl Service<Uri> for Dialler {
    type Response = Dialled;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Dialled>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let Dialler { address, config, limit } = self.clone();
        Box::pin(async move {
            let patience = FIRST_WORD_MAX.min(limit / 4);
            let dialled = async { Heard::hear(dial(&address, config).await?, patience).await };
            let dialled = tokio::time::timeout(limit, dialled).await;
            dialled.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())).map(TokioIo::new)
        })
    }
}

/// Connects to `host:port` and carries out the handshake.
pub(crate) async fn dial(address: &str, config: Arc<ClientConfig>) -> io::Result<TlsStream<TcpStream>> {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']').to_string();
    let name = ServerName::try_from(host).map_err(io::Error::other)?;
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let dialled = TlsConnector::from(config).connect(name, stream).await;
    dialled.map_err(in_words)
}

fn in_words(error: io::Error) -> io::Error {
    kattu_tls::why_of_server(&error, kattu_tls::Asker::Client).map_or(error, io::Error::other)
}

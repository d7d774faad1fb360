//! Dialling in TLS: a connection, a handshake, and a name that must be the certificate's.
//!
//! Knows nothing of: requests, when to dial.

use http::Uri;
use hyper_util::rt::TokioIo;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
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

type Dialled = TokioIo<TlsStream<TcpStream>>;

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
            let dialled = tokio::time::timeout(limit, dial(&address, config)).await;
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
    dialled.map_err(|error| {
        kattu_tls::why_of_server(&error, kattu_tls::Asker::Client).map_or(error, io::Error::other)
    })
}

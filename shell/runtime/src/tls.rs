//! TLS between members: which connections use it, and which certificates the other side has shown.
//!
//! ```text
//!   dialer    goes by the member's URL; accepts a certificate for that host          [kattu_tls::Dials]
//!   listener  goes by its own URLs and the first byte; asks for a certificate if it has authorities to check it
//! ```
//! A signed certificate proves the identity of a member if it is for a host at which the table lists that member; then
//! no proof is asked for. Without one, proofs are asked for in TLS as without. [`kattu_member::proofs`]
//! Knows nothing of: frames, the member list.

use kattu_member::dialler::Failure;
use kattu_member::peer_address::PeerAddress;
use kattu_tls::handshake::{self, Line, RECORD_OF_HANDSHAKE};
use kattu_tls::{Asker, Refused, ServerTls, Socket, Speaks};
use rustls::pki_types::{CertificateDer, ServerName};
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::TlsConnector;

/// The certificates that the other side has shown, its own first.
pub(crate) type Chain = Vec<CertificateDer<'static>>;

/// A connection that checks the certificates of the other side again whenever the rules may have changed. [fault-model
/// SE3]
pub(crate) struct Shown {
    tls: Arc<ServerTls>,
    /// As of before the first check.
    rejudged: watch::Receiver<u64>,
    chain: Option<Chain>,
}

impl Shown {
    /// Returns when these certificates would not be accepted from a caller any more.
    pub(crate) async fn let_in_no_more(self) -> Refused {
        let Shown { tls, rejudged, chain } = self;
        handshake::until_refused(Line::Members, rejudged, || tls.current().judge(chain.as_deref())).await
    }

    /// Returns when these certificates would not be accepted for this dialled host any more.
    async fn believed_no_more(self, host: &str) -> Refused {
        let Shown { tls, rejudged, chain } = self;
        let judge = || tls.current().judge_dialled(chain.as_deref(), host);
        handshake::until_refused(Line::Members, rejudged, judge).await
    }

    /// The certificate, if an authority of ours has signed it.
    pub(crate) fn signed(&self) -> Option<&CertificateDer<'static>> {
        // Without authorities no certificate is asked for.
        self.chain.as_deref().and_then(<[_]>::first)
    }
}

/// A connection that this member has opened.
pub(crate) struct Dialled {
    pub(crate) socket: Socket,
    shown: Option<Shown>,
    host: String,
}

impl Dialled {
    /// The socket, and a future that resolves when the other side is not accepted any more.
    pub(crate) fn split(self) -> (Socket, impl Future<Output = Refused>) {
        let Dialled { socket, shown, host } = self;
        (socket, async move {
            match shown {
                Some(shown) => shown.believed_no_more(&host).await,
                None => std::future::pending().await,
            }
        })
    }
}

/// Opens a connection to this address. It does not time out: the caller bounds it.
pub(crate) async fn dial(at: &PeerAddress, tls: Option<&Arc<ServerTls>>) -> Result<Dialled, Failure> {
    let refused = |why: &str| Err(Failure::Refused(why.to_string()));
    let dials = match at.is_tls {
        false => None,
        true => match tls.and_then(|tls| Some((tls.clone(), tls.rejudged(), tls.current().dial()?))) {
            None => {
                return refused("its URL is https://, and this member has no certificate (--peer-cert-file)");
            }
            some => some,
        },
    };
    let socket = TcpStream::connect(&at.authority).await.map_err(|_| Failure::Away)?;
    crate::prepare(&socket);
    let host = at.host.clone();
    let Some((tls, rejudged, config)) = dials else {
        return Ok(Dialled { socket: Socket::Plain(socket), shown: None, host });
    };
    let Ok(name) = ServerName::try_from(at.host.clone()) else {
        return refused("the host of its URL cannot be in a certificate");
    };
    match TlsConnector::from(config).connect(name, socket).await {
        Ok(stream) => {
            let chain = stream.get_ref().1.peer_certificates().map(<[_]>::to_vec);
            let socket = Socket::Tls(Box::new(stream.into()));
            Ok(Dialled { socket, shown: Some(Shown { tls, rejudged, chain }), host })
        }
        Err(error) => Err(failed(&error)),
    }
}

/// The failure behind an error of an outgoing connection: with a reason, if the other side gave one.
pub(crate) fn failed(error: &std::io::Error) -> Failure {
    kattu_tls::why_of_server(error, Asker::Member).map_or(Failure::Away, Failure::Refused)
}

/// Why an incoming connection failed.
pub(crate) enum Unaccepted {
    /// It was closed, or broke.
    Left,
    /// Its certificate, or its TLS, is refused; TLS has reported that to it.
    Refused(Refused),
    /// It uses TLS where it must not, or the other way round, and is to be told so.
    Told(&'static str, TcpStream),
}

/// Sent to a caller without TLS on a port with it.
const SPEAKS_TLS: &str =
    "this port speaks TLS: its URL must be https:// (--initial-cluster, `kattu member update`)";
/// Sent to a caller with TLS on a port without it; both sides log it.
const SPEAKS_NO_TLS: &str =
    "it speaks TLS, and this port does not: its URL must be http://, or --listen-peer-urls https://";

/// Accepts an incoming connection, with TLS or without; where TLS is spoken, returns the certificates that were shown.
/// The error says why it is to be closed. It does not time out: the caller bounds it. Must be awaited inside a
/// `LocalSet`.
pub(crate) async fn accept(
    socket: TcpStream,
    speaks: &Speaks,
) -> Result<(Socket, Option<Shown>), Unaccepted> {
    let mut first = [0];
    let len = socket.peek(&mut first).await.map_err(|_| Unaccepted::Left)?;
    let begins_tls = len == 1 && first[0] == RECORD_OF_HANDSHAKE;
    match speaks {
        Speaks::Plain if begins_tls => Err(Unaccepted::Told(SPEAKS_NO_TLS, socket)),
        Speaks::Tls(_) if len == 0 => Err(Unaccepted::Left),
        Speaks::Tls(_) if !begins_tls => Err(Unaccepted::Told(SPEAKS_TLS, socket)),
        Speaks::Tls(tls) | Speaks::Both(tls) if begins_tls => {
            let (rejudged, current) = (tls.rejudged(), tls.current());
            let accepted = handshake::accept(Line::Members, socket, current.config.clone()).await;
            let stream = accepted.map_err(|error| match kattu_tls::refused(&error) {
                Refused::Left => Unaccepted::Left,
                why => Unaccepted::Refused(why),
            })?;
            let shown = stream.get_ref().1.peer_certificates().filter(|_| current.asks_clients());
            let chain = shown.map(<[_]>::to_vec);
            let shown = current.asks_clients().then(|| Shown { tls: tls.clone(), rejudged, chain });
            Ok((Socket::Tls(stream), shown))
        }
        Speaks::Plain | Speaks::Tls(_) | Speaks::Both(_) => Ok((Socket::Plain(socket), None)),
    }
}

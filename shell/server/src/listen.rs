//! Listeners: accept connections, tell HTTP/2, HTTP/1.1 and the native protocol apart, and end all in order.
//!
//! One port serves gRPC (HTTP/2 with prior knowledge), plain HTTP and the native protocol. Connections are tasks of the caller's `LocalSet`,
//! like the node where it has no thread of its own: so a request is answered on the thread that read it. A client that
//! sends garbage, stalls or vanishes loses its own connection and nothing else.
//! Knows nothing of: the meaning of requests.

use crate::body::{FaceBody, Held};
use crate::budget::{Account, CALL_BYTES, Hold};
use crate::face::{Face, FaceConfig};
use crate::http as plain;
use crate::no_tls;
use crate::patience::{Limits, Patience};
use crate::replica::Replica;
use crate::tls::{self, Doorway};
use crate::{grpc, http2, native};
use bytes::Bytes;
use futures_util::future::Either;
use http::{Request, Response, Version};
use http_body::Body;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use kattu_tls::handshake::{self, Line, RECORD_OF_HANDSHAKE};
use kattu_tls::{Refused, Socket, Speaks};
use socket2::{SockRef, TcpKeepalive};
use std::error::Error;
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_rustls::TlsStream;
use tokio_rustls::rustls::pki_types::CertificateDer;

/// The first bytes of every HTTP/2 client with prior knowledge. [RFC 9113 §3.4]
pub(crate) const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// After this silence the kernel checks that a client is still there.
const TCP_KEEPALIVE: Duration = Duration::from_secs(30);

/// Pause between the first two looks at an incomplete preface; complete ones arrive in one piece.
const PREFACE_PAUSE_MIN: Duration = Duration::from_millis(5);
/// … and between the last ones: a preface that is never completed costs only some twenty looks on the node's thread,
/// and there may be a thousand of them.
const PREFACE_PAUSE_MAX: Duration = Duration::from_millis(320);

/// Bytes that an HTTP/1 connection may buffer of a request's head, or of pages to send.
const PLAIN_BUFFER_BYTES: usize = 16 << 10;

/// Longest time for sending the error to a client that uses TLS on a plain port, or no TLS on a port that requires it.
const FAREWELL_MAX: Duration = Duration::from_secs(1);

/// Pause of a listener after a failed accept (mostly for lack of file descriptors).
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The requests that a listener accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    /// gRPC, plain HTTP and the native protocol.
    Clients,
    /// Plain HTTP only, and nothing that changes anything: it may ask for no certificate.
    Plain,
}

/// Serves clients on this listener until `stop` turns true, then lets calls under way finish for
/// [`FaceConfig::drain_deadline`]. Must be awaited inside a `LocalSet`.
pub async fn serve_clients<R: Replica>(
    door: impl Into<Doorway>,
    replica: R,
    config: Arc<FaceConfig>,
    stop: watch::Receiver<bool>,
) {
    serve(door.into(), Face::new(replica, config, stop), Door::Clients).await;
}

/// Serves `/metrics`, `/health` and `/version` on this listener until `stop` turns true. Must be awaited inside a
/// `LocalSet`.
pub async fn serve_metrics<R: Replica>(
    door: impl Into<Doorway>,
    replica: R,
    config: Arc<FaceConfig>,
    stop: watch::Receiver<bool>,
) {
    serve(door.into(), Face::new(replica, config, stop), Door::Plain).await;
}

async fn serve<R: Replica>(Doorway { listener, speaks }: Doorway, face: Face<R>, door: Door) {
    let mut stop = face.stop.clone();
    let face = Arc::new(face);
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
            _ = stop.wait_for(|stop| *stop) => break,
        };
        let Ok((stream, _)) = accepted else {
            face.config.counters.connections_refused.add(1);
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        if let Some(open) = Open::enter(&face.config) {
            connections.spawn_local(serve_connection(stream, speaks.clone(), Arc::clone(&face), door, open));
        }
    }
    drop(listener);
    let drained = async { while connections.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(face.config.drain_deadline, drained).await;
    connections.shutdown().await;
}

/// A place among the connections; released when dropped.
struct Open(Arc<FaceConfig>);

impl Open {
    /// A place, unless all are taken.
    fn enter(config: &Arc<FaceConfig>) -> Option<Open> {
        let counters = &config.counters;
        if config.max_connections() <= counters.connections.get() {
            counters.connections_refused.add(1);
            return None;
        }
        counters.connections_accepted.add(1);
        counters.connections.add(1);
        Some(Open(Arc::clone(config)))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.counters.connections.sub(1);
    }
}

async fn serve_connection<R: Replica>(
    stream: TcpStream,
    speaks: Speaks,
    face: Arc<Face<R>>,
    door: Door,
    open: Open,
) {
    let counters = &face.config.counters;
    let from = stream.peer_addr().ok();
    let served = match tokio::time::timeout(face.config.header_deadline, begin(stream, &speaks)).await {
        Err(_) => Err("the client did not show its protocol in time".into()),
        Ok(Err(error)) => Err(error.into()),
        Ok(Ok(Begun::Closed)) => Ok(()),
        Ok(Ok(Begun::Refused(why))) => {
            counters.handshakes_refused.add(1);
            tls::tell_of_refused(from, &why);
            Err("the client was refused".into())
        }
        Ok(Ok(Begun::Plain(stream, protocol))) => {
            serve_protocol(Socket::Plain(stream), protocol, Arc::clone(&face), door, open).await
        }
        Ok(Ok(Begun::Tls(stream, protocol, rejudged))) => {
            counters.handshakes.add(1);
            let chain = stream.get_ref().1.peer_certificates().map(<[_]>::to_vec);
            let socket = Socket::Tls(stream);
            tokio::select! {
                served = serve_protocol(socket, protocol, Arc::clone(&face), door, open) => served,
                why = trusted_no_more(&speaks, rejudged, chain) => {
                    counters.handshakes_refused.add(1);
                    tls::tell_of_refused(from, &why);
                    Err("the client is not trusted any more".into())
                }
            }
        }
    };
    if served.is_err() {
        counters.connections_broken.add(1);
    }
}

/// What the first bytes of a client led to.
enum Begun {
    Plain(TcpStream, Protocol),
    /// With the signal to check its certificate again, as of before it was first checked.
    Tls(Box<TlsStream<TcpStream>>, Protocol, watch::Receiver<u64>),
    Refused(Refused),
    /// It left before its protocol was known.
    Closed,
}

async fn begin(mut stream: TcpStream, speaks: &Speaks) -> std::io::Result<Begun> {
    let mut first = [0; PREFACE.len()];
    let len = stream.peek(&mut first).await?;
    let begins_tls = first[..len].first() == Some(&RECORD_OF_HANDSHAKE);
    match speaks {
        _ if len == 0 => Ok(Begun::Closed),
        Speaks::Plain if begins_tls => {
            let told = no_tls::refuse_tls(&mut stream);
            let _ = tokio::time::timeout(FAREWELL_MAX, told).await; // the client need not read it
            Ok(Begun::Refused(Refused::Other(
                "it speaks TLS, and this port does not: use http://, or listen on https://".into(),
            )))
        }
        Speaks::Tls(tls) | Speaks::Both(tls) if begins_tls => {
            let rejudged = tls.rejudged();
            match handshake::accept(Line::Clients, stream, tls.current().config.clone()).await {
                Ok(stream) => {
                    let protocol = match stream.get_ref().1.alpn_protocol() {
                        Some(b"h2") => Protocol::Http2,
                        Some(kattu_tls::NATIVE) => Protocol::Native,
                        _ => Protocol::Http1,
                    };
                    Ok(Begun::Tls(stream, protocol, rejudged))
                }
                Err(error) => match kattu_tls::refused(&error) {
                    Refused::Left => Err(error),
                    why => Ok(Begun::Refused(why)),
                },
            }
        }
        Speaks::Tls(_) => {
            let speaks_http2 = no_tls::begins_http2(&first[..len]);
            let told = no_tls::refuse(&mut stream, speaks_http2);
            let _ = tokio::time::timeout(FAREWELL_MAX, told).await;
            Ok(Begun::Refused(Refused::NotTls))
        }
        Speaks::Plain | Speaks::Both(_) => Ok(match recognize(&stream).await? {
            Protocol::Closed => Begun::Closed,
            protocol => Begun::Plain(stream, protocol),
        }),
    }
}

/// Returns when the files of a listener have changed so that a client with this chain would be refused. [fault-model
/// SE3]
async fn trusted_no_more(
    speaks: &Speaks,
    rejudged: watch::Receiver<u64>,
    chain: Option<Vec<CertificateDer<'static>>>,
) -> Refused {
    let Some(tls) = speaks.tls() else { return std::future::pending().await };
    handshake::until_refused(Line::Clients, rejudged, || tls.current().judge(chain.as_deref())).await
}

enum Protocol {
    Http1,
    Http2,
    Native,
    /// The client left before its protocol was known.
    Closed,
}

/// Pauses between looks at an incomplete preface: twice as long each time.
fn pauses() -> impl Iterator<Item = Duration> {
    std::iter::successors(Some(PREFACE_PAUSE_MIN), |pause| Some((*pause * 2).min(PREFACE_PAUSE_MAX)))
}

/// Looks at the first bytes without taking them.
async fn recognize(stream: &TcpStream) -> std::io::Result<Protocol> {
    let mut first = [0; PREFACE.len()];
    let mut pauses = pauses();
    loop {
        let len = stream.peek(&mut first).await?;
        let begun = &first[..len];
        if begun.starts_with(&kattu_native::PREFACE) {
            return Ok(Protocol::Native);
        }
        if !PREFACE.starts_with(begun) && !kattu_native::PREFACE.starts_with(begun) {
            return Ok(Protocol::Http1);
        }
        if len == PREFACE.len() {
            return Ok(Protocol::Http2);
        }
        if len == 0 || stream.ready(Interest::READABLE).await?.is_read_closed() {
            return Ok(Protocol::Closed);
        }
        // An incomplete preface stays readable, so that waiting for "readable" would spin.
        tokio::time::sleep(pauses.next().unwrap_or(PREFACE_PAUSE_MAX)).await;
    }
}

async fn serve_protocol<R: Replica>(
    stream: Socket,
    protocol: Protocol,
    face: Arc<Face<R>>,
    door: Door,
    open: Open,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    let config = Arc::clone(&face.config);
    set_up(stream.tcp(), &config)?;
    let mut stop = face.stop.clone();
    let account = Account::with_place(&config.budget, open);
    if let Protocol::Native = protocol {
        return match door {
            Door::Clients => Ok(native::serve(stream, &face, &account).await?),
            Door::Plain => Err("the native protocol is not served here".into()),
        };
    }
    if let Protocol::Http2 = protocol {
        let answer = |request, hold| route(&face, door, request, hold);
        let whole = |rpc, message, hold| face.answer_whole(rpc, message, hold);
        let whole = (door == Door::Clients).then_some(whole);
        return Ok(http2::serve(stream, &config, &account, stop, answer, whole).await?);
    }
    let stalled = is_stalled(config.limits(), Rc::clone(&account));
    let service = service_fn(move |request| {
        let (face, account) = (Arc::clone(&face), Rc::clone(&account));
        async move {
            let hold = Hold::take(&account, CALL_BYTES).ok_or("no room for a request")?;
            let (response, mut hold) = route(&face, door, request, hold).await;
            if let FaceBody::Page(page) = response.body()
                && !hold.resize(page.len() as u64)
            {
                return Err("no room for a page");
            }
            Ok::<_, &'static str>(response.map(|body| Held::new(body, hold)))
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .max_buf_size(PLAIN_BUFFER_BYTES)
        .header_read_timeout(config.header_deadline)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    tokio::select! {
        biased;
        ended = connection.as_mut() => return Ok(ended?),
        () = stalled => {
            config.counters.connections_stalled.add(1);
            return Ok(());
        }
        _ = stop.wait_for(|stop| *stop) => connection.as_mut().graceful_shutdown(),
    }
    Ok(connection.await?)
}

fn set_up(stream: &TcpStream, config: &FaceConfig) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    SockRef::from(stream).set_tcp_keepalive(&TcpKeepalive::new().with_time(TCP_KEEPALIVE))?;
    // The kernel, too, gives up a client that takes nothing of what was sent for so long.
    SockRef::from(stream).set_tcp_user_timeout(Some(config.stall_deadline))
}

/// Returns when a client has taken nothing, or too little, of its pages. The library closes silent clients.
async fn is_stalled(limits: Limits, account: Rc<Account>) {
    let mut patience = Patience::new(limits, Instant::now());
    loop {
        tokio::time::sleep(limits.look_every()).await;
        if patience.look(Instant::now(), 0, true, account.pieces()).is_err() {
            return;
        }
    }
}

fn route<R: Replica, B>(
    face: &Face<R>,
    door: Door,
    request: Request<B>,
    mut hold: Hold,
) -> impl Future<Output = (Response<FaceBody>, Hold)> + use<'_, R, B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    let is_call = request.version() == Version::HTTP_2 && grpc::is_grpc(request.headers());
    if is_call && door == Door::Clients {
        return Either::Left(face.answer(request, hold));
    }
    let (head, _) = request.into_parts();
    Either::Right(async move { (plain::answer(face, door, &head.method, &head.uri, &mut hold).await, hold) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often a preface that is never completed is looked at within such a deadline.
    fn looks(deadline: Duration) -> usize {
        let mut waited = Duration::ZERO;
        let is_in_time = |pause: &Duration| {
            waited += *pause;
            waited < deadline
        };
        1 + pauses().take_while(is_in_time).count()
    }

    #[test]
    fn half_a_preface_is_looked_at_soon_and_then_less_and_less_often() {
        let deadline = FaceConfig::default().header_deadline;
        assert_eq!(deadline, Duration::from_secs(5));
        assert_eq!(looks(deadline), 21);
        assert_eq!(looks(Duration::from_millis(320)), 7, "soon for one that was cut in two");
    }
}

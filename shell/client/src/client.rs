//! Client: which endpoint a call goes to, and how often it is repeated.
//!
//! 1. All callers share one current endpoint; a caller that meets a failure there moves all of them on to the next.
//! 2. A read is repeated elsewhere whenever a member was unavailable, until the time is over; a pause of 25 ms after
//!    each full round. Between several endpoints the time is shared out, so that one silent member cannot use it up.
//! 3. A write is sent elsewhere only while it is certain that no member has received it.
//! 4. When every endpoint in one round was unreachable, that is the answer: waiting is the caller's choice.
//!
//! Knows nothing of: the contents of calls.

use crate::endpoint::{AddressError, Endpoint};
use crate::failure::{Failure, Kind};
use crate::level::Level;
use crate::rpc::{Rpc, decode};
use kattu_tls::ClientTls;
use prost::Message;
use prost::bytes::Bytes;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::Instant;
use tonic::{Code, Request, Response, Status};

/// Pause after a full round of endpoints. [etcd-api §3]
const ROUND_PAUSE: Duration = Duration::from_millis(25);
/// A connection that takes longer to make is not worth waiting for while there are other endpoints.
const CONNECT_TIMEOUT_MAX: Duration = Duration::from_secs(2);

/// The options of a client.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// A call ends after this time, answered or not.
    pub timeout: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options { timeout: Duration::from_secs(5) }
    }
}

/// A client of one cluster. Clones share their connections, one per endpoint.
#[derive(Clone, Debug)]
pub struct Client {
    shared: Arc<Shared>,
    level: Level,
}

#[derive(Debug)]
struct Shared {
    endpoints: Vec<Endpoint>,
    /// Counts up; modulo the number of endpoints it is the current one.
    current: AtomicUsize,
    options: Options,
}

/// Decodes an answer and keeps it.
type Take<'a, T> = dyn FnMut(T) -> Result<(), Status> + Send + 'a;
/// A call under way.
type Carried<'a> = Pin<Box<dyn Future<Output = Result<(), Failure>> + Send + 'a>>;

/// Whether a call changes anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Reads,
    Writes,
}

impl Client {
    /// A client of the cluster with these endpoints, each `host:port` or `http://host:port`. Nothing is connected yet.
    ///
    /// # Errors
    /// Endpoints that are not addresses; no endpoints at all.
    pub fn connect<S: AsRef<str>>(
        endpoints: impl IntoIterator<Item = S>,
        options: Options,
    ) -> Result<Client, AddressError> {
        Client::connect_in_tls(endpoints, options, None)
    }

    /// The same, in TLS with endpoints that begin with `https://`, or have no scheme; those with `http://` stay without
    /// it.
    ///
    /// # Errors
    /// As [`Client::connect`]; an `https://` endpoint without `tls`.
    pub fn connect_in_tls<S: AsRef<str>>(
        endpoints: impl IntoIterator<Item = S>,
        options: Options,
        tls: Option<&ClientTls>,
    ) -> Result<Client, AddressError> {
        let names: Vec<S> = endpoints.into_iter().collect();
        let share = options.timeout / u32::try_from(names.len()).unwrap_or(u32::MAX).max(1);
        let endpoints = names
            .iter()
            .map(|name| Endpoint::new(name.as_ref(), share.min(CONNECT_TIMEOUT_MAX), tls))
            .collect::<Result<Vec<_>, _>>()?;
        if endpoints.is_empty() {
            return Err(AddressError::none_given());
        }
        Ok(Client {
            shared: Arc::new(Shared { endpoints, current: AtomicUsize::new(0), options }),
            level: Level::Configured,
        })
    }

    /// All endpoints, in the order given.
    #[must_use]
    pub fn endpoints(&self) -> &[Endpoint] {
        &self.shared.endpoints
    }

    /// How long a call may take.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        self.shared.options.timeout
    }

    /// The same client, on the same connections, with reads of this level.
    ///
    /// ```no_run
    /// use kattu_client::{Client, Level, Options, Seen};
    /// use std::time::Duration;
    ///
    /// # fn main() -> Result<(), kattu_client::AddressError> {
    /// let client = Client::connect(["10.0.0.1:2379", "10.0.0.2:2379"], Options::default())?;
    /// let recent = client.at_level(Level::Bounded(Duration::from_millis(100)));
    /// let own_writes = client.at_level(Level::AtLeast(Seen::new()));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn at_level(&self, level: Level) -> Client {
        Client { shared: self.shared.clone(), level }
    }

    /// How fresh this client's reads are.
    #[must_use]
    pub fn level(&self) -> &Level {
        &self.level
    }

    /// Lets the next call go to the endpoint after the current one.
    pub fn move_on(&self) {
        self.shared.current.fetch_add(1, Ordering::Relaxed);
    }

    /// Lets the next call go to the `place`-th endpoint, so that several clients may begin at different ones.
    pub fn begin_at(&self, place: usize) {
        self.shared.current.store(place, Ordering::Relaxed);
    }

    /// One message there and one back, by rules 1–4 of this file.
    pub(crate) async fn call<A: Message + Default>(
        &self,
        effect: Effect,
        rpc: Rpc,
        message: &impl Message,
    ) -> Result<A, Failure> {
        let mut answer = A::default();
        let mut take = |bytes| decode(bytes).map(|decoded| answer = decoded);
        self.carry(effect, rpc, message.encode_to_vec().into(), &mut take).await?;
        Ok(answer)
    }

    /// The same at one endpoint, once.
    pub(crate) async fn call_at<A: Message + Default>(
        &self,
        endpoint: &Endpoint,
        rpc: Rpc,
        message: &impl Message,
    ) -> Result<A, Failure> {
        let mut answer = A::default();
        let mut take = |bytes| decode(bytes).map(|decoded| answer = decoded);
        self.carry_to(endpoint, rpc, message.encode_to_vec().into(), &mut take).await?;
        Ok(answer)
    }

    /// Bytes there and back. Boxed, so that it is compiled in this crate, once for all messages.
    fn carry<'a>(
        &'a self,
        effect: Effect,
        rpc: Rpc,
        message: Bytes,
        take: &'a mut Take<'a, Bytes>,
    ) -> Carried<'a> {
        Box::pin(self.ask(effect, move |at| rpc.unary(at, self.request(rpc, message.clone())), take))
    }

    fn carry_to<'a>(
        &'a self,
        endpoint: &'a Endpoint,
        rpc: Rpc,
        message: Bytes,
        take: &'a mut Take<'a, Bytes>,
    ) -> Carried<'a> {
        let until = Instant::now() + self.shared.options.timeout;
        let call = move |at| rpc.unary(at, self.request(rpc, message.clone()));
        Box::pin(async move { self.ask_one(endpoint, until, &call, take).await })
    }

    fn request(&self, rpc: Rpc, message: Bytes) -> Request<Bytes> {
        if rpc.has_level { self.level.request(message) } else { Request::new(message) }
    }

    /// Calls by rules 1–4 of this file. An answer that `take` cannot take counts as a failed call.
    pub(crate) async fn ask<T, F, Fut>(
        &self,
        effect: Effect,
        call: F,
        take: &mut Take<'_, T>,
    ) -> Result<(), Failure>
    where
        F: Fn(Endpoint) -> Fut,
        Fut: Future<Output = Result<Response<T>, Status>>,
    {
        let endpoints = &self.shared.endpoints;
        let deadline = Instant::now() + self.shared.options.timeout;
        let share = match effect {
            Effect::Reads => self.shared.options.timeout / u32::try_from(endpoints.len()).unwrap_or(u32::MAX),
            Effect::Writes => self.shared.options.timeout,
        };
        let mut last: Option<Failure> = None;
        let mut unreachable_in_a_row = 0;
        loop {
            for _ in 0..endpoints.len() {
                let place = self.shared.current.load(Ordering::Relaxed);
                let endpoint = &endpoints[place % endpoints.len()];
                let until = deadline.min(Instant::now() + share);
                let failure = match self.ask_one(endpoint, until, &call, take).await {
                    Ok(()) => return Ok(()),
                    Err(failure) => failure,
                };
                let was_received = failure.kind != Kind::Unreachable;
                unreachable_in_a_row = if was_received { 0 } else { unreachable_in_a_row + 1 };
                let elsewhere = match effect {
                    Effect::Reads => failure.is_unavailable() || failure.code == Code::DeadlineExceeded,
                    Effect::Writes => !was_received,
                };
                if failure.is_unavailable() || failure.code == Code::DeadlineExceeded {
                    // Only the first of several callers that failed here moves on.
                    let next = place.wrapping_add(1);
                    let _ = self.shared.current.compare_exchange(
                        place,
                        next,
                        Ordering::Relaxed,
                        Ordering::Relaxed,
                    );
                }
                // A bare "no answer" tells less than the answer of an earlier member.
                let failure = match last.take() {
                    Some(before) if failure.code == Code::DeadlineExceeded && effect == Effect::Reads => {
                        before
                    }
                    _ => failure,
                };
                if !elsewhere || Instant::now() >= deadline || unreachable_in_a_row >= endpoints.len() {
                    return Err(failure);
                }
                last = Some(failure);
            }
            tokio::time::sleep_until((Instant::now() + ROUND_PAUSE).min(deadline)).await;
        }
    }

    /// Calls one endpoint once.
    async fn ask_one<T, F, Fut>(
        &self,
        endpoint: &Endpoint,
        until: Instant,
        call: &F,
        take: &mut Take<'_, T>,
    ) -> Result<(), Failure>
    where
        F: Fn(Endpoint) -> Fut,
        Fut: Future<Output = Result<Response<T>, Status>>,
    {
        let answer = match tokio::time::timeout_at(until, call(endpoint.clone())).await {
            Ok(answer) => answer,
            Err(_) => return Err(Failure::timed_out(&endpoint.name)),
        };
        let taken = answer.and_then(|answer| {
            let (metadata, body, _) = answer.into_parts();
            take(body)?;
            self.level.note(&metadata);
            Ok(())
        });
        taken.map_err(|status| Failure::from_status(&status, &endpoint.name))
    }
}

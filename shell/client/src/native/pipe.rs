//! Pipe: many requests under way for one caller, in batches in and out.
//!
//! Knows nothing of: how requests are repeated.

use crate::error::Error;
use crate::native::answer::Outcomes;
use crate::native::ask::Ask;
use crate::native::caller::Caller;
use crate::native::calls::{Wanted, bytes_of, bytes_of_put, bytes_of_query, one, put};
use crate::native::client::{Course, NativeClient};
use crate::native::desk::{Desk, Slot};
use crate::native::live::Live;
use crate::native::{weak, window};
use kattu_kv::api::{Command, PutRef, Query, Range, Response};
use kattu_kv::check::is_read_only;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::time::{Instant, Sleep};

/// Many requests under way for one caller, without a task or a future for each. Each request has a label, which its outcome
/// bears; labels may be the same. Outcomes come in any order, and mean what they mean elsewhere: each request has one. What
/// is under way goes on also if the pipe is dropped.
///
/// What a turn of the caller gives goes out together, and what has come is taken together: this is the way to ask
/// for much at little cost. A request waits for room first: at most [`Pipe::REQUESTS_MAX`] and [`Pipe::BYTES_MAX`] of them
/// are without an outcome, in a session fewer if its window is smaller.
///
/// ```no_run
/// use kattu_client::{NativeClient, Options, SessionOptions};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let client = NativeClient::connect(["10.0.0.1:2379"], Options::default(), None)?;
/// let session = client.open_session(SessionOptions::default()).await?;
/// let mut pipe = session.pipe();
/// for number in 0..1000 {
///     pipe.put(number, format!("key {number}"), "value").await?;
/// }
/// while 0 < pipe.under_way() {
///     for (number, outcome) in pipe.outcomes().await {
///         println!("key {number} was written at {:?}", outcome?.revision);
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Pipe<'a> {
    desk: Arc<Desk>,
    session: Option<&'a Live>,
    /// Requests whose outcomes were not taken.
    under_way: usize,
    /// Taken from the desk, on their way to the caller.
    taken: Vec<(u64, Outcomes)>,
    /// Labels of weak puts that were received.
    received: Vec<u64>,
    /// Wakes the caller to find that answers are missing.
    timer: Option<Pin<Box<Sleep>>>,
}

impl NativeClient {
    /// Many requests under way at once, outside of a session.
    #[must_use]
    pub fn pipe(&self) -> Pipe<'static> {
        Pipe::new(self.clone(), None)
    }
}

impl<'a> Pipe<'a> {
    /// Most requests without an outcome: 4,096.
    pub const REQUESTS_MAX: usize = window::REQUESTS_MAX;
    /// Most bytes of requests without an outcome: 64 MiB. One request always passes.
    pub const BYTES_MAX: usize = window::BYTES_MAX;

    pub(crate) fn new(client: NativeClient, session: Option<&'a Live>) -> Pipe<'a> {
        Pipe {
            desk: Desk::new(client),
            session,
            under_way: 0,
            taken: Vec::new(),
            received: Vec::new(),
            timer: None,
        }
    }

    /// Requests that were given and whose outcomes were not taken.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.under_way
    }

    /// Writes one key.
    ///
    /// # Errors
    /// As [`Pipe::command`].
    pub async fn put(
        &mut self,
        label: u64,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<(), Error> {
        let put = PutRef {
            key: key.as_ref(),
            value: value.as_ref(),
            lease: 0,
            prev_kv: false,
            ignore_value: false,
            ignore_lease: false,
        };
        self.write(label, bytes_of_put(put)?, Wanted::Put).await
    }

    /// Writes one key in the session of this pipe; its caller wants to know when a quorum has received it:
    /// [`Pipe::received`]. Its outcome follows.
    ///
    /// # Errors
    /// As [`Session::put_weak`](crate::Session::put_weak).
    pub async fn put_weak(
        &mut self,
        label: u64,
        key: impl Into<Vec<u8>>,
        value: impl Into<Vec<u8>>,
    ) -> Result<(), Error> {
        let bytes = bytes_of(&Command::Put(put(key, value)))?;
        let Some(session) = self.session else { return Err(weak::needs("weak writes need a session")) };
        session.give_weak(bytes, Caller::Of(self.desk.clone(), label)).await?;
        self.under_way += 1;
        Ok(())
    }

    /// Labels of weak puts that a quorum has received, since they were taken last. [`Pipe::outcomes`] returns when there are
    /// some, maybe without an outcome.
    pub fn received(&mut self) -> impl Iterator<Item = u64> {
        self.received.drain(..)
    }

    /// Reads one key, at the level of the client: the answer is a range.
    ///
    /// # Errors
    /// As [`Pipe::query`].
    pub async fn get(&mut self, label: u64, key: impl Into<Vec<u8>>) -> Result<(), Error> {
        self.query(label, &Query::Range(Range { keys: one(key), ..Range::default() })).await
    }

    /// Any command. Waits for room in the window, of the session or of the pipe, not for the answer. Commands in a session are executed in
    /// the order in which they were given, if it is strict. A transaction that only reads is a read outside of a
    /// session, and a command in one.
    ///
    /// # Errors
    /// Certainly without effect, and then there is no other outcome: an error of the store that does not depend on what it
    /// holds; the session has ended; there was no room in time; in a session, the command is too large.
    pub async fn command(&mut self, label: u64, command: &Command) -> Result<(), Error> {
        match command {
            Command::Txn(txn) if self.session.is_none() && is_read_only(txn) => {
                self.query(label, &Query::Txn(txn.clone())).await
            }
            command => self.write(label, bytes_of(command)?, Wanted::by_command(command)).await,
        }
    }

    /// Any query, at the level of the client. Waits for room in the window of the pipe; the commands that were given before
    /// need not be done when it is answered.
    ///
    /// # Errors
    /// Those of the store that do not depend on what it holds; then there is no other outcome.
    pub async fn query(&mut self, label: u64, query: &Query) -> Result<(), Error> {
        let bytes = bytes_of_query(query)?;
        let (level, course) = self.desk.client().read_level();
        self.send(label, course, Ask::Read(level, bytes.into()), Wanted::by_query(query)).await;
        Ok(())
    }

    /// Waits until at least one request has its outcome, or a weak one was received, and takes all that have one, each with its label. Those that are not
    /// taken from the iterator are lost. Without requests under way there is nothing to wait for.
    pub async fn outcomes(&mut self) -> impl Iterator<Item = (u64, Result<Response, Error>)> {
        self.taken.clear();
        if 0 < self.under_way {
            poll_fn(|context| {
                self.poll(context, |pipe, context| {
                    pipe.desk.poll(&mut pipe.received, &mut pipe.taken, context)
                })
            })
            .await;
        }
        self.under_way -= self.taken.len();
        self.taken.drain(..)
    }

    async fn write(&mut self, label: u64, bytes: Vec<u8>, wanted: Wanted) -> Result<(), Error> {
        match self.session {
            Some(session) => {
                session.give(bytes, Caller::Of(self.desk.clone(), label)).await?;
                self.under_way += 1;
            }
            None => self.send(label, Course::WRITE, Ask::Write(bytes.into()), wanted).await,
        }
        Ok(())
    }

    async fn send(&mut self, label: u64, course: Course, ask: Ask<'static>, wanted: Wanted) {
        poll_fn(|context| self.poll(context, |pipe, context| pipe.desk.poll_room(context))).await;
        self.desk.send(Slot { label, course, ask, wanted, asked_at: Instant::now() });
        self.under_way += 1;
    }

    /// Waits for something of the desk, and meanwhile finds that answers are missing.
    fn poll(
        &mut self,
        context: &mut Context<'_>,
        wanted: impl Fn(&mut Self, &mut Context<'_>) -> Result<(), Option<Instant>>,
    ) -> Poll<()> {
        loop {
            let due = match wanted(self, context) {
                Ok(()) => return Poll::Ready(()),
                Err(None) => return Poll::Pending,
                Err(Some(due)) => due,
            };
            let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(due)));
            if timer.deadline() != due {
                timer.as_mut().reset(due);
            }
            if timer.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            self.desk.expire(Instant::now());
        }
    }
}

//! Client of the native protocol: which member a request goes to, and how often.
//!
//! Rules: 1. Writes and linearizable reads go to the leader, as far as it is known; other reads to each member in turn.
//!        2. A request that was refused for a passing reason, or that no member received, is repeated until its time is
//!           over: it had no effect. A pause grows with each time, unless the refusal names another leader.
//!        3. A request of unknown outcome is repeated only if it changes nothing: inside a session, see `session`.
//!        4. Between several members the time of a read is shared out, so that one silent member cannot use it up. A
//!           request that waits on its connection for as long goes to another member, and says nothing about the first.
//!
//! Knows nothing of: frames, sockets, the window of a session.

use crate::client::Options;
use crate::endpoint::AddressError;
use crate::error::Error;
use crate::failure::{Failure, Kind};
use crate::level::Level;
use crate::native::alive::Alive;
use crate::native::answer::{self, Answer, Fate, Lost, Outcome};
use crate::native::ask::Ask;
use crate::native::connection::Connection;
use crate::native::listener::Listener;
use crate::native::members::{Member, Members};
use kattu_native::message;
use kattu_tls::ClientTls;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

/// A client of one cluster by the native protocol. Clones share their connections, one per member.
///
/// ```no_run
/// use kattu_client::{NativeClient, Options};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let client = NativeClient::connect(["10.0.0.1:2379", "10.0.0.2:2379"], Options::default(), None)?;
/// client.put("greeting", "hello").await?;
/// let pair = client.get("greeting").await?.expect("it was put");
/// assert_eq!(&pair.value[..], b"hello");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct NativeClient {
    pub(crate) shared: Arc<Shared>,
    level: Level,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) members: Members,
    pub(crate) options: Options,
    pub(crate) alive: Alive,
}

/// Where a request goes, and what may be done with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Course {
    /// To the leader, if it is known.
    pub(crate) to_leader: bool,
    /// Twice is as good as once.
    pub(crate) is_harmless: bool,
}

impl Course {
    pub(crate) const WRITE: Course = Course { to_leader: true, is_harmless: false };
    pub(crate) const HARMLESS: Course = Course { to_leader: true, is_harmless: true };
    pub(crate) const SPREAD: Course = Course { to_leader: false, is_harmless: true };
}

/// What follows from one attempt.
pub(crate) enum Turn {
    Over(Result<Answer, Failure>),
    Again(Attempt),
}

/// An attempt that has failed, and is not the last.
#[derive(Debug)]
pub(crate) struct Attempt {
    failure: Failure,
    /// The next one is made after a pause.
    pauses: bool,
    /// The next one goes to another member than this, which may be sound.
    leaves: Option<Arc<Member>>,
}

impl NativeClient {
    /// A client of the cluster with these endpoints, each `host:port`, `http://host:port` or `https://host:port`. Nothing is
    /// connected yet. TLS is used where an endpoint begins with `https://`, and with `tls` also where it has no scheme.
    ///
    /// # Errors
    /// Endpoints that are not addresses; no endpoints at all; an `https://` endpoint without `tls`.
    pub fn connect<S: AsRef<str>>(
        endpoints: impl IntoIterator<Item = S>,
        options: Options,
        tls: Option<&ClientTls>,
    ) -> Result<NativeClient, AddressError> {
        let members = Members::new(endpoints, options.timeout, tls)?;
        let shared = Shared { members, options, alive: Alive::default() };
        Ok(NativeClient { shared: Arc::new(shared), level: Level::Linearizable })
    }

    pub(crate) fn of(shared: Arc<Shared>, level: Level) -> NativeClient {
        NativeClient { shared, level }
    }

    /// The same client, which from now on speaks only to members of this cluster. Without this it is the cluster of the
    /// first member that is met.
    #[must_use]
    pub fn of_cluster(self, cluster: u64) -> NativeClient {
        self.shared.members.expect(cluster);
        self
    }

    /// The cluster, as soon as it is known.
    #[must_use]
    pub fn cluster(&self) -> Option<u64> {
        Some(self.shared.members.cluster()).filter(|cluster| *cluster != 0)
    }

    /// The same client, on the same connections, with reads of this level. [`Level::Configured`] is linearizable: the
    /// protocol has no level that a cluster configures.
    #[must_use]
    pub fn at_level(&self, level: Level) -> NativeClient {
        NativeClient { shared: self.shared.clone(), level }
    }

    /// How fresh this client's reads are.
    #[must_use]
    pub fn level(&self) -> &Level {
        &self.level
    }

    /// How long a call may take.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        self.shared.options.timeout
    }

    /// The level of a read that begins now, in the protocol's terms, and where it goes.
    pub(crate) fn read_level(&self) -> (message::Level, Course) {
        match &self.level {
            Level::Configured | Level::Linearizable => (message::Level::Linearizable, Course::HARMLESS),
            Level::Serializable => (message::Level::Serializable, Course::SPREAD),
            Level::Bounded(age) => {
                let nanos = u64::try_from(age.as_nanos()).unwrap_or(u64::MAX);
                (message::Level::Bounded(nanos), Course::SPREAD)
            }
            Level::AtLeast(seen) => (message::Level::AtLeast(seen.position()), Course::SPREAD),
        }
    }

    /// One request, by the rules of this file. An answer that is an error of the store is an error here.
    pub(crate) async fn call(&self, course: Course, ask: Ask<'_>) -> Result<Answer, Error> {
        self.result_of(self.shared.call(course, ask, self.timeout()).await)
    }

    /// What a call of this client came to.
    pub(crate) fn result_of(&self, result: Result<Answer, Failure>) -> Result<Answer, Error> {
        let answer = result?;
        self.level.note_position(answer.index);
        match answer.outcome {
            Outcome::Done(Err(error)) => Err(Error::Store(error)),
            Outcome::SessionError(error) => Err(Error::Session { error, kind: Kind::Refused }),
            _ => Ok(answer),
        }
    }
}

impl Shared {
    /// One request, by rules 1–4 of this file.
    pub(crate) async fn call(
        &self,
        course: Course,
        ask: Ask<'_>,
        timeout: Duration,
    ) -> Result<Answer, Failure> {
        let (deadline, share) = (Instant::now() + timeout, self.share(course, timeout));
        self.go_on(course, ask, deadline, share, None).await
    }

    /// How long one member may take, of the time for all of a request.
    pub(crate) fn share(&self, course: Course, timeout: Duration) -> Duration {
        match course.is_harmless {
            true => timeout / u32::try_from(self.members.count()).unwrap_or(u32::MAX),
            false => timeout,
        }
    }

    /// One request whose first attempt may have failed already.
    pub(crate) async fn go_on(
        &self,
        course: Course,
        ask: Ask<'_>,
        deadline: Instant,
        share: Duration,
        mut failed: Option<Attempt>,
    ) -> Result<Answer, Failure> {
        let mut failures = 0;
        let mut last: Option<Failure> = None;
        loop {
            let mut left = None;
            if let Some(Attempt { failure, pauses, leaves }) = failed.take() {
                left = leaves;
                // A bare "no answer" tells less than the answer of an earlier member.
                let tells_less = failure.kind != Kind::Refused
                    && last.as_ref().is_some_and(|last| last.kind == Kind::Refused);
                let failure = match last.take() {
                    Some(before) if tells_less => before,
                    _ => failure,
                };
                failures += 1;
                // Members that name each other as the leader end no sooner.
                if pauses || 2 < failures {
                    tokio::time::sleep_until(deadline.min(Instant::now() + self.members.pause(failures)))
                        .await;
                }
                if deadline <= Instant::now() {
                    return Err(failure);
                }
                last = Some(failure);
            }
            let (member, made) = match course.to_leader && left.is_none() {
                true => self.members.to_leader(deadline).await,
                false => {
                    let member = self.members.next_but(left.as_ref());
                    let made = self.members.connection(&member, deadline).await;
                    (member, made)
                }
            };
            let turn = match made {
                Ok(connection) => {
                    if let Some(failure) = connection.refuses(ask.bytes()) {
                        return Err(failure);
                    }
                    let until = deadline.min(Instant::now() + share);
                    let tried = self.try_once(&connection, ask.again(), until).await;
                    self.judge(course, &member, tried)
                }
                Err(failure) => Turn::Again(Attempt { failure, pauses: false, leaves: None }), // the member rests instead
            };
            match turn {
                Turn::Over(result) => return result,
                Turn::Again(attempt) => failed = Some(attempt),
            }
        }
    }

    /// One request on one connection; `Err` without an answer.
    async fn try_once(&self, connection: &Connection, ask: Ask<'_>, until: Instant) -> Result<Answer, Lost> {
        let (caller, answer) = oneshot::channel();
        let place = match connection.ask(ask, Listener::Call(caller)) {
            Ok(place) => place,
            Err(why) => return Err(Lost { fate: Fate::Unsent, why }),
        };
        match timeout_at(until, answer).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(Lost { fate: Fate::Sent, why: "the connection has ended".into() }),
            Err(_) => Err(Lost::late(place.as_ref())),
        }
    }

    /// What follows from what one member has answered, if it has.
    pub(crate) fn judge(&self, course: Course, member: &Arc<Member>, tried: Result<Answer, Lost>) -> Turn {
        let endpoint = &member.place.name;
        let again = |failure, pauses| Turn::Again(Attempt { failure, pauses, leaves: None });
        let answer = match tried {
            Ok(answer) => answer,
            Err(lost) => {
                let failure = lost.failure(endpoint);
                if lost.was_sent() {
                    self.members.has_failed(member, failure.clone());
                }
                return match lost.fate {
                    Fate::Sent if !course.is_harmless => Turn::Over(Err(failure)),
                    Fate::Sent => again(failure, false),
                    Fate::Unsent => again(failure, true),
                    // At the same member it would wait behind all others once more.
                    Fate::Withdrawn => {
                        Turn::Again(Attempt { failure, pauses: false, leaves: Some(member.clone()) })
                    }
                };
            }
        };
        match &answer.outcome {
            Outcome::Refused(refusal, leader) => {
                let failure = answer::refused(*refusal, endpoint);
                let moves = self.follow(member, leader);
                match answer::is_passing(*refusal) {
                    true => again(failure, !moves),
                    false => Turn::Over(Err(failure)),
                }
            }
            Outcome::Doubtful(doubt, leader) => {
                let moves = self.follow(member, leader);
                let failure = answer::doubtful(*doubt, endpoint);
                match course.is_harmless {
                    true => again(failure, !moves),
                    false => Turn::Over(Err(failure)),
                }
            }
            Outcome::Malformed => Turn::Over(Err(answer::malformed(endpoint))),
            _ => Turn::Over(Ok(answer)),
        }
    }

    /// Takes a member's hint; returns whether it points to another member.
    pub(crate) fn follow(&self, member: &Arc<Member>, leader: &kattu_native::handshake::Leader) -> bool {
        if leader.id == 0 && leader.url.is_empty() {
            self.members.has_no_leader(member);
            return false;
        }
        self.members.note(leader);
        !Arc::ptr_eq(&self.members.leader(), member)
    }
}

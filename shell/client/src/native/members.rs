//! Members: which of them is asked next, and the connection to each.
//!
//! Rules: 1. One connection to a member, made when a request needs it, and made once however many requests wait for it.
//!        2. The leader is the one that a welcome or a refusal named last. Without one, any member will do: each sends requests
//!           on to the leader. Answers do not name it; so while none is known, a member is met anew from time to time.
//!        3. A member that cannot be reached is left alone for a pause that doubles, while there are others.
//!        4. A leader that no endpoint named becomes one more endpoint. It never takes TLS away: where an endpoint has it,
//!           so has each that was learnt. Reads are spread over it once it was reached: its address may be one of another
//!           network.
//!        5. The cluster is the one that was named, or that of the first welcome: a member of another one is never asked.
//! Knows nothing of: requests, sessions.

use crate::endpoint::{AddressError, address_of};
use crate::failure::{Failure, Kind};
use crate::native::answer;
use crate::native::connection::{Connection, Limits};
use crate::native::dice::{Dice, pause};
use crate::native::reach::Place;
use kattu_native::handshake::Leader;
use kattu_tls::ClientTls;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;
use tonic::Code;

/// Most members that are learnt from others.
const LEARNT_MAX: usize = 64;
/// Least time between two welcomes that are wanted only for the leader that they name.
const ASKS_EVERY: Duration = Duration::from_secs(1);
/// A connection that takes longer to make is not worth waiting for while there are other members.
const CONNECT_TIMEOUT_MAX: Duration = Duration::from_secs(2);

/// All members that are known.
#[derive(Debug)]
pub(crate) struct Members {
    table: Mutex<Table>,
    /// Where one endpoint has it.
    tls: Option<ClientTls>,
    has_tls: bool,
    /// 0 until it is known.
    cluster: AtomicU64,
    timeout: Duration,
}

#[derive(Debug)]
struct Table {
    members: Vec<Arc<Member>>,
    given: usize,
    leader: Option<Arc<Member>>,
    /// When a member was last met for the sake of its hint.
    asked_at: Option<Instant>,
    /// Counts the reads that are spread.
    turn: usize,
    dice: Dice,
}

/// One member.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) place: Place,
    link: Mutex<Link>,
    /// Held while a connection is made.
    dialling: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct Link {
    connection: Option<Connection>,
    /// As it named itself, or as another member did; 0 until then.
    id: u64,
    was_met: bool,
    /// In a row.
    failures: u32,
    /// Not before then, while there are others.
    rests_until: Option<Instant>,
    /// Attempts that have failed, and the last failure.
    failed: u64,
    last: Option<Failure>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Member {
    fn new(place: Place) -> Arc<Member> {
        Arc::new(Member { place, link: Mutex::default(), dialling: tokio::sync::Mutex::new(()) })
    }

    /// Until when it is left alone.
    fn rests_until(&self, now: Instant) -> Option<Instant> {
        lock(&self.link).rests_until.filter(|until| now < *until)
    }

    /// The connection to it, unless it is left alone. It may be over.
    fn at_hand(&self) -> Option<Connection> {
        let link = lock(&self.link);
        let rests = link.rests_until.is_some_and(|until| Instant::now() < until);
        link.connection.clone().filter(|_| !rests)
    }

    fn open(&self) -> Option<Connection> {
        lock(&self.link).connection.clone().filter(Connection::is_open)
    }

    /// It could not be reached, or did not answer in time. What many requests tell of one failure counts once.
    fn has_failed(&self, failure: Failure, dice: &mut Dice) {
        let mut link = lock(&self.link);
        if link.rests_until.is_some_and(|until| Instant::now() < until) {
            return;
        }
        link.failures = link.failures.saturating_add(1);
        link.failed += 1;
        link.rests_until = Some(Instant::now() + dice.part_of(pause(link.failures)));
        link.last = Some(failure);
    }
}

impl Members {
    /// # Errors
    /// Endpoints that are not addresses; no endpoint; `https://` without TLS settings.
    pub(crate) fn new<S: AsRef<str>>(
        endpoints: impl IntoIterator<Item = S>,
        timeout: Duration,
        tls: Option<&ClientTls>,
    ) -> Result<Members, AddressError> {
        let mut members = Vec::new();
        for name in endpoints {
            let name = name.as_ref();
            let (address, asks) = address_of(name)?;
            let tls = match (asks, tls) {
                (Some(true), None) => return Err(AddressError::needs_tls(name)),
                (Some(false), _) => None,
                (_, tls) => tls.map(ClientTls::for_native),
            };
            members.push(Member::new(Place { name: name.to_string(), address, tls }));
        }
        if members.is_empty() {
            return Err(AddressError::none_given());
        }
        let has_tls = members.iter().any(|member| member.place.tls.is_some());
        let mut dice = Dice::new();
        let turn = dice.below(members.len());
        let table = Table { given: members.len(), members, leader: None, asked_at: None, turn, dice };
        Ok(Members {
            table: Mutex::new(table),
            tls: tls.cloned(),
            has_tls,
            cluster: AtomicU64::new(0),
            timeout,
        })
    }

    /// From now on only members of this cluster are asked.
    pub(crate) fn expect(&self, cluster: u64) {
        self.cluster.store(cluster, Ordering::Release);
    }

    pub(crate) fn cluster(&self) -> u64 {
        self.cluster.load(Ordering::Acquire)
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        lock(&self.table).members.len()
    }

    /// The leader, or any other that may know it.
    pub(crate) fn leader(&self) -> Arc<Member> {
        let mut table = lock(&self.table);
        let now = Instant::now();
        let leader = table.leader.clone().filter(|leader| leader.rests_until(now).is_none());
        leader.unwrap_or_else(|| table.any(now, |table, count| table.dice.below(count)))
    }

    /// Another one each time.
    pub(crate) fn next(&self) -> Arc<Member> {
        let mut table = lock(&self.table);
        table.turn = table.turn.wrapping_add(1);
        table.any(Instant::now(), |table, count| table.turn % count)
    }

    /// As [`Members::next`], and not this one if there is another.
    pub(crate) fn next_but(&self, left: Option<&Arc<Member>>) -> Arc<Member> {
        let member = self.next();
        match left.is_some_and(|left| Arc::ptr_eq(left, &member)) {
            true => self.next(),
            false => member,
        }
    }

    /// The leader and the connection to it, if both are there. The connection may be over.
    pub(crate) fn leader_at_hand(&self) -> Option<(Arc<Member>, Connection)> {
        let leader = lock(&self.table).leader.clone()?;
        let connection = leader.at_hand()?;
        Some((leader, connection))
    }

    /// As [`Members::next`], with the connection to it if there is one. It may be over.
    pub(crate) fn next_at_hand(&self) -> Option<(Arc<Member>, Connection)> {
        let member = self.next();
        let connection = member.at_hand()?;
        Some((member, connection))
    }

    /// The leader and the connection to it, or to a member that may know it: not longer than until then.
    pub(crate) async fn to_leader(&self, until: Instant) -> (Arc<Member>, Result<Connection, Failure>) {
        if let Some((leader, connection)) = self.leader_at_hand()
            && connection.is_open()
        {
            return (leader, Ok(connection));
        }
        let member = self.leader();
        let made = match self.is_to_ask() {
            true => match self.dial(&member, until).await {
                Ok(connection) => Ok(connection),
                Err(_) => self.connection(&member, until).await,
            },
            false => self.connection(&member, until).await,
        };
        let named = self.leader();
        // Its welcome may just have named another one.
        if made.is_err() || Arc::ptr_eq(&named, &member) || !self.is_leader(&named) {
            return (member, made);
        }
        let made = self.connection(&named, until).await;
        (named, made)
    }

    /// No leader is known, and it is time to ask for one.
    fn is_to_ask(&self) -> bool {
        let mut table = lock(&self.table);
        let now = Instant::now();
        let is_due = table.asked_at.is_none_or(|at| at + ASKS_EVERY <= now);
        let asks =
            table.leader.is_none() && is_due && table.members.iter().any(|member| member.open().is_some());
        if asks {
            table.asked_at = Some(now);
        }
        asks
    }

    fn is_leader(&self, member: &Arc<Member>) -> bool {
        lock(&self.table).leader.as_ref().is_some_and(|leader| Arc::ptr_eq(leader, member))
    }

    /// The connection to a member, made if there is none, not longer than until then.
    pub(crate) async fn connection(
        &self,
        member: &Arc<Member>,
        until: Instant,
    ) -> Result<Connection, Failure> {
        if let Some(connection) = member.open() {
            return Ok(connection);
        }
        let failed = lock(&member.link).failed;
        let late = || Failure::unreachable(&member.place.name, "no connection in time");
        let Ok(_guard) = tokio::time::timeout_at(until, member.dialling.lock()).await else {
            return Err(late());
        };
        if let Some(connection) = member.open() {
            return Ok(connection);
        }
        let (rests_until, last) = {
            let link = lock(&member.link);
            // The attempt that this request waited for has failed, and so has this request.
            if let Some(failure) = link.last.clone().filter(|_| link.failed != failed) {
                return Err(failure);
            }
            (link.rests_until, link.last.clone())
        };
        if let Some(rests_until) = rests_until {
            tokio::time::sleep_until(rests_until.min(until)).await;
        }
        let now = Instant::now();
        if until <= now {
            return Err(last.unwrap_or_else(late));
        }
        self.dial(member, until).await
    }

    /// A new connection to a member, from now on the one to it.
    async fn dial(&self, member: &Arc<Member>, until: Instant) -> Result<Connection, Failure> {
        // A request of a session then has time left to be repeated elsewhere.
        let silence = self.timeout * 2 / 3;
        let share = (self.timeout / u32::try_from(self.count()).unwrap_or(u32::MAX)).min(CONNECT_TIMEOUT_MAX);
        let until = until.min(Instant::now() + share);
        match member.place.connect(self.cluster(), Limits { silence }, until).await {
            Ok(connection) => self.has_connected(member, connection),
            Err(failure) => {
                self.has_failed(member, failure.clone());
                Err(failure)
            }
        }
    }

    /// From now on this is the connection to a member.
    pub(crate) fn has_connected(
        &self,
        member: &Arc<Member>,
        connection: Connection,
    ) -> Result<Connection, Failure> {
        let welcome = connection.welcome().clone();
        let known = self.cluster.compare_exchange(0, welcome.cluster, Ordering::AcqRel, Ordering::Acquire);
        if known.is_err_and(|known| known != welcome.cluster) {
            // Two first welcomes at once, of two clusters.
            let why = "the endpoints belong to different clusters";
            let failure =
                answer::failure(Kind::Unreachable, Code::FailedPrecondition, why, &member.place.name);
            self.has_failed(member, failure.clone());
            return Err(failure);
        }
        {
            let mut link = lock(&member.link);
            link.connection = Some(connection.clone());
            (link.id, link.was_met) = (welcome.member, true);
            (link.failures, link.rests_until) = (0, None);
        }
        self.note(&welcome.leader);
        Ok(connection)
    }

    /// A member could not be reached, or did not answer in time.
    pub(crate) fn has_failed(&self, member: &Arc<Member>, failure: Failure) {
        let mut table = lock(&self.table);
        member.has_failed(failure, &mut table.dice);
        table.leader.take_if(|leader| Arc::ptr_eq(leader, member));
    }

    /// A member has refused a request for want of a leader, and named none.
    pub(crate) fn has_no_leader(&self, member: &Arc<Member>) {
        lock(&self.table).leader.take_if(|leader| Arc::ptr_eq(leader, member));
    }

    /// A member has named the leader.
    pub(crate) fn note(&self, leader: &Leader) {
        if leader.id == 0 && leader.url.is_empty() {
            return;
        }
        let mut table = lock(&self.table);
        if let Some(known) = table.of(leader) {
            table.leader = Some(known);
            return;
        }
        let Ok((address, asks)) = address_of(&leader.url) else { return };
        if LEARNT_MAX <= table.members.len() - table.given {
            let oldest = table.given;
            table.members.remove(oldest);
        }
        let tls = match (&self.tls, asks) {
            (None, Some(true)) => return, // without settings it cannot be reached
            (Some(tls), asks) if self.has_tls || asks != Some(false) => Some(tls.for_native()),
            _ => None,
        };
        let member = Member::new(Place { name: leader.url.clone(), address, tls });
        lock(&member.link).id = leader.id;
        table.members.push(member.clone());
        table.leader = Some(member);
    }

    /// By chance, a part of the pause after so many failures in a row.
    pub(crate) fn pause(&self, failures: u32) -> Duration {
        lock(&self.table).dice.part_of(pause(failures))
    }
}

impl Table {
    /// One of those that are not left alone; else the one that is left alone for the shortest time.
    fn any(&mut self, now: Instant, choose: impl Fn(&mut Table, usize) -> usize) -> Arc<Member> {
        let count = self.ready(now).count();
        let chosen = if count == 0 { 0 } else { choose(self, count) };
        let soonest = || self.known().min_by_key(|member| member.rests_until(now));
        self.ready(now).nth(chosen).or_else(soonest).expect("there is an endpoint").clone()
    }

    /// Those that were given, and those that were learnt and reached.
    fn known(&self) -> impl Iterator<Item = &Arc<Member>> {
        let (given, learnt) = self.members.split_at(self.given);
        given.iter().chain(learnt.iter().filter(|member| lock(&member.link).was_met))
    }

    fn ready(&self, now: Instant) -> impl Iterator<Item = &Arc<Member>> {
        self.known().filter(move |member| member.rests_until(now).is_none())
    }

    /// The member that this leader is: by its id, which members tell when they are met; else by its address.
    fn of(&self, leader: &Leader) -> Option<Arc<Member>> {
        let is_id = |member: &&Arc<Member>| leader.id != 0 && lock(&member.link).id == leader.id;
        let address = address_of(&leader.url).ok().map(|(address, _)| address);
        let is_there = |member: &&Arc<Member>| Some(&member.place.address) == address.as_ref();
        self.members.iter().find(is_id).or_else(|| self.members.iter().find(is_there)).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::native::dice::PAUSE_MIN;

    fn members(endpoints: &[&str]) -> Members {
        Members::new(endpoints, Duration::from_secs(5), None).expect("addresses")
    }

    fn leader(id: u64, url: &str) -> Leader {
        Leader { id, url: url.to_string() }
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_counts_once_however_many_requests_tell_of_it_and_a_member_that_rests_is_passed_over() {
        let members = members(&["a:1", "b:1"]);
        members.note(&leader(7, "http://a:1"));
        let first = members.leader();
        assert_eq!(first.place.address, "a:1");
        for _ in 0..100 {
            members.has_failed(&first, Failure::unreachable("a:1", "it is gone"));
        }
        let rests_until = first.rests_until(Instant::now()).expect("it rests");
        assert!(rests_until <= Instant::now() + PAUSE_MIN, "the first pause, not the hundredth");
        assert!(
            (0..20).all(|_| members.leader().place.address == "b:1" && members.next().place.address == "b:1")
        );
        tokio::time::advance(PAUSE_MIN).await;
        members.has_failed(&first, Failure::unreachable("a:1", "still"));
        let second = first.rests_until(Instant::now()).expect("it rests") - Instant::now();
        assert!((PAUSE_MIN..=2 * PAUSE_MIN).contains(&second), "{second:?}: twice as long, or half of that");
    }

    #[test]
    fn a_leader_is_known_by_its_id_or_its_address_and_else_it_is_one_more_that_no_read_is_spread_to() {
        let members = members(&["a:1", "http://b:1"]);
        members.note(&leader(7, "http://b:1"));
        assert_eq!((members.leader().place.address.as_str(), members.count()), ("b:1", 2));
        members.note(&leader(8, "http://c:1"));
        members.note(&leader(8, "http://c:2"));
        assert_eq!((members.leader().place.address.as_str(), members.count()), ("c:1", 3), "its id is known");
        assert!((0..20).all(|_| members.next().place.address != "c:1"), "it was never reached");
        for hint in [leader(0, ""), leader(9, ""), leader(9, "nonsense"), leader(9, "https://d:1")] {
            members.note(&hint);
            assert_eq!((members.leader().place.address.as_str(), members.count()), ("c:1", 3), "{hint:?}");
        }
        (0..200).for_each(|n| members.note(&leader(100 + n, &format!("http://x{n}:1"))));
        assert_eq!(members.count(), 2 + LEARNT_MAX);
    }
}

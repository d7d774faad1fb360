//! Proofs: a caller that claims to be a member shows that it is reached at that member's address.
//!
//! ```text
//!   caller ── Hello: I am A ──────────▶ B
//!          ◀─ Welcome: number ──────────
//!          ── Proof: 0, ask me ───────▶           A, at its address ◀── Challenge: number, secret ── B
//!          ── Proof: secret ──────────▶ believed from here on
//! ```
//! The caller reports that it has read the number, because the challenge takes another path and must not arrive first.
//! Only a process that can read what is sent to A's address learns the secret, and only one that can read what B sends
//! to the caller learns the number, without which A reveals nothing. So even without keys, a stranger that can reach a
//! peer port, but is neither at a member's address nor on the path to it, cannot act as a member. One on the path can;
//! against that there is TLS. [fault-model §1 P11, SE2]
//!
//! A challenge travels on the first connection to A that is there, proven or not: only A can use it. While there is
//! none, the challenge makes the waiting dialler try again.
//! Knows nothing of: sockets, frames' bytes, the peer table.

use kattu_raft::NodeId;
use kattu_wire::Challenge;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Instant;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// Open challenges and expected secrets: no more than there are connections.
#[derive(Debug, Default)]
pub(crate) struct Proofs {
    /// Of incoming connections: the member that the caller claims to be, the secret, and whether the challenge may
    /// leave.
    asked: RefCell<BTreeMap<u64, Question>>,
    /// Challenges that have not left yet, by their addressee.
    untold: RefCell<BTreeMap<NodeId, VecDeque<Challenge>>>,
    /// Of outgoing connections: the number that each was given, by which member, and the secret once it is known.
    expected: RefCell<BTreeMap<u64, (NodeId, Option<u64>)>>,
    /// How often each member has come: then it is there, and can be dialled at once.
    arrivals: RefCell<BTreeMap<NodeId, u64>>,
    /// The last known start of each member: its nonce, and when the member first came after it.
    starts: RefCell<BTreeMap<NodeId, (u64, Instant)>>,
    news: Notify,
}

#[derive(Debug)]
struct Question {
    of: NodeId,
    secret: u64,
    /// The caller has read the number.
    is_ready: bool,
    is_put: bool,
}

/// An incoming connection that was challenged; forgotten when dropped.
#[derive(Debug)]
pub(crate) struct Asked {
    proofs: Rc<Proofs>,
    pub(crate) number: u64,
    secret: u64,
}

impl Asked {
    /// Whether this is the proof.
    pub(crate) fn is_proven_by(&self, secret: u64) -> bool {
        self.secret == secret
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        let question = self.proofs.asked.borrow_mut().remove(&self.number);
        let mut untold = self.proofs.untold.borrow_mut();
        if let Some(Question { of, .. }) = question
            && let Some(waiting) = untold.get_mut(&of)
        {
            waiting.retain(|challenge| challenge.number != self.number);
            if waiting.is_empty() {
                untold.remove(&of);
            }
        }
    }
}

/// An outgoing connection that waits for its secret; forgotten when dropped.
#[derive(Debug)]
pub(crate) struct Expected<'a> {
    proofs: &'a Proofs,
    number: u64,
}

impl Expected<'_> {
    /// The secret, if it has arrived.
    pub(crate) fn secret(&self) -> Option<u64> {
        self.proofs.expected.borrow().get(&self.number).and_then(|(_, secret)| *secret)
    }
}

impl Drop for Expected<'_> {
    fn drop(&mut self) {
        self.proofs.expected.borrow_mut().remove(&self.number);
    }
}

impl Proofs {
    /// Challenges a caller that claims to be `of`. The challenge leaves when the caller is ready and that member is
    /// known.
    pub(crate) fn ask(self: &Rc<Self>, of: NodeId) -> Asked {
        let (number, secret) = (number(), number());
        let question = Question { of, secret, is_ready: false, is_put: false };
        self.asked.borrow_mut().insert(number, question);
        Asked { proofs: self.clone(), number, secret }
    }

    /// This caller has read its number.
    pub(crate) fn ready(&self, asked: &Asked, is_known: impl Fn(NodeId) -> bool) {
        if let Some(question) = self.asked.borrow_mut().get_mut(&asked.number) {
            question.is_ready = true;
        }
        self.put(is_known);
    }

    /// Releases the challenges to members that are known by now.
    pub(crate) fn put(&self, is_known: impl Fn(NodeId) -> bool) {
        let mut untold = self.untold.borrow_mut();
        for (&number, question) in self.asked.borrow_mut().iter_mut() {
            if !question.is_ready || question.is_put || !is_known(question.of) {
                continue;
            }
            question.is_put = true;
            let waiting = untold.entry(question.of).or_default();
            waiting.push_back(Challenge { number, secret: question.secret });
        }
        self.news.notify_waiters();
    }

    /// A member has come, and has proved its identity.
    pub(crate) fn arrived(&self, member: NodeId) {
        *self.arrivals.borrow_mut().entry(member).or_default() += 1;
        self.news.notify_waiters();
    }

    /// How often a member has come.
    pub(crate) fn arrivals(&self, member: NodeId) -> u64 {
        self.arrivals.borrow().get(&member).copied().unwrap_or_default()
    }

    /// A member asks to be reminded of its votes and acknowledgements, as after each start; its connection was opened
    /// at `came`.
    pub(crate) fn started(&self, member: NodeId, start: u64, came: Instant) {
        let mut starts = self.starts.borrow_mut();
        if starts.get(&member).is_none_or(|(known, _)| *known != start) {
            starts.insert(member, (start, came));
            self.news.notify_waiters();
        }
    }

    /// Whether a member has started since `then`: older connections to it lead nowhere.
    pub(crate) fn has_started_since(&self, member: NodeId, then: Instant) -> bool {
        self.starts.borrow().get(&member).is_some_and(|(_, came)| then < *came)
    }

    /// Whether a challenge waits for a connection to this member.
    pub(crate) fn has_untold(&self, to: NodeId) -> bool {
        self.untold.borrow().contains_key(&to)
    }

    /// Takes the challenges that wait for a connection to this member.
    pub(crate) fn take_untold(&self, to: NodeId) -> VecDeque<Challenge> {
        self.untold.borrow_mut().remove(&to).unwrap_or_default()
    }

    /// Our connection to `to` has to be proven under this number.
    pub(crate) fn expect(&self, to: NodeId, number: u64) -> Expected<'_> {
        self.expected.borrow_mut().insert(number, (to, None));
        Expected { proofs: self, number }
    }

    /// A caller that claims to be `from` has sent a challenge. Only the member that welcomed us knows the number.
    pub(crate) fn told(&self, from: NodeId, challenge: Challenge) {
        if let Some((to, secret)) = self.expected.borrow_mut().get_mut(&challenge.number)
            && *to == from
        {
            *secret = Some(challenge.secret);
            self.news.notify_waiters();
        }
    }

    /// Takes all waiting challenges, for all members.
    #[cfg(test)]
    pub(crate) fn take_all(&self) -> Vec<Challenge> {
        std::mem::take(&mut *self.untold.borrow_mut()).into_values().flatten().collect()
    }

    /// Connections that have not given their proof.
    #[cfg(test)]
    pub(crate) fn open(&self) -> usize {
        self.asked.borrow().len()
    }

    /// Resolves when any of this has changed since the call.
    pub(crate) fn news(&self) -> Notified<'_> {
        self.news.notified()
    }
}

/// An unpredictable number; never 0, which means that no proof is asked for.
///
/// # Panics
/// If the operating system gives no random bytes: there is no secret then.
fn number() -> u64 {
    let drawn = getrandom::u64().expect("the system gives random bytes");
    drawn.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: NodeId = NodeId(1);
    const B: NodeId = NodeId(2);

    #[test]
    fn the_secret_goes_to_whom_it_is_asked_of_and_from_there_where_it_is_waited_for() {
        let ours = Rc::new(Proofs::default());
        let asked = ours.ask(A);
        assert!(!ours.has_untold(A), "it has not read its number yet");
        ours.ready(&asked, |_| true);
        assert!(ours.has_untold(A) && !ours.has_untold(B));
        let untold = ours.take_untold(A);
        let [challenge] = untold.iter().copied().collect::<Vec<_>>()[..] else { panic!("{untold:?}") };
        assert_eq!(challenge.number, asked.number);
        assert!(!ours.has_untold(A), "it has left");

        let theirs = Proofs::default();
        theirs.told(B, challenge);
        let expected = theirs.expect(B, challenge.number);
        assert_eq!(expected.secret(), None, "it was not expected when it came");
        theirs.told(NodeId(3), challenge);
        assert_eq!(expected.secret(), None, "another member sent it");
        theirs.told(B, Challenge { number: challenge.number + 1, ..challenge });
        assert_eq!(expected.secret(), None, "of another connection");
        theirs.told(B, challenge);
        let secret = expected.secret().expect("it has arrived");
        assert!(asked.is_proven_by(secret) && !asked.is_proven_by(secret + 1));
        drop(expected);
        assert!(theirs.expected.borrow().is_empty());
        drop(asked);
        assert!(ours.asked.borrow().is_empty());
    }

    #[test]
    fn a_challenge_waits_until_its_member_is_known_and_goes_with_its_connection() {
        let proofs = Rc::new(Proofs::default());
        let asked = proofs.ask(A);
        proofs.ready(&asked, |_| false);
        proofs.put(|member| member == B);
        assert!(!proofs.has_untold(A), "its address is unknown");
        proofs.put(|member| member == A);
        proofs.put(|member| member == A);
        assert_eq!(proofs.take_untold(A).len(), 1, "once");
        let another = proofs.ask(A);
        proofs.ready(&another, |_| true);
        drop(asked);
        assert!(proofs.has_untold(A));
        drop(another);
        assert!(!proofs.has_untold(A), "no caller waits");
    }
}

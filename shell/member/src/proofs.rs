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
//! Numbers and secrets are drawn by the executor: they must be unpredictable.
//! Knows nothing of: sockets, frames' bytes, the peer table, chance.

use kattu_raft::{Instant, NodeId};
use kattu_wire::Challenge;
use std::collections::{BTreeMap, VecDeque};

/// Open challenges and expected secrets: no more than there are connections.
#[derive(Debug, Default)]
pub struct Proofs {
    /// Of incoming connections: the member that the caller claims to be, the secret, and whether the challenge may
    /// leave.
    asked: BTreeMap<u64, Question>,
    /// Challenges that have not left yet, by their addressee.
    untold: BTreeMap<NodeId, VecDeque<Challenge>>,
    /// Of outgoing connections: the number that each was given, by which member, and the secret once it is known.
    expected: BTreeMap<u64, (NodeId, Option<u64>)>,
    /// How often each member has come: then it is there, and can be dialled at once.
    arrivals: BTreeMap<NodeId, u64>,
    /// The last known start of each member: its nonce, and when the member first came after it.
    starts: BTreeMap<NodeId, (u64, Instant)>,
    /// Something has changed that a dialler may wait for.
    has_changed: bool,
}

#[derive(Debug)]
struct Question {
    of: NodeId,
    secret: u64,
    /// The caller has read the number.
    is_ready: bool,
    is_put: bool,
}

impl Proofs {
    /// Challenges a caller that claims to be `of`. The challenge leaves when the caller is ready and that member is
    /// known. The number is not 0, which means that no proof is asked for.
    pub fn ask(&mut self, of: NodeId, number: u64, secret: u64) {
        let question = Question { of, secret, is_ready: false, is_put: false };
        self.asked.insert(number, question);
    }

    /// Whether this is the proof for the connection with this number.
    #[must_use]
    pub fn is_proven(&self, number: u64, secret: u64) -> bool {
        self.asked.get(&number).is_some_and(|question| question.secret == secret)
    }

    /// This caller has read its number.
    pub fn ready(&mut self, number: u64, is_known: impl Fn(NodeId) -> bool) {
        if let Some(question) = self.asked.get_mut(&number) {
            question.is_ready = true;
        }
        self.put(is_known);
    }

    /// Releases the challenges to members that are known by now.
    pub fn put(&mut self, is_known: impl Fn(NodeId) -> bool) {
        for (&number, question) in &mut self.asked {
            if !question.is_ready || question.is_put || !is_known(question.of) {
                continue;
            }
            question.is_put = true;
            let waiting = self.untold.entry(question.of).or_default();
            waiting.push_back(Challenge { number, secret: question.secret });
        }
        self.has_changed = true;
    }

    /// The connection with this number has ended, or has given its proof.
    pub fn forget_asked(&mut self, number: u64) {
        if let Some(Question { of, .. }) = self.asked.remove(&number)
            && let Some(waiting) = self.untold.get_mut(&of)
        {
            waiting.retain(|challenge| challenge.number != number);
            if waiting.is_empty() {
                self.untold.remove(&of);
            }
        }
    }

    /// A member has come, and has proved its identity.
    pub fn arrived(&mut self, member: NodeId) {
        *self.arrivals.entry(member).or_default() += 1;
        self.has_changed = true;
    }

    /// How often a member has come.
    #[must_use]
    pub fn arrivals(&self, member: NodeId) -> u64 {
        self.arrivals.get(&member).copied().unwrap_or_default()
    }

    /// A member asks to be reminded of its votes and acknowledgements, as after each start; its connection was opened
    /// at `came`.
    pub fn started(&mut self, member: NodeId, start: u64, came: Instant) {
        if self.starts.get(&member).is_none_or(|(known, _)| *known != start) {
            self.starts.insert(member, (start, came));
            self.has_changed = true;
        }
    }

    /// Whether a member has started since `then`: older connections to it lead nowhere.
    #[must_use]
    pub fn has_started_since(&self, member: NodeId, then: Instant) -> bool {
        self.starts.get(&member).is_some_and(|(_, came)| then < *came)
    }

    /// Whether a challenge waits for a connection to this member.
    #[must_use]
    pub fn has_untold(&self, to: NodeId) -> bool {
        self.untold.contains_key(&to)
    }

    /// Takes the challenges that wait for a connection to this member.
    pub fn take_untold(&mut self, to: NodeId) -> VecDeque<Challenge> {
        self.untold.remove(&to).unwrap_or_default()
    }

    /// This member's connection to `to` has to be proven under this number.
    pub fn expect(&mut self, to: NodeId, number: u64) {
        self.expected.insert(number, (to, None));
    }

    /// The secret for the connection with this number, if it has arrived.
    #[must_use]
    pub fn secret(&self, number: u64) -> Option<u64> {
        self.expected.get(&number).and_then(|(_, secret)| *secret)
    }

    /// The connection with this number waits for its secret no more.
    pub(crate) fn forget_expected(&mut self, number: u64) {
        self.expected.remove(&number);
    }

    /// A caller that claims to be `from` has sent a challenge. Only the member that sent the welcome knows the number.
    pub fn told(&mut self, from: NodeId, challenge: Challenge) {
        if let Some((to, secret)) = self.expected.get_mut(&challenge.number)
            && *to == from
        {
            *secret = Some(challenge.secret);
            self.has_changed = true;
        }
    }

    /// Whether something has changed since the last call.
    pub(crate) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.has_changed)
    }

    /// Callers that have not given their proof.
    #[must_use]
    pub fn open(&self) -> usize {
        self.asked.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: NodeId = NodeId(1);
    const B: NodeId = NodeId(2);

    #[test]
    fn the_secret_goes_to_the_member_it_is_asked_of_and_from_there_to_the_connection_that_waits() {
        let mut ours = Proofs::default();
        ours.ask(A, 7, 70);
        assert!(!ours.has_untold(A), "it has not read its number yet");
        ours.ready(7, |_| true);
        assert!(ours.has_untold(A) && !ours.has_untold(B));
        let untold = ours.take_untold(A);
        let [challenge] = untold.iter().copied().collect::<Vec<_>>()[..] else { panic!("{untold:?}") };
        assert_eq!(challenge, Challenge { number: 7, secret: 70 });
        assert!(!ours.has_untold(A), "it has left");

        let mut theirs = Proofs::default();
        theirs.told(B, challenge);
        theirs.expect(B, 7);
        assert_eq!(theirs.secret(7), None, "it was not expected when it came");
        theirs.told(NodeId(3), challenge);
        assert_eq!(theirs.secret(7), None, "another member sent it");
        theirs.told(B, Challenge { number: 8, ..challenge });
        assert_eq!(theirs.secret(7), None, "of another connection");
        theirs.told(B, challenge);
        assert_eq!(theirs.secret(7), Some(70));
        assert!(ours.is_proven(7, 70) && !ours.is_proven(7, 71) && !ours.is_proven(8, 70));
        theirs.forget_expected(7);
        assert_eq!(theirs.secret(7), None);
        ours.forget_asked(7);
        assert!(ours.open() == 0 && !ours.is_proven(7, 70));
    }

    #[test]
    fn a_challenge_waits_until_its_member_is_known_and_goes_with_its_connection() {
        let mut proofs = Proofs::default();
        proofs.ask(A, 1, 10);
        proofs.ready(1, |_| false);
        proofs.put(|member| member == B);
        assert!(!proofs.has_untold(A), "its address is unknown");
        proofs.put(|member| member == A);
        proofs.put(|member| member == A);
        assert_eq!(proofs.take_untold(A).len(), 1, "once");
        proofs.ask(A, 2, 20);
        proofs.ready(2, |_| true);
        proofs.forget_asked(1);
        assert!(proofs.has_untold(A));
        proofs.forget_asked(2);
        assert!(!proofs.has_untold(A), "no caller waits");
    }

    #[test]
    fn a_start_counts_once_and_ends_what_was_opened_before() {
        let mut proofs = Proofs::default();
        let (before, after) = (Instant(1), Instant(2));
        proofs.started(A, 1, before);
        assert!(proofs.take_changed() && !proofs.take_changed());
        proofs.started(A, 1, after);
        assert!(!proofs.has_started_since(A, before), "it had come before it was dialled, and once");
        proofs.started(A, 2, after);
        assert!(proofs.has_started_since(A, before) && !proofs.has_started_since(A, after));
        assert_eq!(proofs.arrivals(A), 0);
        proofs.arrived(A);
        assert_eq!((proofs.arrivals(A), proofs.take_changed()), (1, true));
    }
}

//! The ghost: the elections, commits and reads of the whole cluster, and the judges that check them.
//!
//! In:    elections, commits, reads and their answers; the facts of all members at once.
//! Out:   the violated guarantee.
//! Rules: Election Safety: a term has one leader. Leader Completeness: a leader holds what was committed in earlier
//!        terms. State Machine Safety: the entry committed at an index is the same everywhere. O2: a committed entry
//!        is on the disks of a quorum, at every later moment too. O3: only an entry of the leader's own term commits.
//!        Log Matching: entries with one id have one past. O1: entries that a leader counts as held are held.
//!        M2: configurations follow from each other through joint ones. A snapshot covers only what was committed.
//!        L-2: no member leads a later term than that of a lease that holds, by the clock of its holder.
//!        Weak answers have rules of their own ([`crate::receipts`]).
//!        Linearizable reads: a read sees what was committed anywhere before it began.
//!        [Ongaro14 §3.4–3.6, §6.4; replication-protocols §1.3, §9, §9.4]
//! Knows nothing of: messages, the members' logic.

use crate::position::{Configuration, Position};
use crate::receipts::Receipts;
use crate::tables::{Facts, Step};
use kattu_raft::{EntryId, LogIndex, Term};

/// The history of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ghost {
    /// By term: index of the member elected.
    leaders: Vec<Option<u8>>,
    /// By index − 1: what was committed, and in which term.
    committed: Vec<(Position, Term)>,
    /// Unanswered reads: the member, the read's number, and how much was committed when it began.
    reads: Vec<(u8, u8, u8)>,
    /// Weak answers.
    receipts: Receipts,
}

impl Ghost {
    /// How many entries were ever committed.
    #[must_use]
    pub fn committed(&self) -> usize {
        self.committed.len()
    }

    /// Whether one of these reports is of an entry beyond a gap.
    pub(crate) fn reports_beyond_gap(&self, reports: &[EntryId]) -> bool {
        self.receipts.reports_beyond_gap(reports, &self.committed)
    }

    /// Whether one of these commits shows that an entry is lost that was reported as received.
    pub(crate) fn loses_received(&self, commits: &[Position]) -> bool {
        self.receipts.loses(commits)
    }

    /// A read begins.
    pub(crate) fn read_begins(&mut self, member: usize, batch: u8) {
        self.reads.push((member as u8, batch, self.committed.len() as u8));
    }

    /// A member crashed, and its unanswered reads are gone.
    pub fn crashed(&mut self, member: usize) {
        self.reads.retain(|read| usize::from(read.0) != member);
    }

    /// The newest term with an elected leader.
    #[must_use]
    pub(crate) fn newest_term(&self) -> Option<Term> {
        let newest = self.leaders.iter().rposition(Option::is_some)?;
        Some(Term(newest as u64))
    }

    /// The newest configuration that is committed, if it is not the first one.
    #[must_use]
    pub(crate) fn newest_configuration(&self) -> Option<Configuration> {
        self.committed.iter().rev().find_map(|(place, _)| place.configuration)
    }

    /// Takes a member's step: `before` are its facts before it, `all` those of all members after it.
    ///
    /// # Errors
    /// The guarantee that it violated.
    pub fn takes(
        &mut self,
        member: usize,
        step: &Step,
        before: &Facts,
        all: &[&Facts],
    ) -> Result<(), String> {
        let name = member + 1;
        // A leader that committed its own removal may have resigned at once.
        let leads = all[member].leads.or(before.leads);
        let mut in_force = before.in_force;
        if let Some(term) = step.elected {
            let place = term.0 as usize;
            if self.leaders.len() <= place {
                self.leaders.resize(place + 1, None);
            }
            match self.leaders[place] {
                Some(first) if usize::from(first) != member => {
                    return Err(format!(
                        "Election Safety: members {} and {name} lead term {place}",
                        first + 1
                    ));
                }
                _ => self.leaders[place] = Some(member as u8),
            }
        }
        let known_before = self.committed.len();
        for place in &step.commits {
            match self.committed.get(place.id.index.0 as usize - 1) {
                Some((known, _)) if known == place => {}
                Some((known, _)) => {
                    return Err(format!(
                        "State Machine Safety: member {name} commits {place}, but {known} was committed there"
                    ));
                }
                None => match leads {
                    Some(term) => self.committed.push((*place, term)),
                    None => {
                        return Err(format!(
                            "State Machine Safety: member {name} commits {place}, which no leader has committed"
                        ));
                    }
                },
            }
        }
        if let Some((place, term)) = self.committed[known_before..].last()
            && place.id.term != *term
        {
            return Err(format!(
                "O3: member {name} commits {place} of an older term than its own {}",
                term.0
            ));
        }
        for (place, _) in &self.committed[known_before..] {
            // Alone in the new configuration, a leader appends and commits it in one step.
            let appended_now = in_force != all[member].in_force;
            if appended_now && place.configuration == Some(all[member].in_force) {
                in_force = all[member].in_force;
            }
            let holders = holders(all, *place);
            if !in_force.has_quorum(holders) {
                return Err(format!(
                    "O2: member {name} commits {place} with {} of {in_force}",
                    Configuration { voters: holders, ..Configuration::default() }
                ));
            }
        }
        for verdict in &step.verdicts {
            // A verdict also answers every batch before it.
            let judged =
                |read: &(u8, u8, u8)| usize::from(read.0) == member && u64::from(read.1) <= verdict.upto.0;
            let (judged, waiting): (Vec<_>, Vec<_>) = self.reads.drain(..).partition(judged);
            self.reads = waiting;
            if judged.is_empty() {
                return Err(format!(
                    "Linearizable reads: member {name} answers a read that nobody waits for"
                ));
            }
            let vote_floor =
                judged.into_iter().map(|(_, _, vote_floor)| vote_floor).max().unwrap_or_default();
            if let Some(index) = verdict.index
                && index < LogIndex(u64::from(vote_floor))
            {
                return Err(format!(
                    "Linearizable reads: member {name} serves a read from {}, but {vote_floor} was committed before it began",
                    index.0
                ));
            }
        }
        Ok(())
    }

    /// Takes the reports of the same step, after the rest of it, where leaders report what a quorum has received.
    ///
    /// # Errors
    /// The rule of weak answers that it violated.
    pub(crate) fn takes_reports(
        &mut self,
        member: usize,
        step: &Step,
        before: &Facts,
        all: &[&Facts],
    ) -> Result<(), String> {
        self.receipts.take(member, step, before, all, &self.committed)
    }

    /// Judges all members at once.
    ///
    /// # Errors
    /// The violated guarantee.
    pub fn holds(&self, members: &[&Facts]) -> Result<(), String> {
        for (n, facts) in members.iter().enumerate() {
            let Some(term) = facts.leads else { continue };
            if let Some(newest) =
                self.newest_term().filter(|newest| facts.lease == Some(true) && term < *newest)
            {
                return Err(format!(
                    "L-2: somebody leads term {} while the lease of member {} in term {} holds",
                    newest.0,
                    n + 1,
                    term.0
                ));
            }
            if let Some(other) = members[..n].iter().position(|other| other.leads == Some(term)) {
                let (first, second) = (other + 1, n + 1);
                return Err(format!("Election Safety: members {first} and {second} lead term {}", term.0));
            }
            for (position, (place, committed_in)) in self.committed.iter().enumerate() {
                if *committed_in < term && facts.log.get(position) != Some(place) {
                    return Err(format!(
                        "Leader Completeness: member {} leads term {} without {place}, committed in term {}",
                        n + 1,
                        term.0,
                        committed_in.0
                    ));
                }
            }
            for (peer, peer_facts) in members.iter().enumerate().filter(|(peer, _)| *peer != n) {
                let matched = facts.matched[peer].0 as usize;
                let same_reign = peer_facts.durable_term <= term;
                let held = peer_facts.durable.get(..matched);
                if same_reign && (held.is_none() || held != facts.log.get(..matched)) {
                    return Err(format!(
                        "O1: leader {} counts member {} as holding its log up to {matched}, and it does not",
                        n + 1,
                        peer + 1
                    ));
                }
            }
        }
        // Committed entries are held by a quorum of the voters that decide future elections. Outgoing voters decide
        // none alone.
        let newest = self.newest_configuration().unwrap_or(members[0].first);
        let lasting = Configuration { outgoing: 0, ..newest };
        for (place, _) in &self.committed {
            let holders = holders(members, *place);
            if !lasting.has_quorum(holders) {
                let (held, of) = ((lasting.voters & holders).count_ones(), lasting.voters.count_ones());
                return Err(format!("O2: {place} is committed and on {held} disks of {of}"));
            }
        }
        self.receipts.hold(members, &self.committed)?;
        for (n, facts) in members.iter().enumerate() {
            self.follows(n + 1, facts)?;
        }
        for (n, right) in members.iter().enumerate() {
            members[..n]
                .iter()
                .enumerate()
                .try_for_each(|(m, left)| logs_match(m + 1, left, n + 1, right))?;
        }
        Ok(())
    }
}

impl Ghost {
    /// The entries that a snapshot replaced were committed, and the log's configurations follow from each other.
    fn follows(&self, name: usize, facts: &Facts) -> Result<(), String> {
        for (position, place) in facts.log[..facts.base].iter().enumerate() {
            match self.committed.get(position) {
                Some((known, _)) if known == place => {}
                _ => {
                    return Err(format!(
                        "State Machine Safety: member {name} has a snapshot with {place}, which was not committed there"
                    ));
                }
            }
        }
        let mut current = facts.first;
        for place in &facts.log {
            let Some(next) = place.configuration else { continue };
            if !current.may_become(next) {
                return Err(format!("M2: in the log of member {name} {current} becomes {next}"));
            }
            current = next;
        }
        Ok(())
    }
}

/// The members that hold this on disk.
fn holders(members: &[&Facts], place: Position) -> u8 {
    let position = place.id.index.0 as usize - 1;
    let holds = |(n, facts): (usize, &&Facts)| u8::from(facts.durable.get(position) == Some(&place)) << n;
    members.iter().enumerate().map(holds).sum()
}

/// Entries with one id have one past.
fn logs_match(m: usize, left: &Facts, n: usize, right: &Facts) -> Result<(), String> {
    let same_name = |(l, r): &(&Position, &Position)| l.id == r.id;
    let shared = left.log.iter().zip(&right.log).rev().skip_while(|pair| !same_name(pair));
    // From the newest shared id on down, everything must be the same.
    for (l, r) in shared {
        if l != r {
            return Err(format!("Log Matching: members {m} and {n} agree later, but hold {l} and {r}"));
        }
    }
    Ok(())
}

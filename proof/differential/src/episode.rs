//! An episode: two fresh servers, one list of requests, every answer compared.
//!
//! Knows nothing of: the number of episodes in a run.

use crate::answer::Answer;
use crate::call::Call;
use crate::compare::{Difference, differences};
use crate::generate::Generator;
use crate::rules::Rule;
use crate::server::{Server, System};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The two servers to compare, and how.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The reference.
    pub left: System,
    /// The server under test.
    pub right: System,
    /// The folder for the servers' data.
    pub data: PathBuf,
    /// The reference survives sort targets that do not exist.
    pub bad_sorts_everywhere: bool,
    /// Explained differences.
    pub rules: Vec<Rule>,
    /// Falsify one in so many answers of the right side: shows that the comparison finds it.
    pub plant_every: Option<u64>,
}

/// The outcome of an episode.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Requests answered by both.
    pub requests: u64,
    /// Requests by name, and how many of them etcd refused.
    pub calls: BTreeMap<&'static str, (u64, u64)>,
    /// How often each rule was needed.
    pub rules_used: BTreeMap<String, u64>,
    /// The first difference that no rule explains.
    pub unexplained: Option<Unexplained>,
}

/// A difference that no rule explains, with its history.
#[derive(Clone, Debug)]
pub struct Unexplained {
    /// The requests of the episode so far; the last one's answers differ.
    pub history: Vec<Call>,
    /// The differences.
    pub differences: Vec<Difference>,
}

/// Two servers with the same history.
pub struct Pair {
    left: Server,
    right: Server,
    plant_every: Option<u64>,
    sent: u64,
}

impl Pair {
    /// Starts both at once.
    pub async fn start(setup: &Setup) -> Result<Pair, String> {
        let (left, right) =
            tokio::join!(Server::start(&setup.left, &setup.data), Server::start(&setup.right, &setup.data));
        Ok(Pair { left: left?, right: right?, plant_every: setup.plant_every, sent: 0 })
    }

    /// Sends requests that need no order to both, and returns the answers in order.
    pub async fn ask(&mut self, group: &[Call]) -> Result<Vec<(Answer, Answer)>, String> {
        let waiting: Vec<_> = group
            .iter()
            .map(|call| {
                let left = tokio::spawn(call.clone().send(self.left.client.clone()));
                let right = tokio::spawn(call.clone().send(self.right.client.clone()));
                (left, right)
            })
            .collect();
        let mut answers = Vec::new();
        for (left, right) in waiting {
            let left = left.await.map_err(|error| error.to_string())?;
            let mut right = right.await.map_err(|error| error.to_string())?;
            self.sent += 1;
            if self.plant_every.is_some_and(|every| self.sent.is_multiple_of(every)) {
                falsify(&mut right);
            }
            answers.push((left, right));
        }
        for (name, server) in [("the first server", &mut self.left), ("the second server", &mut self.right)] {
            if let Some(end) = server.ended() {
                let asked: Vec<String> =
                    group.iter().map(|call| format!("  {} # {call}", call.encode())).collect();
                return Err(format!("{name} {end}\nafter being asked\n{}", asked.join("\n")));
            }
        }
        Ok(answers)
    }
}

/// The smallest relevant falsification: a revision one too high, or a message one letter short.
fn falsify(answer: &mut Answer) {
    if let Some(revision) = answer.tree.pointer_mut("/ok/header/revision") {
        *revision = serde_json::json!(revision.as_i64().unwrap_or(0) + 1);
    } else if let Some(serde_json::Value::String(message)) = answer.tree.pointer_mut("/error/message") {
        message.pop();
    }
}

/// The differences that no rule explains; counts the rules that were needed.
pub fn judge(
    rules: &[Rule],
    call: &Call,
    answers: &(Answer, Answer),
    used: &mut BTreeMap<String, u64>,
) -> Vec<Difference> {
    let found = differences(call, &answers.0, &answers.1);
    if found.is_empty() {
        return found;
    }
    found
        .into_iter()
        .filter(|difference| match rules.iter().find(|rule| rule.explains(call, difference)) {
            Some(rule) => {
                *used.entry(rule.id.clone()).or_default() += 1;
                false
            }
            None => true,
        })
        .collect()
}

/// Runs `requests` requests of part `part` of the list with this seed; `Err` if a server failed.
pub async fn run(setup: &Setup, seed: u64, part: u64, requests: u64) -> Result<Outcome, String> {
    let mut pair = Pair::start(setup).await?;
    let mut generator = Generator::new(seed, part).with_bad_sorts_everywhere(setup.bad_sorts_everywhere);
    let mut outcome = Outcome::default();
    let mut history: Vec<Call> = Vec::new();
    while outcome.requests < requests {
        let group = generator.group();
        let answers = pair.ask(&group).await?;
        for (call, both) in group.into_iter().zip(answers) {
            outcome.requests += 1;
            let count = outcome.calls.entry(call.name()).or_default();
            count.0 += 1;
            count.1 += u64::from(!both.0.is_done());
            if let Some(revision) = both.0.revision {
                generator.saw_revision(revision);
            }
            if let (Call::Compact(request), true) = (&call, both.0.is_done()) {
                generator.saw_compaction(request.revision);
            }
            let unexplained = judge(&setup.rules, &call, &both, &mut outcome.rules_used);
            history.push(call);
            if !unexplained.is_empty() {
                outcome.unexplained = Some(Unexplained { history, differences: unexplained });
                return Ok(outcome);
            }
        }
    }
    Ok(outcome)
}

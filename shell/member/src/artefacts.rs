//! Artefacts: two mistakes of published measurements, made on purpose, to see what they do to the numbers.
//!
//! A study that measured an apply thread compared it with a routine that applies one entry whenever something happens, however
//! many are committed, and its leader answered clients when it had a request in its own log. [work 000, rows 179, 183]
//!
//! Rules: 1. Only experiments turn them on (`--lab`). Outside of them all is passed on at once, and nothing is answered early.
//!        2. What is held back keeps its order, and a member that stops holds nothing back. Questions for the status are answered
//!           at once: they depend on no entry, and tell how many are held back.
//!        3. An early answer promises nothing: the put may be lost, and its revision reads 0.
//! Knows nothing of: flags, the log, time.

use kattu_kv::api::{Answer, Response, Revision};
use kattu_node::command::put_of_store;
use kattu_node::contract::{KeeperTask, Outcome, Reply, ReplyBody, Request};
use kattu_raft::Term;
use std::collections::VecDeque;

/// The mistakes that are made. None outside of experiments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Artefacts {
    /// Most entries that are applied whenever something happens; 0: all.
    pub apply_entries_max: usize,
    /// A leader answers puts when it has put them into its log, before any disk has stored them.
    pub early_answers: bool,
}

/// Tasks for the keeper that wait for the next batch. [Rule 2]
#[derive(Debug, Default)]
pub(crate) struct HeldBack {
    tasks: VecDeque<KeeperTask>,
    /// Entries that may pass in this batch, if they are counted.
    left: usize,
}

impl HeldBack {
    /// A batch begins, in which so many entries may pass.
    pub fn begin(&mut self, most: usize) {
        self.left = most;
    }

    pub fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Leaves in `tasks` those that may pass now, older ones first; without `counts` all.
    pub fn pass(&mut self, tasks: &mut Vec<KeeperTask>, counts: bool) {
        let asks = |task: &mut KeeperTask| !matches!(task, KeeperTask::Status { .. });
        self.tasks.extend(tasks.extract_if(.., asks));
        while let Some(task) = self.tasks.front() {
            let is_entry = matches!(task, KeeperTask::Apply { .. });
            if is_entry && counts && self.left == 0 {
                return;
            }
            self.left = self.left.saturating_sub(usize::from(is_entry));
            tasks.extend(self.tasks.pop_front());
        }
    }
}

/// The answer to a put outside of sessions that nobody has stored yet; `None` for requests that need their result. [Rule 3]
pub(crate) fn early_answer(request: &Request, term: Term) -> Option<Outcome> {
    let Request::Write(command) = request else { return None };
    put_of_store(command).filter(|put| !put.prev_kv)?;
    let body = ReplyBody::Kv(Response { revision: Revision(0), answer: Answer::Put { prev_kv: None } });
    Some(Outcome::Done(Reply { term, strong: 0, body }))
}

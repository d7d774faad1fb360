//! What a member must do about damage: wait, repair, report, or be replaced.
//!
//! Knows nothing of: which flips are made, and when.

use super::flip::Flip;
use super::{MEMBERS, Outcome, PROMISED, Trial};
use kattu_rig::cluster::BACK_LIMIT;
use kattu_rig::process::{shown, tail};
use kattu_rig::timeline::Timeline;
use std::time::{Duration, Instant};

/// How long a member may stay below its vote floor before the term is moved: only a newer term bounds some floors.
const TERM_AFTER: Duration = Duration::from_secs(2);
/// Log messages of a member whose log was cut, and of one whose log is complete again.
const CUT: &str = "is cut after";
const WHOLE: &str = "the log is whole again";
/// How long a member that cannot read its file `promise` withholds its vote.
const LONGEST: Duration = Duration::from_secs(50);
/// Of 1000 such members, so many are waited for.
const WAITED_FOR: u32 = 60;

impl Trial {
    /// It logs that its file `promise` cannot be read, serves, and records the longest vote hold until that is over.
    /// Returns whether the file was restored instead of waiting.
    pub(super) fn withholds_its_vote(
        &mut self,
        victim: usize,
        flip: &Flip,
        started: Instant,
        outcome: &mut Outcome,
        timeline: &mut Timeline,
    ) -> Result<bool, String> {
        let is_up = self.until_up(victim)?;
        let said = self.cluster.members[victim].log_text();
        if !is_up || !said.contains(PROMISED) {
            let what = if is_up { "says nothing of" } else { "ended for" };
            return Err(format!("n{victim} {what} its promise, which is damaged: {}", tail(&said)));
        }
        timeline.say("it cannot read how long its vote holds last, and withholds its vote");
        let recorded = flip.vote_hold()?;
        if recorded != LONGEST {
            return Err(format!("n{victim} could not read its promise, and then records {recorded:?}"));
        }
        if !self.random.per_mille(WAITED_FOR) {
            self.kill(victim);
            flip.restore()?;
            self.cluster.members[victim].spawn()?;
            return Ok(true);
        }
        outcome.promises.1 += 1;
        self.clients.rest(true);
        let ended = loop {
            let member = &mut self.cluster.members[victim];
            if member.ended().is_some() {
                break Err(format!("n{victim} ended meanwhile: {}", tail(&member.log_text())));
            }
            if flip.vote_hold()? != LONGEST {
                break Ok(started.elapsed());
            }
            if LONGEST + BACK_LIMIT < started.elapsed() {
                break Err(format!("n{victim} withholds its vote for ever: {}", tail(&member.log_text())));
            }
            std::thread::sleep(Duration::from_millis(50));
        };
        self.clients.rest(false);
        let took = ended?;
        timeline.say(format!("it votes again {took:.1?} after its start"));
        match took < LONGEST {
            true => Err(format!("n{victim} forgets {took:?} after its start which vote holds may be open")),
            false => Ok(false),
        }
    }

    /// Waits until so many more scrubs of a member have ended, or the member has; returns at once if scrubs are off.
    pub(super) fn until_scrubbed(&mut self, victim: usize, more: u64) -> Result<(), String> {
        if self.cluster.flags.scrub_ms == 0 {
            return Ok(());
        }
        let (begun, mut before) = (Instant::now(), None);
        loop {
            let member = &mut self.cluster.members[victim];
            if let Some(now) = member.scrubs() {
                // After a start all of them count.
                let before = *before.get_or_insert(if more == 1 { 0 } else { now });
                if before + more <= now {
                    return Ok(());
                }
            }
            if member.has_ended() {
                return Ok(());
            }
            if BACK_LIMIT < begun.elapsed() {
                return Err(format!("n{victim} ends no scrub: {}", tail(&member.log_text())));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Follows the report's advice: removes the member and adds it as a new one, with an empty directory and a vote.
    pub(super) fn replace(&mut self, victim: usize, timeline: &mut Timeline) -> Result<(), String> {
        timeline.say(format!("n{victim} is removed and added as a new one"));
        if !self.cluster.replace_within(victim, BACK_LIMIT)? {
            return Err(format!(
                "n{victim} was to be replaced, and the members do not change in {BACK_LIMIT:?}"
            ));
        }
        let begun = Instant::now();
        while !self.cluster.votes(victim) {
            self.cluster.check_ended()?;
            if BACK_LIMIT < begun.elapsed() {
                let said = tail(&self.cluster.members[victim].log_text());
                return Err(format!("n{victim} is new and has no vote after {BACK_LIMIT:?}: {said}"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Waits until it serves; `false` if it ends instead.
    pub(super) fn until_up(&mut self, victim: usize) -> Result<bool, String> {
        let begun = Instant::now();
        let member = &mut self.cluster.members[victim];
        while !member.serves() {
            if member.ended().is_some() {
                return Ok(false);
            }
            if BACK_LIMIT < begun.elapsed() {
                return Err(format!("n{victim} does not serve: {}", tail(&member.log_text())));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(true)
    }

    /// Checks that a member that ended by itself has named the bad file.
    pub(super) fn is_a_report(
        &self,
        victim: usize,
        flip: &Flip,
        success: bool,
        timeline: &mut Timeline,
    ) -> Result<(), String> {
        let member = &self.cluster.members[victim];
        let said = member.log_text();
        timeline.say(format!("it says: {}", tail(&said)));
        let names_it = said.lines().any(|line| line.contains(&flip.name) || line.contains("identity"));
        if success || !names_it {
            let end = member.last_end().map_or("nothing".into(), shown);
            return Err(format!(
                "n{victim} ended with {end} and does not name {}: {}",
                flip.name,
                tail(&said)
            ));
        }
        Ok(())
    }

    /// Waits until a log that was cut is complete again.
    pub(super) fn until_whole(&mut self, victim: usize) -> Result<(), String> {
        let begun = Instant::now();
        let mut moved = false;
        loop {
            let said = self.cluster.members[victim].log_text();
            if !said.contains(CUT) && !said.contains("below the vote floor") || said.contains(WHOLE) {
                return Ok(());
            }
            if BACK_LIMIT < begun.elapsed() {
                return Err(format!("the log of n{victim} does not grow back: {}", tail(&said)));
            }
            if !moved && TERM_AFTER < begun.elapsed() {
                moved = self.move_term(victim);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Makes another whole member the leader, which begins a new term.
    fn move_term(&self, victim: usize) -> bool {
        let others = (0..MEMBERS).filter(|&i| i != victim);
        let (leads, follows): (Vec<usize>, Vec<usize>) =
            others.partition(|&i| self.cluster.members[i].leads());
        let (Some(&leader), Some(&target)) = (leads.first(), follows.first()) else { return false };
        let status = self.cluster.members[target].probe.status();
        let id = status.ok().and_then(|status| status.header).map(|header| header.member_id);
        id.is_some_and(|id| self.cluster.members[leader].probe.move_leader(id).is_ok())
    }
}

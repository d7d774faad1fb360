//! Apply thread: where the keeper is, and one on a thread of its own in virtual time. [shell/member `apply`]
//!
//! Knows nothing of: what tasks do, which clients wait.

use crate::end::End;
use crate::judged::Now;
use crate::process::{Hands, Process};
use crate::world::{Event as Planned, Shared};
use kattu_member::apply::{Apart, Batch};
use kattu_member::step::LIMITS;
use kattu_node::Keeper;
use std::collections::VecDeque;

/// Of small slices so many take as long as it takes to wake the thread: few enough that something comes in between.
const SLICES_PER_WAKE: u64 = 256;

/// A keeper with its thread.
pub(crate) struct ApplyThread {
    pub(crate) apart: Apart<u64>,
    /// What waits for it.
    pub(crate) batches: VecDeque<Batch<u64>>,
    /// It will look.
    is_planned: bool,
}

impl ApplyThread {
    pub(crate) fn new(apart: Apart<u64>) -> ApplyThread {
        ApplyThread { apart, batches: VecDeque::new(), is_planned: false }
    }

    /// The operations whose clients wait here.
    pub(crate) fn abandon(&mut self) -> Vec<u64> {
        let mut waiting: Vec<u64> = self.apart.abandon().collect();
        for batch in self.batches.drain(..) {
            if let Batch::Tasks { clients, .. } = batch {
                waiting.extend(clients.into_iter().map(|(_, client)| client));
            }
        }
        waiting
    }
}

impl Process {
    pub(crate) fn keeper(&self) -> &Keeper {
        match (self.member.desk(), &self.hands.apply) {
            (Some(desk), _) => desk.keeper(),
            (None, Some(thread)) => thread.apart.desk().keeper(),
            (None, None) => {
                let mut on_their_way = self.hands.progress.iter().filter_map(|report| report.desk.as_ref());
                on_their_way.next().expect("a keeper sits here or apart, or is on its way").desk().keeper()
            }
        }
    }

    pub(crate) fn keeper_mut(&mut self) -> &mut Keeper {
        match (self.member.desk_mut(), &mut self.hands.apply) {
            (Some(desk), _) => desk.keeper_mut(),
            (None, Some(thread)) => thread.apart.desk_mut().keeper_mut(),
            (None, None) => {
                let mut on_their_way =
                    self.hands.progress.iter_mut().filter_map(|report| report.desk.as_mut());
                let desk = on_their_way.next().expect("a keeper sits here or apart, or is on its way");
                desk.desk_mut().keeper_mut()
            }
        }
    }

    /// The keeper's own thread takes in what has come, and works for a slice.
    pub(crate) fn kept(&mut self, sh: &mut Shared) -> Result<(), End> {
        let Some(thread) = &mut self.hands.apply else { return Ok(()) };
        thread.is_planned = false;
        // It is an owner of its own: what the node's thread does meanwhile is another step.
        let of_node = std::mem::take(&mut self.hands.eyes.work);
        let is_busy = self.hands.keep(sh, &mut sh.limits.slice.clone())?;
        let work = std::mem::replace(&mut self.hands.eyes.work, of_node);
        sh.service.stepped(self.hands.member, work)?;
        self.look_for_compaction(sh);
        if is_busy {
            self.hands.plan_keeper(sh, true);
        }
        Ok(())
    }
}

impl Hands {
    /// Its thread is woken, which takes its time; one that goes on with its next slice takes what its work does.
    pub(crate) fn plan_keeper(&mut self, sh: &mut Shared, goes_on: bool) {
        let Some(thread) = &mut self.apply else { return };
        if !std::mem::replace(&mut thread.is_planned, true) {
            let slices = if goes_on { LIMITS.slice / sh.limits.slice.clamp(1, LIMITS.slice) } else { 1 };
            let takes = sh.dice.below(sh.pace.apply / (slices as u64).min(SLICES_PER_WAKE) + 1);
            sh.queue.plan(sh.now + takes, Planned::Kept { member: self.member, run: self.run });
        }
    }

    /// A keeper on its own thread works for a slice; whether it would go on.
    pub(crate) fn keep(&mut self, sh: &mut Shared, slice: &mut i64) -> Result<bool, End> {
        let Some(mut thread) = self.apply.take() else { return Ok(false) };
        let kept = self.keep_at(sh, &mut thread, slice);
        if kept.is_ok() && thread.apart.is_returning() {
            self.progress.push_back(thread.apart.last_report());
            return Ok(false);
        }
        let is_busy = thread.apart.is_busy();
        self.apply = Some(thread);
        kept.map(|()| is_busy)
    }

    fn keep_at(&mut self, sh: &mut Shared, thread: &mut ApplyThread, slice: &mut i64) -> Result<(), End> {
        let apart = &mut thread.apart;
        while let Some(batch) = thread.batches.pop_front() {
            apart.take_in(&mut Now { hands: self, sh }, batch);
        }
        if !apart.is_returning() {
            apart.work(&mut Now { hands: self, sh }, slice)?;
        }
        while let Some(order) = apart.order() {
            self.order_snapshot(sh, order);
        }
        if let Some((progress, answers)) = apart.report() {
            self.replying.extend(answers);
            self.progress.push_back(progress);
        }
        self.answer_clients(sh)?;
        if !apart.is_returning() {
            apart.tidy();
        }
        self.eyes.note_forgotten(apart.desk().keeper());
        Ok(())
    }
}

//! Membership changes in the middle of all other faults. [fault-model F60, F61, M1–M13]
//!
//! A change is requested from any member that answers, a few times at most. Its outcome is read from the member list,
//! because an answer may be lost and its change done all the same. A removed member must end by itself, with exit code
//! 0, once another member can tell it; a wiped one comes back only as a new one.
//! Knows nothing of: faults, clients.

use crate::cluster::{BACK_LIMIT, Cluster};
use crate::grpc::Kv;
use crate::member::Standing;
use crate::process::{shown, tail};
use kattu_proto::etcdserverpb::cluster_client::ClusterClient;
use kattu_proto::etcdserverpb::maintenance_client::MaintenanceClient;
use kattu_proto::etcdserverpb::{
    Member as Listed, MemberAddRequest, MemberListRequest, MemberRemoveRequest, MoveLeaderRequest,
};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A change in the middle of a storm is given up after this.
const CHANGE_LIMIT: Duration = Duration::from_secs(4);
const AGAIN_AFTER: Duration = Duration::from_millis(50);
/// No removal leaves fewer: a storm over one member is another test.
const MEMBERS_MIN: usize = 3;

/// A membership change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// A new member joins.
    Add,
    /// A member is removed.
    Remove,
    /// A member loses its directory and comes back as a new one.
    Replace,
}

impl Cluster {
    /// Sends a change to a member, on a thread of its own, without waiting for its outcome: [`Cluster::part`] finds it
    /// out. A removal removes `whom`; an addition takes a free place. `None` if no member can be asked, nothing can be
    /// changed, or for a replacement, which is two changes.
    pub fn ask_and_go(&self, change: Change, whom: usize) -> Option<JoinHandle<()>> {
        let belonging = self.belonging();
        let at = belonging.iter().copied().find(|&i| i != whom && self.members[i].is_awake())?;
        let address = self.members[at].address();
        match change {
            Change::Add => {
                let free = self.members.iter().position(|member| member.standing == Standing::Spare)?;
                let url = self.peer_url(free);
                Some(std::thread::spawn(move || {
                    let _ = Kv::of(&address).within(CHANGE_LIMIT).member_add(&url, false);
                }))
            }
            Change::Replace => None,
            Change::Remove => {
                if belonging.len() <= MEMBERS_MIN {
                    return None;
                }
                let listed = self.listed()?;
                let id = self.entry_of(whom, &listed)?.id;
                Some(std::thread::spawn(move || {
                    let _ = Kv::of(&address).within(CHANGE_LIMIT).member_remove(id);
                }))
            }
        }
    }

    /// Waits until every member's own list is the same, all on it belong, and all have a vote.
    ///
    /// # Errors
    /// The difference between two lists.
    pub fn agree_on_members(&mut self) -> Result<(), String> {
        let begun = Instant::now();
        loop {
            self.check_ended()?;
            let belonging = self.belonging();
            let mut wanted: Vec<String> = belonging.iter().map(|&i| self.peer_url(i)).collect();
            wanted.sort_unstable();
            let differs = belonging.into_iter().find_map(|i| {
                let kv = &self.members[i].probe;
                let mut client = ClusterClient::new(kv.channel());
                let request = MemberListRequest { linearizable: false };
                let listed = match kv.block_on(async { client.member_list(request).await }) {
                    Ok(listed) => listed.into_inner().members,
                    Err(error) => return Some(format!("{} lists nobody: {error}", self.members[i].name)),
                };
                let mut urls: Vec<String> =
                    listed.iter().flat_map(|member| member.peer_ur_ls.clone()).collect();
                urls.sort_unstable();
                let is_good = urls == wanted && listed.iter().all(|member| !member.is_learner);
                (!is_good)
                    .then(|| format!("{} lists {listed:?}, belonging are {wanted:?}", self.members[i].name))
            });
            match differs {
                None => return Ok(()),
                Some(what) if BACK_LIMIT < begun.elapsed() => {
                    return Err(format!("members do not agree on who they are: {what}"));
                }
                Some(_) => {
                    std::thread::sleep(AGAIN_AFTER);
                    self.part()?; // a change that was given up may have been carried out only now
                }
            }
        }
    }

    /// Members that belong to the cluster, as far as the conductor knows.
    pub fn belonging(&self) -> Vec<usize> {
        (0..self.members.len()).filter(|&i| self.members[i].standing == Standing::Member).collect()
    }

    /// The member list of any member that answers.
    pub fn listed(&self) -> Option<Vec<Listed>> {
        self.belonging().into_iter().filter(|&i| self.members[i].is_awake()).find_map(|i| {
            let kv = &self.members[i].probe;
            let mut client = ClusterClient::new(kv.channel());
            let request = MemberListRequest { linearizable: true };
            kv.block_on(async { client.member_list(request).await }).ok().map(|it| it.into_inner().members)
        })
    }

    /// The list, requested until a member answers.
    fn surely_listed(&self, limit: Duration) -> Option<Vec<Listed>> {
        let end = Instant::now() + limit;
        loop {
            let listed = self.listed();
            if listed.is_some() || end < Instant::now() {
                return listed;
            }
            std::thread::sleep(AGAIN_AFTER);
        }
    }

    fn entry_of<'a>(&self, i: usize, listed: &'a [Listed]) -> Option<&'a Listed> {
        let url = self.peer_url(i);
        listed.iter().find(|member| member.peer_ur_ls.contains(&url))
    }

    /// Requests a change until the list shows it.
    fn change(
        &self,
        limit: Duration,
        ask: impl Fn(usize) -> bool,
        is_done: impl Fn(&[Listed]) -> bool,
    ) -> bool {
        let end = Instant::now() + limit;
        while Instant::now() < end {
            for i in self.belonging() {
                if self.members[i].is_awake() && ask(i) {
                    break;
                }
            }
            if self.listed().is_some_and(|listed| is_done(&listed)) {
                return true;
            }
            std::thread::sleep(AGAIN_AFTER);
        }
        false
    }

    fn ask_remove(&self, whom: u64, at: usize) -> bool {
        let kv = &self.members[at].probe;
        let mut client = ClusterClient::new(kv.channel());
        kv.block_on(async { client.member_remove(MemberRemoveRequest { id: whom }).await }).is_ok()
    }

    /// Removes the member; true if the list shows that. Its process learns it from the other members.
    fn take_out(&mut self, i: usize, limit: Duration) -> bool {
        let Some(listed) = self.surely_listed(limit) else { return false };
        let url = self.peer_url(i);
        if let Some(entry) = self.entry_of(i, &listed) {
            let id = entry.id;
            let is_gone = self.change(
                limit,
                |at| at != i && self.ask_remove(id, at),
                |listed| !listed.iter().any(|member| member.peer_ur_ls.contains(&url)),
            );
            if !is_gone {
                return false;
            }
        }
        self.members[i].standing = Standing::Leaving;
        true
    }

    /// Adds a new member at this place and gives it an empty directory; true if the list has it. It is not started.
    ///
    /// # Errors
    /// The remains of an earlier member there cannot be removed.
    pub fn invite(&mut self, i: usize, limit: Duration) -> Result<bool, String> {
        let url = self.peer_url(i);
        let is_in = self.change(
            limit,
            |at| {
                let kv = &self.members[at].probe;
                let mut client = ClusterClient::new(kv.channel());
                let request = MemberAddRequest { peer_ur_ls: vec![url.clone()], is_learner: false };
                kv.block_on(async { client.member_add(request).await }).is_ok()
            },
            |listed| listed.iter().any(|member| member.peer_ur_ls.contains(&url)),
        );
        if is_in {
            let others = self.belonging().into_iter().chain([i]).collect::<Vec<_>>();
            self.join_as_new(i, &others)?;
            self.members[i].standing = Standing::Member;
        }
        Ok(is_in)
    }

    /// The same, and starts it.
    fn let_in(&mut self, i: usize, limit: Duration) -> Result<bool, String> {
        let is_in = self.invite(i, limit)?;
        if is_in {
            self.members[i].spawn()?;
            self.note_processes();
        }
        Ok(is_in)
    }

    /// Adds and starts a member. Returns its place.
    ///
    /// # Errors
    /// The process cannot be started.
    pub fn grow(&mut self) -> Result<Option<usize>, String> {
        let spare = self.members.iter().position(|member| member.standing == Standing::Spare);
        match spare {
            Some(i) => Ok(self.let_in(i, CHANGE_LIMIT)?.then_some(i)),
            None => Ok(None),
        }
    }

    /// Removes a member, unless too few would be left.
    pub fn shrink(&mut self, i: usize) -> bool {
        MEMBERS_MIN < self.belonging().len() && self.take_out(i, CHANGE_LIMIT)
    }

    /// Takes a member's directory, removes it, and adds it as a new one; the caller has killed it.
    ///
    /// # Errors
    /// The process cannot be started.
    pub fn replace(&mut self, i: usize) -> Result<bool, String> {
        if self.belonging().len() < MEMBERS_MIN {
            return Ok(false);
        }
        self.replace_within(i, CHANGE_LIMIT)
    }

    /// The same, with this time limit for each of the two changes.
    ///
    /// # Errors
    /// The process cannot be started.
    pub fn replace_within(&mut self, i: usize, limit: Duration) -> Result<bool, String> {
        if !self.take_out(i, limit) {
            return Ok(false);
        }
        self.members[i].standing = Standing::Spare;
        self.let_in(i, limit)
    }

    /// Whether the list shows the member, with a vote.
    pub fn votes(&self, i: usize) -> bool {
        let listed = self.listed().unwrap_or_default();
        self.entry_of(i, &listed).is_some_and(|entry| !entry.is_learner)
    }

    /// Asks the leader for a transfer to this member; false if that fails.
    pub fn transfer(&self, to: usize) -> bool {
        let Some(leader) = self.leader_now() else { return false };
        let target = self.listed().and_then(|listed| self.entry_of(to, &listed).map(|entry| entry.id));
        let Some(target) = target else { return false };
        let kv = &self.members[leader].probe;
        let mut client = MaintenanceClient::new(kv.channel());
        kv.block_on(async { client.move_leader(MoveLeaderRequest { target_id: target }).await }).is_ok()
    }

    /// After the faults: completes all open changes, and checks that each removed member has ended by itself.
    ///
    /// # Errors
    /// A removed member that still runs, or no member list.
    pub fn part(&mut self) -> Result<(), String> {
        if self.has_no_changes() {
            return Ok(());
        }
        let listed = self.surely_listed(BACK_LIMIT).ok_or("nobody lists the members after the faults")?;
        for i in 0..self.members.len() {
            let is_listed = self.entry_of(i, &listed).is_some();
            match self.members[i].standing {
                // An addition that was given up, but carried out.
                Standing::Spare if is_listed => {
                    if !self.take_out(i, BACK_LIMIT) {
                        return Err(format!("{} cannot be taken out again", self.members[i].name));
                    }
                    self.members[i].standing = Standing::Spare;
                }
                Standing::Leaving if is_listed && self.members[i].last_end().is_some() => {
                    return Err(format!(
                        "{} ended as if it had been removed, and was not",
                        self.members[i].name
                    ));
                }
                // A removal that was given up, but carried out.
                Standing::Member if !is_listed => self.members[i].standing = Standing::Leaving,
                Standing::Spare | Standing::Member | Standing::Leaving => {}
            }
        }
        let begun = Instant::now();
        for i in 0..self.members.len() {
            let member = &mut self.members[i];
            if member.standing != Standing::Leaving {
                continue;
            }
            let status = match member.is_started() {
                true => member.end_within(BACK_LIMIT.saturating_sub(begun.elapsed())),
                false => member.last_end(),
            };
            match status {
                Some(status) if member.was_removed(status) || member.has_asked_in_vain() => {
                    member.standing = Standing::Spare;
                }
                Some(status) => {
                    return Err(format!(
                        "{} was removed and ended with {}: {}",
                        member.name,
                        shown(status),
                        tail(&member.log_text())
                    ));
                }
                None if member.is_started() => {
                    return Err(format!(
                        "{} was removed and still runs {BACK_LIMIT:?} after the faults: {}",
                        member.name,
                        tail(&member.log_text())
                    ));
                }
                None => member.standing = Standing::Spare,
            }
        }
        Ok(())
    }
}

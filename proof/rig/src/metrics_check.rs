//! Metrics check: alarms, leader leases, comparisons and scrubs, as members show them on `/metrics`.
//!
//! While clients write after all faults, everything that a trial's flags switch on must really happen: a new comparison
//! on which all voters agree, a scrub that ends on every member, a leader lease. A leader that has none for the rest of
//! its term, because a transfer failed, is asked to transfer leadership; the next one must have one. No member may ever
//! be reported: no fault of these rigs makes a store diverge. [fault-model F70, ST12]
//! Knows nothing of: faults, clients.

use crate::cluster::{BACK_LIMIT, Cluster};
use crate::flags::Flags;
use crate::member::Member;
use crate::page::Page;
use crate::target::Target;
use std::time::{Duration, Instant};

const ASK_LIMIT: Duration = Duration::from_secs(2);
const AGAIN_AFTER: Duration = Duration::from_millis(30);

/// A reported store or clock on this page, if there is one.
fn complaint(page: &Page) -> Option<String> {
    let mut alarms = page.lines("etcd_server_alarms").filter(|alarm| alarm.contains("CORRUPT"));
    if let Some(alarm) = alarms.next() {
        return Some(format!("alarm {alarm}"));
    }
    // Trials with leader leases have no clock that runs at another rate.
    if let Some(apart) = page.lines("kattu_clocks_apart_ppm").next() {
        return Some(format!("clock {apart}"));
    }
    ["kattu_digest_divergent_total", "kattu_corrupt"]
        .into_iter()
        .find(|name| page.number(name) != Some(0))
        .map(|name| format!("{name} is {:?}", page.number(name)))
}

/// Work that was seen in one or many trials.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Trials that came to their end.
    pub trials: u64,
    /// Of them: those of several members.
    pub with_others: u64,
    /// Of those: with `--lease-reads`.
    pub with_leases: u64,
    /// Leaders that were seen to hold a leader lease.
    pub leases: u64,
    /// Members' reports that were compared.
    pub reports: u64,
    /// Trials in which all voters agreed on a new comparison after the faults.
    pub agreed: u64,
    /// Trials with scrubs.
    pub with_scrubs: u64,
    /// Scrubs that ended.
    pub scrubs: u64,
}

impl Seen {
    /// Adds a trial, or another sum.
    pub fn add(&mut self, other: Seen) {
        self.trials += other.trials;
        self.with_others += other.with_others;
        self.with_leases += other.with_leases;
        self.leases += other.leases;
        self.reports += other.reports;
        self.agreed += other.agreed;
        self.with_scrubs += other.with_scrubs;
        self.scrubs += other.scrubs;
    }

    /// A summary for the end of a campaign.
    pub fn line(&self) -> String {
        let Seen { with_others, with_leases, leases, reports, agreed, with_scrubs, scrubs, .. } = self;
        format!(
            "{leases} leases held in {with_leases} trials with leases; {reports} reports of members compared, agreed in {agreed} \
             of {with_others} trials of several members; {scrubs} scrubs ended in {with_scrubs} trials with scrubs"
        )
    }
}

impl Member {
    /// Its metrics page, if it answers.
    pub fn page(&self) -> Option<Page> {
        if self.is_awake() { Page::within(&self.address(), ASK_LIMIT) } else { None }
    }

    /// Scrubs that have ended in its present run.
    pub fn scrubs(&self) -> Option<u64> {
        self.page()?.number("kattu_scrubs_total")
    }
}

impl Cluster {
    /// Checks that no member that answers reports another one, or itself.
    ///
    /// # Errors
    /// The report.
    pub fn nothing_is_reported(&self) -> Result<(), String> {
        if self.target != Target::Kattu {
            return Ok(());
        }
        for i in self.belonging() {
            let complaint = self.members[i].page().and_then(|page| complaint(&page));
            if let Some(what) = complaint {
                return Err(format!("{} accuses somebody: {what}", self.members[i].name));
            }
        }
        Ok(())
    }

    /// Waits until everything that the flags switch on has been seen to happen, while clients write: a new comparison,
    /// a scrub on every member, a leader lease; and until no alarm is left. With `is_damaged` scrubs may have found
    /// damage.
    ///
    /// # Errors
    /// A report, or work that does not happen.
    pub fn prove(&mut self, is_damaged: bool) -> Result<Seen, String> {
        if self.target != Target::Kattu {
            return Ok(Seen { trials: 1, ..Seen::default() });
        }
        let begun = Instant::now();
        let mut marked = None;
        loop {
            self.check_ended()?;
            let belonging = self.belonging();
            let pages: Vec<Page> = belonging.iter().filter_map(|&i| self.members[i].page()).collect();
            if let Some(what) = pages.iter().find_map(complaint) {
                return Err(format!("somebody is accused: {what}"));
            }
            let damages: u64 = pages.iter().filter_map(|page| page.number("kattu_scrub_damages_total")).sum();
            if 0 < damages && !is_damaged {
                return Err(format!("scrubs found damage in {damages} places, and nothing was damaged"));
            }
            let missing = match pages.len() == belonging.len() {
                false => Some("a member does not show /metrics".to_string()),
                true => {
                    let most = |name| pages.iter().filter_map(|page| page.number(name)).max().unwrap_or(0);
                    let marked = *marked.get_or_insert_with(|| most("kattu_digest_marked_index"));
                    unseen(&self.flags, &pages, marked)
                }
            };
            let Some(missing) = missing else { return Ok(seen(&self.flags, &pages)) };
            // Lawfully there is no leader lease before there is another leader.
            if let Some(leader) =
                pages.iter().position(|page| page.number("kattu_leader_lease_is_over") == Some(1))
            {
                self.transfer(belonging[(leader + 1) % belonging.len()]);
            }
            if BACK_LIMIT < begun.elapsed() {
                return Err(format!("{BACK_LIMIT:?} after the faults: {missing}"));
            }
            std::thread::sleep(AGAIN_AFTER);
        }
    }
}

/// Required work that has not happened yet.
fn unseen(flags: &Flags, pages: &[Page], marked: u64) -> Option<String> {
    let has = |page: &Page, name| page.number(name).unwrap_or(0);
    if let Some(alarm) = pages.iter().find_map(|page| page.lines("etcd_server_alarms").next()) {
        return Some(format!("an alarm is raised: {alarm}"));
    }
    // A single member has no other to compare with, and none that could grant a vote hold.
    let has_others = 1 < pages.len();
    let agrees = |page: &Page| marked < has(page, "kattu_digest_agreed_index");
    if has_others && 0 < flags.digest_ms && !pages.iter().all(agrees) {
        return Some(format!("members have not agreed on a comparison beyond index {marked}"));
    }
    if 0 < flags.scrub_ms && !pages.iter().all(|page| 0 < has(page, "kattu_scrubs_total")) {
        return Some("a member has not ended a scrub".into());
    }
    let holder = pages.iter().any(|page| 0 < has(page, "kattu_has_leader_lease"));
    match (flags.leases && has_others, holder) {
        (true, false) => Some("nobody has a lease".into()),
        (false, true) => Some("somebody has a lease that rests on nobody's promise".into()),
        _ => None,
    }
}

/// The work that complete pages show.
fn seen(flags: &Flags, pages: &[Page]) -> Seen {
    let of = |name| pages.iter().filter_map(move |page| page.number(name));
    Seen {
        trials: 1,
        with_others: u64::from(1 < pages.len()),
        with_leases: u64::from(flags.leases && 1 < pages.len()),
        leases: of("kattu_has_leader_lease").sum(),
        reports: of("kattu_digest_reports_total").max().unwrap_or(0),
        agreed: u64::from(of("kattu_digest_agreed_index").any(|index| 0 < index)),
        with_scrubs: u64::from(0 < flags.scrub_ms),
        scrubs: of("kattu_scrubs_total").sum(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALM: &str = "HTTP/1.1 200 OK\r\n\r\n# TYPE etcd_server_alarms gauge\nkattu_digest_divergent_total 0\nkattu_corrupt 0\n\
        kattu_digest_marked_index 40\nkattu_digest_agreed_index 40\nkattu_digest_reports_total 12\nkattu_scrubs_total 2\n\
        kattu_has_leader_lease 1\n";

    fn page(change: impl Fn(&str) -> String) -> Page {
        Page(change(CALM))
    }

    #[test]
    fn a_complaint_is_seen_in_each_of_its_forms() {
        assert_eq!(complaint(&page(str::to_string)), None);
        let alarm = "etcd_server_alarms{alarm_type=\"CORRUPT\",server_id=\"2\"} 1\n";
        let changes: [(&str, &str); 3] = [
            ("kattu_digest_divergent_total 0", "kattu_digest_divergent_total 1"),
            ("kattu_corrupt 0", "kattu_corrupt 1"),
            ("kattu_corrupt 0", ""),
        ];
        for (calm, loud) in changes {
            assert!(complaint(&page(|text| text.replace(calm, loud))).is_some(), "{loud}");
        }
        assert!(complaint(&page(|text| format!("{text}{alarm}"))).expect("seen").contains("CORRUPT"));
        let clock = "kattu_clocks_apart_ppm{server_id=\"2\"} 7000\n";
        assert!(complaint(&page(|text| format!("{text}{clock}"))).expect("seen").contains("clock"));
    }

    #[test]
    fn what_flags_switch_on_must_be_seen_on_every_member() {
        let flags = Flags { leases: true, digest_ms: 1, scrub_ms: 1, ..Flags::default() };
        let leader = page(str::to_string);
        let follower = page(|text| text.replace("has_leader_lease 1", "has_leader_lease 0"));
        let pages = [leader.clone(), follower.clone()];
        assert_eq!(unseen(&flags, &pages, 39), None);
        assert_eq!(seen(&flags, &pages).leases, 1);
        assert_eq!(seen(&flags, &pages).scrubs, 4);
        assert!(unseen(&flags, &pages, 40).expect("no newer one").contains("comparison"));
        let lazy = page(|text| text.replace("scrubs_total 2", "scrubs_total 0"));
        assert!(unseen(&flags, &[leader.clone(), lazy], 39).expect("none yet").contains("scrub"));
        assert!(unseen(&flags, &[follower.clone(), follower], 39).expect("none").contains("lease"));
        let without = Flags { leases: false, ..flags };
        assert!(unseen(&without, &[leader], 39).expect("too much").contains("nobody's"));
        let alone = page(|text| {
            text.replace("has_leader_lease 1", "has_leader_lease 0")
                .replace("agreed_index 40", "agreed_index 0")
        });
        assert_eq!(unseen(&Flags { leases: true, ..without.clone() }, &[alone], 39), None);
    }

    #[test]
    fn an_alarm_that_is_no_complaint_must_go_away() {
        let alarm = "etcd_server_alarms{alarm_type=\"NOSPACE\",server_id=\"2\"} 1\n";
        let full = page(|text| format!("{text}{alarm}"));
        assert_eq!(complaint(&full), None);
        assert!(unseen(&Flags::default(), &[full], 0).expect("still there").contains("NOSPACE"));
    }
}

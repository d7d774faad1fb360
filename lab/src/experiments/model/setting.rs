//! Setting: what the plan says of a point, for the load that measures it and for the net that predicts it.
//!
//! Knows nothing of: what was measured.

use crate::experiment::{ClusterPlan, Load, Members, Point};
use crate::measured::At;
use kattu_petri as petri;
use std::time::Duration;

/// Clients that share a connection.
pub(super) const TOGETHER: u32 = 16;
/// Entries that one sync takes at most, as a member has it by default.
pub(super) const BATCH_ENTRIES: usize = 4096;
/// Places of the window, as `kattu protocol nb-raft` has it by default.
const WINDOW: u64 = 10_000;
/// The coordinate of links that pass by the proxy.
const DIRECT: &str = "direct";

/// All that a point varies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub clients: u32,
    pub replicas: usize,
    /// What each sync takes longer, in milliseconds.
    pub sync_ms: u64,
    /// What each way between members takes longer, in milliseconds, through the proxy; nothing for direct links.
    pub link_ms: Option<u64>,
    pub is_on_thread: bool,
    pub kib: u32,
    pub is_weak: bool,
}

/// One client on this disk.
pub(super) const ONE: Plan =
    Plan { clients: 1, replicas: 3, sync_ms: 0, link_ms: None, is_on_thread: false, kib: 1, is_weak: false };

impl Plan {
    /// The point that measures it.
    pub fn point(&self, grid: &str) -> Point {
        let requests = self.requests();
        let load = Load::puts_in_sessions(requests, self.clients, TOGETHER).of_bytes(self.kib * 1024);
        let load = load.at(Members::Leader);
        let load = if self.is_weak { load.with("--weak") } else { load };
        let cluster = ClusterPlan::of(self.replicas).flag("--leave-slow-disk=false");
        let cluster = if self.link_ms.is_some() { cluster.proxied() } else { cluster };
        let log = self.log();
        let protocol: &[&'static str] = if self.is_weak { &["nb-raft", "--weak=receipt"] } else { &[] };
        let point = Point::of(grid, cluster, load)
            .at("clients", self.clients)
            .at("replicas", self.replicas)
            .at("sync", self.sync_ms)
            .at("link", self.link_ms.map_or(DIRECT.to_string(), |millis| millis.to_string()))
            .at("log", log)
            .at("KiB", self.kib)
            .at("answers", if self.is_weak { "weak" } else { "strong" })
            .tuned(format!("log-io={log}"))
            .tuned(format!("sync-delay={}ms", self.sync_ms))
            .by(protocol)
            .takes(500 + self.millis());
        match self.link_ms {
            Some(millis) => point.far(Duration::from_millis(millis)),
            None => point,
        }
    }

    /// What a point was measured at.
    pub fn of(at: &At<'_>) -> Option<Plan> {
        let number = |name: &str| at.coordinate(name).parse::<u64>().ok();
        Some(Plan {
            clients: number("clients")?.try_into().ok()?,
            replicas: number("replicas")?.try_into().ok()?,
            sync_ms: number("sync")?,
            link_ms: if at.coordinate("link") == DIRECT { None } else { Some(number("link")?) },
            is_on_thread: at.coordinate("log") == "thread",
            kib: number("KiB")?.try_into().ok()?,
            is_weak: at.coordinate("answers") == "weak",
        })
    }

    fn log(&self) -> &'static str {
        if self.is_on_thread { "thread" } else { "inline" }
    }

    /// Milliseconds that are added to one request, at most.
    fn added_ms(&self) -> u64 {
        2 * self.link_ms.unwrap_or(0) + self.sync_ms * if self.clients == 1 { 1 } else { 2 }
    }

    /// Requests in all: so many that a run takes one to two seconds.
    fn requests(&self) -> u64 {
        let each = match self.added_ms() {
            0 => (25_600 / u64::from(self.clients)).min(1000),
            added => (1500 / added).clamp(60, 300),
        };
        each.min(60_000 / u64::from(self.kib) / u64::from(self.clients)).max(20) * u64::from(self.clients)
    }

    /// About how long a run takes.
    fn millis(&self) -> u64 {
        self.requests() / u64::from(self.clients) * self.added_ms().max(1)
    }

    /// The same for the net: as many requests, from the first one on.
    pub fn of_net(&self) -> petri::Setting {
        petri::Setting {
            replicas: self.replicas,
            payload_bytes: u64::from(self.kib) * 1024,
            window: if self.is_weak { WINDOW } else { 0 },
            weak: if self.is_weak { petri::Weak::Receipt } else { petri::Weak::Off },
            ordered_stream: true,
            requests: self.requests(),
            warm_up: 0,
            ..petri::Setting::raft(self.clients as usize)
        }
    }

    /// The same in words, as short as can be.
    pub fn words(&self) -> String {
        let mut words = vec![crate::judge::clients(&self.clients.to_string())];
        if self.replicas != 3 {
            words.push(format!("{} replicas", self.replicas));
        }
        if 0 < self.sync_ms {
            words.push(format!("syncs +{} ms", self.sync_ms));
        }
        words.extend(self.link_ms.map(|millis| format!("links {millis} ms")));
        words.push(format!("log {}", self.log()));
        if self.kib != 1 {
            words.push(format!("{} KiB", self.kib));
        }
        if self.is_weak {
            words.push("weak answers on receipt".into());
        }
        words.join(", ")
    }
}

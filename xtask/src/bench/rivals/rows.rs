//! The rows of the table: a load each, the sides that are compared under it, and Kattu's goals.
//!
//! Rule: as many operations are under way on each side; keys of 8 bytes (Redis: 16), as many keys on each side.
//! Knows nothing of: how a side is started or loaded.

use super::sample::Figure;

/// A program that a row measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Three members; the build that is measured.
    Kattu,
    /// Three members.
    Etcd,
    /// One server, not replicated, each reply after a sync of its log.
    Redis,
    /// Three members, the clients in the leader's process.
    Dragonboat,
    /// Three members of hashicorp/raft with raft-wal, the clients in the leader's process.
    Hraft,
    /// No store: bare programs that pass on, sync and keep the same bytes, or what the parts of a put take one by one.
    Machine,
}

impl Side {
    /// Its name in the table.
    pub fn name(self) -> &'static str {
        match self {
            Side::Kattu => "Kattu",
            Side::Etcd => "etcd",
            Side::Redis => "Redis, one node",
            Side::Dragonboat => "dragonboat",
            Side::Hraft => "hashicorp/raft",
            Side::Machine => "the machine alone",
        }
    }

    /// Whether its clients run in the process of its leader, so that their CPU is within that of the servers.
    pub fn has_clients_inside(self) -> bool {
        matches!(self, Side::Dragonboat | Side::Hraft)
    }
}

/// Clients of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Clients; each has a session of its own where a face has sessions.
    pub clients: u32,
    /// Their connections.
    pub conns: u32,
    /// Operations that each client has under way.
    pub pipeline: u32,
    /// Bytes of a value.
    pub value_bytes: u32,
}

impl Shape {
    /// Operations under way.
    pub fn under_way(self) -> u32 {
        self.clients * self.pipeline
    }

    /// Operations that come first and are not measured.
    pub fn warm_up(self) -> u64 {
        (u64::from(self.under_way()) * 40).clamp(500, 100_000)
    }
}

/// Operations of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Calls {
    /// 100,000 keys are written, in random order (by etcd's tool: in turn).
    Put,
    /// A quorum confirms the leader for a group of reads.
    ReadIndex,
    /// The leader reads under its lease.
    ReadLease,
    /// From the member's own state.
    ReadLocal,
}

/// What a row measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Kattu's native protocol.
    Native(Shape, Calls),
    /// etcd's API, loaded by etcd's own benchmark tool; reads are of one key.
    Etcd(Shape, Calls),
    /// CPU of three members without clients.
    Idle,
    /// Until one of three members serves again.
    Start,
}

/// The side of a goal's limit on which the figure lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// At least.
    AtLeast,
    /// At most.
    AtMost,
}

/// What the release must reach.
#[derive(Clone, Copy, Debug)]
pub struct Goal {
    /// The median of this figure.
    pub figure: Figure,
    /// Where it lies.
    pub bound: Bound,
    /// The limit, in the figure's unit; a ratio with `times`.
    pub limit: f64,
    /// The figure is divided by this side's.
    pub times: Option<Side>,
}

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Its name, for `--only`, too.
    pub name: &'static str,
    /// The load in words.
    pub about: &'static str,
    /// The load.
    pub work: Work,
    /// Beside Kattu.
    pub rivals: &'static [Side],
    /// Kattu's.
    pub goals: &'static [Goal],
}

const fn at_least(figure: Figure, limit: f64) -> Goal {
    Goal { figure, bound: Bound::AtLeast, limit, times: None }
}

const fn at_most(figure: Figure, limit: f64) -> Goal {
    Goal { figure, bound: Bound::AtMost, limit, times: None }
}

const fn of_etcd(goal: Goal) -> Goal {
    Goal { times: Some(Side::Etcd), ..goal }
}

const fn pipelined(value_bytes: u32) -> Shape {
    Shape { clients: 8, conns: 8, pipeline: 128, value_bytes }
}

/// Two cores put faster, and for less, the more puts come together. With twice as many, dragonboat refuses some.
const fn pipelined_puts(value_bytes: u32) -> Shape {
    Shape { pipeline: 256, ..pipelined(value_bytes) }
}

const fn clients(clients: u32, conns: u32, value_bytes: u32) -> Shape {
    Shape { clients, conns, pipeline: 1, value_bytes }
}

/// In the order in which they run.
pub const ROWS: &[Row] = &[
    Row {
        name: "put-16",
        about: "native, 8 sessions with 256 puts of 16 B under way in each",
        work: Work::Native(pipelined_puts(16), Calls::Put),
        rivals: &[Side::Dragonboat, Side::Redis, Side::Machine],
        goals: &[at_least(Figure::Rate, 500_000.0), at_most(Figure::ServerCpu, 4.0)],
    },
    Row {
        name: "put-256",
        about: "the same, 256 B",
        work: Work::Native(pipelined_puts(256), Calls::Put),
        rivals: &[Side::Dragonboat, Side::Redis, Side::Machine],
        goals: &[at_least(Figure::Rate, 350_000.0), at_most(Figure::ServerCpu, 5.5)],
    },
    Row {
        name: "put-clients",
        about: "native, 256 clients of one program on 8 connections, one put of 256 B under way in each",
        work: Work::Native(clients(256, 8, 256), Calls::Put),
        rivals: &[Side::Dragonboat, Side::Redis, Side::Machine],
        goals: &[at_least(Figure::Rate, 80_000.0)],
    },
    Row {
        name: "put-conns",
        about: "the same, on connections of their own",
        work: Work::Native(clients(256, 256, 256), Calls::Put),
        rivals: &[Side::Redis],
        goals: &[],
    },
    Row {
        name: "put-one",
        about: "native, one client, 256 B",
        work: Work::Native(clients(1, 1, 256), Calls::Put),
        rivals: &[Side::Etcd, Side::Hraft, Side::Machine],
        goals: &[at_most(Figure::P50, 0.48)],
    },
    Row {
        name: "read-index",
        about: "native, 8 clients with 128 linearizable reads of 256 B under way in each, by read index",
        work: Work::Native(pipelined(256), Calls::ReadIndex),
        rivals: &[Side::Dragonboat],
        goals: &[at_least(Figure::Rate, 700_000.0)],
    },
    Row {
        name: "read-lease",
        about: "the same with --lease-reads; dragonboat has no leases and reads by read index",
        work: Work::Native(pipelined(256), Calls::ReadLease),
        rivals: &[Side::Dragonboat],
        goals: &[at_least(Figure::Rate, 1_000_000.0)],
    },
    Row {
        name: "read-local",
        about: "the same, serializable; dragonboat's StaleRead is a call within the process",
        work: Work::Native(pipelined(256), Calls::ReadLocal),
        rivals: &[Side::Dragonboat],
        goals: &[at_least(Figure::Rate, 1_500_000.0)],
    },
    Row {
        name: "etcd-put-256",
        about: "etcd's API, 256 clients on 100 connections, 256 B",
        work: Work::Etcd(clients(256, 100, 256), Calls::Put),
        rivals: &[Side::Etcd, Side::Machine],
        goals: &[of_etcd(at_most(Figure::ServerCpu, 1.0 / 8.0)), of_etcd(at_most(Figure::P99, 1.0 / 5.0))],
    },
    Row {
        name: "etcd-put-one",
        about: "etcd's API, one client, 256 B; the machine alone: the face, and two of three synced",
        work: Work::Etcd(clients(1, 1, 256), Calls::Put),
        rivals: &[Side::Etcd, Side::Machine],
        goals: &[of_etcd(at_most(Figure::P50, 0.5))],
    },
    Row {
        name: "etcd-put-4k",
        about: "etcd's API, 256 clients on 100 connections, 4 KiB",
        work: Work::Etcd(clients(256, 100, 4096), Calls::Put),
        rivals: &[Side::Etcd, Side::Machine],
        goals: &[of_etcd(at_least(Figure::Rate, 4.0)), of_etcd(at_most(Figure::ServerCpu, 1.0 / 6.0))],
    },
    Row {
        name: "etcd-range-l",
        about: "etcd's API, 256 clients on 100 connections, linearizable",
        work: Work::Etcd(clients(256, 100, 256), Calls::ReadIndex),
        rivals: &[Side::Etcd],
        goals: &[of_etcd(at_most(Figure::ServerCpu, 1.0 / 5.0))],
    },
    Row {
        name: "etcd-range-s",
        about: "the same, serializable",
        work: Work::Etcd(clients(256, 100, 256), Calls::ReadLocal),
        rivals: &[Side::Etcd],
        goals: &[of_etcd(at_most(Figure::ServerCpu, 1.0 / 4.0))],
    },
    Row {
        name: "idle",
        about: "CPU of three members together, without clients; the machine alone: their heartbeats",
        work: Work::Idle,
        rivals: &[Side::Etcd, Side::Machine],
        goals: &[at_most(Figure::Busy, 0.3)],
    },
    Row {
        name: "start",
        about: "a follower with all keys starts while the others serve, until /health answers that it serves; the machine alone: \
                reads its files, and writes to as much memory as it has",
        work: Work::Start,
        rivals: &[Side::Etcd, Side::Machine],
        goals: &[at_most(Figure::Start, 0.6)],
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_names_of_their_own_and_goals_only_about_sides_that_they_measure() {
        for (place, row) in ROWS.iter().enumerate() {
            assert!(ROWS[..place].iter().all(|other| other.name != row.name), "{}", row.name);
            assert!(!row.rivals.contains(&Side::Kattu), "{}", row.name);
            for side in row.goals.iter().filter_map(|goal| goal.times) {
                assert!(row.rivals.contains(&side), "{}: {side:?}", row.name);
            }
        }
    }

    #[test]
    fn a_warm_up_is_neither_empty_nor_longer_than_the_load() {
        assert_eq!(clients(1, 1, 256).warm_up(), 500);
        assert_eq!(clients(256, 100, 256).warm_up(), 10_240);
        assert_eq!(pipelined(16).warm_up(), 40_960);
    }
}

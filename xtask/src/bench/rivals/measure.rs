//! One run of one side under one row: fresh servers, a warm-up, the load, and nothing left behind.
//!
//! Knows nothing of: other runs.

use super::bare;
use super::embedded::Embedded;
use super::load::{self, PUT_KEYS, Timing};
use super::programs::Programs;
use super::redis::Server;
use super::rest;
use super::rows::{Calls, Row, Shape, Side, Work};
use super::sample::{Figure, Sample};
use crate::bench::baseline;
use crate::bench::cells;
use crate::bench::cluster::{self, Cluster, Program};
use crate::bench::counts;
use crate::bench::meter::{self, Meter};
use crate::shell::{self, Failure};
use std::path::PathBuf;

/// What all runs share.
pub struct Bench {
    /// Those that take part.
    pub programs: Programs,
    /// Of every load.
    pub timing: Timing,
    /// Keys that reads and starts find.
    pub keys: u64,
}

/// Clients of a dragonboat cluster up to which its log Tan is the faster of two.
const TAN_CLIENTS_MAX: u32 = 256;

impl Bench {
    /// Measures one side; its servers have the loopback addresses of `number`.
    pub fn run(&self, row: &Row, side: Side, number: usize) -> Result<Sample, Failure> {
        match (row.work, side) {
            (Work::Idle, Side::Machine) => rest::heartbeats(self.timing),
            (Work::Idle, _) => {
                let cluster = self.cluster(&self.programs.with_etcds_flags(side)?, number)?;
                Ok(rest::idle(&cluster.pids(), self.timing))
            }
            (Work::Start, Side::Machine) => {
                let mut cluster = self.cluster(&self.programs.with_etcds_flags(Side::Kattu)?, number)?;
                let follower = self.filled(Side::Kattu, &cluster)?;
                rest::start(&mut cluster)?;
                let memory = meter::anonymous_bytes(cluster.pids()[follower]);
                bare::read(&cluster.data_dir(follower), memory)
            }
            (Work::Start, _) => {
                let cluster = self.cluster(&self.programs.with_etcds_flags(side)?, number)?;
                self.start(side, cluster)
            }
            (Work::Native(shape, _), Side::Machine) => bare::puts(self.timing, shape, &folder("bare")),
            (Work::Etcd(shape, _), Side::Machine) if shape.under_way() == 1 => machine(),
            (Work::Etcd(shape, _), Side::Machine) => {
                let tool = self.programs.benchmark.clone().map_err(Failure::new)?;
                bare::etcd_puts(self.timing, &tool, shape, &folder("bare"))
            }
            (Work::Etcd(shape, calls), _) | (Work::Native(shape, calls), Side::Etcd) => {
                self.through_etcds_api(side, shape, calls, number)
            }
            (Work::Native(shape, calls), Side::Kattu) => self.native(shape, calls, number),
            (Work::Native(shape, _), Side::Redis) => self.redis(shape, number),
            (Work::Native(shape, calls), Side::Dragonboat | Side::Hraft) => {
                self.embedded(side, shape, calls, number)
            }
        }
    }

    fn cluster(&self, program: &Program, number: usize) -> Result<Cluster, Failure> {
        Cluster::start(program, &folder(program.name), number, &self.programs.etcdctl)
    }

    fn native(&self, shape: Shape, calls: Calls, number: usize) -> Result<Sample, Failure> {
        let flags: &[&str] = if calls == Calls::ReadLease { &["--lease-reads"] } else { &[] };
        let cluster = self.cluster(&self.programs.members_of_kattu(flags), number)?;
        let leader = leader_of(&cluster)?;
        let (kattu, endpoint) = (self.programs.kattu(), cluster.endpoint(leader));
        let keys = if calls == Calls::Put { PUT_KEYS } else { self.keys };
        if calls != Calls::Put {
            load::fill_native(kattu, endpoint, shape.value_bytes, keys)?;
        }
        let sample = self.timing.measure(&cluster.pids(), shape, |total| {
            load::native(kattu, endpoint, shape, calls, keys, total)
        })?;
        led_throughout(&cluster, leader)?;
        // Without it the leader asks a quorum, and the row would show something else.
        if calls == Calls::ReadLease && counts::fact(endpoint, "kattu_has_leader_lease")? != 1.0 {
            return Err(Failure::new("the leader has no lease"));
        }
        Ok(sample)
    }

    fn through_etcds_api(
        &self,
        side: Side,
        shape: Shape,
        calls: Calls,
        number: usize,
    ) -> Result<Sample, Failure> {
        let cluster = self.cluster(&self.programs.with_etcds_flags(side)?, number)?;
        let tool = self.programs.benchmark.clone().map_err(Failure::new)?;
        let leader = leader_of(&cluster)?;
        cluster.etcdctl(&["put", cells::RANGE_KEY, &"x".repeat(shape.value_bytes as usize)])?;
        let endpoints = cluster.endpoints();
        let sample = self
            .timing
            .measure(&cluster.pids(), shape, |total| load::etcd(&tool, &endpoints, shape, calls, total))?;
        led_throughout(&cluster, leader)?;
        Ok(sample)
    }

    fn start(&self, side: Side, mut cluster: Cluster) -> Result<Sample, Failure> {
        self.filled(side, &cluster)?;
        self.timing.wait(&cluster.pids());
        rest::start(&mut cluster)
    }

    /// Writes all keys; returns a follower.
    fn filled(&self, side: Side, cluster: &Cluster) -> Result<usize, Failure> {
        const VALUE_BYTES: u32 = 256;
        let leader = leader_of(cluster)?;
        match side {
            // Single puts: as many entries as keys.
            Side::Kattu => {
                let kattu = self.programs.kattu();
                load::fill_native(kattu, cluster.endpoint(leader), VALUE_BYTES, self.keys)?;
            }
            _ => {
                let tool = self.programs.benchmark.clone().map_err(Failure::new)?;
                load::fill_etcd(&tool, cluster, VALUE_BYTES, self.keys)?;
            }
        }
        Ok((leader + 1) % cluster::MEMBERS)
    }

    fn redis(&self, shape: Shape, number: usize) -> Result<Sample, Failure> {
        let programs = self.programs.rival(Side::Redis)?;
        let host = &cluster::hosts(number)[0];
        let folder = folder("redis");
        let server = Server::start(&programs, &folder, host)?;
        self.timing.measure(&[server.pid()], shape, |total| load::redis(&programs, host, shape, total))
    }

    fn embedded(&self, side: Side, shape: Shape, calls: Calls, number: usize) -> Result<Sample, Failure> {
        let clients = shape.under_way();
        let flags: &[&str] = match side {
            Side::Dragonboat if calls == Calls::Put && clients <= TAN_CLIENTS_MAX => &["-tan"],
            _ => &[],
        };
        let mut members = Embedded::start(&self.programs.rival(side)?, flags, &folder("embedded"), number)?;
        let leader = members.leader()?;
        let (bytes, seconds) = (shape.value_bytes, self.timing.seconds);
        let (verb, keys) = match calls {
            Calls::Put => ("put", PUT_KEYS),
            Calls::ReadIndex | Calls::ReadLease => ("read", self.keys),
            Calls::ReadLocal => ("local", self.keys),
        };
        if calls != Calls::Put {
            members.load(leader, &format!("fill {clients} {keys} {bytes}"))?;
        }
        members.load(leader, &format!("{verb} {clients} 1 {bytes} {keys}"))?; // warm-up
        let leader = members.leader()?;
        self.timing.wait(&members.pids());
        let meter = Meter::start(&members.pids());
        let report = members.load(leader, &format!("{verb} {clients} {seconds} {bytes} {keys}"))?;
        Ok(Sample::of_load(report, &meter.stop(), true))
    }
}

/// The same folder for all runs of a program, on one disk.
fn folder(name: &str) -> PathBuf {
    shell::root().join("target/bench/data").join(name)
}

/// What a put by one client cannot be quicker than through etcd's API: the face, and two of three syncs.
fn machine() -> Result<Sample, Failure> {
    let least = baseline::syncs()?.two + baseline::face()?;
    Ok(Sample::of(Figure::P50, least.as_secs_f64() * 1e3))
}

fn leader_of(cluster: &Cluster) -> Result<usize, Failure> {
    cluster.leader().ok_or_else(|| Failure::new("the leader went away"))
}

fn led_throughout(cluster: &Cluster, leader: usize) -> Result<(), Failure> {
    match leader_of(cluster)? == leader {
        true => Ok(()),
        false => Err(Failure::new("the leader changed during the run: the figures would be mixed")),
    }
}

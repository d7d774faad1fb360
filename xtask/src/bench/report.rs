//! The table of a bench, and its JSON.
//!
//! Medians with their spread, ratios between the sides, and whether each goal holds. Slow runs are included.
//! Knows nothing of: how the figures were taken.

use super::cells::{CELLS, Cell, Goal, Tool, ToolReport};
use super::meter::Reading;
use crate::shell::{self, Failure};
use serde_json::{Value, json};
use std::path::PathBuf;

/// Date, commit and machine of a bench.
pub struct Header {
    date: String,
    commit: String,
    is_dirty: bool,
    cores: usize,
    processor: String,
    kernel: String,
    pairs: usize,
    is_quick: bool,
}

/// One cell of one side of one pair.
pub struct Run {
    /// `etcd` or `kattu`.
    pub side: &'static str,
    /// The cell.
    pub cell: Cell,
    /// Number of the pair, from 0.
    pub pair: usize,
    /// Operations done.
    pub total: u64,
    /// The tool's report.
    pub tool: ToolReport,
    /// The place of the leader.
    pub leader: usize,
    /// Whether it still led afterwards.
    pub is_leader_stable: bool,
    /// Resources that the processes used.
    pub reading: Reading,
    /// Memory of each member after the cell.
    pub rss_after_bytes: Vec<u64>,
    /// Memory of the largest member before any load.
    pub idle_rss_bytes: u64,
    /// Share of a core that an idle member uses.
    pub idle_cpu_share: f64,
}

impl Header {
    /// Reads them from the machine.
    pub fn now(pairs: usize, is_quick: bool) -> Header {
        let changes = shell::changes().unwrap_or_default();
        let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let processor = cpuinfo.lines().find_map(|line| {
            line.strip_prefix("model name")?.split_once(':').map(|(_, name)| name.trim().to_string())
        });
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Header {
            date: shell::date(),
            commit: shell::commit_of("HEAD").unwrap_or_else(|| "none".to_string()),
            is_dirty: !changes.trim().is_empty(),
            cores: std::thread::available_parallelism().map(usize::from).unwrap_or(0),
            processor: processor.unwrap_or_default(),
            kernel: kernel.trim().to_string(),
            pairs,
            is_quick,
        }
    }

    /// Now, as UTC text.
    pub fn date(&self) -> &str {
        &self.date
    }

    /// Cores of the machine.
    pub fn cores(&self) -> usize {
        self.cores
    }

    /// The first twelve digits of the commit's id; `none` outside a clone.
    pub fn commit(&self) -> &str {
        self.commit.get(..12).unwrap_or(&self.commit)
    }

    /// The number of cores and their model.
    pub fn machine(&self) -> String {
        format!("{} cores {}", self.cores, self.processor)
    }

    /// Prints them on one line.
    pub fn print(&self) {
        println!(
            "{} · commit {}{} · {} · Linux {} · {} pair(s){}",
            self.date,
            self.commit(),
            if self.is_dirty { " with changes" } else { "" },
            self.machine(),
            self.kernel,
            self.pairs,
            if self.is_quick { ", quick: a tenth of the operations" } else { "" }
        );
    }

    /// The same as JSON.
    pub fn json(&self) -> Value {
        json!({
            "date": self.date, "commit": self.commit, "uncommitted_changes": self.is_dirty, "cores": self.cores,
            "processor": self.processor, "kernel": self.kernel, "pairs": self.pairs, "quick": self.is_quick,
            "etcd": crate::tools::ETCD_VERSION, "benchmark_tool": crate::tools::BENCHMARK_VERSION,
        })
    }
}

impl Run {
    fn cpu_s(&self, member: usize) -> f64 {
        self.reading.used.get(member).map(|used| used.user_s + used.system_s).unwrap_or(0.0)
    }

    /// CPU of all servers per operation, microseconds.
    fn cpu_us(&self) -> f64 {
        (0..self.reading.used.len()).map(|member| self.cpu_s(member)).sum::<f64>() / self.total as f64 * 1e6
    }

    fn leader_cpu_us(&self) -> f64 {
        self.cpu_s(self.leader) / self.total as f64 * 1e6
    }

    /// CPU of one follower, on average.
    fn follower_cpu_us(&self) -> f64 {
        (self.cpu_us() - self.leader_cpu_us()) / (self.reading.used.len() - 1) as f64
    }

    fn system_share(&self) -> f64 {
        let system: f64 = self.reading.used.iter().map(|used| used.system_s).sum();
        let all: f64 = self.reading.used.iter().map(|used| used.user_s + used.system_s).sum();
        if all == 0.0 { 0.0 } else { system / all }
    }

    fn switches(&self) -> f64 {
        self.reading.used.iter().map(|used| used.switches).sum::<u64>() as f64 / self.total as f64
    }

    fn rss_mib(&self) -> f64 {
        self.rss_after_bytes.iter().max().copied().unwrap_or(0) as f64 / f64::from(1 << 20)
    }

    fn idle_rss_mib(&self) -> f64 {
        self.idle_rss_bytes as f64 / f64::from(1 << 20)
    }

    fn client_cpu_us(&self) -> f64 {
        self.reading.client_s / self.total as f64 * 1e6
    }

    fn other_cores(&self) -> f64 {
        self.reading.other_cores
    }

    /// Prints a line while the bench goes on.
    pub fn print(&self) {
        println!(
            "pair {} {:<6} {:<12} {:>8.0}/s  p50 {:>7.3} ms  p99 {:>8.3} ms  CPU {:>7.1} us/op  switches {:>6.2}/op  others {:.2} cores{}{}",
            self.pair + 1,
            self.side,
            self.cell.name,
            self.tool.ops_per_s,
            self.tool.p50_us / 1e3,
            self.tool.p99_us / 1e3,
            self.cpu_us(),
            self.switches(),
            self.other_cores(),
            if self.tool.has_errors { "  ERRORS" } else { "" },
            if self.is_leader_stable { "" } else { "  THE LEADER CHANGED" },
        );
    }

    fn json(&self) -> Value {
        json!({
            "side": self.side, "cell": self.cell.name, "pair": self.pair + 1, "total": self.total,
            "clients": self.cell.clients, "conns": self.cell.conns,
            "ops_per_s": self.tool.ops_per_s, "p50_us": self.tool.p50_us, "p99_us": self.tool.p99_us,
            "p999_us": self.tool.p999_us, "errors": self.tool.has_errors, "wall_s": self.reading.wall_s,
            "server_cpu_us_per_op": self.cpu_us(), "leader_cpu_us_per_op": self.leader_cpu_us(),
            "follower_cpu_us_per_op": self.follower_cpu_us(), "system_share": self.system_share(),
            "client_cpu_us_per_op": self.client_cpu_us(), "switches_per_op": self.switches(),
            "rss_after_bytes": self.rss_after_bytes, "idle_rss_bytes": self.idle_rss_bytes,
            "idle_cpu_share": self.idle_cpu_share, "other_cores": self.other_cores(),
            "stolen_cores": self.reading.stolen_cores, "leader": self.leader, "leader_stable": self.is_leader_stable,
        })
    }
}

/// The median of one figure of several runs; NaN if there is none.
pub fn median_of<R>(runs: &[R], figure: fn(&R) -> f64) -> f64 {
    median(runs.iter().map(figure).collect()).unwrap_or(f64::NAN)
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => None,
        n if n % 2 == 1 => Some(values[n / 2]),
        n => Some((values[n / 2 - 1] + values[n / 2]) / 2.0),
    }
}

type Figure = (&'static str, fn(&Run) -> f64);

const FIGURES: &[Figure] = &[
    ("ops/s", |run| run.tool.ops_per_s),
    ("p50 ms", |run| run.tool.p50_us / 1e3),
    ("p99 ms", |run| run.tool.p99_us / 1e3),
    ("p99.9 ms", |run| run.tool.p999_us / 1e3),
    ("server CPU us/op", Run::cpu_us),
    ("leader CPU us/op", Run::leader_cpu_us),
    ("follower CPU us/op", Run::follower_cpu_us),
    ("system share of CPU", Run::system_share),
    ("switches/op", Run::switches),
    ("tool CPU us/op", Run::client_cpu_us),
    ("largest RSS MiB", Run::rss_mib),
    ("others' cores", Run::other_cores),
];

/// Figures of a cluster before any load; one per pair.
const IDLE_FIGURES: &[Figure] =
    &[("RSS MiB", Run::idle_rss_mib), ("CPU % of a core", |run| run.idle_cpu_share * 100.0)];

fn values(runs: &[Run], side: &str, cell: &str, figure: fn(&Run) -> f64) -> Vec<f64> {
    // The tool omits percentiles for which it has too few operations.
    let of_cell = runs.iter().filter(|run| run.side == side && run.cell.name == cell);
    of_cell.map(figure).filter(|value| value.is_finite()).collect()
}

/// Name of the other Kattu binary.
pub const OTHER: &str = "other";

/// Figures by which two Kattu binaries are compared: the lower the better.
const COMPARED: &[Figure] = &[
    ("time per op", |run| 1.0 / run.tool.ops_per_s),
    ("p50", |run| run.tool.p50_us),
    ("p99", |run| run.tool.p99_us),
    ("server CPU per op", Run::cpu_us),
];

/// Prints the head of the table that [`judge_ratios`] fills.
pub fn print_ratios_head() {
    println!("\n| this / other, within pairs | median | min..max | |\n|---|---:|---:|---|");
}

/// Prints a line about a figure's ratios within the pairs; true if this program is worse in every pair: a difference beyond
/// their spread.
pub fn judge_ratios(name: &str, ratios: &[f64]) -> bool {
    let Some(middle) = median(ratios.to_vec()) else { return false };
    let (low, high) = ratios.iter().fold((f64::MAX, 0.0_f64), |(low, high), r| (low.min(*r), high.max(*r)));
    let is_worse = 1.0 < low;
    let verdict = if is_worse { "WORSE" } else { "no worse" };
    println!("| {name} | {middle:.3} | {low:.2}..{high:.2} | {verdict} |");
    is_worse
}

/// Prints the ratios of this Kattu and the other within each pair, and returns the figures that are worse in every
/// pair.
pub fn judge_pairs(runs: &[Run]) -> Vec<String> {
    let mut worse = Vec::new();
    print_ratios_head();
    for cell in CELLS {
        for (name, figure) in COMPARED {
            let of = |side: &str, pair: usize| {
                let run =
                    runs.iter().find(|run| (run.side, run.cell.name, run.pair) == (side, cell.name, pair));
                run.map(figure).filter(|value| value.is_finite())
            };
            let pairs = runs.iter().map(|run| run.pair + 1).max().unwrap_or(0);
            let ratios: Vec<f64> =
                (0..pairs).filter_map(|pair| Some(of("kattu", pair)? / of(OTHER, pair)?)).collect();
            let name = format!("{name} of {}", cell.name);
            if judge_ratios(&name, &ratios) {
                worse.push(name);
            }
        }
    }
    worse
}

/// The highest ratio of a count of this Kattu to that of another, in the median.
const PRICE: f64 = 1.03;

/// Prints the head of the table that [`price`] fills.
pub fn print_price_head() {
    println!("\n| counted | this, median | other, median | this / other | |\n|---|---:|---:|---:|---|");
}

/// Prints a line of a comparison by counts. Returns it if this binary costs more: in the median by more than 3 %, and
/// beyond the spread of the runs (its lowest is above the other's highest).
pub fn price(name: &str, this: &[f64], other: &[f64]) -> Option<String> {
    let (mine, others) = (median(this.to_vec())?, median(other.to_vec())?);
    let least = this.iter().copied().fold(f64::MAX, f64::min);
    let most = other.iter().copied().fold(0.0, f64::max);
    let is_dearer = others * PRICE < mine && most < least;
    let verdict = if is_dearer { "DEARER" } else { "no dearer" };
    let ratio = if mine == others { 1.0 } else { mine / others }; // 0 of 0 is as much
    println!("| {name} | {mine:.3} | {others:.3} | {ratio:.3} | {verdict} |");
    is_dearer.then(|| name.to_string())
}

/// The verdict on all lines of a comparison by counts.
pub fn judge_price(dearer: &[String]) -> Result<(), Failure> {
    match dearer {
        [] => Ok(()),
        _ => Err(Failure::new(format!("dearer than the other by more than 3 %: {}", dearer.join("; ")))),
    }
}

/// Prints the table, as Markdown, and the goals; returns the goals that are missed.
pub fn print(runs: &[Run], base: &str) -> Vec<String> {
    let mut missed = Vec::new();
    let shown = if base == OTHER { "other".into() } else { format!("etcd {}", crate::tools::ETCD_VERSION) };
    println!("\n| cell | figure | {shown} | min..max | Kattu | min..max | Kattu / {base} |");
    println!("|---|---|---:|---:|---:|---:|---:|");
    for cell in CELLS {
        for (name, figure) in FIGURES {
            print_row(runs, base, (cell.name, cell.name), name, *figure);
        }
    }
    let first = CELLS.iter().find(|cell| runs.iter().any(|run| run.cell.name == cell.name));
    for (name, figure) in IDLE_FIGURES {
        print_row(runs, base, (first.map_or("", |cell| cell.name), "idle"), name, *figure);
    }
    println!();
    for cell in CELLS {
        for goal in cell.goals {
            if let Some((line, holds)) = judge(runs, cell, *goal) {
                println!("{line}");
                missed.extend((!holds).then_some(line));
            }
        }
    }
    if let Some(idle) = median(runs.iter().filter(|run| run.side == "kattu").map(Run::idle_rss_mib).collect())
    {
        let verdict = if idle < 40.0 { "holds" } else { "DOES NOT HOLD" };
        let line = format!("goal idle memory of a node < 40 MiB: {idle:.1} {verdict}");
        println!("{line}");
        missed.extend((40.0 <= idle).then_some(line));
    }
    missed
}

fn print_row(runs: &[Run], base: &str, (cell, shown): (&str, &str), name: &str, figure: fn(&Run) -> f64) {
    let side = |side: &str| {
        let values = values(runs, side, cell, figure);
        let spread = values.iter().copied().fold(None, |spread: Option<(f64, f64)>, value| match spread {
            None => Some((value, value)),
            Some((low, high)) => Some((low.min(value), high.max(value))),
        });
        (median(values), spread)
    };
    let (etcd, etcd_spread) = side(base);
    let (kattu, kattu_spread) = side("kattu");
    if etcd.is_none() && kattu.is_none() {
        return;
    }
    let ratio = match (etcd, kattu) {
        (Some(etcd), Some(kattu)) if etcd != 0.0 => format!("{:.2}", kattu / etcd),
        _ => String::new(),
    };
    let (etcd, kattu) = (number(etcd), number(kattu));
    let (etcd_spread, kattu_spread) = (range(etcd_spread), range(kattu_spread));
    println!("| {shown} | {name} | {etcd} | {etcd_spread} | {kattu} | {kattu_spread} | {ratio} |");
}

fn judge(runs: &[Run], cell: &Cell, goal: Goal) -> Option<(String, bool)> {
    let ratio = |figure: fn(&Run) -> f64| {
        let etcd = median(values(runs, "etcd", cell.name, figure))?;
        let kattu = median(values(runs, "kattu", cell.name, figure))?;
        (etcd != 0.0).then_some(kattu / etcd)
    };
    let (text, ratio, holds): (String, f64, bool) = match goal {
        Goal::RateAtLeast(times) => {
            let ratio = ratio(|run| run.tool.ops_per_s)?;
            (format!("ops/s >= {times:.2} of etcd's"), ratio, times <= ratio)
        }
        Goal::CpuAtMost(times) => {
            let ratio = ratio(Run::cpu_us)?;
            (format!("server CPU per op <= {times:.2} of etcd's"), ratio, ratio <= times)
        }
        Goal::MedianAtMost(times) => {
            let ratio = ratio(|run| run.tool.p50_us)?;
            (format!("p50 <= {times:.2} of etcd's"), ratio, ratio <= times)
        }
        Goal::TailAtMost(times) => {
            let ratio = ratio(|run| run.tool.p99_us)?;
            (format!("p99 <= {times:.2} of etcd's"), ratio, ratio <= times)
        }
    };
    let verdict = if holds { "holds" } else { "DOES NOT HOLD" };
    Some((format!("goal {} {text}: {ratio:.2} {verdict}", cell.name), holds))
}

fn number(value: Option<f64>) -> String {
    match value {
        None => "-".to_string(),
        Some(value) if 1000.0 <= value => format!("{value:.0}"),
        Some(value) if 10.0 <= value => format!("{value:.1}"),
        Some(value) => format!("{value:.2}"),
    }
}

fn range(spread: Option<(f64, f64)>) -> String {
    spread.map(|(low, high)| format!("{}..{}", number(Some(low)), number(Some(high)))).unwrap_or_default()
}

/// Writes every run to a file, from which the table can be made again.
pub fn save(header: &Header, tool: Tool, runs: &[Run]) -> Result<PathBuf, Failure> {
    let folder = shell::root().join("target/bench");
    std::fs::create_dir_all(&folder)?;
    let path = folder.join(format!("etcd-{}.json", header.date.replace(':', "")));
    let load = match tool {
        Tool::Etcd => "etcd's benchmark",
        Tool::Kattu => "kattu bench",
    };
    let all = json!({ "header": header.json(), "load": load, "runs": runs.iter().map(Run::json).collect::<Vec<_>>() });
    std::fs::write(&path, format!("{all:#}\n"))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dearer_is_above_three_percent_and_beyond_the_spread() {
        let is_dearer = |this: &[f64], other: &[f64]| price("bytes", this, other).is_some();
        assert!(is_dearer(&[104.0, 105.0, 104.0], &[100.0, 101.0, 100.0]));
        assert!(!is_dearer(&[102.0, 103.0, 102.0], &[100.0, 101.0, 100.0]), "within 3 %");
        assert!(!is_dearer(&[104.0, 99.0, 105.0], &[100.0, 101.0, 100.0]), "one run was not");
        assert!(!is_dearer(&[90.0], &[100.0]), "cheaper");
        assert!(is_dearer(&[1.0], &[0.0]), "of what the other does not do at all, anything is dear");
        assert!(judge_price(&["bytes".into()]).is_err() && judge_price(&[]).is_ok());
    }

    #[test]
    fn the_median_stands_in_the_middle() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }
}

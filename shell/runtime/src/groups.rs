//! Control groups: how much memory they leave to this process.
//!
//! In:    the kernel's list of the process's groups, and the files of those groups.
//! Out:   the least limit that binds it, and what is left below the limit that is nearest.
//! Rule:  A limit binds all processes in its group and in the groups below it. So each group counts, from the process's
//!        own up to the root, in both versions of control groups; memory that other processes use of it counts, too.
//!        [kernel cgroup-v2.rst: memory.max; cgroup-v1/memory.rst §6]
//! Knows nothing of: the machine's memory, what a limit is for.

use std::path::{Component, Path, PathBuf};

/// The memory that control groups leave to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Allowance {
    /// The least limit, in bytes; `u64::MAX` without one.
    pub(crate) limit: u64,
    /// Bytes that may still be taken before a limit is met; `u64::MAX` without one.
    pub(crate) left: u64,
}

impl Allowance {
    const BOUNDLESS: Allowance = Allowance { limit: u64::MAX, left: u64::MAX };

    /// What both leave.
    fn and(self, other: Allowance) -> Allowance {
        Allowance { limit: self.limit.min(other.limit), left: self.left.min(other.left) }
    }
}

/// What this process may take. A small file is read for each of its groups, and two more for each with a limit.
pub(crate) fn of_this_process() -> Allowance {
    let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    allowed(Path::new("/sys/fs/cgroup"), &own)
}

/// One version of control groups: where its files are, and what they are called.
struct Version {
    /// Below the place where control groups are mounted.
    mount: &'static str,
    limit: &'static str,
    held: &'static str,
    /// The part of it that is page cache not in use: the kernel reclaims it before it kills a process. A name in
    /// `memory.stat`, of the whole group with those below it.
    idle: &'static str,
}

const VERSIONS: [Version; 2] = [
    Version { mount: "", limit: "memory.max", held: "memory.current", idle: "inactive_file " },
    Version {
        mount: "memory",
        limit: "memory.limit_in_bytes",
        held: "memory.usage_in_bytes",
        idle: "total_inactive_file ",
    },
];

/// Limits from here on are none: version 1 reports about 2^63 for a group without one.
const NO_LIMIT: u64 = 1 << 60;

/// What is left to a process in these groups (`/proc/self/cgroup`), whose files are below `root`.
fn allowed(root: &Path, own: &str) -> Allowance {
    let groups = VERSIONS.iter().zip(own_groups(own));
    let all = groups.flat_map(|(version, own)| {
        let mount = root.join(version.mount);
        // In a container the kernel may name the group as the host sees it, and show only that group's files: they are
        // the root of what is mounted, and the groups of that name are not to be found.
        let ways = own.ancestors().map(|group| mount.join(group)).collect::<Vec<_>>();
        ways.into_iter().filter_map(|group| allowed_by(version, &group))
    });
    all.fold(Allowance::BOUNDLESS, Allowance::and)
}

/// The process's group in each of [`VERSIONS`], as a path below its mount: empty for the root, or if none is named.
fn own_groups(own: &str) -> [PathBuf; 2] {
    let of = |is_meant: fn(&str, &str) -> bool| {
        let named = own.lines().find_map(|line| {
            let (number, rest) = line.split_once(':')?;
            let (controllers, path) = rest.split_once(':')?;
            is_meant(number, controllers).then_some(path)
        });
        // A group outside of what this process may see is named by way of `..`.
        let parts = Path::new(named.unwrap_or_default()).components();
        parts.filter(|part| matches!(part, Component::Normal(_))).collect()
    };
    [
        of(|number, controllers| number == "0" && controllers.is_empty()),
        of(|_, controllers| controllers.split(',').any(|controller| controller == "memory")),
    ]
}

/// What one group leaves; none if it has no limit, or none that can be read: then what it holds is not asked, which costs the
/// kernel a sum over all of its groups and processors.
fn allowed_by(version: &Version, group: &Path) -> Option<Allowance> {
    let text = |name: &str| std::fs::read_to_string(group.join(name)).ok();
    let number = |name: &str| text(name)?.trim().parse::<u64>().ok();
    let limit = number(version.limit).filter(|limit| *limit < NO_LIMIT)?;
    let held = number(version.held).unwrap_or(0);
    let idle = text("memory.stat").and_then(|stat| {
        let line = stat.lines().find_map(|line| line.strip_prefix(version.idle))?;
        line.trim().parse::<u64>().ok()
    });
    let held = held.saturating_sub(idle.unwrap_or(0));
    Some(Allowance { limit, left: limit.saturating_sub(held) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files below a folder of their own, and what is left to a process in these groups.
    fn allowed_in(name: &str, own: &str, files: &[(&str, &str)]) -> Allowance {
        let root = std::env::temp_dir().join(format!("kattu-groups-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&root);
        for (path, text) in files {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            std::fs::write(path, text).expect("a file");
        }
        let found = allowed(&root, own);
        let _ = std::fs::remove_dir_all(&root);
        found
    }

    /// A unit of systemd with `MemoryMax=`: the root has no limit, and no file for one.
    #[test]
    fn the_limit_of_a_unit_binds_although_the_root_has_none() {
        let files = [
            ("cgroup.controllers", "cpu memory\n"),
            ("system.slice/memory.max", "max\n"),
            ("system.slice/memory.current", "9000\n"),
            ("system.slice/kattu.service/memory.max", "4000\n"),
            ("system.slice/kattu.service/memory.current", "3000\n"),
            ("system.slice/kattu.service/memory.stat", "anon 2500\ninactive_file 400\nactive_file 100\n"),
            ("other/memory.max", "1\n"),
        ];
        let found = allowed_in("unit", "0::/system.slice/kattu.service\n", &files);
        assert_eq!(found, Allowance { limit: 4000, left: 1400 });
    }

    /// The limit that is the least and the one that is nearest need not be the same.
    #[test]
    fn each_group_on_the_way_up_counts() {
        let files = [
            ("a/memory.max", "8000\n"),
            ("a/memory.current", "7900\n"),
            ("a/memory.stat", "inactive_file 50\n"),
            ("a/b/memory.max", "6000\n"),
            ("a/b/memory.current", "1000\n"),
            ("a/b/memory.stat", "inactive_file 0\n"),
            ("a/b/c/memory.max", "max\n"),
        ];
        let found = allowed_in("way", "0::/a/b/c\n", &files);
        assert_eq!(found, Allowance { limit: 6000, left: 150 });
    }

    #[test]
    fn version_one_is_asked_where_it_has_the_memory_controller() {
        let own = "9:name=systemd:/\n8:pids:/x\n4:cpu,memory:/docker/7\n0::/\n";
        let none = "9223372036854771712\n";
        let files = [
            ("memory/memory.limit_in_bytes", none),
            ("memory/memory.usage_in_bytes", "5\n"),
            ("memory/docker/memory.limit_in_bytes", "7000\n"),
            ("memory/docker/memory.usage_in_bytes", "6500\n"),
            ("memory/docker/memory.stat", "inactive_file 0\ntotal_inactive_file 300\n"),
            ("memory/docker/7/memory.limit_in_bytes", "5000\n"),
            ("memory/docker/7/memory.usage_in_bytes", "1000\n"),
            ("pids/x/memory.max", "1\n"),
        ];
        assert_eq!(allowed_in("one", own, &files), Allowance { limit: 5000, left: 800 });
        // A container that sees its own group as the root.
        let files = [("memory/memory.limit_in_bytes", "3000\n"), ("memory/memory.usage_in_bytes", "10\n")];
        assert_eq!(allowed_in("container", own, &files), Allowance { limit: 3000, left: 2990 });
    }

    #[test]
    fn nothing_binds_where_nothing_is_said() {
        for own in ["", "0::/\n", "0::/../../elsewhere\n", "nonsense\n0:\n"] {
            let files = [("memory.max", "max\n"), ("memory/elsewhere/memory.max", "7\n")];
            assert_eq!(allowed_in("none", own, &files), Allowance::BOUNDLESS, "{own:?}");
        }
        let found = allowed_in("outside", "0::/../kattu\n", &[("memory.max", "7\n")]);
        assert_eq!(found, Allowance { limit: 7, left: 7 }, "the root of what can be seen binds");
    }
}

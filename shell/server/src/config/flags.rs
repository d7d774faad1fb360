//! Every flag by name: which work, which are only tolerated, which are refused and why.
//!
//! The same table serves the command line, the environment, the file, and the help text, so that the four cannot
//! disagree. Names, defaults and meanings are etcd's where etcd has the flag. [etcd server/embed/config.go]
//! Knows nothing of: where a value came from, what it does.

/// What a value looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Any text.
    Text,
    /// Texts separated by commas; in a file also an array.
    List,
    /// A whole number.
    Number,
    /// True or false; the bare flag means true.
    Switch,
}

/// What becomes of a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It works.
    Works,
    /// It is accepted, has no effect, and a line says so: why.
    Tolerated(&'static str),
    /// It asks for something that Kattu does not do, and going on without would be wrong: why.
    Refused(&'static str),
}

/// One flag.
#[derive(Clone, Copy, Debug)]
pub struct Flag {
    /// Its name, without dashes.
    pub name: &'static str,
    /// What its value looks like.
    pub shape: Shape,
    /// What becomes of it.
    pub fate: Fate,
    /// The default as the help shows it.
    pub default: &'static str,
    /// One line for the help.
    pub help: &'static str,
}

const fn works(name: &'static str, shape: Shape, default: &'static str, help: &'static str) -> Flag {
    Flag { name, shape, fate: Fate::Works, default, help }
}

const fn tolerated(name: &'static str, shape: Shape, why: &'static str) -> Flag {
    Flag { name, shape, fate: Fate::Tolerated(why), default: "", help: "" }
}

const fn refused(name: &'static str, shape: Shape, why: &'static str) -> Flag {
    Flag { name, shape, fate: Fate::Refused(why), default: "", help: "" }
}

const NO_AUTH: &str = "authentication is not supported yet";
const NO_DISCOVERY: &str = "discovery is not supported; list the members with --initial-cluster";
const ONE_LOGGER: &str = "there is one: see --log-level, --log-format, --log-outputs";
const ALWAYS_COMPARES: &str = "members compare what they made of the log every --digest-interval";
const BY_THE_KERNEL: &str = "the kernel looks after silent clients, once in 30 s";
const BY_BYTES: &str = "snapshots are taken by bytes of log: --snapshot-log-bytes";

use Shape::{List, Number, Switch, Text};

/// All flags of `kattu serve`.
pub const FLAGS: &[Flag] = &[
    works("name", Text, "default", "name of this member"),
    works("data-dir", Text, "NAME.kattu", "directory of this member's log and identity"),
    works("listen-client-urls", List, "http://localhost:2379", "where to listen for clients"),
    works("advertise-client-urls", List, "the listen URLs", "where clients reach this member"),
    works("listen-peer-urls", List, "http://localhost:2380", "where to listen for the other members"),
    works(
        "initial-advertise-peer-urls",
        List,
        "as in --initial-cluster",
        "where the other members reach this one",
    ),
    works(
        "initial-cluster",
        List,
        "NAME=its peer URL",
        "all members: n1=http://..,n2=http://..,n3=http://..",
    ),
    works(
        "initial-cluster-state",
        Text,
        "new",
        "new, or existing: the cluster runs already; without data this member joins it (kattu member add)",
    ),
    works("initial-cluster-token", Text, "etcd-cluster", "tells clusters apart; the same on all members"),
    works(
        "cert-file",
        Text,
        "none",
        "this member's certificate for clients, with those that lead to its authority (PEM)",
    ),
    works("key-file", Text, "none", "its key (PEM)"),
    works(
        "trusted-ca-file",
        Text,
        "none",
        "authorities that sign clients' certificates; with it every client must show one (PEM)",
    ),
    works(
        "client-cert-auth",
        Switch,
        "false",
        "every client must show a certificate; needs --trusted-ca-file, which asks for the same",
    ),
    works("client-crl-file", Text, "none", "clients' certificates that were revoked (PEM or DER)"),
    works(
        "client-cert-allowed-hostname",
        List,
        "every name",
        "hosts, one of which a client's certificate must be for",
    ),
    works(
        "auto-tls",
        Switch,
        "false",
        "make a certificate for clients that nobody signs: it encrypts and proves nothing",
    ),
    works(
        "peer-cert-file",
        Text,
        "none",
        "this member's certificate for the other members, for a host at which they reach it (PEM)",
    ),
    works("peer-key-file", Text, "none", "its key (PEM)"),
    works(
        "peer-trusted-ca-file",
        Text,
        "the system's",
        "authorities that sign members' certificates; with it every member must show one (PEM)",
    ),
    works(
        "peer-client-cert-auth",
        Switch,
        "false",
        "every member must show a certificate; needs --peer-trusted-ca-file, which asks for the same",
    ),
    works("peer-crl-file", Text, "none", "members' certificates that were revoked (PEM or DER)"),
    works(
        "peer-cert-allowed-cn",
        List,
        "every name",
        "common names, one of which a member's certificate must say",
    ),
    works(
        "peer-cert-allowed-hostname",
        List,
        "every name",
        "hosts, one of which a member's certificate must be for, beside one at which the member is reached",
    ),
    works(
        "peer-client-cert-file",
        Text,
        "--peer-cert-file",
        "another certificate, to be shown to the members that this one connects to (PEM)",
    ),
    works("peer-client-key-file", Text, "--peer-key-file", "its key (PEM)"),
    works(
        "peer-auto-tls",
        Switch,
        "false",
        "make a certificate for members that nobody signs: it encrypts and proves nothing",
    ),
    works(
        "cipher-suites",
        List,
        "all good ones",
        "cipher suites of TLS 1.2; those of TLS 1.3 are not to be chosen",
    ),
    works("tls-min-version", Text, "TLS1.2", "least version of TLS: TLS1.2 or TLS1.3"),
    works("tls-max-version", Text, "TLS1.3", "greatest version of TLS"),
    works(
        "self-signed-cert-validity",
        Number,
        "1",
        "years that a certificate of --auto-tls or --peer-auto-tls is good",
    ),
    works("heartbeat-interval", Number, "100", "milliseconds between heartbeats of the leader"),
    works(
        "election-timeout",
        Number,
        "1000",
        "milliseconds without a leader before an election; at least 5 heartbeats",
    ),
    works(
        "election-priority",
        Number,
        "100",
        "how eager this member is to lead, 0 to 255: 100 is like anybody, 0 the last, 255 the first",
    ),
    works(
        "leader-transfer",
        Switch,
        "false",
        "a leader offers its office to a member of higher priority that is well",
    ),
    works(
        "leave-slow-disk",
        Switch,
        "true",
        "a leader whose disk is far slower than another member's lets that one lead; all members or none",
    ),
    works(
        "suspicion-delay",
        Number,
        "2",
        "milliseconds, at most, until a member whose leader closed the connection asks the others; 0 is off",
    ),
    works(
        "lease-reads",
        Switch,
        "false",
        "the leader answers reads by its clock; all members or none, see --clock-drift-ppm",
    ),
    works(
        "clock-drift-ppm",
        Number,
        "5000",
        "with --lease-reads: how wrong the rate of any member's clock may be, in millionths",
    ),
    works("lease-margin", Number, "1", "with --lease-reads: milliseconds taken off every lease"),
    works(
        "read-consistency",
        Text,
        "linearizable",
        "how fresh reads are that do not say it: linearizable, bounded=TIME or serializable",
    ),
    works("max-request-bytes", Number, "1572864", "largest request, at most 67108864"),
    works("max-txn-ops", Number, "128", "most operations in one transaction"),
    works(
        "request-work-max",
        Number,
        "8388608",
        "most work of one request, in units: about 1 for each key looked at, 3 for each key deleted, 8 for a put",
    ),
    works(
        "client-memory-bytes",
        Number,
        "0",
        "bytes held for clients (requests, results, answers); 0 for an eighth of the memory, at most 1 GiB",
    ),
    works(
        "client-calls-max",
        Number,
        "1024",
        "calls that this member works on before it lets its clients have fewer at once; what they want beyond that waits with them",
    ),
    works("max-concurrent-streams", Number, "10000", "calls at once on one connection of a client"),
    works(
        "grpc-keepalive-min-time",
        Text,
        "5s",
        "least time between two pings of a client to which nothing was sent in between",
    ),
    works(
        "client-header-timeout",
        Text,
        "5s",
        "a client says within this which protocol it speaks, and sends the head of a request, or any frame but a body's, whole",
    ),
    works(
        "client-body-timeout",
        Text,
        "10s",
        "the body of a request is whole within this, and a second more for each 64 KiB that it announces",
    ),
    works(
        "client-stall-timeout",
        Text,
        "1m",
        "a client that takes nothing of what waits for it for so long loses the call or the connection",
    ),
    works(
        "client-idle-timeout",
        Text,
        "10m",
        "a connection without a call under way on which nothing is said for so long is closed",
    ),
    works("auto-compaction-mode", Text, "periodic", "periodic or revision"),
    works(
        "auto-compaction-retention",
        Text,
        "1h",
        "history to keep: 30m, 1h or hours when periodic; a count of revisions; 0 is off",
    ),
    works(
        "history-bytes",
        Number,
        "0",
        "bytes of old versions that auto-compaction keeps at most; 0 for a quarter of the quota",
    ),
    works(
        "history-min",
        Number,
        "300000",
        "milliseconds of history that are kept beyond --history-bytes, while there is room",
    ),
    works("quota-backend-bytes", Number, "0", "bytes the store may grow to; 0 for half of the memory"),
    works("listen-metrics-urls", List, "", "more places to serve /metrics and /health"),
    works("config", Text, "", "a TOML file with the same names as these flags"),
    works("log-io", Text, "inline", "where the log is written: inline (on the node's thread) or thread"),
    works("apply", Text, "inline", "where entries are applied: inline (on the node's thread) or thread"),
    works("client-threads", Number, "0", "threads that serve clients; 0 is the node's thread"),
    works(
        "snapshot-log-bytes",
        Number,
        "67108864",
        "bytes of log that make a snapshot due; more if the last one was larger",
    ),
    works(
        "snapshot-keep-bytes",
        Number,
        "67108864",
        "bytes of log that stay behind a snapshot, for members that are a little behind",
    ),
    works(
        "snapshot-bytes-per-second",
        Number,
        "67108864",
        "how fast a snapshot is written, or sent to one member; 0 is as fast as it goes",
    ),
    works(
        "client-share-min",
        Number,
        "80",
        "hundredths of what clients wrote that are let in at least while a member that comes back does not gain; 100: all",
    ),
    works(
        "digest-interval",
        Number,
        "60000",
        "milliseconds between two comparisons of what the members have made of the log; 0 is off",
    ),
    works(
        "scrub-period",
        Number,
        "86400000",
        "milliseconds from one reading of all files, in search of damage, to the next; 0 is off",
    ),
    works("segment-bytes", Number, "16777216", "size of one file of the log"),
    works(
        "log-sector-bytes",
        Number,
        "0",
        "what the log's blocks are padded to: 512 to 4096, or 0 for what the disk writes as one",
    ),
    works("disk-reserve-bytes", Number, "67108864", "disk space kept free for the way out of a full disk"),
    works(
        "disk-stall-timeout",
        Number,
        "10000",
        "milliseconds after which a disk, node or store that hangs ends the process",
    ),
    works("log-level", Text, "info", "lines that matter less are not said: debug, info, warn, error"),
    works("log-format", Text, "console", "what a line looks like: console or json"),
    works(
        "log-outputs",
        List,
        "stderr",
        "where lines go: stderr, stdout, paths of files; whoever reads them holds nobody up",
    ),
    tolerated("grpc-keepalive-interval", Text, BY_THE_KERNEL),
    tolerated("grpc-keepalive-timeout", Text, BY_THE_KERNEL),
    tolerated("corrupt-check-time", Text, ALWAYS_COMPARES),
    tolerated("compact-hash-check-time", Text, ALWAYS_COMPARES),
    tolerated("experimental-corrupt-check-time", Text, ALWAYS_COMPARES),
    tolerated("experimental-compact-hash-check-time", Text, ALWAYS_COMPARES),
    tolerated("experimental-compact-hash-check-enabled", Switch, ALWAYS_COMPARES),
    tolerated("experimental-initial-corrupt-check", Switch, ALWAYS_COMPARES),
    tolerated("snapshot-count", Number, BY_BYTES),
    tolerated("logger", Text, ONE_LOGGER),
    tolerated("max-wals", Number, BY_BYTES),
    tolerated("max-snapshots", Number, BY_BYTES),
    tolerated("strict-reconfig-check", Switch, "Kattu is always strict"),
    tolerated("max-learners", Number, "Kattu allows 8 learners"),
    tolerated("pre-vote", Switch, "Kattu always asks before it campaigns"),
    tolerated("metrics", Text, "Kattu always serves the same metrics"),
    tolerated("enable-pprof", Switch, "Kattu has no profiling pages"),
    refused("ca-file", Text, "it has another name: --trusted-ca-file"),
    tolerated("client-cert-file", Text, "no member is a client of its own port"),
    tolerated("client-key-file", Text, "no member is a client of its own port"),
    refused("peer-ca-file", Text, "it has another name: --peer-trusted-ca-file"),
    refused(
        "peer-skip-client-san-verification",
        Switch,
        "a member's certificate must be for a host at which the member is reached",
    ),
    refused("auth-token", Text, NO_AUTH),
    refused("auth-token-ttl", Number, NO_AUTH),
    refused("bcrypt-cost", Number, NO_AUTH),
    refused("discovery", Text, NO_DISCOVERY),
    refused("discovery-fallback", Text, NO_DISCOVERY),
    refused("discovery-proxy", Text, NO_DISCOVERY),
    refused("discovery-srv", Text, NO_DISCOVERY),
    refused("discovery-srv-name", Text, NO_DISCOVERY),
    refused("discovery-endpoints", List, NO_DISCOVERY),
    refused("discovery-token", Text, NO_DISCOVERY),
    refused("discovery-user", Text, NO_DISCOVERY),
    refused("discovery-password", Text, NO_DISCOVERY),
    refused("discovery-cert", Text, NO_DISCOVERY),
    refused("discovery-key", Text, NO_DISCOVERY),
    refused("discovery-cacert", Text, NO_DISCOVERY),
    refused("discovery-dial-timeout", Text, NO_DISCOVERY),
    refused("discovery-request-timeout", Text, NO_DISCOVERY),
    refused("discovery-keepalive-time", Text, NO_DISCOVERY),
    refused("discovery-keepalive-timeout", Text, NO_DISCOVERY),
    refused("discovery-insecure-transport", Switch, NO_DISCOVERY),
    refused("discovery-insecure-skip-tls-verify", Switch, NO_DISCOVERY),
    refused("force-new-cluster", Switch, "a lost majority is overruled offline: kattu recover"),
    refused("config-file", Text, "etcd's YAML file is not read; write a TOML file and name it with --config"),
];

/// The flag of this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Flag> {
    FLAGS.iter().find(|flag| flag.name == name)
}

/// Flags that work and whose names look like `name`, at most three, the likeliest first.
#[must_use]
pub fn near(name: &str) -> Vec<&'static str> {
    let mut found: Vec<(usize, &'static str)> = FLAGS
        .iter()
        .filter(|flag| flag.fate == Fate::Works)
        .map(|flag| (distance(name, flag.name), flag.name))
        .filter(|&(distance, flag)| {
            distance <= 1 + name.len() / 4 || (name.len() >= 4 && flag.starts_with(name))
        })
        .collect();
    found.sort_unstable();
    found.truncate(3);
    found.into_iter().map(|(_, name)| name).collect()
}

/// Insertions, deletions and replacements between two texts. [Levenshtein66]
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, &b) in other.iter().enumerate() {
            let above = row[j + 1];
            row[j + 1] = (diagonal + usize::from(a != b)).min(above + 1).min(row[j] + 1);
            diagonal = above;
        }
    }
    row[other.len()]
}

/// The help of `kattu serve`.
#[must_use]
pub fn help() -> String {
    let mut text = String::from(HELP_HEAD);
    for flag in FLAGS.iter().filter(|flag| flag.fate == Fate::Works) {
        text.push_str(&format!("  --{:<30} {}", flag.name, flag.help));
        if !flag.default.is_empty() {
            text.push_str(&format!(" [{}]", flag.default));
        }
        text.push('\n');
    }
    text.push_str("\nAccepted for etcd's sake, without effect:\n");
    push_names(&mut text, |fate| matches!(fate, Fate::Tolerated(_)));
    text.push_str("\nRefused, because going on without would be wrong:\n  authentication, discovery, --force-new-cluster\n");
    text.push_str(HELP_TAIL);
    text
}

fn push_names(text: &mut String, wanted: impl Fn(Fate) -> bool) {
    let mut line = String::from(" ");
    for flag in FLAGS.iter().filter(|flag| wanted(flag.fate)) {
        if line.len() + flag.name.len() > 100 {
            text.push_str(&line);
            text.push('\n');
            line = String::from(" ");
        }
        line.push_str(&format!(" --{}", flag.name));
    }
    text.push_str(&line);
    text.push('\n');
}

const HELP_HEAD: &str = "\
Runs one member of a cluster, with etcd's flags.

Usage: kattu serve [--FLAG=VALUE | --FLAG VALUE]...

Each flag is also read from KATTU_FLAG and ETCD_FLAG in the environment and from the file named by --config.
A flag goes before KATTU_*, that before ETCD_*, that before the file.

Flags [and their defaults]:
";

const HELP_TAIL: &str = "
Examples:
  kattu serve
      a cluster of one member, clients on 127.0.0.1:2379
  kattu serve --name n1 --data-dir /var/lib/kattu/n1 \\
      --listen-client-urls http://10.0.0.1:2379 --listen-peer-urls http://10.0.0.1:2380 \\
      --initial-cluster n1=http://10.0.0.1:2380,n2=http://10.0.0.2:2380,n3=http://10.0.0.3:2380
      the first of three members
  kattu serve --name n4 --initial-cluster-state existing --initial-advertise-peer-urls http://10.0.0.4:2380 \\
      --listen-peer-urls http://10.0.0.4:2380 --initial-cluster n1=http://10.0.0.1:2380,n4=http://10.0.0.4:2380
      one more, after `kattu member add`, which prints such a line
  kattu serve --config n1.toml
      the same from a file: name = \"n1\", initial-cluster = [\"n1=http://10.0.0.1:2380\", ..]

Exit codes: 0 stopped by SIGTERM or SIGINT, or removed from its cluster; 1 failed; 2 usage, configuration or a taken port;
4 the data directory is damaged, somebody else's, or in use.
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flag_has_one_row() {
        for (i, flag) in FLAGS.iter().enumerate() {
            assert!(FLAGS[i + 1..].iter().all(|other| other.name != flag.name), "{}", flag.name);
            assert!(flag.name.chars().all(|c| c.is_ascii_lowercase() || c == '-'), "{}", flag.name);
        }
    }

    #[test]
    fn a_misspelt_flag_is_recognized() {
        assert_eq!(near("initial-cluser"), ["initial-cluster"]);
        assert_eq!(near("data_dir"), ["data-dir"]);
        assert_eq!(near("listen-client-url"), ["listen-client-urls"]);
        assert_eq!(near("auto-compaction"), ["auto-compaction-mode", "auto-compaction-retention"]);
        assert!(near("wal-dir").is_empty() || near("wal-dir") == ["data-dir"]);
        assert!(near("zzz").is_empty());
    }

    #[test]
    fn the_help_names_every_flag_that_works_or_is_tolerated() {
        let help = help();
        for flag in FLAGS.iter().filter(|flag| !matches!(flag.fate, Fate::Refused(_))) {
            assert!(help.contains(&format!("--{}", flag.name)), "{}", flag.name);
        }
    }
}

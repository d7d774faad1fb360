//! Every flag by name: which work, which are only tolerated, which are refused and why.
//!
//! The same table serves the command line, the environment, the file, and the help text, so that the four cannot
//! disagree. Names, defaults and meanings are etcd's where etcd has the flag. [etcd server/embed/config.go]
//! Knows nothing of: the source of a value, its effect.

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

/// How a flag is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It works.
    Works,
    /// It is accepted without effect; a warning gives this reason.
    Tolerated(&'static str),
    /// It asks for something that Kattu does not do and that must not be ignored; the error gives this reason.
    Refused(&'static str),
}

/// One flag.
#[derive(Clone, Copy, Debug)]
pub struct Flag {
    /// Its name, without dashes.
    pub name: &'static str,
    /// What its value looks like.
    pub shape: Shape,
    /// How it is treated.
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
const ONE_LOGGER: &str = "there is one logger; see --log-level, --log-format, --log-outputs";
const ALWAYS_COMPARES: &str = "members compare their digests every --digest-interval";
const BY_THE_KERNEL: &str = "TCP keepalive finds dead clients, every 30 s";
const BY_BYTES: &str = "snapshots depend on bytes of log; see --snapshot-log-bytes";

use Shape::{List, Number, Switch, Text};

/// All flags of `kattu serve`.
pub const FLAGS: &[Flag] = &[
    works("name", Text, "default", "name of this member"),
    works("data-dir", Text, "NAME.kattu", "directory of this member's log and identity"),
    works("listen-client-urls", List, "http://localhost:2379", "URLs to listen on for clients"),
    works("advertise-client-urls", List, "the listen URLs", "URLs at which clients reach this member"),
    works("listen-peer-urls", List, "http://localhost:2380", "URLs to listen on for other members"),
    works(
        "initial-advertise-peer-urls",
        List,
        "as in --initial-cluster",
        "URLs at which other members reach this one",
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
        "new, or existing for a running cluster: a member without data joins it (see kattu member add)",
    ),
    works(
        "initial-cluster-token",
        Text,
        "etcd-cluster",
        "name that tells clusters apart; the same on all members",
    ),
    works("cert-file", Text, "none", "certificate shown to clients, with its chain (PEM)"),
    works("key-file", Text, "none", "private key of --cert-file (PEM)"),
    works(
        "trusted-ca-file",
        Text,
        "none",
        "CA certificates for clients; if set, every client must show a certificate (PEM)",
    ),
    works(
        "client-cert-auth",
        Switch,
        "false",
        "require client certificates; needs --trusted-ca-file, which requires them as well",
    ),
    works("client-crl-file", Text, "none", "revoked client certificates (PEM or DER)"),
    works(
        "client-cert-allowed-hostname",
        List,
        "any",
        "host names of which a client certificate must have one",
    ),
    works(
        "auto-tls",
        Switch,
        "false",
        "use a self-signed certificate for clients: it encrypts, but proves no identity",
    ),
    works(
        "peer-cert-file",
        Text,
        "none",
        "certificate shown to other members, for a host at which they reach this one (PEM)",
    ),
    works("peer-key-file", Text, "none", "private key of --peer-cert-file (PEM)"),
    works(
        "peer-trusted-ca-file",
        Text,
        "the system's",
        "CA certificates for members; if set, every member must show a certificate (PEM)",
    ),
    works(
        "peer-client-cert-auth",
        Switch,
        "false",
        "require members' certificates; needs --peer-trusted-ca-file, which requires them as well",
    ),
    works("peer-crl-file", Text, "none", "revoked certificates of members (PEM or DER)"),
    works("peer-cert-allowed-cn", List, "any", "common names of which a member's certificate must have one"),
    works(
        "peer-cert-allowed-hostname",
        List,
        "any",
        "host names of which a member's certificate must have one, besides a host of its peer URLs",
    ),
    works(
        "peer-client-cert-file",
        Text,
        "--peer-cert-file",
        "separate certificate for outgoing connections to other members (PEM)",
    ),
    works("peer-client-key-file", Text, "--peer-key-file", "private key of --peer-client-cert-file (PEM)"),
    works(
        "peer-auto-tls",
        Switch,
        "false",
        "use a self-signed certificate between members: it encrypts, but proves no identity",
    ),
    works(
        "cipher-suites",
        List,
        "all secure ones",
        "cipher suites of TLS 1.2; those of TLS 1.3 cannot be chosen",
    ),
    works("tls-min-version", Text, "TLS1.2", "lowest TLS version: TLS1.2 or TLS1.3"),
    works("tls-max-version", Text, "TLS1.3", "highest TLS version"),
    works(
        "self-signed-cert-validity",
        Number,
        "1",
        "years for which certificates of --auto-tls and --peer-auto-tls are valid",
    ),
    works("heartbeat-interval", Number, "100", "ms between heartbeats of the leader"),
    works(
        "election-timeout",
        Number,
        "1000",
        "ms without a leader before an election; at least 5 heartbeat intervals",
    ),
    works("election-priority", Number, "100", "this member's priority in elections: 0 (last) to 255 (first)"),
    works(
        "leader-transfer",
        Switch,
        "false",
        "a leader transfers leadership to a healthy member of higher priority",
    ),
    works(
        "leave-slow-disk",
        Switch,
        "true",
        "a leader whose disk is far slower than another member's transfers leadership to it; same on all members",
    ),
    works(
        "suspicion-delay",
        Number,
        "2",
        "max. ms before a follower whose leader's connection closed starts a pre-vote; 0: wait for --election-timeout",
    ),
    works(
        "lease-reads",
        Switch,
        "false",
        "the leader serves reads under a lease, without a quorum round; same on all members, see --clock-drift-ppm",
    ),
    works(
        "clock-drift-ppm",
        Number,
        "5000",
        "with --lease-reads: max. error of the rate of any member's clock, in millionths",
    ),
    works("lease-margin", Number, "1", "with --lease-reads: ms by which every lease is shortened"),
    works(
        "read-consistency",
        Text,
        "linearizable",
        "level of reads that name none: linearizable, bounded=TIME or serializable",
    ),
    works("max-request-bytes", Number, "1572864", "largest request in bytes; at most 67108864"),
    works("max-txn-ops", Number, "128", "most operations in one transaction"),
    works(
        "request-work-max",
        Number,
        "8388608",
        "most work of one request, in units: about 1 per key read, 3 per key deleted, 8 per put",
    ),
    works(
        "client-memory-bytes",
        Number,
        "0",
        "bytes held for clients (requests, results, responses); 0: an eighth of the memory, at most 1 GiB",
    ),
    works(
        "client-calls-max",
        Number,
        "1024",
        "calls under way above which stream limits of clients are lowered; further calls wait at the client",
    ),
    works("max-concurrent-streams", Number, "10000", "calls at once on one client connection"),
    works(
        "grpc-keepalive-min-time",
        Text,
        "5s",
        "min. time between two pings of a client that was sent nothing in between",
    ),
    works(
        "client-header-timeout",
        Text,
        "5s",
        "time for a client to show its protocol, and to complete a request head or any frame except body data",
    ),
    works(
        "client-body-timeout",
        Text,
        "10s",
        "time to complete a request body, plus 1 s for each 64 KiB of its announced length",
    ),
    works(
        "client-stall-timeout",
        Text,
        "1m",
        "a client that reads nothing of its waiting responses for this long loses the call or the connection",
    ),
    works(
        "client-idle-timeout",
        Text,
        "10m",
        "a connection without a call on which no frame arrives for this long is closed",
    ),
    works(
        "auto-compaction-mode",
        Text,
        "periodic",
        "what --auto-compaction-retention counts: periodic (time) or revision",
    ),
    works(
        "auto-compaction-retention",
        Text,
        "1h",
        "history to keep: a duration such as 30m, a number of hours, or of revisions; 0: off",
    ),
    works(
        "history-bytes",
        Number,
        "0",
        "most bytes of old versions that auto-compaction keeps; 0: a quarter of the quota",
    ),
    works(
        "history-min",
        Number,
        "300000",
        "ms of history kept even beyond --history-bytes, while there is space",
    ),
    works("quota-backend-bytes", Number, "0", "most bytes of the store; 0: half of the memory"),
    works("listen-metrics-urls", List, "", "additional URLs to listen on for /metrics and /health"),
    works("config", Text, "", "TOML file with settings named like these flags"),
    works("log-io", Text, "inline", "where the log is written: inline (on the node's thread) or thread"),
    works("apply", Text, "inline", "where entries are applied: inline (on the node's thread) or thread"),
    works("client-threads", Number, "0", "threads that serve clients; 0: the node's thread"),
    works(
        "snapshot-log-bytes",
        Number,
        "67108864",
        "bytes of log after which a snapshot is taken; more if the last one was larger",
    ),
    works(
        "snapshot-keep-bytes",
        Number,
        "67108864",
        "bytes of log kept behind a snapshot, for followers that lag a little",
    ),
    works(
        "snapshot-bytes-per-second",
        Number,
        "67108864",
        "bytes per second for writing a snapshot, or for sending one to a member; 0: no limit",
    ),
    works(
        "client-share-min",
        Number,
        "80",
        "least % of clients' earlier write rate admitted while a returning member does not catch up; 100: no slowing",
    ),
    works("digest-interval", Number, "60000", "ms between two comparisons of the members' digests; 0: off"),
    works(
        "scrub-period",
        Number,
        "86400000",
        "ms between two scrubs (reads of all files to find damage); 0: off",
    ),
    works("segment-bytes", Number, "16777216", "bytes of one log file"),
    works(
        "log-sector-bytes",
        Number,
        "0",
        "size to which log blocks are padded: 512 to 4096; 0: the unit that the disk writes atomically",
    ),
    works("disk-reserve-bytes", Number, "67108864", "bytes of disk reserved to recover from a full disk"),
    works(
        "disk-stall-timeout",
        Number,
        "10000",
        "ms after which the process ends because the disk, the node or the store hangs",
    ),
    works("log-level", Text, "info", "lowest level of log lines: debug, info, warn, error"),
    works("log-format", Text, "console", "format of log lines: console or json"),
    works(
        "log-outputs",
        List,
        "stderr",
        "where log lines go: stderr, stdout, file paths; a slow reader delays nothing",
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
    tolerated("pre-vote", Switch, "Kattu always runs a pre-vote"),
    tolerated("metrics", Text, "Kattu always serves the same metrics"),
    tolerated("enable-pprof", Switch, "Kattu has no profiling pages"),
    refused("ca-file", Text, "use --trusted-ca-file"),
    tolerated("client-cert-file", Text, "a member is not a client of its own port"),
    tolerated("client-key-file", Text, "a member is not a client of its own port"),
    refused("peer-ca-file", Text, "use --peer-trusted-ca-file"),
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
    refused("force-new-cluster", Switch, "after the loss of a majority, use kattu recover offline"),
    refused("config-file", Text, "etcd's YAML is not supported; write a TOML file and pass it with --config"),
];

/// The flag of this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Flag> {
    FLAGS.iter().find(|flag| flag.name == name)
}

/// Working flags with names similar to `name`: at most three, the closest first.
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
    text.push_str("\nAccepted for compatibility with etcd, without effect:\n");
    push_names(&mut text, |fate| matches!(fate, Fate::Tolerated(_)));
    text.push_str(
        "\nRefused, because ignoring them would be unsafe:\n  authentication, discovery, --force-new-cluster\n",
    );
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
A flag overrides KATTU_*, which overrides ETCD_*, which overrides the file.

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
      a further member, after `kattu member add`, which prints this command
  kattu serve --config n1.toml
      the same from a file: name = \"n1\", initial-cluster = [\"n1=http://10.0.0.1:2380\", ..]

Exit codes: 0 stopped by SIGTERM or SIGINT, or removed from its cluster; 1 failed; 2 usage, configuration or a taken port;
4 the data directory is damaged, another member's, or in use.
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

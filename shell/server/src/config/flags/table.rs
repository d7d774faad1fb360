//! All flags of `kattu serve`, one row each, in the order of the help.
//!
//! Knows nothing of: what is done with a row.

use super::Shape::{List, Number, Switch, Text};
use super::{Fate, Flag, Shape};

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
    works(
        "heartbeat-interval",
        Number,
        "100",
        "ms between heartbeats of the leader, up to three times as many while nothing happens, in a new cluster",
    ),
    works(
        "election-timeout",
        Number,
        "1000",
        "ms without a leader before an election, in a new cluster (kattu timing changes both); at least 5 heartbeat intervals",
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
        "most bytes of old versions that auto-compaction keeps; 0: a quarter of what the newest leave of the quota",
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
        "536870912",
        "bytes of log after which a snapshot is taken, sooner if there is little to do; twice the size of the last one if that is more",
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

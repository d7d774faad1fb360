//! Whole configurations: the values that result, and the errors.

use super::*;
use kattu_node::TransferConfig;
use kattu_raft::LeaderLease;
use kattu_runtime::report::{Format, Level, Output};
use kattu_runtime::tuning::{Reads, SETTINGS, Threading};

fn load_with(args: &[&str], env: &[(&str, &str)]) -> Result<Command, ConfigError> {
    let args: Vec<String> = args.iter().map(|arg| (*arg).to_string()).collect();
    let env: Vec<(String, String)> = env.iter().map(|(n, v)| ((*n).to_string(), (*v).to_string())).collect();
    load_from(&args, &env, &|_| Err(std::io::Error::from(std::io::ErrorKind::NotFound)))
}

fn config(args: &[&str]) -> ServeConfig {
    match load_with(args, &[]) {
        Ok(Command::Serve(config, _)) => *config,
        other => panic!("{args:?}: {other:?}"),
    }
}

fn refusal(args: &[&str]) -> String {
    load_with(args, &[]).expect_err(&format!("{args:?}")).to_string()
}

fn addresses<T: ToString>(places: &[T]) -> Vec<String> {
    places.iter().map(T::to_string).collect()
}

#[test]
fn without_flags_it_is_a_cluster_of_one_on_etcds_ports() {
    let config = config(&[]);
    assert_eq!(config.name, "default");
    assert_eq!(config.data_dir, Path::new("default.kattu"));
    assert_eq!(addresses(&config.listen_clients), ["127.0.0.1:2379"]);
    assert_eq!(addresses(&config.listen_peers), ["127.0.0.1:2380"]);
    assert_eq!(config.advertise_client_urls, ["http://localhost:2379"]);
    assert!(config.listen_metrics.is_empty());
    assert_eq!(config.members.len(), 1);
    assert_eq!(config.members[0].peer_urls, ["http://localhost:2380"]);
    assert_eq!(config.id, config.members[0].id);
    assert_eq!(config.election_timeout, Duration::from_millis(1000));
    assert_eq!(config.request_bytes_max, 1_572_864);
    assert_eq!(config.retention, Retention::Period(Duration::from_secs(3600)));
    assert!(!config.join);
}

#[test]
fn leadership_is_etcds_unless_a_flag_chooses_otherwise() {
    let plain = config(&[]);
    assert_eq!(plain.leadership, LeadershipConfig { asks_first: true, ..LeadershipConfig::default() });
    assert_eq!(plain.transfers, TransferConfig { to_priority: false, from_slow_disk: true });
    assert_eq!(plain.read_consistency, Consistency::Linearizable);
    let chosen = config(&[
        "--election-priority=200",
        "--leader-transfer",
        "--leave-slow-disk=false",
        "--suspicion-delay=0",
        "--lease-reads",
        "--clock-drift-ppm=1000",
        "--lease-margin=5",
        "--read-consistency=bounded=100ms",
    ]);
    let lease = LeaderLease { rho: 1000, margin: Duration::from_millis(5), watch_clocks: true };
    let leadership =
        LeadershipConfig { priority: 200, suspicion: None, leader_lease: Some(lease), asks_first: true };
    assert_eq!(chosen.leadership, leadership);
    assert_eq!(chosen.transfers, TransferConfig { to_priority: true, from_slow_disk: false });
    assert_eq!(chosen.read_consistency, Consistency::Bounded(Duration::from_millis(100)));
}

#[test]
fn what_cannot_be_meant_of_leadership_is_refused_by_name() {
    for (args, said) in [
        (&["--election-priority=256"][..], "--election-priority"),
        (&["--suspicion-delay=soon"], "--suspicion-delay"),
        (&["--lease-reads", "--reads=log"], "--reads: log and --lease-reads exclude each other"),
        (&["--lease-reads", "--clock-drift-ppm=1000000"], "--clock-drift-ppm"),
        (&["--lease-reads=maybe"], "--lease-reads"),
        (&["--leave-slow-disk=no"], "--leave-slow-disk"),
        (&["--read-consistency=at-least=1"], "--read-consistency"),
        (&["--read-consistency=stale"], "--read-consistency"),
        (&["--links-per-peer=65"], "--links-per-peer"),
        (&["--dispatch=unordered"], "--dispatch: what is sent on one connection arrives in order"),
    ] {
        let refusal = refusal(args);
        assert!(refusal.contains(said), "{args:?}: {refusal}");
    }
}

/// The flags that etcd's own tooling and documents give to one of three members.
#[test]
fn one_of_three_members_as_etcds_documents_start_it() {
    let cluster = "n1=http://10.0.0.1:2380,n2=http://10.0.0.2:2380,n3=http://10.0.0.3:2380";
    let member = |name: &str, ip: &str| {
        config(&[
            "--name",
            name,
            "--initial-advertise-peer-urls",
            &format!("http://{ip}:2380"),
            "--listen-peer-urls",
            &format!("http://{ip}:2380"),
            "--listen-client-urls",
            &format!("http://{ip}:2379,http://127.0.0.1:2379"),
            "--advertise-client-urls",
            &format!("http://{ip}:2379"),
            "--initial-cluster-token",
            "etcd-cluster-1",
            "--initial-cluster",
            cluster,
            "--initial-cluster-state",
            "new",
        ])
    };
    let (one, two) = (member("n1", "10.0.0.1"), member("n2", "10.0.0.2"));
    assert_eq!(addresses(&one.listen_clients), ["10.0.0.1:2379", "127.0.0.1:2379"]);
    assert_eq!(one.members, two.members);
    assert_eq!(one.cluster_id, two.cluster_id);
    assert_ne!(one.id, two.id);
    let own = one.members.iter().find(|member| member.id == one.id).unwrap();
    assert_eq!((own.name.as_str(), own.peer_urls[0].as_str()), ("n1", "http://10.0.0.1:2380"));
}

#[test]
fn what_others_are_told_must_be_what_the_member_says_itself() {
    let three = "--initial-cluster=n1=http://127.0.0.1:1,n2=http://127.0.0.1:2";
    assert!(refusal(&["--name=n3", three]).contains("the list has n1, n2"));
    let mismatch = refusal(&["--name=n1", three, "--initial-advertise-peer-urls=http://127.0.0.1:9"]);
    assert!(
        mismatch.starts_with("--initial-advertise-peer-urls: http://127.0.0.1:9 does not match"),
        "{mismatch}"
    );
    // localhost and 127.0.0.1 are the same place.
    config(&["--name=n1", three, "--initial-advertise-peer-urls=http://localhost:1"]);
    // Without the flag it is what the list says.
    config(&["--name=n1", three]);
}

#[test]
fn every_address_must_come_with_one_to_be_reached_at() {
    let refused = refusal(&["--listen-client-urls=http://0.0.0.0:2379"]);
    assert!(refused.starts_with("--advertise-client-urls: is needed"), "{refused}");
    let refused = refusal(&["--listen-peer-urls=http://0.0.0.0:2380"]);
    assert!(refused.starts_with("--initial-advertise-peer-urls: is needed"), "{refused}");
    let args = ["--listen-client-urls=http://0.0.0.0:2379", "--advertise-client-urls=http://n1:2379"];
    let Ok(Command::Serve(_, warnings)) = load_with(&args, &[]) else { panic!("it works") };
    assert!(warnings[0].contains("0.0.0.0:2379 can be reached by other machines"), "{warnings:?}");
    assert!(refusal(&["--listen-client-urls=http://n1:2379"]).contains("IP address or localhost"));
}

#[test]
fn timeouts_and_sizes_are_judged() {
    for (args, why) in [
        (&["--heartbeat-interval=0"][..], "from 1 to 50000"),
        (&["--heartbeat-interval=1s"], "not a whole number"),
        (&["--heartbeat-interval=300", "--election-timeout=1000"], "at least 5 times"),
        (&["--election-timeout=60000"], "from 1 to 50000"),
        (&["--max-request-bytes=100000000"], "from 1024 to 67108864"),
        (&["--max-txn-ops=0"], "from 1 to"),
        (&["--segment-bytes=1"], "from 1048576"),
        (&["--log-io=both"], "it is inline or thread"),
        (&["--initial-cluster-state=old"], "not one of new, existing"),
        (&["--quota-backend-bytes=1G"], "not a whole number"),
        (&["--name="], "at least one character"),
        (&["--data-dir="], "got an empty value"),
        (&["--listen-client-urls=https://127.0.0.1:1"], "needs --cert-file and --key-file, or --auto-tls"),
    ] {
        let refused = refusal(args);
        let flag = args.last().unwrap().split('=').next().unwrap();
        assert!(refused.contains(flag) && refused.contains(why), "{args:?}: {refused}");
    }
    assert_eq!(config(&["--quota-backend-bytes=-1"]).quota_bytes, 0);
    assert_eq!(config(&["--log-io=thread"]).tuning.log_io, Threading::Thread);
}

#[test]
fn retention_is_written_as_for_etcd() {
    let kept = |mode: &str, retention: &str| {
        config(&[
            &format!("--auto-compaction-mode={mode}"),
            &format!("--auto-compaction-retention={retention}"),
        ])
        .retention
    };
    assert_eq!(kept("periodic", "1"), Retention::Period(Duration::from_secs(3600)));
    assert_eq!(kept("periodic", "30m"), Retention::Period(Duration::from_secs(1800)));
    assert_eq!(kept("periodic", "1h30m"), Retention::Period(Duration::from_secs(5400)));
    assert_eq!(kept("periodic", "0"), Retention::Off);
    assert_eq!(kept("revision", "1000"), Retention::Revisions(1000));
    assert_eq!(kept("revision", "0"), Retention::Off);
    for (mode, retention) in
        [("revision", "1h"), ("revision", "-1"), ("periodic", "soon"), ("periodic", "-1h")]
    {
        let refused = refusal(&[
            &format!("--auto-compaction-mode={mode}"),
            &format!("--auto-compaction-retention={retention}"),
        ]);
        assert!(refused.starts_with("--auto-compaction-retention"), "{refused}");
    }
}

#[test]
fn durations_are_read_as_go_writes_them() {
    assert_eq!(parse_duration("1h30m5s"), Some(Duration::from_secs(5405)));
    assert_eq!(parse_duration("1.5s"), Some(Duration::from_millis(1500)));
    assert_eq!(parse_duration("250ms"), Some(Duration::from_millis(250)));
    for text in ["", "5", "h", "1x", "1h5", "-1h", "1..5s"] {
        assert_eq!(parse_duration(text), None, "{text}");
    }
}

#[test]
fn a_complaint_names_the_variable_it_came_from() {
    let error = load_with(&[], &[("ETCD_HEARTBEAT_INTERVAL", "soon")]).unwrap_err().to_string();
    assert!(error.starts_with("ETCD_HEARTBEAT_INTERVAL (--heartbeat-interval): \"soon\""), "{error}");
    let error = load_with(&[], &[("ETCD_CERT_FILE", "/x")]).unwrap_err().to_string();
    assert_eq!(error, "ETCD_CERT_FILE (--cert-file): needs its key: --key-file");
    let error = load_with(&[], &[("ETCD_PEER_CERT_FILE", "/x")]).unwrap_err().to_string();
    assert_eq!(error, "ETCD_PEER_CERT_FILE (--peer-cert-file): needs its key: --peer-key-file");
}

#[test]
fn log_lines_go_where_etcds_flags_say() {
    assert_eq!(config(&[]).log, LogOptions::default());
    let chosen =
        config(&["--log-level=fatal", "--log-format=json", "--log-outputs=stdout,/var/log/k.log,default"]);
    let file = Output::File(PathBuf::from("/var/log/k.log"));
    assert_eq!(
        chosen.log,
        LogOptions {
            level: Level::Error,
            format: Format::Json,
            outputs: vec![Output::Stdout, file, Output::Stderr]
        }
    );
    for (arg, says) in [
        ("--log-level=loud", "debug"),
        ("--log-format=xml", "console, json"),
        ("--log-outputs=stderr,default", "twice"),
        ("--log-outputs=stderr,", "empty"),
        ("--log-outputs=systemd/journal", "use stderr"),
    ] {
        let refused = refusal(&[arg]);
        assert!(refused.starts_with(arg.split('=').next().unwrap()) && refused.contains(says), "{refused}");
    }
}

#[test]
fn the_store_gathers_no_more_for_an_answer_than_a_call_may_hold() {
    let gathers = |args: &[&str]| crate::serve::runtime_config(&config(args), None).requests.answer_bytes_max;
    assert_eq!(gathers(&["--client-memory-bytes", "30000000"]), 10_000_000);
    assert_eq!(gathers(&["--client-memory-bytes", "1000000000"]), 64 << 20);
}

/// With a certificate for clients.
fn with_files<'a>(args: &[&'a str]) -> Vec<&'a str> {
    [&["--cert-file=c", "--key-file=k"], args].concat()
}

#[test]
fn a_url_says_whether_tls_is_spoken_there() {
    let tls = |args: &[&str]| {
        let config = config(&with_files(args));
        (addresses(&config.listen_clients), config.client_tls)
    };
    let (places, none) = tls(&["--listen-client-urls=http://127.0.0.1:1"]);
    assert_eq!((places, none), (vec!["127.0.0.1:1".to_string()], None), "no URL uses it");
    let urls = "--listen-client-urls=https://127.0.0.1:1,http://127.0.0.1:2,http://127.0.0.1:1";
    let (places, source) = tls(&[urls]);
    assert_eq!(places, ["127.0.0.1:1 (with TLS and without)", "127.0.0.1:2"]);
    assert!(matches!(source, Some(TlsSource::Files(files)) if files.trusted_ca.is_none()));
    let (_, source) = tls(&["--listen-client-urls=https://127.0.0.1:1", "--trusted-ca-file=a"]);
    assert!(source.is_some_and(|source| source.asks_clients()), "as in etcd, the file alone asks for it");
    let (_, source) = tls(&["--listen-metrics-urls=https://127.0.0.1:3"]);
    assert!(source.is_some(), "for pages, too");
    let auto =
        config(&["--listen-client-urls=https://127.0.0.1:1", "--auto-tls", "--data-dir=/d"]).client_tls;
    let Some(TlsSource::SelfSigned { dir, hosts, days, .. }) = auto else { panic!("{auto:?}") };
    assert_eq!((dir, days), (PathBuf::from("/d/.tls"), 365));
    assert_eq!(hosts, ["127.0.0.1", "::1", "localhost"]);
}

/// With a certificate for members.
fn with_peer_files<'a>(args: &[&'a str]) -> Vec<&'a str> {
    [&["--peer-cert-file=c", "--peer-key-file=k"], args].concat()
}

#[test]
fn members_speak_tls_where_their_urls_say_so() {
    let listen = "--listen-peer-urls=https://10.0.0.1:2380";
    let tls = config(&with_peer_files(&[listen, "--peer-trusted-ca-file=a", "--peer-cert-allowed-cn=x,y"]));
    assert_eq!(addresses(&tls.listen_peers), ["10.0.0.1:2380 (TLS)"]);
    let Some(TlsSource::Files(files)) = &tls.peer_tls else { panic!("{:?}", tls.peer_tls) };
    assert_eq!(files.dials, kattu_tls::Dials::Trusted { shows: None });
    assert_eq!(files.allowed.common_names, ["x", "y"]);
    assert_eq!(tls.members[0].peer_urls, ["https://10.0.0.1:2380"]);
    let plain = config(&["--listen-peer-urls=http://10.0.0.1:2380"]);
    assert_ne!((plain.cluster_id, plain.id), (tls.cluster_id, tls.id), "members that begin must agree");
    for moved in [&plain, &tls] {
        let names = [(plain.cluster_id, plain.id), (tls.cluster_id, tls.id)];
        let began: Vec<_> = moved.began_as.iter().map(|began| (began.cluster, began.id)).collect();
        assert_eq!(began, names, "a member that moves keeps its ids");
    }

    let auto = config(&[listen, "--peer-auto-tls", "--data-dir=/d"]).peer_tls;
    let Some(TlsSource::SelfSigned { rest, hosts, .. }) = auto else { panic!("{auto:?}") };
    assert_eq!(rest.dials, kattu_tls::Dials::Anybody);
    assert!(hosts.contains(&"10.0.0.1".to_string()), "{hosts:?}");
    let both = "--listen-peer-urls=https://10.0.0.1:2380,http://10.0.0.1:2380";
    let both = config(&with_peer_files(&[both, "--initial-advertise-peer-urls=http://10.0.0.1:2380"]));
    assert_eq!(addresses(&both.listen_peers), ["10.0.0.1:2380 (with TLS and without)"]);
    assert!(both.peer_tls.is_some());
}

#[test]
fn members_that_contradict_themselves_about_tls_are_told_so() {
    let https = "--listen-peer-urls=https://127.0.0.1:2380";
    let other = "--initial-cluster=default=http://127.0.0.1:2380,b=https://127.0.0.2:2380";
    let cases: [(&[&str], &str); 11] = [
        (&[https, "--peer-auto-tls", "--peer-trusted-ca-file=a"], "members would refuse each other"),
        (&["--peer-trusted-ca-file=a", "--peer-client-cert-auth"], "needs TLS between members, which is off"),
        (
            &[
                https,
                "--peer-cert-file=c",
                "--peer-key-file=k",
                "--peer-trusted-ca-file=a",
                "--peer-cert-allowed-cn=,",
            ],
            "--peer-cert-allowed-cn: expected names",
        ),
        (&[https], "--listen-peer-urls: https://127.0.0.1:2380 needs --peer-cert-file and --peer-key-file"),
        (&[other], "--initial-cluster: https://127.0.0.2:2380 needs --peer-cert-file"),
        (&[https, "--peer-cert-file=c"], "--peer-cert-file: needs its key: --peer-key-file"),
        (&[https, "--peer-key-file=k"], "--peer-key-file: needs its certificate"),
        (&["--peer-client-cert-auth"], "--peer-client-cert-auth: needs --peer-trusted-ca-file"),
        (&["--peer-crl-file=r"], "--peer-crl-file: applies to members' certificates"),
        (&["--peer-client-cert-file=c"], "--peer-client-cert-file: needs its key"),
        (&["--peer-skip-client-san-verification"], "a host at which the member is reached"),
    ];
    for (args, says) in cases {
        let refused = refusal(args);
        assert!(refused.contains(says), "{args:?}: {refused}");
    }
    for (listen, own, says) in [("https", "http", "by http://"), ("http", "https", "by https://")] {
        let listen = format!("--listen-peer-urls={listen}://127.0.0.1:2380");
        let own = format!("--initial-cluster=default={own}://127.0.0.1:2380");
        let refused = refusal(&with_peer_files(&[&listen, &own]));
        assert!(refused.starts_with("--listen-peer-urls: ") && refused.contains(says), "{refused}");
    }
}

#[test]
fn what_asks_clients_for_certificates_without_tls_is_refused() {
    let pages_only = ["--trusted-ca-file=a", "--auto-tls", "--listen-metrics-urls=https://127.0.0.1:3"];
    for args in
        [&["--trusted-ca-file=a"][..], &["--trusted-ca-file=a", "--cert-file=c", "--key-file=k"], &pages_only]
    {
        let refused = refusal(args);
        assert!(refused.starts_with("--trusted-ca-file: ") && refused.contains("https://"), "{refused}");
    }
    let refused = refusal(&with_files(&[
        "--tls-min-version=TLS1.3",
        "--cipher-suites=TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    ]));
    assert!(refused.starts_with("--cipher-suites: TLS 1.3 alone"), "{refused}");
}

#[test]
fn every_setting_that_can_be_tuned_is_a_flag() {
    for named in SETTINGS {
        let flag = flags::find(named.name).unwrap_or_else(|| panic!("{} is no flag", named.name));
        assert!(named.read(flag.default).is_ok(), "--{}: {}", named.name, flag.default);
        let default = named.show(&Tuning::default());
        assert_eq!(flag.default, default, "--{}", named.name);
    }
    let tuning = config(&["--reads=lease", "--batching", "off", "--batch-linger=10ms"]).tuning;
    assert_eq!((tuning.reads(), tuning.node.raft.batching), (Reads::Lease, false));
    assert_eq!(tuning.node.batch_linger, Duration::from_millis(10));
    assert_eq!(config(&["--lease-reads"]).tuning.reads(), Reads::Lease);
    assert!(config(&["--reads=lease"]).leadership.leader_lease.is_some());
    for (args, said) in [
        (&["--batching=maybe"][..], "--batching: \"maybe\": it is on or off"),
        (&["--apply-delay=10us"], "--apply-delay: this is for experiments: it needs --lab"),
        (&["--lab", "--sync-delay=2s"], "at most 1s"),
        (&["--inflight-msgs-max=0"], "from 1 to 65536"),
        (&["--protocol=jrft"], "not one of raft, basic-raft"),
    ] {
        let refusal = refusal(args);
        assert!(refusal.contains(said), "{args:?}: {refusal}");
    }
    assert!(!config(&["--lab", "--sync-delay=1ms"]).tuning.delays.sync.is_zero());
}

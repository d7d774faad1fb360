//! TLS for clients: etcd's tools and ours over it, clients that must be refused, certificates that are renewed,
//! revoked, or broken while the member runs. [fault-model SE1, SE3]

use kattu_rig::authority::{Authority, Good, Signed, Use};
use kattu_rig::programs::{self, Ended, own_folder, run, signal, until};
use kattu_rig::{Cluster, Options, need};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Each command is run once and must succeed: a disk that stalls for a moment must not change the leader.
const PATIENT: [&str; 2] = ["--election-timeout=5000", "--heartbeat-interval=500"];

fn set(arguments: &mut [String], flag: &str, value: String) {
    let at = arguments.iter().position(|it| it == flag).expect("the flag is there");
    arguments[at + 1] = value;
}

/// A cluster whose members use TLS with clients, with a certificate each; not started yet.
fn plan(what: &str, authority: &Authority, members: usize, flags: &[String]) -> Cluster {
    let flags = PATIENT.iter().map(|it| it.to_string()).chain(flags.iter().cloned()).collect();
    let mut cluster = Cluster::plan(what, Options { members, flags });
    for member in &mut cluster.members {
        let signed = authority.sign(&member.name, &[&member.endpoint.host, "localhost"]);
        let url = format!("https://{}:2379", member.endpoint.host);
        let arguments = member.arguments_mut();
        set(arguments, "--listen-client-urls", url.clone());
        set(arguments, "--advertise-client-urls", url);
        arguments.extend(["--cert-file".into(), text(&signed.cert), "--key-file".into(), text(&signed.key)]);
    }
    cluster
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

fn asks_clients(authority: &Authority) -> [String; 3] {
    ["--client-cert-auth".into(), "--trusted-ca-file".into(), text(&authority.ca())]
}

/// A client of ours, or etcd's: both take these flags.
struct Client<'a> {
    program: PathBuf,
    endpoints: String,
    ca: PathBuf,
    own: Option<&'a Signed>,
}

impl<'a> Client<'a> {
    fn of(cluster: &Cluster, authority: &Authority, own: Option<&'a Signed>) -> Client<'a> {
        let endpoints: Vec<String> =
            cluster.members.iter().map(|member| format!("https://{}", member.address())).collect();
        Client { program: programs::kattu(), endpoints: endpoints.join(","), ca: authority.ca(), own }
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.env("ETCDCTL_API", "3").args(words);
        command.args(["--endpoints", &self.endpoints, "--cacert", &text(&self.ca)]);
        if let Some(own) = self.own {
            command.args(["--cert", &text(&own.cert), "--key", &text(&own.key)]);
        }
        command.stdout(Stdio::null());
        command
    }

    fn run(&self, words: &[&str]) -> Ended {
        run(&mut self.command(words))
    }

    #[track_caller]
    fn says(&self, words: &[&str]) -> String {
        self.run(words).expect_ok().to_string()
    }
}

#[test]
fn etcds_tools_and_ours_read_and_write_in_tls_with_certificates_of_their_own() {
    let folder = own_folder("tls-tools");
    let authority = Authority::new(&folder, "ca");
    let mut cluster = plan("tls-tools", &authority, 3, &asks_clients(&authority));
    cluster.start_all();
    let own = authority.sign("client", &["client"]);
    let mut clients = vec![Client::of(&cluster, &authority, Some(&own))];
    for tool in ["etcd34/etcdctl", "etcd36/etcdctl"] {
        let program = need!(tool);
        clients.push(Client { program, ..Client::of(&cluster, &authority, Some(&own)) });
    }
    for (number, client) in clients.iter().enumerate() {
        let (key, value) = (format!("k{number}"), format!("v{number}"));
        client.says(&["put", &key, &value]);
        assert_eq!(client.says(&["get", &key]), format!("{key}\n{value}\n"), "{}", client.program.display());
        assert_eq!(client.says(&["del", &key]).trim(), "1");
        let list = client.says(&["member", "list"]);
        assert_eq!(list.matches("https://").count(), 3, "{list}");
    }
    let status = clients[0].says(&["status"]);
    assert!(status.contains("n0") && status.contains("n2"), "{status}");
    let told = clients[0].run(&["status", "-o", "json"]).json();
    assert_eq!(
        (&told[0]["certificate_days"], &told[2]["errors"]),
        (&89.into(), &serde_json::json!([])),
        "{told}"
    );
    let ended = clients[0].run(&["move-leader", "--help"]);
    assert!(ended.expect_ok().contains("--cacert"), "{}", ended.all());
}

#[test]
fn the_native_protocol_is_served_in_tls_under_its_name() {
    let folder = own_folder("tls-native");
    let authority = Authority::new(&folder, "ca");
    let mut cluster = plan("tls-native", &authority, 1, &[]);
    cluster.start_all();
    let ca = text(&authority.ca());
    let client = Client::of(&cluster, &authority, None);
    until("the cluster has sessions", || {
        let status = client.says(&["status", "-o", "json"]);
        let level = status.split_once("\"feature_level\":").and_then(|(_, rest)| rest.chars().next());
        level.and_then(|level| level.to_digit(10)).filter(|level| 4 <= *level)
    });
    let lines = crate::native::python(&cluster.members[0].address(), &["--ca", &ca]);
    assert!(lines.ends_with("\nok\n"), "{lines}");
}

/// Sends a request without TLS, and reads the answer.
fn in_plain(address: &str, words: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.write_all(words).expect("it reads");
    let mut heard = Vec::new();
    let _ = stream.read_to_end(&mut heard); // it may end with a reset
    heard
}

#[test]
fn a_client_without_a_valid_certificate_is_refused_and_a_line_says_why() {
    let folder = own_folder("tls-refused");
    let (authority, other) = (Authority::new(&folder, "ca"), Authority::new(&folder, "other"));
    let revoked = authority.sign("revoked", &["client.example"]);
    let crl = authority.revoke(&[&revoked]);
    let mut flags = asks_clients(&authority).to_vec();
    flags.extend(["--client-crl-file".into(), text(&crl)]);
    flags.extend(["--client-cert-allowed-hostname".into(), "client.example".into()]);
    let mut cluster = plan("tls-refused", &authority, 1, &flags);
    cluster.start_all();

    let hosts = ["client.example"];
    let expired = authority.sign_as("expired", &hosts, Good::Before, Use::All);
    let early = authority.sign_as("early", &hosts, Good::Later, Use::All);
    let server = authority.sign_as("server", &hosts, Good::Now, Use::Servers);
    let stranger = other.sign("stranger", &hosts);
    let named = authority.sign("named", &["somebody.example"]);
    let cases: [(Option<&Signed>, &str); 7] = [
        (None, "presents no certificate"),
        (Some(&expired), "has expired"),
        (Some(&early), "not valid yet"),
        (Some(&server), "not for clients"),
        (Some(&stranger), "not signed by an authority in the trusted CA file"),
        (Some(&revoked), "is revoked"),
        (Some(&named), "no allowed name"),
    ];
    for (own, why) in cases {
        let ended = Client::of(&cluster, &authority, own).run(&["put", "k", "v", "--timeout", "3s"]);
        assert_ne!(ended.code, Some(0), "{why}: {}", ended.all());
        assert!(!ended.all().contains("outcome"), "nothing was sent: {}", ended.all());
        until(why, || cluster.members[0].log_text().contains(why).then_some(()));
    }
    // A client that does not trust the member reports it, and the member logs the client's alert.
    let good = authority.sign("good", &hosts);
    let ended = Client { ca: other.ca(), ..Client::of(&cluster, &authority, Some(&good)) }.run(&["get", "k"]);
    assert!(ended.err.contains("not signed by an authority that is trusted here"), "{}", ended.err);
    until("the member says that it is not trusted", || {
        cluster.members[0].log_text().contains("does not trust the certificate of this member").then_some(())
    });
    // A client without TLS gets an answer without TLS.
    let address = cluster.members[0].address();
    let heard = in_plain(&address, b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n");
    let heard = String::from_utf8_lossy(&heard).into_owned();
    assert!(heard.starts_with("HTTP/1.1 400") && heard.contains("use https://"), "{heard}");
    let heard = in_plain(&address, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0");
    assert!(String::from_utf8_lossy(&heard).contains("use https://"), "{heard:?}");
    let plain = Client { endpoints: format!("http://{address}"), ..Client::of(&cluster, &authority, None) };
    assert_ne!(plain.run(&["get", "k", "--timeout", "2s"]).code, Some(0));
    until("does not speak TLS", || {
        cluster.members[0].log_text().contains("does not speak TLS").then_some(())
    });

    let client = Client::of(&cluster, &authority, Some(&good));
    client.says(&["put", "k", "v"]);
    assert_eq!(client.says(&["get", "k"]), "k\nv\n", "the good one is served all the while");
}

#[test]
fn a_port_without_tls_says_so_to_a_tls_client_and_a_hangup_ends_no_member() {
    let folder = own_folder("tls-none");
    let authority = Authority::new(&folder, "ca");
    let cluster = Cluster::start("tls-none", 1);
    let member = &cluster.members[0];
    let client = Client {
        program: programs::kattu(),
        endpoints: format!("https://{}", member.address()),
        ca: authority.ca(),
        own: None,
    };
    let ended = client.run(&["put", "k", "v", "--timeout", "2s"]);
    assert!(ended.err.contains("it does not speak TLS; use http://"), "{}", ended.all());
    until("the member says it, too", || {
        member.log_text().contains("it speaks TLS, and this port does not").then_some(())
    });
    signal(member.pid(), "HUP");
    until("the member has heard it", || member.log_text().contains("SIGHUP").then_some(()));
    member.kv().put_surely("k", "v");
}

#[test]
fn certificates_of_all_are_renewed_under_load_without_one_failed_request() {
    let folder = own_folder("tls-renewed");
    let authority = Authority::new(&folder, "ca");
    let mut cluster = plan("tls-renewed", &authority, 3, &asks_clients(&authority));
    cluster.start_all();
    // While files are rewritten, a client may find a pair that does not match: here, new files are used.
    let own = authority.sign("client", &["client"]);
    let newest = Mutex::new(own.clone());
    let (is_over, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let client = Client::of(&cluster, &authority, Some(&own));
    std::thread::scope(|scope| {
        // Each of these is a connection of its own, with a handshake; a lasting one runs beside them.
        let lasting = scope.spawn(|| client.run(&["bench", "put", "--total", "20000", "--clients", "8"]));
        for number in 0..2 {
            let (cluster, authority, newest, is_over, done) =
                (&cluster, &authority, &newest, &is_over, &done);
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    let own = newest.lock().expect("nobody panics with it").clone();
                    Client::of(cluster, authority, Some(&own)).says(&[
                        "put",
                        &format!("renewed/{number}"),
                        "x",
                    ]);
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for round in 1..=3 {
            for member in &cluster.members {
                let _ = authority.sign(&member.name, &[&member.endpoint.host, "localhost"]);
            }
            for member in &cluster.members {
                until("the member has read its new certificate", || {
                    (round <= member.log_text().matches("--cert-file: reloaded").count()).then_some(())
                });
            }
            let renewed = authority.sign(&format!("client-{round}"), &["client"]);
            *newest.lock().expect("nobody panics with it") = renewed;
            let before = done.load(Ordering::Relaxed);
            until("clients with new certificates are served by members with new ones", || {
                (before + 10 <= done.load(Ordering::Relaxed)).then_some(())
            });
        }
        let ended = lasting.join().expect("it ends");
        is_over.store(true, Ordering::Relaxed);
        ended.expect_ok();
        assert!(!ended.all().contains("failed: "), "{}", ended.all());
    });
}

#[test]
fn a_broken_renewal_changes_nothing_and_a_revocation_ends_a_connection() {
    let folder = own_folder("tls-broken");
    let authority = Authority::new(&folder, "ca");
    let crl = authority.revoke(&[]);
    let mut flags = asks_clients(&authority).to_vec();
    flags.extend(["--client-crl-file".into(), text(&crl)]);
    let mut cluster = plan("tls-broken", &authority, 1, &flags);
    cluster.start_all();
    let (own, goes) = (authority.sign("client", &["client"]), authority.sign("goes", &["client"]));
    let member = &cluster.members[0];
    let says = |what: &str| until(what, || member.log_text().contains(what).then_some(()));

    let cert = folder.join(format!("ca.{}.crt", member.name));
    let before = std::fs::read(&cert).expect("it was written");
    std::fs::write(&cert, "no certificate").expect("the folder can be written");
    says("the previous ones stay in force, valid for 89 more days");
    says("no certificate in PEM is in it");
    let client = Client::of(&cluster, &authority, Some(&own));
    client.says(&["put", "k", "v"]);
    let told = client.run(&["status", "-o", "json"]).json();
    assert!(
        told[0]["errors"][0].as_str().is_some_and(|it| it.contains("no certificate in PEM is in it")),
        "{told}"
    );
    std::fs::write(&cert, before).expect("the folder can be written");
    // On SIGHUP, a member does not wait until the files stop changing.
    signal(member.pid(), "HUP");
    says("--cert-file: reloaded");

    // The certificate of an open connection is revoked.
    let words = ["bench", "put", "--total", "100000000"];
    let mut lasting = Client::of(&cluster, &authority, Some(&goes)).command(&words).spawn().expect("it runs");
    let revision = || {
        let put = client.run(&["put", "k", "v", "-o", "json"]).json();
        put["header"]["revision"]
            .as_u64()
            .or_else(|| put["header"]["revision"].as_str()?.parse().ok())
            .expect("a number")
    };
    let first = revision();
    until("it is served", || (first + 100 < revision()).then_some(()));
    let _ = authority.revoke(&[&goes]);
    says("its certificate is revoked");
    let (first, second) = (revision(), revision());
    let ended = lasting.kill().and_then(|()| lasting.wait());
    assert!(ended.is_ok(), "{ended:?}");
    assert_eq!(second, first + 1, "nobody else writes any more");
}

#[test]
fn a_certificate_made_by_the_member_encrypts_and_a_port_may_speak_both() {
    let mut cluster = Cluster::plan("tls-auto", Options { members: 1, ..Options::default() });
    let member = &mut cluster.members[0];
    let (address, made) = (member.address(), member.data.join(".tls/client.crt"));
    let both = format!("http://{address},https://{address}");
    set(member.arguments_mut(), "--listen-client-urls", both.clone());
    set(member.arguments_mut(), "--advertise-client-urls", both);
    member.arguments_mut().push("--auto-tls".into());
    member.start();
    assert!(member.log_text().contains("clients cannot verify this member"), "{}", member.log_text());
    let client = |endpoints: String, ca: &Path| Client {
        program: programs::kattu(),
        endpoints,
        ca: ca.to_path_buf(),
        own: None,
    };
    client(format!("https://{address}"), &made).says(&["put", "k", "v"]);
    assert_eq!(client(format!("http://{address}"), &made).says(&["get", "k"]), "k\nv\n");
    let kept = std::fs::read(&made).expect("it was made");
    member.stop("TERM");
    member.start();
    assert_eq!(std::fs::read(&made).expect("it is kept"), kept);
    client(format!("https://{address}"), &made).says(&["get", "k"]);
}

#[test]
fn each_way_in_which_files_do_not_fit_has_its_line() {
    let folder = own_folder("tls-wrong");
    let authority = Authority::new(&folder, "ca");
    let (one, two) = (authority.sign("one", &["127.0.0.1"]), authority.sign("two", &["127.0.0.1"]));
    let empty = folder.join("empty");
    std::fs::write(&empty, "").expect("the folder can be written");
    let absent = folder.join("absent");
    let (cert, key, ca) = (text(&one.cert), text(&one.key), text(&authority.ca()));
    let cases: [(&[&str], &str); 12] = [
        (&[], "needs --cert-file and --key-file, or --auto-tls"),
        (&["--cert-file", &cert], "needs its key: --key-file"),
        (&["--key-file", &key], "needs its certificate: --cert-file"),
        (
            &["--cert-file", &cert, "--key-file", &text(&two.key)],
            "this key does not belong to the certificate",
        ),
        (&["--cert-file", &key, "--key-file", &key], "no certificate in PEM is in it"),
        (&["--cert-file", &cert, "--key-file", &cert], "no key in PEM is in it"),
        (&["--cert-file", &text(&absent), "--key-file", &key], "absent: cannot be read"),
        (
            &["--cert-file", &cert, "--key-file", &key, "--trusted-ca-file", &text(&empty)],
            "empty: no certificate in PEM",
        ),
        (&["--cert-file", &cert, "--key-file", &key, "--client-cert-auth"], "needs --trusted-ca-file"),
        (&["--cert-file", &cert, "--key-file", &key, "--client-crl-file", &ca], "add --trusted-ca-file"),
        (
            &["--cert-file", &cert, "--key-file", &key, "--tls-min-version", "TLS1.1"],
            "is not one of TLS1.2, TLS1.3",
        ),
        (
            &["--cert-file", &cert, "--key-file", &key, "--cipher-suites", "TLS_RSA_WITH_AES_128_CBC_SHA"],
            "weak or unknown",
        ),
    ];
    for (flags, why) in cases {
        let mut command = Command::new(programs::kattu());
        command.args([
            "serve",
            "--data-dir",
            &text(&folder.join("data")),
            "--listen-client-urls",
            "https://127.0.0.1:0",
        ]);
        command.args([
            "--advertise-client-urls",
            "https://127.0.0.1:2379",
            "--listen-peer-urls",
            "http://127.0.0.1:0",
        ]);
        command.args(["--initial-advertise-peer-urls", "http://127.0.0.1:2380"]);
        let ended = run(command.args(flags));
        assert_eq!(ended.code, Some(2), "{flags:?}: {}", ended.all());
        let last = ended.err.lines().last().unwrap_or_default();
        assert!(last.contains(why), "{flags:?}: {last}");
    }
    // A member with an expired certificate serves clients that do not check it, and logs a warning.
    let expired = authority.sign_as("expired", &["127.0.0.1"], Good::Before, Use::All);
    let mut cluster = plan("tls-expired", &authority, 1, &[]);
    let member = &mut cluster.members[0];
    set(member.arguments_mut(), "--cert-file", text(&expired.cert));
    set(member.arguments_mut(), "--key-file", text(&expired.key));
    member.start();
    until("it says that its certificate has expired", || {
        member.log_text().contains("the certificate is expired: renew its files").then_some(())
    });
    until("nor is it for this host", || member.log_text().contains("is not for").then_some(()));
    let ended = Client::of(&cluster, &authority, None).run(&["get", "k"]);
    assert!(ended.err.contains("its certificate has expired"), "{}", ended.err);
}

/// The TLS 1.2 cipher suites that are allowed.
const GOOD: [&str; 6] = [
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
];

#[test]
fn a_scanner_finds_nothing_below_tls_1_2_and_no_weak_suite() {
    let scanner = need!("sslyze");
    let folder = own_folder("tls-scanned");
    let authority = Authority::new(&folder, "ca");
    let mut cluster = plan("tls-scanned", &authority, 1, &[]);
    cluster.start_all();
    let out = folder.join("found.json");
    let mut command = Command::new("python3");
    command.env("PYTHONPATH", scanner).args(["-m", "sslyze", "--json_out"]).arg(&out);
    let ended = run(command.arg(cluster.members[0].address()));
    // Its exit code compares with browsers' rules for public certificates.
    let text = std::fs::read_to_string(&out).unwrap_or_else(|error| panic!("{error}: {}", ended.all()));
    let found: serde_json::Value = serde_json::from_str(&text).expect("it writes JSON");
    let result = &found["server_scan_results"][0]["scan_result"];
    let accepted = |version: &str| -> Vec<String> {
        let scan = &result[format!("{version}_cipher_suites")];
        assert_eq!(scan["status"], "COMPLETED", "{version}: {scan}");
        let suites = scan["result"]["accepted_cipher_suites"].as_array().expect("a list");
        suites.iter().map(|it| it["cipher_suite"]["name"].as_str().expect("a name").to_string()).collect()
    };
    for old in ["ssl_2_0", "ssl_3_0", "tls_1_0", "tls_1_1"] {
        assert_eq!(accepted(old), Vec::<String>::new(), "{old}");
    }
    let of_12 = accepted("tls_1_2");
    assert!(!of_12.is_empty() && of_12.iter().all(|name| GOOD.contains(&&name[..])), "{of_12:?}");
    assert_eq!(accepted("tls_1_3").len(), 3);
    let says = |scan: &str, field: &str| result[scan]["result"][field].clone();
    for (scan, field) in [
        ("heartbleed", "is_vulnerable_to_heartbleed"),
        ("openssl_ccs_injection", "is_vulnerable_to_ccs_injection"),
        ("tls_compression", "supports_compression"),
        ("session_renegotiation", "is_vulnerable_to_client_renegotiation_dos"),
    ] {
        assert_eq!(says(scan, field), false, "{scan}");
    }
    assert_eq!(says("session_renegotiation", "supports_secure_renegotiation"), true);
    let robot = says("robot", "robot_result");
    assert!(robot.as_str().is_some_and(|it| it.starts_with("NOT_VULNERABLE")), "{robot}");
}

//! One server of either kind: a fresh process on a loopback address of its own.
//!
//! Knows nothing of: requests.

use kattu_proto::etcdserverpb::RangeRequest;
use kattu_proto::etcdserverpb::kv_client::KvClient;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tonic::transport::{Channel, Endpoint};

const START_LIMIT: Duration = Duration::from_secs(30);
/// Large enough for the longest answers to these requests.
const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// How to get a server.
#[derive(Clone, Debug)]
pub enum Kind {
    /// Start this executable with etcd's flags.
    Etcd(PathBuf),
    /// Start this executable as `kattu serve` with etcd's flags.
    Kattu(PathBuf),
}

/// A running server; dropped, it is killed and its data removed.
pub struct Server {
    child: Child,
    folder: PathBuf,
    /// Its client.
    pub client: KvClient<Channel>,
}

impl Server {
    /// Starts on fresh data and waits until a linearizable read succeeds.
    pub async fn start(kind: &Kind, data: &Path) -> Result<Server, String> {
        let (program, verb) = match kind {
            Kind::Etcd(program) => (program, None),
            Kind::Kattu(program) => (program, Some("serve")),
        };
        let host = own_address();
        let folder = data.join(&host);
        std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let log_path = folder.join("log");
        let log = File::create(&log_path).map_err(|error| error.to_string())?;
        let (clients, peers) = (format!("http://{host}:2379"), format!("http://{host}:2380"));
        let mut command = Command::new(program);
        command
            .args(verb)
            .args(["--name", "d", "--data-dir"])
            .arg(folder.join("data"))
            .args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients])
            .args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers])
            .args(["--initial-cluster", &format!("d={peers}")])
            // A single member elects itself; short timeouts make it start sooner.
            .args(["--heartbeat-interval", "20", "--election-timeout", "200"])
            .stdin(Stdio::null())
            .stdout(log.try_clone().map_err(|error| error.to_string())?)
            .stderr(log);
        let child = command.spawn().map_err(|error| format!("{}: {error}", program.display()))?;
        let endpoint = Endpoint::from_shared(clients).map_err(|error| error.to_string())?;
        let client = KvClient::new(endpoint.connect_lazy())
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        let mut server = Server { child, folder, client };
        let end = Instant::now() + START_LIMIT;
        while !server.answers().await {
            let log = || std::fs::read_to_string(&log_path).unwrap_or_default();
            if let Ok(Some(status)) = server.child.try_wait() {
                return Err(format!("{} ended with {status}:\n{}", program.display(), log()));
            }
            if end < Instant::now() {
                return Err(format!(
                    "{} does not answer after {START_LIMIT:?}:\n{}",
                    program.display(),
                    log()
                ));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(server)
    }

    async fn answers(&self) -> bool {
        let mut client = self.client.clone();
        let read = client.range(RangeRequest { key: b"ready".to_vec(), ..RangeRequest::default() });
        matches!(tokio::time::timeout(Duration::from_secs(2), read).await, Ok(Ok(_)))
    }

    /// Its exit status and the end of its log, if it has ended.
    pub fn ended(&mut self) -> Option<String> {
        let status = self.child.try_wait().ok()??;
        let log = std::fs::read_to_string(self.folder.join("log")).unwrap_or_default();
        let tail: Vec<&str> = log.lines().rev().take(30).collect();
        Some(format!("ended with {status}:\n{}", tail.into_iter().rev().collect::<Vec<_>>().join("\n")))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A loopback address that no other server of this machine uses: from our process id and a counter.
fn own_address() -> String {
    static STARTED: AtomicU32 = AtomicU32::new(0);
    let process = std::process::id();
    let number = STARTED.fetch_add(1, Ordering::Relaxed);
    // 127.128.0.0/9: 15 bits of the process, 8 of the counter.
    format!("127.{}.{}.{}", 128 + ((process >> 8) & 0x7f), process & 0xff, 1 + number % 254)
}

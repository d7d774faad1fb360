//! One server of either kind: a fresh process on a loopback address of its own.
//!
//! Knows nothing of: requests.

use kattu_proto::etcdserverpb::RangeRequest;
use kattu_proto::etcdserverpb::kv_client::KvClient;
use kattu_rig::Process;
use kattu_rig::process::last_lines;
use kattu_rig::programs::own_host;
use kattu_rig::target::{Target, flags};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tonic::transport::{Channel, Endpoint};

const START_LIMIT: Duration = Duration::from_secs(30);
/// Large enough for the longest answers to these requests.
const MESSAGE_BYTES_MAX: usize = 64 << 20;
/// etcd's default, so that either server has the ids that it would have without this flag.
const TOKEN: &str = "etcd-cluster";
const SHOWN_LINES: usize = 30;

/// How to get a server.
#[derive(Clone, Debug)]
pub struct System {
    /// Which kind of server it is.
    pub target: Target,
    /// The executable; it is given etcd's flags.
    pub program: PathBuf,
}

/// A running server; dropped, it is killed and its data removed.
pub struct Server {
    process: Process,
    folder: PathBuf,
    /// Its client.
    pub client: KvClient<Channel>,
}

impl Server {
    /// Starts on fresh data and waits until a linearizable read succeeds.
    pub async fn start(system: &System, data: &Path) -> Result<Server, String> {
        let (host, program) = (own_host(), system.program.display());
        let folder = data.join(&host);
        std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let endpoint =
            Endpoint::from_shared(format!("http://{host}:2379")).map_err(|error| error.to_string())?;
        let client = KvClient::new(endpoint.connect_lazy())
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        let mut words = vec![program.to_string()];
        words.extend(system.target.verb().map(str::to_string));
        words.extend(flags("d", &host, &folder.join("data"), &format!("d=http://{host}:2380"), TOKEN));
        // A single member elects itself; short timeouts make it start sooner.
        words.extend(["--heartbeat-interval", "20", "--election-timeout", "200"].map(str::to_string));
        let process = Process::new("d", folder.join("log"));
        let mut server = Server { process, folder, client };
        server.process.spawn(&words)?;
        let end = Instant::now() + START_LIMIT;
        while !server.answers().await {
            if let Some(status) = server.process.ended() {
                return Err(format!("{program} ended with {status}:\n{}", server.process.log_text()));
            }
            if end < Instant::now() {
                let log = server.process.log_text();
                return Err(format!("{program} does not answer after {START_LIMIT:?}:\n{log}"));
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
        let status = self.process.ended()?;
        let log = self.process.log_text();
        Some(format!("ended with {status}:\n{}", last_lines(&log, SHOWN_LINES).join("\n")))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.process.kill();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

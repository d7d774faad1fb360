//! dev: a whole cluster in one process, to try out.
//!
//! Real logs, real TCP on the loopback address, one thread per member; only the machine is shared. The same data
//! directory with the same nodes and ports continues where it stopped.
//! Knows nothing of: the parts of a member.

use crate::output;
use crate::serve as one;
use crate::switches::Switches;
use clap::Args;
use kattu_output::{Ended, Outcome};
use kattu_runtime::report::{self, LogOptions};
use kattu_server::config::{self, Command, ServeConfig};
use kattu_server::serve::{self, ServeError};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use tokio::sync::watch;

/// Most members of one such cluster.
const NODES_MAX: u16 = 9;

/// Arguments of dev.
#[derive(Args, Debug)]
#[command(after_help = "\
Members listen for clients on ports 2379, 22379, 32379, .., and for each other on 2380, 22380, 32380, ..
With --base-port P these are P, P+10, P+20, .. and P+1, P+11, P+21, ..
Ctrl-C stops the cluster; the next start with the same flags continues with the same data.

Examples:
  kattu dev
  kattu dev --nodes 5 --data-dir /tmp/play --base-port 5000
  kattu dev --protocol basic-raft")]
pub(crate) struct DevArgs {
    /// Number of members
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=i64::from(NODES_MAX)))]
    nodes: u16,
    /// Directory of their data
    #[arg(long, default_value = "kattu-data")]
    data_dir: PathBuf,
    /// First port, instead of 2379
    #[arg(long)]
    base_port: Option<u16>,
    #[command(flatten)]
    switches: Switches,
}

/// Events of a member's thread.
enum News {
    Ready,
    Ended(Result<(), ServeError>),
}

/// Runs a cluster until SIGINT or SIGTERM.
pub(crate) fn run(args: &DevArgs) -> Outcome {
    let ports = ports(args.nodes, args.base_port)?;
    let configs = configs(&ports, &args.data_dir, &args.switches)?;
    report::start(LogOptions::default()).map_err(Ended::failed)?;
    for config in configs.iter().filter(|config| config.unsafe_no_fsync) {
        report::warn(format_args!("{}: {}", config.name, kattu_server::NO_FSYNC));
    }
    one::prepare();
    let signal = serve::stop_on_signal().map_err(Ended::failed)?;
    let (stop, stopping) = watch::channel(false);
    let (sender, news) = mpsc::channel();
    forward(signal, stop.clone())?;

    let mut running = 0;
    for config in configs {
        let (sender, stopping) = (sender.clone(), stopping.clone());
        let name = config.name.clone();
        let member = move || {
            let ready = sender.clone();
            let on_ready = move || {
                let _ = ready.send(News::Ready);
            };
            let ended = serve::run(config, stopping, Box::new(on_ready));
            let _ = sender.send(News::Ended(ended));
        };
        std::thread::Builder::new()
            .name(name)
            .spawn(member)
            .map_err(|error| Ended::failed(format!("cannot start a thread: {error}")))?;
        running += 1;
    }

    let mut ready = 0;
    let mut first_failure = None;
    while running > 0 {
        match news.recv().expect("each running member holds a sender") {
            News::Ready => {
                ready += 1;
                if ready == ports.len() {
                    output::print(tutorial(&ports, &args.data_dir).as_bytes())?;
                }
            }
            News::Ended(ended) => {
                running -= 1;
                if let Err(error) = ended {
                    first_failure.get_or_insert(error);
                }
                // All members or none: the end of one stops the others.
                let _ = stop.send(true);
            }
        }
    }
    report::flush();
    first_failure.map_or(Ok(()), |error| Err(explain(error)))
}

/// Passes the signal on to the switch that failures use too.
fn forward(mut signal: watch::Receiver<bool>, stop: watch::Sender<bool>) -> Outcome {
    let waiting = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        if let Ok(runtime) = runtime
            && runtime.block_on(signal.wait_for(|stop| *stop)).is_ok()
        {
            let _ = stop.send(true);
        }
    };
    std::thread::Builder::new()
        .name("stop".to_string())
        .spawn(waiting)
        .map(|_| ())
        .map_err(|error| Ended::failed(format!("cannot start a thread: {error}")))
}

/// A failure in terms of this verb's flags.
fn explain(error: ServeError) -> Ended {
    match &error {
        ServeError::Port { address, error: cause, .. } => {
            let what = if cause.kind() == std::io::ErrorKind::AddrInUse {
                "is in use by another process".to_string()
            } else {
                format!("cannot be listened on: {cause}")
            };
            Ended::with_code(
                error.exit_code(),
                format!("{address} {what}; stop that process or choose other ports with --base-port"),
            )
        }
        ServeError::Data(_) => Ended::with_code(
            error.exit_code(),
            format!("{error} (a cluster continues only with the --nodes and --base-port it was made with)"),
        ),
        _ => Ended::with_code(error.exit_code(), error),
    }
}

/// Ports of one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ports {
    client: u16,
    peer: u16,
}

fn ports(nodes: u16, base: Option<u16>) -> Result<Vec<Ports>, Ended> {
    let first = |number: u32| match base {
        Some(base) => u32::from(base) + 10 * number,
        None if number == 0 => 2379,
        None => 12_379 + 10_000 * number,
    };
    let too_far = || match base {
        Some(base) => Ended::usage(format!("--base-port {base}: {nodes} members need ports up to 65535")),
        None => {
            Ended::usage(format!("--nodes {nodes}: ports would exceed 65535; choose others with --base-port"))
        }
    };
    if base == Some(0) {
        return Err(Ended::usage("--base-port 0: members must know each other's ports; choose one above 0"));
    }
    (0..u32::from(nodes))
        .map(|number| {
            let peer = u16::try_from(first(number) + 1).map_err(|_| too_far())?;
            Ok(Ports { client: peer - 1, peer })
        })
        .collect()
}

/// Members configured as `kattu serve` would configure them, from nothing but flags.
fn configs(ports: &[Ports], data_dir: &Path, switches: &Switches) -> Result<Vec<ServeConfig>, Ended> {
    let url = |port: u16| format!("http://127.0.0.1:{port}");
    let named = || ports.iter().zip(1..).map(|(ports, number)| (format!("n{number}"), ports));
    let cluster: Vec<String> = named().map(|(name, ports)| format!("{name}={}", url(ports.peer))).collect();
    named()
        .map(|(name, ports)| {
            let own = [
                format!("--name={name}"),
                format!("--listen-client-urls={}", url(ports.client)),
                format!("--listen-peer-urls={}", url(ports.peer)),
                format!("--initial-cluster={}", cluster.join(",")),
                "--initial-cluster-token=kattu-dev".to_string(),
            ];
            let args: Vec<String> = own.into_iter().chain(switches.0.iter().cloned()).collect();
            // The environment is ignored: ETCD_NAME would give all members one name.
            match config::load_from(&args, &[], &|path| std::fs::read_to_string(path)) {
                // No reserve for a full disk: a cluster to try out should not take 200 MB before the first key.
                Ok(Command::Serve(config, _)) => {
                    Ok(ServeConfig { data_dir: data_dir.join(name), reserve_bytes: 0, ..*config })
                }
                Ok(_) => Err(Ended::failed("internal error: the flags of a member ask for help")),
                Err(error) => Err(Ended::usage(error)),
            }
        })
        .collect()
}

/// Five lines for a first-time user.
fn tutorial(ports: &[Ports], data_dir: &Path) -> String {
    let endpoints: Vec<String> = ports.iter().map(|ports| format!("127.0.0.1:{}", ports.client)).collect();
    let all = endpoints.join(",");
    let one = if endpoints[0] == "127.0.0.1:2379" {
        String::new()
    } else {
        format!(" --endpoints {}", endpoints[0])
    };
    let members =
        if ports.len() == 1 { "1 member runs".to_string() } else { format!("{} members run", ports.len()) };
    format!(
        "{members}; Ctrl-C stops, the data is kept in {}. In another terminal:\n\
         \x20 kattu put{one} hello world                      # write\n\
         \x20 kattu get{one} hello                            # read it back\n\
         \x20 kattu status --endpoints {all}   # roles and progress of all members\n\
         \x20 etcdctl --endpoints {all} get hello   # etcd's own tools work too\n",
        data_dir.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client_ports(nodes: u16, base: Option<u16>) -> Vec<u16> {
        ports(nodes, base).unwrap().iter().map(|ports| ports.client).collect()
    }

    fn peer_ports(nodes: u16, base: Option<u16>) -> Vec<u16> {
        ports(nodes, base).unwrap().iter().map(|ports| ports.peer).collect()
    }

    #[test]
    fn ports_are_etcds_or_near_the_base() {
        assert_eq!(client_ports(3, None), [2379, 22_379, 32_379]);
        assert_eq!(peer_ports(3, None), [2380, 22_380, 32_380]);
        assert_eq!(client_ports(3, Some(5000)), [5000, 5010, 5020]);
        assert_eq!(peer_ports(2, Some(5000)), [5001, 5011]);
        assert_eq!(client_ports(6, None), [2379, 22_379, 32_379, 42_379, 52_379, 62_379]);
        assert_eq!(ports(7, None).unwrap_err().code(), 2);
        assert_eq!(ports(3, Some(65_530)).unwrap_err().code(), 2);
        assert_eq!(ports(1, Some(65_535)).unwrap_err().code(), 2);
        assert_eq!(ports(1, Some(0)).unwrap_err().code(), 2);
    }

    #[test]
    fn members_agree_on_the_cluster_and_differ_in_everything_else() {
        let configs = configs(&ports(3, None).unwrap(), Path::new("play"), &Switches::default()).unwrap();
        assert!(configs.iter().all(|config| config.cluster_id == configs[0].cluster_id));
        assert!(configs.iter().all(|config| config.members == configs[0].members));
        assert_ne!(configs[0].id, configs[1].id);
        assert_eq!(configs[2].data_dir, Path::new("play/n3"));
    }

    #[test]
    fn the_tutorial_has_five_lines() {
        for base in [None, Some(7000)] {
            let text = tutorial(&ports(3, base).unwrap(), Path::new("kattu-data"));
            assert_eq!(text.lines().count(), 5, "{text}");
        }
        assert!(
            tutorial(&ports(1, Some(7000)).unwrap(), Path::new("d"))
                .contains("put --endpoints 127.0.0.1:7000")
        );
    }
}

//! TLS on the ports of a member: its listeners for clients, and the reloading of its files.
//!
//! Knows nothing of: handshakes, the contents of certificates.

use crate::face::FaceConfig;
use kattu_runtime::report::{self, Cause};
use kattu_tls::{Leaf, Looked, Refused, ServerTls, Speaks};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::net::TcpListener;
use tokio::sync::watch;

/// Time between two checks of the files.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// For this long before a certificate expires a warning is logged every day; for the last third of a short-lived one.
const WARN_BEFORE: Duration = Duration::from_secs(30 * 86_400);
const WARN_EVERY: Duration = Duration::from_secs(86_400);

/// A listener for clients.
#[derive(Debug)]
pub struct Doorway {
    /// Its socket.
    pub listener: TcpListener,
    /// Its protocols.
    pub speaks: Speaks,
}

impl From<TcpListener> for Doorway {
    fn from(listener: TcpListener) -> Doorway {
        Doorway { listener, speaks: Speaks::Plain }
    }
}

/// Logs a refused client; for each reason only one line in a while.
pub(crate) fn tell_of_refused(from: Option<SocketAddr>, why: &Refused) {
    if let Refused::Left = why {
        return; // common, and counted as a broken connection
    }
    let from = from.map_or_else(|| "an unknown address".to_string(), |from| from.to_string());
    let cause = Cause { what: "a client refused by TLS", whose: why.kind() };
    report::warn_of(cause, format_args!("refused a client at {from}: {why}"));
}

/// The state of a member's certificates, for status pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// Whole days until the first of them expires; below 0 afterwards.
    pub days_left: i64,
    /// Problems that the operator has to fix.
    pub problems: Vec<String>,
}

impl Certificate {
    /// As of now; none without TLS.
    #[must_use]
    pub(crate) fn of_all(config: &FaceConfig) -> Option<Certificate> {
        let ports = [(&config.tls, "clients"), (&config.peer_tls, "members")];
        let all = ports.into_iter().filter_map(|(tls, whom)| Some(Certificate::of(tls.as_ref()?, whom)));
        all.reduce(|one, other| Certificate {
            days_left: one.days_left.min(other.days_left),
            problems: [one.problems, other.problems].concat(),
        })
    }

    fn of(tls: &ServerTls, whom: &str) -> Certificate {
        let (leaf, now) = (tls.current().ends_first().clone(), SystemTime::now());
        let days = |time: Duration| i64::try_from(time.as_secs() / 86_400).unwrap_or(i64::MAX);
        let days_left = match leaf.not_after.duration_since(now) {
            Ok(left) => days(left),
            Err(since) => -1 - days(since.duration()),
        };
        let mut problems = Vec::new();
        if is_nearly_over(&leaf, now) {
            problems.push(format!("the certificate for {whom} is {}: renew its files", good_for(&leaf)));
        }
        if let Some(error) = tls.broken_now() {
            problems.push(format!(
                "the TLS files for {whom} are unusable, and the previous ones stay in force: {error}"
            ));
        }
        Certificate { days_left, problems }
    }
}

fn is_nearly_over(leaf: &Leaf, now: SystemTime) -> bool {
    let whole = leaf.not_after.duration_since(leaf.not_before).unwrap_or_default();
    leaf.left(now).is_none_or(|left| left < WARN_BEFORE.min(whole / 3))
}

/// How long a certificate is valid, for people.
#[must_use]
pub(crate) fn good_for(leaf: &Leaf) -> String {
    match leaf.left(SystemTime::now()) {
        Some(left) if left < Duration::from_secs(2 * 86_400) => {
            format!("valid for {} more hours", left.as_secs() / 3600)
        }
        Some(left) => format!("valid for {} more days", left.as_secs() / 86_400),
        None if SystemTime::now() < leaf.not_before => "not valid yet".to_string(),
        None => "expired".to_string(),
    }
}

/// Reloads the files of a port when they change, until `stop` turns true; on SIGHUP at once. `flag` names the
/// certificate.
pub async fn keep(tls: Arc<ServerTls>, flag: &'static str, mut stop: watch::Receiver<bool>) {
    use tokio::signal::unix::{SignalKind, signal};
    let mut hangups = signal(SignalKind::hangup()).ok();
    let mut warned: Option<SystemTime> = None;
    loop {
        warn_in_time(tls.current().ends_first(), flag, &mut warned);
        let hangup = async {
            match &mut hangups {
                Some(hangups) => hangups.recv().await,
                None => std::future::pending().await,
            }
        };
        let at_once = tokio::select! {
            () = tokio::time::sleep(LOOK_EVERY) => false,
            _ = hangup => true,
            _ = stop.wait_for(|stop| *stop) => return,
        };
        let looked = {
            let tls = tls.clone();
            tokio::task::spawn_blocking(move || tls.look(at_once)).await
        };
        match looked {
            Ok(Looked::Renewed(leaf)) => {
                warned = None;
                report::info(format_args!("--{flag}: reloaded, {}", good_for(&leaf)));
            }
            Ok(Looked::Broken(error)) => report::warn(format_args!(
                "--{flag}: the new files are unusable, and the previous ones stay in force, {}: {error}",
                good_for(tls.current().ends_first())
            )),
            Ok(Looked::Same) => {}
            Err(panicked) => std::panic::resume_unwind(panicked.into_panic()), // the task is never cancelled
        }
    }
}

fn warn_in_time(leaf: &Leaf, flag: &str, warned: &mut Option<SystemTime>) {
    let now = SystemTime::now();
    let is_soon = is_nearly_over(leaf, now);
    let was_long_ago = warned.is_none_or(|at| now.duration_since(at).is_ok_and(|since| WARN_EVERY <= since));
    if is_soon && was_long_ago {
        *warned = Some(now);
        report::warn(format_args!("--{flag}: the certificate is {}: renew its files", good_for(leaf)));
    }
}

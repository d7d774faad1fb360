//! Server: a port's side of TLS. New connections take what was read last; its files are looked at now and then, and read again
//! when they have changed and lie still.
//!
//! ```text
//!  look ── as they were read ──▶ nothing
//!       ── changed since the last look ──▶ wait for the next: whoever writes two files writes one of them first
//!       ── changed, and as at the last look ──▶ read ── good ──▶ renewed: new connections take it; if other clients are let in
//!                                                    │           than before, those who are in are judged by it
//!                                                    └─ bad ──▶ broken: everything stays, told once, and tried again
//! ```
//! Knows nothing of: when to look, sockets.

use crate::files::{FileError, Own, TlsFiles};
use crate::leaf::Leaf;
use crate::members::Dial;
use crate::refused::{Refused, refused};
use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::{ClientConfig, ServerConfig};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// What was read last, and was good.
#[derive(Debug)]
pub struct Current {
    /// For new connections.
    pub config: Arc<ServerConfig>,
    own: Own,
    shown: Option<Own>,
    clients: Option<Arc<dyn ClientCertVerifier>>,
    dial: Option<Dial>,
    /// How the files lay that rule whose certificates are taken.
    of_clients: Vec<Stamp>,
}

impl Current {
    /// The certificate that those who come are shown.
    #[must_use]
    pub fn leaf(&self) -> &Leaf {
        &self.own.leaf
    }

    /// Of the certificates that are shown to those who come, and to those who are dialled, the one that ends first.
    #[must_use]
    pub fn ends_first(&self) -> &Leaf {
        match &self.shown {
            Some(shown) if shown.leaf.not_after < self.own.leaf.not_after => &shown.leaf,
            _ => &self.own.leaf,
        }
    }

    /// Whether the certificate is for this host or address.
    #[must_use]
    pub fn is_for(&self, host: &str) -> bool {
        self.own.leaf.names.iter().any(|name| names(name, host))
    }

    /// Judges a client anew that showed this chain when it came.
    ///
    /// # Errors
    /// It would not be let in now, and why.
    pub fn judge(&self, chain: Option<&[CertificateDer<'_>]>) -> Result<(), Refused> {
        let Some(clients) = &self.clients else { return Ok(()) };
        let Some((leaf, rest)) = chain.and_then(<[_]>::split_first) else {
            return Err(Refused::NoCertificate);
        };
        let judged = clients.verify_client_cert(leaf, rest, UnixTime::now());
        judged.map(|_| ()).map_err(|error| refused(&std::io::Error::other(error)))
    }

    /// Where members show each other certificates, whether this one's own would be taken: what it trusts all trust, soon or
    /// already, so files by which it is taken no more would end all links.
    fn takes_itself(&self, files: &TlsFiles) -> Result<(), FileError> {
        let (Some(dial), Some(_)) = (&self.dial, &self.clients) else { return Ok(()) };
        let host = self.own.leaf.names.iter().find(|name| !name.starts_with('*'));
        let Some(host) = host.filter(|_| dial.is_trusting) else { return Ok(()) };
        let shown = self.shown.as_ref().unwrap_or(&self.own);
        let judged = self.judge_dialled(Some(&self.own.chain), host);
        let judged = judged.and_then(|()| self.judge(Some(&shown.chain)));
        match judged {
            // That is told otherwise, and is no reason to go on with the old ones.
            Ok(())
            | Err(
                Refused::Expired
                | Refused::NotYet
                | Refused::Revoked
                | Refused::WrongPurpose
                | Refused::WrongName, // who else is allowed is a matter of each member's own
            ) => Ok(()),
            Err(why) => {
                let what = format!(
                    "with these files this member's own certificate would be refused by the others: {why}"
                );
                Err(FileError { file: files.cert.clone(), what })
            }
        }
    }

    /// What members are dialled with, if they are.
    #[must_use]
    pub fn dial(&self) -> Option<Arc<ClientConfig>> {
        self.dial.as_ref().map(|dial| dial.config.clone())
    }

    /// Whether who comes shows a certificate that an authority of ours has signed.
    #[must_use]
    pub fn asks_clients(&self) -> bool {
        self.clients.is_some()
    }

    /// Judges a member anew that was dialled at `host` and showed this chain.
    ///
    /// # Errors
    /// It would not be believed now, and why.
    pub fn judge_dialled(&self, chain: Option<&[CertificateDer<'_>]>, host: &str) -> Result<(), Refused> {
        let Some(dial) = &self.dial else { return Ok(()) };
        let Some((leaf, rest)) = chain.and_then(<[_]>::split_first) else {
            return Err(Refused::NoCertificate);
        };
        let name = ServerName::try_from(host).map_err(|error| Refused::Other(error.to_string()))?;
        let judged = dial.verifier.verify_server_cert(leaf, rest, &name, &[], UnixTime::now());
        judged.map(|_| ()).map_err(|error| refused(&std::io::Error::other(error)))
    }
}

/// What a look at the files has come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Looked {
    /// Nothing is new.
    Same,
    /// What they hold now is in force; the certificate that ends first.
    Renewed(Box<Leaf>),
    /// What they hold now cannot work, and what was in force still is.
    Broken(FileError),
}

/// How a file lay when it was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stamp(Option<(u64, u64, i64, i64, i64, i64)>);

impl Stamp {
    fn of(file: &Path) -> Stamp {
        let found = std::fs::metadata(file).ok();
        Stamp(found.map(|it| (it.ino(), it.len(), it.mtime(), it.mtime_nsec(), it.ctime(), it.ctime_nsec())))
    }
}

#[derive(Debug)]
struct State {
    current: Arc<Current>,
    /// How the files lay when they were read last, for better or worse.
    read: Vec<Stamp>,
    /// … and at the last look.
    seen: Vec<Stamp>,
    /// What is wrong with those that were read last, if they are not in force.
    broken: Option<FileError>,
}

/// A port's side of TLS.
#[derive(Debug)]
pub struct ServerTls {
    files: TlsFiles,
    state: Mutex<State>,
    rejudged: watch::Sender<u64>,
    broken: AtomicU64,
}

impl ServerTls {
    /// Reads the files.
    ///
    /// # Errors
    /// A file that cannot work.
    pub fn load(files: TlsFiles) -> Result<ServerTls, FileError> {
        let seen = stamps(&files);
        let current = read(&files, &seen)?;
        let state = State { current: Arc::new(current), read: seen.clone(), seen, broken: None };
        Ok(ServerTls {
            files,
            state: Mutex::new(state),
            rejudged: watch::Sender::new(0),
            broken: AtomicU64::new(0),
        })
    }

    /// What new connections take.
    #[must_use]
    pub fn current(&self) -> Arc<Current> {
        self.state().current.clone()
    }

    /// Changes when other clients are let in than before: those who are in are to be judged anew.
    #[must_use]
    pub fn rejudged(&self) -> watch::Receiver<u64> {
        self.rejudged.subscribe()
    }

    /// How often files could not be used.
    #[must_use]
    pub fn broken(&self) -> u64 {
        self.broken.load(Relaxed)
    }

    /// What is wrong with the files as they are now, if they could not be used.
    #[must_use]
    pub fn broken_now(&self) -> Option<FileError> {
        self.state().broken.clone()
    }

    /// Looks at the files; `at_once` does not wait until they lie still, because somebody says that they do. Reads files: not for
    /// a thread that must not wait, and one look at a time.
    pub fn look(&self, at_once: bool) -> Looked {
        let now = stamps(&self.files);
        let before = {
            let mut state = self.state();
            let lies_still = state.seen == now || at_once;
            state.seen.clone_from(&now);
            // What could not be used is tried again and again: a file may have been out of reach for a moment.
            if state.read == now && state.broken.is_none() || !lies_still {
                return Looked::Same;
            }
            state.broken.clone()
        };
        // Where it was not taken before, somebody has wanted it so.
        let takes_itself = self.current().takes_itself(&self.files).is_ok();
        let read = read(&self.files, &now).and_then(|read| match takes_itself {
            true => read.takes_itself(&self.files).map(|()| read),
            false => Ok(read),
        });
        let mut state = self.state();
        state.read = now;
        match read {
            Ok(current) => {
                let leaf = Box::new(current.ends_first().clone());
                let is_for_clients = state.current.of_clients != current.of_clients;
                (state.current, state.broken) = (Arc::new(current), None);
                drop(state);
                if is_for_clients {
                    self.rejudged.send_modify(|count| *count += 1);
                }
                Looked::Renewed(leaf)
            }
            Err(error) if before.as_ref() == Some(&error) => Looked::Same,
            Err(error) => {
                self.broken.fetch_add(1, Relaxed);
                state.broken = Some(error.clone());
                Looked::Broken(error)
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a port speaks.
#[derive(Clone, Debug, Default)]
pub enum Speaks {
    /// Its protocol as it is.
    #[default]
    Plain,
    /// TLS only.
    Tls(Arc<ServerTls>),
    /// Whatever whoever comes begins with: for a cluster that moves from one to the other.
    Both(Arc<ServerTls>),
}

impl Speaks {
    /// What a port speaks whose URLs ask for it, with and without TLS.
    #[must_use]
    pub fn as_asked(plain: bool, tls: Option<&Arc<ServerTls>>) -> Speaks {
        match tls {
            Some(tls) if plain => Speaks::Both(tls.clone()),
            Some(tls) => Speaks::Tls(tls.clone()),
            None => Speaks::Plain,
        }
    }

    /// The TLS of it, if it has any.
    #[must_use]
    pub fn tls(&self) -> Option<&Arc<ServerTls>> {
        match self {
            Speaks::Plain => None,
            Speaks::Tls(tls) | Speaks::Both(tls) => Some(tls),
        }
    }
}

/// Whether a name in a certificate means this host: `*.x` means one label before `x`. [RFC 6125 §6.4.3]
fn names(name: &str, host: &str) -> bool {
    let is_same = |a: &str, b: &str| a.eq_ignore_ascii_case(b);
    match name.strip_prefix("*.") {
        Some(rest) => host.split_once('.').is_some_and(|(_, of)| is_same(rest, of)),
        None => is_same(name, host),
    }
}

fn stamps(files: &TlsFiles) -> Vec<Stamp> {
    files.paths().map(Stamp::of).collect()
}

fn read(files: &TlsFiles, stamps: &[Stamp]) -> Result<Current, FileError> {
    let read = files.read()?;
    // Those stand at the end.
    let of_clients = stamps[stamps.len() - files.judges().count()..].to_vec();
    Ok(Current {
        config: Arc::new(read.config),
        own: read.own,
        shown: read.shown,
        clients: read.clients,
        dial: read.dial,
        of_clients,
    })
}

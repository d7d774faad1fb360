//! Server: a port's side of TLS. New connections use what was read last; the files are looked at now and then, and read
//! again when they have changed and stay as they are.
//!
//! ```text
//!  look ── as they were read ──▶ nothing
//!       ── changed since the last look ──▶ wait for the next one: two files are written one after the other
//!       ── changed, and as at the last look ──▶ read ── good ──▶ renewed: new connections use it; if the rules for
//!                                                    │           peers have changed, open ones are checked again
//!                                                    └─ bad ──▶ broken: all stays, reported once, tried again
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

/// The last files that were read and are good.
#[derive(Debug)]
pub struct Current {
    /// For new connections.
    pub config: Arc<ServerConfig>,
    own: Own,
    shown: Option<Own>,
    clients: Option<Arc<dyn ClientCertVerifier>>,
    dial: Option<Dial>,
    /// The state of the files that decide which certificates are accepted.
    of_clients: Vec<Stamp>,
}

impl Current {
    /// The certificate that callers are shown.
    #[must_use]
    pub fn leaf(&self) -> &Leaf {
        &self.own.leaf
    }

    /// Of the certificates that callers and dialled members are shown, the one that expires first.
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

    /// Checks a client again that showed this chain when it connected.
    ///
    /// # Errors
    /// It would not be accepted now, and why.
    pub fn judge(&self, chain: Option<&[CertificateDer<'_>]>) -> Result<(), Refused> {
        let Some(clients) = &self.clients else { return Ok(()) };
        let Some((leaf, rest)) = chain.and_then(<[_]>::split_first) else {
            return Err(Refused::NoCertificate);
        };
        let judged = clients.verify_client_cert(leaf, rest, UnixTime::now());
        judged.map(|_| ()).map_err(|error| refused(&std::io::Error::other(error)))
    }

    /// Where members show each other certificates, whether they would accept this one's own: all trust what this one
    /// trusts, soon or already, so files under which it is refused would end all links.
    fn takes_itself(&self, files: &TlsFiles) -> Result<(), FileError> {
        let (Some(dial), Some(_)) = (&self.dial, &self.clients) else { return Ok(()) };
        let host = self.own.leaf.names.iter().find(|name| !name.starts_with('*'));
        let Some(host) = host.filter(|_| dial.is_trusting) else { return Ok(()) };
        let shown = self.shown.as_ref().unwrap_or(&self.own);
        let judged = self.judge_dialled(Some(&self.own.chain), host);
        let judged = judged.and_then(|()| self.judge(Some(&shown.chain)));
        match judged {
            // These are reported otherwise, and are no reason to keep the old files.
            Ok(())
            | Err(
                Refused::Expired
                | Refused::NotYet
                | Refused::Revoked
                | Refused::WrongPurpose
                | Refused::WrongName, // each member has its own list of allowed names
            ) => Ok(()),
            Err(why) => {
                let what = format!(
                    "with these files this member's own certificate would be refused by the others: {why}"
                );
                Err(FileError { file: files.cert.clone(), what })
            }
        }
    }

    /// Settings for dialling members, if any are dialled.
    #[must_use]
    pub fn dial(&self) -> Option<Arc<ClientConfig>> {
        self.dial.as_ref().map(|dial| dial.config.clone())
    }

    /// Whether a caller must show a certificate that an authority of ours has signed.
    #[must_use]
    pub fn asks_clients(&self) -> bool {
        self.clients.is_some()
    }

    /// Checks a member again that was dialled at `host` and showed this chain.
    ///
    /// # Errors
    /// It would not be accepted now, and why.
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

/// The result of a look at the files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Looked {
    /// Nothing has changed.
    Same,
    /// Their new contents are in force; the certificate that expires first.
    Renewed(Box<Leaf>),
    /// Their new contents cannot be used; the old ones stay in force.
    Broken(FileError),
}

/// The state of a file when it was looked at.
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
    /// The state of the files when they were last read, successfully or not.
    read: Vec<Stamp>,
    /// … and at the last look.
    seen: Vec<Stamp>,
    /// The error of the last read, if its contents are not in force.
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
    /// A file that cannot be used.
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

    /// For new connections.
    #[must_use]
    pub fn current(&self) -> Arc<Current> {
        self.state().current.clone()
    }

    /// Changes when the rules for peers change: open connections have to be checked again.
    #[must_use]
    pub fn rejudged(&self) -> watch::Receiver<u64> {
        self.rejudged.subscribe()
    }

    /// How often files could not be used.
    #[must_use]
    pub fn broken(&self) -> u64 {
        self.broken.load(Relaxed)
    }

    /// The error of the files as they are now, if they cannot be used.
    #[must_use]
    pub fn broken_now(&self) -> Option<FileError> {
        self.state().broken.clone()
    }

    /// Looks at the files; `at_once` does not wait until they stay as they are. Reads files: not for a thread that must
    /// not wait, and one look at a time.
    pub fn look(&self, at_once: bool) -> Looked {
        let now = stamps(&self.files);
        let before = {
            let mut state = self.state();
            let lies_still = state.seen == now || at_once;
            state.seen.clone_from(&now);
            // Unusable files are tried again and again: a file may have been out of reach for a moment.
            if state.read == now && state.broken.is_none() || !lies_still {
                return Looked::Same;
            }
            state.broken.clone()
        };
        // If it was refused before, the operator wanted it so.
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
    /// Either, as the caller begins: for a cluster that moves from one to the other.
    Both(Arc<ServerTls>),
}

impl Speaks {
    /// The setting for a port whose URLs ask for it without TLS (`plain`), with TLS, or both.
    #[must_use]
    pub fn as_asked(plain: bool, tls: Option<&Arc<ServerTls>>) -> Speaks {
        match tls {
            Some(tls) if plain => Speaks::Both(tls.clone()),
            Some(tls) => Speaks::Tls(tls.clone()),
            None => Speaks::Plain,
        }
    }

    /// Its TLS, if it has any.
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
    // Those are the last ones.
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

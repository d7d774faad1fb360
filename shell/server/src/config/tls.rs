//! TLS settings from the flags, with a check for every contradiction between them.
//!
//! Meanings are etcd's: a trusted CA file requires a certificate of every client, with or without `--client-cert-auth`.
//! Knows nothing of: the contents of the files.

use super::urls::Url;
use super::{ConfigError, Reader};
use kattu_tls::{Allowed, Dials, Policy, SELF_SIGNED_DAYS, TlsFiles, Version};
use std::path::{Path, PathBuf};

/// Where a port gets its certificate from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TlsSource {
    /// From files.
    Files(TlsFiles),
    /// Generated here, and self-signed.
    SelfSigned {
        /// The directory that it is kept in.
        dir: PathBuf,
        /// The hosts that it is for.
        hosts: Vec<String>,
        /// Days for which it is valid.
        days: u64,
        /// Everything but certificate and key.
        rest: Box<TlsFiles>,
    },
}

impl TlsSource {
    /// Whether clients must show a certificate.
    #[must_use]
    pub fn asks_clients(&self) -> bool {
        let files = match self {
            TlsSource::Files(files) => files,
            TlsSource::SelfSigned { rest, .. } => rest,
        };
        files.trusted_ca.is_some()
    }
}

/// The flags of one kind of port.
struct Flags {
    cert: &'static str,
    key: &'static str,
    trusted_ca: &'static str,
    asks: &'static str,
    crl: &'static str,
    common_names: Option<&'static str>,
    hostnames: &'static str,
    auto: &'static str,
    listen: &'static str,
    /// Owner of the certificates that are checked, for error texts.
    whose: &'static str,
}

const CLIENTS: Flags = Flags {
    cert: "cert-file",
    key: "key-file",
    trusted_ca: "trusted-ca-file",
    asks: "client-cert-auth",
    crl: "client-crl-file",
    common_names: None,
    hostnames: "client-cert-allowed-hostname",
    auto: "auto-tls",
    listen: "listen-client-urls",
    whose: "clients'",
};

const MEMBERS: Flags = Flags {
    cert: "peer-cert-file",
    key: "peer-key-file",
    trusted_ca: "peer-trusted-ca-file",
    asks: "peer-client-cert-auth",
    crl: "peer-crl-file",
    common_names: Some("peer-cert-allowed-cn"),
    hostnames: "peer-cert-allowed-hostname",
    auto: "peer-auto-tls",
    listen: "listen-peer-urls",
    whose: "members'",
};

/// Directory and hosts of a self-signed certificate.
struct SelfSigned {
    dir: PathBuf,
    hosts: Vec<String>,
}

/// The certificate settings of one kind of port. Whether a URL uses them is for the caller to check.
fn source(
    given: &Reader<'_>,
    flags: &Flags,
    dials: impl Fn(&TlsFiles) -> Dials,
    own: SelfSigned,
    warnings: &mut Vec<String>,
) -> Result<Option<TlsSource>, ConfigError> {
    let (cert, key) = (path(given, flags.cert), path(given, flags.key));
    let trusted_ca = path(given, flags.trusted_ca);
    let (auto, asks) = (given.switch(flags.auto)?, given.switch(flags.asks)?);
    let list = |flag: &'static str| names(given, flag);
    let hostnames = list(flags.hostnames);
    let common_names = flags.common_names.map(list).unwrap_or_default();
    let policy = policy(given)?;
    let days = given.number("self-signed-cert-validity", 1, 1, 100)? * SELF_SIGNED_DAYS;
    if asks && trusted_ca.is_none() {
        let what =
            format!("needs --{}: the authorities that sign {} certificates", flags.trusted_ca, flags.whose);
        return Err(given.wrong(flags.asks, what));
    }
    for flag in [Some(flags.crl), Some(flags.hostnames), flags.common_names].into_iter().flatten() {
        if path(given, flag).is_some() && trusted_ca.is_none() {
            let what = format!(
                "applies to {} certificates, which are not required; add --{}",
                flags.whose, flags.trusted_ca
            );
            return Err(given.wrong(flag, what));
        }
    }
    if path(given, flags.hostnames).is_some()
        && (hostnames.is_empty() || !hostnames.iter().all(|name| kattu_tls::is_name(name)))
    {
        let what = "expected host names or IP addresses, separated by commas";
        return Err(given.wrong(flags.hostnames, what));
    }
    if let Some(flag) =
        flags.common_names.filter(|flag| path(given, flag).is_some() && common_names.is_empty())
    {
        return Err(given.wrong(flag, "expected names, separated by commas"));
    }
    let files = |cert, key| {
        let files = TlsFiles {
            cert,
            key,
            trusted_ca: trusted_ca.clone(),
            crl: path(given, flags.crl),
            allowed: Allowed { hostnames: hostnames.clone(), common_names: common_names.clone() },
            policy: policy.clone(),
            dials: Dials::Nobody,
        };
        TlsFiles { dials: dials(&files), ..files }
    };
    match (cert, key) {
        (Some(cert), Some(key)) => {
            if auto {
                warnings.push(format!("--{} has no effect when --{} is set", flags.auto, flags.cert));
            }
            Ok(Some(TlsSource::Files(files(cert, key))))
        }
        (Some(_), None) => Err(given.wrong(flags.cert, format!("needs its key: --{}", flags.key))),
        (None, Some(_)) => Err(given.wrong(flags.key, format!("needs its certificate: --{}", flags.cert))),
        (None, None) if auto => Ok(Some(TlsSource::SelfSigned {
            dir: own.dir,
            hosts: own.hosts,
            days,
            rest: Box::new(files(PathBuf::new(), PathBuf::new())),
        })),
        (None, None) => Ok(None),
    }
}

/// TLS for clients, if one of the `listen` URLs uses it; adds warnings for the operator.
pub(super) fn for_clients(
    given: &Reader<'_>,
    listen_clients: &[Url],
    listen: &[Url],
    data_dir: &Path,
    warnings: &mut Vec<String>,
) -> Result<Option<TlsSource>, ConfigError> {
    let advertised = given.urls("advertise-client-urls")?.unwrap_or_default();
    let own = SelfSigned { dir: data_dir.join(".tls"), hosts: hosts(listen.iter().chain(&advertised)) };
    let source = source(given, &CLIENTS, |_| Dials::Nobody, own, warnings)?;
    let asks = path(given, CLIENTS.trusted_ca).is_some();
    if asks && !listen_clients.iter().any(Url::is_tls) {
        let what = "client certificates are required, but no URL in --listen-client-urls is https://";
        return Err(given.wrong(CLIENTS.trusted_ca, what));
    }
    if asks && listen_clients.iter().any(|url| !url.is_tls()) {
        warnings.push(
            "client certificates are checked on https:// only; clients of the http:// URLs in --listen-client-urls need none"
                .into(),
        );
    }
    match (source, listen.iter().find(|url| url.is_tls())) {
        (None, Some(url)) => Err(needs_certificate(given, &CLIENTS, CLIENTS.listen, url)),
        (Some(_), None) => {
            warnings.push(
                "a certificate for clients is set, but no URL to listen on is https://: clients are served without TLS"
                    .into(),
            );
            Ok(None)
        }
        (source, Some(_)) => {
            if let Some(TlsSource::SelfSigned { .. }) = source {
                warnings.push(
                    "--auto-tls encrypts, but clients cannot verify this member: an attacker in between can read and \
                     change everything"
                        .into(),
                );
            }
            Ok(source)
        }
        (None, None) => Ok(None),
    }
}

/// TLS between members, if this one listens or dials with it. `own`: this member's peer URLs; `all`: those of all.
pub(super) fn for_members(
    given: &Reader<'_>,
    listen: &[Url],
    own: &[Url],
    all: &[Url],
    data_dir: &Path,
    warnings: &mut Vec<String>,
) -> Result<Option<TlsSource>, ConfigError> {
    let shown = (path(given, "peer-client-cert-file"), path(given, "peer-client-key-file"));
    let shows = match shown {
        (Some(cert), Some(key)) => Some((cert, key)),
        (None, None) => None,
        (Some(_), None) => {
            return Err(given.wrong("peer-client-cert-file", "needs its key: --peer-client-key-file"));
        }
        (None, Some(_)) => {
            return Err(given.wrong("peer-client-key-file", "needs its certificate: --peer-client-cert-file"));
        }
    };
    let is_auto = given.switch(MEMBERS.auto)? && path(given, MEMBERS.cert).is_none();
    // Without a CA file such a member cannot verify any certificate.
    let dials = |files: &TlsFiles| match is_auto && files.trusted_ca.is_none() {
        true => Dials::Anybody,
        false => Dials::Trusted { shows: shows.clone() },
    };
    let kept = SelfSigned { dir: data_dir.join(".tls"), hosts: hosts(listen.iter().chain(own)) };
    let source = source(given, &MEMBERS, dials, kept, warnings)?;
    if is_auto && path(given, MEMBERS.trusted_ca).is_some() {
        let what = "certificates of --peer-auto-tls are self-signed: members would refuse each other; use --peer-cert-file";
        return Err(given.wrong(MEMBERS.trusted_ca, what));
    }
    let Some(source) = source else {
        if let Some(flag) =
            [MEMBERS.trusted_ca, "peer-client-cert-file"].into_iter().find(|it| path(given, it).is_some())
        {
            let what = "needs TLS between members, which is off; set --peer-cert-file and --peer-key-file, and use https:// \
                        in the peer URLs";
            return Err(given.wrong(flag, what));
        }
        if let Some(url) = listen.iter().find(|url| url.is_tls()) {
            return Err(needs_certificate(given, &MEMBERS, MEMBERS.listen, url));
        }
        if let Some(url) = all.iter().find(|url| url.is_tls()) {
            return Err(needs_certificate(given, &MEMBERS, "initial-cluster", url));
        }
        return Ok(None);
    };
    for is_tls in [true, false] {
        let speaks = |urls: &[Url]| urls.iter().any(|url| url.is_tls() == is_tls);
        if speaks(own) && !speaks(listen) {
            let (has, needs) = if is_tls { ("https", "http") } else { ("http", "https") };
            let what = format!(
                "the other members reach this one by {has}://, but all of these are {needs}://; while the cluster moves \
                 from one to the other, list both for the same port"
            );
            return Err(given.wrong(MEMBERS.listen, what));
        }
    }
    if is_auto && path(given, MEMBERS.trusted_ca).is_none() {
        warnings.push(
            "--peer-auto-tls encrypts, but members cannot verify each other's certificates: as without TLS, a member is \
             identified only by the address at which it is reached"
                .into(),
        );
    }
    if path(given, MEMBERS.trusted_ca).is_some() && listen.iter().any(|url| !url.is_tls()) {
        warnings.push(
            "members' certificates are checked on https:// only; a connection to http:// in --listen-peer-urls is \
             identified only by the address at which its member is reached"
                .into(),
        );
    }
    let plain: Vec<String> = all.iter().filter(|url| !url.is_tls()).map(Url::to_string).collect();
    if !plain.is_empty() {
        warnings.push(format!(
            "a certificate for members is set, but {} is reached without TLS, unless the member list has other URLs by now \
             (`kattu member list`)",
            plain.join(", ")
        ));
    }
    Ok(Some(source))
}

fn needs_certificate(given: &Reader<'_>, flags: &Flags, flag: &'static str, url: &Url) -> ConfigError {
    let what = format!("{url} needs --{} and --{}, or --{}", flags.cert, flags.key, flags.auto);
    given.wrong(flag, what)
}

fn path(given: &Reader<'_>, flag: &str) -> Option<PathBuf> {
    given.text(flag).filter(|text| !text.is_empty()).map(PathBuf::from)
}

fn names(given: &Reader<'_>, flag: &str) -> Vec<String> {
    let names = given.text(flag).unwrap_or_default().split(',').map(str::trim);
    names.filter(|name| !name.is_empty()).map(str::to_string).collect()
}

/// Hosts of a self-signed certificate: this machine's, and those at which this member is reached.
fn hosts<'a>(urls: impl Iterator<Item = &'a Url>) -> Vec<String> {
    let mut hosts = vec!["localhost".to_string(), "127.0.0.1".to_string(), "::1".to_string()];
    hosts.extend(urls.filter(|url| url.is_reachable()).map(Url::host));
    hosts.sort_unstable();
    hosts.dedup();
    hosts
}

fn policy(given: &Reader<'_>) -> Result<Policy, ConfigError> {
    let version = |flag: &'static str, default| match given.text(flag).filter(|text| !text.is_empty()) {
        None => Ok(default),
        Some(text) => Version::called(text)
            .ok_or_else(|| given.wrong(flag, format!("{text:?} is not one of TLS1.2, TLS1.3"))),
    };
    let min = version("tls-min-version", Version::Tls12)?;
    let max = version("tls-max-version", Version::Tls13)?;
    let flag = if names(given, "cipher-suites").is_empty() { "tls-max-version" } else { "cipher-suites" };
    Policy::new(min, max, names(given, "cipher-suites")).map_err(|error| given.wrong(flag, error))
}

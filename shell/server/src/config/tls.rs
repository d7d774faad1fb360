//! TLS as the flags ask for it, and every way in which they contradict each other.
//!
//! Meanings are etcd's: a trusted CA file asks every client for a certificate, with or without `--client-cert-auth`.
//! Knows nothing of: what stands in the files.

use super::urls::Url;
use super::{ConfigError, Reader};
use kattu_tls::{Allowed, Policy, SELF_SIGNED_DAYS, TlsFiles, Version};
use std::path::{Path, PathBuf};

/// Where a port gets its certificate from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TlsSource {
    /// From files.
    Files(TlsFiles),
    /// It is made, and signed by nobody but its own key.
    SelfSigned {
        /// The directory that it is kept in.
        dir: PathBuf,
        /// The hosts that it is for.
        hosts: Vec<String>,
        /// How long it is good.
        days: u64,
        /// Everything but certificate and key.
        rest: Box<TlsFiles>,
    },
}

impl TlsSource {
    /// Whether every client must show a certificate.
    #[must_use]
    pub fn asks_clients(&self) -> bool {
        let files = match self {
            TlsSource::Files(files) => files,
            TlsSource::SelfSigned { rest, .. } => rest,
        };
        files.trusted_ca.is_some()
    }
}

/// TLS for clients, if any of these URLs asks for it; with what the operator should see.
pub(super) fn for_clients(
    given: &Reader<'_>,
    listen_clients: &[Url],
    listen: &[Url],
    data_dir: &Path,
    warnings: &mut Vec<String>,
) -> Result<Option<TlsSource>, ConfigError> {
    let path = |flag: &str| given.text(flag).filter(|text| !text.is_empty()).map(PathBuf::from);
    let (cert, key, trusted_ca) = (path("cert-file"), path("key-file"), path("trusted-ca-file"));
    let (auto, asks) = (given.switch("auto-tls")?, given.switch("client-cert-auth")?);
    let crl = path("client-crl-file");
    let hostnames = names(given, "client-cert-allowed-hostname");
    let policy = policy(given)?;
    let days = given.number("self-signed-cert-validity", 1, 1, 100)? * SELF_SIGNED_DAYS;
    if asks && trusted_ca.is_none() {
        let what = "needs --trusted-ca-file: the authorities that sign clients' certificates";
        return Err(given.wrong("client-cert-auth", what));
    }
    for flag in ["client-crl-file", "client-cert-allowed-hostname"] {
        if given.text(flag).is_some_and(|text| !text.is_empty()) && trusted_ca.is_none() {
            let what =
                "says something about clients' certificates, which are not asked for; add --trusted-ca-file";
            return Err(given.wrong(flag, what));
        }
    }
    if given.text("client-cert-allowed-hostname").is_some_and(|text| !text.is_empty())
        && (hostnames.is_empty() || !hostnames.iter().all(|name| kattu_tls::is_name(name)))
    {
        let what = "expected hosts or addresses, separated by commas; no certificate could be for these";
        return Err(given.wrong("client-cert-allowed-hostname", what));
    }
    let asks_nobody = trusted_ca.is_some() && !listen_clients.iter().any(Url::is_tls);
    if asks_nobody {
        let what = "clients shall show certificates, and no URL of --listen-client-urls is https://";
        return Err(given.wrong("trusted-ca-file", what));
    }
    if trusted_ca.is_some() && listen_clients.iter().any(|url| !url.is_tls()) {
        warnings.push(
            "clients show certificates where they come by https:// only; those of http:// in --listen-client-urls are not asked"
                .into(),
        );
    }
    let wants = listen.iter().any(Url::is_tls);
    let files = |cert, key| TlsFiles {
        cert,
        key,
        trusted_ca: trusted_ca.clone(),
        crl: crl.clone(),
        allowed: Allowed { hostnames: hostnames.clone(), ..Allowed::default() },
        policy: policy.clone(),
    };
    let source = match (cert, key) {
        (Some(cert), Some(key)) => {
            if auto {
                warnings.push("--auto-tls has no effect beside --cert-file".into());
            }
            Some(TlsSource::Files(files(cert, key)))
        }
        (Some(_), None) => return Err(given.wrong("cert-file", "needs its key: --key-file")),
        (None, Some(_)) => return Err(given.wrong("key-file", "needs its certificate: --cert-file")),
        (None, None) if auto => Some(TlsSource::SelfSigned {
            dir: data_dir.join(".tls"),
            hosts: hosts(given, listen)?,
            days,
            rest: Box::new(files(PathBuf::new(), PathBuf::new())),
        }),
        (None, None) => None,
    };
    match (source, wants) {
        (None, true) => {
            let url = listen.iter().find(|url| url.is_tls()).expect("one wants it");
            let what = format!("{url} needs --cert-file and --key-file, or --auto-tls");
            Err(given.wrong("listen-client-urls", what))
        }
        (Some(_), false) => {
            warnings.push(
                "there is a certificate for clients, and none of the URLs to listen at is https://: TLS is not spoken"
                    .into(),
            );
            Ok(None)
        }
        (source, true) => {
            if let Some(TlsSource::SelfSigned { .. }) = source {
                warnings.push(
                    "--auto-tls encrypts, and proves to no client whom it talks to: whoever stands between can read and \
                     change everything"
                        .into(),
                );
            }
            Ok(source)
        }
        (None, false) => Ok(None),
    }
}

fn names(given: &Reader<'_>, flag: &str) -> Vec<String> {
    let names = given.text(flag).unwrap_or_default().split(',').map(str::trim);
    names.filter(|name| !name.is_empty()).map(str::to_string).collect()
}

/// Hosts that a certificate made here is for: this machine's, those listened at, and those where clients reach this member.
fn hosts(given: &Reader<'_>, listen: &[Url]) -> Result<Vec<String>, ConfigError> {
    let mut hosts = vec!["localhost".to_string(), "127.0.0.1".to_string(), "::1".to_string()];
    let advertised = given.urls("advertise-client-urls")?.unwrap_or_default();
    hosts.extend(listen.iter().chain(&advertised).filter(|url| url.is_reachable()).map(Url::host));
    hosts.sort_unstable();
    hosts.dedup();
    Ok(hosts)
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

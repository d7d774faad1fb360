//! Auto: self-signed certificates. They encrypt, and prove no identity. [`--auto-tls`, `--peer-auto-tls`]
//!
//! One is made once, kept, and made anew at a start when its time is nearly over, when it does not fit its key, or when
//! its hosts have changed.
//! Knows nothing of: ports.

use crate::Allowed;
use crate::files::{self, FileError, TlsFiles};
use crate::leaf::Leaf;
use crate::members::Dials;
use crate::policy::Policy;
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, SystemTime};

/// How long a self-signed certificate is valid by default. [etcd --self-signed-cert-validity: 1 year]
pub const SELF_SIGNED_DAYS: u64 = 365;
const DAY: Duration = Duration::from_secs(86_400);

/// The files of a self-signed certificate for these hosts, `STEM.crt` and `STEM.key` in `dir`; made unless they exist
/// and are valid for another tenth of `days`.
///
/// # Errors
/// Files that cannot be written; hosts that no certificate can name.
pub fn ensure_self_signed(
    dir: &Path,
    stem: &str,
    hosts: &[String],
    days: u64,
) -> Result<TlsFiles, FileError> {
    let (cert, key) = (dir.join(format!("{stem}.crt")), dir.join(format!("{stem}.key")));
    let is_good = |leaf: &Leaf| {
        let least = DAY * u32::try_from(days).unwrap_or(u32::MAX) / 10;
        leaf.left(SystemTime::now()).is_some_and(|left| least < left)
            && hosts.iter().all(|host| leaf.names.contains(host))
    };
    let there = files::certified(&cert, &key, &Policy::default().provider()).map(|(_, leaf)| leaf);
    if !there.as_ref().is_ok_and(is_good) {
        make(dir, &cert, &key, hosts, days)?;
    }
    Ok(TlsFiles {
        cert,
        key,
        trusted_ca: None,
        crl: None,
        allowed: Allowed::default(),
        policy: Policy::default(),
        dials: Dials::default(),
    })
}

fn make(dir: &Path, cert: &Path, key: &Path, hosts: &[String], days: u64) -> Result<(), FileError> {
    let wrong = |file: &Path, what: String| FileError { file: file.to_path_buf(), what };
    let failed = |error: rcgen::Error| wrong(cert, format!("cannot be created: {error}"));
    let pair = KeyPair::generate().map_err(failed)?;
    let mut params = CertificateParams::new(hosts.to_vec()).map_err(failed)?;
    params.distinguished_name.push(DnType::OrganizationName, "Kattu, self-signed");
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    let now = SystemTime::now();
    params.not_before = (now - DAY).into(); // clocks differ
    params.not_after = (now + DAY * u32::try_from(days).unwrap_or(u32::MAX)).into();
    let made = params.self_signed(&pair).map_err(failed)?;
    let made_dir = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made_dir.map_err(|error| wrong(dir, format!("cannot be created: {error}")))?;
    for (file, text) in [(key, pair.serialize_pem()), (cert, made.pem())] {
        let write = || {
            let aside = file.with_extension("part");
            let mut options = std::fs::OpenOptions::new();
            let mut out = options.write(true).create(true).truncate(true).mode(0o600).open(&aside)?;
            out.write_all(text.as_bytes())?;
            out.sync_all()?;
            std::fs::rename(aside, file)
        };
        write().map_err(|error| wrong(file, format!("cannot be written: {error}")))?;
    }
    Ok(())
}

//! A certificate authority for tests: it signs valid certificates, and every kind of invalid one.
//!
//! Knows nothing of: servers, clients.

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SerialNumber,
};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

const DAY: Duration = Duration::from_secs(86_400);

/// Signs certificates, and keeps them in a folder.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: PathBuf,
    serials: AtomicU64,
}

/// A certificate in one file, its key in another.
#[derive(Clone, Debug)]
pub struct Signed {
    /// The certificate.
    pub cert: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// The serial number, by which it is revoked.
    pub serial: u64,
}

/// When a certificate is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Good {
    /// For 90 days.
    Now,
    /// Until yesterday.
    Before,
    /// From tomorrow on.
    Later,
}

/// The purpose of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Servers and clients.
    All,
    /// Servers only.
    Servers,
}

impl Authority {
    /// A new one, with its certificate in `NAME.ca.crt`.
    #[must_use]
    pub fn new(folder: &Path, name: &str) -> Authority {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().expect("a key");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("an authority");
        std::fs::write(folder.join(format!("{name}.ca.crt")), issuer.pem())
            .expect("the folder can be written");
        Authority { issuer, folder: folder.join(name), serials: AtomicU64::new(1) }
    }

    /// Its own certificate, for peers that trust it.
    #[must_use]
    pub fn ca(&self) -> PathBuf {
        self.folder.with_extension("ca.crt")
    }

    /// A valid certificate for these hosts.
    #[must_use]
    pub fn sign(&self, stem: &str, hosts: &[&str]) -> Signed {
        self.sign_as(stem, hosts, Good::Now, Use::All)
    }

    /// A certificate of any kind. One of the same stem is overwritten, as a renewal does.
    #[must_use]
    pub fn sign_as(&self, stem: &str, hosts: &[&str], good: Good, purpose: Use) -> Signed {
        let serial = self.serials.fetch_add(1, Ordering::Relaxed);
        let mut params = CertificateParams::new(hosts.iter().map(|it| it.to_string()).collect::<Vec<_>>())
            .expect("hosts that a certificate can name");
        params.distinguished_name.push(DnType::CommonName, stem);
        params.serial_number = Some(SerialNumber::from(serial));
        params.extended_key_usages = match purpose {
            Use::All => vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth],
            Use::Servers => vec![ExtendedKeyUsagePurpose::ServerAuth],
        };
        let now = SystemTime::now();
        let (from, to) = match good {
            Good::Now => (now - DAY, now + DAY * 90),
            Good::Before => (now - DAY * 9, now - DAY),
            Good::Later => (now + DAY, now + DAY * 90),
        };
        (params.not_before, params.not_after) = (from.into(), to.into());
        let key = KeyPair::generate().expect("a key");
        let signed = params.signed_by(&key, &self.issuer).expect("it is signed");
        let (cert, key_file) = (
            self.folder.with_extension(format!("{stem}.crt")),
            self.folder.with_extension(format!("{stem}.key")),
        );
        // The key first: a reader between the two writes finds a pair that does not match, and must retry.
        std::fs::write(&key_file, key.serialize_pem()).expect("the folder can be written");
        std::fs::write(&cert, signed.pem()).expect("the folder can be written");
        Signed { cert, key: key_file, serial }
    }

    /// The revocation list, in `NAME.crl`, overwritten if it exists.
    #[must_use]
    pub fn revoke(&self, revoked: &[&Signed]) -> PathBuf {
        let now = SystemTime::now();
        let of = |signed: &&Signed| RevokedCertParams {
            serial_number: SerialNumber::from(signed.serial),
            revocation_time: now.into(),
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: (now - DAY).into(),
            next_update: (now + DAY * 90).into(),
            crl_number: SerialNumber::from(self.serials.fetch_add(1, Ordering::Relaxed)),
            issuing_distribution_point: None,
            revoked_certs: revoked.iter().map(of).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let file = self.folder.with_extension("crl");
        let text =
            list.signed_by(&self.issuer).expect("it is signed").pem().expect("it can be written as text");
        std::fs::write(&file, text).expect("the folder can be written");
        file
    }
}

//! Files: certificate, key, authorities and revocations, and why a file cannot be used.
//!
//! Knows nothing of: when files are read again, connections.

use crate::clients::{self, Allowed};
use crate::leaf::Leaf;
use crate::members::{self, Dial, Dialled, Dials};
use crate::policy::Policy;
use crate::signed;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::server::NoServerSessionStorage;
use rustls::server::danger::ClientCertVerifier;
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, ServerConfig};
use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use x509_cert::crl::CertificateList;
use x509_cert::der::Decode;

/// Largest file that is read. Of a list of revoked certificates, some 25,000: the signature over all of it is checked
/// for each client, on the node's thread.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The files of one port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate, and those that lead from it to the authority. PEM.
    pub cert: PathBuf,
    /// Its key. PEM: PKCS#8, PKCS#1 or SEC1, without a password.
    pub key: PathBuf,
    /// Authorities that sign clients' certificates; with it every client must show one. PEM.
    pub trusted_ca: Option<PathBuf>,
    /// Certificates that were revoked. PEM or DER.
    pub crl: Option<PathBuf>,
    /// The names that a client's certificate must have.
    pub allowed: Allowed,
    /// Versions and suites.
    pub policy: Policy,
    /// Whether members are dialled with them, and which of those are accepted.
    pub dials: Dials,
}

/// A file that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileError {
    /// Which.
    pub file: PathBuf,
    /// What is wrong with it, in words for the operator.
    pub what: String,
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.file.display(), self.what)
    }
}

impl std::error::Error for FileError {}

pub(crate) fn wrong(file: &Path, what: impl fmt::Display) -> FileError {
    FileError { file: file.to_path_buf(), what: what.to_string() }
}

/// The contents of all files.
pub(crate) struct Read {
    pub(crate) config: ServerConfig,
    pub(crate) clients: Option<Arc<dyn ClientCertVerifier>>,
    pub(crate) dial: Option<Dial>,
    /// Shown to callers.
    pub(crate) own: Own,
    /// Shown to dialled members, if it is another one.
    pub(crate) shown: Option<Own>,
}

/// A certificate of this port.
#[derive(Debug)]
pub(crate) struct Own {
    pub(crate) leaf: Leaf,
    pub(crate) chain: Vec<CertificateDer<'static>>,
}

impl TlsFiles {
    /// All files.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &Path> {
        let shown = match &self.dials {
            Dials::Trusted { shows: Some((cert, key)) } => [Some(cert), Some(key)],
            Dials::Trusted { shows: None } | Dials::Nobody | Dials::Anybody => [None, None],
        };
        let own = [Some(&self.cert), Some(&self.key)].into_iter().chain(shown);
        own.flatten().map(PathBuf::as_path).chain(self.judges())
    }

    /// Those that decide which certificates are accepted.
    pub(crate) fn judges(&self) -> impl Iterator<Item = &Path> {
        [&self.trusted_ca, &self.crl].into_iter().flatten().map(PathBuf::as_path)
    }

    /// Reads all of them and puts them together.
    pub(crate) fn read(&self) -> Result<Read, FileError> {
        let provider = self.policy.provider();
        let (key, leaf) = certified(&self.cert, &self.key, &provider)?;
        let clients = self.clients(&provider)?;
        let own = Own { leaf, chain: key.cert.clone() };
        let (dial, shown) = self.dial(&key, &provider)?;
        let builder = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&self.policy.versions())
            .map_err(|error| wrong(&self.cert, error))?;
        let builder = match &clients {
            Some(verifier) => builder.with_client_cert_verifier(verifier.clone()),
            None => builder.with_no_client_auth(),
        };
        let mut config = builder.with_cert_resolver(Arc::new(rustls::sign::SingleCertAndKey::from(key)));
        config.alpn_protocols = match self.dials {
            Dials::Nobody => vec![b"h2".to_vec(), b"http/1.1".to_vec(), crate::NATIVE.to_vec()],
            Dials::Trusted { .. } | Dials::Anybody => vec![members::PROTOCOL.to_vec()],
        };
        if clients.is_some() {
            // A resumed session asks for no certificate, and so its validity would not be checked again.
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.send_tls13_tickets = 0;
        }
        Ok(Read { config, clients, dial, own, shown })
    }

    fn clients(
        &self,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Option<Arc<dyn ClientCertVerifier>>, FileError> {
        let Some(file) = &self.trusted_ca else { return Ok(None) };
        let mut roots = RootCertStore::empty();
        add_authorities(&mut roots, file)?;
        let lists = self.revocations(provider)?;
        let of = self.crl.as_ref().unwrap_or(file);
        let verifier = clients::verifier(roots, lists, self.allowed.clone(), provider);
        verifier.map(Some).map_err(|error| wrong(of, error))
    }

    /// The lists of revoked certificates. If the authority that a list names is in the file, it must have signed the
    /// list: a foreign list would refuse all certificates of that authority.
    fn revocations(
        &self,
        provider: &CryptoProvider,
    ) -> Result<Vec<CertificateRevocationListDer<'static>>, FileError> {
        let Some(file) = &self.crl else { return Ok(Vec::new()) };
        let lists = revocations(file)?;
        let authorities = self.trusted_ca.as_deref().map_or(Ok(Vec::new()), certificates)?;
        for list in &lists {
            let issuer = signed::is_by_its_issuer(list, &authorities, provider);
            if let Err(issuer) = issuer {
                let what = format!(
                    "a list in it names the issuer {issuer}, but the trusted authority of this name has not signed it, or not in a \
                     supported way: the list would refuse all its certificates"
                );
                return Err(wrong(file, what));
            }
        }
        Ok(lists)
    }

    /// Settings for dialling members, and the certificate shown then if it is not the port's own.
    fn dial(
        &self,
        own: &CertifiedKey,
        provider: &Arc<CryptoProvider>,
    ) -> Result<(Option<Dial>, Option<Own>), FileError> {
        let mut shown = None;
        let (shows, dialled) = match &self.dials {
            Dials::Nobody => return Ok((None, None)),
            Dials::Anybody => (own.clone(), Dialled::anybody(provider)),
            Dials::Trusted { shows } => {
                let shows = match shows {
                    Some((cert, key)) => {
                        let (key, leaf) = certified(cert, key, provider)?;
                        shown = Some(Own { leaf, chain: key.cert.clone() });
                        key
                    }
                    None => own.clone(),
                };
                let mut roots = RootCertStore::empty();
                match &self.trusted_ca {
                    Some(file) => add_authorities(&mut roots, file)?,
                    None => add_authorities_of_system(&mut roots)?,
                }
                let lists = self.revocations(provider)?;
                let of = self.crl.as_ref().or(self.trusted_ca.as_ref()).unwrap_or(&self.cert);
                let dialled = Dialled::trusted(roots, lists, self.allowed.clone(), provider);
                (shows, dialled.map_err(|error| wrong(of, error))?)
            }
        };
        Ok((Some(Dial::new(dialled, shows, &self.policy, &self.cert)?), shown))
    }
}

/// A certificate with its key.
pub(crate) fn certified(
    cert: &Path,
    key: &Path,
    provider: &CryptoProvider,
) -> Result<(CertifiedKey, Leaf), FileError> {
    let chain = certificates(cert)?;
    let leaf = Leaf::of(&chain[0])
        .map_err(|what| wrong(cert, format!("its first certificate cannot be read: {what}")))?;
    let text = read(key)?;
    let parsed = PrivateKeyDer::from_pem_slice(&text).map_err(|error| match error {
        pem::Error::NoItemsFound if text.windows(9).any(|it| it == b"ENCRYPTED") => {
            wrong(key, "the key has a password; write it without one (openssl pkey)")
        }
        pem::Error::NoItemsFound => wrong(key, "no key in PEM is in it"),
        error => wrong(key, format!("no key in PEM: {error}")),
    })?;
    let certified = CertifiedKey::from_der(chain, parsed, provider).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => {
            wrong(key, format!("this key does not belong to the certificate in {}", cert.display()))
        }
        error => wrong(key, format!("the key cannot be used: {error}")),
    })?;
    Ok((certified, leaf))
}

/// Adds the authorities in a file: at least one.
pub(crate) fn add_authorities(roots: &mut RootCertStore, file: &Path) -> Result<(), FileError> {
    for authority in certificates(file)? {
        let added = roots.add(authority);
        added.map_err(|error| wrong(file, format!("a certificate in it is not an authority's: {error}")))?;
    }
    Ok(())
}

/// Adds the authorities that the system trusts: at least one.
pub(crate) fn add_authorities_of_system(roots: &mut RootCertStore) -> Result<(), FileError> {
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    match roots.is_empty() {
        true => {
            let what = "the system trusts no authority; name a file of those to trust (--cacert, \
                        --peer-trusted-ca-file)";
            Err(wrong(Path::new("TLS"), what))
        }
        false => Ok(()),
    }
}

fn read(file: &Path) -> Result<Vec<u8>, FileError> {
    let failed = |error: std::io::Error| wrong(file, format!("cannot be read: {error}"));
    let len = std::fs::metadata(file).map_err(failed)?.len();
    if FILE_BYTES_MAX < len {
        return Err(wrong(file, format!("{len} bytes are too many: {FILE_BYTES_MAX} at most")));
    }
    std::fs::read(file).map_err(failed)
}

/// At least one.
fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, FileError> {
    let text = read(file)?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    match all {
        Ok(all) if all.is_empty() => Err(wrong(file, "no certificate in PEM is in it")),
        Ok(all) => Ok(all),
        Err(error) => Err(wrong(file, format!("a certificate in it cannot be read: {error}"))),
    }
}

/// In PEM, or one in DER.
fn revocations(file: &Path) -> Result<Vec<CertificateRevocationListDer<'static>>, FileError> {
    let bytes = read(file)?;
    let all: Result<Vec<_>, _> = CertificateRevocationListDer::pem_slice_iter(&bytes).collect();
    let all = match all {
        Ok(all) if !all.is_empty() => all,
        // A sequence in DER begins with this byte.
        Ok(_) if bytes.first() == Some(&0x30) => vec![bytes.into()],
        Ok(_) => return Err(wrong(file, "no list of revoked certificates is in it")),
        Err(error) => return Err(wrong(file, format!("a list in it cannot be read: {error}"))),
    };
    let mut issuers = BTreeSet::new();
    for list in &all {
        let parsed = CertificateList::from_der(list);
        let parsed = parsed.map_err(|error| wrong(file, format!("a list in it cannot be read: {error}")))?;
        let issuer = parsed.tbs_cert_list.issuer.to_string();
        if !issuers.insert(issuer.clone()) {
            return Err(wrong(
                file,
                format!("two lists in it are of one authority, {issuer}: only one would count"),
            ));
        }
    }
    Ok(all)
}

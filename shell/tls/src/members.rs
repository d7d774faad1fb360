//! Members: how one member dials another. Both present certificates. The dialled member's must be for the host that was
//! dialled; the caller's must be for a host of the member that it claims to be, which the accepting side checks with
//! [`is_for`].
//!
//! With [`Dials::Anybody`] certificates are not checked: the connection is encrypted, and identity is proved otherwise.
//! [fault-model SE2]
//! Knows nothing of: sockets, the member list.

use crate::clients::{Allowed, INTERMEDIATES_MAX};
use crate::files::{self, FileError};
use crate::policy::Policy;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The protocol inside. A port for clients has others, and refuses it.
pub(crate) const PROTOCOL: &[u8] = b"kattu-peer";

/// Which dialled members are accepted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Dials {
    /// The files are of a port for clients: no member is dialled.
    #[default]
    Nobody,
    /// Those with a certificate for the host that was dialled, signed by a trusted authority.
    Trusted {
        /// The certificate, and its key, that are presented there; the port's own if there is none.
        shows: Option<(PathBuf, PathBuf)>,
    },
    /// All of them.
    Anybody,
}

/// Whether a certificate is for this host or address.
#[must_use]
pub fn is_for(certificate: &CertificateDer<'_>, host: &str) -> bool {
    let name = ServerName::try_from(host);
    let parsed = ParsedCertificate::try_from(certificate);
    name.is_ok_and(|name| parsed.is_ok_and(|it| verify_server_name(&it, &name).is_ok()))
}

/// Settings for dialling members.
#[derive(Clone, Debug)]
pub(crate) struct Dial {
    pub(crate) config: Arc<ClientConfig>,
    pub(crate) verifier: Arc<Dialled>,
    /// Certificates decide which members it accepts.
    pub(crate) is_trusting: bool,
}

impl Dial {
    pub(crate) fn new(
        dialled: Dialled,
        shows: CertifiedKey,
        policy: &Policy,
        of: &Path,
    ) -> Result<Dial, FileError> {
        let is_trusting = dialled.signed.is_some();
        let verifier = Arc::new(dialled);
        let mut config = ClientConfig::builder_with_provider(policy.provider())
            .with_protocol_versions(&policy.versions())
            .map_err(|error| files::wrong(of, error))?
            .dangerous()
            .with_custom_certificate_verifier(verifier.clone())
            .with_client_cert_resolver(Arc::new(rustls::sign::SingleCertAndKey::from(shows)));
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        // A caller that resumes a session presents no certificate.
        config.resumption = Resumption::disabled();
        Ok(Dial { config: Arc::new(config), verifier, is_trusting })
    }
}

/// Checks the certificates of a dialled member.
#[derive(Debug)]
pub(crate) struct Dialled {
    /// `None` accepts all.
    signed: Option<Arc<WebPkiServerVerifier>>,
    allowed: Allowed,
    provider: Arc<CryptoProvider>,
}

impl Dialled {
    pub(crate) fn anybody(provider: &Arc<CryptoProvider>) -> Dialled {
        Dialled { signed: None, allowed: Allowed::default(), provider: provider.clone() }
    }

    /// Accepts certificates that these authorities have signed, and not revoked.
    pub(crate) fn trusted(
        roots: RootCertStore,
        lists: Vec<CertificateRevocationListDer<'static>>,
        allowed: Allowed,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Dialled, String> {
        let signed = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone())
            .with_crls(lists)
            .allow_unknown_revocation_status()
            .build()
            .map_err(|error| error.to_string())?;
        Ok(Dialled { signed: Some(signed), allowed, provider: provider.clone() })
    }
}

impl ServerCertVerifier for Dialled {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(signed) = &self.signed else { return Ok(ServerCertVerified::assertion()) };
        if INTERMEDIATES_MAX < intermediates.len() {
            return Err(Error::General("it presents too many certificates".into()));
        }
        let verified =
            signed.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)?;
        match self.allowed.allows(end_entity) {
            true => Ok(verified),
            false => Err(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure)),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

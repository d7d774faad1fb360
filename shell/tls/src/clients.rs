//! Clients: which certificates are accepted. One must be signed by an authority of ours, be valid now, not be revoked,
//! be made for clients, and have an allowed name, if names are restricted.
//!
//! A list of revoked certificates covers those of its authority; of an authority without a list none is revoked. A list
//! that is past its time still counts: a revoked certificate stays revoked.
//! Knows nothing of: files, connections.

use crate::leaf::Leaf;
use crate::members::is_for;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme,
};
use std::sync::Arc;

/// Certificates that a client may present beside its own. The search for a path to an authority tries them in every
/// order, before the client has proved anything: hundreds of them would take minutes.
pub const INTERMEDIATES_MAX: usize = 5;

/// Whether a certificate could be for this host or address.
#[must_use]
pub fn is_name(host: &str) -> bool {
    ServerName::try_from(host).is_ok()
}

/// Names that a certificate must have. Any, if both are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allowed {
    /// One of these common names.
    pub common_names: Vec<String>,
    /// One of these hosts or addresses among those that it is for.
    pub hostnames: Vec<String>,
}

impl Allowed {
    pub(crate) fn allows(&self, certificate: &CertificateDer<'_>) -> bool {
        let by_name = self.common_names.is_empty()
            || Leaf::of(certificate).is_ok_and(|leaf| self.common_names.contains(&leaf.common_name));
        by_name && (self.hostnames.is_empty() || self.hostnames.iter().any(|host| is_for(certificate, host)))
    }
}

pub(crate) fn verifier(
    roots: RootCertStore,
    lists: Vec<CertificateRevocationListDer<'static>>,
    allowed: Allowed,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, VerifierBuilderError> {
    let signed = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
        .with_crls(lists)
        .allow_unknown_revocation_status()
        .build()?;
    Ok(Arc::new(Clients { signed, allowed }))
}

#[derive(Debug)]
struct Clients {
    signed: Arc<dyn ClientCertVerifier>,
    allowed: Allowed,
}

impl ClientCertVerifier for Clients {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.signed.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        if INTERMEDIATES_MAX < intermediates.len() {
            return Err(Error::General("it presents too many certificates".into()));
        }
        let verified = self.signed.verify_client_cert(end_entity, intermediates, now)?;
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
        self.signed.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signed.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.signed.supported_verify_schemes()
    }
}

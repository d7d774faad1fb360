//! Signed: whether a list of revoked certificates is signed by the authority that it names.
//!
//! Knows nothing of: files, the use of a list.

use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer};
use x509_cert::Certificate;
use x509_cert::crl::CertificateList;
use x509_cert::der::{Decode, Encode, Reader, SliceReader};
use x509_cert::spki::AlgorithmIdentifierOwned;

/// `Ok` if one of these authorities has the list's name and has signed it, or if none has its name. Else the name.
pub(crate) fn is_by_its_issuer(
    list: &CertificateRevocationListDer<'_>,
    authorities: &[CertificateDer<'_>],
    provider: &CryptoProvider,
) -> Result<(), String> {
    let Ok(parsed) = CertificateList::from_der(list) else { return Ok(()) }; // it was parsed before
    let issuer = &parsed.tbs_cert_list.issuer;
    let of_name = authorities.iter().filter_map(|authority| Certificate::from_der(authority).ok());
    let mut of_name = of_name.filter(|authority| authority.tbs_certificate.subject == *issuer).peekable();
    if of_name.peek().is_none() {
        return Ok(()); // perhaps an intermediate's
    }
    let is_signed = |authority: Certificate| {
        let key = authority.tbs_certificate.subject_public_key_info;
        let (Some(of_key), Some(of_list)) = (content(&key.algorithm), content(&parsed.signature_algorithm))
        else {
            return false;
        };
        let (Some(key), Some(signature), Some(message)) =
            (key.subject_public_key.as_bytes(), parsed.signature.as_bytes(), signed_part(list))
        else {
            return false;
        };
        provider.signature_verification_algorithms.all.iter().any(|algorithm| {
            algorithm.public_key_alg_id().as_ref() == of_key
                && algorithm.signature_alg_id().as_ref() == of_list
                && algorithm.verify_signature(key, message, signature).is_ok()
        })
    };
    match of_name.any(is_signed) {
        true => Ok(()),
        false => Err(issuer.to_string()),
    }
}

/// The content of an identifier, as rustls compares them.
fn content(algorithm: &AlgorithmIdentifierOwned) -> Option<Vec<u8>> {
    let mut bytes = algorithm.oid.to_der().ok()?;
    if let Some(parameters) = &algorithm.parameters {
        bytes.extend(parameters.to_der().ok()?);
    }
    Some(bytes)
}

/// The bytes that are signed, as they stand in the list.
fn signed_part(list: &[u8]) -> Option<&[u8]> {
    let mut reader = SliceReader::new(list).ok()?;
    x509_cert::der::Header::decode(&mut reader).ok()?;
    reader.tlv_bytes().ok()
}

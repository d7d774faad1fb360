//! Leaf: validity and names of a certificate.
//!
//! Knows nothing of: signatures, trust.

use rustls::pki_types::CertificateDer;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use x509_cert::Certificate;
use x509_cert::der::Decode;
use x509_cert::der::asn1::ObjectIdentifier;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

/// [RFC 5280 A.1]
const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");
const SUBJECT_ALT_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.17");

/// The parts of a certificate that matter here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// The beginning of its validity.
    pub not_before: SystemTime,
    /// The end of its validity.
    pub not_after: SystemTime,
    /// Its subject's common name; empty if it has none.
    pub common_name: String,
    /// Hosts and addresses that it is for.
    pub names: Vec<String>,
}

impl Leaf {
    /// Parses one.
    ///
    /// # Errors
    /// Why it cannot be parsed.
    pub fn of(certificate: &CertificateDer<'_>) -> Result<Leaf, String> {
        let parsed = Certificate::from_der(certificate).map_err(|error| error.to_string())?;
        let tbs = parsed.tbs_certificate;
        let at = |since: Duration| UNIX_EPOCH + since;
        let attributes = tbs.subject.0.iter().flat_map(|relative| relative.0.iter());
        let common_name = attributes
            .filter(|attribute| attribute.oid == COMMON_NAME)
            .find_map(|attribute| String::from_utf8(attribute.value.value().to_vec()).ok());
        let extensions = tbs.extensions.unwrap_or_default();
        let alternative = extensions.iter().find(|extension| extension.extn_id == SUBJECT_ALT_NAME);
        let names = match alternative.map(|it| SubjectAltName::from_der(it.extn_value.as_bytes())) {
            Some(Ok(alternative)) => alternative.0.iter().filter_map(name_of).collect(),
            Some(Err(error)) => return Err(format!("alternative names: {error}")),
            None => Vec::new(),
        };
        Ok(Leaf {
            not_before: at(tbs.validity.not_before.to_unix_duration()),
            not_after: at(tbs.validity.not_after.to_unix_duration()),
            common_name: common_name.unwrap_or_default(),
            names,
        })
    }

    /// How long it is still valid; none if it has expired, or is not valid yet.
    #[must_use]
    pub fn left(&self, now: SystemTime) -> Option<Duration> {
        let is_good = self.not_before <= now;
        self.not_after.duration_since(now).ok().filter(|_| is_good)
    }
}

fn name_of(name: &GeneralName) -> Option<String> {
    match name {
        GeneralName::DnsName(name) => Some(name.to_string()),
        GeneralName::IpAddress(bytes) => match bytes.as_bytes() {
            bytes @ [_, _, _, _] => {
                Some(std::net::Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?).to_string())
            }
            bytes => Some(std::net::Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).to_string()),
        },
        _ => None,
    }
}

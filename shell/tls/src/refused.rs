//! Refused: why a handshake failed, in words for the operator. The other side gets an alert of the protocol, no words.
//!
//! Knows nothing of: where the words go.

use rustls::{AlertDescription, CertificateError, Error};
use std::fmt;

/// Why a handshake failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It presents no certificate.
    NoCertificate,
    /// Its certificate was revoked.
    Revoked,
    /// Its certificate has expired.
    Expired,
    /// Its certificate is not valid yet.
    NotYet,
    /// Its certificate is not signed by a trusted authority.
    UnknownAuthority,
    /// Its certificate has no allowed name.
    WrongName,
    /// Its certificate is not for clients.
    WrongPurpose,
    /// Something else is wrong with its certificate.
    Certificate(String),
    /// It does not trust our certificate.
    Distrusts(String),
    /// It does not speak TLS.
    NotTls,
    /// It has no version or suite in common with us.
    NothingInCommon(String),
    /// It took too long, or closed the connection.
    Left,
    /// Something else.
    Other(String),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::NoCertificate => f.write_str("it presents no certificate, which is required"),
            Refused::Revoked => f.write_str("its certificate is revoked"),
            Refused::Expired => f.write_str("its certificate has expired"),
            Refused::NotYet => f.write_str("its certificate is not valid yet; are both clocks right?"),
            Refused::UnknownAuthority => {
                f.write_str("its certificate is not signed by an authority in the trusted CA file")
            }
            Refused::WrongName => f.write_str("its certificate has no allowed name"),
            Refused::WrongPurpose => f.write_str(
                "its certificate is not for clients (clientAuth), as the connecting side's must be",
            ),
            Refused::Certificate(what) => write!(f, "its certificate: {what}"),
            Refused::Distrusts(what) => write!(f, "it does not trust the certificate of this member: {what}"),
            Refused::NotTls => f.write_str("it does not speak TLS; use https://"),
            Refused::NothingInCommon(what) => write!(f, "no version or cipher suite in common: {what}"),
            Refused::Left => f.write_str("it closed the connection, or took too long"),
            Refused::Other(what) => f.write_str(what),
        }
    }
}

impl Refused {
    /// A number for each kind, so that many of one kind do not hide another.
    #[must_use]
    pub fn kind(&self) -> u64 {
        match self {
            Refused::NoCertificate => 1,
            Refused::Revoked => 2,
            Refused::Expired => 3,
            Refused::NotYet => 4,
            Refused::UnknownAuthority => 5,
            Refused::WrongName => 6,
            Refused::WrongPurpose => 7,
            Refused::Certificate(_) => 8,
            Refused::Distrusts(_) => 9,
            Refused::NotTls => 10,
            Refused::NothingInCommon(_) => 11,
            Refused::Left => 12,
            Refused::Other(_) => 13,
        }
    }
}

/// What an error of a handshake means.
#[must_use]
pub fn refused(error: &std::io::Error) -> Refused {
    let Some(error) = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) else {
        return Refused::Left;
    };
    match error {
        Error::NoCertificatesPresented => Refused::NoCertificate,
        Error::InvalidCertificate(why) => match why {
            CertificateError::Revoked => Refused::Revoked,
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => Refused::Expired,
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => Refused::NotYet,
            // An authority of the same name with another key has signed it.
            CertificateError::UnknownIssuer | CertificateError::BadSignature => Refused::UnknownAuthority,
            CertificateError::ApplicationVerificationFailure => Refused::WrongName,
            CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
                Refused::WrongPurpose
            }
            other => Refused::Certificate(other.to_string()),
        },
        Error::AlertReceived(
            alert @ (AlertDescription::BadCertificate
            | AlertDescription::UnknownCA
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::CertificateRevoked
            | AlertDescription::UnsupportedCertificate),
        ) => Refused::Distrusts(format!("{alert:?}")),
        Error::InvalidMessage(_) => Refused::NotTls,
        Error::PeerIncompatible(what) => Refused::NothingInCommon(format!("{what:?}")),
        other => Refused::Other(other.to_string()),
    }
}

/// Whose flags the texts name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asker {
    /// A client's.
    Client,
    /// A member's that dials another.
    Member,
}

/// Why a handshake with a server failed, for the connecting side: in words, where there are any.
#[must_use]
pub fn why_of_server(error: &std::io::Error, asker: Asker) -> Option<String> {
    let (authority, own) = match asker {
        Asker::Client => ("--cacert", "--cert, --key"),
        Asker::Member => ("--peer-trusted-ca-file", "--peer-cert-file, --peer-key-file"),
    };
    let error = error.get_ref()?.downcast_ref::<Error>()?;
    let why = match error {
        Error::InvalidCertificate(why) => match why {
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                format!(
                    "its certificate is not signed by an authority that is trusted here; name its authority's file ({authority})"
                )
            }
            CertificateError::Revoked => "its certificate is revoked".into(),
            CertificateError::ApplicationVerificationFailure => "its certificate has no allowed name".into(),
            CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
                "its certificate is not for servers (serverAuth)".into()
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                format!("its certificate is not for this host: {why}")
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "its certificate has expired".into()
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                "its certificate is not valid yet; are both clocks right?".into()
            }
            other => format!("its certificate: {other}"),
        },
        Error::AlertReceived(AlertDescription::CertificateRequired) => {
            format!("it requires a client certificate ({own})")
        }
        Error::AlertReceived(alert) => format!("it refuses the connection: {alert:?}"),
        Error::InvalidMessage(_) => "it does not speak TLS; use http://".into(),
        Error::PeerIncompatible(what) => format!("no version or cipher suite in common: {what:?}"),
        other => other.to_string(),
    };
    Some(why)
}

//! Policy: which versions of TLS and which cipher suites a port speaks.
//!
//! Suites have the names of etcd's flag, which are those of the registry [IANA TLS Cipher Suites]. As there, the list
//! applies to TLS 1.2 only: the suites of TLS 1.3 are all good, and all offered.
//! Knows nothing of: certificates.

use rustls::crypto::{CryptoProvider, ring};
use rustls::{SupportedCipherSuite, SupportedProtocolVersion};
use std::fmt;
use std::sync::Arc;

/// A version of the protocol. Older ones are not supported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// 1.2 [RFC 5246]
    #[default]
    Tls12,
    /// 1.3 [RFC 8446]
    Tls13,
}

impl Version {
    /// The version of this name: `TLS1.2` or `TLS1.3`.
    #[must_use]
    pub fn called(name: &str) -> Option<Version> {
        match name {
            "TLS1.2" => Some(Version::Tls12),
            "TLS1.3" => Some(Version::Tls13),
            _ => None,
        }
    }
}

/// A choice that cannot work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyError(String);

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for PolicyError {}

/// Versions and suites.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    min: Version,
    max: Version,
    /// Suites of TLS 1.2, by name; all good ones if there is none.
    suites: Vec<String>,
}

impl Default for Policy {
    fn default() -> Policy {
        Policy { min: Version::Tls12, max: Version::Tls13, suites: Vec::new() }
    }
}

/// Suites of TLS 1.2 to choose from, the registry's names.
fn known() -> impl Iterator<Item = (String, SupportedCipherSuite)> {
    let suites = ring::ALL_CIPHER_SUITES.iter().filter(|suite| suite.tls13().is_none());
    suites.map(|suite| (format!("{:?}", suite.suite()), *suite))
}

impl Policy {
    /// From `min` to `max`, with these suites where TLS 1.2 is spoken.
    ///
    /// # Errors
    /// No version is left; a suite that is weak or unknown; suites although only TLS 1.3 is spoken.
    pub fn new(min: Version, max: Version, suites: Vec<String>) -> Result<Policy, PolicyError> {
        if max < min {
            return Err(PolicyError("the minimum version is above the maximum".into()));
        }
        if min == Version::Tls13 && !suites.is_empty() {
            return Err(PolicyError(
                "TLS 1.3 alone is allowed, whose cipher suites cannot be chosen; omit the list".into(),
            ));
        }
        if let Some(unknown) = suites.iter().find(|name| !known().any(|(known, _)| known == **name)) {
            let names: Vec<String> = known().map(|(name, _)| name).collect();
            let what = format!("{unknown:?} is weak or unknown; known suites: {}", names.join(", "));
            return Err(PolicyError(what));
        }
        Ok(Policy { min, max, suites })
    }

    pub(crate) fn versions(&self) -> Vec<&'static SupportedProtocolVersion> {
        let all = [(Version::Tls12, &rustls::version::TLS12), (Version::Tls13, &rustls::version::TLS13)];
        all.into_iter()
            .filter(|(version, _)| (self.min..=self.max).contains(version))
            .map(|it| it.1)
            .collect()
    }

    pub(crate) fn provider(&self) -> Arc<CryptoProvider> {
        let mut provider = ring::default_provider();
        if !self.suites.is_empty() {
            let chosen = |name: &String| known().find(|(known, _)| known == name).map(|(_, suite)| suite);
            provider.cipher_suites.retain(|suite| suite.tls13().is_some());
            provider.cipher_suites.extend(self.suites.iter().filter_map(chosen));
        }
        Arc::new(provider)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suites_are_chosen_by_the_names_that_etcds_flag_takes() {
        let names = [
            "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
            "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
            "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
            "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
            "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
            "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        ];
        let policy = |suites: &[&str]| {
            Policy::new(Version::Tls12, Version::Tls13, suites.iter().map(|it| it.to_string()).collect())
        };
        assert!(policy(&names).is_ok());
        let one = policy(&names[..1]).expect("a good suite").provider();
        let of_12 = one.cipher_suites.iter().filter(|suite| suite.tls13().is_none()).count();
        assert_eq!((of_12, one.cipher_suites.len()), (1, 4), "three of TLS 1.3 are always there");
        for weak in ["TLS_RSA_WITH_AES_128_CBC_SHA", "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA", "x", ""] {
            let why = policy(&[weak]).expect_err(weak).to_string();
            assert!(why.contains("weak or unknown") && why.contains(names[0]), "{why}");
        }
    }

    #[test]
    fn versions_below_1_2_are_not_there_to_be_asked_for() {
        for name in ["TLS1.0", "TLS1.1", "SSL3", "tls1.2", ""] {
            assert_eq!(Version::called(name), None, "{name}");
        }
        let count = |min, max| Policy::new(min, max, vec![]).map(|policy| policy.versions().len());
        assert_eq!(count(Version::Tls12, Version::Tls13), Ok(2));
        assert_eq!(count(Version::Tls13, Version::Tls13), Ok(1));
        assert_eq!(count(Version::Tls12, Version::Tls12), Ok(1));
        assert!(count(Version::Tls13, Version::Tls12).is_err());
        let suites = vec!["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256".to_string()];
        assert!(Policy::new(Version::Tls13, Version::Tls13, suites).is_err());
    }
}

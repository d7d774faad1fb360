//! `http://host:port`, or `https://host:port`, and nothing else.
//!
//! Knows nothing of: flags, sockets.

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// An address in a flag. Its text is canonical: lower-case host, no trailing slash.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Url {
    tls: bool,
    host: Host,
    port: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Host {
    Ip(IpAddr),
    Name(String),
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", if self.tls { "https" } else { "http" }, self.authority())
    }
}

impl Url {
    /// Reads one URL.
    ///
    /// # Errors
    /// What is wrong with it, in a few words.
    pub fn parse(text: &str) -> Result<Url, String> {
        let wrong = |what: &str| Err(format!("{text:?}: {what}"));
        let Some((scheme, rest)) = text.split_once("://") else {
            return wrong("expected http://host:port");
        };
        match scheme {
            "http" | "https" => {}
            "unix" | "unixs" => return wrong("unix sockets are not supported; use http://host:port"),
            _ => return wrong("expected http://host:port"),
        }
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        if authority.contains(['/', '?', '#', '@']) {
            return wrong("only host and port may follow http://");
        }
        let Some((host, port)) = authority.rsplit_once(':') else {
            return wrong("the port is missing; expected http://host:port");
        };
        let Ok(port) = port.parse::<u16>() else {
            return wrong("the port must be a number up to 65535");
        };
        let host = if let Some(v6) = host.strip_prefix('[') {
            match v6.strip_suffix(']').map(str::parse) {
                Some(Ok(ip)) => Host::Ip(IpAddr::V6(ip)),
                _ => return wrong("the brackets must hold an IPv6 address"),
            }
        } else if let Ok(ip) = host.parse::<Ipv4Addr>() {
            Host::Ip(IpAddr::V4(ip))
        } else if is_name(host) {
            Host::Name(host.to_ascii_lowercase())
        } else {
            return wrong("expected a host name, an IPv4 address, or an IPv6 address in brackets");
        };
        Ok(Url { tls: scheme == "https", host, port })
    }

    /// Whether it is `https://`.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        self.tls
    }

    /// The same address, with TLS or without.
    #[must_use]
    pub(crate) fn with_tls(self, tls: bool) -> Url {
        Url { tls, ..self }
    }

    /// The host alone, without brackets.
    #[must_use]
    pub fn host(&self) -> String {
        match &self.host {
            Host::Ip(ip) => ip.to_string(),
            Host::Name(name) => name.clone(),
        }
    }

    /// Reads a list separated by commas: at least one, no repeats.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn parse_list(text: &str) -> Result<Vec<Url>, String> {
        let urls = text.split(',').map(|url| Url::parse(url.trim())).collect::<Result<Vec<_>, _>>()?;
        let mut seen = BTreeSet::new();
        match urls.iter().find(|url| !seen.insert(*url)) {
            Some(twice) => Err(format!("{twice} is named twice")),
            None => Ok(urls),
        }
    }

    /// `host:port`.
    #[must_use]
    pub fn authority(&self) -> String {
        match &self.host {
            Host::Ip(ip) => SocketAddr::new(*ip, self.port).to_string(),
            Host::Name(name) => format!("{name}:{}", self.port),
        }
    }

    /// The address to listen on; `localhost` is 127.0.0.1, other names have none.
    #[must_use]
    pub(crate) fn listen_address(&self) -> Option<SocketAddr> {
        match &self.host {
            Host::Ip(ip) => Some(SocketAddr::new(*ip, self.port)),
            Host::Name(name) if name == "localhost" => {
                Some(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), self.port))
            }
            Host::Name(_) => None,
        }
    }

    /// Whether others can reach it: no wildcard address, no port 0.
    #[must_use]
    pub(crate) fn is_reachable(&self) -> bool {
        let is_every = matches!(self.host, Host::Ip(ip) if ip.is_unspecified());
        !is_every && self.port != 0
    }

    /// Whether only this machine can reach it.
    #[must_use]
    pub(crate) fn is_loopback(&self) -> bool {
        self.listen_address().is_some_and(|address| address.ip().is_loopback())
    }

    /// Whether both are the same address, however `localhost` is written.
    #[must_use]
    pub fn same_place(&self, other: &Url) -> bool {
        let is_same = self.is_loopback() && self.listen_address() == other.listen_address();
        self == other || (self.tls == other.tls && is_same)
    }
}

fn is_name(host: &str) -> bool {
    let label = |label: &str| {
        !label.is_empty() && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
    };
    // A name of only digits and dots is a malformed address.
    host.chars().any(|c| c.is_ascii_alphabetic()) && host.trim_end_matches('.').split('.').all(label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_read_and_written_in_one_form() {
        for (text, canonical) in [
            ("http://127.0.0.1:2379", "http://127.0.0.1:2379"),
            ("http://LocalHost:2379/", "http://localhost:2379"),
            ("http://[0:0::1]:1", "http://[::1]:1"),
            ("http://n1.example.com:80", "http://n1.example.com:80"),
            ("http://my_host:80", "http://my_host:80"),
            ("https://[0:0::1]:1/", "https://[::1]:1"),
        ] {
            assert_eq!(Url::parse(text).map(|url| url.to_string()), Ok(canonical.to_string()), "{text}");
        }
    }

    #[test]
    fn what_is_not_a_url_is_refused_with_the_reason() {
        for (text, why) in [
            ("", "expected http"),
            ("127.0.0.1:2379", "expected http"),
            ("unix:///tmp/x", "unix sockets"),
            ("ftp://a:1", "expected http"),
            ("http://a", "port is missing"),
            ("http://a:", "must be a number"),
            ("http://a:70000", "must be a number"),
            ("http://a:1/path", "only host and port"),
            ("http://user@a:1", "only host and port"),
            ("http://:1", "expected a host name"),
            ("http://::1:1", "expected a host name"),
            ("http://[x]:1", "IPv6"),
            ("http://300.1.1.1:1", "expected a host name"),
            ("http://a..b:1", "expected a host name"),
        ] {
            let error = Url::parse(text).expect_err(text);
            assert!(error.contains(why), "{text}: {error}");
        }
        assert!(Url::parse_list("http://a:1,http://A:1/").unwrap_err().contains("twice"));
        assert!(Url::parse_list("http://a:1,").is_err());
    }

    #[test]
    fn only_addresses_and_localhost_can_be_listened_on() {
        let at = |text| Url::parse(text).unwrap().listen_address().map(|address| address.to_string());
        assert_eq!(at("http://localhost:5"), Some("127.0.0.1:5".to_string()));
        assert_eq!(at("http://0.0.0.0:5"), Some("0.0.0.0:5".to_string()));
        assert_eq!(at("http://[::]:5"), Some("[::]:5".to_string()));
        assert_eq!(at("http://n1:5"), None);
    }

    #[test]
    fn every_address_is_no_place_to_be_reached_at() {
        assert!(!Url::parse("http://0.0.0.0:5").unwrap().is_reachable());
        assert!(!Url::parse("http://[::]:5").unwrap().is_reachable());
        assert!(!Url::parse("http://a:0").unwrap().is_reachable());
        assert!(Url::parse("http://a:5").unwrap().is_reachable());
    }
}

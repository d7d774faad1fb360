//! Peer address: `http://host:port` in the clear, `https://host:port` in TLS.
//!
//! Knows nothing of: members, sockets.

use std::fmt;

/// A parsed peer URL. Its order has no meaning.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PeerAddress {
    /// TLS is spoken there.
    pub is_tls: bool,
    /// The host alone, without brackets: what a certificate must be for.
    pub host: String,
    /// `host:port`; resolved anew for every attempt.
    pub authority: String,
}

impl PeerAddress {
    /// Parses a peer URL; none if it is invalid.
    #[must_use]
    pub fn of(url: &str) -> Option<PeerAddress> {
        let (is_tls, rest) = match (url.strip_prefix("http://"), url.strip_prefix("https://")) {
            (Some(rest), _) => (false, rest),
            (_, Some(rest)) => (true, rest),
            (None, None) => return None,
        };
        let authority = rest.split('/').next()?;
        let (host, port) = authority.rsplit_once(':')?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let is_one = !host.is_empty() && port.parse::<u16>().is_ok();
        is_one.then(|| PeerAddress { is_tls, host: host.to_string(), authority: authority.to_string() })
    }
}

impl fmt::Display for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_tls {
            true => write!(f, "https://{}", self.authority),
            false => f.write_str(&self.authority),
        }
    }
}

/// All of them in a line.
#[must_use]
pub fn join(addresses: &[PeerAddress]) -> String {
    addresses.iter().map(PeerAddress::to_string).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_url_says_host_port_and_whether_tls_is_spoken_there() {
        let of = |url| PeerAddress::of(url).map(|it| (it.is_tls, it.host, it.authority));
        let is = |tls, host: &str, authority: &str| Some((tls, host.to_string(), authority.to_string()));
        assert_eq!(of("http://n1:2380"), is(false, "n1", "n1:2380"));
        assert_eq!(of("https://n1:2380/"), is(true, "n1", "n1:2380"));
        assert_eq!(of("https://[::1]:2380"), is(true, "::1", "[::1]:2380"));
        for wrong in ["n1:2380", "ftp://n1:2380", "http://n1", "http://:2380", "https://[]:1", "http://n1:x"]
        {
            assert_eq!(of(wrong), None, "{wrong}");
        }
        let both = ["http://a:1", "https://b:2"].map(|url| PeerAddress::of(url).expect("a URL"));
        assert_eq!(join(&both), "a:1,https://b:2");
    }
}

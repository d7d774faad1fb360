//! One address at which a member answers clients, and the connection to it.
//!
//! Knows nothing of: other endpoints, requests.

use crate::dial::Dialler;
use kattu_tls::ClientTls;
use std::fmt;
use std::time::Duration;
use tonic::transport::Channel;

/// The text is not an address of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressError(String);

impl AddressError {
    pub(crate) fn none_given() -> AddressError {
        AddressError("no endpoint is given".to_string())
    }

    pub(crate) fn needs_tls(name: &str) -> AddressError {
        AddressError(format!("endpoint {name:?}: https:// needs TLS settings"))
    }
}

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for AddressError {}

/// One endpoint. The connection is made when the first call needs it, and again whenever it was lost.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// As the user wrote it.
    pub name: String,
    /// `host:port`.
    pub address: String,
    pub(crate) channel: Channel,
    /// TLS settings, if TLS is used.
    pub(crate) tls: Option<ClientTls>,
}

impl Endpoint {
    /// TLS is used where the name asks for it, and where there is `tls` and the name does not forbid it. [etcd
    /// clientv3]
    ///
    /// # Errors
    /// The name is not an address of a member.
    pub fn new(
        name: &str,
        connect_timeout: Duration,
        tls: Option<&ClientTls>,
    ) -> Result<Endpoint, AddressError> {
        let (address, asks) = address_of(name)?;
        let tls = match (asks, tls) {
            (Some(true), None) => {
                return Err(AddressError::needs_tls(name));
            }
            (Some(false), _) => None,
            (_, tls) => tls.cloned(),
        };
        let wrong = |error: &dyn fmt::Display| AddressError(format!("endpoint {name:?}: {error}"));
        let mut channel = tonic::transport::Endpoint::from_shared(format!("http://{address}"))
            .map_err(|error| wrong(&error))?;
        if tls.is_some() {
            let origin = format!("https://{address}").parse();
            channel = channel.origin(origin.map_err(|error: http::uri::InvalidUri| wrong(&error))?);
        }
        let channel = channel
            .tcp_nodelay(true)
            .http2_keep_alive_interval(Duration::from_secs(30))
            .keep_alive_timeout(Duration::from_secs(10))
            .initial_stream_window_size(1 << 20)
            .initial_connection_window_size(16 << 20);
        let channel = match &tls {
            None => channel.connect_timeout(connect_timeout).connect_lazy(),
            Some(tls) => channel.connect_with_connector_lazy(Dialler::new(
                address.clone(),
                tls.config(),
                connect_timeout,
            )),
        };
        Ok(Endpoint { name: name.to_string(), address, channel, tls })
    }

    /// The connection, for services that have no method here.
    #[must_use]
    pub fn channel(&self) -> Channel {
        self.channel.clone()
    }
}

/// `host:port` of an endpoint as a user may write it, with `http://` or `https://` before it or nothing; and whether it
/// asks for TLS, or forbids it.
pub(crate) fn address_of(name: &str) -> Result<(String, Option<bool>), AddressError> {
    let wrong = |why: &str| Err(AddressError(format!("endpoint {name:?}: {why}")));
    let (address, asks) = match (name.strip_prefix("http://"), name.strip_prefix("https://")) {
        (Some(address), _) => (address, Some(false)),
        (_, Some(address)) => (address, Some(true)),
        (None, None) => (name, None),
    };
    let address = address.strip_suffix('/').unwrap_or(address);
    if address.contains("://") {
        return wrong("expected host:port, http://host:port or https://host:port");
    }
    let Some((host, port)) = address.rsplit_once(':') else {
        return wrong("the port is missing; expected host:port");
    };
    let host_is_bare = !host.contains(':') || (host.starts_with('[') && host.ends_with(']'));
    let host_is_plain = host.chars().all(|c| c.is_ascii_alphanumeric() || "-._[]:%".contains(c));
    if host.is_empty() || !host_is_bare || !host_is_plain {
        return wrong("expected host:port, with an IPv6 address in brackets");
    }
    match port.parse::<u16>() {
        Ok(port) if port > 0 => Ok((address.to_string(), asks)),
        _ => wrong("the port must be a number from 1 to 65535"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_host_and_port_with_or_without_scheme() {
        for (name, address, asks) in [
            ("127.0.0.1:2379", "127.0.0.1:2379", None),
            ("http://127.0.0.1:2379", "127.0.0.1:2379", Some(false)),
            ("https://127.0.0.1:2379", "127.0.0.1:2379", Some(true)),
            ("http://node-1.example:2379/", "node-1.example:2379", Some(false)),
            ("https://[::1]:2379", "[::1]:2379", Some(true)),
        ] {
            assert_eq!(address_of(name), Ok((address.to_string(), asks)), "{name}");
        }
    }

    #[test]
    fn what_is_not_an_endpoint_is_refused_with_the_reason() {
        for (name, why) in [
            ("", "port is missing"),
            ("127.0.0.1", "port is missing"),
            (":2379", "expected host:port"),
            ("::1:2379", "brackets"),
            ("unixs://a:2379", "expected host:port"),
            ("unix://a:1", "expected host:port"),
            ("a:0", "1 to 65535"),
            ("a:70000", "1 to 65535"),
            ("a:x", "1 to 65535"),
            ("a b:1", "expected host:port"),
            ("http://user@a:1", "expected host:port"),
        ] {
            let error = address_of(name).expect_err(name).to_string();
            assert!(error.contains(why), "{name}: {error}");
        }
    }
}

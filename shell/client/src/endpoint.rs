//! One address at which a member answers clients, and the connection to it.
//!
//! Knows nothing of: other endpoints, requests.

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
}

impl Endpoint {
    pub(crate) fn new(name: &str, connect_timeout: Duration) -> Result<Endpoint, AddressError> {
        let address = address_of(name)?;
        let channel = tonic::transport::Endpoint::from_shared(format!("http://{address}"))
            .map_err(|error| AddressError(format!("endpoint {name:?}: {error}")))?
            .connect_timeout(connect_timeout)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(Duration::from_secs(30))
            .keep_alive_timeout(Duration::from_secs(10))
            .initial_stream_window_size(1 << 20)
            .initial_connection_window_size(16 << 20)
            .connect_lazy();
        Ok(Endpoint { name: name.to_string(), address, channel })
    }
}

/// `host:port` of what a user may write: that, or `http://host:port`.
fn address_of(name: &str) -> Result<String, AddressError> {
    let wrong = |why: &str| Err(AddressError(format!("endpoint {name:?}: {why}")));
    if name.starts_with("https://") || name.starts_with("unixs://") {
        return wrong("TLS is not supported yet; use http://host:port");
    }
    let address = name.strip_prefix("http://").unwrap_or(name);
    let address = address.strip_suffix('/').unwrap_or(address);
    if address.contains("://") {
        return wrong("expected host:port or http://host:port");
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
        Ok(port) if port > 0 => Ok(address.to_string()),
        _ => wrong("the port must be a number from 1 to 65535"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_host_and_port_with_or_without_scheme() {
        for (name, address) in [
            ("127.0.0.1:2379", "127.0.0.1:2379"),
            ("http://127.0.0.1:2379", "127.0.0.1:2379"),
            ("http://node-1.example:2379/", "node-1.example:2379"),
            ("http://[::1]:2379", "[::1]:2379"),
        ] {
            assert_eq!(address_of(name).as_deref(), Ok(address), "{name}");
        }
    }

    #[test]
    fn what_is_not_an_endpoint_is_refused_with_the_reason() {
        for (name, why) in [
            ("", "port is missing"),
            ("127.0.0.1", "port is missing"),
            (":2379", "expected host:port"),
            ("::1:2379", "brackets"),
            ("https://a:2379", "TLS"),
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

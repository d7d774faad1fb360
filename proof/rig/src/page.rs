//! A page of `/metrics` of one member.
//!
//! Knows nothing of: the meaning of metrics.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

/// A member that has not answered within this counts as silent.
const ASK_LIMIT: Duration = Duration::from_secs(10);

/// The text of one page.
#[derive(Clone, Debug, Default)]
pub struct Page(pub String);

impl Page {
    /// Gets the page of the member at `address` (`host:port`); `None` if there is no answer, or no page.
    #[must_use]
    pub fn of(address: &str) -> Option<Page> {
        Page::within(address, ASK_LIMIT)
    }

    /// The same with another limit for each step.
    #[must_use]
    pub fn within(address: &str, limit: Duration) -> Option<Page> {
        let address = address.to_socket_addrs().ok()?.next()?;
        let mut stream = TcpStream::connect_timeout(&address, limit).ok()?;
        stream.set_read_timeout(Some(limit)).ok()?;
        stream.set_write_timeout(Some(limit)).ok()?;
        let request = format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        text.starts_with("HTTP/1.1 200").then_some(Page(text))
    }

    /// The lines of one name: the rest after the name, labels included.
    pub fn lines<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.lines().filter_map(move |line| {
            line.strip_prefix(name).filter(|rest| rest.starts_with(['{', ' '])).map(str::trim)
        })
    }

    /// A number without labels; `None` if the page does not have it. Fractions are cut off.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<u64> {
        self.lines(name).next()?.parse::<f64>().ok().map(|number| number as u64)
    }

    /// The numbers of one name over all its labels.
    pub fn numbers<'a>(&'a self, name: &'a str) -> impl Iterator<Item = u64> {
        let counts = self.lines(name).filter_map(|rest| rest.rsplit(' ').next()?.parse::<f64>().ok());
        counts.map(|count| count as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_not_the_beginning_of_another() {
        let page = Page("# HELP a x\na 1.9\na_total 7\nb{peer=\"2\"} 3\nb{peer=\"3\"} 4\n".into());
        assert_eq!(page.number("a"), Some(1));
        assert_eq!(page.number("a_total"), Some(7));
        assert_eq!((page.number("b"), page.number("c")), (None, None), "labels are no number");
        assert_eq!(page.numbers("b").sum::<u64>(), 7);
        assert_eq!(page.lines("b").next(), Some("{peer=\"2\"} 3"));
    }
}

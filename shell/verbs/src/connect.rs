//! From `--endpoints` to a client, on an event loop of this thread.
//!
//! Knows nothing of: verbs.

use clap::Args;
use kattu_client::{Client, NativeClient, Options};
use kattu_output::Ended;
use kattu_tls::ClientTls;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::time::Duration;

/// How to reach the cluster.
#[derive(Args, Clone, Debug)]
pub(crate) struct Reach {
    /// Client addresses of members, separated by commas
    #[arg(long, env = "KATTU_ENDPOINTS", value_delimiter = ',', default_value = "127.0.0.1:2379")]
    pub(crate) endpoints: Vec<String>,
    /// Longest time for one call, such as 5s or 500ms
    #[arg(long, env = "KATTU_TIMEOUT", default_value = "5s", value_parser = parse_time)]
    pub(crate) timeout: Duration,
    /// Use TLS, and trust the CA certificates in this file (PEM) instead of the system's
    #[arg(long, env = "KATTU_CACERT", value_name = "FILE", help_heading = "TLS")]
    pub(crate) cacert: Option<PathBuf>,
    /// Certificate to show to members (PEM); needs --key
    #[arg(long, env = "KATTU_CERT", value_name = "FILE", requires = "tls-key", help_heading = "TLS")]
    pub(crate) cert: Option<PathBuf>,
    /// Private key of --cert (PEM)
    #[arg(
        id = "tls-key",
        long = "key",
        env = "KATTU_KEY",
        value_name = "FILE",
        requires = "cert",
        help_heading = "TLS"
    )]
    pub(crate) own_key: Option<PathBuf>,
}

impl Reach {
    /// A client; nothing is connected yet. Must be called on an event loop.
    pub(crate) fn client(&self) -> Result<Client, Ended> {
        self.client_of(self.endpoints.iter().map(|endpoint| endpoint.trim()))
    }

    /// The same, for other endpoints.
    pub(crate) fn client_of<'a>(
        &self,
        endpoints: impl IntoIterator<Item = &'a str>,
    ) -> Result<Client, Ended> {
        let endpoints: Vec<&str> = endpoints.into_iter().collect();
        let tls = self.tls(&endpoints)?;
        Client::connect_in_tls(endpoints, Options { timeout: self.timeout }, tls.as_ref())
            .map_err(Ended::usage)
    }

    /// A client of the native protocol; nothing is connected yet. Must be called on an event loop.
    pub(crate) fn native_client(&self) -> Result<NativeClient, Ended> {
        let endpoints: Vec<&str> = self.endpoints.iter().map(|endpoint| endpoint.trim()).collect();
        let tls = self.tls(&endpoints)?;
        NativeClient::connect(endpoints, Options { timeout: self.timeout }, tls.as_ref())
            .map_err(Ended::usage)
    }

    /// TLS, if a flag or an endpoint asks for it.
    fn tls(&self, endpoints: &[&str]) -> Result<Option<ClientTls>, Ended> {
        let own = self.cert.as_deref().zip(self.own_key.as_deref());
        let asks = self.cacert.is_some() || own.is_some();
        match asks || endpoints.iter().any(|endpoint| endpoint.starts_with("https://")) {
            true => ClientTls::load(self.cacert.as_deref(), own)
                .map(Some)
                .map_err(|error| Ended::usage(error.to_string())),
            false => Ok(None),
        }
    }
}

/// A duration such as `5s`, `1m30s` or `250ms`; not zero.
pub(crate) fn parse_time(text: &str) -> Result<Duration, String> {
    match kattu_server::config::parse_duration(text) {
        Some(time) if !time.is_zero() => Ok(time),
        _ => Err("expected a duration such as 5s, 1m30s or 250ms".to_string()),
    }
}

/// Runs a verb's work on an event loop of this thread.
pub(crate) fn block_on<T>(work: impl Future<Output = Result<T, Ended>>) -> Result<T, Ended> {
    let mut outcome = None;
    drive(Box::pin(async { outcome = Some(work.await) }))?;
    outcome.unwrap_or_else(|| Err(Ended::failed("the event loop stopped before the work was done")))
}

/// The event loop, for work of one type, so that it is compiled once and not for each verb.
fn drive(work: Pin<Box<dyn Future<Output = ()> + '_>>) -> Result<(), Ended> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Ended::failed(format!("cannot start the event loop: {error}")))?;
    runtime.block_on(work);
    // Work that was abandoned is not waited for.
    runtime.shutdown_background();
    Ok(())
}

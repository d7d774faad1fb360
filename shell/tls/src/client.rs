//! Client: the connecting side of TLS. A server's certificate is always verified, against the authorities in a file or
//! those of the system; this cannot be switched off. [fault-model SE1]
//!
//! Knows nothing of: sockets.

use crate::files::{self, FileError};
use crate::policy::Policy;
use rustls::{ClientConfig, RootCertStore};
use std::path::Path;
use std::sync::Arc;

/// For connections to servers.
#[derive(Clone, Debug)]
pub struct ClientTls(Arc<ClientConfig>);

impl ClientTls {
    /// Trusts the authorities in `ca`, or those of the system; presents this certificate, with its key, when asked for
    /// one.
    ///
    /// # Errors
    /// A file that cannot be used; no authority at all.
    pub fn load(ca: Option<&Path>, own: Option<(&Path, &Path)>) -> Result<ClientTls, FileError> {
        let provider = Policy::default().provider();
        let mut roots = RootCertStore::empty();
        match ca {
            Some(file) => files::add_authorities(&mut roots, file)?,
            None => files::add_authorities_of_system(&mut roots)?,
        }
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&Policy::default().versions())
            .map_err(|error| files::wrong(ca.unwrap_or(Path::new("TLS")), error))?
            .with_root_certificates(roots);
        let mut config = match own {
            None => builder.with_no_client_auth(),
            Some((cert, key)) => {
                let (certified, _) = files::certified(cert, key, &provider)?;
                builder.with_client_cert_resolver(Arc::new(rustls::sign::SingleCertAndKey::from(certified)))
            }
        };
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(ClientTls(Arc::new(config)))
    }

    /// For one connection; HTTP/2 is asked for.
    #[must_use]
    pub fn config(&self) -> Arc<ClientConfig> {
        self.0.clone()
    }

    /// The same, for HTTP/1.1.
    #[must_use]
    pub fn for_http1(&self) -> Arc<ClientConfig> {
        let mut config = (*self.0).clone();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Arc::new(config)
    }

    /// The same, for Kattu's native protocol.
    #[must_use]
    pub fn for_native(&self) -> Arc<ClientConfig> {
        let mut config = (*self.0).clone();
        config.alpn_protocols = vec![crate::NATIVE.to_vec()];
        Arc::new(config)
    }
}

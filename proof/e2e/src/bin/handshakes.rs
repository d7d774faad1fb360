//! `cargo xtask bench handshakes`: opens and closes TLS connections with certificates on both sides, and prints what
//! one costs the server. Each is a full handshake: no session is resumed.
//!
//! Knows nothing of: Kattu, etcd; any server will do.

use rustls::client::Resumption;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let numbers = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok());
    let (Some(address), Some(folder), Some(clients), Some(seconds)) =
        (words.first(), words.get(1), numbers(2), numbers(3))
    else {
        eprintln!("handshakes HOST:PORT FOLDER CLIENTS SECONDS");
        return ExitCode::from(2);
    };
    let config = config(Path::new(folder)).expect("the folder holds certificates");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (done, failed) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let begun = Instant::now();
    runtime.block_on(async {
        let until = begun + Duration::from_secs(seconds);
        let all = (0..clients).map(|_| {
            let (address, config, done, failed) =
                (address.clone(), config.clone(), done.clone(), failed.clone());
            tokio::spawn(async move {
                while Instant::now() < until {
                    let ended = if shake(&address, config.clone()).await.is_ok() { &done } else { &failed };
                    ended.fetch_add(1, Relaxed);
                }
            })
        });
        for one in all.collect::<Vec<_>>() {
            one.await.expect("it ends");
        }
    });
    let per_s = done.load(Relaxed) as f64 / begun.elapsed().as_secs_f64();
    println!(
        "{{\"handshakes\":{},\"per_s\":{per_s:.0},\"failed\":{}}}",
        done.load(Relaxed),
        failed.load(Relaxed)
    );
    ExitCode::SUCCESS
}

/// Opens a TLS connection, reads a frame that proves that the server accepted it, and closes it.
async fn shake(address: &str, config: Arc<ClientConfig>) -> std::io::Result<()> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host).to_string();
    let name = ServerName::try_from(host).map_err(std::io::Error::other)?;
    let stream = TcpStream::connect(address).await?;
    let mut stream = TlsConnector::from(config).connect(name, stream).await?;
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await?;
    let mut head = [0; 9];
    stream.read_exact(&mut head).await?; // the server's SETTINGS: a client whose certificate is refused gets none
    Ok(())
}

fn config(folder: &Path) -> Option<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(folder.join("bench.ca.crt")).ok()?).ok()?;
    let own = CertificateDer::from_pem_file(folder.join("bench.client.crt")).ok()?;
    let key = PrivateKeyDer::from_pem_file(folder.join("bench.client.key")).ok()?;
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().ok()?.with_root_certificates(roots);
    let mut config = builder.with_client_auth_cert(vec![own], key).ok()?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    config.resumption = Resumption::disabled();
    Some(Arc::new(config))
}

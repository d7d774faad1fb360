//! Endpoints at which no member of the cluster listens, and members in TLS.

use crate::world::{CLUSTER, Manners, World};
use kattu_client::{Kind as Effect, NativeClient, Options, SessionOptions};
use kattu_native::frame::FrameWriter;
use kattu_native::handshake::Welcome;
use kattu_tls::ClientTls;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

const SHORT: Options = Options { timeout: Duration::from_millis(100) };

/// A listener that says this to everybody who says something.
async fn parrot(words: Vec<u8>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            let words = words.clone();
            tokio::spawn(async move {
                let _ = stream.read(&mut [0; 64]).await;
                let _ = stream.write_all(&words).await;
                let _ = stream.read(&mut [0; 64]).await; // until the client closes
            });
        }
    });
    address
}

async fn said(words: Vec<u8>, cluster: u64) -> String {
    let address = parrot(words).await;
    let client = NativeClient::connect([address], SHORT, None).expect("an address").of_cluster(cluster);
    let error = client.put("k", "v").await.expect_err("no member");
    assert_eq!(error.kind(), Effect::Unreachable, "{error}");
    error.to_string()
}

fn welcome(welcome: &Welcome) -> Vec<u8> {
    let mut writer = FrameWriter::new(crc32c::crc32c_append);
    welcome.write(&mut writer);
    writer.take()
}

#[tokio::test]
async fn what_listens_there_is_named() {
    let good = Welcome { version: 1, cluster: 7, frame_bytes_max: 9, requests_max: 1, ..Welcome::default() };
    let cases = [
        (b"\x15\x03\x03\x00\x02\x02\x46".to_vec(), 0, "it speaks TLS"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(), 0, "it speaks HTTP"),
        (b"\x00\x00\x12\x04\x00\x00\x00\x00\x00".to_vec(), 0, "gRPC"),
        (welcome(&good), 8, "another cluster"),
        (welcome(&Welcome { version: 0, ..good.clone() }), 7, "no version of the native protocol in common"),
        (vec![], 0, "with a welcome within"),
    ];
    for (words, cluster, named) in cases {
        let error = said(words, cluster).await;
        assert!(error.contains(named), "{error}");
    }
}

#[tokio::test]
async fn a_client_that_has_met_one_cluster_stays_with_it() {
    let world = World::new(1).await;
    let other = Welcome { version: 1, cluster: 7, frame_bytes_max: 9, requests_max: 1, ..Welcome::default() };
    let stranger = parrot(welcome(&other)).await;
    let endpoints = [world.addresses().remove(0), stranger];
    let client = NativeClient::connect(endpoints, Options::default(), None).expect("addresses");
    let client = client.of_cluster(CLUSTER);
    for n in 0..10 {
        client.put("k", n.to_string()).await.expect("the member of the cluster serves it");
    }
    assert_eq!((client.cluster(), world.version("k")), (Some(CLUSTER), 10));
}

#[tokio::test]
async fn a_name_with_an_address_that_leads_nowhere_is_tried_whole() {
    let world = World::new(1).await;
    // It resolves to 127.0.0.1, and on many machines to ::1 first, where no member listens.
    let port = world.addresses().remove(0).rsplit_once(':').expect("a port").1.to_string();
    let client = world.client_of(vec![format!("localhost:{port}")], Options::default());
    client.put("k", "v").await.expect("done");
    let client =
        world.client_of(vec!["127.0.0.1:1".to_string(), format!("127.0.0.1:{port}")], Options::default());
    client.put("k", "v").await.expect("done at the other endpoint");
}

/// A member of this world, in TLS; it offers this protocol.
async fn in_tls(
    world: &Arc<World>,
    at: usize,
    protocol: &[u8],
) -> (String, std::path::PathBuf, tempdir::Dir) {
    let dir = tempdir::Dir::new();
    let files =
        kattu_tls::ensure_self_signed(&dir.0, "member", &["localhost".to_string()], 30).expect("files");
    let chain = CertificateDer::pem_file_iter(&files.cert).expect("a file").map(|cert| cert.expect("one"));
    let key = PrivateKeyDer::from_pem_file(&files.key).expect("a key");
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(chain.collect(), key)
        .expect("a certificate");
    config.alpn_protocols = vec![protocol.to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let world = world.clone();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.expect("a connection");
            let (acceptor, world) = (acceptor.clone(), world.clone());
            tokio::spawn(async move {
                if let Ok(stream) = acceptor.accept(stream).await {
                    let _ = world.speak(at, stream).await;
                }
            });
        }
    });
    (format!("https://localhost:{port}"), files.cert, dir)
}

#[tokio::test]
async fn a_member_in_tls_is_spoken_to_by_alpn_and_without_it_not_at_all() {
    let world = World::new(1).await;
    let (endpoint, cert, _dir) = in_tls(&world, 0, b"kattu").await;
    let tls = ClientTls::load(Some(&cert), None).expect("an authority");
    let client = NativeClient::connect([&endpoint], Options::default(), Some(&tls)).expect("an address");
    let session = client.open_session(SessionOptions::default()).await.expect("a session");
    let mut pending = Vec::new();
    for n in 0..1000 {
        pending.push(session.put("k", n.to_string()).await.expect("room"));
    }
    for answer in pending {
        answer.await.expect("done");
    }
    assert_eq!(world.version("k"), 1000);
    assert!(
        NativeClient::connect([&endpoint], Options::default(), None).is_err(),
        "https:// needs TLS settings"
    );
    let (endpoint, cert, _dir) = in_tls(&world, 0, b"h2").await;
    let tls = ClientTls::load(Some(&cert), None).expect("an authority");
    let client = NativeClient::connect([&endpoint], SHORT, Some(&tls)).expect("an address");
    let error = client.put("k", "v").await.expect_err("it does not speak the protocol");
    assert_eq!(error.kind(), Effect::Unreachable, "{error}");
    let plain = parrot(b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec()).await;
    let client = NativeClient::connect([plain], SHORT, Some(&tls)).expect("an address");
    let error = client.put("k", "v").await.expect_err("it does not speak TLS").to_string();
    assert!(error.contains("TLS"), "{error}");
}

#[tokio::test]
async fn no_hint_takes_tls_away() {
    let world = World::with(2, 1000, Manners { forwards: true, ..Manners::default() }).await;
    let (endpoint, cert, _dir) = in_tls(&world, 1, b"kattu").await;
    let tls = ClientTls::load(Some(&cert), None).expect("an authority");
    // The welcome names the first member, which leads, by a URL without TLS.
    let client = NativeClient::connect([&endpoint], Options::default(), Some(&tls)).expect("an address");
    for n in 0..10 {
        client.put("k", n.to_string()).await.expect("the member in TLS serves it");
    }
    assert!(world.seen.lock().unwrap().iter().all(|seen| seen.at == 1));
}

mod tempdir {
    /// A directory of its own, removed at the end.
    pub struct Dir(pub std::path::PathBuf);

    impl Dir {
        pub fn new() -> Dir {
            use std::sync::atomic::{AtomicU64, Ordering};
            static COUNT: AtomicU64 = AtomicU64::new(0);
            let name =
                format!("kattu-client-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
            let path = std::env::temp_dir().join(name);
            std::fs::create_dir_all(&path).expect("a directory");
            Dir(path)
        }
    }

    impl Drop for Dir {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}

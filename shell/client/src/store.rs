//! Store: the same operations in the same types over either face, etcd's API or the native protocol, with a session or
//! without.
//!
//! Knows nothing of: how either face carries them out.

use crate::client::Client;
use crate::convert;
use crate::error::Error;
use crate::failure::{Failure, Kind};
use crate::level::Level;
use crate::native::{NativeClient, Session};
use kattu_kv::api::{DeleteRange, KeyRange, KeyValue, Put, Range, RangeResult, Response, Revision, Txn};
use kattu_kv::check::is_read_only;
use std::sync::Arc;
use tonic::Code;

/// The key-value store of a cluster. Clones share their connections.
///
/// ```no_run
/// use kattu_client::{Client, NativeClient, Options, Store};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let endpoints = ["10.0.0.1:2379", "10.0.0.2:2379"];
/// for store in [
///     Store::from(Client::connect(endpoints, Options::default())?),
///     Store::from(NativeClient::connect(endpoints, Options::default(), None)?),
/// ] {
///     store.put("greeting", "hello").await?;
///     assert_eq!(&store.get("greeting").await?.expect("it was put").value[..], b"hello");
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Store(Face);

#[derive(Clone, Debug)]
enum Face {
    Etcd(Client),
    Native(NativeClient),
    InSession { session: Arc<Session>, reads: NativeClient },
}

impl From<Client> for Store {
    fn from(client: Client) -> Store {
        Store(Face::Etcd(client))
    }
}

impl From<NativeClient> for Store {
    fn from(client: NativeClient) -> Store {
        Store(Face::Native(client))
    }
}

impl From<Arc<Session>> for Store {
    /// Writes go through the session: each is executed exactly once. Reads go by its client.
    fn from(session: Arc<Session>) -> Store {
        Store(Face::InSession { reads: session.client(), session })
    }
}

impl Store {
    /// The same store with reads of this level.
    #[must_use]
    pub fn at_level(&self, level: Level) -> Store {
        Store(match &self.0 {
            Face::Etcd(client) => Face::Etcd(client.at_level(level)),
            Face::Native(client) => Face::Native(client.at_level(level)),
            Face::InSession { session, reads } => {
                Face::InSession { session: session.clone(), reads: reads.at_level(level) }
            }
        })
    }

    /// Writes one key.
    ///
    /// # Errors
    /// See [`Error`]; one of kind `Unknown` may have taken effect, or may still.
    pub async fn put(&self, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Result<Response, Error> {
        self.put_with(Put { key: key.into(), value: value.into(), ..Put::default() }).await
    }

    /// Writes one key, with all options.
    ///
    /// # Errors
    /// As [`Store::put`].
    pub async fn put_with(&self, put: Put) -> Result<Response, Error> {
        let command = kattu_kv::api::Command::Put;
        match &self.0 {
            Face::Etcd(client) => {
                client.put(convert::put(put)).await.map(convert::of_put).map_err(Error::of_etcd)
            }
            Face::Native(client) => client.command(&command(put)).await,
            Face::InSession { session, .. } => session.command(&command(put)).await?.await,
        }
    }

    /// The pair of one key, if there is one.
    ///
    /// # Errors
    /// See [`Error`]; a read has no effect in any case.
    pub async fn get(&self, key: impl Into<Vec<u8>>) -> Result<Option<KeyValue>, Error> {
        let keys = KeyRange { start: key.into(), end: Vec::new() };
        self.range(Range { keys, ..Range::default() }).await.map(|range| range.kvs.into_iter().next())
    }

    /// Reads keys.
    ///
    /// # Errors
    /// See [`Error`]; a read has no effect in any case.
    pub async fn range(&self, range: Range) -> Result<RangeResult, Error> {
        match &self.0 {
            Face::Etcd(client) => {
                client.range(convert::range(range)).await.map(convert::of_range).map_err(Error::of_etcd)
            }
            Face::Native(client) | Face::InSession { reads: client, .. } => client.range(range).await,
        }
    }

    /// Deletes keys.
    ///
    /// # Errors
    /// As [`Store::put`].
    pub async fn delete_range(&self, delete: DeleteRange) -> Result<Response, Error> {
        match &self.0 {
            Face::Etcd(client) => {
                let deleted = client.delete_range(convert::delete_range(delete)).await;
                deleted.map(convert::of_delete_range).map_err(Error::of_etcd)
            }
            Face::Native(client) => client.delete_range(delete).await,
            Face::InSession { session, .. } => session.delete_range(delete).await?.await,
        }
    }

    /// A transaction. One that only reads is a read.
    ///
    /// # Errors
    /// As [`Store::put`].
    pub async fn txn(&self, txn: Txn) -> Result<Response, Error> {
        match &self.0 {
            Face::Etcd(client) => {
                let response = client.txn(convert::txn(txn)).await.map_err(Error::of_etcd)?;
                convert::of_txn(response).ok_or_else(|| incomplete().into())
            }
            Face::Native(client) => client.txn(txn).await,
            Face::InSession { reads, .. } if is_read_only(&txn) => reads.txn(txn).await,
            Face::InSession { session, .. } => session.txn(txn).await?.await,
        }
    }

    /// Removes the history before a revision.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn compact(&self, revision: Revision) -> Result<Response, Error> {
        match &self.0 {
            Face::Etcd(client) => {
                let request =
                    kattu_proto::etcdserverpb::CompactionRequest { revision: revision.0, physical: false };
                client.compact(request).await.map(convert::of_compact).map_err(Error::of_etcd)
            }
            Face::Native(client) => client.compact(revision).await,
            Face::InSession { session, .. } => session.compact(revision).await?.await,
        }
    }
}

fn incomplete() -> Failure {
    Failure {
        kind: Kind::Unknown,
        code: Code::Internal,
        message: "an operation of the transaction has no response".to_string(),
        reason: None,
        endpoint: String::new(),
    }
}

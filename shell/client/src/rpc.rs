//! One RPC at one endpoint: bytes there, bytes back.
//!
//! The layers of tonic are generic over the messages of a call. With a codec of bytes they are compiled once, in this
//! crate. The generated clients would compile them for each RPC, in each crate that makes the call.
//! Knows nothing of: the contents of messages, which endpoint is used.

use crate::endpoint::Endpoint;
use http::uri::PathAndQuery;
use prost::Message;
use prost::bytes::{Buf, BufMut, Bytes};
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::Channel;
use tonic::{Request, Response, Status, Streaming};

/// Largest answer of all RPCs but those of the store. [gRPC: its default]
const ANSWER_MAX: usize = 4 << 20;

/// An RPC by its path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rpc {
    path: &'static str,
    answer_max: usize,
    /// The call says how fresh its reads are to be.
    pub has_level: bool,
}

impl Rpc {
    /// An RPC of the store. The member limits how large an answer may be.
    pub const fn of_store(path: &'static str) -> Rpc {
        Rpc { path, answer_max: usize::MAX, has_level: true }
    }

    /// Any other RPC.
    pub const fn new(path: &'static str) -> Rpc {
        Rpc { path, answer_max: ANSWER_MAX, has_level: false }
    }

    /// Sends one message and waits for one.
    pub async fn unary(self, at: Endpoint, request: Request<Bytes>) -> Result<Response<Bytes>, Status> {
        self.ready(at).await?.unary(request, PathAndQuery::from_static(self.path), Raw).await
    }

    /// Sends one message and waits for the first sign of the answers.
    pub async fn stream(
        self,
        at: Endpoint,
        request: Request<Bytes>,
    ) -> Result<Response<Streaming<Bytes>>, Status> {
        self.ready(at).await?.server_streaming(request, PathAndQuery::from_static(self.path), Raw).await
    }

    async fn ready(self, at: Endpoint) -> Result<Grpc<Channel>, Status> {
        let mut grpc = Grpc::new(at.channel).max_decoding_message_size(self.answer_max);
        let ready = grpc.ready().await;
        ready.map_err(|error| Status::unknown(format!("Service was not ready: {error}")))?;
        Ok(grpc)
    }
}

/// A message from its bytes, with the status that gRPC has for bytes that are none.
pub(crate) fn decode<M: Message + Default>(bytes: Bytes) -> Result<M, Status> {
    M::decode(bytes).map_err(|error| Status::internal(error.to_string()))
}

/// The codec of bytes.
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Raw;
    type Decoder = Raw;

    fn encoder(&mut self) -> Raw {
        Raw
    }

    fn decoder(&mut self) -> Raw {
        Raw
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put(message);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}

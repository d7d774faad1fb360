//! The formats: Kattu's own record and five of others.
//!
//! FlatBuffers are written by the library of that name and read by planus: the former reads tables by unsafe code only, the latter
//! writes them so, and the lab forbids it.
//! Knows nothing of: time.

use capnp::message::{Builder, HeapAllocator, ReaderOptions};
use capnp::private::layout::{PointerBuilder, PointerReader, StructBuilder, StructReader, StructSize};
use capnp::traits::{FromPointerBuilder, FromPointerReader};
use flatbuffers::FlatBufferBuilder;
use kattu_kv::api::{Command, Put};
use planus::SliceWithStartOffset;
use planus::table_reader::Table;
use prost::{Message, encoding};
use serde::{Deserialize, Serialize};

/// A format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Kattu's record of a command.
    Kattu,
    /// Protocol Buffers, with etcd's field numbers.
    Protobuf,
    /// MessagePack, as an array; key and value as byte strings.
    MessagePack,
    /// Cap'n Proto, one segment, not packed.
    CapnProto,
    /// FlatBuffers, one table.
    FlatBuffers,
    /// JSON; bytes are arrays of numbers, as serde writes them.
    Json,
}

impl Format {
    /// All of them.
    pub const ALL: [Format; 6] = [
        Format::Kattu,
        Format::Protobuf,
        Format::MessagePack,
        Format::CapnProto,
        Format::FlatBuffers,
        Format::Json,
    ];

    /// Its name for people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Format::Kattu => "Kattu",
            Format::Protobuf => "Protocol Buffers",
            Format::MessagePack => "MessagePack",
            Format::CapnProto => "Cap'n Proto",
            Format::FlatBuffers => "FlatBuffers",
            Format::Json => "JSON",
        }
    }

    /// Appends the put.
    ///
    /// # Errors
    /// Of its library.
    pub fn encode(self, put: &Put, out: &mut Vec<u8>) -> Result<(), String> {
        match self {
            Format::Kattu => Command::encode_put(put.as_ref(), out),
            Format::Protobuf => encode_protobuf(put, out),
            Format::MessagePack => {
                rmp_serde::encode::write(out, &FromSerde::of(put)).map_err(|error| error.to_string())?;
            }
            Format::CapnProto => encode_capnp(put, out)?,
            Format::FlatBuffers => encode_flatbuffer(put, out),
            Format::Json => {
                serde_json::to_writer(out, &FromJson::of(put)).map_err(|error| error.to_string())?
            }
        }
        Ok(())
    }

    /// The put that the bytes are.
    ///
    /// # Errors
    /// They are none.
    pub fn decode(self, bytes: &[u8]) -> Result<Put, String> {
        match self {
            Format::Kattu => match Command::decode(bytes) {
                Ok(Command::Put(put)) => Ok(put),
                Ok(_) => Err("another command".into()),
                Err(error) => Err(error.to_string()),
            },
            Format::Protobuf => {
                InProtobuf::decode(bytes).map(InProtobuf::put).map_err(|error| error.to_string())
            }
            Format::MessagePack => {
                rmp_serde::from_slice(bytes).map(InSerde::put).map_err(|error| error.to_string())
            }
            Format::CapnProto => decode_capnp(bytes),
            Format::FlatBuffers => decode_flatbuffer(bytes).map_err(|error| error.to_string()),
            Format::Json => serde_json::from_slice(bytes).map(InJson::put).map_err(|error| error.to_string()),
        }
    }
}

/// [etcd rpc.proto: PutRequest]
#[derive(Clone, PartialEq, Message)]
struct InProtobuf {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
    #[prost(int64, tag = "3")]
    lease: i64,
    #[prost(bool, tag = "4")]
    prev_kv: bool,
    #[prost(bool, tag = "5")]
    ignore_value: bool,
    #[prost(bool, tag = "6")]
    ignore_lease: bool,
}

/// What the derived code of [`InProtobuf`] does, of a put that stays where it is.
fn encode_protobuf(put: &Put, out: &mut Vec<u8>) {
    encoding::bytes::encode(1, &put.key, out);
    encoding::bytes::encode(2, &put.value, out);
    if put.lease != 0 {
        encoding::int64::encode(3, &put.lease, out);
    }
    for (tag, flag) in [(4, put.prev_kv), (5, put.ignore_value), (6, put.ignore_lease)] {
        if flag {
            encoding::bool::encode(tag, &flag, out);
        }
    }
}

impl InProtobuf {
    fn put(self) -> Put {
        let InProtobuf { key, value, lease, prev_kv, ignore_value, ignore_lease } = self;
        Put { key, value, lease, prev_kv, ignore_value, ignore_lease }
    }
}

/// Bytes that serde writes as one string of bytes, not as a sequence of numbers.
#[derive(Debug)]
struct Bytes(Vec<u8>);

/// The same of bytes that lie elsewhere.
struct BytesAt<'a>(&'a [u8]);

impl Serialize for BytesAt<'_> {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(self.0)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Bytes, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = Bytes;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("bytes")
            }

            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Bytes, E> {
                Ok(Bytes(bytes.to_vec()))
            }

            fn visit_byte_buf<E>(self, bytes: Vec<u8>) -> Result<Bytes, E> {
                Ok(Bytes(bytes))
            }
        }
        from.deserialize_byte_buf(Visitor)
    }
}

#[derive(Deserialize)]
struct InSerde {
    key: Bytes,
    value: Bytes,
    lease: i64,
    prev_kv: bool,
    ignore_value: bool,
    ignore_lease: bool,
}

impl InSerde {
    fn put(self) -> Put {
        let InSerde { key, value, lease, prev_kv, ignore_value, ignore_lease } = self;
        Put { key: key.0, value: value.0, lease, prev_kv, ignore_value, ignore_lease }
    }
}

#[derive(Deserialize)]
struct InJson {
    key: Vec<u8>,
    value: Vec<u8>,
    lease: i64,
    prev_kv: bool,
    ignore_value: bool,
    ignore_lease: bool,
}

impl InJson {
    fn put(self) -> Put {
        let InJson { key, value, lease, prev_kv, ignore_value, ignore_lease } = self;
        Put { key, value, lease, prev_kv, ignore_value, ignore_lease }
    }
}

/// A put that is encoded where it lies.
#[derive(Serialize)]
struct FromSerde<'a> {
    key: BytesAt<'a>,
    value: BytesAt<'a>,
    lease: i64,
    prev_kv: bool,
    ignore_value: bool,
    ignore_lease: bool,
}

impl FromSerde<'_> {
    fn of(put: &Put) -> FromSerde<'_> {
        let Put { ref key, ref value, lease, prev_kv, ignore_value, ignore_lease } = *put;
        FromSerde { key: BytesAt(key), value: BytesAt(value), lease, prev_kv, ignore_value, ignore_lease }
    }
}

/// The same; bytes become numbers.
#[derive(Serialize)]
struct FromJson<'a> {
    key: &'a [u8],
    value: &'a [u8],
    lease: i64,
    prev_kv: bool,
    ignore_value: bool,
    ignore_lease: bool,
}

impl FromJson<'_> {
    fn of(put: &Put) -> FromJson<'_> {
        let Put { ref key, ref value, lease, prev_kv, ignore_value, ignore_lease } = *put;
        FromJson { key, value, lease, prev_kv, ignore_value, ignore_lease }
    }
}

/// `struct Put { key :Data; value :Data; lease :Int64; prevKv :Bool; ignoreValue :Bool; ignoreLease :Bool; }`
const IN_CAPNP: StructSize = StructSize { data: 2, pointers: 2 };

struct CapnpBuilder<'a>(StructBuilder<'a>);

impl<'a> FromPointerBuilder<'a> for CapnpBuilder<'a> {
    fn init_pointer(builder: PointerBuilder<'a>, _: u32) -> CapnpBuilder<'a> {
        CapnpBuilder(builder.init_struct(IN_CAPNP))
    }

    fn get_from_pointer(
        builder: PointerBuilder<'a>,
        default: Option<&'a [capnp::Word]>,
    ) -> capnp::Result<CapnpBuilder<'a>> {
        builder.get_struct(IN_CAPNP, default).map(CapnpBuilder)
    }
}

struct CapnpReader<'a>(StructReader<'a>);

impl<'a> FromPointerReader<'a> for CapnpReader<'a> {
    fn get_from_pointer(
        reader: &PointerReader<'a>,
        default: Option<&'a [capnp::Word]>,
    ) -> capnp::Result<CapnpReader<'a>> {
        reader.get_struct(default).map(CapnpReader)
    }
}

fn encode_capnp(put: &Put, out: &mut Vec<u8>) -> Result<(), String> {
    let words = (put.key.len() + put.value.len()) / 8 + 16;
    let mut message = Builder::new(HeapAllocator::new().first_segment_words(words as u32));
    let mut root: CapnpBuilder<'_> = message.init_root();
    let fields = &mut root.0;
    fields.set_data_field::<i64>(0, put.lease);
    fields.set_bool_field(64, put.prev_kv);
    fields.set_bool_field(65, put.ignore_value);
    fields.set_bool_field(66, put.ignore_lease);
    fields.reborrow().get_pointer_field(0).set_data(&put.key);
    fields.reborrow().get_pointer_field(1).set_data(&put.value);
    capnp::serialize::write_message(out, &message).map_err(|error| error.to_string())
}

fn decode_capnp(mut bytes: &[u8]) -> Result<Put, String> {
    let mut read = || {
        let message =
            capnp::serialize::read_message_from_flat_slice_no_alloc(&mut bytes, ReaderOptions::new())?;
        let root: CapnpReader<'_> = message.get_root()?;
        let fields = &root.0;
        Ok(Put {
            key: fields.get_pointer_field(0).get_data(None)?.to_vec(),
            value: fields.get_pointer_field(1).get_data(None)?.to_vec(),
            lease: fields.get_data_field::<i64>(0),
            prev_kv: fields.get_bool_field(64),
            ignore_value: fields.get_bool_field(65),
            ignore_lease: fields.get_bool_field(66),
        })
    };
    read().map_err(|error: capnp::Error| error.to_string())
}

/// `table Put { key: [ubyte]; value: [ubyte]; lease: long; prev_kv: bool; ignore_value: bool; ignore_lease: bool; }`, the place of a
/// field in its table of offsets.
fn slot(field: u16) -> u16 {
    4 + 2 * field
}

fn encode_flatbuffer(put: &Put, out: &mut Vec<u8>) {
    let mut builder = FlatBufferBuilder::with_capacity(put.key.len() + put.value.len() + 64);
    let value = builder.create_vector(&put.value);
    let key = builder.create_vector(&put.key);
    let table = builder.start_table();
    builder.push_slot(slot(2), put.lease, 0_i64);
    builder.push_slot_always(slot(1), value);
    builder.push_slot_always(slot(0), key);
    builder.push_slot(slot(5), put.ignore_lease, false);
    builder.push_slot(slot(4), put.ignore_value, false);
    builder.push_slot(slot(3), put.prev_kv, false);
    let root = builder.end_table(table);
    builder.finish_minimal(root);
    out.extend_from_slice(builder.finished_data());
}

fn decode_flatbuffer(bytes: &[u8]) -> planus::Result<Put> {
    let whole = SliceWithStartOffset { buffer: bytes, offset_from_start: 0 };
    let at = |error_kind| planus::Error {
        source_location: planus::errors::ErrorLocation { type_: "Put", method: "root", byte_offset: 0 },
        error_kind,
    };
    let table = Table::from_buffer(whole, 0).map_err(at)?;
    Ok(Put {
        key: table.access_required::<&[u8]>(0, "Put", "key")?.to_vec(),
        value: table.access_required::<&[u8]>(1, "Put", "value")?.to_vec(),
        lease: table.access(2, "Put", "lease")?.unwrap_or_default(),
        prev_kv: table.access(3, "Put", "prev_kv")?.unwrap_or_default(),
        ignore_value: table.access(4, "Put", "ignore_value")?.unwrap_or_default(),
        ignore_lease: table.access(5, "Put", "ignore_lease")?.unwrap_or_default(),
    })
}

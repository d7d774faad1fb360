//! The record of a put in several formats: how large it is, and how long it takes to encode and to decode.
//!
//! Rule: every format carries the same six fields (key, value, lease, three flags) and gives back a [`Put`] of its own memory, so
//!       that nothing is left undone. Messages and schemas are written by hand as their generators write them.
//! Knows nothing of: clusters, points.

mod formats;

use crate::bench_cluster::Measurement;
use crate::machine::Busy;
use crate::measured::ENCODED_BYTES;
pub use formats::Format;
use kattu_kv::api::Put;
use serde_json::json;
use std::collections::BTreeMap;
use std::fmt;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Bytes of the key.
const KEY_BYTES: usize = 16;
/// Records of one batch, which is long enough for the clock and short enough for the first-level cache.
const BATCH: u32 = 1000;
/// Batches of one run; their median counts.
const BATCHES: usize = 200;

/// What is done with a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Its fields become bytes, in a buffer that is used again where the library can do that.
    Encode,
    /// Its bytes become fields, with memory of their own.
    Decode,
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Work::Encode => "encode",
            Work::Decode => "decode",
        })
    }
}

/// One measurement of a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Codec {
    /// The format.
    pub format: Format,
    /// What is done.
    pub work: Work,
    /// Bytes of the value.
    pub value_bytes: usize,
}

impl Codec {
    /// What is done, for readers.
    #[must_use]
    pub fn words(&self) -> String {
        format!("{} {} records, {BATCHES} times", self.work, BATCH)
    }

    /// Measures it: the median batch stands for all.
    ///
    /// # Errors
    /// The format does not give back what was put into it.
    pub fn measure(&self) -> Result<Measurement, String> {
        let busy = Busy::now();
        let put = put(self.value_bytes);
        let mut bytes = Vec::new();
        self.format.encode(&put, &mut bytes)?;
        if self.format.decode(&bytes)? != put {
            return Err(format!("{:?} gives back something else", self.format));
        }
        let mut out = Vec::with_capacity(bytes.len());
        let mut batches: Vec<Duration> = Vec::with_capacity(BATCHES);
        for _ in 0..BATCHES {
            let begun = Instant::now();
            for _ in 0..BATCH {
                match self.work {
                    Work::Encode => {
                        out.clear();
                        self.format.encode(black_box(&put), &mut out)?;
                        black_box(&out);
                    }
                    Work::Decode => drop(black_box(self.format.decode(black_box(&bytes))?)),
                }
            }
            batches.push(begun.elapsed());
        }
        batches.sort_unstable();
        let ops = u64::from(BATCH) * BATCHES as u64;
        let seconds = batches[BATCHES / 2].as_secs_f64() * BATCHES as f64;
        Ok(Measurement {
            answer: json!({ "ops": ops, "seconds": seconds, "errors": 0, "latencies_us": [] }),
            told: String::new(),
            members_cpu_us: Vec::new(),
            client_cpu_us: 0.0,
            leader: 0,
            is_steady: true,
            others: busy.share_of_others(Duration::ZERO),
            counters: BTreeMap::from([(ENCODED_BYTES.into(), bytes.len() as f64 * ops as f64)]),
        })
    }
}

/// The put that all formats carry: bytes of all values, as keys and values have them.
fn put(value_bytes: usize) -> Put {
    let bytes = |count: usize, from: usize| (0..count).map(|it| ((it * 37 + from) % 256) as u8).collect();
    Put { key: bytes(KEY_BYTES, 1), value: bytes(value_bytes, 128), ..Put::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_format_gives_back_what_was_put_into_it() {
        for format in Format::ALL {
            let mut put = put(300);
            for (lease, flag) in [(0, false), (7, true), (i64::MIN, false)] {
                (put.lease, put.prev_kv, put.ignore_lease) = (lease, flag, flag);
                let mut bytes = Vec::new();
                format.encode(&put, &mut bytes).expect("it can be encoded");
                assert_eq!(format.decode(&bytes).as_ref(), Ok(&put), "{format:?}");
                assert!(format.decode(&bytes[..bytes.len() / 2]).is_err(), "{format:?}: half of it");
            }
        }
    }
}

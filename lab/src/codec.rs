//! stub
use crate::bench_cluster::Measurement;
/// Stub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Codec;
impl Codec {
    /// Stub.
    pub fn words(&self) -> String {
        String::new()
    }
    /// Stub.
    /// # Errors
    /// Stub.
    pub fn measure(&self) -> Result<Measurement, String> {
        Err(String::new())
    }
}

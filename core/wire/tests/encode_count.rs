//! Goal: the count of encoded records moves with encoding only. Alone in its process, because the count is per process.

mod common;

use common::{CODEC, bytes, one_of_each};
use kattu_wire::records_encoded;

#[test]
fn sending_and_reading_encode_nothing() {
    let before = records_encoded();
    let frames = one_of_each();
    let after = records_encoded();
    assert_eq!(after - before, 3, "the samples hold three entries");
    for (_, frame) in &frames {
        let arrived = CODEC.decode(&bytes(frame).into()).unwrap();
        bytes(&arrived);
    }
    assert_eq!(records_encoded(), after);
}

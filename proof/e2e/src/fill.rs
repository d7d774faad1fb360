//! Numbered keys, put as fast as possible.
//!
//! Knows nothing of: what they are for.

use crate::open_loop::CONNECT_LIMIT;
use kattu_proto::etcdserverpb::kv_client::KvClient;
use kattu_proto::etcdserverpb::request_op::Request;
use kattu_proto::etcdserverpb::{PutRequest, RequestOp, TxnRequest};
use kattu_rig::grpc::channel;
use std::ops::Range;
use std::time::Duration;
use tonic::transport::Channel;

/// etcd's default limit of operations in a transaction is 128.
const PUTS_PER_TXN: u64 = 100;
const FILLERS: u64 = 32;

/// The keys and values of these numbers.
pub(crate) struct Fill {
    /// A number's key.
    pub(crate) key: fn(u64) -> Vec<u8>,
    /// A number's value.
    pub(crate) value: fn(u64) -> Vec<u8>,
}

impl Fill {
    /// Puts these numbers to one member, in large transactions of many clients.
    pub(crate) fn fill(&self, address: &str, numbers: Range<u64>) {
        let count = numbers.end.saturating_sub(numbers.start);
        let fillers = FILLERS.min(count.max(1));
        let share = count.div_ceil(fillers);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let mut tasks = tokio::task::JoinSet::new();
            for filler in 0..fillers {
                let own =
                    numbers.start + filler * share..(numbers.start + (filler + 1) * share).min(numbers.end);
                tasks.spawn(fill_one(channel(address, CONNECT_LIMIT), own, self.key, self.value));
            }
            tasks.join_all().await;
        });
    }
}

async fn fill_one(
    channel: Channel,
    mut numbers: Range<u64>,
    key: fn(u64) -> Vec<u8>,
    value: fn(u64) -> Vec<u8>,
) {
    let mut client = KvClient::new(channel);
    while numbers.start < numbers.end {
        let some = numbers.start..(numbers.start + PUTS_PER_TXN).min(numbers.end);
        numbers.start = some.end;
        let put = |number| RequestOp {
            request: Some(Request::RequestPut(PutRequest {
                key: key(number),
                value: value(number),
                ..PutRequest::default()
            })),
        };
        let request = TxnRequest { success: some.map(put).collect(), ..TxnRequest::default() };
        // Repeating the same puts does no harm.
        while client.txn(request.clone()).await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

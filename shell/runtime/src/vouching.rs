//! Vouching: asks the known members about callers that this member does not know. ([`kattu_member::join`])
//!
//! Knows nothing of: what their answers mean, the messages of the unknown caller.

use crate::join;
use crate::peer_table::PeerTable;
use kattu_member::handshake::member_asks;
use kattu_member::join::Vouching;
use std::rc::Rc;

/// Asks the others whenever a caller came that this member does not know: one after the other, until one names a
/// member that was not known. Runs until it is dropped.
pub(crate) async fn run(peer_table: Rc<PeerTable>) {
    let mut vouching = Vouching::default();
    let question = member_asks();
    loop {
        peer_table.stranger().await;
        for address in peer_table.places().into_values().flatten() {
            let answer = join::one(&address, peer_table.tls.as_ref(), &question).await;
            if peer_table.with(|table| vouching.is_settled(answer, table)) {
                break;
            }
        }
        tokio::time::sleep(vouching.pause()).await;
    }
}

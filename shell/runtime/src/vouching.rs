//! Vouching: asks the known members about callers that this member's table does not list. ([`kattu_member::join`])
//!
//! Knows nothing of: what their answers mean, the messages of the unknown caller.

use crate::join;
use crate::peer_table::PeerTable;
use kattu_member::join::Vouching;
use std::rc::Rc;

/// Asks the others whenever a caller came that this member does not know: one after the other, until one has an answer that
/// is of use. Runs until it is dropped.
pub(crate) async fn run(peer_table: Rc<PeerTable>) {
    let mut vouching = Vouching::default();
    loop {
        peer_table.stranger().await;
        let own_urls = peer_table.ask(|table| table.own().peer_urls.clone());
        for address in peer_table.places().into_values().flatten() {
            let answer = join::one(&address, peer_table.tls.as_ref(), &own_urls).await;
            if peer_table.with(|table| vouching.is_settled(answer, table)) {
                break;
            }
        }
        tokio::time::sleep(vouching.pause()).await;
    }
}

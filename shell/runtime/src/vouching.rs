//! Vouching: known members confirm callers that this member's table does not list.
//!
//! A member that was away may be called by one that others have added meanwhile, and that may be the leader. Its claim
//! alone does not count, and the address it announces is not dialled: otherwise a stranger could make a member dial any
//! address. The known members are asked for the member list, as by a newcomer, and answer what a quorum has confirmed.
//! Knows nothing of: the messages of the unknown caller.

use crate::join;
use crate::peer_table::PeerTable;
use kattu_raft::Duration;
use std::rc::Rc;

/// The pause after a question, however many unknown callers come.
const PAUSE_MIN: Duration = Duration::from_millis(500);
/// The same while questions bring no news.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// Asks the others whenever a caller came that this member does not know. Runs until it is dropped.
pub(crate) async fn run(peer_table: Rc<PeerTable>) {
    let mut pause = PAUSE_MIN;
    loop {
        peer_table.stranger_came.notified().await;
        pause = match ask(&peer_table).await {
            true => PAUSE_MIN,
            false => (pause * 2).min(PAUSE_MAX),
        };
        tokio::time::sleep(pause).await;
    }
}

/// Asks one member after the other until one answers; returns whether it names a new member.
async fn ask(peer_table: &PeerTable) -> bool {
    let own_urls = peer_table.own_urls.clone();
    for address in peer_table.places().into_values().flatten() {
        let Ok(member_list) = join::one(&address, peer_table.tls.as_ref(), &own_urls).await else { continue };
        if member_list.cluster != peer_table.cluster
            || member_list.members.at <= peer_table.members.borrow().at
        {
            continue;
        }
        let is_news = member_list.members.list.iter().any(|member| !peer_table.knows(member.id));
        peer_table.vouched_for(member_list.members);
        return is_news;
    }
    false
}

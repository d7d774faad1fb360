//! Vouching: the members that are known here say who else is one.
//!
//! A member that was away may be greeted by somebody whom others have added meanwhile, and who may be the only one that
//! leads. By its own word it is not believed, and where it says it is reached nobody dials: that would be a way to make a
//! member dial whomever a stranger likes. The members that are known are asked who belongs to the cluster, as a newcomer would
//! ask, and answer what a quorum has confirmed.
//! Knows nothing of: what the stranger wants.

use crate::join;
use crate::peer_table::PeerTable;
use kattu_raft::Duration;
use std::rc::Rc;

/// The pause after a question, however many strangers come.
const PAUSE_MIN: Duration = Duration::from_millis(500);
/// The same where questions bring no news.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// Asks the others whenever somebody came whom this member does not know. Runs until it is dropped.
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

/// Asks one member after the other until one answers; whether there is somebody new.
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

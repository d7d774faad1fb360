//! Reduction: a short history that still shows a difference.
//!
//! Method: drop all reads, then halves, quarters, … of the writes, and keep what still differs. Every try runs on fresh
//! servers, so tries are few; the result is short, not proven shortest.
//! Knows nothing of: the cause of the difference.

use crate::call::Call;
use crate::episode::{Pair, Setup, judge};
use std::collections::BTreeMap;

/// Number of tries.
const TRIES: usize = 60;

/// Sends the same requests to fresh servers; returns the unexplained differences and how many requests that took.
pub async fn replay(
    setup: &Setup,
    history: &[Call],
) -> Result<Option<(usize, Vec<crate::compare::Difference>)>, String> {
    let mut pair = Pair::start(setup).await?;
    for (place, call) in history.iter().enumerate() {
        let answers = pair.ask(std::slice::from_ref(call)).await?;
        for both in &answers {
            let unexplained = judge(&setup.rules, call, both, &mut BTreeMap::new());
            if !unexplained.is_empty() {
                return Ok(Some((place + 1, unexplained)));
            }
        }
    }
    Ok(None)
}

/// Shortens a history; `None` if the difference does not show again.
pub async fn shorten(setup: &Setup, history: &[Call]) -> Result<Option<Vec<Call>>, String> {
    let Some((last, before)) = history.split_last() else { return Ok(None) };
    let mut tries = 0;
    let mut best: Option<Vec<Call>> = None;
    let writes: Vec<Call> =
        before.iter().filter(|call| !call.is_read()).cloned().chain([last.clone()]).collect();
    for candidate in [vec![last.clone()], writes, history.to_vec()] {
        tries += 1;
        if let Some((length, _)) = replay(setup, &candidate).await? {
            best = Some(candidate[..length].to_vec());
            break;
        }
    }
    let Some(mut best) = best else { return Ok(None) };
    let mut chunk = (best.len() / 2).max(1);
    while tries < TRIES && 1 < best.len() {
        let mut start = 0;
        let mut shorter_found = false;
        // The last request is the one that differs; it stays.
        while start + 1 < best.len() && tries < TRIES {
            let end = (start + chunk).min(best.len() - 1);
            let candidate: Vec<Call> = best[..start].iter().chain(&best[end..]).cloned().collect();
            tries += 1;
            match replay(setup, &candidate).await? {
                Some((length, _)) => {
                    best = candidate[..length].to_vec();
                    shorter_found = true;
                }
                None => start = end,
            }
        }
        if chunk == 1 && !shorter_found {
            break;
        }
        chunk = (chunk / 2).max(1);
    }
    Ok(Some(best))
}

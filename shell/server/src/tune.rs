//! `GET /kattu/tune`, `PUT /kattu/tune?NAME=VALUE&…`: what a member is tuned to, and how it is changed while it runs.
//!
//! The change is this member's alone and is forgotten by a restart. Names and values are those of the flags.
//! Knows nothing of: HTTP, what a setting does.

use crate::face::Face;
use crate::json;
use crate::replica::Replica;
use kattu_raft::NodeId;
use kattu_runtime::tuning::{Named, Setting, Tuning};

/// Why a tuning was not changed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TuneError {
    /// What was given cannot be meant.
    Given(String),
    /// The member does not take it now.
    Refused(&'static str),
}

/// The tuning after these settings, as JSON; without settings, as it is.
pub(crate) async fn tune<R: Replica>(face: &Face<R>, query: &str) -> Result<String, TuneError> {
    let pairs = query.split('&').filter(|part| !part.is_empty());
    let pairs: Option<Vec<(&str, &str)>> = pairs.map(|part| part.split_once('=')).collect();
    let pairs = pairs.ok_or_else(|| TuneError::Given("settings are NAME=VALUE, joined by &".to_string()))?;
    let only_in_experiments = |(name, _): &&(&str, &str)| Named::of(name).is_some_and(|named| named.lab);
    if let Some((name, _)) = pairs.iter().find(only_in_experiments).filter(|_| !face.config.lab) {
        return Err(TuneError::Given(format!(
            "{name} is for experiments: only a member that was started with --lab takes it"
        )));
    }
    let settings = Setting::parse(pairs).map_err(TuneError::Given)?;
    let tuning = face.replica.tune(settings).await.map_err(TuneError::Refused)?;
    Ok(tuning_json(face.replica.member_id(), &face.config.name, &tuning))
}

/// The tuning of a member, as JSON.
fn tuning_json(member: NodeId, name: &str, tuning: &Tuning) -> String {
    let settings = tuning.shown().map(|(named, value)| format!("\"{}\":\"{value}\"", named.name));
    let settings: Vec<String> = settings.collect();
    format!(
        "{{\"member_id\":\"{:x}\",\"name\":{},\"settings\":{{{}}}}}",
        member.0,
        json::string(name),
        settings.join(",")
    )
}

/// The settings that differ from those of a member without flags, as a JSON object.
pub(crate) fn changed_json(tuning: &Tuning) -> String {
    let changed = changed(tuning).map(|(named, value)| format!("\"{}\":\"{value}\"", named.name));
    format!("{{{}}}", changed.collect::<Vec<_>>().join(","))
}

/// The settings that differ from those of a member without flags.
fn changed(tuning: &Tuning) -> impl Iterator<Item = (&'static Named, String)> {
    let default = Tuning::default();
    tuning.shown().filter(move |(named, value)| named.show(&default) != *value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_from_the_default_is_told_and_nothing_else() {
        let tuning = Tuning::default();
        assert_eq!(changed_json(&tuning), "{}");
        let settings = Setting::parse([("batching", "off"), ("batch-linger", "500us")]).expect("settings");
        let tuned = tuning.with(&settings);
        assert_eq!(changed_json(&tuned), "{\"batching\":\"off\",\"batch-linger\":\"500us\"}");
        let json = tuning_json(NodeId(0xab), "n\"1", &tuned);
        assert!(
            json.starts_with("{\"member_id\":\"ab\",\"name\":\"n\\\"1\",\"settings\":{\"batching\":\"off\",")
        );
        assert!(json.ends_with(",\"unsafe-early-answers\":\"off\"}}"), "{json}");
    }
}

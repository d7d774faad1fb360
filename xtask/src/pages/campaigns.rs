//! Campaigns: every long run of the rigs, as data, and the table that a page shows of them.
//!
//! In:   `docs/figures/campaigns.toml`.
//! Out:  the rows of the table in `docs/campaigns.md`; what is wrong with the data.
//! Knows nothing of: rigs.

use crate::shell::{self, Failure};
use toml::{Table, Value};

/// The page with the table.
pub const PAGE: &str = "docs/campaigns.md";
/// The data.
pub const DATA: &str = "docs/figures/campaigns.toml";

const FIELDS: [&str; 4] = ["date", "commit", "command", "result"];

/// The table.
pub fn table() -> Result<String, Failure> {
    let text = std::fs::read_to_string(shell::root().join(DATA))?;
    made_of(&text).map_err(|wrong| Failure::new(wrong.join("\n")))
}

/// The table of the campaigns in this text, or everything that is wrong with them.
fn made_of(text: &str) -> Result<String, Vec<String>> {
    let data: Table = text.parse().map_err(|error| vec![format!("{DATA}: {error}")])?;
    let campaigns = data.get("campaign").and_then(Value::as_array).cloned().unwrap_or_default();
    let mut shown = "| Date | Commit | Command | Result |\n|---|---|---|---|\n".to_string();
    let (mut wrong, mut newer) = (Vec::new(), "9999-99-99".to_string());
    for (number, campaign) in campaigns.iter().enumerate() {
        let of = |name| campaign.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
        let [Some(date), Some(commit), Some(command), Some(result)] = FIELDS.map(of) else {
            wrong.push(format!("{DATA}: campaign {}: it needs {}", number + 1, FIELDS.join(", ")));
            continue;
        };
        if !is_date(date) || newer.as_str() < date {
            wrong.push(format!(
                "{DATA}: campaign {}: `{date}` is no date, or newer than the one before it",
                number + 1
            ));
        }
        newer = date.into();
        let commit = if commit == "-" { "–" } else { commit };
        shown += &format!("| {date} | {commit} | {command} | {result} |\n");
    }
    if campaigns.is_empty() {
        wrong.push(format!("{DATA}: no campaign"));
    }
    if wrong.is_empty() { Ok(shown) } else { Err(wrong) }
}

/// `2026-11-26`.
fn is_date(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let is_number = |part: &&str| part.bytes().all(|byte| byte.is_ascii_digit());
    parts.iter().map(|part| part.len()).eq([4, 2, 2]) && parts.iter().all(is_number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn campaign(date: &str, commit: &str) -> String {
        format!(
            "[[campaign]]\ndate = '{date}'\ncommit = '{commit}'\ncommand = '`a \\| b`'\nresult = 'clean'\n"
        )
    }

    #[test]
    fn each_campaign_is_a_row_and_a_lost_commit_a_dash() {
        let text = campaign("2026-11-26", "abc1234") + &campaign("2026-11-25", "-");
        let rows = "| 2026-11-26 | abc1234 | `a \\| b` | clean |\n| 2026-11-25 | – | `a \\| b` | clean |\n";
        assert!(made_of(&text).is_ok_and(|table| table.ends_with(rows)));
    }

    #[test]
    fn a_missing_field_a_date_that_is_none_and_a_wrong_order_are_named() {
        let wrong = |text: &str| made_of(text).err().map(|wrong| wrong.len());
        assert_eq!(wrong(""), Some(1));
        assert_eq!(wrong("[[campaign]]\ndate = '2026-11-26'\n"), Some(1));
        assert_eq!(wrong(&campaign("26.11.2026", "a")), Some(1));
        assert_eq!(wrong(&(campaign("2026-11-25", "a") + &campaign("2026-11-26", "b"))), Some(1));
        assert_eq!(wrong("[[campaign"), Some(1));
    }
}

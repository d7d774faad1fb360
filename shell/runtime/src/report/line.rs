//! What a line looks like: for people, or as JSON. [etcd: `--log-format`]
//!
//! ```text
//!  2026-11-22T21:40:22.123Z warn  connection of member 8e9e05c52164694d closed: it is cut off (and 12 more)
//!  {"level":"warn","ts":"2026-11-22T21:40:22.123Z","msg":"connection of …","more":12}
//! ```
//! Rules: one line is one line, whatever it quotes; none is longer than [`LINE_BYTES_MAX`].
//! Knows nothing of: where lines go.

use super::{Format, Level};
use std::fmt::{Arguments, Write};
use std::time::{SystemTime, UNIX_EPOCH};

/// Bytes of a line, at most: it may quote a stranger's text.
pub(super) const LINE_BYTES_MAX: usize = 4 << 10;

impl Level {
    fn name(self) -> &'static str {
        match self {
            Level::Debug => "debug",
            Level::Info => "info",
            Level::Warn => "warn",
            Level::Error => "error",
        }
    }
}

impl Format {
    /// The line, with the break at its end. `more` like it were held back before.
    pub(super) fn line(self, now: SystemTime, level: Level, line: Arguments<'_>, more: u64) -> String {
        let mut text = Short(String::new());
        let _ = text.write_fmt(line); // it ends where it is long enough
        let Short(text) = text;
        let (ts, level) = (stamp(now), level.name());
        let mut out = String::with_capacity(text.len() + 64);
        let written = match self {
            Format::Console => {
                let _ = write!(out, "{ts} {level:<5} ");
                out.extend(text.chars().flat_map(visible));
                match more {
                    0 => Ok(()),
                    more => write!(out, " (and {more} more)"),
                }
            }
            Format::Json => {
                let _ = write!(out, "{{\"level\":\"{level}\",\"ts\":\"{ts}\",\"msg\":\"");
                text.chars().for_each(|c| quote(&mut out, c));
                match more {
                    0 => out.write_str("\"}"),
                    more => write!(out, "\",\"more\":{more}}}"),
                }
            }
        };
        written.expect("a string takes everything");
        out.push('\n');
        out
    }
}

/// A text that stops growing.
struct Short(String);

impl Write for Short {
    fn write_str(&mut self, part: &str) -> std::fmt::Result {
        let room = LINE_BYTES_MAX - self.0.len();
        if part.len() <= room {
            self.0.push_str(part);
            return Ok(());
        }
        let cut = part.floor_char_boundary(room.saturating_sub('…'.len_utf8()));
        if cut <= room.saturating_sub('…'.len_utf8()) {
            self.0.push_str(&part[..cut]);
        }
        if self.0.len() + '…'.len_utf8() <= LINE_BYTES_MAX {
            self.0.push('…');
        }
        Err(std::fmt::Error)
    }
}

/// A character as it may stand in a line: none that moves a terminal's cursor or begins another line.
fn visible(c: char) -> impl Iterator<Item = char> {
    let escaped = c.is_control().then(|| c.escape_default());
    let plain = escaped.is_none().then_some(c);
    escaped.into_iter().flatten().chain(plain)
}

fn quote(out: &mut String, c: char) {
    match c {
        '"' => out.push_str("\\\""),
        '\\' => out.push_str("\\\\"),
        '\n' => out.push_str("\\n"),
        c if c.is_control() => {
            let _ = write!(out, "\\u{:04x}", c as u32); // control characters are all below U+00A0
        }
        c => out.push(c),
    }
}

/// The time as RFC 3339 has it: UTC, with milliseconds. A clock before 1970 shows 1970.
fn stamp(now: SystemTime) -> String {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, second) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    // Years begin in March here, so that a leap day is the last one. 719,468 days lie between 0000-03-01 and 1970-01-01.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!(
        "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{:02}.{:03}Z",
        second % 60,
        since.subsec_millis()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn at(millis: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_millis(millis)
    }

    #[test]
    fn stamps_are_utc_also_around_leap_days_and_centuries() {
        let table = [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (951_868_800_000, "2000-03-01T00:00:00.000Z"),
            (1_709_164_800_001, "2024-02-29T00:00:00.001Z"),
            (1_735_689_599_000, "2024-12-31T23:59:59.000Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ];
        for (millis, expected) in table {
            assert_eq!(stamp(at(millis)), expected);
        }
        assert_eq!(stamp(UNIX_EPOCH - Duration::from_secs(5)), "1970-01-01T00:00:00.000Z");
    }

    #[test]
    fn a_line_is_one_line_whatever_it_quotes() {
        let bad = "x\n2026 error all is lost\r\u{1b}[2J\"\\";
        let line = Format::Console.line(at(0), Level::Warn, format_args!("from {bad}"), 3);
        assert_eq!(
            line,
            "1970-01-01T00:00:00.000Z warn  from x\\n2026 error all is lost\\r\\u{1b}[2J\"\\ (and 3 more)\n"
        );
        let line = Format::Json.line(at(0), Level::Error, format_args!("from {bad}"), 0);
        assert_eq!(
            line,
            "{\"level\":\"error\",\"ts\":\"1970-01-01T00:00:00.000Z\",\"msg\":\"from x\\n2026 error all is lost\\u000d\
             \\u001b[2J\\\"\\\\\"}\n"
        );
    }

    #[test]
    fn a_line_ends_where_it_is_long_enough() {
        for (piece, times) in [("a", 100_000), ("é", 3000), ("abc…", 2000)] {
            let long = piece.repeat(times);
            let mut text = Short(String::new());
            assert!(text.write_fmt(format_args!("{long} and {long}")).is_err());
            assert!(text.0.ends_with('…') && text.0.len() <= LINE_BYTES_MAX, "{}", text.0.len());
            assert!(LINE_BYTES_MAX < text.0.len() + 2 * piece.len() + 3, "{}", text.0.len());
        }
        let just = "b".repeat(LINE_BYTES_MAX);
        let mut text = Short(String::new());
        assert!(text.write_fmt(format_args!("{just}")).is_ok());
        assert_eq!(text.0, just);
    }
}

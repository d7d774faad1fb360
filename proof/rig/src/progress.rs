//! The progress bar of a campaign.
//!
//! Knows nothing of: trials.

use indicatif::{ProgressBar, ProgressStyle};
use std::time::Duration;

/// A bar for so many trials; hidden where no terminal shows it.
pub fn bar(trials: u64) -> ProgressBar {
    let bar = ProgressBar::new(trials);
    let style =
        ProgressStyle::with_template("{wide_bar} {pos}/{len} trials, {msg}, {elapsed} of about {duration}");
    bar.set_style(style.expect("a template"));
    bar.set_message("0 writes");
    bar.enable_steady_tick(Duration::from_secs(1));
    bar
}

//! Predict: one run, and what it says.
//!
//! Knows nothing of: how the net is simulated.

use crate::measured::Report;
use crate::parameters::{Parameters, Setting};
use crate::simulator::Simulator;
use serde::Serialize;

/// What the model says about a system in a setting.
#[derive(Clone, Debug, Serialize)]
pub struct Prediction {
    /// Throughput, the eleven times with their shares, latencies, disorder.
    pub report: Report,
    /// Firings of transitions.
    pub transitions: u64,
    /// A hash of all firings: equal for equal parameters and settings.
    pub digest: u64,
}

/// Runs the net once.
///
/// # Errors
/// A parameter or the setting is out of its range.
pub fn predict(parameters: &Parameters, setting: &Setting) -> Result<Prediction, String> {
    let finished = Simulator::new(parameters, setting)?.run();
    Ok(Prediction {
        report: finished.report(),
        transitions: finished.marking.fired_in_all(),
        digest: finished.digest,
    })
}

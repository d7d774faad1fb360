//! Player: a fragment of HTML that plays recorded runs on the drawing, one below the other on one clock. It needs no other file.
//!
//! Knows nothing of: how a run is made.

use crate::delay::Delay;
use crate::drawing::{self, Snapshot};
use crate::net::{NET, Place};
use crate::parameters::{Parameters, Setting, Weak};
use crate::recording::Recording;
use crate::simulator::Simulator;
use serde_json::json;

/// A recorded run with its title.
pub struct Played {
    /// What is shown above the net.
    pub title: String,
    /// Whether the run has a window.
    pub has_window: bool,
    /// The run.
    pub recording: Recording,
}

/// Records a small run of Raft and one of NB-Raft on the same draws: two replicas, so that the whole net is on the page, and so
/// few clients and cores that tokens can be told apart. Clients are quick, so that entries overtake each other.
///
/// # Errors
/// A parameter is out of its range.
pub fn compared(parameters: &Parameters, base: &Setting) -> Result<Vec<Played>, String> {
    let clients = base.clients().clamp(2, 12);
    let small = Setting {
        replicas: 2,
        load: crate::parameters::Load::Closed { clients },
        dispatchers: base.dispatchers.min(12),
        requests: 48,
        warm_up: 0,
        ..base.clone()
    };
    let generate = Delay::Exponential(parameters.generate.mean().min(200.0));
    let parameters = Parameters { generate, cores: 4, appliers: 1, ..parameters.clone() };
    let weak = if base.weak == Weak::Off { Weak::Gap } else { base.weak };
    let window = if base.window == 0 { 10_000 } else { base.window };
    let raft = Setting { window: 0, weak: Weak::Off, ..small.clone() };
    let nb_raft = Setting { window, weak, ..small };
    let record = |title: &str, setting: &Setting| -> Result<Played, String> {
        let finished = Simulator::new(&parameters, setting)?.recorded().run();
        let recording = finished.recording.ok_or("a recorded run has its recording")?;
        Ok(Played { title: title.into(), has_window: 0 < setting.window, recording })
    };
    Ok(vec![record("Raft", &raft)?, record("NB-Raft", &nb_raft)?])
}

/// The fragment: style, controls, nets and script.
#[must_use]
pub fn html(runs: &[Played]) -> String {
    let mut nets = String::new();
    let mut data = Vec::new();
    for (number, run) in runs.iter().enumerate() {
        let id = format!("petri-{number}");
        let svg = drawing::svg(&id, &initial(&run.recording), run.has_window);
        nets += &format!(
            "<h3>{}<small data-counts=\"{id}\"></small></h3><div class=\"net\">{svg}</div>\n",
            run.title
        );
        let recorded = run.recording.json();
        data.push(json!({ "id": id, "initial": recorded["initial"], "moves": recorded["moves"] }));
    }
    let data = json!({
        "places": Place::ALL.map(Place::name),
        "transitions": NET.iter().map(|row| row.name).collect::<Vec<_>>(),
        "pending": Place::Pending as u8,
        "runs": data,
    });
    format!(
        "<style>\n{}{}</style>\n<div class=\"petri-player\">\n{CONTROLS}\n{nets}<script type=\"application/json\">{}</script>\n\
         <script>\n{}</script>\n</div>\n",
        drawing::STYLE,
        include_str!("player.css"),
        data.to_string().replace("</", "<\\/"),
        include_str!("player.js")
    )
}

const CONTROLS: &str = "<div class=\"controls\"><button data-control=\"play\">Play</button><button data-control=\"step\">Step</button>\
<button data-control=\"back\">To the start</button><label>speed <select data-control=\"speed\"><option value=\"0.25\">¼</option>\
<option value=\"1\" selected>1</option><option value=\"4\">4</option><option value=\"16\">16</option></select></label>\
<input type=\"range\" min=\"0\" step=\"1\" value=\"0\" data-control=\"time\" aria-label=\"time\">\
<span class=\"clock\" data-control=\"clock\"></span></div>";

fn initial(recording: &Recording) -> Snapshot {
    let mut tokens = [0; Place::ALL.len()];
    for (place, count) in recording.initial() {
        tokens[place as usize] += u64::from(count);
    }
    tokens
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::Transition;
    use crate::profiles;

    #[test]
    fn a_page_plays_both_protocols_and_needs_no_other_file() {
        let runs = compared(&profiles::iotdb(), &Setting::raft(1024)).expect("runs");
        let fired = |run: &Played, transition: Transition| {
            let moves = run.recording.json();
            let moves = moves["moves"].as_array().expect("moves").clone();
            moves.iter().filter(|it| it[1] == transition as u8).count()
        };
        assert!(0 < fired(&runs[0], Transition::NotYet) && fired(&runs[0], Transition::EnterWin) == 0);
        assert!(0 < fired(&runs[1], Transition::EnterWin) && fired(&runs[1], Transition::NotYet) == 0);
        let page = html(&runs);
        let outside = ["src=", "href=", "@import"].iter().find(|it| page.contains(**it));
        assert_eq!(outside, None);
        assert!(page.len() < 400_000, "{} bytes", page.len());
        // What the script looks for is there: an element for each place, transition and arc that a move names.
        for run in 0..2 {
            for row in &NET {
                assert!(page.contains(&format!("id=\"petri-{run}-t-{}\"", row.transition as u8)));
                for arc in row.inputs {
                    let id = format!("id=\"petri-{run}-in-{}-{}\"", row.transition as u8, arc.place as u8);
                    assert!(page.contains(&id), "{id}");
                }
            }
        }
    }
}

//! The scenes of `probe/scenes.c`, and the lines that the specification makes them print.

use crate::probe::Probe;
use crate::{Error, Exchange, Machine};

/// Where the responder listens.
const PORT: u16 = 18520;
/// Longer than the timeouts of any scene, on a slow machine.
const SECONDS: u64 = 90;

/// What a scene prints: outcomes as the specification has them; digests recorded.
const EXPECTED: &str = include_str!("../probe/scenes.expected");

/// What both ends of a scene print.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lines {
    /// The end that asks.
    pub requester: String,
    /// The end that answers.
    pub responder: String,
}

/// All scenes with the lines that they have to print, in the order of the file.
pub fn expected() -> Vec<(&'static str, Lines)> {
    let scenes = EXPECTED.split("== ").skip(1);
    scenes.filter_map(one_expected).collect()
}

fn one_expected(text: &'static str) -> Option<(&'static str, Lines)> {
    let (name, rest) = text.split_once('\n')?;
    let (requester, responder) = rest.split_once("--\n")?;
    Some((name, Lines { requester: requester.to_owned(), responder: responder.to_owned() }))
}

/// Plays a scene between two machines.
///
/// # Errors
/// As [`Exchange::run`].
pub fn play(
    responder: &dyn Machine,
    requester: &dyn Machine,
    probe: &Probe,
    scene: &str,
) -> Result<Lines, Error> {
    let path = probe.path().to_string_lossy();
    let exchange = Exchange::run(responder, requester, &[&path, scene], "-g", PORT, SECONDS)?;
    Ok(Lines { requester: exchange.client.output, responder: exchange.server.output })
}

/// Plays all scenes but `except`, and demands the expected lines of each.
///
/// # Panics
/// With all scenes whose lines differ.
#[track_caller]
pub fn expect_all(responder: &dyn Machine, requester: &dyn Machine, probe: &Probe, except: &[&str]) {
    let mut differences = String::new();
    for (scene, expected) in expected() {
        let played = match play(responder, requester, probe, scene) {
            Ok(lines) if lines == expected || except.contains(&scene) => continue,
            Ok(lines) => format!("== {scene}\n{}--\n{}", lines.requester, lines.responder),
            Err(error) => format!("== {scene}\n{error}\n"),
        };
        differences.push_str(&played);
    }
    assert!(differences.is_empty(), "other lines than probe/scenes.expected has:\n{differences}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_expected_lines_is_well_formed() {
        let scenes = expected();
        assert_eq!(scenes.len(), EXPECTED.matches("== ").count());
        for (name, lines) in scenes {
            assert!(lines.requester.contains("memory: ") && lines.responder.contains("memory: "), "{name}");
        }
    }
}

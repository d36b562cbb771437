//! The scenes of `probe/scenes.c`, and the lines that the specification makes them print.

use crate::probe::Probe;
use crate::{Error, Exchange, Machine};

/// TCP port of the responder.
const PORT: u16 = 18520;
/// Longer than the timeouts of any scene, on a slow machine.
const SECONDS: u64 = 90;

/// The lines of each scene, for a device that follows the specification.
const EXPECTED: &str = include_str!("../probe/scenes.expected");
/// The scenes in which the Linux kernel's rxe departs from the specification, as recorded from it, each with
/// the end that has to be rxe for it: `== SCENE requester` or `== SCENE responder`.
const DEPARTURES: &str = include_str!("../probe/scenes.rxe");

/// The index of the GID that comes from the IPv4 address, on both devices.
pub const IPV4: &str = "1";
/// And of the one that comes from the global IPv6 address.
pub const IPV6: &str = "2";

/// The output of both ends of a scene.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lines {
    /// The requester's lines.
    pub requester: String,
    /// The responder's lines.
    pub responder: String,
}

/// All scenes with the lines that they have to print, in the order of the file, where these ends are rxe.
pub fn expected(requester_is_rxe: bool, responder_is_rxe: bool) -> Vec<(&'static str, Lines)> {
    let applies = |end: &str| {
        (requester_is_rxe && end == "requester") || (responder_is_rxe && end == "responder")
    };
    let departures = || {
        sections(DEPARTURES).filter_map(|(heading, lines)| Some((heading.split_once(' ')?, lines)))
    };
    let departure = |scene: &str| {
        let mut fitting = departures().filter(|((name, end), _)| *name == scene && applies(end));
        fitting.next().map(|(_, lines)| lines)
    };
    sections(EXPECTED)
        .map(|(scene, lines)| (scene, departure(scene).unwrap_or(lines)))
        .collect()
}

fn sections(text: &'static str) -> impl Iterator<Item = (&'static str, Lines)> {
    text.split("== ").skip(1).filter_map(|section| {
        let (heading, rest) = section.split_once('\n')?;
        let (requester, responder) = rest.split_once("--\n")?;
        Some((
            heading,
            Lines {
                requester: requester.to_owned(),
                responder: responder.to_owned(),
            },
        ))
    })
}

/// Plays a scene between two machines, with GIDs of this index.
///
/// # Errors
/// As [`Exchange::run`].
pub fn play(
    responder: &dyn Machine,
    requester: &dyn Machine,
    probe: &Probe,
    scene: &str,
    gid_index: &str,
) -> Result<Lines, Error> {
    let path = probe.path().to_string_lossy();
    let exchange = Exchange::run(
        responder,
        requester,
        &[&path, scene, "-g", gid_index],
        "-g",
        PORT,
        SECONDS,
    )?;
    Ok(Lines {
        requester: exchange.client.output,
        responder: exchange.server.output,
    })
}

/// Plays all scenes, and demands the expected lines of each. A machine that has to name its device has rxe.
///
/// # Panics
/// With all scenes whose lines differ, in the format of the files that hold them.
#[track_caller]
pub fn expect_all(
    responder: &dyn Machine,
    requester: &dyn Machine,
    probe: &Probe,
    gid_index: &str,
) {
    let mut differences = String::new();
    for (scene, expected) in expected(requester.device().is_some(), responder.device().is_some()) {
        let played = match play(responder, requester, probe, scene, gid_index) {
            Ok(lines) if lines == expected => continue,
            Ok(lines) => format!("== {scene}\n{}--\n{}", lines.requester, lines.responder),
            Err(error) => format!("== {scene}\n{error}\n"),
        };
        differences.push_str(&played);
    }
    assert!(
        differences.is_empty(),
        "other lines than probe/scenes.expected and .rxe have:\n{differences}"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_expected_lines_are_well_formed() {
        let scenes = expected(false, false);
        assert_eq!(scenes.len(), EXPECTED.matches("== ").count());
        for (name, lines) in scenes.iter().cloned().chain(sections(DEPARTURES)) {
            assert!(
                lines.requester.contains("memory: ") && lines.responder.contains("memory: "),
                "{name}"
            );
        }
    }

    #[test]
    fn each_departure_of_the_kernel_names_a_scene_and_differs_from_it() {
        let (ours, theirs) = (expected(false, false), expected(true, true));
        let differing = ours
            .iter()
            .zip(&theirs)
            .filter(|(ours, theirs)| ours != theirs)
            .count();
        assert_eq!(differing, DEPARTURES.matches("== ").count());
    }
}

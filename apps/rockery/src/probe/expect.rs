//! The shares that classes are to have: written on the command line, or of a fabric file.

use std::path::Path;

use doctor::class_weights;
use doctor::probe::{Expected, expected_of};

use super::Probe;
use crate::{Error, plan};

/// The shares of `--expect-share` or `--fabric`; none where neither is given.
///
/// # Errors
/// Mistakes in the fabric file, and classes that it does not tell from each other.
pub(super) fn shares(what: &Probe) -> Result<Vec<Expected>, Error> {
    let Some(file) = &what.fabric else {
        return Ok(expected_of(&what.expect_share));
    };
    let network = plan::network(file)?;
    let own = what.own_name.clone().or_else(|| {
        let name = hostname()?;
        network
            .hosts
            .iter()
            .any(|host| host.name == name)
            .then_some(name)
    });
    Ok(expected_of(&class_weights(
        &network,
        own.as_deref(),
        &[what.dscp, what.beside],
    )?))
}

/// The name of this machine.
pub(crate) fn hostname() -> Option<String> {
    let name = std::fs::read_to_string(Path::new("/proc/sys/kernel/hostname")).ok()?;
    Some(name.trim().to_owned())
}

/// Reads a share as it is written on the command line: `DSCP=PERCENT`.
pub(super) fn share(text: &str) -> Result<(u8, u32), String> {
    let wrong = || format!("\"{text}\" is no share: write DSCP=PERCENT, as in 26=50");
    let (dscp, percent) = text.split_once('=').ok_or_else(wrong)?;
    let dscp = dscp
        .parse()
        .ok()
        .filter(|dscp| *dscp < 64)
        .ok_or_else(wrong)?;
    let percent = percent
        .parse()
        .ok()
        .filter(|percent| (0..=100).contains(percent))
        .ok_or_else(wrong)?;
    Ok((dscp, percent))
}

/// Why shares cannot be measured with these options and hosts, if they cannot.
pub(super) fn obstacle(expected: &[Expected], cooperating: usize) -> Option<String> {
    let different =
        |index: usize, one: &Expected| expected[..index].iter().all(|other| other.dscp != one.dscp);
    if expected.len() < 2
        || !expected
            .iter()
            .enumerate()
            .all(|(index, one)| different(index, one))
    {
        return Some(
            "shares are of two DSCPs or more, each once: --expect-share 26=50,0=50".to_owned(),
        );
    }
    let needed = expected.len();
    (cooperating < needed).then(|| {
        format!("{needed} classes need {needed} hosts with --listen, --load and --from; {cooperating} answer")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_two_dscps_and_percents() {
        assert_eq!(share("26=50"), Ok((26, 50)));
        for wrong in ["26", "64=50", "26=101", "x=1", "26=", "=50"] {
            assert!(share(wrong).is_err(), "{wrong}");
        }
        let expected = |weights: &[(u8, u32)]| expected_of(weights);
        assert_eq!(obstacle(&expected(&[(26, 50), (0, 50)]), 2), None);
        assert!(
            obstacle(&expected(&[(26, 50), (0, 50)]), 1)
                .is_some_and(|why| why.contains("1 answer"))
        );
        assert!(obstacle(&expected(&[(26, 50), (26, 50)]), 2).is_some());
        assert!(obstacle(&expected(&[(26, 50)]), 2).is_some());
    }
}

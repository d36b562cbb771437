//! The commands below an interface, of switches with commands in blocks.

use crate::blocks::Block;
use crate::irrelevant::is_irrelevant;
use crate::outcome::{Area, Outcomes};
use crate::text::ReadError;

/// Reads the settings of an interface: `read` returns whether it knows the command. Returns whether a command
/// that it does not understand may be about PFC.
pub(crate) fn read_settings<'a: 'b, 'b>(
    lines: impl Iterator<Item = &'b Block<'a>>,
    outcomes: &mut Outcomes,
    mut read: impl FnMut(&'b Block<'a>, &mut Outcomes) -> Result<bool, ReadError>,
) -> bool {
    let (mut is_unknown, mut shut) = (false, None);
    for line in lines {
        match line.line.text {
            "shutdown" => shut = Some(line.line.number),
            "no shutdown" => shut = None,
            _ => {}
        }
        match read(line, outcomes) {
            Ok(true) => outcomes.applied(line.line.number),
            Ok(false) if is_irrelevant(line.line.text) => {
                outcomes.irrelevant(line.line.number);
                line.pass_below(outcomes);
            }
            // A line that nothing is known of is not understood, and concerns these ports only.
            Ok(false) => {
                outcomes.unknown(line.line.number);
                is_unknown |= Area::of(line.line.text).contains(&Area::Pfc);
            }
            Err(error) => {
                outcomes.not_understood(&error);
                is_unknown = true;
            }
        }
    }
    if let Some(line) = shut {
        outcomes.down(line);
    }
    is_unknown
}

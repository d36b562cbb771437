//! The options file of OpenSM (`opensm.conf`): its routing engines.

use super::{SubnetFacts, fact};
use crate::text::Line;

/// Whether a line is of an options file.
pub(super) fn is_one(text: &str) -> bool {
    text.starts_with("routing_engine ")
}

/// `routing_engine ftree,updn`, or `(null)` for the default. Other options concern no rule.
pub(super) fn read(found: &mut SubnetFacts, lines: &[Line<'_>]) {
    for line in lines {
        let words = line.words();
        let ["routing_engine", names, ..] = words.as_slice() else {
            continue;
        };
        let named = names
            .split(',')
            .filter(|name| !matches!(*name, "" | "(null)"));
        for name in named {
            let own = fact(&found.file, line, name.to_owned());
            found.engines.push(own);
        }
    }
}

//! `rockery doctor matrix`: probes of several hosts, put together.

use std::path::PathBuf;

use ::sim::input;
use ::sim::report::counted;
use doctor::probe::{Matrix, read_row};
use serde_json::json;

use crate::{Error, output, printable};

/// Prints the matrix of some probes.
///
/// # Errors
/// Faults, with status 1; files that cannot be read, with status 2.
pub(crate) fn matrix(files: &[PathBuf], as_json: bool) -> Result<(), Error> {
    let (mut rows, mut unread) = (Vec::new(), Vec::new());
    for path in files {
        let name = path.display().to_string();
        let read = input::read(path)
            .map_err(|error| format!("{name}: {error}"))
            .and_then(|bytes| {
                read_row(&name, &String::from_utf8_lossy(&bytes)).map_err(|error| error.to_string())
            });
        match read {
            Ok(row) => rows.push(row),
            Err(error) => unread.push(error),
        }
    }
    let matrix = Matrix::new(rows);
    let faults = matrix.faults();
    if as_json {
        let (pairs, unknown) = (matrix.pairs(), matrix.unknown());
        let page =
            json!({ "pairs": pairs, "faults": faults, "unknown": unknown, "unread": unread });
        output::json(serde_json::to_string_pretty(&page).unwrap_or_default())?;
    } else {
        output::print(printable::lines(&matrix.page()))?;
    }
    if !unread.is_empty() {
        return Err(Error::Unread(unread.join("\n")));
    }
    match faults.len() {
        0 => Ok(()),
        count => Err(Error::Findings(counted(count as u64, "fault", "faults"))),
    }
}

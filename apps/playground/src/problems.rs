//! Mistakes of a fabric file for the page, which shows them at their lines.

use fabric_file::{FileError, Problem};
use serde_json::{Value, json};

/// The answer to a request whose fabric file has mistakes.
pub(crate) fn of(error: &FileError) -> Value {
    json!({ "problems": error.0.iter().map(described).collect::<Vec<_>>() })
}

fn described(problem: &Problem) -> Value {
    let line = problem.line.as_ref();
    json!({
        "file": line.map(|line| &line.file),
        "line": line.map(|line| line.line),
        "column": line.map(|line| line.column),
        "field": problem.field,
        "what": problem.what,
        "instead": problem.instead,
        "text": problem.to_string(),
    })
}

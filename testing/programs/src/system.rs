//! Programs that prepare a test: run to their end, and an error when they fail.

use std::process::Command;

use crate::Error;

/// Runs `argv` and returns what it printed on stdout.
///
/// # Errors
/// [`Error::Start`] when it is not there, [`Error::Failed`] when it fails.
pub(crate) fn call(argv: &[&str]) -> Result<String, Error> {
    let (program, arguments) = argv.split_first().unwrap_or((&"", &[]));
    let output = Command::new(program)
        .args(arguments)
        .output()
        .map_err(|source| Error::Start {
            program: (*program).to_owned(),
            source,
        })?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() {
        return Ok(text(&output.stdout));
    }
    Err(Error::Failed {
        command: argv.join(" "),
        output: text(&[output.stdout, output.stderr].concat()),
    })
}

/// The same for a line whose words are parted by spaces.
pub(crate) fn line(line: &str) -> Result<String, Error> {
    call(&line.split_whitespace().collect::<Vec<_>>())
}

//! The figures that a program prints which measures: one line of JSON for each job.

use std::path::Path;
use std::process::{Command, Stdio};

use serde::de::DeserializeOwned;

use crate::Error;
use crate::output::note;

/// Runs a program that measures so many jobs, and reads its figures. `path` is the program's, and `transport`
/// the name of what is measured, for errors.
///
/// # Errors
/// When it cannot be started, fails, or prints figures of fewer jobs.
pub(crate) fn measured_by<T: DeserializeOwned>(
    mut command: Command,
    path: &Path,
    jobs: usize,
    transport: &'static str,
) -> Result<Vec<T>, Error> {
    let done = command.stdin(Stdio::null()).output();
    let done = done.map_err(Error::file(path))?;
    let said = String::from_utf8_lossy(&done.stderr);
    said.lines().for_each(|line| note!("{line}"));
    let text = String::from_utf8_lossy(&done.stdout);
    let found: Vec<T> = text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    if done.status.success() && found.len() == jobs {
        Ok(found)
    } else {
        let printed = said.lines().rfind(|line| !line.trim().is_empty());
        Err(Error::Incomplete {
            what: transport,
            found: found.len(),
            jobs,
            status: done.status,
            said: printed.unwrap_or("it printed no error").trim().to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(script: &str, jobs: usize) -> Result<Vec<u32>, Error> {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        measured_by(command, Path::new("sh"), jobs, "nothing")
    }

    #[test]
    fn figures_are_complete_or_there_are_none() {
        let script = "echo 1; echo a line for people; echo 2";
        assert_eq!(printed(script, 2).unwrap(), [1, 2]);
        let error = |script: &str, jobs| printed(script, jobs).unwrap_err().to_string();
        let of_two = error(script, 3);
        assert!(
            of_two.contains("2 of 3") && of_two.contains("no error"),
            "{of_two}"
        );
        let failed = error(&format!("{script}; echo no disk >&2; exit 1"), 2);
        assert!(
            failed.contains("exit status: 1") && failed.contains("no disk"),
            "{failed}"
        );
    }
}

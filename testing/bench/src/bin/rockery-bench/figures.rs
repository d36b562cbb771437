//! The figures that a program prints which measures: one line of JSON for each job.

use std::path::Path;
use std::process::{Command, Stdio};

use serde::de::DeserializeOwned;

use crate::Error;

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
    let done = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output();
    let done = done.map_err(Error::file(path))?;
    let text = String::from_utf8_lossy(&done.stdout);
    let found: Vec<T> = text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    if done.status.success() && found.len() == jobs {
        Ok(found)
    } else {
        Err(Error::NothingMeasured(transport))
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
        let is_nothing = |found| matches!(found, Err(Error::NothingMeasured("nothing")));
        assert!(is_nothing(printed(script, 3)));
        assert!(is_nothing(printed(&format!("{script}; exit 1"), 2)));
    }
}

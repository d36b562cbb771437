//! Starts programs, with a time limit for all of them together, and keeps what they print.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use command::runtime;
use command::sys::Pidfd;
use serde_json::Value;

use crate::Error;
use crate::place::{Folder, Owned};

/// How long everything may take, and with `--quick`; the rest of 15 and 3 minutes is for ending programs.
const LIMIT: Duration = Duration::from_secs(14 * 60);
const QUICK_LIMIT: Duration = Duration::from_secs(165);
/// How long a program may take to end after SIGTERM, in seconds.
const GRACE: &str = "5";
/// The message of perftest where it could not measure the processor's clock, as on a busy machine.
pub(super) const UNCALIBRATED: &str = "Can't produce a report";
/// The exit status of timeout(1) when time was over.
const TIME_OVER: i32 = 124;

/// Runs programs one after the other.
pub(super) struct Runner {
    rockery: PathBuf,
    folder: PathBuf,
    _folder: Option<Folder>,
    until: Instant,
    quick: bool,
    commands: Vec<String>,
}

impl Runner {
    /// Keeps outputs in `keep`, or until the end; `rockery` is the path of the command.
    ///
    /// # Errors
    /// When the folder cannot be made.
    pub(super) fn new(rockery: PathBuf, quick: bool, keep: Option<PathBuf>) -> Result<Self, Error> {
        let limit = if quick { QUICK_LIMIT } else { LIMIT };
        let (folder, owned) = match keep {
            Some(folder) => {
                fs::create_dir_all(&folder).map_err(Error::file(&folder))?;
                (folder.canonicalize().map_err(Error::file(&folder))?, None)
            }
            None => {
                let folder = runtime::subfolder(&format!("documents-{}", std::process::id()))?;
                (folder.clone(), Some(Folder(folder)))
            }
        };
        let until = Instant::now() + limit;
        Ok(Self {
            rockery,
            folder,
            _folder: owned,
            until,
            quick,
            commands: Vec::new(),
        })
    }

    /// Whether only a check is wanted.
    pub(super) const fn is_quick(&self) -> bool {
        self.quick
    }

    /// The path of the command `rockery`.
    pub(super) fn rockery(&self) -> &Path {
        &self.rockery
    }

    /// The commands so far.
    pub(super) fn commands(&self) -> Vec<String> {
        self.commands.clone()
    }

    /// Writes a file for a program to read.
    pub(super) fn provide(&self, name: &str, text: &str) -> Result<PathBuf, String> {
        let path = self.folder.join(name);
        fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(path)
    }

    /// A path in the folder of outputs.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The command with a time limit, which also ends when this process does.
    fn bounded(&self, command: &Command) -> Result<Command, String> {
        let left = self
            .until
            .saturating_duration_since(Instant::now())
            .as_secs();
        if left == 0 {
            return Err("the time for all documents was over".to_owned());
        }
        let mut bounded = Command::new("setpriv");
        bounded.args([
            "--pdeathsig",
            "TERM",
            "timeout",
            "--kill-after",
            GRACE,
            &left.to_string(),
        ]);
        bounded
            .arg(command.get_program())
            .args(command.get_args())
            .stdin(Stdio::null());
        Ok(bounded)
    }

    fn note_command(&mut self, command: &Command) {
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        let rockery = self.rockery.as_os_str();
        let words = words.map(|word| {
            if word == rockery {
                "rockery".into()
            } else {
                word.to_string_lossy()
            }
        });
        self.commands.push(words.collect::<Vec<_>>().join(" "));
    }

    /// Starts a program that serves the next ones, and ends with the returned value.
    pub(super) fn start(&mut self, command: &Command) -> Result<Server, String> {
        self.note_command(command);
        let mut bounded = self.bounded(command)?;
        bounded.stdout(Stdio::null()).stderr(Stdio::null());
        let child = bounded
            .spawn()
            .map_err(|error| format!("setpriv: {error}"))?;
        Ok(Server(Owned(child)))
    }

    /// Runs a program to its end, and returns what it printed: `NAME.txt` in the folder has it as well.
    pub(super) fn run(&mut self, name: &str, command: &Command) -> Result<String, String> {
        self.note_command(command);
        self.attempt(name, command)
    }

    /// The same again and again until it succeeds, because its server may not listen yet.
    pub(super) fn ask(
        &mut self,
        name: &str,
        command: &Command,
        timeout: Duration,
    ) -> Result<String, String> {
        self.note_command(command);
        let until = Instant::now() + timeout;
        loop {
            match self.attempt(name, command) {
                Err(reason) if reason.contains(UNCALIBRATED) => return Err(reason),
                Err(_) if Instant::now() < until => std::thread::sleep(Duration::from_millis(200)),
                result => return result,
            }
        }
    }

    fn attempt(&self, name: &str, command: &Command) -> Result<String, String> {
        let output = self
            .bounded(command)?
            .output()
            .map_err(|error| format!("setpriv: {error}"))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        self.provide(&format!("{name}.txt"), &text)?;
        if text.contains(UNCALIBRATED) {
            return Err(format!(
                "it could not measure the processor's clock: {UNCALIBRATED}"
            ));
        }
        if output.status.success() {
            return Ok(text);
        }
        if output.status.code() == Some(TIME_OVER) {
            return Err("it did not end before the time for all documents was over".to_owned());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let last_of = |lines: &mut std::str::Lines<'_>| {
            lines
                .rfind(|line| !line.trim().is_empty())
                .map(|line| line.trim().to_owned())
        };
        // Programs that write a report to the standard output may put the error there as well.
        let last = last_of(&mut said.lines()).or_else(|| last_of(&mut text.lines()));
        Err(last.unwrap_or_else(|| output.status.to_string()))
    }

    /// Runs a command of rockery that writes JSON, and returns the document: `NAME.json` in the folder.
    pub(super) fn json(&mut self, name: &str, words: &[&str]) -> Result<Value, String> {
        let path = self.path(&format!("{name}.json"));
        let mut command = Command::new(&self.rockery);
        command.args(words).arg("--json").arg(&path);
        self.run(name, &command)?;
        let text = fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        serde_json::from_slice(&text).map_err(|error| format!("{}: {error}", path.display()))
    }
}

/// A program that serves, and ends with this value, with all that it started.
pub(super) struct Server(Owned);

impl Server {
    /// Whether the program has ended by itself.
    pub(super) fn has_ended(&mut self) -> bool {
        self.0.0.try_wait().is_ok_and(|status| status.is_some())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The process ID of a program that has ended may be that of another process.
        if self.has_ended() {
            return;
        }
        // timeout(1) passes the signal on to its process group; it cannot pass on SIGKILL.
        let child: &mut Child = &mut self.0.0;
        if Pidfd::open(child.id())
            .and_then(|process| process.terminate())
            .is_ok()
        {
            _ = child.wait();
        }
    }
}

/// A number in a JSON document, at a path of names and indices.
pub(super) fn number(value: &Value, path: &str) -> Option<f64> {
    value.pointer(path)?.as_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(words: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", words]);
        command
    }

    #[test]
    fn outputs_are_kept_and_the_reason_of_a_failure_is_the_last_line() {
        let folder = tempfile::tempdir().unwrap();
        let mut runner =
            Runner::new("rockery".into(), true, Some(folder.path().to_owned())).unwrap();
        assert_eq!(runner.run("good", &shell("echo 17")).unwrap(), "17\n");
        assert_eq!(
            fs::read_to_string(folder.path().join("good.txt")).unwrap(),
            "17\n"
        );
        let reason = runner
            .run("bad", &shell("echo one; echo no such device >&2; exit 3"))
            .unwrap_err();
        assert_eq!(reason, "no such device");
        let reason = runner
            .run("silent", &shell("echo an error in the report; exit 3"))
            .unwrap_err();
        assert_eq!(reason, "an error in the report");
        let reason = runner
            .run("none", &Command::new("rockery-no-such-program"))
            .unwrap_err();
        assert!(reason.contains("rockery-no-such-program"), "{reason}");
    }

    #[test]
    fn a_program_ends_when_the_time_is_over() {
        let folder = tempfile::tempdir().unwrap();
        let mut runner =
            Runner::new("rockery".into(), true, Some(folder.path().to_owned())).unwrap();
        runner.until = Instant::now() + Duration::from_millis(1500);
        let reason = runner.run("long", &shell("sleep 600")).unwrap_err();
        assert!(reason.contains("did not end"), "{reason}");
        runner.until = Instant::now();
        let reason = runner.run("later", &shell("true")).unwrap_err();
        assert!(reason.contains("was over"), "{reason}");
    }

    #[test]
    fn a_server_ends_with_all_that_it_started() {
        let folder = tempfile::tempdir().unwrap();
        let mut runner =
            Runner::new("rockery".into(), true, Some(folder.path().to_owned())).unwrap();
        let file = folder.path().join("child");
        let script = format!(
            "sleep 600 & echo $! >{0}.new; mv {0}.new {0}; wait",
            file.display()
        );
        let server = runner.start(&shell(&script)).unwrap();
        let written = || fs::read_to_string(&file).ok();
        while written().is_none() {
            std::thread::sleep(Duration::from_millis(10));
        }
        let child = PathBuf::from("/proc").join(written().unwrap().trim());
        assert!(child.exists());
        drop(server);
        // A process that has ended may be there until its new parent has read its status.
        let state = || fs::read_to_string(child.join("stat")).unwrap_or_default();
        while !state().is_empty() && !state().contains(") Z ") {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

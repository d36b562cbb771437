//! A process in a host of a lab that takes part in what a command does with all hosts: objects of JSON on its
//! standard input and output, one per line.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::refused;
use crate::Error;

/// A process in a host; it ends with this object.
pub(super) struct Part {
    /// The name of the host.
    pub(super) name: String,
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Part {
    /// Starts `rockery lab WORD` in a host.
    pub(super) fn start(lab: &str, host: &str, word: &str) -> Result<Self, Error> {
        let own = std::env::current_exe().map_err(Error::file("/proc/self/exe"))?;
        let mut command = Command::new(&own);
        // It reads the lab's time itself, and polls its queues by the machine's.
        command.args(["lab", "exec", "--machine-clock", "--lab", lab, host, "--"]);
        command.arg(&own).args(["lab", word]);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(Error::file(&own))?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let output = output.ok_or_else(|| refused("a host has no output".to_owned()))?;
        Ok(Self {
            name: host.to_owned(),
            child,
            input,
            output: BufReader::new(output),
        })
    }

    pub(super) fn tell(&mut self, what: &impl Serialize) -> Result<(), Error> {
        let line = serde_json::to_string(what).unwrap_or_default() + "\n";
        let told = self.input.as_mut().map(|input| {
            input
                .write_all(line.as_bytes())
                .and_then(|()| input.flush())
        });
        match told {
            Some(Ok(())) => Ok(()),
            _ => Err(self.ended()),
        }
    }

    pub(super) fn hear<T: DeserializeOwned>(&mut self) -> Result<T, Error> {
        let mut line = String::new();
        let read = self.output.read_line(&mut line).unwrap_or(0);
        match serde_json::from_str(&line) {
            Ok(said) => Ok(said),
            Err(_) if read == 0 => Err(self.ended()),
            Err(_) => Err(refused(format!("host {} said {}", self.name, line.trim()))),
        }
    }

    /// The error of a host that cannot go on.
    pub(super) fn failed(&self, why: &str) -> Error {
        refused(format!("host {}: {why}", self.name))
    }

    /// The error of an answer that does not belong here.
    pub(super) fn wrong(&self) -> Error {
        let name = &self.name;
        refused(format!("host {name} is of another version of rockery"))
    }

    fn ended(&self) -> Error {
        refused(format!("host {} has ended", self.name))
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // The end of its input ends it; one that does not listen is killed.
        self.input = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

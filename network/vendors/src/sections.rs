//! Snapshots: outputs of commands in one text, each below a line `==> COMMAND <==`.

use crate::facts::{Evidence, Fact};
use crate::outcome::Outcomes;
use crate::text::{Line, ReadError, lines};

/// The output of one command.
#[derive(Clone, Debug)]
pub(crate) struct Section<'a> {
    pub(crate) file: &'a str,
    pub(crate) command: &'a str,
    /// The line of the command itself.
    pub(crate) head: Line<'a>,
    pub(crate) lines: Vec<Line<'a>>,
}

/// The sections of a snapshot.
///
/// # Errors
/// Lines before the first section, and lines that are not text.
pub(crate) fn sections<'a>(file: &'a str, text: &'a str) -> Result<Vec<Section<'a>>, ReadError> {
    let mut found: Vec<Section<'a>> = Vec::new();
    for line in lines(file, text, &[])? {
        let prompted = behind_powershell(line.text).or_else(|| behind_shell(line.text));
        // A prompt without a command, as a log of a terminal ends.
        if prompted.is_some_and(str::is_empty) {
            continue;
        }
        let command = line
            .text
            .strip_prefix("==> ")
            .and_then(|rest| rest.strip_suffix(" <=="))
            .or(prompted)
            .map(without_path);
        match (command, found.last_mut()) {
            (Some(command), _) => found.push(Section {
                file,
                command,
                head: line,
                lines: Vec::new(),
            }),
            (None, Some(section)) => section.lines.push(line),
            // Comments on the origin of a snapshot, and a prompt before a log's end.
            (None, None) if line.text.starts_with('#') => {}
            (None, None) => {
                let what = "a snapshot begins with \"==> COMMAND <==\", or with a prompt and the command; \
                            rockery doctor snapshot writes one";
                return Err(ReadError::new(file, line.number, what));
            }
        }
    }
    Ok(found)
}

/// The text after a prompt of PowerShell: `PS C:\Users\a> Get-NetAdapterRdma`, with `[host]: ` before it
/// where the session is of another host.
fn behind_powershell(text: &str) -> Option<&str> {
    let of_host = text
        .strip_prefix('[')
        .and_then(|rest| rest.split_once("]: "));
    let text = of_host.map_or(text, |(_, rest)| rest);
    let (path, command) = text.strip_prefix("PS ")?.split_once('>')?;
    let mut letters = path.chars();
    let is_drive = letters.next()?.is_ascii_alphabetic() && letters.next() == Some(':');
    (is_drive || path.starts_with('/')).then(|| command.trim())
}

/// The text after a prompt of a shell: `root@h1:~# ethtool eth0`, `[root@h1 ~]# …`, or `$ …`.
fn behind_shell(text: &str) -> Option<&str> {
    let (user, rest) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((user, rest)) => (user, rest.strip_prefix(['#', '$'])?),
        None if text.starts_with("$ ") => ("@", &text[1..]),
        None => {
            let (user, rest) = text.split_once(['#', '$'])?;
            (
                Some(user).filter(|user| !user.contains(char::is_whitespace))?,
                rest,
            )
        }
    };
    let is_prompt = user.contains('@') && (rest.is_empty() || rest.starts_with(' '));
    is_prompt.then(|| rest.trim())
}

/// A command without `sudo` and without the path of its program.
fn without_path(command: &str) -> &str {
    let mut own = command.trim();
    if let Some(rest) = own.strip_prefix("sudo ") {
        own = rest.trim_start();
        while let Some(rest) = own.strip_prefix('-') {
            own = rest
                .split_once(' ')
                .map_or("", |(_, rest)| rest.trim_start());
        }
    }
    let program = own.split_whitespace().next().unwrap_or_default();
    match program.rsplit_once('/') {
        Some((path, _)) if program.starts_with('/') => &own[path.len() + 1..],
        _ => own,
    }
}

/// Lines of all outputs of a file at most that are left out, because they were not understood. Each makes its
/// output be read once more.
const ODD_LINES_MAX: usize = 256;

/// Outputs of one file at most.
const OUTPUTS_MAX: usize = 1024;

/// Checks that a file does not have more outputs than are read.
///
/// # Errors
/// The line of the first output that is not read.
pub(crate) fn check_count(sections: &[Section<'_>]) -> Result<(), ReadError> {
    sections.get(OUTPUTS_MAX).map_or(Ok(()), |section| {
        let what = format!("a file has {OUTPUTS_MAX} outputs of commands at most");
        Err(ReadError::new(section.file, section.head.number, what))
    })
}

/// Reads an output. A line that is not understood is left out, and the rest is read: what the line shows is
/// unknown. JSON is read whole or not at all.
pub(crate) fn read_each<T: Clone, V: Default>(
    section: &Section<'_>,
    facts: &mut T,
    outcomes: &mut Outcomes,
    mut read: impl FnMut(&Section<'_>, &mut T) -> Result<V, ReadError>,
) -> V {
    let first = section.lines.first().map_or("", |line| line.text);
    let is_json = first.starts_with(['{', '[']) && !first.starts_with("[ ");
    let mut own = section.clone();
    let before = facts.clone();
    loop {
        let error = match read(&own, facts) {
            Ok(value) => return value,
            Err(error) => error,
        };
        outcomes.not_understood(&error);
        facts.clone_from(&before);
        let count = own.lines.len();
        own.lines.retain(|line| line.number != error.line);
        if is_json || own.lines.len() == count {
            return V::default();
        }
        if !outcomes.may_retry(ODD_LINES_MAX) {
            let command = crate::text::shortened(own.command);
            let what =
                format!("\"{command}\": too many lines are odd, so the whole output is unknown");
            outcomes.not_understood(&ReadError::new(own.file, own.head.number, what));
            return V::default();
        }
    }
}

impl<'a> Section<'a> {
    /// A fact of one of the lines.
    pub(crate) fn fact<T>(&self, line: &Line<'_>, value: T) -> Fact<T> {
        let text = crate::text::shortened(line.text);
        Fact {
            value,
            seen: Evidence {
                file: self.file.to_owned(),
                line: line.number,
                text,
            },
        }
    }

    /// An error of one of the lines.
    pub(crate) fn wrong(&self, line: &Line<'_>, what: &str) -> ReadError {
        let text = crate::text::shortened(line.text);
        ReadError::new(self.file, line.number, format!("\"{text}\": {what}"))
    }

    /// A number that a line must have.
    pub(crate) fn number<T: core::str::FromStr>(
        &self,
        line: &Line<'_>,
        word: &str,
    ) -> Result<T, ReadError> {
        word.trim()
            .parse()
            .map_err(|_| self.wrong(line, "a number was expected"))
    }

    /// The word after some words of the command: `flint -d DEVICE`.
    pub(crate) fn argument(&self, before: &str) -> Option<&'a str> {
        let mut words = self.command.split_whitespace();
        words.find(|word| *word == before)?;
        words.next()
    }

    /// The value of an option of the command: `-i eth0`, `-ieth0`, `--interface eth0` or `--interface=eth0`.
    pub(crate) fn option(&self, short: &str, long: &str) -> Option<&'a str> {
        let mut words = self.command.split_whitespace();
        while let Some(word) = words.next() {
            if word == short || word == long {
                return words.next();
            }
            let behind_long = word
                .strip_prefix(long)
                .and_then(|rest| rest.strip_prefix('='));
            let behind_short = word.strip_prefix(short).filter(|_| !word.starts_with("--"));
            if let Some(value) = behind_long.or(behind_short) {
                return Some(value);
            }
        }
        None
    }

    /// The first word of the command.
    pub(crate) fn program(&self) -> &'a str {
        self.command.split_whitespace().next().unwrap_or_default()
    }
}

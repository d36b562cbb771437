//! `rockery fault`: the rules of a program that runs.

use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;

use clap::Subcommand;
use command::printable;
use host::faults::control::{LIBRARIES, MESSAGE_BYTES_MAX, socket_name};
use link::unix;
use serde_json::json;

use crate::{Error, output};

/// How long a library may take to answer.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Actions on the rules of a program that was started with --fault.
#[derive(Debug, Subcommand)]
pub(crate) enum Fault {
    /// List the rules: number, occasions that each has matched, faults, and the rule.
    List {
        /// ID of the process.
        pid: u32,
        /// Print the rules as one JSON document.
        #[arg(long)]
        json: bool,
    },
    /// Add a rule, such as 'post_send: fail ENOMEM times 3'; prints its number.
    Add {
        /// ID of the process.
        pid: u32,
        /// The rule (docs/faults.md).
        #[arg(value_parser = checked)]
        rule: String,
    },
    /// Remove a rule by its number. Calls that it blocks go on.
    Remove {
        /// ID of the process.
        pid: u32,
        /// Number of the rule, as `list` shows it.
        rule: u32,
    },
    /// Remove all rules.
    Clear {
        /// ID of the process.
        pid: u32,
    },
}

/// The text of a rule, as the libraries read it.
fn checked(text: &str) -> Result<String, String> {
    let rule: Result<faults::Rule, _> = text.parse();
    rule.map(|rule| rule.to_string())
        .map_err(|error| error.to_string())
}

/// Carries out an action.
///
/// # Errors
/// When the process has no rules, or refuses the change.
pub(crate) fn act(what: &Fault) -> Result<(), Error> {
    match what {
        Fault::List { pid, json } => list(*pid, *json),
        Fault::Add { pid, rule } => change(*pid, &format!("add {rule}")),
        Fault::Remove { pid, rule } => change(*pid, &format!("remove {rule}")),
        Fault::Clear { pid } => change(*pid, "clear"),
    }
}

/// The answers of the libraries of a process, each with its lines. There is at least one.
fn ask(pid: u32, request: &str) -> Result<Vec<Vec<String>>, Error> {
    let mut answers = Vec::new();
    for library in 0..LIBRARIES {
        match ask_one(&socket_name(pid, library), request) {
            Ok(lines) => answers.push(lines),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
            Err(source) => return Err(Error::FaultControl { pid, source }),
        }
    }
    match answers.is_empty() {
        true => Err(Error::NoFaults(pid)),
        false => Ok(answers),
    }
}

fn ask_one(name: &str, request: &str) -> io::Result<Vec<String>> {
    let connection = unix::connect(name, TIMEOUT)?;
    let fd = connection.as_raw_fd();
    unix::set_timeouts(fd, TIMEOUT)?;
    unix::send(fd, request.as_bytes(), None)?;
    let (mut lines, mut message) = (Vec::new(), [0; MESSAGE_BYTES_MAX]);
    loop {
        match unix::receive_next(fd, &mut message)? {
            0 => return Ok(lines),
            length => {
                let line = message.get(..length).unwrap_or_default();
                lines.push(String::from_utf8_lossy(line).into_owned());
            }
        }
    }
}

/// Sends a change to all libraries; prints what the first of them says.
fn change(pid: u32, request: &str) -> Result<(), Error> {
    let answers = ask(pid, request)?;
    let lines = answers.into_iter().flatten();
    let (refused, done): (Vec<String>, Vec<String>) =
        lines.partition(|line| line.starts_with("refused "));
    match (done.first(), refused.first()) {
        (_, Some(line)) => {
            let reason = line.trim_start_matches("refused ");
            Err(Error::FaultRefused(printable::lines(reason).to_string()))
        }
        (Some(line), None) => output::line(format_args!("{}", printable::lines(line))),
        (None, None) => Err(Error::NoFaults(pid)),
    }
}

/// A rule, with the sums of what the libraries have counted.
struct Listed {
    number: u64,
    matched: u64,
    done: u64,
    text: String,
}

/// A line of an answer.
fn listed(line: &str) -> Option<Listed> {
    let mut words = line.strip_prefix("rule ")?.splitn(4, ' ');
    let mut number = || words.next()?.parse().ok();
    let (of_rule, matched, done) = (number()?, number()?, number()?);
    Some(Listed {
        number: of_rule,
        matched,
        done,
        text: words.next()?.to_owned(),
    })
}

/// The rules of all libraries, each once.
fn merged(answers: Vec<Vec<String>>) -> Vec<Listed> {
    let mut rules: Vec<Listed> = Vec::new();
    for one in answers.iter().flatten().filter_map(|line| listed(line)) {
        match rules.iter_mut().find(|known| known.number == one.number) {
            Some(known) => {
                known.matched += one.matched;
                known.done += one.done;
            }
            None => rules.push(one),
        }
    }
    rules
}

fn list(pid: u32, as_json: bool) -> Result<(), Error> {
    let rules = merged(ask(pid, "list")?);
    if as_json {
        let rule = |one: &Listed| {
            json!({
                "rule": one.number,
                "matched": one.matched,
                "faults": one.done,
                "text": one.text,
            })
        };
        let document: Vec<serde_json::Value> = rules.iter().map(rule).collect();
        return output::line(format_args!("{}", json!({ "pid": pid, "rules": document })));
    }
    output::line(format_args!(
        "{:>4}  {:>8}  {:>8}  rule",
        "", "matched", "faults"
    ))?;
    rules.iter().try_for_each(|one| {
        let text = printable::lines(&one.text);
        output::line(format_args!(
            "{:>4}  {:>8}  {:>8}  {text}",
            one.number, one.matched, one.done
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_both_libraries_are_added() {
        let answer = |lines: &[&str]| lines.iter().map(|&line| line.to_owned()).collect();
        let rules = merged(vec![
            answer(&[
                "rule 1 5 2 reg_mr: fail ENOMEM",
                "rule 3 0 0 post_send: slow 1us",
            ]),
            answer(&["rule 1 1 1 reg_mr: fail ENOMEM", "nonsense"]),
        ]);
        let sums: Vec<_> = rules
            .iter()
            .map(|one| (one.number, one.matched, one.done, one.text.as_str()))
            .collect();
        assert_eq!(
            sums,
            [
                (1, 6, 3, "reg_mr: fail ENOMEM"),
                (3, 0, 0, "post_send: slow 1us")
            ]
        );
    }
}

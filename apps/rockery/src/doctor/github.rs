//! Findings as workflow commands of GitHub Actions, which show them beside the lines of a change.
//!
//! Every line is a command of ours: text of an input never begins a line, where the runner would take it for
//! a command of its own.

use doctor::{Finding, Severity};
use vendors::NotUnderstood;

use super::examined::{Examined, THIS_HOST};

/// Where a message belongs: the file and the line.
type Line<'a> = Option<(&'a str, usize)>;

/// The commands. The runner shows ten of each level in a step, so findings come first.
pub(super) fn commands(facts: &Examined, found: &[Finding]) -> String {
    let devices = facts.devices();
    let mut text: String = found.iter().map(of_finding).collect();
    for unread in &facts.unread {
        text += &command("error", None, "unread", unread);
    }
    for device in &devices {
        text.extend(device.left.iter().map(not_understood));
        let not_judged = device.not_judged.iter();
        text.extend(not_judged.map(|line| of_line("notice", "not-judged", line)));
        if !device.unknown.is_empty() {
            text += &command("notice", None, "unknown", &device.not_seen());
        }
    }
    for name in &facts.unplanned {
        let what = format!("{name}: the fabric file has nothing of this name");
        text += &command("notice", None, "unplanned", &what);
    }
    if found.is_empty() && facts.unread.is_empty() && facts.left().next().is_none() {
        text += &command(
            "notice",
            None,
            "rockery doctor",
            "nothing is wrong of what was seen",
        );
    }
    text
}

fn of_finding(finding: &Finding) -> String {
    let level = match finding.severity() {
        Severity::Error => "error",
        Severity::Warning => "warning",
    };
    let seen = finding.evidence.first();
    let line = seen.map(|seen| (seen.file.as_str(), seen.line));
    // A list of annotations shows the first words only.
    let text = format!(
        "{}; {}\nfix: {}\n{}\nmore: {}",
        finding.what, finding.consequence, finding.fix, finding.place, finding.link
    );
    command(level, line, finding.rule, &text)
}

fn not_understood(line: &NotUnderstood) -> String {
    // A line of QoS that is not understood may be a fault.
    let level = match line.areas.is_empty() {
        true => "notice",
        false => "warning",
    };
    of_line(level, "not-understood", line)
}

fn of_line(level: &str, title: &str, line: &NotUnderstood) -> String {
    command(level, Some((&line.file, line.line)), title, &line.why)
}

fn command(level: &str, line: Line<'_>, title: &str, text: &str) -> String {
    // The snapshot that this host makes of itself is in no file.
    let line = line.filter(|(file, _)| *file != THIS_HOST);
    let place = line.map_or_else(String::new, |(file, line)| {
        format!("file={},line={},", property(file), line.max(1))
    });
    format!(
        "::{level} {place}title={}::{}\n",
        property(title),
        data(text)
    )
}

/// The text of a command: one line, in which percent signs begin escapes.
fn data(text: &str) -> String {
    let text = command::printable::text(text);
    text.replace('%', "%25").replace('\n', "%0A")
}

/// A property of a command, which a colon or a comma would end.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

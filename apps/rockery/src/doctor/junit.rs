//! Findings as JUnit's XML: a suite for each device, with a test case for each thing that was judged.
//!
//! There is no standard of the format; attributes and elements are those that Jenkins, GitLab and pytest
//! share. What is unknown is skipped, and never passes.

use std::fmt::Write;

use doctor::Finding;
use vendors::NotUnderstood;

use super::examined::{Device, Examined};

/// The end of a test case that did not pass.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Failure,
    Error,
    Skipped,
}

/// What a test case tells besides its name.
struct Outcome {
    kind: Kind,
    /// The type of a failure: rules.
    rules: String,
    message: String,
    text: String,
}

/// A test case.
struct Case {
    /// The device that it is about, as JUnit has the class of a test.
    class: String,
    name: String,
    outcome: Option<Outcome>,
}

/// The suites of all devices, as one document.
pub(super) fn suites(facts: &Examined, found: &[Finding]) -> String {
    let devices = facts.devices();
    // A finding about both ends of a link is in the suite of the end that its place names.
    let suite_of = |finding: &Finding| devices.iter().position(|device| device.has(finding));
    let mut suites = Vec::new();
    for (number, device) in devices.iter().enumerate() {
        let own = found.iter().filter(|own| suite_of(own) == Some(number));
        suites.push((device.name.clone(), cases(device, &own.collect::<Vec<_>>())));
    }
    let others = found.iter().filter(|own| suite_of(own).is_none());
    let rest = by_place(&others.collect::<Vec<_>>(), "rockery doctor");
    let unread = facts.unread.iter().map(|text| Case {
        class: "rockery doctor".to_owned(),
        name: "read the input".to_owned(),
        outcome: Some(Outcome::new(Kind::Error, "unread", text)),
    });
    let unplanned = facts.unplanned.iter().map(|name| Case {
        class: "rockery doctor".to_owned(),
        name: format!("compare {name} with the fabric file"),
        outcome: Some(Outcome::new(
            Kind::Skipped,
            "",
            "the fabric file has nothing of this name",
        )),
    });
    let rest: Vec<Case> = rest.into_iter().chain(unread).chain(unplanned).collect();
    if !rest.is_empty() {
        suites.push(("rockery doctor".to_owned(), rest));
    }
    document(&suites)
}

/// The cases of a device: each thing that was judged, then places of findings that are none of these, areas
/// that were not seen, and lines that were not understood or not judged.
fn cases(device: &Device<'_>, found: &[&Finding]) -> Vec<Case> {
    let judged = device.judged.iter().map(|judged| {
        let own: Vec<&Finding> = found
            .iter()
            .copied()
            .filter(|own| own.place == judged.place)
            .collect();
        Case {
            class: device.name.clone(),
            name: judged.text.clone(),
            outcome: Outcome::of(&own),
        }
    });
    let is_judged = |own: &Finding| device.judged.iter().any(|it| it.place == own.place);
    let others: Vec<&Finding> = found
        .iter()
        .copied()
        .filter(|own| !is_judged(own))
        .collect();
    let unknown = device.unknown.iter().map(|area| Case {
        class: device.name.clone(),
        name: (*area).to_owned(),
        outcome: Some(Outcome::new(Kind::Skipped, "", "not seen, so unknown")),
    });
    let line = |kind: Kind, line: &NotUnderstood| Case {
        class: device.name.clone(),
        name: format!("line {} of {}", line.line, line.file),
        outcome: Some(Outcome::new(kind, "not-understood", &line.why)),
    };
    // A line of QoS that is not understood may be a fault.
    let left = device.left.iter().map(|left| match left.areas.is_empty() {
        true => line(Kind::Skipped, left),
        false => line(Kind::Error, left),
    });
    let not_judged = device.not_judged.iter().map(|own| line(Kind::Skipped, own));
    judged
        .chain(by_place(&others, &device.name))
        .chain(unknown)
        .chain(left)
        .chain(not_judged)
        .collect()
}

/// A case for each place of findings.
fn by_place(found: &[&Finding], class: &str) -> Vec<Case> {
    let mut places: Vec<&str> = Vec::new();
    for finding in found {
        if !places.contains(&finding.place.as_str()) {
            places.push(&finding.place);
        }
    }
    let case = |place: &str| {
        let own: Vec<&Finding> = found
            .iter()
            .copied()
            .filter(|own| own.place == place)
            .collect();
        Case {
            class: class.to_owned(),
            name: place.to_owned(),
            outcome: Outcome::of(&own),
        }
    };
    places.into_iter().map(case).collect()
}

impl Outcome {
    fn new(kind: Kind, rules: &str, message: &str) -> Self {
        Self {
            kind,
            rules: rules.to_owned(),
            message: message.to_owned(),
            text: String::new(),
        }
    }

    /// The failure that these findings are; none without findings.
    fn of(found: &[&Finding]) -> Option<Self> {
        let list = |of: fn(&Finding) -> String| -> Vec<String> {
            found.iter().map(|own| of(own)).collect()
        };
        (!found.is_empty()).then(|| Self {
            kind: Kind::Failure,
            rules: list(|own| own.rule.to_owned()).join(" "),
            message: list(|own| own.what.clone()).join("; "),
            text: list(|own| own.to_string()).join("\n"),
        })
    }
}

fn document(suites: &[(String, Vec<Case>)]) -> String {
    let all: Vec<&Case> = suites.iter().flat_map(|(_, cases)| cases).collect();
    let mut text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"rockery doctor\"{}>\n",
        counts(&all)
    );
    for (name, cases) in suites {
        let own: Vec<&Case> = cases.iter().collect();
        let _ = writeln!(
            text,
            "  <testsuite name=\"{}\"{}>",
            escaped(name),
            counts(&own)
        );
        cases.iter().for_each(|case| case.write(&mut text));
        text += "  </testsuite>\n";
    }
    text + "</testsuites>\n"
}

fn counts(cases: &[&Case]) -> String {
    let count = |wanted: Kind| {
        let of = |case: &&&Case| case.outcome.as_ref().is_some_and(|own| own.kind == wanted);
        cases.iter().filter(of).count()
    };
    format!(
        " tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\"",
        cases.len(),
        count(Kind::Failure),
        count(Kind::Error),
        count(Kind::Skipped)
    )
}

impl Case {
    fn write(&self, text: &mut String) {
        let (class, name) = (escaped(&self.class), escaped(&self.name));
        let _ = write!(text, "    <testcase classname=\"{class}\" name=\"{name}\"");
        let Some(outcome) = &self.outcome else {
            *text += "/>\n";
            return;
        };
        let message = escaped(&outcome.message);
        let (rules, within) = (escaped(&outcome.rules), escaped(&outcome.text));
        let element = match outcome.kind {
            Kind::Failure => "failure",
            Kind::Error => "error",
            Kind::Skipped => {
                let _ = writeln!(text, "><skipped message=\"{message}\"/></testcase>");
                return;
            }
        };
        let _ = writeln!(
            text,
            "><{element} type=\"{rules}\" message=\"{message}\">{within}</{element}></testcase>"
        );
    }
}

/// A text within XML 1.0. Characters that XML does not have, not even as references, and those that reorder
/// text get escapes of rockery's own; line ends in attributes would become blanks.
fn escaped(text: &str) -> String {
    let is_outside = |it: char| matches!(it, '\u{fffe}' | '\u{ffff}');
    command::printable::text(text)
        .chars()
        .map(|it| match it {
            '&' => "&amp;".to_owned(),
            '<' => "&lt;".to_owned(),
            '>' => "&gt;".to_owned(),
            '"' => "&quot;".to_owned(),
            '\'' => "&apos;".to_owned(),
            '\n' => "&#10;".to_owned(),
            '\t' => "&#9;".to_owned(),
            it if is_outside(it) => it.escape_unicode().to_string(),
            it => it.to_string(),
        })
        .collect()
}

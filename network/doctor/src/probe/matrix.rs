//! A matrix of hosts: the results of each host's probe of every other one, from their JSON.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use vendors::text::ReadError;

/// Rows and columns at most.
const HOSTS_MAX: usize = 1024;

/// The JSON output of one host's probe.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct MatrixRow {
    /// The host that sent the probes.
    pub from: String,
    /// The hosts that it probed.
    pub hosts: Vec<MatrixCell>,
    /// The faults that it found.
    #[serde(default)]
    pub findings: Vec<MatrixFinding>,
}

/// The results of one host's probe of another one.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct MatrixCell {
    /// The host that was probed.
    pub host: String,
    /// Whether RoCE answers, in a word.
    pub roce: String,
    /// The largest payload that gets through, where it is known.
    pub payload: Option<u32>,
    /// Rules of the findings.
    #[serde(default)]
    pub rules: Vec<String>,
}

/// A finding, as far as a matrix shows it.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct MatrixFinding {
    /// The name of the rule.
    pub rule: String,
    /// A description of the fault.
    pub what: String,
    /// The cost of the fault.
    pub consequence: String,
    /// The change that corrects the fault.
    pub fix: String,
}

/// The location of a fault, as far as pairs show it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Whereabouts {
    /// Every pair of these hosts has it and no other pair: their own links or ports.
    Hosts(Vec<String>),
    /// Every pair that was seen has it.
    Everywhere,
    /// Pairs have it in one direction and not in the other one.
    OneDirection,
    /// Some pairs have it.
    Pairs,
}

/// A fault with its pairs.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct MatrixFault {
    /// The name of the rule.
    pub rule: String,
    /// Pairs of the probing and the probed host.
    pub pairs: Vec<(String, String)>,
    /// The location that the pairs have in common.
    pub whereabouts: Whereabouts,
    /// A description of the fault, from the first of the pairs.
    pub what: String,
    /// The cost of the fault.
    pub consequence: String,
    /// The change that corrects the fault.
    pub fix: String,
}

/// The results of one host's probe of another one, with both names.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct MatrixPair {
    /// The host that sent the probes.
    pub from: String,
    /// The host that was probed.
    pub to: String,
    /// Whether RoCE answers, in a word.
    pub roce: String,
    /// The largest payload that gets through, where it is known.
    pub payload: Option<u32>,
    /// Rules of the findings.
    pub rules: Vec<String>,
}

/// Hosts, and the results of each pair.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Matrix {
    hosts: Vec<String>,
    cells: BTreeMap<(usize, usize), MatrixCell>,
    findings: BTreeMap<usize, Vec<MatrixFinding>>,
}

/// Reads the output of one probe with `--json`.
///
/// # Errors
/// The line at which the text is something else.
pub fn read_row(file: &str, text: &str) -> Result<MatrixRow, ReadError> {
    let row: MatrixRow = serde_json::from_str(text).map_err(|error| {
        let last = text.lines().count().max(1);
        let what = format!("rockery doctor probe --json prints something else: {error}");
        ReadError::new(file, error.line().clamp(1, last), what)
    })?;
    let wrong = |what: String| Err(ReadError::new(file, 1, what));
    if row.hosts.len() > HOSTS_MAX {
        return wrong(format!("more than {HOSTS_MAX} hosts"));
    }
    match row.from.is_empty() {
        true => wrong("the name of the host that asked is empty".to_owned()),
        false => Ok(row),
    }
}

impl Matrix {
    /// Makes a matrix of rows. A second row of a host replaces the results of the first one for the same
    /// hosts.
    pub fn new(rows: Vec<MatrixRow>) -> Self {
        let mut matrix = Self::default();
        for row in rows {
            let from = matrix.number(&row.from);
            for cell in row.hosts {
                let to = matrix.number(&cell.host);
                matrix.cells.insert((from, to), cell);
            }
            matrix
                .findings
                .entry(from)
                .or_default()
                .extend(row.findings);
        }
        matrix
    }

    fn number(&mut self, name: &str) -> usize {
        let found = self.hosts.iter().position(|host| host == name);
        found.unwrap_or_else(|| {
            self.hosts.push(name.to_owned());
            self.hosts.len() - 1
        })
    }

    /// Pairs with results.
    pub fn pairs(&self) -> Vec<MatrixPair> {
        let of = |(&(from, to), cell): (&(usize, usize), &MatrixCell)| {
            let (from, to) = self.named(from, to);
            let (roce, payload, rules) = (cell.roce.clone(), cell.payload, cell.rules.clone());
            MatrixPair {
                from,
                to,
                roce,
                payload,
                rules,
            }
        };
        self.cells.iter().map(of).collect()
    }

    /// Pairs without results.
    pub fn unknown(&self) -> Vec<(String, String)> {
        let all =
            (0..self.hosts.len()).flat_map(|from| (0..self.hosts.len()).map(move |to| (from, to)));
        let missing =
            all.filter(|(from, to)| from != to && !self.cells.contains_key(&(*from, *to)));
        missing.map(|(from, to)| self.named(from, to)).collect()
    }

    fn named(&self, from: usize, to: usize) -> (String, String) {
        (self.hosts[from].clone(), self.hosts[to].clone())
    }

    /// The faults, each once with all of its pairs.
    pub fn faults(&self) -> Vec<MatrixFault> {
        let rules: BTreeSet<&String> = self.cells.values().flat_map(|cell| &cell.rules).collect();
        rules.into_iter().map(|rule| self.fault(rule)).collect()
    }

    fn fault(&self, rule: &str) -> MatrixFault {
        let has = |cell: &MatrixCell| cell.rules.iter().any(|own| own == rule);
        let pairs: BTreeSet<(usize, usize)> = self
            .cells
            .iter()
            .filter(|(_, cell)| has(cell))
            .map(|(pair, _)| *pair)
            .collect();
        // The texts are those of the rule's first finding in the row of the first pair.
        let from = pairs.first().map(|(from, _)| *from);
        let found = from.and_then(|from| self.findings.get(&from));
        let first = found
            .into_iter()
            .flatten()
            .find(|finding| finding.rule == rule);
        let text =
            |part: fn(&MatrixFinding) -> &String| first.map(part).cloned().unwrap_or_default();
        MatrixFault {
            rule: rule.to_owned(),
            whereabouts: self.whereabouts(&pairs),
            pairs: pairs
                .into_iter()
                .map(|(from, to)| self.named(from, to))
                .collect(),
            what: text(|finding| &finding.what),
            consequence: text(|finding| &finding.consequence),
            fix: text(|finding| &finding.fix),
        }
    }

    fn whereabouts(&self, faulty: &BTreeSet<(usize, usize)>) -> Whereabouts {
        if self.cells.len() > 1 && faulty.len() == self.cells.len() {
            return Whereabouts::Everywhere;
        }
        let seen_with = |host: usize| {
            self.cells
                .keys()
                .filter(move |(from, to)| *from == host || *to == host)
        };
        // A single pair does not show which of its two ends has the fault.
        let all_of = |host: &usize| {
            let pairs: Vec<_> = seen_with(*host).collect();
            let peers: BTreeSet<usize> = pairs
                .iter()
                .map(|(from, to)| if from == host { *to } else { *from })
                .collect();
            peers.len() > 1 && pairs.iter().all(|pair| faulty.contains(pair))
        };
        let hosts: Vec<usize> = (0..self.hosts.len()).filter(all_of).collect();
        let explained = |(from, to): &(usize, usize)| hosts.contains(from) || hosts.contains(to);
        if !hosts.is_empty() && faulty.iter().all(explained) {
            return Whereabouts::Hosts(
                hosts
                    .into_iter()
                    .map(|host| self.hosts[host].clone())
                    .collect(),
            );
        }
        let back_is_fine = |(from, to): &(usize, usize)| {
            let back = (*to, *from);
            self.cells.contains_key(&back) && !faulty.contains(&back)
        };
        match faulty.iter().all(back_is_fine) {
            true => Whereabouts::OneDirection,
            false => Whereabouts::Pairs,
        }
    }

    /// The matrix in words.
    pub fn page(&self) -> String {
        let mut text = self.table();
        for fault in self.faults() {
            let pairs: Vec<String> = fault
                .pairs
                .iter()
                .map(|(from, to)| format!("{from} to {to}"))
                .collect();
            let _ = write!(text, "\n{}: {}\n", fault.rule, pairs.join(", "));
            for (name, value) in [
                ("where", &fault.whereabouts.to_string()),
                ("what", &fault.what),
                ("consequence", &fault.consequence),
            ] {
                let _ = writeln!(text, "  {name:12} {value}");
            }
            for (index, line) in fault.fix.lines().enumerate() {
                let _ = writeln!(text, "  {:12} {line}", if index == 0 { "fix" } else { "" });
            }
        }
        let unknown = self.unknown();
        if !unknown.is_empty() {
            let pairs: Vec<String> = unknown
                .iter()
                .map(|(from, to)| format!("{from} to {to}"))
                .collect();
            let _ = writeln!(text, "\nnot seen, so unknown: {}", pairs.join(", "));
        }
        text
    }

    /// A row for each probing host, a column for each probed host.
    fn table(&self) -> String {
        let count = self.hosts.len();
        let mut rows = vec![
            std::iter::once("from".to_owned())
                .chain(self.hosts.iter().cloned())
                .collect(),
        ];
        for from in 0..count {
            let cells = (0..count).map(|to| self.cell(from, to));
            rows.push(
                std::iter::once(self.hosts[from].clone())
                    .chain(cells)
                    .collect::<Vec<_>>(),
            );
        }
        let width = |column: usize| {
            rows.iter()
                .map(|row| row[column].chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..=count).map(width).collect();
        let line = |row: &Vec<String>| {
            let cells = row
                .iter()
                .zip(&widths)
                .map(|(cell, width)| format!("{cell:width$}"));
            format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
        };
        rows.iter().map(line).collect()
    }

    fn cell(&self, from: usize, to: usize) -> String {
        match self.cells.get(&(from, to)) {
            _ if from == to => "-".to_owned(),
            None => "unknown".to_owned(),
            Some(cell) if !cell.rules.is_empty() => {
                let rules = cell
                    .rules
                    .iter()
                    .map(|rule| rule.trim_start_matches("probe-"));
                rules.collect::<Vec<_>>().join(",")
            }
            Some(cell) => match (cell.roce.as_str(), cell.payload) {
                ("answers", Some(payload)) => payload.to_string(),
                (roce, _) => roce.to_owned(),
            },
        }
    }
}

impl core::fmt::Display for Whereabouts {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Hosts(hosts) => write!(
                f,
                "every pair of {}, and no other: the link, port or adapter of that host",
                hosts.join(", ")
            ),
            Self::Everywhere => write!(
                f,
                "every pair that was seen: a setting that all have, or the switch"
            ),
            Self::OneDirection => {
                write!(
                    f,
                    "in one direction only: routes or rules that differ by direction"
                )
            }
            Self::Pairs => write!(f, "these pairs only: what is between them"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(from: &str, cells: &[(&str, &[&str])]) -> MatrixRow {
        let cell = |(host, rules): &(&str, &[&str])| MatrixCell {
            host: (*host).to_owned(),
            roce: "answers".to_owned(),
            payload: Some(4096),
            rules: rules.iter().map(|rule| (*rule).to_owned()).collect(),
        };
        let found = cells
            .iter()
            .flat_map(|(host, rules)| rules.iter().map(move |rule| (host, rule)));
        let findings = found.map(|(host, rule)| MatrixFinding {
            rule: (*rule).to_owned(),
            what: format!("{rule} of {host}"),
            consequence: "none".to_owned(),
            fix: "none".to_owned(),
        });
        MatrixRow {
            from: from.to_owned(),
            hosts: cells.iter().map(cell).collect(),
            findings: findings.collect(),
        }
    }

    const NONE: &[&str] = &[];
    const MTU: &[&str] = &["probe-mtu"];

    fn whereabouts(rows: Vec<MatrixRow>) -> Whereabouts {
        let faults = Matrix::new(rows).faults();
        assert_eq!(faults.len(), 1, "{faults:?}");
        faults[0].whereabouts.clone()
    }

    #[test]
    fn a_host_whose_pairs_all_have_a_fault_is_named() {
        let rows = vec![
            row("a", &[("b", NONE), ("c", MTU)]),
            row("b", &[("a", NONE), ("c", MTU)]),
            row("c", &[("a", MTU), ("b", MTU)]),
        ];
        assert_eq!(
            whereabouts(rows.clone()),
            Whereabouts::Hosts(vec!["c".to_owned()])
        );
        let matrix = Matrix::new(rows);
        let page = matrix.page();
        assert!(
            page.starts_with("from  a     b     c\na     -     4096  mtu\n"),
            "{page}"
        );
        assert!(
            page.contains("probe-mtu: a to c, b to c, c to a, c to b\n"),
            "{page}"
        );
        assert!(
            page.contains("what         probe-mtu of c") && !page.contains("unknown"),
            "{page}"
        );
    }

    #[test]
    fn one_direction_single_pairs_and_everything_are_told_apart() {
        let one_way = vec![
            row("a", &[("b", MTU), ("c", NONE)]),
            row("b", &[("a", NONE), ("c", NONE)]),
            row("c", &[]),
        ];
        assert_eq!(whereabouts(one_way), Whereabouts::OneDirection);
        let pair = vec![
            row("a", &[("b", MTU), ("c", NONE)]),
            row("b", &[("a", MTU), ("c", NONE)]),
            row("c", &[]),
        ];
        assert_eq!(whereabouts(pair), Whereabouts::Pairs);
        assert_eq!(
            whereabouts(vec![row("a", &[("b", MTU)]), row("b", &[("a", MTU)])]),
            Whereabouts::Everywhere
        );
        // With two hosts, the fault cannot be assigned to one of them.
        assert_eq!(
            whereabouts(vec![row("a", &[("b", MTU)])]),
            Whereabouts::Pairs
        );
    }

    #[test]
    fn pairs_without_a_row_are_unknown_and_not_fine() {
        let matrix = Matrix::new(vec![row("a", &[("b", NONE)])]);
        assert_eq!(matrix.unknown(), [("b".to_owned(), "a".to_owned())]);
        assert!(matrix.faults().is_empty());
        let pairs = matrix.pairs();
        assert_eq!(
            (
                pairs.len(),
                &*pairs[0].from,
                &*pairs[0].to,
                pairs[0].payload
            ),
            (1, "a", "b", Some(4096))
        );
        let page = matrix.page();
        assert!(page.contains("b     unknown  -\n"), "{page}");
        assert!(page.contains("not seen, so unknown: b to a"), "{page}");
    }

    #[test]
    fn what_is_no_row_is_refused_with_its_line() {
        for (text, line) in [
            ("", 1),
            ("{\n\"from\": 3}", 2),
            ("{\"from\": \"\", \"hosts\": []}", 1),
            ("[]", 1),
        ] {
            let error = read_row("a.json", text).unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("cannot read line {line} of a.json: ")),
                "{error}"
            );
        }
        let row = read_row(
            "a.json",
            "{\"from\":\"a\",\"hosts\":[{\"host\":\"b\",\"roce\":\"blocked\"}]}",
        );
        assert_eq!(row.unwrap().hosts[0].payload, None);
    }
}

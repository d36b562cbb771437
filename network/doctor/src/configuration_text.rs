//! The text of a switch's configuration, and the lines of it that a rule quotes.

use core::cell::RefCell;
use core::ops::Range;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A configuration or outputs of a switch, with the lines that concern single ports. It is read once: what a
/// rule quotes is found without reading the whole text for each finding.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ConfigurationText {
    text: String,
    /// Where each line begins and ends.
    lines: Vec<Range<usize>>,
    /// Lines about a port: those that name it, and those below that are indented further.
    of_ports: HashMap<String, Vec<Range<usize>>>,
    /// Whether a line is about one port alone.
    is_of_one: Vec<bool>,
    /// The first line with each number, of lines that are not about one port.
    of_numbers: HashMap<u64, usize>,
    /// The first lines found so far, by what was looked for, among those that are not about one port.
    found: RefCell<BTreeMap<String, Option<usize>>>,
}

/// The most ports that a line is taken to be about: a line that names more is about all of them.
const PORTS_OF_A_LINE: usize = 16;

/// A line of a configuration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Line<'a> {
    /// Number of the line, from 1.
    pub number: usize,
    /// Text of the line, without its end.
    pub text: &'a str,
}

impl ConfigurationText {
    /// Reads a text, and the lines about ports of these names.
    pub fn new<'a>(text: String, ports: impl Iterator<Item = &'a str>) -> Self {
        let mut lines = Vec::new();
        let mut start = 0;
        for line in text.split_inclusive('\n') {
            let own = line.strip_suffix('\n').unwrap_or(line);
            let own = own.strip_suffix('\r').unwrap_or(own);
            lines.push(start..start + own.len());
            start += line.len();
        }
        let mut read = Self {
            text,
            lines,
            ..Self::default()
        };
        read.find_ports(&ports.collect());
        read
    }

    /// The whole text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The line that shows a setting of ports best. For each word, in the order of the words, it is the first
    /// line about these ports, else the first one about no single port. Without a word it is the first one
    /// about these ports.
    pub fn line_about<'a>(
        &self,
        ports: impl Iterator<Item = &'a str> + Clone,
        needles: &[&str],
    ) -> Line<'_> {
        let sections = || ports.clone().filter_map(|port| self.of_ports.get(port));
        let first = || Some(sections().next()?.first()?.start);
        let found = needles.iter().find_map(|needle| {
            let mut of_ports = sections().filter_map(|own| self.find_in(own, needle));
            of_ports.next().or_else(|| self.find(needle))
        });
        self.line(found.or_else(first).unwrap_or(0))
    }

    /// The line that shows a setting of the whole switch best: the first one about no single port with one of
    /// the words, in the order of the words; else the first one about a port.
    pub fn line_about_all(&self, needles: &[&str]) -> Line<'_> {
        let of_ports = |needle: &&str| {
            let mut lines = 0..self.lines.len();
            lines.find(|index| self.text_of(*index).contains(needle))
        };
        let found = needles.iter().find_map(|needle| self.find(needle));
        let found = found.or_else(|| needles.iter().find_map(of_ports));
        self.line(found.unwrap_or(0))
    }

    fn line(&self, index: usize) -> Line<'_> {
        Line {
            number: index + 1,
            text: self.text_of(index),
        }
    }

    fn text_of(&self, index: usize) -> &str {
        let range = self.lines.get(index).cloned();
        range.map_or("", |range| &self.text[range])
    }

    /// The first line of a section that has the word; a number is a whole word.
    fn find_in(&self, section: &[Range<usize>], needle: &str) -> Option<usize> {
        let has = |line: &str| match needle.parse::<u64>() {
            Ok(number) => numbers(line).any(|own| own == number),
            Err(_) => line.contains(needle),
        };
        let mut lines = section.iter().cloned().flatten();
        lines.find(|index| has(self.text_of(*index)))
    }

    /// The first line that is not about one port, and has the word.
    fn find(&self, needle: &str) -> Option<usize> {
        if let Ok(number) = needle.parse() {
            return self.of_numbers.get(&number).copied();
        }
        if let Some(found) = self.found.borrow().get(needle) {
            return *found;
        }
        let has = |index: &usize| !self.is_of_one[*index] && self.text_of(*index).contains(needle);
        let found = (0..self.lines.len()).find(has);
        self.found.borrow_mut().insert(needle.to_owned(), found);
        found
    }

    fn find_ports(&mut self, names: &BTreeSet<&str>) {
        // The sections that a line is in: their indentation, and their port.
        let mut open: Vec<(usize, &str)> = Vec::new();
        for index in 0..self.lines.len() {
            let line = &self.text[self.lines[index].clone()];
            let indentation = line.len() - line.trim_start().len();
            if !line.trim().is_empty() {
                open.retain(|(outer, _)| *outer < indentation);
            }
            let named = words(line).filter_map(|word| names.get(word).copied());
            let named: BTreeSet<&str> = named.take(PORTS_OF_A_LINE).collect();
            for name in &named {
                let is_new = open.iter().all(|(_, own)| own != name);
                if is_new && open.len() < PORTS_OF_A_LINE {
                    open.push((indentation, name));
                }
            }
            let is_of_one = open.len() == 1;
            self.is_of_one.push(is_of_one);
            for number in numbers(line).filter(|_| !is_of_one) {
                self.of_numbers.entry(number).or_insert(index);
            }
            for (_, port) in &open {
                let sections = self.of_ports.entry((*port).to_owned()).or_default();
                match sections.last_mut() {
                    Some(last) if last.end == index => last.end += 1,
                    _ => sections.push(index..index + 1),
                }
            }
        }
    }
}

/// Words that may be names of ports.
fn words(line: &str) -> impl Iterator<Item = &str> {
    let is_outside = |letter: char| !letter.is_alphanumeric() && !"/-_.:".contains(letter);
    let words = line.split(is_outside);
    words
        .map(|word| word.trim_matches([':', '.', '-']))
        .filter(|word| !word.is_empty())
}

/// Numbers that stand alone in a line.
fn numbers(line: &str) -> impl Iterator<Item = u64> {
    let words = line.split(|letter: char| !letter.is_alphanumeric());
    words.filter_map(|word| word.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::ConfigurationText;

    fn lines(text: &str, port: &str, needles: &[&str]) -> usize {
        let text = ConfigurationText::new(text.to_owned(), ["Ethernet1", "Ethernet2"].into_iter());
        text.line_about([port].into_iter(), needles).number
    }

    const BLOCKS: &str = "hostname Ethernet\nqos map dscp 26 to traffic-class 3\n\
                          interface Ethernet1\n   mtu 9214\n\
                          interface Ethernet2\n   mtu 1500\n   priority-flow-control on\n";

    #[test]
    fn a_line_about_the_port_comes_before_one_about_all() {
        assert_eq!(lines(BLOCKS, "Ethernet1", &["mtu"]), 4);
        assert_eq!(lines(BLOCKS, "Ethernet2", &["mtu"]), 6);
        assert_eq!(lines(BLOCKS, "Ethernet2", &["dscp"]), 2);
    }

    #[test]
    fn a_line_about_another_port_is_not_quoted() {
        assert_eq!(lines(BLOCKS, "Ethernet1", &["priority-flow-control"]), 3);
        assert_eq!(lines(BLOCKS, "Ethernet3", &["priority-flow-control"]), 1);
    }

    #[test]
    fn a_line_about_the_switch_comes_before_one_about_a_port() {
        let text =
            ConfigurationText::new(BLOCKS.to_owned(), ["Ethernet1", "Ethernet2"].into_iter());
        assert_eq!(text.line_about_all(&["mtu", "dscp"]).number, 2);
        assert_eq!(text.line_about_all(&["absent", "mtu"]).number, 4);
    }

    #[test]
    fn numbers_are_whole_words() {
        assert_eq!(lines(BLOCKS, "Ethernet1", &["2"]), 3);
        assert_eq!(lines(BLOCKS, "Ethernet1", &["26"]), 2);
        assert_eq!(lines(BLOCKS, "Ethernet2", &["1500"]), 6);
    }

    #[test]
    fn keys_of_tables_name_ports() {
        let text = "{\"PORT\": {\n  \"Ethernet1\": {\n    \"mtu\": \"9100\"\n  },\n  \"Ethernet2\": {\n    \
                    \"mtu\": \"1500\"\n  }},\n\"QUEUE\": {\n  \
                    \"Ethernet1,Ethernet2|3\": {\"scheduler\": \"s\"}}}";
        assert_eq!(lines(text, "Ethernet2", &["mtu"]), 6);
        assert_eq!(lines(text, "Ethernet1", &["scheduler"]), 9);
        assert_eq!(lines(text, "Ethernet2", &["scheduler"]), 9);
    }
}

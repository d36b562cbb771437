//! Configurations of the industry's usual form: commands, and below them commands that are indented.

use std::collections::{BTreeMap, BTreeSet};

use crate::outcome::Outcomes;
use crate::text::{Line, PORTS_OF_TEXT_MAX, ReadError, lines, number};

/// A command and the commands below it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Block<'a> {
    pub(crate) line: Line<'a>,
    pub(crate) below: Vec<Self>,
}

impl<'a> Block<'a> {
    /// The rest of the command after some words at its beginning.
    pub(crate) fn after(&self, words: &str) -> Option<&'a str> {
        let rest = self.line.text.strip_prefix(words)?;
        if rest.is_empty() || rest.starts_with(char::is_whitespace) {
            Some(rest.trim())
        } else {
            None
        }
    }

    /// An error of this command.
    pub(crate) fn wrong(&self, file: &str, what: &str) -> ReadError {
        ReadError::new(
            file,
            self.line.number,
            format!("\"{}\": {what}", crate::text::shortened(self.line.text)),
        )
    }

    /// A threshold of this command in bytes: a number and its unit, in powers of ten.
    pub(crate) fn threshold(&self, file: &str, word: &str, unit: &str) -> Result<u32, ReadError> {
        let factor = match unit {
            "bytes" => 1,
            "kbytes" => 1000,
            "mbytes" => 1_000_000,
            _ => return Err(self.wrong(file, "thresholds are in bytes, kbytes or mbytes")),
        };
        Ok(number(file, self.line.number, word, 0..=u32::MAX / factor)? * factor)
    }
}

impl Block<'_> {
    /// Marks the commands below this one as irrelevant.
    pub(crate) fn pass_below(&self, outcomes: &mut Outcomes) {
        for below in &self.below {
            outcomes.irrelevant(below.line.number);
            below.pass_below(outcomes);
        }
    }

    /// Reads each command below this one. What `read` does not understand is unknown, and the rest is read.
    pub(crate) fn each(
        &self,
        outcomes: &mut Outcomes,
        mut read: impl FnMut(&Self) -> Result<(), ReadError>,
    ) {
        for below in &self.below {
            outcomes.take(below.line.number, read(below));
        }
    }
}

/// The names of an interface command: ranges such as `Ethernet1/1-3,Ethernet1/7` are several interfaces, at
/// most 1,024. Text without a range is one name.
pub(crate) fn interfaces(text: &str) -> Vec<String> {
    let text = text.strip_prefix("range ").unwrap_or(text);
    let mut found: Vec<String> = Vec::new();
    // The kind of the name before is that of numbers without it; a single number is of its module, too.
    let (mut kind_before, mut before) = (String::new(), String::new());
    let digits = |text: &str| {
        let rest = text.trim_end_matches(|letter: char| letter.is_ascii_digit());
        text.len() - rest.len()
    };
    for part in text.split(',').map(str::trim) {
        // The end of a range is a number, of the same module or written whole: `1/1-3`, `1/1-1/3`.
        let range = part.rsplit_once('-').and_then(|(from, to)| {
            let last = to.rsplit('/').next()?.trim();
            let is_number = last.len() == digits(last) && digits(from.trim()) > 0;
            let number = last.parse::<u32>().ok()?;
            is_number.then_some((from.trim(), number))
        });
        let first = range.map_or(part, |(first, _)| first);
        let (kind, place) = kind_and_place(first);
        let name = match (kind.is_empty(), digits(place) == place.len()) {
            (true, true) => format!("{before}{place}"),
            (true, false) => format!("{kind_before}{place}"),
            (false, _) => format!("{kind}{place}"),
        };
        if !kind.is_empty() {
            kind.clone_into(&mut kind_before);
        }
        let (base, number) = name.split_at(name.len() - digits(&name));
        base.clone_into(&mut before);
        match (number.parse::<u32>(), range) {
            (Ok(from), Some((_, to))) if to >= from => {
                let numbers = (from..=to).take(PORTS_MAX);
                found.extend(numbers.map(|port| format!("{base}{port}")));
            }
            (_, Some(_)) => found.push(part.to_owned()),
            (_, None) => found.push(name),
        }
    }
    found.truncate(PORTS_MAX);
    found
}

/// The kind of an interface, and where it is: `Ethernet` and `1/1`. A blank between them, and a kind that is
/// shortened as people type it, are those of the whole name.
fn kind_and_place(name: &str) -> (String, &str) {
    let at = name.find(|letter: char| letter.is_ascii_digit());
    let (kind, place) = name.split_at(at.unwrap_or(name.len()));
    let kind = kind.trim_end();
    // Names of three numbers are written in small letters by OS10.
    let is_short = kind.len() < 8 && "ethernet".starts_with(&kind.to_ascii_lowercase());
    if is_short && !kind.is_empty() && !place.is_empty() && place.split('/').count() < 3 {
        return ("Ethernet".to_owned(), place);
    }
    (kind.to_owned(), place)
}

/// Interfaces of one command at most.
const PORTS_MAX: usize = 1024;

/// Whether a text may have these interfaces besides those that were read. If not, the command of the block is
/// not understood.
pub(crate) fn fit(
    file: &str,
    block: &Block<'_>,
    ports: &[String],
    read: usize,
    outcomes: &mut Outcomes,
) -> bool {
    let fit = read + ports.len() <= PORTS_OF_TEXT_MAX;
    if !fit {
        let what = format!("more than {PORTS_OF_TEXT_MAX} interfaces are not read");
        outcomes.not_understood(&block.wrong(file, &what));
        block.pass_below(outcomes);
    }
    fit
}

/// The deepest nesting of commands.
const DEPTH_MAX: usize = 16;

/// A text as blocks, by indentation, and the outcomes of its lines.
pub(crate) fn blocks<'a>(
    file: &str,
    text: &'a str,
) -> Result<(Vec<Block<'a>>, Outcomes), ReadError> {
    let lines = lines(file, text, &['!', '#'])?;
    let mut outcomes = Outcomes::of(file, &lines);
    let mut stack: Vec<(usize, Block<'a>)> = Vec::new();
    let mut top = Vec::new();
    for line in lines {
        close(&mut stack, &mut top, line.indent);
        // What people type to leave a mode is in scripts and guides, and sets nothing.
        if matches!(line.text, "exit" | "end") {
            outcomes.irrelevant(line.number);
            continue;
        }
        if stack.len() >= DEPTH_MAX {
            return Err(ReadError::new(
                file,
                line.number,
                "commands are nested too deep",
            ));
        }
        stack.push((
            line.indent,
            Block {
                line,
                below: Vec::new(),
            },
        ));
    }
    close(&mut stack, &mut top, 0);
    Ok((top, outcomes))
}

/// Commands of a channel that its members get at most.
const CHANNEL_MAX: usize = 256;

/// The name of a channel as the number of a group: `Port-Channel10` and `port-channel10` are group 10.
fn channel(name: &str) -> Option<u32> {
    let small = name.to_ascii_lowercase();
    small.strip_prefix("port-channel")?.trim().parse().ok()
}

/// Gives the members of channels the commands of their channel, before their own ones: what is set for a
/// channel holds for its members. A channel whose members are there is no port by itself.
pub(crate) fn with_channels<'a>(
    mut blocks: Vec<Block<'a>>,
    outcomes: &mut Outcomes,
) -> Vec<Block<'a>> {
    let group = |block: &Block<'_>| {
        block.after("interface")?;
        let mut groups = block
            .below
            .iter()
            .filter_map(|line| line.after("channel-group"));
        groups
            .next()?
            .split_whitespace()
            .next()?
            .parse::<u32>()
            .ok()
    };
    let used: BTreeSet<u32> = blocks.iter().filter_map(group).collect();
    let mut channels: BTreeMap<u32, Vec<Block<'a>>> = BTreeMap::new();
    blocks.retain(|block| {
        let names = block.after("interface").map(interfaces).unwrap_or_default();
        let numbers: Vec<u32> = names.iter().filter_map(|name| channel(name)).collect();
        let is_own = !numbers.is_empty()
            && block.below.len() <= CHANNEL_MAX
            && numbers.iter().all(|number| used.contains(number));
        if is_own {
            outcomes.applied(block.line.number);
            for number in numbers {
                channels
                    .entry(number)
                    .or_default()
                    .extend(block.below.iter().cloned());
            }
        }
        !is_own
    });
    for block in &mut blocks {
        if let Some(commands) = group(block).and_then(|number| channels.get(&number)) {
            let own = core::mem::replace(&mut block.below, commands.clone());
            block.below.extend(own);
        }
    }
    blocks
}

/// Takes finished blocks from the stack: those that are indented as far as the next line, or farther.
fn close<'a>(stack: &mut Vec<(usize, Block<'a>)>, top: &mut Vec<Block<'a>>, indent: usize) {
    while stack.last().is_some_and(|(own, _)| *own >= indent) {
        let Some((_, block)) = stack.pop() else {
            return;
        };
        match stack.last_mut() {
            Some((_, parent)) => parent.below.push(block),
            None => top.push(block),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_interfaces_are_several_interfaces() {
        for (text, expected) in [
            ("Ethernet1/1", &["Ethernet1/1"][..]),
            (
                "Ethernet1/1-3",
                &["Ethernet1/1", "Ethernet1/2", "Ethernet1/3"],
            ),
            (
                "Ethernet1/1-2,1/7",
                &["Ethernet1/1", "Ethernet1/2", "Ethernet1/7"],
            ),
            (
                "ETH 14/1, 15/1,2, et16/1-2",
                &[
                    "Ethernet14/1",
                    "Ethernet15/1",
                    "Ethernet15/2",
                    "Ethernet16/1",
                    "Ethernet16/2",
                ],
            ),
            ("ethernet 1/1/1:1", &["ethernet1/1/1:1"]),
            ("e1/3", &["Ethernet1/3"]),
            (
                "Ethernet1/1-2, Ethernet1/7",
                &["Ethernet1/1", "Ethernet1/2", "Ethernet1/7"],
            ),
            (
                "range ethernet1/1/1-1/1/2",
                &["ethernet1/1/1", "ethernet1/1/2"],
            ),
            ("Ethernet1-2,5", &["Ethernet1", "Ethernet2", "Ethernet5"]),
            ("Port-Channel1", &["Port-Channel1"]),
            ("port-channel7-8", &["port-channel7", "port-channel8"]),
            ("Ethernet3-1", &["Ethernet3-1"]),
        ] {
            assert_eq!(interfaces(text), expected, "{text}");
        }
    }

    #[test]
    fn indentation_nests() {
        let (found, _) = blocks("f", "a\n  b\n    c\n  d\n!\ne\n").unwrap();
        let shape: Vec<(&str, usize)> = found
            .iter()
            .map(|block| (block.line.text, block.below.len()))
            .collect();
        assert_eq!(shape, [("a", 2), ("e", 0)]);
        assert_eq!(found[0].below[0].below[0].line.text, "c");
    }
}

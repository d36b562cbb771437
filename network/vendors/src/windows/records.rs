//! Objects that PowerShell prints: as lists (`Key : Value`), or as tables with dashes below the heads.

use crate::sections::Section;
use crate::text::Line;

/// Columns of a table at most.
const COLUMNS_MAX: usize = 64;

/// The fields of one object: keys in small letters and without blanks, each with its line and value.
pub(super) struct Record<'b, 'a> {
    fields: Vec<(String, &'b Line<'a>, &'b str)>,
}

impl<'b, 'a> Record<'b, 'a> {
    /// The line and the value of a field.
    pub(super) fn get(&self, key: &str) -> Option<(&'b Line<'a>, &'b str)> {
        let found = self.fields.iter().find(|(own, ..)| own == key);
        found.map(|(_, line, value)| (*line, *value))
    }

    /// The first line of the object.
    pub(super) fn first(&self) -> Option<&'b Line<'a>> {
        self.fields.first().map(|(_, line, _)| *line)
    }
}

/// A key without blanks, in small letters: `RDMA Capable` and `RdmaCapable` are one.
fn key_of(text: &str) -> String {
    let letters = text.chars().filter(|letter| !letter.is_whitespace());
    letters.flat_map(char::to_lowercase).collect()
}

/// The objects of an output.
pub(super) fn records<'b, 'a>(section: &'b Section<'a>) -> Vec<Record<'b, 'a>> {
    let dashes = section.lines.iter().position(is_dashes);
    match dashes.and_then(|at| Some((at, at.checked_sub(1)?))) {
        // Dashes below a line of heads, and not those within the value of a list.
        Some((at, heads)) if !section.lines[heads].text.contains(':') => table(section, heads, at),
        _ => lists(section),
    }
}

fn is_dashes(line: &Line<'_>) -> bool {
    line.text.starts_with("--") && line.text.chars().all(|letter| matches!(letter, '-' | ' '))
}

/// A list of objects: a key that the object has already begins the next one.
fn lists<'b, 'a>(section: &'b Section<'a>) -> Vec<Record<'b, 'a>> {
    let mut found: Vec<Record<'b, 'a>> = Vec::new();
    for line in &section.lines {
        let Some((key, value)) = line.text.split_once(':') else {
            continue;
        };
        let key = key_of(key);
        let begins_next = match found.last() {
            None => true,
            Some(last) => last.fields.first().is_some_and(|(first, ..)| *first == key),
        };
        if begins_next {
            found.push(Record { fields: Vec::new() });
        }
        if let Some(last) = found.last_mut() {
            last.fields.push((key, line, value.trim()));
        }
    }
    found
}

/// A table: a column reaches from its first dash to the first dash of the next one.
fn table<'b, 'a>(section: &'b Section<'a>, heads: usize, dashes: usize) -> Vec<Record<'b, 'a>> {
    let begins = begins(&section.lines[dashes]);
    let heads = &section.lines[heads];
    let cell = |line: &'b Line<'a>, index: usize| {
        let place = |at: Option<&usize>| {
            let letter = at?.checked_sub(line.indent)?;
            line.text.char_indices().nth(letter).map(|(byte, _)| byte)
        };
        let from = match begins.get(index) {
            Some(at) if *at < line.indent => Some(0),
            at => place(at),
        };
        let to = match begins.get(index + 1) {
            Some(at) if *at < line.indent => Some(0),
            at => place(at).or(Some(line.text.len())),
        };
        let range = from.zip(to).filter(|(from, to)| from <= to);
        range.map_or("", |(from, to)| line.text[from..to].trim())
    };
    let keys: Vec<String> = (0..begins.len())
        .map(|index| key_of(cell(heads, index)))
        .collect();
    let row = |line: &'b Line<'a>| Record {
        fields: (0..begins.len())
            .map(|index| (keys[index].clone(), line, cell(line, index)))
            .collect(),
    };
    section.lines[dashes + 1..].iter().map(row).collect()
}

/// The places of the first dash of each column.
fn begins(dashes: &Line<'_>) -> Vec<usize> {
    let mut before = ' ';
    let mut found = Vec::new();
    for (at, letter) in (dashes.indent..).zip(dashes.text.chars()) {
        if letter == '-' && before == ' ' {
            found.push(at);
        }
        before = letter;
    }
    found.truncate(COLUMNS_MAX);
    found
}

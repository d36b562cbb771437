//! Objects that PowerShell prints: as lists (`Key : Value`), as tables with dashes below the heads, as JSON
//! (`ConvertTo-Json`), or as CSV (`Export-Csv`, `ConvertTo-Csv`).

use serde_json::Value;

use crate::sections::Section;
use crate::text::{Line, ReadError};

/// Columns of a table at most.
const COLUMNS_MAX: usize = 64;

/// The fields of one object: keys in small letters and without blanks, each with its line and value.
pub(super) struct Record<'b, 'a> {
    fields: Vec<(String, &'b Line<'a>, String)>,
}

impl<'b, 'a> Record<'b, 'a> {
    /// The line and the value of a field that is not empty.
    pub(super) fn get(&self, key: &str) -> Option<(&'b Line<'a>, &str)> {
        let found = self.fields.iter().find(|(own, ..)| own == key);
        let found = found.map(|(_, line, value)| (*line, value.as_str()));
        found.filter(|(_, value)| !value.is_empty())
    }

    /// Whether the object has a field, if only an empty one.
    pub(super) fn has(&self, key: &str) -> bool {
        self.fields.iter().any(|(own, ..)| own == key)
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
///
/// # Errors
/// JSON that is none.
pub(super) fn records<'b, 'a>(section: &'b Section<'a>) -> Result<Vec<Record<'b, 'a>>, ReadError> {
    let lines = &section.lines;
    let begins = |index: usize, sign: &[char]| {
        lines
            .get(index)
            .is_some_and(|line| line.text.starts_with(sign))
    };
    if begins(0, &['{', '[']) {
        return json(section);
    }
    // Export-Csv of PowerShell 5.1 writes the type of the objects first.
    let heads = usize::from(
        lines
            .first()
            .is_some_and(|line| line.text.starts_with("#TYPE ")),
    );
    if begins(heads, &['"']) && lines[heads].text.contains("\",\"") {
        return csv(section, heads);
    }
    let dashes = lines.iter().position(is_dashes);
    Ok(match dashes.and_then(|at| Some((at, at.checked_sub(1)?))) {
        // Dashes below a line of heads, and not those within the value of a list.
        Some((at, heads)) if !lines[heads].text.contains(':') => table(section, heads, at),
        _ => lists(section),
    })
}

/// One object, or an array of several. Objects within objects have no fields here.
fn json<'b, 'a>(section: &'b Section<'a>) -> Result<Vec<Record<'b, 'a>>, ReadError> {
    let Some(node) = crate::json::read(section)? else {
        return Ok(Vec::new());
    };
    let objects = match node.value() {
        Value::Array(objects) => objects.as_slice(),
        object => std::slice::from_ref(object),
    };
    let mut found = Vec::new();
    // Fields of one object follow those of the object before.
    let mut at = 0;
    for object in objects {
        let mut fields = Vec::new();
        for (key, value) in object.as_object().into_iter().flatten() {
            let quoted = format!("\"{key}\"");
            let after = (at..section.lines.len())
                .find(|index| section.lines[*index].text.contains(&quoted));
            let line = &section.lines[after.unwrap_or(at).min(section.lines.len() - 1)];
            fields.push((key_of(key), line, text_of(value)));
        }
        at = fields
            .iter()
            .filter_map(|(_, line, _)| section.lines.iter().position(|own| own == *line))
            .max()
            .map_or(at, |last| last + usize::from(objects.len() > 1))
            .min(section.lines.len().saturating_sub(1));
        found.push(Record { fields });
    }
    Ok(found)
}

fn text_of(value: &Value) -> String {
    match value {
        Value::Bool(on) => (if *on { "True" } else { "False" }).to_owned(),
        Value::String(text) => text.trim().to_owned(),
        Value::Number(number) => number.to_string(),
        Value::Array(values) => values.iter().map(text_of).collect::<Vec<_>>().join(", "),
        Value::Null | Value::Object(_) => String::new(),
    }
}

/// Rows of values between quotes, of which two within a value are one.
fn csv<'b, 'a>(section: &'b Section<'a>, heads: usize) -> Result<Vec<Record<'b, 'a>>, ReadError> {
    let keys: Vec<String> = cells(section.lines[heads].text)
        .iter()
        .map(|head| key_of(head))
        .collect();
    section.lines[heads + 1..]
        .iter()
        .map(|line| {
            let cells = cells(line.text);
            match cells.len() == keys.len() {
                true => Ok(Record {
                    fields: keys
                        .iter()
                        .cloned()
                        .zip(cells)
                        .map(|(key, cell)| (key, line, cell))
                        .collect(),
                }),
                false => {
                    Err(section.wrong(line, "the row has not as many values as the first one"))
                }
            }
        })
        .collect()
}

fn cells(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let (mut cell, mut is_open) = (String::new(), false);
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '"' if is_open => match letters.next_if_eq(&'"') {
                Some(_) => cell.push('"'),
                None => is_open = false,
            },
            '"' => is_open = true,
            ',' if !is_open => found.push(core::mem::take(&mut cell)),
            _ => cell.push(letter),
        }
    }
    found.push(cell);
    found
}

/// Whether a line is the one below the heads of a table.
pub(super) fn is_dashes(line: &Line<'_>) -> bool {
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
            last.fields.push((key, line, value.trim().to_owned()));
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
            .map(|index| (keys[index].clone(), line, cell(line, index).to_owned()))
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

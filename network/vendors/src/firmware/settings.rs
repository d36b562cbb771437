//! `mlxconfig query`: settings of the firmware, now and after the next reset.

use super::cards::card;
use crate::facts::{FirmwareSetting, HostFacts};
use crate::sections::Section;
use crate::text::ReadError;

/// Beginnings of lines that are no settings.
const OTHERS: &[&str] = &[
    "Device",
    "---",
    "Name:",
    "Description:",
    "The '*'",
    "-W-",
    "PCI device",
    "Configurations:",
];

/// Takes the rows: the name and the value at the next boot, or with `-e` those by default, now and then.
pub(super) fn take(section: &Section<'_>, host: &mut HostFacts) -> Result<(), ReadError> {
    let target = section.argument("-d").or(section.argument("--dev"));
    let mut name = target.unwrap_or_default().to_owned();
    let mut has_current = false;
    for line in &section.lines {
        if let Some(heads) = line.text.strip_prefix("Configurations:") {
            has_current = heads.contains("Current");
            continue;
        }
        // Without -d each card of the host follows in turn.
        if let Some(own) = line
            .text
            .strip_prefix("Device:")
            .or(line.text.strip_prefix("PCI device:"))
        {
            if target.is_none() {
                own.trim().clone_into(&mut name);
            }
            continue;
        }
        if OTHERS.iter().any(|begin| line.text.starts_with(begin)) {
            continue;
        }
        let text = line.text.trim_start_matches('*');
        let words: Vec<&str> = text.split_whitespace().collect();
        let is_name = |word: &str| {
            let letters = word.split('[').next().unwrap_or_default();
            !letters.is_empty()
                && letters
                    .chars()
                    .all(|it| it.is_ascii_uppercase() || it.is_ascii_digit() || it == '_')
        };
        let (key, current, next) = match (words.as_slice(), has_current) {
            ([key, next], false) if is_name(key) => (*key, None, *next),
            ([key, _, current, next], true) if is_name(key) => (*key, Some(*current), *next),
            _ => return Err(section.wrong(line, "a setting with its values was expected")),
        };
        let setting = FirmwareSetting {
            current: current.map(str::to_owned),
            next: next.to_owned(),
        };
        let fact = section.fact(line, setting);
        card(host, &name).settings.insert(key.to_owned(), fact);
    }
    Ok(())
}

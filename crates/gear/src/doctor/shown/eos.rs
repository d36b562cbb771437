//! Arista EOS: `show priority-flow-control`, in the layout with words and in that with letters for the
//! status.

use super::super::sections::Section;
use super::Shown;
use super::table::tables;
use crate::text::{ReadError, mask};

pub(super) fn priority_flow_control(section: &Section<'_>, shown: &mut Shown) -> Result<(), ReadError> {
    letters(section, shown)?;
    for table in tables(section) {
        let columns = (table.column("Port"), table.column("Enabled"), table.column("Priorities"));
        let ((Some(port), Some(enabled), Some(priorities)), Some(active)) = (columns, table.column("Active"))
        else {
            continue;
        };
        for (line, cells) in &table.rows {
            let yes = |text: &str| match text {
                "Yes" => Ok(true),
                "No" => Ok(false),
                _ => Err(section.wrong(line, "Yes or No was expected")),
            };
            let (enabled, active) = (yes(&cells[enabled])?, yes(&cells[active])?);
            let digits = cells[priorities].split(|letter: char| !letter.is_ascii_digit());
            let numbers: Vec<u8> = digits
                .filter(|word| !word.is_empty())
                .map(|word| section.number(line, word))
                .collect::<Result<_, _>>()?;
            if numbers.iter().any(|number| *number > 7) {
                return Err(section.wrong(line, "priorities are from 0 to 7"));
            }
            let own = shown.port(&cells[port]);
            own.pfc_enabled = Some(section.fact(line, enabled));
            own.pfc = Some(section.fact(line, if active { mask(&numbers) } else { 0 }));
        }
    }
    Ok(())
}

/// Rows `Et1  E A -  3  …`: enabled or disabled, active, watchdog, and a digit for each priority.
fn letters(section: &Section<'_>, shown: &mut Shown) -> Result<(), ReadError> {
    for line in &section.lines {
        let words = line.words();
        let [port, enabled @ ("E" | "D"), active @ ("A" | "-"), "W" | "-", rest @ ..] = words.as_slice()
        else {
            continue;
        };
        let digits = rest.first().filter(|word| word.chars().all(|letter| letter.is_ascii_digit()));
        let priorities = match (*active, digits) {
            ("A", Some(digits)) => digits.bytes().map(|digit| digit - b'0').collect(),
            ("A", None) => return Err(section.wrong(line, "the priorities were expected")),
            _ => Vec::new(),
        };
        if priorities.iter().any(|priority| *priority > 7) {
            return Err(section.wrong(line, "priorities are from 0 to 7"));
        }
        let own = shown.port(port);
        own.pfc_enabled = Some(section.fact(line, *enabled == "E"));
        own.pfc = Some(section.fact(line, mask(&priorities)));
    }
    Ok(())
}

//! The entries that a command selects: by numbers, names, `numbers=`, or `[ find … ]`.

use std::collections::BTreeMap;

use super::find::Condition;
use super::script::ScriptCommand;

/// Why a command is not understood, and what to write instead.
pub(super) type Refusal = (String, Option<String>);

/// An entry of a menu, by its properties as `find` sees them.
pub(super) type Entry = BTreeMap<&'static str, String>;

/// An entry of these properties.
pub(super) fn entry<const N: usize>(properties: [(&'static str, String); N]) -> Entry {
    BTreeMap::from(properties)
}

/// The value of a property that is yes or no.
pub(super) fn yes_or_no(on: bool) -> String {
    if on { "yes" } else { "no" }.to_owned()
}

/// The entries that a command selects, by their places; none where a query matches none.
pub(super) fn chosen(command: &ScriptCommand, all: &[Entry]) -> Result<Vec<usize>, Refusal> {
    let numbers = command
        .properties
        .iter()
        .filter(|(name, _)| name == "numbers")
        .map(|(_, value)| value.as_str());
    let mut found = Vec::new();
    let mut is_any = false;
    for text in command.entries.iter().map(String::as_str).chain(numbers) {
        is_any = true;
        if let Some(query) = text.strip_prefix('[') {
            found.extend(queried(query, all)?);
        } else {
            found.extend(named(text, all)?);
        }
    }
    if !is_any {
        let instead = Some("its name, its number, or [find]".to_owned());
        return Err((format!("{} needs an entry", command.verb), instead));
    }
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

/// The entries that `find` selects; `query` is what follows the bracket.
fn queried(query: &str, all: &[Entry]) -> Result<Vec<usize>, Refusal> {
    let refuse = |what: String| (what, None);
    let inner = query.trim().strip_suffix(']').unwrap_or(query).trim();
    let condition = inner
        .strip_prefix("find")
        .ok_or_else(|| refuse(format!("the command [{inner}] is not evaluated")))?;
    let condition = Condition::parse(condition).map_err(refuse)?;
    let mut found = Vec::new();
    for (index, entry) in all.iter().enumerate() {
        let value = |name: &str| entry.get(name).cloned();
        if condition.holds(&value).map_err(refuse)? {
            found.push(index);
        }
    }
    Ok(found)
}

/// Entries by name or number, several with commas between them.
fn named(text: &str, all: &[Entry]) -> Result<Vec<usize>, Refusal> {
    let name = |entry: &Entry| entry.get("name").cloned().unwrap_or_default();
    if let Some(whole) = all.iter().position(|entry| name(entry) == text) {
        return Ok(vec![whole]);
    }
    let mut found = Vec::new();
    for part in parts(text) {
        let part = part.as_str();
        let by_name = all.iter().position(|entry| name(entry) == part);
        let by_number = part
            .parse::<usize>()
            .ok()
            .filter(|index| *index < all.len());
        let index = by_name.or(by_number).ok_or_else(|| {
            let names: Vec<String> = all
                .iter()
                .map(name)
                .filter(|name| !name.is_empty())
                .collect();
            let meant = crate::text::nearest(part, names.iter().map(String::as_str));
            let instead = match meant {
                Some(meant) => format!("did you mean \"{meant}\"?"),
                None if names.is_empty() => format!("there are {}, from number 0", all.len()),
                None => format!("there are {}", names.join(", ")),
            };
            (format!("there is no entry \"{part}\""), Some(instead))
        })?;
        found.push(index);
    }
    Ok(found)
}

/// Names with commas between them; a name with blanks or commas is within quotes.
fn parts(text: &str) -> Vec<String> {
    let mut found = vec![String::new()];
    let (mut is_quoted, mut is_escaped) = (false, false);
    for letter in text.chars() {
        match letter {
            '"' if !is_escaped => is_quoted = !is_quoted,
            ',' if !is_quoted => {
                found.push(String::new());
                continue;
            }
            _ => {}
        }
        is_escaped = letter == '\\' && !is_escaped;
        found
            .last_mut()
            .into_iter()
            .for_each(|part| part.push(letter));
    }
    found
        .iter()
        .map(|part| super::script::unquote(part))
        .collect()
}

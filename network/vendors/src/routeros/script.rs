//! RouterOS scripts as `/export` writes them: a menu, then commands with properties.

use crate::import_error::ImportError;

/// One command of a script, with the menu that it is given in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ScriptCommand {
    /// The number of the command's first line, from 1.
    pub(crate) line: usize,
    /// The menu that it is given in, its words parted by single spaces.
    pub(crate) menu: String,
    /// `add`, `set`, …
    pub(crate) verb: String,
    /// Words without `=`: numbers and names of entries, or the words of `[ find … ]`.
    pub(crate) entries: Vec<String>,
    /// `name=value`, in order.
    pub(crate) properties: Vec<(String, String)>,
}

const VERBS: &[&str] = &[
    "add", "set", "remove", "print", "export", "monitor", "reset", "enable", "disable",
];

/// The commands of a script.
pub(crate) fn commands(file: &str, text: &str) -> Result<Vec<ScriptCommand>, ImportError> {
    let mut commands = Vec::new();
    let mut menu = String::new();
    for (line, logical) in logical_lines(text) {
        let wrong = |what: String| ImportError {
            file: file.to_owned(),
            line,
            what,
            instead: None,
        };
        let mut words = words(&logical).map_err(wrong)?;
        let Some(first) = words.first() else { continue };
        if let Some(path) = first.strip_prefix('/') {
            let mut path: Vec<String> = path
                .split('/')
                .filter(|part| !part.is_empty())
                .map(long_form)
                .collect();
            words.remove(0);
            while words
                .first()
                .is_some_and(|word| !VERBS.contains(&word.as_str()) && !word.contains('='))
            {
                path.extend(words.remove(0).split('/').map(long_form));
            }
            menu = path.join(" ");
        }
        if words.is_empty() {
            continue;
        }
        let verb = words.remove(0);
        if !VERBS.contains(&verb.as_str()) {
            return Err(wrong(format!(
                "\"{verb}\" is no command here: a line is a menu, or add or set"
            )));
        }
        let (mut entries, mut properties) = (Vec::new(), Vec::new());
        for word in words {
            match word.split_once('=') {
                Some((name, value)) if !word.starts_with('[') => {
                    properties.push((name.to_owned(), unquote(value)));
                }
                _ => entries.push(unquote(&word)),
            }
        }
        commands.push(ScriptCommand {
            line,
            menu: menu.clone(),
            verb,
            entries,
            properties,
        });
    }
    Ok(commands)
}

/// `in eth sw` is an accepted short form.
fn long_form(word: &str) -> String {
    match word {
        "in" | "int" => "interface",
        "eth" => "ethernet",
        "sw" => "switch",
        other => other,
    }
    .to_string()
}

/// Lines with continuations joined, numbered by their first; without comments.
fn logical_lines(text: &str) -> Vec<(usize, String)> {
    let mut lines: Vec<(usize, String)> = Vec::new();
    let mut open = false;
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim_end();
        let part = if open { line.trim_start() } else { line.trim() };
        let (part, continued) = part
            .strip_suffix('\\')
            .map_or((part, false), |part| (part, true));
        match lines.last_mut().filter(|_| open) {
            Some((_, whole)) => whole.push_str(part),
            None if part.starts_with('#') || part.is_empty() => {}
            None => lines.push((number, part.to_owned())),
        }
        open = continued;
    }
    lines
}

/// Words, where quotes and brackets keep blanks.
fn words(line: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let (mut quoted, mut depth) = (false, 0_u32);
    for letter in line.chars() {
        match letter {
            '"' => quoted = !quoted,
            '[' if !quoted => depth += 1,
            ']' if !quoted => depth = depth.checked_sub(1).ok_or("a ] without its [")?,
            _ => {}
        }
        if letter.is_whitespace() && !quoted && depth == 0 {
            if !word.is_empty() {
                words.push(core::mem::take(&mut word));
            }
        } else {
            word.push(letter);
        }
    }
    if quoted || depth > 0 {
        return Err("a quote or a bracket is not closed".to_owned());
    }
    words.extend(Some(word).filter(|word| !word.is_empty()));
    Ok(words)
}

fn unquote(text: &str) -> String {
    text.strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'))
        .unwrap_or(text)
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn menus_commands_and_continuations() {
        let text = "# by RouterOS 7.17\n/interface ethernet switch qos profile\n\
                    add name=\"a b\" \\\n    traffic-\\\nclass=3\n\
                    /in/eth/sw/qos/port set [ find where name=x ] pfc=y\nset 3 weight=2\n";
        let commands = commands("x.rsc", text).unwrap();
        assert_eq!(commands[0].line, 3);
        assert_eq!(commands[0].menu, "interface ethernet switch qos profile");
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(
            commands[0].properties,
            [pair("name", "a b"), pair("traffic-class", "3")]
        );
        assert_eq!(
            (commands[1].line, commands[1].menu.as_str()),
            (6, "interface ethernet switch qos port")
        );
        assert_eq!(commands[1].entries, ["[ find where name=x ]"]);
        assert_eq!(commands[2].entries, ["3"]);
    }

    #[test]
    fn what_is_no_command_is_named_with_its_line() {
        let error = commands("x.rsc", "/interface ethernet\n\nset a=\"b\n").unwrap_err();
        assert_eq!(
            error.to_string(),
            "x.rsc:3: a quote or a bracket is not closed"
        );
        assert!(
            commands("x.rsc", "/ip neighbor\nfrobnicate a=b")
                .unwrap_err()
                .to_string()
                .contains("x.rsc:2: \"frob")
        );
    }
}

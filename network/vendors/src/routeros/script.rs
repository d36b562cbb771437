//! RouterOS scripts as `/export` writes them: a menu, then commands with properties; and as people write
//! them: the command in the path, several commands in a line, and menus relative to the last one.

use super::config::RouterOsVersion;
use crate::outcome::Outcomes;
use crate::text::{Line, ReadError, shortened};

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
    /// `name=value`, in order. A property that is unset (`!name`) has an empty value.
    pub(crate) properties: Vec<(String, String)>,
}

impl ScriptCommand {
    /// The command as text, for messages.
    pub(super) fn text(&self) -> String {
        let properties = self
            .properties
            .iter()
            .map(|(name, value)| format!("{name}={value}"));
        let words = self.entries.iter().cloned().chain(properties);
        let words: Vec<String> = words.collect();
        shortened(&format!("{} {}", self.verb, words.join(" ")))
    }
}

/// A script: its commands, and what became of lines that are none.
#[derive(Default, Debug)]
pub(crate) struct Script {
    pub(crate) commands: Vec<ScriptCommand>,
    pub(crate) outcomes: Outcomes,
    /// The version that the header of an export names.
    pub(crate) version: Option<RouterOsVersion>,
    /// The model that the header of an export names.
    pub(crate) model: Option<String>,
}

const VERBS: &[&str] = &[
    "add",
    "set",
    "remove",
    "unset",
    "enable",
    "disable",
    "edit",
    "move",
    "comment",
    "print",
    "export",
    "monitor",
    "reset",
    "reset-counters",
    "find",
    "get",
];

/// Menus with the menus below them, as far as shortened names are understood.
const MENUS: &[(&str, &[&str])] = &[
    ("", &["interface", "ip", "system", "import"]),
    (
        "interface",
        &[
            "ethernet",
            "bridge",
            "bonding",
            "vlan",
            "list",
            "eoip",
            "wireguard",
        ],
    ),
    ("interface ethernet", &["switch", "poe"]),
    (
        "interface ethernet switch",
        &["qos", "port", "rule", "vlan", "host"],
    ),
    (
        "interface ethernet switch qos",
        &[
            "profile",
            "map",
            "tx-manager",
            "port",
            "priority-flow-control",
            "settings",
        ],
    ),
    ("interface ethernet switch qos map", &["ip", "vlan"]),
    ("interface ethernet switch qos tx-manager", &["queue"]),
    ("ip", &["neighbor"]),
    ("ip neighbor", &["discovery-settings"]),
];

/// Commands of the scripting language that change no setting.
const WITHOUT_EFFECT: &[&str] = &[":put", ":log", ":delay", ":beep", ":error"];

/// The script in a text.
///
/// # Errors
/// A block that is not closed: what belongs to it is unknown, and so is the rest.
pub(crate) fn script(file: &str, text: &str) -> Result<Script, ReadError> {
    let logical = logical_lines(file, text)?;
    let lines: Vec<Line<'_>> = logical
        .iter()
        .map(|(number, text)| Line {
            number: *number,
            indent: 0,
            text,
        })
        .collect();
    let (version, model) = header(text);
    let mut script = Script {
        outcomes: Outcomes::of(file, &lines),
        version,
        model,
        ..Script::default()
    };
    let mut menu: Vec<String> = Vec::new();
    for line in &lines {
        let odd = |what: String| {
            let text = shortened(line.text);
            ReadError::new(file, line.number, format!("\"{text}\": {what}"))
        };
        let commands = split(line.text).unwrap_or_else(|what| {
            script.outcomes.not_understood(&odd(what));
            Vec::new()
        });
        for words in commands {
            match command(line.number, words, &mut menu) {
                Ok(Some(command)) => script.commands.push(command),
                Ok(None) => script.outcomes.applied(line.number),
                Err(None) => script.outcomes.irrelevant(line.number),
                Err(Some(what)) => script.outcomes.not_understood(&odd(what)),
            }
        }
    }
    Ok(script)
}

/// A command of its words; `None` where they only choose a menu.
///
/// # Errors
/// What is not understood; nothing where the command changes no setting.
fn command(
    line: usize,
    mut words: Vec<String>,
    menu: &mut Vec<String>,
) -> Result<Option<ScriptCommand>, Option<String>> {
    let Some(first) = words.first() else {
        return Ok(None);
    };
    if WITHOUT_EFFECT.contains(&first.as_str()) {
        return Err(None);
    }
    if first.starts_with(':') || first.starts_with('{') || first == "}" {
        let name = first.trim_start_matches(':');
        return Err(Some(format!(
            "{name} is not evaluated: variables, conditions and loops have no effect here"
        )));
    }
    let is_absolute = first.starts_with('/');
    let mut path = if is_absolute {
        Vec::new()
    } else {
        menu.clone()
    };
    let mut verb = None;
    while verb.is_none() && words.first().is_some_and(|word| !is_argument(word)) {
        let word = words.remove(0);
        let mut parts = word.split('/').filter(|part| !part.is_empty()).peekable();
        while let Some(part) = parts.next() {
            if VERBS.contains(&part) && parts.peek().is_none() {
                verb = Some(part.to_owned());
            } else if part == ".." {
                path.pop();
            } else {
                path.push(long_form(&path, part));
            }
        }
    }
    let Some(verb) = verb else {
        return match words.is_empty() {
            // A menu, or a word that is none: a menu that does not exist is reported with its commands.
            true if is_absolute || is_menu(&path) => {
                *menu = path;
                Ok(None)
            }
            _ => Err(Some(no_command(path.last()))),
        };
    };
    if is_absolute {
        menu.clone_from(&path);
    } else if path != *menu && is_menu(menu) && !is_menu(&path) {
        let name = path.join(" ");
        return Err(Some(format!("\"{name}\" is no menu")));
    }
    let (mut entries, mut properties) = (Vec::new(), Vec::new());
    for word in words {
        match word.split_once('=') {
            Some((name, value)) if !word.starts_with(['[', '"']) => {
                properties.push((name.to_owned(), unquote(value)));
            }
            _ => match word.strip_prefix('!') {
                Some(name) => properties.push((name.to_owned(), String::new())),
                None => entries.push(unquote(&word)),
            },
        }
    }
    Ok(Some(ScriptCommand {
        line,
        menu: path.join(" "),
        verb,
        entries,
        properties,
    }))
}

fn no_command(word: Option<&String>) -> String {
    let word = word.map_or("", String::as_str);
    format!("\"{word}\" is no command here: a line is a menu, or add, set, remove or unset")
}

/// Whether a word cannot be of a path.
fn is_argument(word: &str) -> bool {
    word.contains('=') || word.starts_with(['[', '"', '!', '$', '*'])
}

/// Whether a path is a menu that is known.
fn is_menu(path: &[String]) -> bool {
    let name = path.join(" ");
    let below = |(above, below): &(&str, &[&str])| {
        below.iter().any(|own| match above.is_empty() {
            true => *own == name,
            false => format!("{above} {own}") == name,
        })
    };
    MENUS.iter().any(below)
}

/// The name of a menu that is shortened to its first letters, as in `/in/eth/sw`.
fn long_form(path: &[String], word: &str) -> String {
    let above = path.join(" ");
    let below = MENUS.iter().find(|(name, _)| *name == above);
    let names = below.map_or(&[][..], |(_, below)| below);
    if word.len() < 2 || names.contains(&word) {
        return word.to_owned();
    }
    let mut fits = names.iter().filter(|name| name.starts_with(word));
    match (fits.next(), fits.next()) {
        (Some(name), None) => (*name).to_owned(),
        _ => word.to_owned(),
    }
}

/// The version and the model of a header: `# 2026-07-24 10:11:12 by RouterOS 7.23.1`, `# model = …`, and
/// `# For routeros@7.23`, as rockery writes it.
fn header(text: &str) -> (Option<RouterOsVersion>, Option<String>) {
    let comments = text
        .lines()
        .map(str::trim)
        .take_while(|line| line.is_empty() || line.starts_with('#'));
    let (mut version, mut model) = (None, None);
    for line in comments {
        let after = |word: &str| line.split_once(word).map(|(_, rest)| rest.trim_start());
        if let Some(rest) = after("RouterOS ").or_else(|| after("routeros@")) {
            let rest = rest.trim_start_matches('v');
            version = version.or_else(|| RouterOsVersion::parse(rest));
        }
        if let Some(rest) = after("model = ") {
            model = Some(rest.to_owned());
        }
    }
    (version, model)
}

/// Lines with continuations and blocks joined, numbered by their first; without comments.
fn logical_lines(file: &str, text: &str) -> Result<Vec<(usize, String)>, ReadError> {
    let mut lines: Vec<(usize, String)> = Vec::new();
    let (mut open, mut depth, mut is_quoted) = (false, 0_u32, false);
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim_end();
        let is_joined = open || depth > 0;
        let part = if is_joined {
            line.trim_start()
        } else {
            line.trim()
        };
        if !open && !is_quoted && (part.starts_with('#') || part.is_empty()) {
            continue;
        }
        let (part, continued) = part
            .strip_suffix('\\')
            .map_or((part, false), |part| (part, true));
        match lines.last_mut().filter(|_| is_joined) {
            Some((_, whole)) => {
                // Commands of a block are apart.
                if !open {
                    whole.push_str("; ");
                }
                whole.push_str(part);
            }
            None => lines.push((number, part.to_owned())),
        }
        open = continued;
        let mut is_escaped = false;
        for letter in part.chars() {
            match letter {
                _ if is_escaped => {}
                '"' => is_quoted = !is_quoted,
                '{' if !is_quoted => depth += 1,
                '}' if !is_quoted => depth = depth.saturating_sub(1),
                _ => {}
            }
            is_escaped = letter == '\\' && !is_escaped;
        }
        // A text does not go on in the next line.
        is_quoted &= continued;
    }
    match lines.last() {
        Some((number, _)) if depth > 0 => {
            let what = "a block { that begins in this line is not closed";
            Err(ReadError::new(file, *number, what))
        }
        _ => Ok(lines),
    }
}

/// The words of a line with one command.
#[cfg(test)]
pub(crate) fn words_of(line: &str) -> Result<Vec<String>, String> {
    let commands = split(line)?;
    match <[Vec<String>; 1]>::try_from(commands) {
        Ok([words]) => Ok(words),
        Err(commands) => Err(format!("{} commands", commands.len())),
    }
}

/// The words of each command of a line; commands are parted by `;`. Quotes and brackets keep blanks.
fn split(line: &str) -> Result<Vec<Vec<String>>, String> {
    let mut commands = vec![Vec::new()];
    let mut word = String::new();
    let (mut is_quoted, mut is_escaped, mut depth) = (false, false, 0_u32);
    let end = |word: &mut String, commands: &mut Vec<Vec<String>>| {
        if !word.is_empty() {
            let words = commands.last_mut().into_iter();
            words.for_each(|words: &mut Vec<String>| words.push(core::mem::take(word)));
        }
    };
    for letter in line.chars() {
        match letter {
            _ if is_escaped => {}
            '"' => is_quoted = !is_quoted,
            '[' | '{' | '(' if !is_quoted => depth += 1,
            ']' | '}' | ')' if !is_quoted => {
                depth = depth
                    .checked_sub(1)
                    .ok_or("a bracket is closed that is not open")?;
            }
            _ => {}
        }
        let is_inside = is_quoted || depth > 0;
        is_escaped = letter == '\\' && !is_escaped;
        match letter {
            ';' if !is_inside => {
                end(&mut word, &mut commands);
                commands.push(Vec::new());
            }
            _ if letter.is_whitespace() && !is_inside => end(&mut word, &mut commands),
            _ => word.push(letter),
        }
    }
    if is_quoted || depth > 0 {
        return Err("a quote or a bracket is not closed".to_owned());
    }
    end(&mut word, &mut commands);
    Ok(commands)
}

pub(super) fn unquote(text: &str) -> String {
    let inner = text
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'));
    match inner {
        Some(inner) => crate::names::of_routeros(inner),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commands(text: &str) -> Vec<ScriptCommand> {
        script("x.rsc", text).unwrap().commands
    }

    #[test]
    fn menus_commands_and_continuations() {
        let text = "# by RouterOS 7.17\n/interface ethernet switch qos profile\n\
                    add name=\"a b\" \\\n    traffic-\\\nclass=3\n\
                    /in/eth/sw/qos/port set [ find where name=x ] pfc=y\nset 3 weight=2\n";
        let commands = commands(text);
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
    fn forms_that_people_write() {
        let port = "interface ethernet switch qos port";
        for (text, menu, verb, entries) in [
            (
                "/interface/ethernet/switch/qos/port/set a pfc=x",
                port,
                "set",
                "a",
            ),
            (
                "/interface/ethernet/switch/qos/port/set [find name=\"a;b\"]",
                port,
                "set",
                "[find name=\"a;b\"]",
            ),
            (
                "/interface ethernet switch qos\nport set a pfc=x",
                port,
                "set",
                "a",
            ),
            (
                "/interface ethernet switch qos map\n.. port set a",
                port,
                "set",
                "a",
            ),
            (
                "/ip address print; /in/eth/sw/qos/po unset a pfc",
                port,
                "unset",
                "a pfc",
            ),
            (
                "/interface ethernet switch qos port set a !pfc",
                port,
                "set",
                "a",
            ),
        ] {
            let found = commands(text);
            let last = found.last().unwrap();
            let shown = (
                last.menu.as_str(),
                last.verb.as_str(),
                last.entries.join(" "),
            );
            assert_eq!(shown, (menu, verb, entries.to_owned()), "{text}");
        }
        let two = commands("/ip address; add a=b; set 0 c=\"d ; e\"");
        assert_eq!((two.len(), two[1].properties[0].1.as_str()), (2, "d ; e"));
    }

    #[test]
    fn headers_name_version_and_model() {
        let text = "# 2026-07-24 10:11:12 by RouterOS 7.23.1\n# model = CRS504-4XQ\n/ip address\n";
        let script = script("x.rsc", text).unwrap();
        assert_eq!(script.version, Some(RouterOsVersion(7, 23)));
        assert_eq!(script.model.as_deref(), Some("CRS504-4XQ"));
    }

    #[test]
    fn what_is_no_command_is_named_with_its_line() {
        for (text, expected) in [
            (
                "/interface ethernet\n\nset a=\"b\nset b l2mtu=9000\n",
                "x.rsc:3: \"set a=\"b\": a quote",
            ),
            (
                "/ip neighbor\nfrobnicate a=b",
                "x.rsc:2: \"frobnicate a=b\": \"frobnicate\" is no command",
            ),
            (
                ":foreach p in={1;2} do={\n  /ip address add x=$p\n}\n",
                "x.rsc:1: \":foreach p in={1;2} do=",
            ),
        ] {
            let left = script("x.rsc", text).unwrap().outcomes.left();
            let first = left.first().map(ToString::to_string).unwrap_or_default();
            assert!(first.starts_with(expected), "{first}");
        }
        let error = script("x.rsc", "/ip address\n:if (a) do={\nadd x=y\n").unwrap_err();
        assert!(
            error.to_string().contains("line 2 of x.rsc: a block"),
            "{error}"
        );
    }
}

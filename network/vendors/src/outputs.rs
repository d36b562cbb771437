//! Facts from the outputs of a switch's commands: `show …`, each below a line `==> COMMAND <==` or below the
//! prompt with the command. A file may hold the running configuration as well.

use crate::dialect::Dialect;
use crate::sections::Section;
use crate::switch_facts::Shown;
use crate::text::{ReadError, lines};
use crate::{eos, nvue, nxos, routeros, sonic};

/// Outputs, and the running configuration if there is one among them.
pub struct Outputs {
    /// Facts of the ports.
    pub shown: Shown,
    /// The system whose commands were recognised.
    pub dialect: Option<Dialect>,
    /// The configuration, with empty lines before it, so that its lines keep their numbers.
    pub configuration: Option<String>,
}

/// The command of a line that begins an output.
fn command(line: &str) -> Option<&str> {
    if let Some(command) = line
        .trim()
        .strip_prefix("==> ")
        .and_then(|rest| rest.strip_suffix(" <=="))
    {
        return Some(command);
    }
    // RouterOS: "[admin@MikroTik] /interface/ethernet/switch/qos/port> print stats".
    let routeros = line
        .trim_start()
        .strip_prefix('[')
        .and_then(|rest| rest.split_once("] "));
    if let Some((user, rest)) = routeros
        && user.contains('@')
        && !user.contains(char::is_whitespace)
    {
        return Some(rest.trim());
    }
    // A prompt has no blanks: "leaf1#show pfc counters", "cumulus@leaf01:mgmt:~$ nv show qos roce".
    let at = line.find(['#', '$', '>'])?;
    let (prompt, rest) = line.split_at(at);
    let rest = rest[1..].trim();
    let is_prompt = !prompt.is_empty() && !prompt.contains(char::is_whitespace);
    let known = ["show ", "nv show ", "nv config show"]
        .iter()
        .any(|word| rest.starts_with(word));
    (is_prompt && known).then_some(rest)
}

/// Whether a text has outputs of commands in it.
pub fn has_outputs(text: &str) -> bool {
    text.lines().any(|line| command(line).is_some())
}

/// Reads outputs. Commands that are not known are not used by any rule.
///
/// # Errors
/// Lines of a known command that are not understood.
pub fn read(file: &str, text: &str) -> Result<Outputs, ReadError> {
    let mut found = Outputs {
        shown: Shown::default(),
        dialect: None,
        configuration: None,
    };
    let mut sections: Vec<Section<'_>> = Vec::new();
    for line in lines(file, text, &[])? {
        match (command(line.text), sections.last_mut()) {
            (Some(command), _) => sections.push(Section {
                file,
                command,
                head: line,
                lines: Vec::new(),
            }),
            (None, Some(section)) => section.lines.push(line),
            // Comments on the origin of outputs.
            (None, None) if line.text.starts_with('#') => {}
            (None, None) => {
                let what =
                    "outputs begin with \"==> COMMAND <==\" or with the prompt and the command";
                return Err(ReadError::new(file, line.number, what));
            }
        }
    }
    let mut menus = routeros::shown::Menus::default();
    for section in &sections {
        if routeros::shown::is_export(section.command) {
            found.configuration = Some(kept(section, text));
        } else if let Some(words) = routeros::shown::words(section.command) {
            if routeros::shown::take(section, &words, &mut menus, &mut found.shown)? {
                found.dialect = Some(Dialect::RouterOs);
            }
        } else {
            take(section, text, &mut found)?;
        }
    }
    menus.finish(&mut found.shown);
    Ok(found)
}

/// The words of a command up to a pipe, and whether its output is JSON.
fn words_of(command: &str) -> (Vec<&str>, bool) {
    let (before, after) = command.split_once('|').unwrap_or((command, ""));
    let all: Vec<&str> = before.split_whitespace().collect();
    let format = all
        .iter()
        .position(|word| matches!(*word, "-o" | "--output"));
    let format_is_json = format.is_some_and(|at| all.get(at + 1) == Some(&"json"));
    let json = format_is_json || after.split_whitespace().any(|word| word == "json");
    let end = if format_is_json {
        format.unwrap_or(all.len())
    } else {
        all.len()
    };
    (all[..end].to_vec(), json)
}

fn take(section: &Section<'_>, text: &str, found: &mut Outputs) -> Result<(), ReadError> {
    let (words, json) = words_of(section.command);
    let shown = &mut found.shown;
    let dialect = match words.as_slice() {
        ["show", "running-config" | "runningconfiguration", ..] | ["nv", "config", "show", ..] => {
            found.configuration = Some(kept(section, text));
            return Ok(());
        }
        ["nv", ..] => nvue(section, &words, json, shown)?,
        _ if json => eos_json(section, &words, shown)?,
        ["show", "pfc", "counters", ..] => Some(Dialect::Sonic),
        ["show", "pfc", "priority", ..] => {
            sonic::shown::priorities(section, shown).map(|()| Some(Dialect::Sonic))?
        }
        ["show", "pfcwd", "stats", ..] => {
            sonic::shown::watchdog(section, shown).map(|()| Some(Dialect::Sonic))?
        }
        ["show", "queue", "counters", ..] => {
            sonic::shown::queues(section, shown).map(|()| Some(Dialect::Sonic))?
        }
        ["show", "interfaces", "status", ..] if sonic::shown::is_own_status(section) => {
            sonic::shown::status(section, shown).map(|()| Some(Dialect::Sonic))?
        }
        ["show", "priority-flow-control"] | ["show", "priority-flow-control", "status"] => {
            eos::shown::priority_flow_control(section, shown).map(|()| Some(Dialect::Eos))?
        }
        ["show", "qos", "interfaces", .., "ecn"] => {
            eos::shown::ecn(section, &words, shown).map(|()| Some(Dialect::Eos))?
        }
        _ => nxos(section, &words, shown)?,
    };
    found.dialect = dialect.or(found.dialect);
    Ok(())
}

fn nvue(
    section: &Section<'_>,
    words: &[&str],
    json: bool,
    shown: &mut Shown,
) -> Result<Option<Dialect>, ReadError> {
    match (words, json) {
        (["nv", "show", "qos", "roce"], false) => nvue::shown::roce(section, &mut shown.all)?,
        (["nv", "show", "qos", "roce"], true) => nvue::shown::roce_json(section, &mut shown.all)?,
        (["nv", "show", "interface", name, "qos", "roce", "status"], false) => {
            nvue::shown::roce(section, shown.port(name))?;
        }
        (["nv", "show", "interface", name, "qos", "roce", "status"], true) => {
            nvue::shown::roce_json(section, shown.port(name))?;
        }
        (["nv", "show", "qos", "pfc", _], true) => nvue::shown::pfc_json(section, &mut shown.all)?,
        (["nv", "show", "qos", "congestion-control", _, ..], false) => {
            nvue::shown::congestion_control(section, &mut shown.all)?;
        }
        (
            [
                "nv",
                "show",
                "interface",
                name,
                "qos",
                "congestion-control",
                ..,
            ],
            false,
        ) => {
            nvue::shown::congestion_control(section, shown.port(name))?;
        }
        _ => return Ok(None),
    }
    Ok(Some(Dialect::Nvue))
}

fn eos_json(
    section: &Section<'_>,
    words: &[&str],
    shown: &mut Shown,
) -> Result<Option<Dialect>, ReadError> {
    match words {
        ["show", "interfaces"] => eos::shown::interfaces(section, shown)?,
        ["show", "interfaces", .., "counters", "queue", "detail"] => {
            eos::shown::drops(section, shown)?
        }
        ["show", "qos", "interfaces", .., "ecn", "counters", "queue"] => {
            eos::shown::marked(section, shown)?
        }
        _ => return Ok(None),
    }
    Ok(Some(Dialect::Eos))
}

fn nxos(
    section: &Section<'_>,
    words: &[&str],
    shown: &mut Shown,
) -> Result<Option<Dialect>, ReadError> {
    match words {
        ["show", "interface", .., "priority-flow-control"] => {
            nxos::shown::priority_flow_control(section, shown)?
        }
        ["show", "interface", .., "priority-flow-control", "detail"] => {
            nxos::shown::detail(section, shown)?
        }
        ["show", "queuing" | "queueing", "interface", ..] => {
            nxos::shown::queuing(section, words, shown)?
        }
        ["show", "queuing" | "queueing", "pfc-queue", ..] => nxos::shown::watchdog(section, shown)?,
        ["show", "policy-map", "interface", ..] => nxos::shown::policy_map(section, words, shown)?,
        _ => return Ok(None),
    }
    Ok(Some(Dialect::NxOs))
}

/// The lines of a section as they are, at their places.
fn kept(section: &Section<'_>, text: &str) -> String {
    let last = section
        .lines
        .last()
        .map_or(section.head.number, |line| line.number);
    let own = |number: usize| (section.head.number + 1..=last).contains(&number);
    let kept = (1..)
        .zip(text.lines())
        .take(last)
        .map(|(number, line)| if own(number) { line } else { "" });
    kept.collect::<Vec<_>>().join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::command;

    #[test]
    fn commands_are_found_behind_prompts_and_nothing_else_is() {
        for (line, expected) in [
            ("==> show pfc priority <==", Some("show pfc priority")),
            (
                "admin@sonic:~$ show pfc priority",
                Some("show pfc priority"),
            ),
            (
                "Leaf-1#show priority-flow-control",
                Some("show priority-flow-control"),
            ),
            (
                "cumulus@leaf01:mgmt:~$ nv show qos roce",
                Some("nv show qos roce"),
            ),
            ("[admin@MikroTik] > /export", Some("> /export")),
            (
                "[admin@MikroTik] /qos/port> print stats",
                Some("/qos/port> print stats"),
            ),
            ("[ 3.067686] mlx5_core 0000:b3:00.0: x", None),
            ("! Command: show running-config", None),
            ("# show pfc priority", None),
            ("   description a#show x y", None),
            ("Ethernet0    3,4", None),
        ] {
            assert_eq!(command(line), expected, "{line}");
        }
    }
}

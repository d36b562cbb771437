//! Facts from the outputs of a switch's commands: `show …`, each below a line `==> COMMAND <==` or below the
//! prompt with the command. A file may hold the running configuration as well.

use crate::dialect::Dialect;
use crate::outcome::Outcomes;
use crate::sections::{Section, check_count, read_each};
use crate::switch_facts::Shown;
use crate::text::{ReadError, lines};
use crate::{eos, junos, nvue, nxos, routeros, sonic};

/// Outputs, and the running configuration if there is one among them.
pub struct Outputs {
    /// Facts of the ports.
    pub shown: Shown,
    /// The system whose commands were recognised.
    pub dialect: Option<Dialect>,
    /// The configuration, with empty lines before it, so that its lines keep their numbers.
    pub configuration: Option<String>,
    /// Lines that were not understood, and commands whose outputs are not read.
    pub outcomes: Outcomes,
}

/// Commands whose outputs concern no rule, by their first words.
const IRRELEVANT: &[&str] = &[
    "show arp",
    "show boot",
    "show clock",
    "show cores",
    "show environment",
    "show feature",
    "show hostname",
    "show inventory",
    "show ip",
    "show ipv6",
    "show lldp",
    "show logging",
    "show mac",
    "show module",
    "show ntp",
    "show platform summary",
    "show running-config diff",
    "show uptime",
    "show users",
    "show version",
    "show vlan",
    "nv show system",
    "nv show platform",
    "nv show router bgp",
    "nv show router ospf",
    "nv show router pbr",
    "nv show router policy",
    "nv show router vrr",
    "nv show router vrrp",
    "nv show router igmp",
    "nv show router nexthop",
    "nv show bridge",
    "nv show vrf",
    "terminal",
    "exit",
];

/// Commands of SONiC whose outputs are known, and have nothing that a rule examines.
const OF_SONIC: &[&str] = &[
    "show pfc counters",
    "show pfcwd config",
    "show priority-group watermark",
    "show priority-group persistent-watermark",
    "show queue watermark",
    "show queue persistent-watermark",
    "show buffer_pool watermark",
    "show interfaces counters",
];

/// Whether a command begins with one of these words.
fn is_one(command: &str, of: &[&str]) -> bool {
    of.iter().any(|words| {
        let rest = command.strip_prefix(*words);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace))
    })
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
    // `rockery sim` prints the shell's prompt without a name.
    let is_bare = prompt.is_empty() && line.starts_with('$');
    let is_prompt = is_bare || (!prompt.is_empty() && !prompt.contains(char::is_whitespace));
    let known = ["show ", "nv show ", "nv config show", "sonic-db-cli "]
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
        outcomes: Outcomes::of(file, &[]),
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
                let error = ReadError::new(file, line.number, what);
                found.outcomes.not_understood(&error);
            }
        }
    }
    check_count(&sections)?;
    let mut facts = (routeros::shown::Menus::default(), Shown::default());
    for section in &sections {
        if is_configuration(section.command) {
            found.configuration = Some(kept(section, text));
            continue;
        }
        // A prompt at the end of a log has no command behind it.
        let is_empty = section.command.trim_matches(['>', ' ']).is_empty();
        if is_empty || is_one(section.command, IRRELEVANT) {
            continue;
        }
        let dialect = match routeros::shown::words(section.command) {
            Some(words) => read_each(
                section,
                &mut facts,
                &mut found.outcomes,
                |section, facts| {
                    let (menus, shown) = facts;
                    let is_known = routeros::shown::take(section, &words, menus, shown)?;
                    Ok(Some(is_known.then_some(Dialect::RouterOs)))
                },
            ),
            None => read_each(
                section,
                &mut facts.1,
                &mut found.outcomes,
                |section, shown| take(section, shown).map(Some),
            ),
        };
        match dialect {
            Some(Some(dialect)) => found.dialect = Some(dialect),
            Some(None) => {
                let command = crate::text::shortened(section.command);
                let what = format!("\"{command}\": the output of this command is not read");
                let error = ReadError::new(file, section.head.number, what);
                found.outcomes.not_understood(&error);
            }
            // An odd line has been named.
            None => {}
        }
    }
    let (menus, mut shown) = facts;
    menus.finish(&mut shown);
    found.shown = shown;
    Ok(found)
}

/// Whether a command prints the configuration.
fn is_configuration(command: &str) -> bool {
    let (words, _) = words_of(command);
    routeros::shown::is_export(command)
        || matches!(
            words.as_slice(),
            [
                "show",
                "running-config" | "runningconfiguration" | "configuration"
            ] | ["show", "running-config" | "runningconfiguration", ..]
                | ["nv", "config", "show", ..]
        )
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

/// Takes the facts of an output; the system whose command it is, where that is known.
fn take(section: &Section<'_>, shown: &mut Shown) -> Result<Option<Dialect>, ReadError> {
    let (words, json) = words_of(section.command);
    let sonic = Some(Dialect::Sonic);
    Ok(match words.as_slice() {
        ["nv", ..] => nvue(section, &words, json, shown)?,
        _ if json => eos_json(section, &words, shown)?,
        _ if is_one(section.command, OF_SONIC) => sonic,
        ["show", "pfc", "priority", ..] => {
            sonic::shown::priorities(section, shown).map(|()| sonic)?
        }
        ["show", "pfcwd", "stats", ..] => sonic::shown::watchdog(section, shown).map(|()| sonic)?,
        ["show", "queue", "counters", ..] => {
            sonic::shown::queues(section, shown).map(|()| sonic)?
        }
        ["show", "priority-group", "drop", "counters"] => {
            sonic::shown::group_drops(section, shown).map(|()| sonic)?
        }
        ["sonic-db-cli", "STATE_DB", _, table, ..] if table.contains("BUFFER_MAX_PARAM_TABLE") => {
            sonic::shown::memory(section, shown).map(|()| sonic)?
        }
        ["show", "interfaces", "status", ..] if sonic::shown::is_own_status(section) => {
            sonic::shown::status(section, shown).map(|()| sonic)?
        }
        ["show", "priority-flow-control"] | ["show", "priority-flow-control", "status"] => {
            eos::shown::priority_flow_control(section, shown).map(|()| Some(Dialect::Eos))?
        }
        ["show", "qos", "interfaces", .., "ecn"] => {
            eos::shown::ecn(section, &words, shown).map(|()| Some(Dialect::Eos))?
        }
        ["show", "class-of-service", "congestion-notification", ..] => {
            junos::shown::profiles(section, shown).map(|()| Some(Dialect::Junos))?
        }
        ["show", "interfaces", "queue", ..] => {
            junos::shown::queues(section, shown).map(|()| Some(Dialect::Junos))?
        }
        ["show", "interfaces", .., "extensive"] => {
            junos::shown::extensive(section, shown);
            Some(Dialect::Junos)
        }
        _ => nxos(section, &words, shown)?,
    })
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
        (["nv", "show", "router", "adaptive-routing"], false) => {
            nvue::shown::adaptive_routing(section, &mut shown.all)?;
        }
        (["nv", "show", "router", "adaptive-routing"], true) => {
            nvue::shown::adaptive_routing_json(section, &mut shown.all)?;
        }
        (
            [
                "nv",
                "show",
                "interface",
                name,
                "router",
                "adaptive-routing",
            ],
            false,
        ) => {
            nvue::shown::adaptive_routing(section, shown.port(name))?;
        }
        (
            [
                "nv",
                "show",
                "interface",
                name,
                "router",
                "adaptive-routing",
            ],
            true,
        ) => {
            nvue::shown::adaptive_routing_json(section, shown.port(name))?;
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
            ("$ show pfc priority", Some("show pfc priority")),
            ("   description a#show x y", None),
            ("Ethernet0    3,4", None),
        ] {
            assert_eq!(command(line), expected, "{line}");
        }
    }
}

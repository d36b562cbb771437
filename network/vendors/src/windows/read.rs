//! Texts of Windows, read as intents.

use super::write::ETHERNET_HEADER;
use crate::intent::{HostSettings, Intent, Port, Schedule, Trust};
use crate::outcome::Outcomes;
use crate::shell::{ShellCommand, split};
use crate::text::{ReadError, lines, list, mask, number, set_bits};

/// A cmdlet with its parameters.
struct Cmdlet {
    command: ShellCommand,
    /// Parameters by their names in lower case; the first one without a name is "".
    parameters: Vec<(String, String)>,
}

impl Cmdlet {
    fn get(&self, name: &str) -> Option<&str> {
        self.parameters
            .iter()
            .find(|(own, _)| own == name)
            .map(|(_, value)| value.as_str())
    }

    fn number(&self, file: &str, name: &str, max: u32) -> Result<u32, ReadError> {
        let word = self
            .get(name)
            .ok_or_else(|| self.command.wrong(file, &format!("-{name} is missing")))?;
        number(file, self.command.line, word, 0..=max)
    }

    fn mask(&self, file: &str) -> Result<u8, ReadError> {
        let word = self.get("priority").or(self.get("")).unwrap_or_default();
        Ok(mask(&list(file, self.command.line, word, 7)?))
    }
}

fn cmdlets(file: &str, text: &str) -> Result<(Vec<Cmdlet>, Outcomes), ReadError> {
    let mut found = Vec::new();
    let lines = lines(file, text, &['#'])?;
    let mut outcomes = Outcomes::of(file, &lines);
    for line in lines {
        let Some(words) = split(line.text) else {
            let error = ReadError::new(file, line.number, "a quote is not closed");
            outcomes.not_understood(&error);
            continue;
        };
        let mut parameters = Vec::new();
        let mut name: Option<String> = None;
        for word in words.iter().skip(1) {
            let is_name = word.starts_with('-') && word.len() > 1 && !word.starts_with("-1");
            if is_name {
                parameters.extend(name.take().map(|name| (name, String::new())));
                let lower = word.trim_start_matches('-').to_lowercase();
                match lower.split_once(':') {
                    Some((name, value)) => parameters.push((name.to_owned(), value.to_owned())),
                    None => name = Some(lower),
                }
            } else {
                parameters.push((name.take().unwrap_or_default(), word.clone()));
            }
        }
        parameters.extend(name.map(|name| (name, String::new())));
        found.push(Cmdlet {
            command: ShellCommand {
                line: line.number,
                words,
            },
            parameters,
        });
    }
    Ok((found, outcomes))
}

/// What the cmdlets so far have set.
struct Reading {
    intent: Intent,
    host: HostSettings,
    /// Name of the adapter.
    name: String,
    /// Share of each traffic class.
    percents: [u8; 8],
    /// Traffic classes with strict priority, one bit each.
    strict: u8,
}

impl Reading {
    fn new() -> Self {
        let intent = Intent {
            trust: Trust::Pcp,
            pcp: [0, 1, 2, 3, 4, 5, 6, 7],
            ..Intent::nothing()
        };
        Self {
            intent,
            host: HostSettings::default(),
            name: String::new(),
            percents: [0; 8],
            strict: 0,
        }
    }

    fn cmdlet(&mut self, file: &str, cmdlet: &Cmdlet) -> Result<(), ReadError> {
        let verb = cmdlet
            .command
            .words
            .first()
            .map(|word| word.to_lowercase())
            .unwrap_or_default();
        if verb.starts_with("enable-netadapter") || verb == "set-netadapteradvancedproperty" {
            let name = cmdlet.get("name").or(cmdlet.get(""));
            name.unwrap_or_default().clone_into(&mut self.name);
        }
        let (intent, host) = (&mut self.intent, &mut self.host);
        match verb.as_str() {
            "set-netqosdcbxsetting" => host.willing = cmdlet.get("willing") == Some("$true"),
            "new-netqospolicy" if cmdlet.get("netdirectportmatchcondition").is_some() => {
                host.smb_priority = cmdlet.number(file, "priorityvalue8021action", 7)? as u8;
            }
            "enable-netqosflowcontrol" => intent.pfc_send |= cmdlet.mask(file)?,
            "disable-netqosflowcontrol" => intent.pfc_send &= !cmdlet.mask(file)?,
            "new-netqostrafficclass" => self.traffic_class(file, cmdlet)?,
            "set-netadapteradvancedproperty" => match cmdlet.get("registrykeyword") {
                Some("*JumboPacket") => {
                    let jumbo = cmdlet.number(file, "registryvalue", 65_535)?;
                    intent.mtu = jumbo.saturating_sub(ETHERNET_HEADER);
                }
                Some(_) => {}
                None => return Err(cmdlet.command.wrong(file, "-RegistryKeyword is missing")),
            },
            "enable-netadaptersriov" => {
                host.functions = cmdlet.number(file, "numvfs", 65_535)? as u16
            }
            "install-windowsfeature"
            | "new-netqospolicy"
            | "enable-netadapterqos"
            | "enable-netadapterrdma"
            | "set-smbclientconfiguration"
            | "set-smbserverconfiguration"
            | "new-vmswitch"
            | "remove-netqospolicy"
            | "remove-netqostrafficclass"
            | "disable-netadapterqos" => {}
            _ => return Err(cmdlet.command.wrong(file, "this cmdlet is not known")),
        }
        Ok(())
    }

    /// `New-NetQosTrafficClass`: the algorithm of some classes, and the share of those with ETS.
    fn traffic_class(&mut self, file: &str, cmdlet: &Cmdlet) -> Result<(), ReadError> {
        let word = cmdlet.get("priority").unwrap_or_default();
        let own = list(file, cmdlet.command.line, word, 7)?;
        let is_strict = cmdlet
            .get("algorithm")
            .is_some_and(|word| word.eq_ignore_ascii_case("strict"));
        set_bits(&mut self.strict, mask(&own), is_strict);
        if !is_strict {
            let percent = cmdlet.number(file, "bandwidthpercentage", 100)? as u8;
            own.iter()
                .for_each(|class| self.percents[usize::from(*class)] = percent);
        }
        Ok(())
    }

    fn finish(self) -> Intent {
        let Self {
            mut intent,
            mut host,
            name,
            mut percents,
            strict,
        } = self;
        // Bandwidth that no class is given belongs to the default class, which has priority 0.
        percents[0] = 100_u8.saturating_sub(
            percents[1..]
                .iter()
                .fold(0, |sum, percent| sum.saturating_add(*percent)),
        );
        for (class, queue) in intent.queues.iter_mut().enumerate() {
            let is_strict = strict >> class & 1 == 1;
            queue.schedule = if is_strict {
                Schedule::Strict
            } else {
                Schedule::Weighted(percents[class].max(1))
            };
        }
        intent.pfc_obey = intent.pfc_send;
        host.device.clone_from(&name);
        intent.ports = vec![Port {
            name,
            mbps: None,
            metres: None,
        }];
        intent.host = Some(host);
        intent
    }
}

pub(crate) fn read(file: &str, text: &str) -> Result<(Vec<Intent>, Outcomes), ReadError> {
    let mut reading = Reading::new();
    let (cmdlets, mut outcomes) = cmdlets(file, text)?;
    for cmdlet in cmdlets {
        outcomes.take(cmdlet.command.line, reading.cmdlet(file, &cmdlet));
    }
    Ok((vec![reading.finish()], outcomes))
}

//! Texts of Linux, read as intents.

use crate::highest_rate::{HighestRate, KILOBIT};
use crate::intent::{HostSettings, Intent, Port, Queue, Schedule, Trust};
use crate::outcome::Outcomes;
use crate::shell::{ShellCommand, commands};
use crate::text::{ReadError, classes, number, set_bits, shortened};

/// The settings read of a host.
pub(crate) struct Reading {
    pub(crate) intent: Intent,
    pub(crate) host: HostSettings,
    pub(crate) percents: [u8; 8],
    pub(crate) strict: u8,
    /// Highest rates by traffic class.
    pub(crate) rates: [Option<HighestRate>; 8],
    name: String,
}

impl Reading {
    /// An adapter before any command: strict priority for all traffic classes.
    pub(crate) fn new() -> Self {
        let mut intent = Intent::nothing();
        intent.trust = Trust::Pcp;
        intent.pcp = [0, 1, 2, 3, 4, 5, 6, 7];
        let host = HostSettings {
            ecn: false,
            dscp: 0,
            ..HostSettings::default()
        };
        Self {
            intent,
            host,
            percents: [0; 8],
            strict: 0xff,
            rates: [None; 8],
            name: String::new(),
        }
    }

    /// Commands concern one adapter.
    pub(crate) fn port(
        &mut self,
        file: &str,
        command: &ShellCommand,
        name: &str,
    ) -> Result<(), ReadError> {
        if !self.name.is_empty() && self.name != name {
            let what = format!(
                "the commands before are for {}: one file is for one adapter",
                shortened(&self.name)
            );
            return Err(command.wrong(file, &what));
        }
        name.clone_into(&mut self.name);
        Ok(())
    }

    pub(crate) fn finish(mut self) -> Intent {
        for (class, queue) in self.intent.queues.iter_mut().enumerate() {
            let strict = self.strict >> class & 1 == 1;
            let schedule = if strict {
                Schedule::Strict
            } else {
                Schedule::Weighted(self.percents[class].max(1))
            };
            *queue = Queue {
                schedule,
                ecn: None,
                rate: self.rates[class],
            };
        }
        self.intent.ports = vec![Port {
            name: self.name,
            mbps: None,
            metres: None,
        }];
        self.intent.host = Some(self.host);
        self.intent
    }

    /// Fields of the register ROCE_ACCL: whether packets may arrive in any order.
    fn accelerations(
        &mut self,
        file: &str,
        command: &ShellCommand,
        rest: &[&str],
    ) -> Result<(), ReadError> {
        let fields = rest.iter().flat_map(|word| word.split(','));
        for (field, value) in fields.filter_map(|field| field.split_once('=')) {
            if field == "adaptive_routing_forced_en" {
                self.host.out_of_order = match value {
                    "0x1" | "1" | "0x00000001" => true,
                    "0x0" | "0" | "0x00000000" => false,
                    _ => {
                        return Err(command.wrong(file, "adaptive_routing_forced_en is 0x0 or 0x1"));
                    }
                };
            }
        }
        Ok(())
    }

    /// Applies commands that `linux` and `mlnx` share; returns whether the command is one.
    pub(crate) fn shared(&mut self, file: &str, command: &ShellCommand) -> Result<bool, ReadError> {
        let value = |word: &str, max| number(file, command.line, word, 0..=max);
        match command.parts().as_slice() {
            ["ip", "link", "set", "dev", port, "mtu", mtu]
            | ["ip", "link", "set", port, "mtu", mtu] => {
                self.port(file, command, port)?;
                self.intent.mtu = value(mtu, 65_535)?;
            }
            ["ethtool", "-A", port, ..] => self.port(file, command, port)?,
            ["cma_roce_tos", rest @ ..] => {
                for pair in rest.chunks(2) {
                    match pair {
                        ["-d", device] => (*device).clone_into(&mut self.host.device),
                        ["-t", tos] => {
                            let tos = value(tos, 255)? as u8;
                            (self.host.dscp, self.host.ecn) = (tos >> 2, tos & 3 != 0);
                        }
                        ["-p", _] => {}
                        _ => return Err(command.wrong(file, "write -d DEVICE -p PORT -t TOS")),
                    }
                }
            }
            ["echo", count, ">", path] if path.ends_with("/sriov_numvfs") => {
                self.host.functions = value(count, 65_535)? as u16;
            }
            ["mlxconfig", rest @ ..] => {
                for word in rest {
                    match word.split_once('=') {
                        Some(("CNP_DSCP_P1", dscp)) => self.host.cnp_dscp = value(dscp, 63)? as u8,
                        Some(("CNP_802P_PRIO_P1", priority)) => {
                            self.host.cnp_priority = value(priority, 7)? as u8
                        }
                        Some(("NUM_OF_VFS", count)) => {
                            self.host.functions = value(count, 65_535)? as u16
                        }
                        _ => {}
                    }
                }
            }
            ["mlxreg" | "mstreg", rest @ ..] if rest.contains(&"ROCE_ACCL") => {
                self.accelerations(file, command, rest)?;
            }
            [
                "cma_roce_mode" | "sysctl" | "echo" | "if" | "fi" | "then" | "modprobe" | "exit"
                | "set" | "systemctl",
                ..,
            ] => {}
            _ => return Ok(false),
        }
        Ok(true)
    }
}

pub(crate) fn read(file: &str, text: &str) -> Result<(Vec<Intent>, Outcomes), ReadError> {
    let mut reading = Reading::new();
    let (commands, mut outcomes) = commands(file, text)?;
    for command in commands {
        outcomes.take(command.line, one(file, &command, &mut reading));
    }
    Ok((vec![reading.finish()], outcomes))
}

fn one(file: &str, command: &ShellCommand, reading: &mut Reading) -> Result<(), ReadError> {
    if reading.shared(file, command)? {
        return Ok(());
    }
    match command.parts().as_slice() {
        [
            "dcb",
            area,
            "set" | "add" | "replace",
            "dev",
            port,
            rest @ ..,
        ] => {
            reading.port(file, command, port)?;
            dcb(file, command, area, rest, reading)?;
        }
        ["dcb", "app", "flush", "dev", port, ..] => {
            reading.port(file, command, port)?;
            reading.intent.dscp = [0; 64];
        }
        ["dcb", _, "show", ..] => {}
        _ => return Err(command.wrong(file, "this command is not known")),
    }
    Ok(())
}

fn dcb(
    file: &str,
    command: &ShellCommand,
    area: &str,
    rest: &[&str],
    reading: &mut Reading,
) -> Result<(), ReadError> {
    let mut parameter = "";
    let mut order = Vec::new();
    for word in rest {
        let pair = word.split_once(':');
        match (area, parameter, pair) {
            ("dcbx", ..) => {}
            ("ets", "willing", None) if matches!(*word, "on" | "off") => {
                reading.host.willing = *word == "on";
                parameter = "";
            }
            ("apptrust", "order", None) if matches!(*word, "dscp" | "pcp") => order.push(*word),
            (_, _, None) => parameter = word,
            ("app", "dscp-prio", Some((dscp, priority))) => {
                let dscp = number(file, command.line, dscp, 0..=63)?;
                reading.intent.dscp[dscp as usize] =
                    number(file, command.line, priority, 0..=7)? as u8;
            }
            ("pfc", "prio-pfc", Some((priority, state))) => {
                let mask = one_or_all(file, command, priority)?;
                let on = match state {
                    "on" => true,
                    "off" => false,
                    _ => return Err(command.wrong(file, "a priority is on or off")),
                };
                set_bits(&mut reading.intent.pfc_send, mask, on);
            }
            ("ets", "tc-tsa", Some((class, algorithm))) => {
                let mask = one_or_all(file, command, class)?;
                let strict = match algorithm {
                    "strict" => true,
                    "ets" => false,
                    _ => return Err(command.wrong(file, "a traffic class is strict or ets")),
                };
                set_bits(&mut reading.strict, mask, strict);
            }
            ("ets", "tc-bw", Some((class, percent))) => {
                let percent = number(file, command.line, percent, 0..=100)? as u8;
                let mask = one_or_all(file, command, class)?;
                classes(mask).for_each(|class| reading.percents[usize::from(class)] = percent);
            }
            ("maxrate", "tc-maxrate", Some((class, rate))) => {
                let mask = one_or_all(file, command, class)?;
                let rate = bits(rate).ok_or_else(|| {
                    command.wrong(
                        file,
                        "a rate is a number with bit, kbit, Mbit, Gbit or Tbit",
                    )
                })?;
                classes(mask).for_each(|class| reading.rates[usize::from(class)] = rate);
            }
            ("ets", "prio-tc", Some((priority, class))) if priority == class => {}
            ("ets", "prio-tc", _) => {
                return Err(command.wrong(
                    file,
                    "a priority in a traffic class of another number is not supported",
                ));
            }
            _ => {
                return Err(
                    command.wrong(file, &format!("\"{}\" is not known here", shortened(word)))
                );
            }
        }
    }
    if area == "apptrust" {
        reading.intent.trust = Trust::of(order.contains(&"dscp"), order.contains(&"pcp"));
    }
    reading.intent.pfc_obey = reading.intent.pfc_send;
    Ok(())
}

/// A rate as iproute2 takes it, in powers of ten; 0 is no limit.
fn bits(word: &str) -> Option<Option<HighestRate>> {
    let digits = word.len()
        - word
            .trim_start_matches(|digit: char| digit.is_ascii_digit())
            .len();
    let (number, unit) = word.split_at(digits);
    let unit = match unit.to_ascii_lowercase().as_str() {
        "" | "bit" => 1,
        "kbit" => KILOBIT,
        "mbit" => KILOBIT.pow(2),
        "gbit" => KILOBIT.pow(3),
        "tbit" => KILOBIT.pow(4),
        _ => return None,
    };
    let rate = HighestRate::in_units(number.parse().ok()?, unit)?;
    Some(Some(rate).filter(|rate| rate.bps > 0))
}

fn one_or_all(file: &str, command: &ShellCommand, word: &str) -> Result<u8, ReadError> {
    if word == "all" {
        Ok(0xff)
    } else {
        Ok(1 << number(file, command.line, word, 0..=7)?)
    }
}

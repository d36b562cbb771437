//! Texts of ESXi, read as intents.

use super::write::FUNCTIONS_MAX;
use crate::intent::{HostSettings, Intent, Port, Trust};
use crate::outcome::Outcomes;
use crate::shell::{ShellCommand, commands};
use crate::text::{ReadError, number};

/// Objects of `esxcli` that have nothing to do with QoS of adapters, and the settings below them.
const OTHERS: &[&[&str]] = &[
    &["network", "vswitch"],
    &["network", "ip"],
    &["network", "firewall"],
    &["rdma"],
    &["storage"],
    &["iscsi"],
    &["nvme"],
    &["software"],
    &["system", "settings"],
    &["system", "maintenanceMode"],
    &["system", "module", "load"],
];

pub(crate) fn read(file: &str, text: &str) -> Result<(Vec<Intent>, Outcomes), ReadError> {
    let mut reading = Reading::default();
    let (commands, mut outcomes) = commands(file, text)?;
    for command in &commands {
        let words = command.parts();
        if is_other(&words) {
            outcomes.irrelevant(command.line);
        } else {
            outcomes.take(command.line, reading.command(file, command, &words));
        }
    }
    Ok((vec![reading.intent()], outcomes))
}

fn is_other(words: &[&str]) -> bool {
    match words {
        ["reboot", ..] => true,
        ["esxcli", rest @ ..] => OTHERS.iter().any(|own| rest.starts_with(own)),
        _ => false,
    }
}

/// Parameters of the driver that concern no class, pause or mark: queues of the receiving side, tunnels,
/// recovery and messages.
const WITHOUT_QOS: &[&str] = &[
    "DRSS",
    "RSS",
    "enable_nmlx_debug",
    "geneve_offload_enable",
    "mst_recovery",
    "supported_num_ports",
];

/// The settings read so far.
#[derive(Default)]
struct Reading {
    port: String,
    pauses: bool,
    by_dscp: bool,
    /// Priorities at which pauses are sent, and those at which they are obeyed.
    pfc: [u8; 2],
    functions: u16,
    dscp: u8,
}

/// The value of an option: `-m VALUE`, `--module VALUE` or `--module=VALUE`.
fn option<'a>(words: &[&'a str], short: &str, long: &str) -> Option<&'a str> {
    let behind = |word: &&'a str| word.strip_prefix(long)?.strip_prefix('=');
    let at = words
        .iter()
        .position(|word| *word == short || *word == long);
    at.and_then(|at| words.get(at + 1).copied())
        .or_else(|| words.iter().find_map(behind))
}

impl Reading {
    fn command(
        &mut self,
        file: &str,
        command: &ShellCommand,
        words: &[&str],
    ) -> Result<(), ReadError> {
        match words {
            ["esxcli", "system", "module", "parameters", "set", rest @ ..] => {
                let module = option(rest, "-m", "--module");
                let text = option(rest, "-p", "--parameter-string");
                let (Some(module), Some(text)) = (module, text) else {
                    return Err(
                        command.wrong(file, "a module (-m) and its parameters (-p) are needed")
                    );
                };
                if !matches!(module, "nmlx5_core" | "nmlx5_rdma") {
                    let what =
                        "the parameters of nmlx5_core and nmlx5_rdma are known, of no other module";
                    return Err(command.wrong(file, what));
                }
                for pair in text.split_whitespace() {
                    let (name, value) = pair
                        .split_once('=')
                        .ok_or_else(|| command.wrong(file, "parameters are NAME=VALUE"))?;
                    self.parameter(file, command, name, value)?;
                }
            }
            ["esxcli", "network", "nic", "pauseParams", "set", rest @ ..] => {
                let name = option(rest, "-n", "--nic-name");
                let name = name.ok_or_else(|| command.wrong(file, "an adapter (-n) is needed"))?;
                if !self.port.is_empty() && self.port != name {
                    return Err(command.wrong(file, "one file is for one adapter"));
                }
                name.clone_into(&mut self.port);
                for (short, long) in [("-t", "--tx"), ("-r", "--rx")] {
                    match option(rest, short, long) {
                        Some("1" | "true") => self.pauses = true,
                        Some("0" | "false") | None => {}
                        Some(_) => return Err(command.wrong(file, "pauses are 0 or 1")),
                    }
                }
            }
            _ => return Err(command.wrong(file, "this command is not known")),
        }
        Ok(())
    }

    fn parameter(
        &mut self,
        file: &str,
        command: &ShellCommand,
        name: &str,
        value: &str,
    ) -> Result<(), ReadError> {
        // Arrays have a value for each port; that of the first counts.
        let first = value.split(',').next().unwrap_or_default();
        let small = |most: u32| number(file, command.line, first, 0..=most);
        let mask = || {
            let digits = first
                .strip_prefix("0x")
                .map(|hex| u8::from_str_radix(hex, 16));
            let mask = digits.unwrap_or_else(|| first.parse());
            mask.map_err(|_| {
                command.wrong(
                    file,
                    "eight priorities as bits, 0x00 to 0xff, were expected",
                )
            })
        };
        match name {
            "pfctx" => self.pfc[0] = mask()?,
            "pfcrx" => self.pfc[1] = mask()?,
            "trust_state" => self.by_dscp = small(2)? == 2,
            "max_vfs" => self.functions = small(u32::from(FUNCTIONS_MAX))? as u16,
            "dscp_force" => self.dscp = small(63)? as u8,
            other if WITHOUT_QOS.contains(&other) => {}
            _ => return Err(command.wrong(file, &format!("the parameter {name} is not known"))),
        }
        Ok(())
    }

    fn intent(self) -> Intent {
        let port = Port {
            name: self.port.clone(),
            mbps: None,
            metres: None,
        };
        Intent {
            trust: Trust::of(self.by_dscp, !self.by_dscp),
            dscp: core::array::from_fn(|value| value as u8 / 8),
            pcp: [0, 1, 2, 3, 4, 5, 6, 7],
            pfc_send: self.pfc[0],
            pfc_obey: self.pfc[1],
            global_pause: self.pauses,
            ports: vec![port],
            host: Some(HostSettings {
                device: self.port,
                dscp: self.dscp,
                functions: self.functions,
                ..HostSettings::default()
            }),
            ..Intent::nothing()
        }
    }
}

//! `rockery vf`: the functions of adapters, in the words of `ip link` and the JSON of `ip -j link`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use ::lab::{Client, LiveAdapter, adapters_of};
use clap::Subcommand;
use fabric_file::functions::{FunctionSettings, parse_mac};
use fabric_file::{Document, Network};
use serde_json::{Value, json};

use crate::sim::Files;
use crate::{Error, output};

const EXAMPLES: &str = "\
Examples:
  The functions of every adapter of a fabric file:
    rockery vf show examples/functions.toml

  What limits function 3 of the host server to 1 Gb/s, as settings for rockery sim:
    rockery vf set examples/functions.toml server vf 3 max_tx_rate 1000 spoofchk on

  The same as a fabric file of its own, which includes the first:
    rockery vf set examples/functions.toml server vf 3 max_tx_rate 1000 --write limited.toml

  The same function in a lab that runs, from now on:
    rockery vf set server vf 3 max_tx_rate 1000";

/// The commands of `rockery vf`.
#[derive(Debug, Subcommand)]
pub(crate) enum Vf {
    /// Print the functions of adapters, as `ip link show` does: of a fabric file, or of the lab that runs.
    Show {
        /// Name of the lab, if several run; without FILE.
        #[arg(long, value_name = "NAME")]
        lab: Option<String>,
        /// Fabric file (TOML) with `[nic.NAME.functions]`, in place of the running lab; then the name of a
        /// host, to print only its adapter.
        #[arg(num_args = 0..=2, value_name = "FILE HOST")]
        of: Vec<String>,
        /// Print JSON, as `ip -j link show` does.
        #[arg(long, short)]
        json: bool,
    },
    /// Change a function, by the words of `ip link set DEVICE vf NUMBER`: mac, vlan, qos, max_tx_rate and
    /// min_tx_rate (in Mb/s), rate, spoofchk, trust, state.
    ///
    /// With a fabric file, prints the settings as PATH=VALUE, one per line, for --set of rockery sim. Without
    /// one, changes the function of the lab that runs. A table of the fabric file
    /// counts for every host that has this kind of adapter.
    #[command(after_help = EXAMPLES)]
    Set {
        /// Name of the lab, if several run; without FILE.
        #[arg(long, value_name = "NAME", conflicts_with = "write")]
        lab: Option<String>,
        /// Fabric file (TOML) with `[nic.NAME.functions]`, in place of the running lab; name of the adapter's
        /// host; vf NUMBER, then words and values.
        #[arg(required = true, num_args = 4.., value_name = "[FILE] HOST vf NUMBER WORD VALUE")]
        words: Vec<String>,
        /// New fabric file that includes the first one and has the settings.
        #[arg(long, value_name = "FILE")]
        write: Option<PathBuf>,
    },
}

/// Shows functions, or changes one.
///
/// # Errors
/// Mistakes in the file or among the words, files that cannot be written, and a lab that refuses.
pub(crate) fn act(what: &Vf) -> Result<(), Error> {
    match what {
        Vf::Show { lab, of, json } => {
            let (file, host) = match of.as_slice() {
                [] => (None, None),
                [one] if lab.is_none() && Path::new(one).exists() => (Some(one), None),
                [host] => (None, Some(host)),
                [file, host, ..] => (Some(file), Some(host)),
            };
            let all = match file {
                Some(file) => adapters_of(&read(Path::new(file), &[])?.1),
                None => Client::connect(lab.as_deref())?.functions()?,
            };
            let shown: Vec<&LiveAdapter> = match host {
                Some(host) => vec![adapter(&all, host)?],
                None => all.iter().collect(),
            };
            if *json {
                return output::json(Value::Array(shown.into_iter().map(link).collect()));
            }
            output::print(shown.into_iter().map(text).collect::<String>())
        }
        Vf::Set { lab, words, write } => match words.iter().position(|word| word == "vf") {
            Some(2) if lab.is_none() => set(
                Path::new(&words[0]),
                &words[1],
                &words[2..],
                write.as_deref(),
            ),
            Some(1) if write.is_none() => {
                let lab = Client::connect(lab.as_deref())?;
                let all = lab.functions()?;
                let settings =
                    settings(adapter(&all, &words[0])?, &words[1..]).map_err(Error::Functions)?;
                Ok(lab.set(&settings)?)
            }
            _ => {
                let what = "write HOST vf NUMBER WORD VALUE for a lab that runs, and a fabric file before it \
                            for settings of the file";
                Err(Error::Functions(what.to_owned()))
            }
        },
    }
}

fn read(file: &Path, sets: &[(String, String)]) -> Result<(Document, Network), Error> {
    let files = Files::of(file);
    let text = files.read(file)?;
    let mut document = Document::read(&file.display().to_string(), &text, &mut files.reader())?;
    for (path, value) in sets {
        document.set(path, value)?;
    }
    let network = Network::build(&document, &document.fields()?, &mut files.reader())?;
    Ok((document, network))
}

fn adapter<'a>(all: &'a [LiveAdapter], host: &str) -> Result<&'a LiveAdapter, Error> {
    all.iter()
        .find(|adapter| adapter.host == host)
        .ok_or_else(|| {
            let there: Vec<&str> = all
                .iter()
                .take(8)
                .map(|adapter| adapter.host.as_str())
                .collect();
            let there = if there.is_empty() {
                "none".to_owned()
            } else {
                there.join(", ")
            };
            Error::Functions(format!(
                "no host {host} has an adapter with functions; there are: {there}"
            ))
        })
}

fn set(file: &Path, host: &str, words: &[String], write: Option<&Path>) -> Result<(), Error> {
    let all = adapters_of(&read(file, &[])?.1);
    let settings = settings(adapter(&all, host)?, words).map_err(Error::Functions)?;
    // The file's own checks see the new values.
    read(file, &settings)?;
    let Some(path) = write else {
        return settings
            .iter()
            .try_for_each(|(path, value)| output::line(format_args!("{path}={value}")));
    };
    let original = file.canonicalize().map_err(Error::file(file))?;
    let mut overlay = format!("include = [{:?}]\n", original.display().to_string());
    let mut table = "";
    for (field, value) in &settings {
        let (of, name) = field.rsplit_once('.').unwrap_or(("", field));
        if of != table {
            let _ = writeln!(overlay, "\n[{of}]");
            table = of;
        }
        let is_plain = value == "true" || value == "false" || value.parse::<u32>().is_ok();
        let _ = if is_plain {
            writeln!(overlay, "{name} = {value}")
        } else {
            writeln!(overlay, "{name} = {value:?}")
        };
    }
    let mut new = std::fs::File::options()
        .write(true)
        .create_new(true)
        .open(path)
        .map_err(Error::file(path))?;
    std::io::Write::write_all(&mut new, overlay.as_bytes()).map_err(Error::file(path))
}

/// Words of `ip link set … vf …` as fields of the file.
fn settings(adapter: &LiveAdapter, words: &[String]) -> Result<Vec<(String, String)>, String> {
    let mut words = words.iter().map(String::as_str);
    if words.next() != Some("vf") {
        return Err("write vf NUMBER and what to set, such as: vf 3 max_tx_rate 1000".to_owned());
    }
    let number = words.next().unwrap_or_default();
    let count = adapter.functions.len();
    let known = number
        .parse::<usize>()
        .ok()
        .filter(|number| *number < count);
    let number =
        known.ok_or_else(|| format!("{number}: the adapter has functions 0 to {}", count - 1))?;
    let table = format!("nic.{}.functions.vf.{number}", adapter.nic);
    let mut settings = Vec::new();
    while let Some(word) = words.next() {
        let value = words
            .next()
            .ok_or_else(|| format!("{word} needs a value"))?;
        let (field, value) = setting(word, value)?;
        settings.push((format!("{table}.{field}"), value));
    }
    Ok(settings)
}

/// One word and its value.
fn setting(word: &str, value: &str) -> Result<(&'static str, String), String> {
    let switch = |field| match value {
        "on" => Ok((field, "true".to_owned())),
        "off" => Ok((field, "false".to_owned())),
        _ => Err(format!("{word} is on or off, not {value}")),
    };
    let number = |field, most: u32| match value.parse::<u32>() {
        Ok(number) if number <= most => Ok((field, value.to_owned())),
        _ => Err(format!("{word} is a number from 0 to {most}, not {value}")),
    };
    let rate = |field| {
        let (field, megabits) = number(field, 8_000_000)?;
        Ok((field, format!("{megabits}Mb/s")))
    };
    match word {
        "mac" if parse_mac(value).is_some() => Ok(("mac", value.to_owned())),
        "mac" => Err(format!(
            "{value} is no unicast MAC address: write 02:00:00:00:00:01"
        )),
        "vlan" => number("vlan", u32::from(fabric_file::functions::VLAN_MAX)),
        "qos" => number("qos", 7),
        "rate" | "max_tx_rate" => rate("max-rate"),
        "min_tx_rate" => rate("min-rate"),
        "spoofchk" => switch("spoof-check"),
        "trust" => switch("trust"),
        "state" if ["auto", "enable", "disable"].contains(&value) => {
            Ok(("state", value.to_owned()))
        }
        "state" => Err(format!("state is auto, enable or disable, not {value}")),
        _ => Err(format!(
            "{word} cannot be set: mac, vlan, qos, rate, max_tx_rate, min_tx_rate, spoofchk, trust and \
             state can"
        )),
    }
}

fn address(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

const fn mbps(bps: u64) -> u64 {
    bps / 1_000_000
}

/// As `ip link show` has it.
fn text(adapter: &LiveAdapter) -> String {
    let mut text = format!(
        "{}: mtu {} eswitch {}\n",
        adapter.host,
        adapter.mtu,
        mode(adapter)
    );
    for (number, function) in adapter.functions.iter().enumerate() {
        let FunctionSettings {
            mac,
            vlan,
            qos,
            min_bps,
            max_bps,
            spoof_check,
            trust,
            state,
        } = function;
        let _ = write!(
            text,
            "    vf {number}     link/ether {} brd ff:ff:ff:ff:ff:ff",
            address(*mac)
        );
        if *vlan > 0 {
            let _ = write!(text, ", vlan {vlan}");
        }
        if *qos > 0 {
            let _ = write!(text, ", qos {qos}");
        }
        if *max_bps > 0 {
            let _ = write!(text, ", max_tx_rate {}Mbps", mbps(*max_bps));
        }
        if *min_bps > 0 {
            let _ = write!(text, ", min_tx_rate {}Mbps", mbps(*min_bps));
        }
        let on = |on: bool| if on { "on" } else { "off" };
        let (check, trust, state) = (on(*spoof_check), on(*trust), state.name());
        let _ = writeln!(
            text,
            ", spoof checking {check}, link-state {state}, trust {trust}"
        );
    }
    text
}

fn mode(adapter: &LiveAdapter) -> &'static str {
    match adapter.eswitch {
        fabric_file::functions::Eswitch::Legacy => "legacy",
        fabric_file::functions::Eswitch::Switchdev => "switchdev",
    }
}

/// As `ip -j link show` has it.
fn link(adapter: &LiveAdapter) -> Value {
    let functions = adapter
        .functions
        .iter()
        .enumerate()
        .map(|(number, function)| {
            let FunctionSettings {
                mac,
                vlan,
                qos,
                min_bps,
                max_bps,
                spoof_check,
                trust,
                state,
            } = function;
            let mut entry = json!({
                "vf": number,
                "link_type": "ether",
                "address": address(*mac),
                "broadcast": "ff:ff:ff:ff:ff:ff",
                "rate": { "max_tx": mbps(*max_bps), "min_tx": mbps(*min_bps) },
                "spoofchk": spoof_check,
                "link_state": state.name(),
                "trust": trust,
            });
            if *vlan > 0 {
                entry["vlan_list"] = json!([{ "vlan": vlan, "qos": qos }]);
            }
            entry
        });
    let functions: Vec<Value> = functions.collect();
    json!({ "ifname": adapter.host, "mtu": adapter.mtu, "eswitch": mode(adapter), "vfinfo_list": functions })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/functions.toml")
    }

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn functions_are_shown_as_ip_shows_them() {
        let all = adapters_of(&read(&example(), &[]).unwrap().1);
        let adapter = adapter(&all, "server").unwrap();
        let text = text(adapter);
        let of = |number: usize| text.lines().nth(number + 1).unwrap().to_owned();
        assert!(
            of(4).contains("vf 4     link/ether 06:00:00:00:00:04 brd ff:ff:ff:ff:ff:ff, vlan 100"),
            "{text}"
        );
        assert!(
            of(3).ends_with("min_tx_rate 4000Mbps, spoof checking on, link-state auto, trust off"),
            "{text}"
        );
        let json = link(adapter);
        assert_eq!(json["vfinfo_list"][4]["vlan_list"][0]["vlan"], 100);
        assert_eq!(json["vfinfo_list"][3]["rate"]["min_tx"], 4000);
        assert_eq!(json["vfinfo_list"][0]["spoofchk"], true);
    }

    #[test]
    fn the_words_of_ip_are_fields_of_the_file() {
        let adapters = adapters_of(&read(&example(), &[]).unwrap().1);
        let adapter = adapter(&adapters, "server").unwrap();
        let all =
            "vf 3 max_tx_rate 5000 min_tx_rate 10 spoofchk off trust on vlan 7 qos 2 state enable";
        let settings = settings(adapter, &words(all)).unwrap();
        let table = "nic.x540.functions.vf.3.";
        assert!(
            settings.contains(&(format!("{table}max-rate"), "5000Mb/s".to_owned())),
            "{settings:?}"
        );
        let (_, changed) = read(&example(), &settings).unwrap();
        let function = &changed.adapters[0].functions[3].settings;
        assert_eq!(
            (function.max_bps, function.min_bps),
            (5_000_000_000, 10_000_000)
        );
        assert!(!function.spoof_check && function.trust && (function.vlan, function.qos) == (7, 2));
        assert_eq!(function.state.name(), "enable");
    }

    #[test]
    fn words_that_are_none_are_named() {
        let all = adapters_of(&read(&example(), &[]).unwrap().1);
        let one = adapter(&all, "server").unwrap();
        for (text, expected) in [
            ("vf 8 trust on", "the adapter has functions 0 to 7"),
            ("vf 0 trust maybe", "trust is on or off, not maybe"),
            ("vf 0 vlan 4095", "vlan is a number from 0 to 4094"),
            ("vf 0 mac 01:00:00:00:00:01", "is no unicast MAC address"),
            ("vf 0 state", "state needs a value"),
            ("vf 0 colour red", "colour cannot be set"),
            ("0 trust on", "write vf NUMBER"),
        ] {
            let error = settings(one, &words(text)).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
        assert!(
            adapter(&all, "client")
                .unwrap_err()
                .to_string()
                .contains("there are: server")
        );
    }

    #[test]
    fn settings_become_a_file_that_includes_the_first() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("limited.toml");
        let words = words("vf 3 max_tx_rate 5000 trust on");
        set(&example(), "server", &words, Some(&path)).unwrap();
        let (_, network) = read(&path, &[]).unwrap();
        let function = &network.adapters[0].functions[3].settings;
        assert_eq!(
            (function.max_bps, function.min_bps, function.trust),
            (5_000_000_000, 4_000_000_000, true)
        );
        assert!(
            set(&example(), "server", &words, Some(&path)).is_err(),
            "a file is not overwritten"
        );
    }
}

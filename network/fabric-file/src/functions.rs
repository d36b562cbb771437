//! The fabric file's tables about SR-IOV: the functions of an adapter, and the switch inside it.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::Bandwidth;

/// Virtual functions of one adapter at most (the field `NumVFs` has 16 bits; adapters offer 8 to 256).
pub const FUNCTIONS_MAX: u32 = 256;

/// VLAN identifiers that frames may bear (802.1Q clause 9.6): 1 to this. 0 is untagged.
pub const VLAN_MAX: u16 = 4094;

/// SR-IOV: virtual functions (VFs) of the adapter. A host with such an adapter is the physical function; its
/// virtual functions are hosts of their own in workloads, named by the host's name, `v` and a number: `h0v3`.
/// All of them share the adapter's PCIe slot (`pcie` is required) and the port, through a switch inside the
/// adapter, which is named `h0.eswitch`. It forwards between functions: such traffic crosses the slot twice,
/// once in each direction, and not the port.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Functions {
    /// How many virtual functions, 1 to 256 (`sriov_numvfs`).
    pub count: u32,
    /// How the embedded switch is managed (`devlink dev eswitch set mode`).
    #[serde(default)]
    pub eswitch: Eswitch,
    /// Settings by number or range of numbers: `[nic.NAME.functions.vf.3]`, `[nic.NAME.functions.vf."0-7"]`.
    /// Where two entries name a function, the narrower one applies, field by field.
    #[serde(default)]
    pub vf: BTreeMap<String, Function>,
}

/// How the embedded switch is managed.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Eswitch {
    /// By the settings of each function alone. Its ports are called `uplink`, `pf` and `vf3`.
    #[default]
    Legacy,
    /// Each port has a representor, by whose name frames are captured: `p0`, `pf0` and `pf0vf3`.
    Switchdev,
}

/// Settings of one virtual function, by the words of `ip link set DEVICE vf NUMBER`.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Function {
    /// MAC address (`mac`), unicast: `"02:00:00:00:01:03"`. Without it a locally administered one is made of
    /// the numbers of host and function. For one function of one host only.
    pub mac: Option<String>,
    /// VLAN (`vlan`), 0 to 4094: the embedded switch tags what the function sends, and gives the function
    /// only frames of that VLAN, without the tag. 0 is untagged.
    pub vlan: Option<u16>,
    /// Priority code point of that tag (`qos`), 0 to 7.
    pub qos: Option<u8>,
    /// The share of the port that the function has at least while others send (`min_tx_rate`). Functions
    /// without it share what is left evenly.
    pub min_rate: Option<Bandwidth>,
    /// The rate at which the function sends at most (`max_tx_rate`).
    pub max_rate: Option<Bandwidth>,
    /// Whether packets are dropped whose source MAC or GID is not the function's (`spoofchk`). Default: true.
    pub spoof_check: Option<bool>,
    /// Whether the function may change its MAC address (`trust`): the check of source MACs then accepts any
    /// address, that of GIDs does not. Default: false.
    pub trust: Option<bool>,
    /// State of the function's link (`state`). Default: `auto`.
    pub state: Option<FunctionLink>,
}

/// State of the link between a function and the embedded switch.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FunctionLink {
    /// As the adapter's port: down while the port is down.
    #[default]
    Auto,
    /// Up, also while the port is down: functions of one adapter can then still reach each other.
    Enable,
    /// Down: the function sends and receives nothing.
    Disable,
}

/// The settings of one function with every default filled in.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FunctionSettings {
    /// Address of the function.
    pub mac: [u8; 6],
    /// VLAN that the function is in; 0 is untagged.
    pub vlan: u16,
    /// Priority code point of the tag.
    pub qos: u8,
    /// Share of the port in bits per second that is kept for the function; 0 is none.
    pub min_bps: u64,
    /// Highest rate of the function in bits per second; 0 is no limit.
    pub max_bps: u64,
    /// Whether its source addresses are checked.
    pub spoof_check: bool,
    /// Whether it may change its MAC address.
    pub trust: bool,
    /// State of its link.
    pub state: FunctionLink,
}

impl Functions {
    /// The settings of a function as written in the file, the narrowest entry first for each field.
    ///
    /// # Errors
    /// The key of an entry that names no function.
    pub(crate) fn written(&self, number: u32) -> Result<Function, (String, String)> {
        let mut all = Vec::new();
        for (key, entry) in &self.vf {
            let (from, to) = range(key, self.count).ok_or_else(|| {
                let what = format!(
                    "\"{key}\" is no function or range of functions from 0 to {}",
                    self.count.saturating_sub(1)
                );
                (format!("vf.{key}"), what)
            })?;
            if (from..=to).contains(&number) {
                all.push((to - from, entry));
            }
        }
        all.sort_by_key(|(width, _)| *width);
        let mut merged = Function::default();
        for (_, entry) in all {
            merged.mac = merged.mac.or_else(|| entry.mac.clone());
            merged.vlan = merged.vlan.or(entry.vlan);
            merged.qos = merged.qos.or(entry.qos);
            merged.min_rate = merged.min_rate.or(entry.min_rate);
            merged.max_rate = merged.max_rate.or(entry.max_rate);
            merged.spoof_check = merged.spoof_check.or(entry.spoof_check);
            merged.trust = merged.trust.or(entry.trust);
            merged.state = merged.state.or(entry.state);
        }
        Ok(merged)
    }
}

/// First and last function that a key names.
pub(crate) fn range(key: &str, count: u32) -> Option<(u32, u32)> {
    let (from, to) = key.split_once('-').unwrap_or((key, key));
    let (from, to) = (from.trim().parse().ok()?, to.trim().parse().ok()?);
    (from <= to && to < count).then_some((from, to))
}

/// A MAC address of one station, as `ip` writes it.
pub fn parse_mac(text: &str) -> Option<[u8; 6]> {
    let mut mac = [0; 6];
    let mut parts = text.split(':');
    for byte in &mut mac {
        let part = parts
            .next()
            .filter(|part| part.len() == 2 && !part.starts_with('+'))?;
        *byte = u8::from_str_radix(part, 16).ok()?;
    }
    let is_unicast = mac[0] & 1 == 0 && mac != [0; 6];
    (parts.next().is_none() && is_unicast).then_some(mac)
}

impl FunctionLink {
    /// Its name in the fabric file and for `ip link`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Enable => "enable",
            Self::Disable => "disable",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mac_addresses_are_of_one_station() {
        assert_eq!(parse_mac("02:00:00:00:01:fE"), Some([2, 0, 0, 0, 1, 0xfe]));
        for bad in [
            "",
            "02:00:00:00:01",
            "02:00:00:00:01:02:03",
            "01:00:00:00:00:01",
            "0:0:0:0:0:1",
            "00:00:00:00:00:00",
            "+2:00:00:00:00:01",
        ] {
            assert_eq!(parse_mac(bad), None, "{bad}");
        }
    }

    #[test]
    fn the_narrower_entry_counts_field_by_field() {
        let entry = |vlan, qos| Function {
            vlan,
            qos,
            ..Function::default()
        };
        let vf = [
            ("0-3", entry(Some(100), Some(3))),
            ("2", entry(None, Some(5))),
        ];
        let vf = vf
            .map(|(key, entry)| (key.into(), entry))
            .into_iter()
            .collect();
        let functions = Functions {
            count: 4,
            eswitch: Eswitch::Legacy,
            vf,
        };
        assert_eq!(functions.written(2).unwrap(), entry(Some(100), Some(5)));
        assert_eq!(functions.written(3).unwrap(), entry(Some(100), Some(3)));
        let few = Functions {
            count: 3,
            ..functions
        };
        assert!(few.written(0).unwrap_err().1.contains("from 0 to 2"));
    }
}

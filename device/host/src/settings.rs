//! Settings that `rockery run` passes to the library: environment variables, which child processes inherit.
//! Programs with more rights than the user who started them (set-user-ID) ignore them.
//!
//! A variable with a wrong value is an error: [`check`] runs before a device is opened, so that no program
//! measures a configuration other than the one that its user requested.

use crate::log_filter::Filter;
use crate::parameters;
use ::faults::{Rule, Rules};
use rnic::{Config, CongestionConfig, DcqcnConfig};
use std::path::PathBuf;

/// The available devices, by name, interface or address, separated by commas. Not set: all.
pub const DEVICES: &str = "ROCKERY_DEVICES";
/// Names for devices in place of `rk_` and the interface, by interface: `eth0=mlx5_0,lo=mlx5_1`.
pub const NAMES: &str = "ROCKERY_NAMES";
/// The capture file.
pub const CAPTURE: &str = "ROCKERY_PCAP";
/// `1`: WRITEs and READ responses are placed in any order of arrival.
pub const OUT_OF_ORDER: &str = "ROCKERY_OUT_OF_ORDER";
/// Congestion control of senders: `window` (the default), `dcqcn` or `off`.
pub const CONGESTION: &str = "ROCKERY_CONGESTION";
/// `0`: a WRITE of several packets begins with a WRITE FIRST, as in IBTA, and not with a WRITE ONLY.
pub const WRITE_ONLY: &str = "ROCKERY_WRITE_ONLY";
/// `0`: READ requests do not ask for READ RESPONSE ONLY packets.
pub const RESPONSE_ONLY: &str = "ROCKERY_RESPONSE_ONLY";
/// `0`: each packet is sent with its own system call, without UDP segmentation offload.
pub const SEGMENTATION: &str = "ROCKERY_SEGMENTATION";
/// `0`: peers on the same host are reached with packets, as others are.
pub const SAME_HOST: &str = "ROCKERY_SAME_HOST";
/// CM response timeout: how long a peer may take to answer each of 16 connection requests, as the exponent of
/// 4.096 µs times 2 to this power, 0 to 24. Not set: 20 (4.3 s), as in Linux.
pub const CM_RESPONSE_TIMEOUT: &str = "ROCKERY_CM_RESPONSE_TIMEOUT";
/// Log levels: one level, or levels by target. Not set: warnings.
pub const LOG: &str = "ROCKERY_LOG";
/// The file that the log is appended to. Not set: standard error.
pub const LOG_FILE: &str = "ROCKERY_LOG_FILE";

/// Set by `rockery lab` for the programs of a host: devices attach to the lab, at the abstract Unix socket of
/// this name in the host's network namespace.
pub const LAB: &str = "ROCKERY_LAB";
/// The clock of the lab: its start by the monotonic clock in nanoseconds, its slowdown against the machine's
/// clock, and its start by the wall clock, as in `1234567,20,89`.
pub const LAB_CLOCK: &str = "ROCKERY_LAB_CLOCK";

/// Rules of the faults that the program meets on purpose, separated by semicolons: see [`::faults::Rules`].
/// Not set: none, and none can be added.
pub const FAULTS: &str = "ROCKERY_FAULTS";
/// The file that these faults are written to, a line of JSON for each.
pub const FAULT_JOURNAL: &str = "ROCKERY_FAULT_JOURNAL";

/// The file of the trace, which `rockery run` has made. Not set: nothing is traced.
pub const TRACE: &str = "ROCKERY_TRACE";

/// Parameters of the adapter, in the format of [`crate::parameters`]; set by `rockery lab exec`.
pub const NIC: &str = "ROCKERY_NIC";

/// Depth of the rate limiter's token bucket, for a thread that waits for a processor: the bytes of one system
/// call.
const BURST_BYTES: u32 = 64 << 10;
/// Bytes of a device's name in the structures of verbs, including the terminating zero.
const DEVICE_NAME_BYTES: usize = 64;
/// The folder of the view that the program sees; set by `rockery run` for the view's own library.
const VIEW: &str = "ROCKERY_VIEW";
/// Prefix of the settings of tests.
const TESTS: &str = "ROCKERY_TEST_";

/// A variable that has a wrong value.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{name}={value}: the value has to be {expected}")]
pub struct SettingError {
    /// The name of the variable.
    pub name: &'static str,
    /// The value that is not one of the expected ones.
    pub value: String,
    /// Description of the expected values.
    pub expected: &'static str,
}

/// A variable and its expected values.
struct Setting {
    name: &'static str,
    expected: &'static str,
    is_valid: fn(&str) -> bool,
}

const SWITCH: &str = "0 or 1";

const SETTINGS: &[Setting] = &[
    Setting {
        name: DEVICES,
        expected: "names, interfaces or addresses of devices",
        is_valid: |_| true,
    },
    Setting {
        name: NAMES,
        expected: "interfaces with names of devices, as in eth0=mlx5_0,lo=mlx5_1",
        is_valid: |value| value.split(',').all(|pair| name(pair).is_some()),
    },
    Setting {
        name: CAPTURE,
        expected: "a path",
        is_valid: |_| true,
    },
    Setting {
        name: OUT_OF_ORDER,
        expected: SWITCH,
        is_valid: is_switch,
    },
    Setting {
        name: CONGESTION,
        expected: "window, dcqcn or off",
        is_valid: |value| matches!(value, "window" | "dcqcn" | "off"),
    },
    Setting {
        name: WRITE_ONLY,
        expected: SWITCH,
        is_valid: is_switch,
    },
    Setting {
        name: RESPONSE_ONLY,
        expected: SWITCH,
        is_valid: is_switch,
    },
    Setting {
        name: SEGMENTATION,
        expected: SWITCH,
        is_valid: is_switch,
    },
    Setting {
        name: SAME_HOST,
        expected: SWITCH,
        is_valid: is_switch,
    },
    Setting {
        name: CM_RESPONSE_TIMEOUT,
        expected: "a number from 0 to 24: the exponent of 4.096 us times 2 to this power",
        is_valid: |value| time_code(value).is_some(),
    },
    Setting {
        name: LOG,
        expected: "off, error, warn, info, debug or trace, or a list such as warn,rnic=debug with the \
                   targets call, rnic, cm and host",
        is_valid: |value| Filter::parse(value).is_some(),
    },
    Setting {
        name: LOG_FILE,
        expected: "a path",
        is_valid: |_| true,
    },
    Setting {
        name: FAULTS,
        expected: "rules of faults, as in `post_send: fail ENOMEM after 100`",
        is_valid: |value| value.parse::<Rules>().is_ok(),
    },
    Setting {
        name: FAULT_JOURNAL,
        expected: "a path",
        is_valid: |_| true,
    },
    Setting {
        name: TRACE,
        expected: "a path",
        is_valid: |_| true,
    },
    Setting {
        name: LAB,
        expected: "the name of an abstract Unix socket",
        is_valid: |_| true,
    },
    Setting {
        name: LAB_CLOCK,
        expected: "nanoseconds, a factor and nanoseconds, as in 1234567,20,89",
        is_valid: |value| clock(value).is_some(),
    },
    Setting {
        name: NIC,
        expected: "parameters of the adapter, as in window=1048576,ack-interval=4",
        is_valid: |value| parameters::apply(value, &mut Config::default()).is_some(),
    },
];

/// Whether a device may have this name: the characters that kernels use, at most 63 bytes.
pub fn is_device_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    !name.is_empty() && name.len() < DEVICE_NAME_BYTES && name.bytes().all(is_plain)
}

/// An interface and the name of its device.
fn name(pair: &str) -> Option<(&str, &str)> {
    pair.rsplit_once('=')
        .filter(|(interface, name)| !interface.is_empty() && is_device_name(name))
}

fn is_switch(value: &str) -> bool {
    matches!(value, "0" | "1")
}

fn time_code(value: &str) -> Option<u8> {
    value
        .parse()
        .ok()
        .filter(|code| *code <= rnic::cm::TIMEOUT_CODE_MAX)
}

fn clock(value: &str) -> Option<(u64, u64)> {
    let mut numbers = value.split(',').map(|number| number.parse().ok());
    // The wall clock is used by the program, and not by its devices.
    let (epoch, slowdown, _wall) = (numbers.next()??, numbers.next()??, numbers.next()??);
    numbers.next().is_none().then_some((epoch, slowdown))
}

/// Checks all variables. One that is empty counts as not set.
///
/// # Errors
/// [`SettingError`] names the first one that has a wrong value.
pub fn check_variables() -> Result<(), SettingError> {
    check_values(|name| {
        environment::variable(name).map(|value| value.to_string_lossy().into_owned())
    })
}

fn check_values(value_of: impl Fn(&str) -> Option<String>) -> Result<(), SettingError> {
    for &Setting {
        name,
        expected,
        is_valid,
    } in SETTINGS
    {
        if let Some(value) = value_of(name).filter(|value| !value.is_empty() && !is_valid(value)) {
            return Err(SettingError {
                name,
                value,
                expected,
            });
        }
    }
    Ok(())
}

/// Variables with the prefix of settings that are no settings, such as misspelt ones.
pub(crate) fn unknown() -> Vec<String> {
    environment::names_beginning_with("ROCKERY_")
        .into_iter()
        .filter(|name| !is_known(name))
        .collect()
}

fn is_known(name: &str) -> bool {
    name == VIEW || name.starts_with(TESTS) || SETTINGS.iter().any(|setting| setting.name == name)
}

/// The value of a variable as text; empty where it is not set.
fn text(name: &str) -> String {
    environment::variable(name)
        .and_then(|value| value.into_string().ok())
        .unwrap_or_default()
}

/// The time code in the environment, if it is set.
pub(crate) fn cm_response_timeout() -> Option<u8> {
    time_code(&text(CM_RESPONSE_TIMEOUT))
}

/// The socket of the lab, where there is one.
pub(crate) fn lab() -> Option<String> {
    Some(text(LAB)).filter(|name| !name.is_empty())
}

/// Start and slowdown of the lab's clock.
pub(crate) fn lab_clock() -> Option<(u64, u64)> {
    clock(&text(LAB_CLOCK))
}

/// Slowdown of the lab's clock against the machine's; 1 outside a lab.
pub fn slowdown() -> u64 {
    lab_clock().map_or(1, |(_, slowdown)| slowdown)
}

/// Whether peers on the same host are reached through shared memory. Not with a capture, which has to contain
/// all packets, nor with faults of packets.
pub(crate) fn same_host() -> bool {
    let by_packets = || faults().is_some_and(|rules| rules.rules.iter().any(Rule::needs_packets));
    text(SAME_HOST) != "0" && capture().is_none() && !by_packets()
}

/// Whether many packets may be sent with one system call.
pub(crate) fn segmentation() -> bool {
    text(SEGMENTATION) != "0"
}

/// The names of the wanted devices; `None` for all.
pub(crate) fn devices() -> Option<Vec<String>> {
    let wanted = environment::variable(DEVICES)?.into_string().ok()?;
    Some(
        wanted
            .split(',')
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect(),
    )
}

/// The name of an interface's device, where it is not the usual one.
pub(crate) fn name_of(interface: &str) -> Option<String> {
    let names = text(NAMES);
    let mut pairs = names.split(',').filter_map(name);
    pairs
        .find(|(of, _)| *of == interface)
        .map(|(_, name)| name.to_owned())
}

/// The interface whose device has this name, where it is not the usual one.
pub(crate) fn interface_of(device: &str) -> Option<String> {
    let names = text(NAMES);
    let mut pairs = names.split(',').filter_map(name);
    pairs
        .find(|(_, name)| *name == device)
        .map(|(interface, _)| interface.to_owned())
}

/// The path of the capture file.
pub(crate) fn capture() -> Option<PathBuf> {
    environment::variable(CAPTURE)
        .filter(|path| !path.is_empty())
        .map(PathBuf::from)
}

/// The log levels; `None` where the variable is wrong.
pub(crate) fn log() -> Option<Filter> {
    Filter::parse(&text(LOG))
}

/// The path of the log file. It is absolute, because programs change their working folder.
pub(crate) fn log_file() -> Option<PathBuf> {
    let path = environment::variable(LOG_FILE).filter(|path| !path.is_empty())?;
    std::path::absolute(path).ok()
}

/// The rules of faults; `None` where there are none, or the variable is wrong.
pub(crate) fn faults() -> Option<Rules> {
    let rules = text(FAULTS);
    rules.parse().ok().filter(|_| !rules.is_empty())
}

/// The path of the journal of faults. It is absolute, because programs change their working folder.
pub(crate) fn fault_journal() -> Option<PathBuf> {
    let path = environment::variable(FAULT_JOURNAL).filter(|path| !path.is_empty())?;
    std::path::absolute(path).ok()
}

/// The path of the trace. It is absolute, because programs change their working folder.
pub(crate) fn trace() -> Option<PathBuf> {
    let path = environment::variable(TRACE).filter(|path| !path.is_empty())?;
    std::path::absolute(path).ok()
}

/// Applies the variables, which [`check`] has checked, to a device's configuration.
pub(crate) fn apply(config: &mut Config) {
    config.out_of_order = text(OUT_OF_ORDER) == "1";
    config.write_only = text(WRITE_ONLY) != "0";
    config.response_only = text(RESPONSE_ONLY) != "0";
    match text(CONGESTION).as_str() {
        "dcqcn" => {
            let dcqcn = DcqcnConfig {
                burst_bytes: BURST_BYTES,
                ..DcqcnConfig::default()
            };
            config.congestion = CongestionConfig::Dcqcn(dcqcn);
        }
        "off" => config.congestion = CongestionConfig::Off,
        _ => {}
    }
    let nic = text(NIC);
    if !nic.is_empty() {
        let _ = parameters::apply(&nic, config);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(name: &str, value: &str) -> Result<(), String> {
        let value_of = |asked: &str| (asked == name).then(|| value.to_owned());
        check_values(value_of).map_err(|error| error.to_string())
    }

    #[test]
    fn wrong_values_are_errors_that_name_the_right_ones() {
        let error = |text: &str| Err(text.to_owned());
        let expected = error("ROCKERY_CONGESTION=dqcn: the value has to be window, dcqcn or off");
        assert_eq!(checked(CONGESTION, "dqcn"), expected);
        assert_eq!(
            checked(SAME_HOST, "no"),
            error("ROCKERY_SAME_HOST=no: the value has to be 0 or 1")
        );
        for value in ["mlx5_0", "eth0=", "=mlx5_0", "eth0=a/b", "eth0=a,lo"] {
            assert!(checked(NAMES, value).is_err(), "{value}");
        }
        for (name, value) in [
            (CM_RESPONSE_TIMEOUT, "25"),
            (NIC, "window=big"),
            (LOG, "loud"),
            (OUT_OF_ORDER, "yes"),
        ] {
            assert!(checked(name, value).is_err(), "{name}={value}");
        }
    }

    #[test]
    fn right_and_empty_values_are_accepted() {
        let right = [
            (CONGESTION, "off"),
            (SAME_HOST, "0"),
            (CM_RESPONSE_TIMEOUT, "24"),
            (LOG, "info"),
        ];
        assert_eq!(checked(NAMES, "eth0.5=mlx5_0,lo=mlx5_1"), Ok(()));
        for (name, value) in right.into_iter().chain([(CONGESTION, "")]) {
            assert_eq!(checked(name, value), Ok(()), "{name}={value}");
        }
    }

    #[test]
    fn misspelt_names_are_found() {
        assert!(!is_known("ROCKERY_CONGETSION"));
        assert!(is_known("ROCKERY_VIEW") && is_known("ROCKERY_TEST_SEED") && is_known(LOG));
    }
}

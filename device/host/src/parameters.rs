//! Parameters of an adapter that a lab gives its hosts: numbers by name, as in
//! `window=1048576,ack-interval=4`.

use rnic::{Config, CongestionConfig, DcqcnConfig, FirmwareDcqcn, Nanos};

/// The parameters of a configuration that a program's devices need, in the form that `apply` parses.
pub fn text(config: &Config) -> String {
    let mut all = vec![
        ("window", u64::from(config.window_bytes)),
        ("reorder-window", u64::from(config.reorder_window)),
        ("ack-interval", u64::from(config.ack_interval)),
        ("recovery", config.recovery_ns.0),
        ("overhead", u64::from(config.overhead_bytes)),
    ];
    if let CongestionConfig::Dcqcn(dcqcn) = &config.congestion {
        all.extend([
            ("line-rate", dcqcn.line_rate_bps),
            ("minimum-rate", dcqcn.minimum_rate_bps),
            ("g", u64::from(dcqcn.g_shift)),
            ("cnp-interval", dcqcn.cnp_interval_ns.0),
            ("alpha-interval", dcqcn.alpha_interval_ns.0),
            ("increase-interval", dcqcn.increase_interval_ns.0),
            ("increase-bytes", dcqcn.increase_bytes),
            ("fast-recovery-steps", u64::from(dcqcn.fast_recovery_steps)),
            ("additive-rate", dcqcn.additive_bps),
            ("hyper-rate", dcqcn.hyper_bps),
        ]);
        if let Some(firmware) = &dcqcn.firmware {
            all.push(("cut-interval", firmware.cut_interval_ns.0));
            all.push(("clamp-target", u64::from(firmware.clamp_target)));
        }
    }
    let pairs: Vec<String> = all
        .into_iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    pairs.join(",")
}

/// Sets the parameters in the text. `None` where it has an unknown name, or a value out of the range of its
/// field.
/// Parameters of DCQCN change nothing where the devices run another congestion control.
pub(crate) fn apply(text: &str, config: &mut Config) -> Option<()> {
    text.split(',').try_for_each(|pair| {
        let (name, value) = pair.split_once('=')?;
        set(config, name, value.parse().ok()?)
    })
}

fn set(config: &mut Config, name: &str, value: u64) -> Option<()> {
    let small = u32::try_from(value).ok();
    match name {
        "window" => config.window_bytes = small?,
        "reorder-window" => config.reorder_window = small?,
        "ack-interval" => config.ack_interval = small?,
        "recovery" => config.recovery_ns = Nanos(value),
        "overhead" => config.overhead_bytes = small?,
        _ => match &mut config.congestion {
            CongestionConfig::Dcqcn(dcqcn) => return set_dcqcn(dcqcn, name, value),
            _ => return set_dcqcn(&mut DcqcnConfig::default(), name, value),
        },
    }
    Some(())
}

fn set_dcqcn(dcqcn: &mut DcqcnConfig, name: &str, value: u64) -> Option<()> {
    let tiny = u8::try_from(value).ok();
    let none = FirmwareDcqcn {
        cut_interval_ns: Nanos(0),
        clamp_target: false,
    };
    match name {
        "line-rate" => dcqcn.line_rate_bps = value,
        "minimum-rate" => dcqcn.minimum_rate_bps = value,
        "g" => dcqcn.g_shift = tiny.filter(|shift| *shift < 32)?,
        "cnp-interval" => dcqcn.cnp_interval_ns = Nanos(value),
        "alpha-interval" => dcqcn.alpha_interval_ns = Nanos(value),
        "increase-interval" => dcqcn.increase_interval_ns = Nanos(value),
        "increase-bytes" => dcqcn.increase_bytes = value,
        "fast-recovery-steps" => dcqcn.fast_recovery_steps = tiny?,
        "additive-rate" => dcqcn.additive_bps = value,
        "hyper-rate" => dcqcn.hyper_bps = value,
        "cut-interval" => dcqcn.firmware.get_or_insert(none).cut_interval_ns = Nanos(value),
        "clamp-target" => dcqcn.firmware.get_or_insert(none).clamp_target = value == 1,
        _ => return None,
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_is_the_same_after_it_was_written_and_read() {
        let firmware = FirmwareDcqcn {
            cut_interval_ns: Nanos(4_000),
            clamp_target: true,
        };
        let dcqcn = DcqcnConfig {
            line_rate_bps: 100_000_000_000,
            ..DcqcnConfig::default()
        };
        for firmware in [None, Some(firmware)] {
            let written = Config {
                window_bytes: 70_000,
                reorder_window: 9,
                ack_interval: 4,
                recovery_ns: Nanos(5),
                overhead_bytes: 82,
                congestion: CongestionConfig::Dcqcn(DcqcnConfig {
                    firmware,
                    ..dcqcn.clone()
                }),
                ..Config::default()
            };
            let congestion = CongestionConfig::Dcqcn(DcqcnConfig::default());
            let mut read = Config {
                congestion,
                ..Config::default()
            };
            assert_eq!(apply(&text(&written), &mut read), Some(()));
            assert_eq!(format!("{read:?}"), format!("{written:?}"));
        }
    }

    #[test]
    fn what_is_no_parameter_is_refused() {
        for wrong in [
            "",
            "window",
            "window=",
            "window=-1",
            "window=4294967296",
            "g=32",
            "speed=1",
            "window=1,",
        ] {
            assert_eq!(apply(wrong, &mut Config::default()), None, "{wrong}");
        }
        let mut off = Config {
            congestion: CongestionConfig::Off,
            ..Config::default()
        };
        assert_eq!(apply("line-rate=1", &mut off), Some(()));
        assert_eq!(off.congestion, CongestionConfig::Off);
    }
}

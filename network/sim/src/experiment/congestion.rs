//! Congestion control of adapters: from `[nic.NAME]` to the parameters of the algorithms.

use super::Experiment;
use fabric_file::congestion::{Congestion, Dcqcn, Dctcp, Hpcc, Swift, Timely};
use fabric_file::schema::NicTable;
use fabric_file::{Document, FileError, Mistake};
use rnic::{
    CongestionConfig, DcqcnConfig, DctcpConfig, FirmwareDcqcn, HpccConfig, Nanos, Signal,
    SwiftConfig, TimelyConfig,
};
use units::{Ratio, Size, Timespan};

/// Refuses connections of which one end echoes marks and the other sends notifications: one of their senders
/// would never hear of congestion.
pub(super) fn check_ends(document: &Document, experiment: &Experiment) -> Result<(), FileError> {
    let hosts = &experiment.scenario.hosts;
    let control = |host: u32| &hosts[host as usize].congestion;
    let echoes = |host: u32| control(host).signal() == Signal::Echoes;
    let mut flows = experiment.scenario.flows.iter();
    let Some(flow) = flows.find(|flow| echoes(flow.from) != echoes(flow.to)) else {
        return Ok(());
    };
    let network = &experiment.network;
    let named = |host: u32| {
        let name = &network.hosts[host as usize].name;
        format!("{name} has \"{}\"", control(host).name())
    };
    let other = match echoes(flow.from) {
        true => flow.to,
        false => flow.from,
    };
    Err(document.mistake(
        Mistake::Combination,
        &format!("nic.{}.congestion", network.tables.nic_of[other as usize]),
        format!("{}, and {}", named(flow.from), named(flow.to)),
        "\"dctcp\" for both ends of a connection: receivers of others send notifications",
    ))
}

/// Congestion control of an adapter whose port has this line rate in bits per second.
pub(super) fn control(nic: &NicTable, line: u64) -> CongestionConfig {
    match nic.congestion {
        // Ultra Ethernet's transport has its own.
        Congestion::Off | Congestion::Nscc | Congestion::Rccc | Congestion::NsccRccc => {
            CongestionConfig::Off
        }
        Congestion::Window => CongestionConfig::Adaptive,
        Congestion::Dcqcn => CongestionConfig::Dcqcn(dcqcn(&nic.dcqcn, line)),
        Congestion::Swift => CongestionConfig::Swift(swift(&nic.swift)),
        Congestion::Hpcc => CongestionConfig::Hpcc(hpcc(&nic.hpcc, line)),
        Congestion::Timely => CongestionConfig::Timely(timely(&nic.timely, line)),
        Congestion::Dctcp => CongestionConfig::Dctcp(dctcp(&nic.dctcp)),
    }
}

fn dcqcn(file: &Dcqcn, line_rate_bps: u64) -> DcqcnConfig {
    DcqcnConfig {
        line_rate_bps,
        minimum_rate_bps: file.minimum_rate.0.bps(),
        // g is a power of two: 2^-32 has 32 leading places behind the point.
        g_shift: (32 - file.g.0.max(1).ilog2()) as u8,
        cnp_interval_ns: nanos(file.cnp_interval),
        alpha_interval_ns: nanos(file.alpha_interval),
        increase_interval_ns: nanos(file.increase_interval),
        increase_bytes: file.increase_bytes.0,
        fast_recovery_steps: file.fast_recovery_steps,
        additive_bps: file.additive_rate.0.bps(),
        hyper_bps: file.hyper_rate.0.bps(),
        burst_bytes: 0,
        firmware: file.cut_interval.map(|cut| FirmwareDcqcn {
            cut_interval_ns: nanos(cut),
            clamp_target: file.clamp_target,
        }),
    }
}

fn swift(file: &Swift) -> SwiftConfig {
    SwiftConfig {
        target_ns: nanos(file.target),
        hop_ns: nanos(file.hop),
        flow_range_ns: nanos(file.flow_range),
        flow_min: part(file.flow_min),
        flow_max: u32::from(file.flow_max) << 16,
        additive_bytes: bytes(file.additive),
        beta: part(file.beta),
        decrease_max: part(file.max_decrease),
    }
}

fn hpcc(file: &Hpcc, line_rate_bps: u64) -> HpccConfig {
    HpccConfig {
        line_rate_bps,
        base_rtt_ns: nanos(file.base_rtt),
        eta: part(file.utilisation),
        stages_max: file.stages,
        additive_bytes: bytes(file.additive),
    }
}

fn timely(file: &Timely, line_rate_bps: u64) -> TimelyConfig {
    TimelyConfig {
        line_rate_bps,
        minimum_rate_bps: file.minimum_rate.0.bps(),
        segment_bytes: bytes(file.segment),
        weight: part(file.alpha),
        beta: part(file.beta),
        additive_bps: file.additive_rate.0.bps(),
        minimum_rtt_ns: nanos(file.minimum_rtt),
        low_ns: nanos(file.low),
        high_ns: nanos(file.high),
        hyper_after: file.hyper_after,
    }
}

fn dctcp(file: &Dctcp) -> DctcpConfig {
    DctcpConfig { g: part(file.g) }
}

fn nanos(time: Timespan) -> Nanos {
    Nanos(time.0.0.div_ceil(1_000))
}

/// In units of 2^-16.
fn part(ratio: Ratio) -> u32 {
    (ratio.0 >> 16) as u32
}

fn bytes(size: Size) -> u32 {
    u32::try_from(size.0).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g_is_a_shift() {
        for (g, shift) in [(1_u64 << 24, 8), (1 << 28, 4), (1 << 31, 1)] {
            assert_eq!(
                dcqcn(
                    &Dcqcn {
                        g: Ratio(g),
                        ..Dcqcn::default()
                    },
                    1
                )
                .g_shift,
                shift
            );
        }
    }

    /// Defaults of the file and of the algorithms are one: fields that a file leaves out change nothing.
    #[test]
    fn defaults_are_those_of_the_algorithms() {
        let nic = NicTable::default();
        let line_rate_bps = 77;
        assert_eq!(
            timely(&nic.timely, 77),
            TimelyConfig {
                line_rate_bps,
                ..TimelyConfig::default()
            }
        );
        assert_eq!(dctcp(&nic.dctcp), DctcpConfig::default());
        for one in Congestion::RC {
            let nic = NicTable {
                congestion: one,
                ..NicTable::default()
            };
            assert_eq!(control(&nic, 1).name(), one.name());
        }
    }
}

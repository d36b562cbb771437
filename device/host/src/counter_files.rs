//! Counters in `/sys/class/infiniband/DEVICE/ports/1` of a view: names and units of Linux
//! (`Documentation/ABI/stable/sysfs-class-infiniband`), values from the reports of open devices.

use crate::interface::own_name;
use crate::report::Report;
use crate::settings;

/// A file that contains a counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CounterFile {
    /// `counters`, which every port has, or `hw_counters`, which are a driver's own.
    pub folder: &'static str,
    /// Name of the file on Linux.
    pub name: &'static str,
    /// The counters of a report whose sum it is.
    of: &'static [&'static str],
    /// Unit of the counter.
    unit: u64,
}

impl CounterFile {
    /// The value for a device: the sum over the programs that have it open.
    pub fn value(&self, device: &str, reports: &[Report]) -> u64 {
        let own =
            settings::interface_of(device).map_or_else(|| device.to_owned(), |it| own_name(&it));
        let counters = reports
            .iter()
            .filter(|report| report.device == own)
            .flat_map(|it| &it.counters);
        let counted = counters.filter(|(name, _)| self.of.contains(&name.as_str()));
        counted.fold(0u64, |sum, (_, value)| sum.wrapping_add(*value)) / self.unit
    }
}

/// `port_xmit_data` and `port_rcv_data` count in words of four bytes.
const WORD: u64 = 4;

const fn port(name: &'static str, of: &'static [&'static str], unit: u64) -> CounterFile {
    CounterFile {
        folder: "counters",
        name,
        of,
        unit,
    }
}

macro_rules! hardware {
    ($($name:literal)*) => {
        [$(CounterFile { folder: "hw_counters", name: $name, of: &[$name], unit: 1 }),*]
    };
}

const PORT: [CounterFile; 6] = [
    port("port_xmit_data", &["sent_bytes"], WORD),
    port("port_rcv_data", &["received_bytes"], WORD),
    port("port_xmit_packets", &["sent_packets"], 1),
    port("port_rcv_packets", &["received_packets"], 1),
    port("port_rcv_errors", &["corrupt", "malformed"], 1),
    port(
        "port_xmit_discards",
        &["send_no_room", "send_no_way", "send_refused"],
        1,
    ),
];

const HARDWARE: [CounterFile; 26] = hardware!(
    "sent_packets" "sent_bytes" "received_packets" "received_bytes" "sent_acks" "received_acks"
    "dropped_no_qp" "dropped_wrong_address" "dropped_bad_pkey" "dropped_bad_qkey" "dropped_no_receive"
    "duplicate_request" "out_of_sequence" "packet_seq_err" "implied_nak_seq_err" "sent_sequence_naks"
    "sent_rnr_naks" "rnr_nak_received" "local_ack_timeout_err" "retransmitted_packets" "retry_exceeded_err"
    "rnr_nak_retry_err" "np_cnp_sent" "np_ecn_marked_roce_packets" "rp_cnp_handled" "corrupt"
);

/// All counter files.
pub const FILES: [CounterFile; PORT.len() + HARDWARE.len()] = {
    let mut all = [PORT[0]; PORT.len() + HARDWARE.len()];
    let mut at = 0;
    while at < all.len() {
        all[at] = if at < PORT.len() {
            PORT[at]
        } else {
            HARDWARE[at - PORT.len()]
        };
        at += 1;
    }
    all
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::LinkCounters;
    use rnic::PortCounters;

    #[test]
    fn every_file_is_of_counters_that_are_reported() {
        let (port, link) = (PortCounters::default(), LinkCounters::default());
        let reported: Vec<&str> = port
            .iter()
            .chain(link.iter())
            .map(|(name, _)| name)
            .collect();
        for file in FILES {
            for name in file.of {
                assert!(reported.contains(name), "{}: {name}", file.name);
            }
        }
    }

    #[test]
    fn a_counter_is_the_sum_over_programs_of_one_device() {
        let report = |device: &str, bytes| Report {
            device: device.into(),
            counters: vec![("sent_bytes".into(), bytes), ("received_bytes".into(), 1)],
            ..Report::default()
        };
        let reports = [
            report("rk_a", 4000),
            report("rk_a", 400),
            report("rk_b", 40),
        ];
        assert_eq!(PORT[0].value("rk_a", &reports), 1100);
        assert_eq!(PORT[0].value("rk_c", &reports), 0);
    }
}

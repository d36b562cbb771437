//! Counters of adapters that count faults: `hw_counters` and `counters` of sysfs, and `ethtool -S`
//! (Linux, `drivers/infiniband/hw/mlx5/counters.c`, `drivers/net/ethernet/mellanox/mlx5/core/en_stats.c`).

/// The kind of a counted fault.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum CountedFault {
    /// Packets that did not arrive: sent again after a NAK or a timeout.
    Lost,
    /// Packets that arrived and were dropped by the adapter.
    Discarded,
    /// Frames that arrived damaged, and links that failed.
    Damaged,
}

/// Names of counters by their kind; `N` stands for a priority.
const NAMES: &[(&str, CountedFault)] = &[
    ("packet_seq_err", CountedFault::Lost),
    ("out_of_sequence", CountedFault::Lost),
    ("local_ack_timeout_err", CountedFault::Lost),
    ("implied_nak_seq_err", CountedFault::Lost),
    ("rx_discards_phy", CountedFault::Discarded),
    ("rx_prioN_discards", CountedFault::Discarded),
    ("rx_prioN_buf_discard", CountedFault::Discarded),
    ("rx_out_of_buffer", CountedFault::Discarded),
    ("out_of_buffer", CountedFault::Discarded),
    ("rx_icrc_encapsulated", CountedFault::Damaged),
    ("rx_crc_errors_phy", CountedFault::Damaged),
    ("rx_symbol_err_phy", CountedFault::Damaged),
    ("rx_pcs_symbol_err_phy", CountedFault::Damaged),
    ("symbol_error", CountedFault::Damaged),
    ("port_rcv_errors", CountedFault::Damaged),
    ("link_downed", CountedFault::Damaged),
];

impl CountedFault {
    /// The fault that a counter counts, if it counts one.
    pub(crate) fn of(counter: &str) -> Option<Self> {
        let is_own = |name: &str| match name.split_once('N') {
            None => counter == name,
            Some((before, after)) => {
                let rest = counter.strip_prefix(before);
                let rest = rest.and_then(|rest| rest.strip_suffix(after));
                rest.is_some_and(|rest| rest.len() == 1 && rest.as_bytes()[0].is_ascii_digit())
            }
        };
        let found = NAMES.iter().find(|(name, _)| is_own(name));
        found.map(|(_, kind)| *kind)
    }
}

#[cfg(test)]
mod tests {
    use super::CountedFault;

    #[test]
    fn counters_of_faults_are_known_by_name() {
        for (name, kind) in [
            ("packet_seq_err", Some(CountedFault::Lost)),
            ("rx_prio3_discards", Some(CountedFault::Discarded)),
            ("rx_prio33_discards", None),
            ("rx_prio3_pause", None),
            ("rx_crc_errors_phy", Some(CountedFault::Damaged)),
            ("rx_bytes", None),
        ] {
            assert_eq!(CountedFault::of(name), kind, "{name}");
        }
    }
}

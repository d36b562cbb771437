//! Counters of adapters that count faults: `hw_counters` and `counters` of sysfs, `rdma statistic` and
//! `ethtool -S` (Linux: `counters.c` and `en_stats.c` of mlx5 and its page counters.rst, `hw_counters.c` of
//! bnxt_re, `verbs.c` of irdma).

/// The kind of a counted fault.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum CountedFault {
    /// Packets that did not arrive: sent again after a NAK or a timeout.
    Lost,
    /// Packets that arrived and were dropped by the adapter.
    Discarded,
    /// Frames that arrived damaged, and links that failed.
    Damaged,
    /// Requests that were sent again so often that their connection ended.
    Ended,
    /// Frames that are longer than the adapter takes.
    TooLong,
    /// Notifications that the adapter took no notice of: its reaction point is off.
    Ignored,
    /// Pauses that lasted so long that the adapter dropped packets.
    Storm,
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
    // bnxt_re, and irdma, whose newer names have no prefix.
    ("seq_err_naks_rcvd", CountedFault::Lost),
    ("to_retransmits", CountedFault::Lost),
    ("oos_drop_count", CountedFault::Lost),
    ("tcpRetransSegs", CountedFault::Lost),
    ("RetransSegs", CountedFault::Lost),
    ("rx_roce_discards", CountedFault::Discarded),
    ("ip4InDiscards", CountedFault::Discarded),
    ("ip6InDiscards", CountedFault::Discarded),
    ("req_transport_retries_exceeded", CountedFault::Ended),
    ("req_rnr_retries_exceeded", CountedFault::Ended),
    ("max_retry_exceeded", CountedFault::Ended),
    ("rx_oversize_pkts_phy", CountedFault::TooLong),
    ("rx_out_of_range_len_phy", CountedFault::TooLong),
    ("rp_cnp_ignored", CountedFault::Ignored),
    ("cnpIgnored", CountedFault::Ignored),
    ("tx_pause_storm_error_events", CountedFault::Storm),
];

/// How many bytes one unit of a counter of sent data is, if it is one: `port_xmit_data` counts in four bytes
/// (InfiniBand Architecture Specification, 16.1.3.5), `tx_bytes_phy` of mlx5 has what was sent on the line.
pub(crate) fn bytes_of_sent(counter: &str) -> Option<u64> {
    match counter {
        "port_xmit_data" => Some(4),
        "tx_bytes_phy" => Some(1),
        _ => None,
    }
}

impl CountedFault {
    /// The fault that a counter counts, if it counts one.
    pub(crate) fn of(counter: &str) -> Option<Self> {
        let is_own = |name: &str| match name.split_once("_prioN_") {
            None => counter == name,
            Some((before, after)) => {
                let rest = counter.strip_prefix(before);
                let rest = rest.and_then(|rest| rest.strip_prefix("_prio"));
                let digit = rest.and_then(|rest| rest.strip_suffix(after)?.strip_suffix('_'));
                digit.is_some_and(|own| own.len() == 1 && own.as_bytes()[0].is_ascii_digit())
            }
        };
        let found = NAMES.iter().find(|(name, _)| is_own(name));
        found.map(|(_, kind)| *kind)
    }
}

#[cfg(test)]
mod tests {
    use super::{CountedFault, bytes_of_sent};

    #[test]
    fn counters_of_sent_data_have_their_units() {
        assert_eq!(bytes_of_sent("port_xmit_data"), Some(4));
        assert_eq!(bytes_of_sent("tx_bytes_phy"), Some(1));
        assert_eq!(bytes_of_sent("port_rcv_data"), None);
    }

    #[test]
    fn counters_of_faults_are_known_by_name() {
        for (name, kind) in [
            ("packet_seq_err", Some(CountedFault::Lost)),
            ("rx_prio3_discards", Some(CountedFault::Discarded)),
            ("rx_prio33_discards", None),
            ("rx_prio3_pause", None),
            ("rx_crc_errors_phy", Some(CountedFault::Damaged)),
            ("rx_bytes", None),
            ("RetransSegs", Some(CountedFault::Lost)),
            ("max_retry_exceeded", Some(CountedFault::Ended)),
            ("cnpIgnored", Some(CountedFault::Ignored)),
        ] {
            assert_eq!(CountedFault::of(name), kind, "{name}");
        }
    }
}

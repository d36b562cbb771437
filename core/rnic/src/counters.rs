//! Counters of the device. Names follow `/sys/class/infiniband/*/ports/1/{counters,hw_counters}` where those
//! exist.

macro_rules! counters {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: u64,)*
        }

        impl $name {
            /// Name and value of each counter, in the order of declaration.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($field), self.$field),)*].into_iter()
            }

            /// Applies an operation to each counter and the same counter of another set.
            #[must_use]
            pub fn zip_with(&self, other: &Self, operation: impl Fn(u64, u64) -> u64) -> Self {
                Self { $($field: operation(self.$field, other.$field),)* }
            }
        }
    };
}

counters! {
    /// Counters of the port.
    PortCounters {
        /// Packets sent, retransmissions included.
        sent_packets,
        /// Payload bytes sent.
        sent_bytes,
        /// Packets received, dropped ones included.
        received_packets,
        /// Payload bytes received.
        received_bytes,
        /// ACK and NAK packets sent.
        sent_acks,
        /// ACK and NAK packets received.
        received_acks,
        /// Packets to a queue pair that does not exist or cannot receive.
        dropped_no_qp,
        /// Packets from, or to, an address that is not the queue pair's.
        dropped_wrong_address,
        /// Packets of a service that is not the queue pair's.
        dropped_wrong_service,
        /// Packets whose partition key is not ours.
        dropped_bad_pkey,
        /// Datagrams whose queue key is not the receiver's.
        dropped_bad_qkey,
        /// Datagrams that found no receive posted, or one too short.
        dropped_no_receive,
        /// Packets of an unreliable message that lost its beginning.
        dropped_incomplete,
        /// Responses to no outstanding request, and those that cannot come from the peer.
        dropped_unexpected_response,
        /// Requests that were executed before (responder).
        duplicate_request,
        /// Requests ahead of the expected PSN (responder).
        out_of_sequence,
        /// Requests placed ahead of the expected PSN (responder, out-of-order receive).
        placed_out_of_order,
        /// NAK sequence error sent.
        sent_sequence_naks,
        /// NAK sequence error received.
        packet_seq_err,
        /// READ responses or acknowledgements that were missing (implied NAK).
        implied_nak_seq_err,
        /// RNR NAKs sent.
        sent_rnr_naks,
        /// RNR NAKs received.
        rnr_nak_received,
        /// Other NAKs sent.
        sent_error_naks,
        /// Other NAKs received.
        received_error_naks,
        /// Local ACK timer expirations.
        local_ack_timeout_err,
        /// Packets sent again.
        retransmitted_packets,
        /// Retries used up.
        retry_exceeded_err,
        /// RNR retries used up.
        rnr_nak_retry_err,
        /// Congestion notification packets sent (notification point).
        np_cnp_sent,
        /// Packets that arrived with the congestion experienced mark.
        np_ecn_marked_roce_packets,
        /// Congestion notification packets handled (reaction point).
        rp_cnp_handled,
        /// Congestion notification packets ignored (reaction point): no packet that could have been marked
        /// was sent, or more arrived than a notification point sends.
        rp_cnp_ignored,
    }
}

counters! {
    /// Counters of a queue pair.
    QpCounters {
        /// Packets sent, retransmissions included.
        sent_packets,
        /// Payload bytes sent.
        sent_bytes,
        /// Packets received for this queue pair.
        received_packets,
        /// Payload bytes received.
        received_bytes,
        /// Packets sent again.
        retransmitted_packets,
        /// Requests ahead of the expected PSN.
        out_of_sequence,
        /// Requests that were executed before.
        duplicate_request,
        /// RNR NAKs received.
        rnr_nak_received,
        /// Local ACK timer expirations.
        local_ack_timeout_err,
        /// Congestion notification packets handled.
        rp_cnp_handled,
    }
}

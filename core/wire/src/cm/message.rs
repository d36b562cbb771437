//! The messages of connection management, one table each (IBTA 12.6, tables 106 to 120).

use super::code::{AprStatus, CommId, RejectReason, ServiceId, SidrStatus, Subject};
use super::layout::layouts;
use crate::number::{PartitionKey, Psn, Qpn};

/// Bytes of private data in a [`Req`].
pub const REQ_PRIVATE_DATA: usize = 92;
/// Bytes of private data in a [`Mra`].
pub const MRA_PRIVATE_DATA: usize = 222;
/// Bytes of private data in a [`Rej`].
pub const REJ_PRIVATE_DATA: usize = 148;
/// Bytes of private data in a [`Rep`].
pub const REP_PRIVATE_DATA: usize = 196;
/// Bytes of private data in a [`Rtu`].
pub const RTU_PRIVATE_DATA: usize = 224;
/// Bytes of private data in a [`Dreq`].
pub const DREQ_PRIVATE_DATA: usize = 220;
/// Bytes of private data in a [`Drep`].
pub const DREP_PRIVATE_DATA: usize = 224;
/// Bytes of private data in a [`SidrReq`].
pub const SIDR_REQ_PRIVATE_DATA: usize = 216;
/// Bytes of private data in a [`SidrRep`].
pub const SIDR_REP_PRIVATE_DATA: usize = 136;
/// Bytes of private data in a [`Lap`].
pub const LAP_PRIVATE_DATA: usize = 168;
/// Bytes of private data in an [`Apr`].
pub const APR_PRIVATE_DATA: usize = 148;
/// Room for additional information in [`Rej`], [`SidrRep`] and [`Apr`], in bytes.
pub const INFORMATION: usize = 72;

layouts! {
    /// A path, as a [`Req`] proposes one. "Local" is the sender of the REQ.
    RequestPath {
        /// LID of the sender; 0xffff on RoCE, which has none.
        local_lid: u16 = (0, 0, 16);
        /// LID of the receiver; 0xffff on RoCE.
        remote_lid: u16 = (2, 0, 16);
        /// GID of the sender.
        local_gid: [u8; 16] = (4, 0, 128);
        /// GID of the receiver.
        remote_gid: [u8; 16] = (20, 0, 128);
        /// The flow label, of 20 bits.
        flow_label: u32 = (36, 0, 20);
        /// A static rate code (IBTA 9.11.1); 0 where the sender does not set it.
        packet_rate: u8 = (39, 2, 6);
        /// DSCP and ECN.
        traffic_class: u8 = (40, 0, 8);
        /// TTL; above 1, the path is routed.
        hop_limit: u8 = (41, 0, 8);
        /// The service level of the path.
        service_level: u8 = (42, 0, 4);
        /// Whether the path stays within the subnet.
        subnet_local: bool = (42, 4, 1);
        /// Time-out that the receiver is to use on its queue pair: 4.096 µs times 2 to this power.
        local_ack_timeout: u8 = (43, 0, 5);
    }

    /// Request for communication: the active side requests a connection (IBTA 12.6.5, table 106).
    Req {
        /// Names the connection at the sender.
        local_comm_id: CommId = (0, 0, 32);
        /// Vendor ID that defines the options in the header's modifier (IBTA A18: enhanced connection
        /// establishment).
        vendor_id: u32 = (5, 0, 24);
        /// The requested service.
        service_id: ServiceId = (8, 0, 64);
        /// The sender's channel adapter.
        local_ca_guid: u64 = (16, 0, 64);
        /// For datagram services only.
        local_qkey: u32 = (28, 0, 32);
        /// The sender's queue pair.
        local_qpn: Qpn = (32, 0, 24);
        /// How many READs and atomics the sender takes at a time.
        responder_resources: u8 = (35, 0, 8);
        /// End-to-end context, for RD only.
        local_eecn: u32 = (36, 0, 24);
        /// How many READs and atomics the sender will have outstanding.
        initiator_depth: u8 = (39, 0, 8);
        /// End-to-end context, for RD only.
        remote_eecn: u32 = (40, 0, 24);
        /// Within what time the receiver is to answer: 4.096 µs times 2 to this power.
        remote_response_timeout: u8 = (43, 0, 5);
        /// 0 RC, 1 UC, 2 RD, 3 see `extended_transport`.
        transport: u8 = (43, 5, 2);
        /// Whether the sender's ACKs carry credits.
        flow_control: bool = (43, 7, 1);
        /// The PSN with which the receiver of this begins to send (IBTA 12.7.31).
        starting_psn: Psn = (44, 0, 24);
        /// Within what time the sender will answer: 4.096 µs times 2 to this power.
        local_response_timeout: u8 = (47, 0, 5);
        /// How often the receiver's queue pair is to retry.
        retry_count: u8 = (47, 5, 3);
        /// The partition of both queue pairs.
        partition_key: PartitionKey = (48, 0, 16);
        /// 1 to 5 for 256 to 4096 bytes.
        path_mtu: u8 = (50, 0, 4);
        /// For RD only.
        rdc_exists: bool = (50, 4, 1);
        /// How often the receiver's queue pair is to retry when the sender is not ready; 7 for ever.
        rnr_retry_count: u8 = (50, 5, 3);
        /// How often CM messages are repeated.
        max_cm_retries: u8 = (51, 0, 4);
        /// Whether the sender's queue pair has a shared receive queue.
        srq: bool = (51, 4, 1);
        /// With transport 3: 1 is XRC.
        extended_transport: u8 = (51, 5, 3);
        /// The path to use.
        primary_path: RequestPath = (52, 0, 352);
        /// The path to fall back to; all bits clear when there is none.
        alternate_path: RequestPath = (96, 0, 352);
        /// For RDMA-CM services it begins with a [`super::CmaHeader`].
        private_data: [u8; REQ_PRIVATE_DATA] = (140, 0, 736);
    }

    /// Message receipt acknowledgement: the answer will take a while (IBTA 12.6.6, table 107).
    Mra {
        /// Names the connection at the sender.
        local_comm_id: CommId = (0, 0, 32);
        /// Names the connection at the receiver.
        remote_comm_id: CommId = (4, 0, 32);
        /// The message that was received.
        subject: Subject = (8, 0, 2);
        /// How long the answer may take: 4.096 µs times 2 to this power.
        service_timeout: u8 = (9, 0, 5);
        /// For the program.
        private_data: [u8; MRA_PRIVATE_DATA] = (10, 0, 1776);
    }

    /// Reject (IBTA 12.6.7, table 108).
    Rej {
        /// Names the connection at the sender; 0 when it never got a name there.
        local_comm_id: CommId = (0, 0, 32);
        /// Names the connection at the receiver.
        remote_comm_id: CommId = (4, 0, 32);
        /// The message that is rejected.
        subject: Subject = (8, 0, 2);
        /// How many bytes of `information` mean something.
        information_length: u8 = (9, 0, 7);
        /// The reason for the rejection.
        reason: RejectReason = (10, 0, 16);
        /// More about the reason, in the form that the reason defines (IBTA table 109).
        information: [u8; INFORMATION] = (12, 0, 576);
        /// For the program.
        private_data: [u8; REJ_PRIVATE_DATA] = (84, 0, 1184);
    }

    /// Reply to a request: the passive side accepts (IBTA 12.6.8, table 110).
    Rep {
        /// Names the connection at the sender.
        local_comm_id: CommId = (0, 0, 32);
        /// Names the connection at the receiver.
        remote_comm_id: CommId = (4, 0, 32);
        /// For datagram services only.
        local_qkey: u32 = (8, 0, 32);
        /// The sender's queue pair.
        local_qpn: Qpn = (12, 0, 24);
        /// Vendor ID that defines the options in the header's modifier (IBTA A18).
        vendor_id: u32 = (15, 0, 8) (19, 0, 8) (23, 0, 8);
        /// End-to-end context of RD; the queue pair of an XRC target.
        local_eecn: Qpn = (16, 0, 24);
        /// The PSN with which the receiver of this begins to send (IBTA 12.7.31).
        starting_psn: Psn = (20, 0, 24);
        /// How many READs and atomics the sender takes at a time.
        responder_resources: u8 = (24, 0, 8);
        /// How many READs and atomics the sender will have outstanding.
        initiator_depth: u8 = (25, 0, 8);
        /// How long the sender's adapter takes to acknowledge: 4.096 µs times 2 to this power.
        target_ack_delay: u8 = (26, 0, 5);
        /// 0 the alternate path is accepted or there was none, 1 not supported, 2 refused.
        failover_accepted: u8 = (26, 5, 2);
        /// Whether the sender's ACKs carry credits.
        flow_control: bool = (26, 7, 1);
        /// How often the receiver's queue pair is to retry when the sender is not ready; 7 for ever.
        rnr_retry_count: u8 = (27, 0, 3);
        /// Whether the sender's queue pair has a shared receive queue.
        srq: bool = (27, 3, 1);
        /// The sender's channel adapter.
        local_ca_guid: u64 = (28, 0, 64);
        /// For the program.
        private_data: [u8; REP_PRIVATE_DATA] = (36, 0, 1568);
    }

    /// Ready to use: the active side has the connection up (IBTA 12.6.9, table 111).
    Rtu {
        /// Names the connection at the sender.
        local_comm_id: CommId = (0, 0, 32);
        /// Names the connection at the receiver.
        remote_comm_id: CommId = (4, 0, 32);
        /// For the program.
        private_data: [u8; RTU_PRIVATE_DATA] = (8, 0, 1792);
    }

    /// Request for communication release: disconnect (IBTA 12.6.10, table 112).
    Dreq {
        /// Names the connection at the sender.
        local_comm_id: CommId = (0, 0, 32);
        /// Names the connection at the receiver.
        remote_comm_id: CommId = (4, 0, 32);
        /// The receiver's queue pair.
        remote_qpn: Qpn = (8, 0, 24);
        /// For the program.
        private_data: [u8; DREQ_PRIVATE_DATA] = (12, 0, 1760);
    }

    /// Reply to a request for release (IBTA 12.6.11, table 113).
    Drep {
        /// Names the connection at the sender.
        local_comm_id: CommId = (0, 0, 32);
        /// Names the connection at the receiver.
        remote_comm_id: CommId = (4, 0, 32);
        /// For the program.
        private_data: [u8; DREP_PRIVATE_DATA] = (8, 0, 1792);
    }

    /// Load alternate path (IBTA 12.8.1, table 115).
    Lap {
        /// Names the connection at the sender.
        local_comm_id: CommId = (0, 0, 32);
        /// Names the connection at the receiver.
        remote_comm_id: CommId = (4, 0, 32);
        /// The receiver's queue pair.
        remote_qpn: Qpn = (12, 0, 24);
        /// Within what time the receiver is to answer: 4.096 µs times 2 to this power.
        remote_response_timeout: u8 = (15, 0, 5);
        /// LID of the sender.
        local_lid: u16 = (20, 0, 16);
        /// LID of the receiver.
        remote_lid: u16 = (22, 0, 16);
        /// GID of the sender.
        local_gid: [u8; 16] = (24, 0, 128);
        /// GID of the receiver.
        remote_gid: [u8; 16] = (40, 0, 128);
        /// The flow label, of 20 bits.
        flow_label: u32 = (56, 0, 20);
        /// DSCP and ECN.
        traffic_class: u8 = (59, 0, 8);
        /// The hop limit (TTL) of the path.
        hop_limit: u8 = (60, 0, 8);
        /// A static rate code (IBTA 9.11.1).
        packet_rate: u8 = (61, 2, 6);
        /// The service level of the path.
        service_level: u8 = (62, 0, 4);
        /// Whether the path stays within the subnet.
        subnet_local: bool = (62, 4, 1);
        /// Time-out that the receiver is to use on its queue pair: 4.096 µs times 2 to this power.
        local_ack_timeout: u8 = (63, 0, 5);
        /// For the program.
        private_data: [u8; LAP_PRIVATE_DATA] = (64, 0, 1344);
    }

    /// Alternate path response (IBTA 12.8.2, table 116).
    Apr {
        /// Names the connection at the sender.
        local_comm_id: CommId = (0, 0, 32);
        /// Names the connection at the receiver.
        remote_comm_id: CommId = (4, 0, 32);
        /// How many bytes of `information` mean something.
        information_length: u8 = (8, 0, 8);
        /// The result of loading the path.
        status: AprStatus = (9, 0, 8);
        /// More about the status.
        information: [u8; INFORMATION] = (12, 0, 576);
        /// For the program.
        private_data: [u8; APR_PRIVATE_DATA] = (84, 0, 1184);
    }

    /// Service ID resolution request: which queue pair serves this? (IBTA 12.11.1, table 119)
    SidrReq {
        /// Names the request at the sender.
        request_id: CommId = (0, 0, 32);
        /// The partition of the sender's queue pair.
        partition_key: PartitionKey = (4, 0, 16);
        /// The requested service.
        service_id: ServiceId = (8, 0, 64);
        /// For RDMA-CM services it begins with a [`super::CmaHeader`].
        private_data: [u8; SIDR_REQ_PRIVATE_DATA] = (16, 0, 1728);
    }

    /// Service ID resolution response (IBTA 12.11.2, table 120).
    SidrRep {
        /// Names the request at the receiver.
        request_id: CommId = (0, 0, 32);
        /// Whether there is such a queue pair.
        status: SidrStatus = (4, 0, 8);
        /// How many bytes of `information` mean something.
        information_length: u8 = (5, 0, 8);
        /// Vendor ID that defines the options in the header's modifier (IBTA A18).
        vendor_id: u32 = (6, 0, 16) (11, 0, 8);
        /// The queue pair that serves.
        qpn: Qpn = (8, 0, 24);
        /// The service of the request.
        service_id: ServiceId = (12, 0, 64);
        /// The Q_Key that datagrams to the queue pair must have.
        qkey: u32 = (20, 0, 32);
        /// More about the status.
        information: [u8; INFORMATION] = (24, 0, 576);
        /// For the program.
        private_data: [u8; SIDR_REP_PRIVATE_DATA] = (96, 0, 1088);
    }
}

impl RequestPath {
    /// Whether this is a path at all: an unused alternate path has all bits clear (IBTA 12.6.5).
    pub fn is_some(&self) -> bool {
        *self != Self::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::ops::Range;

    #[cfg(test)]
    extern crate std;
    use std::vec::Vec;

    fn check_layout(
        name: &str,
        bits: impl Iterator<Item = (&'static str, Range<usize>)>,
        end: usize,
    ) {
        let mut bits: Vec<_> = bits.collect();
        bits.sort_by_key(|(_, range)| range.start);
        for pair in bits.windows(2) {
            assert!(pair[0].1.end <= pair[1].1.start, "{name}: {pair:?}");
        }
        assert_eq!(bits.last().unwrap().1.end, end * 8, "{name}");
    }

    #[test]
    fn no_two_fields_share_a_bit_and_private_data_ends_the_message() {
        check_layout("path", RequestPath::bits().chain([("", 349..352)]), 44);
        check_layout("REQ", Req::bits(), 232);
        check_layout("MRA", Mra::bits(), 232);
        check_layout("REJ", Rej::bits(), 232);
        check_layout("REP", Rep::bits(), 232);
        check_layout("RTU", Rtu::bits(), 232);
        check_layout("DREQ", Dreq::bits(), 232);
        check_layout("DREP", Drep::bits(), 232);
        check_layout("LAP", Lap::bits(), 232);
        check_layout("APR", Apr::bits(), 232);
        check_layout("SIDR_REQ", SidrReq::bits(), 232);
        check_layout("SIDR_REP", SidrRep::bits(), 232);
    }

    #[test]
    fn an_array_has_the_width_of_its_place() {
        // The macro takes both from the table; here they are held against each other.
        for (name, bits) in Req::bits() {
            let bytes = match name {
                "private_data" => REQ_PRIVATE_DATA,
                "primary_path" | "alternate_path" => 44,
                _ => continue,
            };
            assert_eq!(bits.len(), bytes * 8, "{name}");
        }
        let last = |bits: Vec<(&str, Range<usize>)>| bits.last().unwrap().1.len() / 8;
        assert_eq!(last(Mra::bits().collect()), MRA_PRIVATE_DATA);
        assert_eq!(last(Rej::bits().collect()), REJ_PRIVATE_DATA);
        assert_eq!(last(Rep::bits().collect()), REP_PRIVATE_DATA);
        assert_eq!(last(Rtu::bits().collect()), RTU_PRIVATE_DATA);
        assert_eq!(last(Dreq::bits().collect()), DREQ_PRIVATE_DATA);
        assert_eq!(last(Drep::bits().collect()), DREP_PRIVATE_DATA);
        assert_eq!(last(Lap::bits().collect()), LAP_PRIVATE_DATA);
        assert_eq!(last(Apr::bits().collect()), APR_PRIVATE_DATA);
        assert_eq!(last(SidrReq::bits().collect()), SIDR_REQ_PRIVATE_DATA);
        assert_eq!(last(SidrRep::bits().collect()), SIDR_REP_PRIVATE_DATA);
    }

    #[test]
    fn a_vendor_is_one_number_in_three_places() {
        let rep = Rep {
            vendor_id: 0x12_34_56,
            ..Rep::default()
        };
        let bytes = rep.to_bytes();
        assert_eq!((bytes[15], bytes[19], bytes[23]), (0x12, 0x34, 0x56));
        assert_eq!(Rep::parse(&bytes).vendor_id, 0x12_34_56);
        let sidr = SidrRep {
            vendor_id: 0x12_34_56,
            ..SidrRep::default()
        }
        .to_bytes();
        assert_eq!((sidr[6], sidr[7], sidr[11]), (0x12, 0x34, 0x56));
    }
}

//! RoCEv2 packets in the decoded form that the device and the simulation work on.

use crate::number::{PartitionKey, Psn, Qpn, Rkey};

/// Transport service: the upper three bits of the opcode (IBTA 9.2, table 38).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Service {
    /// Reliable connection (RC).
    Rc,
    /// Unreliable connection (UC).
    Uc,
    /// Unreliable datagram (UD).
    Ud,
    /// Extended reliable connection: RC with an XRC header that names the receive queue.
    Xrc,
}

/// The position of a packet in its message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Position {
    /// More packets follow.
    First,
    /// Packets before and after.
    Middle,
    /// Ends a message of several packets.
    Last,
    /// A message of one packet.
    Only,
}

impl Position {
    /// Whether a message begins with this packet.
    pub const fn starts(self) -> bool {
        matches!(self, Self::First | Self::Only)
    }

    /// Whether a message ends with this packet.
    pub const fn ends(self) -> bool {
        matches!(self, Self::Last | Self::Only)
    }

    /// The position of packet `index` in a message of `count` packets.
    pub const fn of(index: u32, count: u32) -> Self {
        match (index == 0, index + 1 >= count) {
            (true, true) => Self::Only,
            (true, false) => Self::First,
            (false, true) => Self::Last,
            (false, false) => Self::Middle,
        }
    }
}

/// Immediate data, or the key to invalidate, in the last packet of a SEND or WRITE.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum Tail {
    /// The message ends without either.
    #[default]
    None,
    /// Immediate data, big-endian end to end: the bytes as they are on the wire.
    Immediate([u8; 4]),
    /// SEND with invalidate: the key that the receiver is to invalidate (IETH).
    Invalidate(Rkey),
}

/// RDMA extended header (IBTA 9.3.3): where a WRITE goes or a READ comes from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Reth {
    /// Virtual address in the responder.
    pub address: u64,
    /// The responder's key for it.
    pub rkey: Rkey,
    /// Length of the whole transfer in bytes (of this packet alone when every packet carries a RETH).
    pub length: u32,
}

/// ACK extended header (IBTA 9.3.5).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Aeth {
    /// Acknowledged, not ready, or refused.
    pub syndrome: Syndrome,
    /// Message sequence number: how many request messages the responder has completed, 24 bits.
    pub msn: u32,
}

/// The meaning of the AETH syndrome byte (IBTA 9.7.5.2.4, table 45).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Syndrome {
    /// Positive acknowledgement; the 5-bit credit count, 31 when credits are not in use.
    Ack(u8),
    /// Receiver not ready; the 5-bit code of the time to wait.
    RnrNak(u8),
    /// Refused; the 5-bit NAK code: 0 PSN sequence error, 1 invalid request, 2 remote access error,
    /// 3 remote operational error, 4 invalid RD request.
    Nak(u8),
    /// A reserved encoding: the whole byte.
    Reserved(u8),
}

impl Syndrome {
    /// A positive acknowledgement without credit information.
    pub const ACK: Self = Self::Ack(31);
    /// NAK code 0: a gap in the sequence of PSNs.
    pub const NAK_SEQUENCE: Self = Self::Nak(0);
    /// NAK code 1.
    pub const NAK_INVALID_REQUEST: Self = Self::Nak(1);
    /// NAK code 2: key, range or permission.
    pub const NAK_REMOTE_ACCESS: Self = Self::Nak(2);
    /// NAK code 3.
    pub const NAK_REMOTE_OPERATIONAL: Self = Self::Nak(3);
}

/// Atomic extended header (IBTA 9.3.4).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct AtomicEth {
    /// Virtual address in the responder, a multiple of 8.
    pub address: u64,
    /// The responder's key for it.
    pub rkey: Rkey,
    /// The value to swap in, or to add.
    pub swap_add: u64,
    /// The value to compare with; unused by FetchAdd.
    pub compare: u64,
}

/// Datagram extended header (IBTA 9.3.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Deth {
    /// Queue key: must match the receiver's.
    pub qkey: u32,
    /// The sender's queue pair.
    pub source: Qpn,
}

/// The operation that a packet carries, with the fields of its extended headers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Message {
    /// SEND on RC, UC or XRC.
    Send {
        /// Where in the message.
        position: Position,
        /// Only where `position.ends()`.
        tail: Tail,
    },
    /// RDMA WRITE. `reth` is present where `position.starts()`; `tail` is `None` or `Immediate`.
    Write {
        /// Where in the message.
        position: Position,
        /// Only where `position.starts()`.
        reth: Option<Reth>,
        /// Only where `position.ends()`.
        tail: Tail,
    },
    /// RDMA READ request.
    ReadRequest {
        /// What to read.
        reth: Reth,
        /// The requester takes each packet of the response as a READ RESPONSE ONLY. The reserved bit of the
        /// BTH beside AckReq, of rockery's own: other implementations clear it and ignore it.
        response_only: bool,
    },
    /// RDMA READ response. `aeth` is absent where the position is `Middle`.
    ReadResponse {
        /// Where in the response.
        position: Position,
        /// Absent in the middle.
        aeth: Option<Aeth>,
    },
    /// ACK or NAK.
    Acknowledge(Aeth),
    /// The result of an atomic: the value before it.
    AtomicAcknowledge {
        /// Acknowledges the request, and those before it.
        aeth: Aeth,
        /// The value before the operation.
        original: u64,
    },
    /// Compare and swap.
    CompareSwap(AtomicEth),
    /// Fetch and add.
    FetchAdd(AtomicEth),
    /// ATOMIC WRITE (IBTA 1.6, annex A19): eight bytes of payload stored at once.
    AtomicWrite(Reth),
    /// UD SEND, one packet always.
    Datagram {
        /// Queue key and source.
        deth: Deth,
        /// `None` or `Immediate`.
        tail: Tail,
    },
    /// Congestion notification packet (IBTA A17.9.3): packets to its receiver's peer were marked.
    Congestion,
}

impl Message {
    /// A READ request as IBTA has it.
    #[inline]
    pub const fn read(reth: Reth) -> Self {
        Self::ReadRequest {
            reth,
            response_only: false,
        }
    }
}

/// A RoCEv2 packet without its payload: base transport header and what follows it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Packet {
    /// Transport service. For [`Message::Congestion`] it has no meaning and is `Rc`.
    pub service: Service,
    /// Solicited event: the receiver's completion raises an event even when only those are requested.
    pub solicited: bool,
    /// Migration state bit. HCAs set it, Linux's software device does not; receivers take both.
    pub migreq: bool,
    /// Forward explicit congestion notification.
    pub fecn: bool,
    /// Backward explicit congestion notification.
    pub becn: bool,
    /// The partition of the destination queue pair.
    pub pkey: PartitionKey,
    /// Destination queue pair.
    pub dest: Qpn,
    /// The responder must answer this packet.
    pub ack_req: bool,
    /// The packet sequence number.
    pub psn: Psn,
    /// XRC only: the shared receive queue that takes the message. In requests, absent in responses.
    pub xrc_srq: Option<Qpn>,
    /// The operation, with the fields of its extended headers.
    pub message: Message,
}

impl Packet {
    /// A packet with every flag clear, in the default partition.
    #[inline(always)]
    pub const fn new(service: Service, dest: Qpn, psn: Psn, message: Message) -> Self {
        Self {
            service,
            solicited: false,
            migreq: false,
            fecn: false,
            becn: false,
            pkey: PartitionKey::DEFAULT,
            dest,
            ack_req: false,
            psn,
            xrc_srq: None,
            message,
        }
    }
}

//! The opcode byte (IBTA 9.2.1, table 38; Annexes A14, A17 and A19): one table has for each operation the
//! services that support it, the extended headers that follow the BTH, and whether payload may follow those.
//!
//! The upper three bits of an opcode are the service, the lower five the operation. The discriminants of
//! [`Operation`] are those five bits, so that composing an opcode needs no search; taking one apart is one
//! load from a table that the compiler makes of [`OPERATIONS`].

use crate::bth::BTH_SIZE;
use crate::ext;
use crate::packet::Service;

/// The operation of a packet: the lower five bits of its opcode, or the congestion notification, which has an
/// opcode outside of these.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
#[allow(missing_docs, reason = "the names are those of IBTA table 38")]
pub enum Operation {
    SendFirst = 0x00,
    SendMiddle = 0x01,
    SendLast = 0x02,
    SendLastImmediate = 0x03,
    SendOnly = 0x04,
    SendOnlyImmediate = 0x05,
    WriteFirst = 0x06,
    WriteMiddle = 0x07,
    WriteLast = 0x08,
    WriteLastImmediate = 0x09,
    WriteOnly = 0x0a,
    WriteOnlyImmediate = 0x0b,
    ReadRequest = 0x0c,
    ReadResponseFirst = 0x0d,
    ReadResponseMiddle = 0x0e,
    ReadResponseLast = 0x0f,
    ReadResponseOnly = 0x10,
    Acknowledge = 0x11,
    AtomicAcknowledge = 0x12,
    CompareSwap = 0x13,
    FetchAdd = 0x14,
    SendLastInvalidate = 0x16,
    SendOnlyInvalidate = 0x17,
    AtomicWrite = 0x1d,
    /// CNP: service bits 0b100 are used for nothing else.
    Congestion = CNP,
}

impl Operation {
    /// A number below 32, for sets of operations: the lower five bits of the opcode. Those of the congestion
    /// notification are SEND MIDDLE's, so it has one that no operation has.
    pub const fn number(self) -> u8 {
        match self {
            Self::Congestion => 0x1e,
            _ => self as u8 & 0x1f,
        }
    }

    /// Its name in configurations: IBTA's in lower case, with hyphens.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SendFirst => "send-first",
            Self::SendMiddle => "send-middle",
            Self::SendLast => "send-last",
            Self::SendLastImmediate => "send-last-immediate",
            Self::SendOnly => "send-only",
            Self::SendOnlyImmediate => "send-only-immediate",
            Self::WriteFirst => "write-first",
            Self::WriteMiddle => "write-middle",
            Self::WriteLast => "write-last",
            Self::WriteLastImmediate => "write-last-immediate",
            Self::WriteOnly => "write-only",
            Self::WriteOnlyImmediate => "write-only-immediate",
            Self::ReadRequest => "read-request",
            Self::ReadResponseFirst => "read-response-first",
            Self::ReadResponseMiddle => "read-response-middle",
            Self::ReadResponseLast => "read-response-last",
            Self::ReadResponseOnly => "read-response-only",
            Self::Acknowledge => "acknowledge",
            Self::AtomicAcknowledge => "atomic-acknowledge",
            Self::CompareSwap => "compare-swap",
            Self::FetchAdd => "fetch-add",
            Self::SendLastInvalidate => "send-last-invalidate",
            Self::SendOnlyInvalidate => "send-only-invalidate",
            Self::AtomicWrite => "atomic-write",
            Self::Congestion => "congestion-notification",
        }
    }
}

/// The opcode of a congestion notification packet (Annex A17.9.3).
pub const CNP: u8 = 0x81;

/// Bytes after the BTH of a congestion notification packet, reserved and zero (Annex A17.9.3).
pub const CNP_RESERVED_SIZE: usize = 16;

/// The headers that may follow a BTH, in the order of this list where several do.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum HeaderKind {
    /// Datagram: in every UD packet.
    Deth,
    /// XRC: in every XRC request, right behind the BTH (Annex A14).
    XrcEth,
    /// RDMA: where a WRITE goes or a READ comes from.
    Reth,
    /// Atomic: the operands for eight bytes.
    AtomicEth,
    /// ACK extended header (AETH).
    Aeth,
    /// Atomic acknowledgement: the value before.
    AtomicAckEth,
    /// Immediate data header (ImmDt).
    Immediate,
    /// Invalidate: a key.
    Ieth,
    /// The reserved bytes of a congestion notification.
    CnpReserved,
}

impl HeaderKind {
    /// Size of the header in bytes.
    pub const fn size(self) -> usize {
        match self {
            Self::Deth => ext::DETH_SIZE,
            Self::XrcEth => ext::XRC_ETH_SIZE,
            Self::Reth => ext::RETH_SIZE,
            Self::AtomicEth => ext::ATOMIC_ETH_SIZE,
            Self::Aeth => ext::AETH_SIZE,
            Self::AtomicAckEth => ext::ATOMIC_ACK_ETH_SIZE,
            Self::Immediate => ext::IMMEDIATE_SIZE,
            Self::Ieth => ext::IETH_SIZE,
            Self::CnpReserved => CNP_RESERVED_SIZE,
        }
    }

    /// Name of the header in the specification.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Deth => "DETH",
            Self::XrcEth => "XRCETH",
            Self::Reth => "RETH",
            Self::AtomicEth => "AtomicETH",
            Self::Aeth => "AETH",
            Self::AtomicAckEth => "AtomicAckETH",
            Self::Immediate => "ImmDt",
            Self::Ieth => "IETH",
            Self::CnpReserved => "reserved bytes of the CNP",
        }
    }
}

/// One line of the table.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The operation that the opcode names.
    pub operation: Operation,
    /// The services that support it.
    pub services: &'static [Service],
    /// Extended headers behind those of the service (DETH for UD, XRCETH for requests on XRC).
    pub headers: &'static [HeaderKind],
    /// Whether payload may follow.
    pub payload: bool,
}

const CONNECTED: &[Service] = &[Service::Rc, Service::Uc, Service::Xrc];
const RELIABLE: &[Service] = &[Service::Rc, Service::Xrc];
const ANY: &[Service] = &[Service::Rc, Service::Uc, Service::Xrc, Service::Ud];

/// The table: every operation there is.
pub const OPERATIONS: [Row; 25] = {
    use HeaderKind::{Aeth, AtomicAckEth, AtomicEth, CnpReserved, Ieth, Immediate, Reth};
    use Operation as O;
    [
        row(O::SendFirst, CONNECTED, &[], true),
        row(O::SendMiddle, CONNECTED, &[], true),
        row(O::SendLast, CONNECTED, &[], true),
        row(O::SendLastImmediate, CONNECTED, &[Immediate], true),
        row(O::SendOnly, ANY, &[], true),
        row(O::SendOnlyImmediate, ANY, &[Immediate], true),
        row(O::WriteFirst, CONNECTED, &[Reth], true),
        row(O::WriteMiddle, CONNECTED, &[], true),
        row(O::WriteLast, CONNECTED, &[], true),
        row(O::WriteLastImmediate, CONNECTED, &[Immediate], true),
        row(O::WriteOnly, CONNECTED, &[Reth], true),
        row(O::WriteOnlyImmediate, CONNECTED, &[Reth, Immediate], true),
        row(O::ReadRequest, RELIABLE, &[Reth], false),
        row(O::ReadResponseFirst, RELIABLE, &[Aeth], true),
        row(O::ReadResponseMiddle, RELIABLE, &[], true),
        row(O::ReadResponseLast, RELIABLE, &[Aeth], true),
        row(O::ReadResponseOnly, RELIABLE, &[Aeth], true),
        row(O::Acknowledge, RELIABLE, &[Aeth], false),
        row(O::AtomicAcknowledge, RELIABLE, &[Aeth, AtomicAckEth], false),
        row(O::CompareSwap, RELIABLE, &[AtomicEth], false),
        row(O::FetchAdd, RELIABLE, &[AtomicEth], false),
        row(O::SendLastInvalidate, RELIABLE, &[Ieth], true),
        row(O::SendOnlyInvalidate, RELIABLE, &[Ieth], true),
        row(O::AtomicWrite, RELIABLE, &[Reth], true),
        // The service of a CNP has no meaning; the table has Rc.
        row(O::Congestion, &[Service::Rc], &[CnpReserved], false),
    ]
};

const fn row(
    operation: Operation,
    services: &'static [Service],
    headers: &'static [HeaderKind],
    payload: bool,
) -> Row {
    Row {
        operation,
        services,
        headers,
        payload,
    }
}

/// An opcode that exists.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Opcode {
    /// The transport service of the opcode.
    pub service: Service,
    /// The operation of the opcode.
    pub operation: Operation,
}

impl Opcode {
    /// The opcode for `operation` on `service`, `None` where that service does not support it.
    #[inline]
    pub const fn new(service: Service, operation: Operation) -> Option<Self> {
        Self::parse(compose(service, operation))
    }

    /// Parses an opcode byte; `None` for a reserved one.
    #[inline]
    pub const fn parse(byte: u8) -> Option<Self> {
        LOOKUP[byte as usize]
    }

    /// The opcode byte of the BTH.
    #[inline]
    pub const fn byte(self) -> u8 {
        compose(self.service, self.operation)
    }

    /// Whether an XRC extended header follows the BTH: in requests, not in responses (Annex A14).
    #[inline]
    pub const fn has_xrc_eth(self) -> bool {
        use Operation as O;
        matches!(self.service, Service::Xrc)
            && !matches!(
                self.operation,
                O::ReadResponseFirst
                    | O::ReadResponseMiddle
                    | O::ReadResponseLast
                    | O::ReadResponseOnly
                    | O::Acknowledge
                    | O::AtomicAcknowledge
            )
    }

    /// The operation's line in the table.
    pub const fn row(self) -> &'static Row {
        // The loop ends at the latest at the last line: an opcode is made from a line only.
        let mut index = 0;
        while index + 1 < OPERATIONS.len()
            && OPERATIONS[index].operation as u8 != self.operation as u8
        {
            index += 1;
        }
        &OPERATIONS[index]
    }

    /// Bytes from the start of the BTH to the payload.
    #[inline]
    pub const fn header_size(self) -> usize {
        FACTS[self.byte() as usize].header_size as usize
    }

    /// Whether payload may follow the headers.
    #[inline]
    pub const fn has_payload(self) -> bool {
        FACTS[self.byte() as usize].payload
    }

    const fn sum_of_headers(self) -> usize {
        let mut size = BTH_SIZE;
        if matches!(self.service, Service::Ud) {
            size += HeaderKind::Deth.size();
        }
        if self.has_xrc_eth() {
            size += HeaderKind::XrcEth.size();
        }
        let headers = self.row().headers;
        let mut index = 0;
        while index < headers.len() {
            size += headers[index].size();
            index += 1;
        }
        size
    }
}

#[inline]
const fn compose(service: Service, operation: Operation) -> u8 {
    let bits = match service {
        _ if matches!(operation, Operation::Congestion) => 0,
        Service::Rc => 0x00,
        Service::Uc => 0x20,
        Service::Ud => 0x60,
        Service::Xrc => 0xa0,
    };
    bits | operation as u8
}

/// From the opcode byte to its service and operation.
const TABLE: [Option<Opcode>; 256] = {
    let mut lookup = [None; 256];
    let mut line = 0;
    while line < OPERATIONS.len() {
        let row = OPERATIONS[line];
        let mut index = 0;
        while index < row.services.len() {
            let opcode = Opcode {
                service: row.services[index],
                operation: row.operation,
            };
            lookup[opcode.byte() as usize] = Some(opcode);
            index += 1;
        }
        line += 1;
    }
    lookup
};

static LOOKUP: [Option<Opcode>; 256] = TABLE;

/// Properties of an opcode that each packet needs, precomputed.
#[derive(Clone, Copy)]
struct Facts {
    header_size: u8,
    payload: bool,
}

static FACTS: [Facts; 256] = {
    let mut facts = [Facts {
        header_size: 0,
        payload: false,
    }; 256];
    let mut byte = 0;
    while byte < TABLE.len() {
        if let Some(opcode) = TABLE[byte] {
            facts[byte] = Facts {
                header_size: opcode.sum_of_headers() as u8,
                payload: opcode.row().payload,
            };
        }
        byte += 1;
    }
    facts
};

/// The longest header: BTH, XRCETH and AtomicETH, 44 bytes.
pub const MAX_HEADERS: usize = {
    let mut max = 0;
    let mut byte = 0;
    while byte < TABLE.len() {
        if let Some(opcode) = TABLE[byte]
            && opcode.sum_of_headers() > max
        {
            max = opcode.sum_of_headers();
        }
        byte += 1;
    }
    max
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_opcodes_agree_both_ways() {
        let mut count = 0;
        for byte in 0..=u8::MAX {
            if let Some(opcode) = Opcode::parse(byte) {
                assert_eq!(opcode.byte(), byte);
                assert_eq!(opcode.row().operation, opcode.operation);
                assert!(opcode.header_size() <= MAX_HEADERS);
                count += 1;
            }
        }
        // RC and XRC have 24 operations each, UC the 12 SENDs and WRITEs, UD 2; and there is the CNP.
        assert_eq!(count, 24 + 24 + 12 + 2 + 1);
    }

    #[test]
    fn operations_have_numbers_and_names_of_their_own() {
        let operations = OPERATIONS.map(|row| row.operation);
        let mut numbers = operations.map(Operation::number);
        let mut names = operations.map(Operation::name);
        numbers.sort_unstable();
        names.sort_unstable();
        assert!(numbers.windows(2).all(|two| two[0] < two[1]) && numbers[24] < 31);
        assert!(names.windows(2).all(|two| two[0] < two[1]), "{names:?}");
        assert_eq!(Operation::WriteOnly.number(), 0x0a);
    }

    #[test]
    fn the_numbers_of_the_specification() {
        use Operation as O;
        let byte = |service, operation| Opcode::new(service, operation).map(Opcode::byte);
        assert_eq!(byte(Service::Rc, O::Acknowledge), Some(0x11));
        assert_eq!(byte(Service::Rc, O::SendOnlyInvalidate), Some(0x17));
        assert_eq!(byte(Service::Rc, O::AtomicWrite), Some(0x1d));
        assert_eq!(byte(Service::Uc, O::WriteOnlyImmediate), Some(0x2b));
        assert_eq!(byte(Service::Ud, O::SendOnly), Some(0x64));
        assert_eq!(byte(Service::Ud, O::SendOnlyImmediate), Some(0x65));
        assert_eq!(byte(Service::Xrc, O::SendFirst), Some(0xa0));
        assert_eq!(byte(Service::Rc, O::Congestion), Some(0x81));
        assert_eq!(byte(Service::Uc, O::ReadRequest), None);
        assert_eq!(byte(Service::Ud, O::WriteOnly), None);
        for reserved in [0x15, 0x18, 0x1c, 0x2c, 0x36, 0x60, 0x80, 0x82, 0xc0, 0xff] {
            assert_eq!(Opcode::parse(reserved), None, "{reserved:#04x}");
        }
    }

    #[test]
    fn sizes_of_headers() {
        let size = |byte| Opcode::parse(byte).map(Opcode::header_size);
        assert_eq!(size(0x04), Some(12));
        assert_eq!(size(0x0b), Some(32));
        assert_eq!(size(0x12), Some(24));
        assert_eq!(size(0x13), Some(40));
        assert_eq!(size(0x65), Some(24));
        assert_eq!(size(0x81), Some(28));
        assert_eq!(size(0xb3), Some(44));
        assert_eq!(size(0xb1), Some(16));
        assert_eq!(MAX_HEADERS, 44);
    }
}

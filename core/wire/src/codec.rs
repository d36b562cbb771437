//! From bytes to [`Packet`] and back.
//!
//! The guarantees of both together: `parse` never panics, whatever the bytes; when `encode` succeeds, `parse`
//! gives the same packet back; and encoding what was parsed gives the same bytes back when their reserved
//! bits were clear (receivers ignore reserved bits, senders clear them: IBTA 9.2).

use thiserror::Error;

use crate::bth::{self, Bth};
use crate::ext::{self, ATOMIC_ACK_ETH_SIZE, RETH_SIZE};
use crate::number::Rkey;
use crate::opcode::{CNP_RESERVED_SIZE, HeaderKind, MAX_HEADERS, Opcode, Operation};
use crate::packet::{Aeth, AtomicEth, Deth, Message, Packet, Position, Reth, Service, Tail};

/// Why bytes are not a RoCEv2 packet. Each is a reason to drop it without an answer (IBTA 9.6).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum ParseError {
    /// Fewer than twelve bytes.
    #[error("packet of {length} bytes is shorter than a BTH (12 bytes)")]
    Bth {
        /// Bytes there were.
        length: usize,
    },
    /// Transport header version other than 0.
    #[error("BTH: transport header version {version}, only 0 is defined")]
    Version {
        /// The four bits.
        version: u8,
    },
    /// A reserved opcode.
    #[error("BTH: opcode {opcode:#04x} is reserved")]
    Opcode {
        /// The opcode byte of the BTH.
        opcode: u8,
    },
    /// The packet ends before an extended header does.
    #[error("opcode {opcode:#04x}: packet ends within {}", header.name())]
    Truncated {
        /// The opcode that requires the header.
        opcode: u8,
        /// The header that is cut off.
        header: HeaderKind,
    },
    /// More bytes of padding than bytes behind the headers.
    #[error("BTH: pad count {pad} exceeds the {length} bytes behind the headers")]
    Pad {
        /// The pad count.
        pad: u8,
        /// Bytes there were.
        length: usize,
    },
    /// Payload behind an operation that has none (IBTA table 38).
    #[error("opcode {opcode:#04x} has no payload, {length} bytes came")]
    Payload {
        /// The opcode byte of the BTH.
        opcode: u8,
        /// Bytes there were.
        length: usize,
    },
}

/// Why a [`Packet`] has no bytes: its fields contradict each other. A fault of the caller, never of a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum EncodeError {
    /// The service does not support the operation, or the operation not the tail.
    #[error("the transport service has no opcode for this operation")]
    Opcode,
    /// A header that the opcode requires is absent, or one that it does not have is present.
    #[error("{} is absent where the opcode has it, or present where it has not", .0.name())]
    HeaderKind(HeaderKind),
}

/// How many bytes of padding bring `payload_length` bytes to a multiple of four (IBTA 9.2).
#[inline]
pub const fn pad_of(payload_length: usize) -> u8 {
    (payload_length.wrapping_neg() & 3) as u8
}

impl Packet {
    /// Parses the bytes between the UDP header and the ICRC, both exclusive; returns the packet and its
    /// payload without padding, which lies in `bytes`.
    ///
    /// # Errors
    /// [`ParseError`] names the field that is wrong. The contents of padding and reserved bits are ignored.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        let Some((bth, mut rest)) = Bth::split(bytes) else {
            return Err(ParseError::Bth {
                length: bytes.len(),
            });
        };
        if bth.version() != 0 {
            return Err(ParseError::Version {
                version: bth.version(),
            });
        }
        let Some(opcode) = Opcode::parse(bth.opcode()) else {
            return Err(ParseError::Opcode {
                opcode: bth.opcode(),
            });
        };
        let mut reader = Reader {
            opcode: bth.opcode(),
            response_only: bth.response_only(),
            rest,
        };
        let xrc_srq = match opcode.has_xrc_eth() {
            true => Some(ext::qpn_parse(reader.take(HeaderKind::XrcEth)?)),
            false => None,
        };
        let message = reader.message(opcode)?;
        rest = reader.rest;
        let length = rest.len();
        let Some(payload_length) = length.checked_sub(usize::from(bth.pad())) else {
            return Err(ParseError::Pad {
                pad: bth.pad(),
                length,
            });
        };
        if length != 0 && !opcode.has_payload() {
            return Err(ParseError::Payload {
                opcode: bth.opcode(),
                length,
            });
        }
        let packet = Self {
            service: opcode.service,
            solicited: bth.solicited(),
            migreq: bth.migreq(),
            fecn: bth.fecn(),
            becn: bth.becn(),
            pkey: bth.pkey(),
            dest: bth.dest(),
            ack_req: bth.ack_req(),
            psn: bth.psn(),
            xrc_srq,
            message,
        };
        Ok((packet, rest.get(..payload_length).unwrap_or_default()))
    }

    /// Writes the headers, from BTH to payload, to the start of `out` and returns their length. `pad` is how
    /// many bytes of padding will follow the payload: see [`pad_of`].
    ///
    /// # Errors
    /// [`EncodeError`] when the packet's fields contradict each other; `out` then holds nothing of use.
    #[inline]
    pub fn encode(&self, pad: u8, out: &mut [u8; MAX_HEADERS]) -> Result<usize, EncodeError> {
        let opcode = self.opcode().ok_or(EncodeError::Opcode)?;
        let mut writer = Writer { out, length: 0 };
        writer.put_bytes(bth::to_bytes(self, opcode.byte(), pad));
        match (opcode.has_xrc_eth(), self.xrc_srq) {
            (true, Some(srq)) => writer.put_bytes(ext::qpn_to_bytes(srq)),
            (false, None) => {}
            _ => return Err(EncodeError::HeaderKind(HeaderKind::XrcEth)),
        }
        writer.message(&self.message)?;
        Ok(writer.length)
    }

    /// The opcode of this packet's service and message; `None` where there is no such opcode.
    #[inline]
    pub const fn opcode(&self) -> Option<Opcode> {
        match self.message.operation() {
            Some(operation) => match (self.service, &self.message) {
                // Datagrams are the SENDs of UD, and have a message of their own for the sake of the DETH.
                (Service::Ud, Message::Datagram { .. }) => Opcode::new(Service::Ud, operation),
                (Service::Ud, _) | (_, Message::Datagram { .. }) => None,
                (service, Message::Congestion) if !matches!(service, Service::Rc) => None,
                (service, _) => Opcode::new(service, operation),
            },
            None => None,
        }
    }
}

impl Message {
    /// The operation of a message; `None` where its position or kind does not allow its tail.
    #[inline]
    pub const fn operation(&self) -> Option<Operation> {
        use Operation as O;
        Some(match *self {
            Self::Send { position, tail } => return send_operation(position, tail),
            Self::Write { position, tail, .. } => return write_operation(position, tail),
            Self::ReadRequest { .. } => O::ReadRequest,
            Self::ReadResponse { position, .. } => match position {
                Position::First => O::ReadResponseFirst,
                Position::Middle => O::ReadResponseMiddle,
                Position::Last => O::ReadResponseLast,
                Position::Only => O::ReadResponseOnly,
            },
            Self::Acknowledge(_) => O::Acknowledge,
            Self::AtomicAcknowledge { .. } => O::AtomicAcknowledge,
            Self::CompareSwap(_) => O::CompareSwap,
            Self::FetchAdd(_) => O::FetchAdd,
            Self::AtomicWrite(_) => O::AtomicWrite,
            Self::Datagram { tail, .. } => match tail {
                Tail::None => O::SendOnly,
                Tail::Immediate(_) => O::SendOnlyImmediate,
                Tail::Invalidate(_) => return None,
            },
            Self::Congestion => O::Congestion,
        })
    }
}

/// The operation of a SEND packet. Only the end of a message has immediate data or a key to invalidate.
#[inline]
const fn send_operation(position: Position, tail: Tail) -> Option<Operation> {
    use Position::{First, Last, Middle, Only};
    Some(match (position, tail) {
        (First, Tail::None) => Operation::SendFirst,
        (Middle, Tail::None) => Operation::SendMiddle,
        (Last, Tail::None) => Operation::SendLast,
        (Last, Tail::Immediate(_)) => Operation::SendLastImmediate,
        (Last, Tail::Invalidate(_)) => Operation::SendLastInvalidate,
        (Only, Tail::None) => Operation::SendOnly,
        (Only, Tail::Immediate(_)) => Operation::SendOnlyImmediate,
        (Only, Tail::Invalidate(_)) => Operation::SendOnlyInvalidate,
        (First | Middle, Tail::Immediate(_) | Tail::Invalidate(_)) => return None,
    })
}

/// The operation of a WRITE packet. Only the end of a message has immediate data, and none invalidates a key.
#[inline]
const fn write_operation(position: Position, tail: Tail) -> Option<Operation> {
    use Position::{First, Last, Middle, Only};
    Some(match (position, tail) {
        (First, Tail::None) => Operation::WriteFirst,
        (Middle, Tail::None) => Operation::WriteMiddle,
        (Last, Tail::None) => Operation::WriteLast,
        (Last, Tail::Immediate(_)) => Operation::WriteLastImmediate,
        (Only, Tail::None) => Operation::WriteOnly,
        (Only, Tail::Immediate(_)) => Operation::WriteOnlyImmediate,
        (First | Middle, Tail::Immediate(_)) | (_, Tail::Invalidate(_)) => return None,
    })
}

/// Reads headers one after the other.
struct Reader<'a> {
    opcode: u8,
    response_only: bool,
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    #[inline]
    fn take<const N: usize>(&mut self, header: HeaderKind) -> Result<&'a [u8; N], ParseError> {
        let Some((bytes, rest)) = self.rest.split_first_chunk() else {
            return Err(ParseError::Truncated {
                opcode: self.opcode,
                header,
            });
        };
        self.rest = rest;
        Ok(bytes)
    }

    /// Parses the headers that the table lists for the operation.
    #[inline]
    fn message(&mut self, opcode: Opcode) -> Result<Message, ParseError> {
        use Operation as O;
        use Position::{First, Last, Middle, Only};
        let send = |position, tail| Message::Send { position, tail };
        let write = |position, reth, tail| Message::Write {
            position,
            reth,
            tail,
        };
        let response = |position, aeth| Message::ReadResponse { position, aeth };
        Ok(match opcode.operation {
            O::SendOnly | O::SendOnlyImmediate if opcode.service == Service::Ud => {
                let deth = Deth::parse(self.take(HeaderKind::Deth)?);
                let immediate = opcode.operation == O::SendOnlyImmediate;
                let tail = if immediate {
                    self.immediate()?
                } else {
                    Tail::None
                };
                Message::Datagram { deth, tail }
            }
            O::SendFirst => send(First, Tail::None),
            O::SendMiddle => send(Middle, Tail::None),
            O::SendLast => send(Last, Tail::None),
            O::SendLastImmediate => send(Last, self.immediate()?),
            O::SendOnly => send(Only, Tail::None),
            O::SendOnlyImmediate => send(Only, self.immediate()?),
            O::SendLastInvalidate => send(Last, self.invalidate()?),
            O::SendOnlyInvalidate => send(Only, self.invalidate()?),
            O::WriteFirst => write(First, Some(self.reth()?), Tail::None),
            O::WriteMiddle => write(Middle, None, Tail::None),
            O::WriteLast => write(Last, None, Tail::None),
            O::WriteLastImmediate => write(Last, None, self.immediate()?),
            O::WriteOnly => write(Only, Some(self.reth()?), Tail::None),
            O::WriteOnlyImmediate => write(Only, Some(self.reth()?), self.immediate()?),
            O::ReadRequest => Message::ReadRequest {
                reth: self.reth()?,
                response_only: self.response_only,
            },
            O::ReadResponseFirst => response(First, Some(self.aeth()?)),
            O::ReadResponseMiddle => response(Middle, None),
            O::ReadResponseLast => response(Last, Some(self.aeth()?)),
            O::ReadResponseOnly => response(Only, Some(self.aeth()?)),
            O::Acknowledge => Message::Acknowledge(self.aeth()?),
            O::AtomicAcknowledge => {
                let aeth = self.aeth()?;
                let original = self.take::<ATOMIC_ACK_ETH_SIZE>(HeaderKind::AtomicAckEth)?;
                Message::AtomicAcknowledge {
                    aeth,
                    original: u64::from_be_bytes(*original),
                }
            }
            O::CompareSwap => Message::CompareSwap(self.atomic()?),
            O::FetchAdd => Message::FetchAdd(self.atomic()?),
            O::AtomicWrite => Message::AtomicWrite(self.reth()?),
            O::Congestion => {
                self.take::<CNP_RESERVED_SIZE>(HeaderKind::CnpReserved)?;
                Message::Congestion
            }
        })
    }

    #[inline]
    fn reth(&mut self) -> Result<Reth, ParseError> {
        Ok(Reth::parse(self.take::<RETH_SIZE>(HeaderKind::Reth)?))
    }

    #[inline]
    fn aeth(&mut self) -> Result<Aeth, ParseError> {
        Ok(Aeth::parse(self.take(HeaderKind::Aeth)?))
    }

    #[inline]
    fn atomic(&mut self) -> Result<AtomicEth, ParseError> {
        Ok(AtomicEth::parse(self.take(HeaderKind::AtomicEth)?))
    }

    #[inline]
    fn immediate(&mut self) -> Result<Tail, ParseError> {
        Ok(Tail::Immediate(*self.take(HeaderKind::Immediate)?))
    }

    #[inline]
    fn invalidate(&mut self) -> Result<Tail, ParseError> {
        Ok(Tail::Invalidate(Rkey(u32::from_be_bytes(
            *self.take(HeaderKind::Ieth)?,
        ))))
    }
}

/// Writes headers one after the other. They fit: [`MAX_HEADERS`] is worked out from the table of opcodes.
struct Writer<'a> {
    out: &'a mut [u8; MAX_HEADERS],
    length: usize,
}

impl Writer<'_> {
    #[inline]
    fn put_bytes<const N: usize>(&mut self, bytes: [u8; N]) {
        if let Some(place) = self.out.get_mut(self.length..self.length + N) {
            place.copy_from_slice(&bytes);
        }
        self.length += N;
    }

    #[inline]
    fn message(&mut self, message: &Message) -> Result<(), EncodeError> {
        match message {
            Message::Send { tail, .. } => self.tail(*tail),
            Message::Write {
                position,
                reth,
                tail,
            } => {
                match (position.starts(), reth) {
                    (true, Some(reth)) => self.put_bytes(reth.to_bytes()),
                    (false, None) => {}
                    _ => return Err(EncodeError::HeaderKind(HeaderKind::Reth)),
                }
                self.tail(*tail);
            }
            Message::ReadRequest { reth, .. } | Message::AtomicWrite(reth) => {
                self.put_bytes(reth.to_bytes())
            }
            Message::ReadResponse { position, aeth } => match (*position == Position::Middle, aeth)
            {
                (false, Some(aeth)) => self.put_bytes(aeth.to_bytes()),
                (true, None) => {}
                _ => return Err(EncodeError::HeaderKind(HeaderKind::Aeth)),
            },
            Message::Acknowledge(aeth) => self.put_bytes(aeth.to_bytes()),
            Message::AtomicAcknowledge { aeth, original } => {
                self.put_bytes(aeth.to_bytes());
                self.put_bytes(original.to_be_bytes());
            }
            Message::CompareSwap(atomic) | Message::FetchAdd(atomic) => {
                self.put_bytes(atomic.to_bytes())
            }
            Message::Datagram { deth, tail } => {
                self.put_bytes(deth.to_bytes());
                self.tail(*tail);
            }
            Message::Congestion => self.put_bytes([0; CNP_RESERVED_SIZE]),
        }
        Ok(())
    }

    #[inline]
    fn tail(&mut self, tail: Tail) {
        match tail {
            Tail::None => {}
            Tail::Immediate(bytes) => self.put_bytes(bytes),
            Tail::Invalidate(rkey) => self.put_bytes(rkey.0.to_be_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::number::{Psn, Qpn};

    fn packet(service: Service, message: Message) -> Packet {
        Packet::new(service, Qpn::new(0x12), Psn::new(0x345), message)
    }

    #[test]
    fn a_write_with_immediate_and_padding_goes_out_and_comes_back() {
        let reth = Reth {
            address: 0x1000,
            rkey: Rkey(7),
            length: 5,
        };
        let tail = Tail::Immediate([1, 2, 3, 4]);
        let sent = packet(
            Service::Rc,
            Message::Write {
                position: Position::Only,
                reth: Some(reth),
                tail,
            },
        );
        let mut bytes = [0; MAX_HEADERS];
        let length = sent.encode(pad_of(5), &mut bytes).unwrap();
        assert_eq!(length, 32);
        bytes[length..length + 8].copy_from_slice(b"hello\0\0\0");
        let (received, payload) = Packet::parse(&bytes[..length + 8]).unwrap();
        assert_eq!(received, sent);
        assert_eq!(payload, b"hello");
    }

    #[test]
    fn padding_fills_to_four() {
        assert_eq!([0, 1, 2, 3, 4, 5].map(pad_of), [0, 3, 2, 1, 0, 3]);
    }

    #[test]
    fn each_error_names_its_field() {
        let mut ack = [0; 16];
        ack[0] = 0x11;
        assert_eq!(
            Packet::parse(&ack[..11]),
            Err(ParseError::Bth { length: 11 })
        );
        assert_eq!(
            Packet::parse(&ack[..15]),
            Err(ParseError::Truncated {
                opcode: 0x11,
                header: HeaderKind::Aeth
            })
        );
        assert!(Packet::parse(&ack).is_ok());
        let mut longer = [0; 20];
        longer[0] = 0x11;
        assert_eq!(
            Packet::parse(&longer),
            Err(ParseError::Payload {
                opcode: 0x11,
                length: 4
            })
        );
        ack[1] = 0x10;
        assert_eq!(
            Packet::parse(&ack),
            Err(ParseError::Pad { pad: 1, length: 0 })
        );
        ack[1] = 0x02;
        assert_eq!(Packet::parse(&ack), Err(ParseError::Version { version: 2 }));
        ack[..2].copy_from_slice(&[0x15, 0]);
        assert_eq!(
            Packet::parse(&ack),
            Err(ParseError::Opcode { opcode: 0x15 })
        );
    }

    #[test]
    fn what_contradicts_itself_is_not_encoded() {
        let mut out = [0; MAX_HEADERS];
        let mut encode = |packet: Packet| packet.encode(0, &mut out);
        let reth = Some(Reth::default());
        let none = Tail::None;
        let missing = Message::Write {
            position: Position::Only,
            reth: None,
            tail: none,
        };
        assert_eq!(
            encode(packet(Service::Rc, missing)),
            Err(EncodeError::HeaderKind(HeaderKind::Reth))
        );
        let superfluous = Message::Write {
            position: Position::Last,
            reth,
            tail: none,
        };
        assert_eq!(
            encode(packet(Service::Rc, superfluous)),
            Err(EncodeError::HeaderKind(HeaderKind::Reth))
        );
        let early = Message::Send {
            position: Position::First,
            tail: Tail::Immediate([0; 4]),
        };
        assert_eq!(encode(packet(Service::Rc, early)), Err(EncodeError::Opcode));
        let read = Message::read(Reth::default());
        assert_eq!(encode(packet(Service::Uc, read)), Err(EncodeError::Opcode));
        assert_eq!(
            encode(packet(Service::Xrc, read)),
            Err(EncodeError::HeaderKind(HeaderKind::XrcEth))
        );
        let send = Message::Send {
            position: Position::Only,
            tail: none,
        };
        assert_eq!(encode(packet(Service::Ud, send)), Err(EncodeError::Opcode));
        let datagram = Message::Datagram {
            deth: Deth::default(),
            tail: none,
        };
        assert_eq!(
            encode(packet(Service::Rc, datagram)),
            Err(EncodeError::Opcode)
        );
        assert_eq!(encode(packet(Service::Ud, datagram)), Ok(20));
    }
}

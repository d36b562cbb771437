//! Queue pair 1 at the agent: selects the client of a datagram, and answers where there is no such client.

use super::SLOTS;
use super::ports::Ports;
use crate::gsi;
use link::udp::{Datagrams, QPN_BITS};
use rnic::{Arrival, Gid, Path};
use wire::cm::{CmMad, CmMessage, CommId, Drep, Rej, RejectReason, SidrRep, SidrStatus, Subject};

/// Length of the slot in bits: communication IDs begin with the slot of the client that chose them.
pub(crate) const SLOT_BITS: u32 = 24 - QPN_BITS;

const _: () = assert!(1 << SLOT_BITS == SLOTS);

/// Recipients of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Recipient {
    /// The client that has this slot.
    Slot(usize),
    /// All clients, because the datagram does not identify one: each checks whether it knows the peer.
    All,
    /// No client, because none listens on the port.
    Nobody,
}

/// The slot in a communication ID.
fn slot_of(id: CommId) -> usize {
    (id.0 >> (32 - SLOT_BITS)) as usize
}

/// The recipient of a datagram; `None` for one that is not of connection management.
pub(super) fn recipient(
    ports: &Ports,
    from: &Datagrams,
    datagram: &[u8],
) -> Option<(Recipient, Question)> {
    let (arrival, payload) = gsi::decode(from, datagram)?;
    let mad = CmMad::parse(payload).ok()?;
    let service = match &mad.message {
        CmMessage::Req(req) => Some(req.service_id),
        CmMessage::SidrReq(req) => Some(req.service_id),
        _ => None,
    };
    let local = match &mad.message {
        CmMessage::Req(_) | CmMessage::SidrReq(_) => CommId(0),
        CmMessage::Mra(mra) => mra.remote_comm_id,
        CmMessage::Rej(rej) => rej.remote_comm_id,
        CmMessage::Rep(rep) => rep.remote_comm_id,
        CmMessage::Rtu(rtu) => rtu.remote_comm_id,
        CmMessage::Dreq(dreq) => dreq.remote_comm_id,
        CmMessage::Drep(drep) => drep.remote_comm_id,
        CmMessage::SidrRep(rep) => rep.request_id,
        CmMessage::Lap(lap) => lap.remote_comm_id,
        CmMessage::Apr(apr) => apr.remote_comm_id,
    };
    let destination = from.destination.to_canonical();
    let listener = |(space, port)| ports.listener(space, port, Some(destination));
    let recipient = match service {
        Some(service) => service
            .port()
            .and_then(listener)
            .map_or(Recipient::Nobody, |slot| Recipient::Slot(slot.into())),
        // A requester that gave up waiting for an answer does not know our communication ID (IBTA 12.6.7.2).
        None if local == CommId(0) => Recipient::All,
        None => Recipient::Slot(slot_of(local)),
    };
    Some((recipient, Question { arrival, mad }))
}

/// A decoded datagram.
pub(super) struct Question {
    arrival: Arrival,
    mad: CmMad,
}

impl Question {
    /// The path back to the sender.
    pub(super) fn path(&self) -> Path {
        Path {
            source: self.arrival.destination,
            destination: self.arrival.source,
            hop_limit: 64,
            ..Path::default()
        }
    }

    /// The answer to a DREQ, with the peer that gives it and the transaction.
    pub(super) fn as_drep(&self) -> Option<(Gid, u64, &Drep)> {
        let CmMessage::Drep(drep) = &self.mad.message else {
            return None;
        };
        Some((self.arrival.source, self.mad.transaction, drep))
    }

    /// The answer on behalf of a client that does not exist: no listener, or no such connection.
    pub(super) fn refusal(&self) -> Option<[u8; wire::mad::MAD_SIZE]> {
        let message: CmMessage = match &self.mad.message {
            CmMessage::Req(req) => Rej {
                remote_comm_id: req.local_comm_id,
                subject: Subject::Request,
                reason: RejectReason::INVALID_SERVICE_ID,
                ..Rej::default()
            }
            .into(),
            CmMessage::Rep(rep) => Rej {
                local_comm_id: rep.remote_comm_id,
                remote_comm_id: rep.local_comm_id,
                subject: Subject::Reply,
                reason: RejectReason::INVALID_COMM_ID,
                ..Rej::default()
            }
            .into(),
            CmMessage::Dreq(dreq) => Drep {
                local_comm_id: dreq.remote_comm_id,
                remote_comm_id: dreq.local_comm_id,
                ..Drep::default()
            }
            .into(),
            CmMessage::SidrReq(req) => SidrRep {
                request_id: req.request_id,
                status: SidrStatus::UNSUPPORTED,
                service_id: req.service_id,
                ..SidrRep::default()
            }
            .into(),
            _ => return None,
        };
        Some(
            CmMad {
                transaction: self.mad.transaction,
                modifier: 0,
                message,
            }
            .to_bytes(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::protocol::{Ask, Request};
    use rnic::cm::ListenAddress;
    use wire::cm::{PortSpace, Req, Rtu, ServiceId};

    fn path() -> Path {
        let (source, destination) = (Gid::from_ipv4([10, 0, 0, 1]), Gid::from_ipv4([10, 0, 0, 2]));
        Path {
            source,
            destination,
            hop_limit: 64,
            ..Path::default()
        }
    }

    fn who(ports: &Ports, message: impl Into<CmMessage>) -> Option<(Recipient, Question)> {
        let mad = CmMad {
            transaction: 1,
            modifier: 0,
            message: message.into(),
        };
        let datagram = gsi::encode(&path(), &mad.to_bytes());
        let from = Datagrams {
            length: datagram.len(),
            segment: datagram.len(),
            source: path().source.into(),
            source_port: wire::ROCE_PORT,
            destination: path().destination.into(),
            traffic_class: 0,
            hop_limit: 64,
            interface: 1,
        };
        recipient(ports, &from, &datagram)
    }

    #[test]
    fn names_and_ports_lead_to_clients() {
        let mut ports = Ports::new();
        let mine = CommId(5 << (32 - SLOT_BITS) | 77);
        let rtu = Rtu {
            remote_comm_id: mine,
            ..Rtu::default()
        };
        assert_eq!(who(&ports, rtu).unwrap().0, Recipient::Slot(5));
        let rej = Rej {
            reason: RejectReason::TIMEOUT,
            ..Rej::default()
        };
        assert_eq!(who(&ports, rej).unwrap().0, Recipient::All);
        let req = Req {
            service_id: ServiceId::ip(PortSpace::Tcp, 7471),
            ..Req::default()
        };
        let (recipient, question) = who(&ports, req).unwrap();
        assert_eq!(recipient, Recipient::Nobody);
        let refusal = CmMad::parse(&question.refusal().unwrap()).unwrap();
        let is_right = |rej: &Rej| rej.reason == RejectReason::INVALID_SERVICE_ID;
        assert!(
            matches!(&refusal.message, CmMessage::Rej(rej) if is_right(rej)),
            "{refusal:?}"
        );
        let (space, address) = (PortSpace::Tcp, ListenAddress::AnyV4);
        let request = Request {
            ask: Ask::Bind,
            space,
            port: 7471,
            count: 1,
            address,
            shared: false,
        };
        ports.answer(9, &request).unwrap();
        ports
            .answer(
                9,
                &Request {
                    ask: Ask::Listen,
                    ..request
                },
            )
            .unwrap();
        assert_eq!(who(&ports, req).unwrap().0, Recipient::Slot(9));
    }
}

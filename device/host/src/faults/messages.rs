//! Messages of the connection manager that meet faults.

use super::{decide, timer};
use ::faults::{Action, CmKind, Occasion, Point};
use link::udp::{Route, Socket};
use rnic::cm::Datagram;
use rnic::{Arrival, Path};
use std::net::IpAddr;
use std::sync::Arc;
use wire::cm::{CmMad, CmMessage, Rej, RejectReason, Subject};
use wire::mad::MAD_SIZE;

/// UDP source port and hop limit of a rejection.
const SOURCE_PORT: u16 = 0xc000;
const HOP_LIMIT: u8 = 64;

/// The kind of a message, as rules name it.
const fn kind(message: &CmMessage) -> Option<CmKind> {
    Some(match message {
        CmMessage::Req(_) => CmKind::Req,
        CmMessage::Mra(_) => CmKind::Mra,
        CmMessage::Rej(_) => CmKind::Rej,
        CmMessage::Rep(_) => CmKind::Rep,
        CmMessage::Rtu(_) => CmKind::Rtu,
        CmMessage::Dreq(_) => CmKind::Dreq,
        CmMessage::Drep(_) => CmKind::Drep,
        CmMessage::SidrReq(_) => CmKind::SidrReq,
        CmMessage::SidrRep(_) => CmKind::SidrRep,
        CmMessage::Lap(_) | CmMessage::Apr(_) => return None,
    })
}

fn occasion(kind: CmKind, peer: IpAddr) -> Occasion<'static> {
    Occasion {
        message: Some(kind),
        peer: Some(peer.to_canonical()),
        ..Occasion::at(Point::Cm)
    }
}

/// Lets a message leave with its fault. False where it has none: the caller sends it then.
pub(crate) fn send_message(
    socket: &Arc<Socket>,
    route: &Route,
    mad: &[u8; MAD_SIZE],
    bytes: &[u8],
) -> bool {
    let message = CmMad::parse(mad).ok();
    let Some(kind) = message.and_then(|mad| kind(&mad.message)) else {
        return false;
    };
    let is_sent = |action| !matches!(action, Action::Reject(_));
    let occasion = occasion(kind, route.destination.into());
    let Some(decision) = decide(&occasion, is_sent) else {
        return false;
    };
    // A message that cannot be sent is lost, and retransmitted.
    match decision.action {
        Action::Delay(time) => {
            let (socket, route, bytes) = (Arc::clone(socket), *route, bytes.to_vec());
            timer::after(time, move || {
                let _ = socket.send(&route, &bytes, bytes.len());
            });
        }
        Action::Duplicate => {
            for _ in 0..2 {
                let _ = socket.send(route, bytes, bytes.len());
            }
        }
        _ => {}
    }
    true
}

/// The rejection of a request that has arrived, if a rule wants it rejected. The connection manager does not
/// see the request then.
pub(crate) fn reject(arrival: &Arrival, mad: &[u8]) -> Option<Datagram> {
    let mad = CmMad::parse(mad).ok()?;
    let CmMessage::Req(request) = &mad.message else {
        return None;
    };
    let peer = IpAddr::from(arrival.source.0);
    let is_rejected = |action| matches!(action, Action::Reject(_));
    let decision = decide(&occasion(CmKind::Req, peer), is_rejected)?;
    let Action::Reject(reason) = decision.action else {
        return None;
    };
    let rejection = Rej {
        remote_comm_id: request.local_comm_id,
        subject: Subject::Request,
        reason: RejectReason(reason),
        ..Rej::default()
    };
    let path = Path {
        source: arrival.destination,
        destination: arrival.source,
        source_port: SOURCE_PORT,
        hop_limit: HOP_LIMIT,
        ..Path::default()
    };
    let mad = CmMad {
        message: rejection.into(),
        ..mad
    };
    Some(Datagram {
        path,
        mad: mad.to_bytes(),
    })
}

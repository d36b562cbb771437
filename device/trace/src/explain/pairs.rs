//! Two queue pairs that are connected to each other, and do not agree.

use crate::event::Event;
use crate::explain::ends::{Ends, Qp, QpKey, key};
use crate::explain::mistake::{Finding, Mistake};
use crate::text::mtu_bytes;

/// Compares both ends when one of them was connected or began to send.
pub(super) fn check(ends: &mut Ends, number: usize, event: &Event<'_>) {
    let own = key(event);
    if event.number("errno") != 0 {
        return;
    }
    for (mistake, what) in compared(ends, own) {
        let finding = Finding {
            mistake,
            event: number,
            shown_by: None,
            what,
        };
        ends.report(own, finding);
    }
}

fn compared(ends: &Ends, own: QpKey) -> Vec<(Mistake, String)> {
    let Some(qp) = ends.qp(own).filter(|qp| qp.connected.is_some()) else {
        return Vec::new();
    };
    let Some((peer_key, peer)) = ends.peer(own) else {
        return foreign_peer(ends, own, qp).into_iter().collect();
    };
    if peer.connected.is_none() || peer_key == own {
        return Vec::new();
    }
    let mut found = Vec::new();
    let number = peer_key.1;
    if let (Some(mine), Some(theirs)) = (qp.mtu, peer.mtu)
        && mine != theirs
    {
        found.push((
            Mistake::MtuMismatch,
            format!(
                "path_mtu is {} here, and {} at the peer, QP {number:#x}",
                mtu_bytes(mine),
                mtu_bytes(theirs)
            ),
        ));
    }
    if let (Some((to, from)), Some((back, theirs))) = (&qp.addresses, &peer.addresses) {
        for (to, from, which) in [(to, theirs, "the peer"), (back, from, "this queue pair")] {
            if to != from {
                found.push((
                    Mistake::GidMismatch,
                    format!("packets go to {to}, and {which} has {from} at its sgid_index"),
                ));
            }
        }
    }
    for (sends, expects) in [
        (qp.send_psn, peer.receive_psn),
        (peer.send_psn, qp.receive_psn),
    ] {
        if let (Some(sends), Some(expects)) = (sends, expects)
            && sends != expects
        {
            found.push((
                Mistake::PeerMismatch,
                format!("sq_psn is {sends} at one end, and rq_psn {expects} at the other"),
            ));
        }
    }
    found
}

/// The peer that this queue pair names is connected to another one.
fn foreign_peer(ends: &Ends, own: QpKey, qp: &Qp) -> Option<(Mistake, String)> {
    let number = qp.peer?;
    let mut named = ends.qps().filter(|((_, qpn), _)| *qpn == number);
    let (_, peer) = named.next()?;
    let back = peer.peer.filter(|back| *back != own.1)?;
    // Two machines may have the same numbers.
    named.next().is_none().then(|| {
        (
            Mistake::PeerMismatch,
            format!("dest_qp_num is {number:#x}, and that queue pair sends to QP {back:#x}"),
        )
    })
}

//! The proxy of a connection of another device's queue pair ([`crate::domain`]): the responder's state that
//! the owner of a shared receive queue keeps for it.

use super::Qp;
use super::attr::{Capacity, QpAttr, QpInit, QpType, State};
use super::context::Context;
use super::forward::CONNECTION_MASK;
use super::transport::Origin;
use crate::address::{Path, Senders};
use crate::domain::ForwardedRequest;
use crate::handle::Xrcd;
use crate::memory::{Memory, Payload};
use crate::resources::Resources;
use crate::time::Instant;
use wire::{Packet, Psn};

impl Qp {
    /// Creates the proxy of a connection, whose first forwarded request has this PSN.
    pub(crate) fn proxy(
        forwarded: &ForwardedRequest,
        xrcd: Option<Xrcd>,
        channel: u16,
        first: Psn,
        resources: &Resources,
    ) -> Self {
        let init = QpInit {
            kind: QpType::XrcReceive,
            pd: None,
            xrcd,
            send_cq: None,
            receive_cq: None,
            srq: None,
            capacity: Capacity::default(),
            signal_all: false,
        };
        let mut proxy = Self::new(forwarded.front_end, &init, resources);
        proxy.common.attr = QpAttr {
            access: forwarded.access,
            path_mtu: forwarded.path_mtu,
            min_rnr_timer: forwarded.min_rnr_timer,
            max_dest_rd_atomic: forwarded.max_dest_rd_atomic,
            destination: forwarded.front_end,
            ..QpAttr::default()
        };
        proxy.set_path(Path {
            channel,
            ..Path::default()
        });
        proxy.common.out_of_order = false;
        proxy.common.state = State::ReadyToSend;
        proxy.responder.start(first);
        proxy
            .responder
            .execute_for(forwarded.connection & CONNECTION_MASK);
        proxy
    }

    /// Whether it is the proxy of a connection of another device's queue pair.
    pub(crate) fn is_proxy(&self) -> bool {
        self.responder.proxy_for().is_some()
    }

    /// Whether this queue pair is the proxy of the request's connection.
    pub(crate) fn is_proxy_of(&self, forwarded: &ForwardedRequest, channel: u16) -> bool {
        let connection = forwarded.connection & CONNECTION_MASK;
        self.responder.proxy_for() == Some(connection) && self.common.path.channel == channel
    }

    /// Executes a forwarded request.
    pub(crate) fn handle_forwarded_request(
        &mut self,
        resources: &mut Resources,
        now: Instant,
        senders: Senders,
        packet: &Packet,
        payload: Payload<'_>,
        memory: &mut impl Memory,
    ) {
        self.common.counters.received_packets += 1;
        self.common.counters.received_bytes += u64::from(payload.len());
        let origin = Origin::SharedMemory(senders);
        let cx = &mut Context {
            qp: &mut self.common,
            resources,
            now,
            origin,
        };
        Self::handle_request(cx, &mut self.responder, &mut None, packet, payload, memory);
        if self.common.has_failed {
            self.flush_failed(resources, now);
        }
    }
}

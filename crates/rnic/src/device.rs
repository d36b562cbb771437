//! API first: bodies follow.
#![allow(clippy::todo, unused_variables, missing_docs)]
use crate::*;
use alloc::vec::Vec;
use wire::{Packet, Qpn, Rkey};

/// A registered region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RegionKeys {
    pub lkey: Lkey,
    pub rkey: Rkey,
}

/// What to register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RegionInit {
    pub address: u64,
    pub length: u64,
    /// address that keys count from (= address normally)
    pub iova: u64,
    pub access: Access,
}

/// What `rereg` changes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct RegionChange {
    pub translation: Option<(u64, u64, u64)>,
    pub pd: Option<Pd>,
    pub access: Option<Access>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WindowKind {
    Type1,
    Type2,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arm {
    Any,
    Solicited,
}

/// What is waiting to be transmitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pending {
    Nothing,
    /// only positive ACKs: they may wait for company
    Acknowledgements,
    Data,
}

/// The device.
pub struct Device;

/// Control path
impl Device {
    /// `seed` makes keys, queue pair numbers and starting points unpredictable: live, from the system's random device.
    pub fn new(config: Config, seed: [u8; 32]) -> Self {
        todo!()
    }
    pub fn config(&self) -> &Config {
        todo!()
    }
    /// QPNs that this device may give out (a host grants blocks to processes). Many ranges may be added.
    pub fn add_qpn_range(&mut self, first: Qpn, count: u32) {
        todo!()
    }
    /// QPNs still free; when few, the host adds a range.
    pub fn free_qpns(&self) -> u32 {
        todo!()
    }
    pub fn set_gid(&mut self, index: u8, gid: Option<Gid>) {
        todo!()
    }
    pub fn gid(&self, index: u8) -> Option<Gid> {
        todo!()
    }
    pub fn set_active_mtu(&mut self, mtu: Mtu) {
        todo!()
    }
    pub fn active_mtu(&self) -> Mtu {
        todo!()
    }

    pub fn alloc_pd(&mut self) -> Result<Pd, Error> {
        todo!()
    }
    pub fn dealloc_pd(&mut self, pd: Pd) -> Result<(), Error> {
        todo!()
    }
    pub fn alloc_xrcd(&mut self) -> Result<Xrcd, Error> {
        todo!()
    }
    pub fn dealloc_xrcd(&mut self, xrcd: Xrcd) -> Result<(), Error> {
        todo!()
    }

    pub fn register(&mut self, pd: Pd, init: RegionInit) -> Result<RegionKeys, Error> {
        todo!()
    }
    pub fn reregister(&mut self, lkey: Lkey, change: RegionChange) -> Result<RegionKeys, Error> {
        todo!()
    }
    pub fn deregister(&mut self, lkey: Lkey) -> Result<(), Error> {
        todo!()
    }
    pub fn alloc_window(&mut self, pd: Pd, kind: WindowKind) -> Result<(Window, Rkey), Error> {
        todo!()
    }
    pub fn dealloc_window(&mut self, window: Window) -> Result<(), Error> {
        todo!()
    }
    /// The key that a type 1 window gets with its next binding (ibv_bind_mw).
    pub fn next_window_key(&mut self, window: Window) -> Result<Rkey, Error> {
        todo!()
    }

    pub fn create_cq(&mut self, entries: u32) -> Result<Cq, Error> {
        todo!()
    }
    pub fn resize_cq(&mut self, cq: Cq, entries: u32) -> Result<(), Error> {
        todo!()
    }
    pub fn destroy_cq(&mut self, cq: Cq) -> Result<(), Error> {
        todo!()
    }
    pub fn arm_cq(&mut self, cq: Cq, arm: Arm) -> Result<(), Error> {
        todo!()
    }
    /// Moves up to `most` completions to `take`; returns how many.
    pub fn poll_cq(&mut self, cq: Cq, most: usize, take: impl FnMut(&Completion)) -> usize {
        todo!()
    }

    /// `xrc`: (domain, completion queue of its receives).
    pub fn create_srq(
        &mut self,
        pd: Pd,
        max_wr: u32,
        max_sge: u32,
        xrc: Option<(Xrcd, Cq)>,
    ) -> Result<Srq, Error> {
        todo!()
    }
    pub fn modify_srq(&mut self, srq: Srq, max_wr: Option<u32>, limit: Option<u32>) -> Result<(), Error> {
        todo!()
    }
    /// (max_wr, max_sge, limit)
    pub fn query_srq(&self, srq: Srq) -> Result<(u32, u32, u32), Error> {
        todo!()
    }
    pub fn destroy_srq(&mut self, srq: Srq) -> Result<(), Error> {
        todo!()
    }
    pub fn post_srq_receive(&mut self, srq: Srq, request: &ReceiveRequest<'_>) -> Result<(), Error> {
        todo!()
    }

    pub fn create_qp(&mut self, init: &QpInit) -> Result<Qpn, Error> {
        todo!()
    }
    /// The special queue pair 1 (the agent's): a UD queue pair with a fixed number.
    pub fn create_gsi(&mut self, init: &QpInit) -> Result<(), Error> {
        todo!()
    }
    pub fn modify_qp(&mut self, qpn: Qpn, attr: &QpAttr, mask: AttrMask, now: Instant) -> Result<(), Error> {
        todo!()
    }
    pub fn query_qp(&self, qpn: Qpn) -> Result<(QpAttr, QpInit), Error> {
        todo!()
    }
    pub fn destroy_qp(&mut self, qpn: Qpn) -> Result<(), Error> {
        todo!()
    }
    pub fn attach_multicast(&mut self, qpn: Qpn, group: Gid) -> Result<(), Error> {
        todo!()
    }
    pub fn detach_multicast(&mut self, qpn: Qpn, group: Gid) -> Result<(), Error> {
        todo!()
    }
}

/// Data path
impl Device {
    pub fn post_send(&mut self, qpn: Qpn, request: &SendRequest<'_>, now: Instant) -> Result<(), Error> {
        todo!()
    }
    pub fn post_receive(&mut self, qpn: Qpn, request: &ReceiveRequest<'_>) -> Result<(), Error> {
        todo!()
    }
    /// A packet arrived (ICRC already checked).
    pub fn handle_packet(
        &mut self,
        now: Instant,
        arrival: &Arrival,
        packet: &Packet,
        payload: Payload<'_>,
        memory: &mut impl Memory,
    ) {
        todo!()
    }
    /// Makes up to `budget` packets; returns how many. Call until 0 (or until the socket is full).
    pub fn transmit(&mut self, now: Instant, budget: usize, sink: &mut impl Sink) -> usize {
        todo!()
    }
    pub fn pending(&self) -> Pending {
        todo!()
    }
    /// Queue pairs that wait for acknowledgements.
    pub fn in_flight(&self) -> u32 {
        todo!()
    }
    /// When `handle_timeout` wants to be called. A call too early does nothing.
    pub fn next_timeout(&self) -> Option<Instant> {
        todo!()
    }
    pub fn handle_timeout(&mut self, now: Instant) {
        todo!()
    }
    pub fn poll_event(&mut self) -> Option<Event> {
        todo!()
    }
    pub fn counters(&self) -> &PortCounters {
        todo!()
    }
    pub fn qp_counters(&self, qpn: Qpn) -> Result<QpCounters, Error> {
        todo!()
    }
    pub fn qpns(&self) -> Vec<Qpn> {
        todo!()
    }
}

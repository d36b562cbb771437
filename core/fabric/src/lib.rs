//! The network, sans-IO: switches, ports, links and topologies as state machines in integer picoseconds. It
//! runs in virtual time, driven by `sim`, and does not depend on the content of packets.
//!
//! # Drive contract
//!
//! The driver owns the clock, the wires and the content of packets. A packet that enters the network gets a
//! number in [`Packets`]; its content stays with the driver under the same number.
//!
//! A driver calls a [`Switch`] for three reasons, at moments that never run backwards:
//! - [`Switch::handle_packet`]: the last bit of a packet arrived at a port,
//! - [`Switch::handle_pause`]: a pause frame arrived ([`Switch::handle_credits`]: a flow control packet of
//!   InfiniBand),
//! - [`Switch::handle_wake`]: the time of a wake that it requested has come.
//!
//! Within each call it answers through a [`Wire`]: a frame starts to leave and ends then; wake this port at
//! that moment; this packet is dropped, and why. A wake that is no longer wanted does nothing. Each call does
//! bounded work, and allocates nothing once its tables have grown.
//!
//! [`Egress`] is the sending half of a port by itself: queues, scheduler, pause. A host's adapter has one
//! too.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod columns;
pub mod config;
mod counters;
mod egress;
mod egress_lanes;
pub mod headroom;
mod in_flight;
mod ingress;
pub mod lanes;
mod next_hops;
mod packet;
mod queue;
mod random;
mod route;
mod schedule;
mod switch;
mod telemetry;
mod time;
pub mod topology;
mod watchdog;

pub use counters::{
    BufferCounters, Drop, GroupCounters, Incidents, IngressCounters, LinkCounters, PortCounters,
    QueueCounters, Tally,
};
pub use egress::{Egress, Frame, Next, PAUSE_FRAME_BYTES, PauseFrame};
pub use in_flight::InFlight;
pub use ingress::PfcSignal;
pub use lanes::LinkNews;
pub use next_hops::NextHops;
pub use packet::{
    ECN_CE, FRAME_OVERHEAD_BYTES, Operations, Packet, PacketId, PacketKind, Packets, UNTAGGED,
};
pub use random::Pcg32;
pub use route::{Routes, Spread, ecmp_select};
pub use switch::{Switch, Wire};
pub use telemetry::{HOPS_MAX, Hop, TELEMETRY_BYTES, Telemetry};
pub use time::{RATE_BPS_MAX, RATE_BPS_MIN, Rate, Span, Time};
pub use watchdog::Watchdog;

//! A part of the network: what one thread drives.

use super::events::Due;
use super::host::{Attachment, Echoes, Host, Kind, Receiving, Surroundings};
use super::wires::{Cables, Wires, kind};
use fabric::{Packets, Switch, Time};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Networks with fewer ports are in the cache.
const FITS: usize = 512;

/// Hosts and switches, and what is under way between them.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) packets: Packets,
    pub(super) wires: Wires,
    pub(super) switches: Vec<Attached>,
    pub(super) hosts: Vec<Host>,
    pub(super) kinds: Arc<[Kind]>,
    pub(super) attachments: Arc<[Attachment]>,
    /// What arrives, by flow.
    pub(super) receiving: Vec<Receiving>,
    pub(super) poster_of_flow: Arc<[u32]>,
    /// Flows whose packets hash as they are told, not by addresses and ports.
    pub(super) entropies: BTreeMap<u32, u32>,
    /// What is to be sent back of telemetry.
    pub(super) echoes: Echoes,
    /// Flows of hosts of this part that are not done.
    pub(super) unfinished: u64,
    pub(super) events: u64,
}

/// A switch in its place.
#[derive(Debug)]
pub(super) struct Attached {
    pub(super) switch: Switch,
    pub(super) number: u32,
    /// The lane of its port 0.
    pub(super) first_lane: u32,
}

impl Part {
    /// Handles all events before `end`.
    pub(super) fn run_until(&mut self, end: Time) {
        let mut handled = 0;
        self.wires.events.tune();
        while self.wires.events.turn(end) {
            self.bring();
            handled += self.drive();
        }
        self.events += handled;
    }

    /// Brings into the cache what the next events need of packets and ports: all at once, where each event
    /// would wait for its own.
    fn bring(&self) {
        let Wires { lanes, events, contents, .. } = &self.wires;
        if lanes.len() < FITS {
            return;
        }
        let mut sum = 0;
        for (key, packet) in events.ahead() {
            let line = &lanes[(key >> 2) as usize];
            sum ^= match (key & 3, packet) {
                (kind::ARRIVAL, Some(id)) if line.to_host => {
                    let content = &contents[id.0 as usize];
                    let device = &self.hosts[line.node as usize].device;
                    content.flow ^ u32::from(self.packets[id].length) ^ device.bring(content.headers.dest)
                }
                (kind::ARRIVAL, Some(id)) => {
                    self.switches[line.node as usize].switch.bring(line.port, id, &self.packets)
                }
                (kind::WAKE, _) if !line.from_host => {
                    let switch = &self.switches[line.from_node as usize].switch;
                    switch.bring_waiting(line.from_port, &self.packets)
                }
                (kind::WAKE | kind::CLOCK, _) => self.hosts[line.from_node as usize].device.bring_next(),
                _ => 0,
            };
        }
        std::hint::black_box(sum);
    }

    /// Lets the switches' watchdogs look.
    pub(super) fn poll_watchdogs(&mut self, now: Time) {
        for Attached { switch, first_lane, .. } in &mut self.switches {
            let mut cables = Cables { wires: &mut self.wires, first_lane: *first_lane };
            switch.poll_watchdog(now, &mut self.packets, &mut cables);
        }
    }

    /// Handles the events of the node whose turn it is; how many.
    fn drive(&mut self) -> u64 {
        let mut handled = 0;
        let mut around = Surroundings {
            packets: &mut self.packets,
            wires: &mut self.wires,
            kinds: &self.kinds,
            attachments: &self.attachments,
            receiving: &mut self.receiving,
            poster_of_flow: &self.poster_of_flow,
            entropies: &self.entropies,
            echoes: &mut self.echoes,
            unfinished: &mut self.unfinished,
        };
        while let Some(due) = around.wires.events.next() {
            handled += 1;
            let line = &around.wires.lanes[(due.key >> 2) as usize];
            // What arrives is for the far end of a lane, everything else for the port that sends into it.
            let (node, port, is_host) = match due.key & 3 {
                kind::ARRIVAL | kind::PAUSE => (line.node, line.port, line.to_host),
                _ => (line.from_node, line.from_port, line.from_host),
            };
            if is_host {
                drive_host(&mut self.hosts[node as usize], due, &mut around);
            } else {
                let Surroundings { packets, wires, .. } = &mut around;
                drive_switch(&mut self.switches[node as usize], port, due, packets, wires);
            }
        }
        handled
    }
}

#[inline]
fn drive_host(host: &mut Host, due: Due, around: &mut Surroundings<'_>) {
    let (now, lane) = (due.at, due.key >> 2);
    match due.key & 3 {
        kind::ARRIVAL => {
            let id = due.packet.or_else(|| around.wires.first(now, lane, around.packets));
            if let Some(id) = id {
                host.handle_packet(now, id, around);
            }
        }
        kind::WAKE => host.handle_wake(now, around),
        kind::PAUSE => {
            if let Some(frame) = around.wires.pause(lane) {
                host.handle_pause(now, frame, around);
            }
        }
        _ => host.handle_clock(now, around),
    }
}

#[inline]
fn drive_switch(attached: &mut Attached, port: u16, due: Due, packets: &mut Packets, wires: &mut Wires) {
    let Attached { switch, first_lane, .. } = attached;
    let (now, lane) = (due.at, due.key >> 2);
    let mut cables = Cables { wires, first_lane: *first_lane };
    match due.key & 3 {
        kind::ARRIVAL => {
            if let Some(id) = due.packet.or_else(|| cables.wires.first(now, lane, packets)) {
                switch.handle_packet(now, port, id, packets, &mut cables);
            }
        }
        kind::PAUSE => {
            if let Some(frame) = cables.wires.pause(lane) {
                switch.handle_pause(now, port, frame, packets, &mut cables);
                if let Some(trace) = &mut cables.wires.trace {
                    trace.paused(*first_lane + u32::from(port), now, switch.egress(port));
                }
            }
        }
        _ => switch.handle_wake(now, port, packets, &mut cables),
    }
}

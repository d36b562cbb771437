//! A part of the network: what one thread drives.

use super::events::Due;
use super::host::{Attachment, Echoes, Host, Kind, Receiving, Surroundings};
use super::wires::{Cables, Wires, kind};
use fabric::{Packets, Switch, Time};
use std::collections::BTreeMap;
use std::sync::Arc;

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
            while let Some(due) = self.wires.events.next() {
                handled += 1;
                self.handle(due);
            }
        }
        self.events += handled;
    }

    /// Brings into the cache what the next events need of packets and ports: all at once, where each event
    /// would wait for its own.
    fn bring(&self) {
        let Wires { lanes, events, contents, .. } = &self.wires;
        let mut sum = 0;
        for (key, packet) in events.ahead() {
            let line = &lanes[(key >> 2) as usize];
            if let (kind::ARRIVAL, Some(id)) = (key & 3, packet) {
                sum ^= u32::from(self.packets[id].length);
                sum ^= match line.to_host {
                    true => contents[id.0 as usize].flow,
                    false => self.switches[line.node as usize].switch.bring(line.port),
                };
            }
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

    #[inline]
    fn handle(&mut self, Due { at: now, key, packet }: Due) {
        let (lane, what) = (key >> 2, key & 3);
        let Self { packets, wires, switches, hosts, .. } = self;
        let line = &wires.lanes[lane as usize];
        // What arrives is for the far end of a lane, everything else for the port that sends into it.
        let (node, port, is_host) = match what {
            kind::ARRIVAL | kind::PAUSE => (line.node, line.port, line.to_host),
            _ => (line.from_node, line.from_port, line.from_host),
        };
        if is_host {
            let mut around = Surroundings {
                packets,
                wires,
                kinds: &self.kinds,
                attachments: &self.attachments,
                receiving: &mut self.receiving,
                poster_of_flow: &self.poster_of_flow,
                entropies: &self.entropies,
                echoes: &mut self.echoes,
                unfinished: &mut self.unfinished,
            };
            let host = &mut hosts[node as usize];
            match what {
                kind::ARRIVAL => {
                    let id = packet.or_else(|| around.wires.first(now, lane, around.packets));
                    if let Some(id) = id {
                        host.handle_packet(now, id, &mut around);
                    }
                }
                kind::WAKE => host.handle_wake(now, &mut around),
                kind::PAUSE => {
                    if let Some(frame) = around.wires.pause(lane) {
                        host.handle_pause(now, frame, &mut around);
                    }
                }
                _ => host.handle_clock(now, &mut around),
            }
            return;
        }
        let Attached { switch, first_lane, .. } = &mut switches[node as usize];
        let mut cables = Cables { wires, first_lane: *first_lane };
        match what {
            kind::ARRIVAL => {
                if let Some(id) = packet.or_else(|| cables.wires.first(now, lane, packets)) {
                    switch.handle_packet(now, port, id, packets, &mut cables);
                }
            }
            kind::PAUSE => {
                if let Some(frame) = cables.wires.pause(lane) {
                    switch.handle_pause(now, port, frame, packets, &mut cables);
                }
            }
            _ => switch.handle_wake(now, port, packets, &mut cables),
        }
    }
}

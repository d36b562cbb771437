//! A part of the network, which one thread drives.

mod watched;

use super::event_key::EventKind;
use super::events::Due;
use super::host::{Attachment, Context, Echoes, Host, Kind, MarkedFlows, Receiving};
use super::link_direction::LinkFrame;
use super::link_state::{LinkState, SwitchPorts};
use super::live::LiveHosts;
use super::placed_switch::PlacedSwitch;
use super::prefetch::{Ahead, is_large};
use super::scenario::Forgery;
use super::sriov_adapter::SriovAdapter;
use fabric::{Packets, Time};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Hosts and switches, and packets in flight between them.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) packets: Packets,
    pub(super) links: LinkState,
    pub(super) switches: Vec<PlacedSwitch>,
    pub(super) hosts: Vec<Host>,
    pub(super) kinds: Arc<[Kind]>,
    pub(super) attachments: Arc<[Attachment]>,
    /// The counters of received data, by flow.
    pub(super) receiving: Vec<Receiving>,
    pub(super) poster_of_flow: Arc<[u32]>,
    /// Flows whose ECMP hash is set, instead of computed from addresses and ports.
    pub(super) entropies: BTreeMap<u32, u32>,
    /// Telemetry that is to be sent back.
    pub(super) echoes: Echoes,
    /// Adapters with functions.
    pub(super) cards: Vec<SriovAdapter>,
    /// Flows whose packets bear others' addresses.
    pub(super) forgeries: Arc<BTreeMap<u32, (u32, Forgery)>>,
    /// Flows with marks of their own.
    pub(super) marked: Arc<MarkedFlows>,
    /// Flows of hosts of this part that are not done.
    pub(super) unfinished: u64,
    pub(super) events: u64,
}

impl Part {
    /// Handles all events before `end`.
    pub(super) fn run_until(&mut self, end: Time, live: &mut Option<&mut dyn LiveHosts>) {
        let mut handled = 0;
        self.links.events.tune();
        while self.links.events.turn(end) {
            handled += self.drive(live);
        }
        self.events += handled;
    }

    /// Polls the switches' watchdogs.
    pub(super) fn poll_watchdogs(&mut self, now: Time) {
        if let Some(journal) = &mut self.links.journal {
            journal.now = now;
        }
        for PlacedSwitch {
            switch, first_lane, ..
        } in &mut self.switches
        {
            let mut ports = SwitchPorts {
                links: &mut self.links,
                first_lane: *first_lane,
            };
            switch.poll_watchdog(now, &mut self.packets, &mut ports);
        }
    }

    /// Handles the events of the current node; returns their number.
    #[inline(always)]
    fn drive(&mut self, live: &mut Option<&mut dyn LiveHosts>) -> u64 {
        let mut handled = 0;
        let mut context = Context {
            packets: &mut self.packets,
            links: &mut self.links,
            kinds: &self.kinds,
            attachments: &self.attachments,
            receiving: &mut self.receiving,
            poster_of_flow: &self.poster_of_flow,
            entropies: &self.entropies,
            echoes: &mut self.echoes,
            unfinished: &mut self.unfinished,
            live: match live {
                Some(live) => Some(&mut **live),
                None => None,
            },
            cards: &mut self.cards,
            forgeries: &self.forgeries,
            marked: &self.marked,
        };
        let is_large = is_large(context.links.lanes.len());
        let is_watched = context.links.journal.is_some();
        while let Some(due) = context.links.events.next() {
            handled += 1;
            if is_large {
                let LinkState {
                    lanes,
                    events,
                    contents,
                    ..
                } = &*context.links;
                let (hosts, switches, packets) =
                    (&self.hosts[..], &self.switches[..], &*context.packets);
                Ahead {
                    lanes,
                    events,
                    contents,
                    hosts,
                    switches,
                    packets,
                }
                .load();
            }
            let line = &context.links.lanes[due.key.lane() as usize];
            // Arrivals are for the far end of a lane, everything else for the port that sends into it.
            let (node, port, is_host) = if due.key.is_of_sender() {
                (line.from_node, line.from_port, line.from_host)
            } else {
                (line.node, line.port, line.to_host)
            };
            if is_watched {
                let place = match is_host {
                    true => watched::Node::Host(&mut self.hosts[node as usize]),
                    false => watched::Node::Switch(&mut self.switches[node as usize], port),
                };
                watched::drive(place, due, &mut context);
            } else if is_host {
                drive_host(&mut self.hosts[node as usize], due, &mut context);
            } else {
                let Context { packets, links, .. } = &mut context;
                drive_switch(&mut self.switches[node as usize], port, due, packets, links);
            }
        }
        handled
    }
}

#[inline]
fn drive_host(host: &mut Host, due: Due, context: &mut Context<'_>) {
    let (now, lane) = (due.at, due.key.lane());
    match due.key.kind() {
        EventKind::Arrival => {
            let id = due
                .packet
                .or_else(|| context.links.first(now, lane, context.packets));
            if let Some(id) = id {
                host.handle_packet(now, id, context);
            }
        }
        EventKind::Wake => host.handle_wake(now, context),
        EventKind::Pause => match context.links.link_frame(lane) {
            Some(LinkFrame::Pause(frame)) => host.handle_pause(now, frame, context),
            Some(LinkFrame::News(news)) => host.handle_news(now, news, context),
            None => {}
        },
        EventKind::Clock if lane == host.lane => host.handle_clock(now, context),
        EventKind::Clock => host.handle_local(now, context),
    }
}

#[inline]
fn drive_switch(
    attached: &mut PlacedSwitch,
    port: u16,
    due: Due,
    packets: &mut Packets,
    links: &mut LinkState,
) {
    let PlacedSwitch {
        switch, first_lane, ..
    } = attached;
    let (now, lane) = (due.at, due.key.lane());
    let mut ports = SwitchPorts {
        links,
        first_lane: *first_lane,
    };
    match due.key.kind() {
        EventKind::Arrival => {
            if let Some(id) = due.packet.or_else(|| ports.links.first(now, lane, packets)) {
                switch.handle_packet(now, port, id, packets, &mut ports);
            }
        }
        EventKind::Pause => {
            match ports.links.link_frame(lane) {
                Some(LinkFrame::Pause(frame)) => {
                    switch.handle_pause(now, port, frame, packets, &mut ports);
                }
                Some(LinkFrame::News(news)) => {
                    switch.handle_credits(now, port, news, packets, &mut ports);
                }
                None => return,
            }
            if let Some(trace) = &mut ports.links.trace {
                trace.paused(*first_lane + u32::from(port), now, switch.egress(port));
            }
            if let Some(journal) = &mut ports.links.journal {
                journal.pause_changed(*first_lane + u32::from(port), now, switch.egress(port));
            }
        }
        EventKind::Wake | EventKind::Clock => switch.handle_wake(now, port, packets, &mut ports),
    }
}

//! Events of a run whose scenario watches a queue pair: handled as others are, and recorded.

use super::{Context, Due, EventKind, Host, LinkState, PlacedSwitch, SwitchPorts};
use fabric::{Egress, Frame, PacketId, Packets, Time, Wire};

/// The node that an event is for; of a switch, with the port.
pub(super) enum Node<'a> {
    Host(&'a mut Host),
    Switch(&'a mut PlacedSwitch, u16),
}

/// Handles an event, and records it where it is the watched queue pair's.
#[cold]
#[inline(never)]
pub(super) fn drive(node: Node<'_>, due: Due, context: &mut Context<'_>) {
    if let Some(journal) = &mut context.links.journal {
        journal.now = due.at;
    }
    match node {
        Node::Host(host) => drive_host(host, due, context),
        Node::Switch(attached, port) => {
            let Context { packets, links, .. } = context;
            drive_switch(attached, port, due, packets, links);
        }
    }
}

/// Has the pauses of the port by which the watched messages leave recorded.
fn watch_port(host: &Host, context: &mut Context<'_>) {
    let journal = context.links.journal.as_ref();
    let Some(traced) = journal
        .filter(|journal| journal.lacks_port(host.number, host.lane))
        .map(|journal| journal.traced.flow)
    else {
        return;
    };
    let class = host.class_of(traced, context);
    let LinkState { journal, table, .. } = &mut *context.links;
    if let Some(journal) = journal {
        journal.watch_port(host.lane, &table[host.lane as usize], class);
    }
}

/// The packet that arrives, if the event is an arrival.
fn arriving(due: Due, links: &mut LinkState, packets: &Packets) -> Option<PacketId> {
    due.packet
        .or_else(|| links.first(due.at, due.key.lane(), packets))
}

fn drive_host(host: &mut Host, due: Due, context: &mut Context<'_>) {
    watch_port(host, context);
    if due.key.kind() == EventKind::Arrival {
        let Some(id) = arriving(due, context.links, context.packets) else {
            return;
        };
        let LinkState {
            journal, contents, ..
        } = &mut *context.links;
        if let Some(journal) = journal {
            let packet = &context.packets[id];
            journal.arrives(host.number, id, &contents[id.0 as usize], packet);
        }
        host.handle_packet(due.at, id, context);
    } else {
        super::drive_host(host, due, context);
    }
    if let Some(journal) = &mut context.links.journal {
        let index = journal.poster_at(host.number);
        if let Some(poster) = index.and_then(|index| host.posters.get(index)) {
            journal.look(poster.posted, poster.completed, poster.failed);
        }
    }
}

fn drive_switch(
    attached: &mut PlacedSwitch,
    port: u16,
    due: Due,
    packets: &mut Packets,
    links: &mut LinkState,
) {
    if due.key.kind() != EventKind::Arrival {
        return super::drive_switch(attached, port, due, packets, links);
    }
    if let Some(id) = arriving(due, links, packets) {
        let PlacedSwitch {
            switch, first_lane, ..
        } = attached;
        let mut ports = WatchedPorts(SwitchPorts {
            links,
            first_lane: *first_lane,
        });
        switch.handle_packet(due.at, port, id, packets, &mut ports);
    }
}

/// The ports of a switch, with a record of what is put into their queues.
struct WatchedPorts<'a>(SwitchPorts<'a>);

impl Wire for WatchedPorts<'_> {
    fn send(&mut self, port: u16, frame: Frame, end: Time, packets: &mut Packets) {
        self.0.send(port, frame, end, packets);
    }

    fn wake(&mut self, port: u16, at: Time) {
        self.0.wake(port, at);
    }

    fn queued(&mut self, port: u16, id: PacketId, egress: &Egress, packets: &Packets) {
        let lane = self.0.first_lane + u32::from(port);
        let LinkState {
            journal,
            contents,
            table,
            ..
        } = &mut *self.0.links;
        if let Some(journal) = journal {
            let info = &table[lane as usize];
            let content = &contents[id.0 as usize];
            journal.queued(lane, info, content, id, egress, &packets[id]);
        }
    }

    fn dropped(&mut self, port: u16, id: PacketId, why: fabric::Drop, packets: &mut Packets) {
        self.0.dropped(port, id, why, packets);
    }
}

//! Interfaces of IP over InfiniBand of the hosts: what the subnet's manager and the network have for them,
//! and paths for programs.

use super::{LiveSubnet, PORT};
use crate::ip_frames::IpFrame;
use crate::network::{IP_QPN, Network};
use crate::plan::LiveHost;
use crate::sys::interface;
use fabric::{Span, Time};
use infiniband::ipoib::{
    Action, Datagram, Failure, Interface, Link, OwnAddress, Parcel, Target, Verdict,
};
use infiniband::mad::Mad;
use infiniband::sa::PathRecord;
use infiniband::sma::PortEvent;
use infiniband::subnet::End;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::fd::AsRawFd;

/// The kernel's interface of a host.
pub(crate) const NAME: &str = "ib0";

/// The answer to a program that has asked for a path.
pub(crate) type Resolved = (u64, Result<PathRecord, Failure>);

/// The interfaces, by the numbers of hosts.
#[derive(Debug)]
pub(super) struct Interfaces {
    all: BTreeMap<usize, Interface<IpFrame>>,
    /// What the network has to do for hosts.
    actions: Vec<(usize, Action<IpFrame>)>,
    resolved: Vec<Resolved>,
}

impl Interfaces {
    pub(super) fn new(live: &[LiveHost]) -> Self {
        let interface = |host: &LiveHost| {
            let own = [
                (IpAddr::V4(host.v4), 8),
                (IpAddr::V6(host.v6), 64),
                (IpAddr::V6(host.link_local), 64),
            ];
            let own = own.map(|(address, prefix)| OwnAddress { address, prefix });
            (host.number as usize, Interface::new(IP_QPN, own.to_vec()))
        };
        Self {
            all: live.iter().map(interface).collect(),
            actions: Vec::new(),
            resolved: Vec::new(),
        }
    }

    /// The interface of a host.
    pub(super) fn of(&self, host: usize) -> Option<&Interface<IpFrame>> {
        self.all.get(&host)
    }

    pub(super) fn next_event(&self) -> Time {
        let times = self.all.values().map(Interface::next_event);
        times.min().unwrap_or(Time::NEVER)
    }

    /// A manager has answered.
    pub(super) fn answered(&mut self, host: usize, now: Time, mad: &Mad) {
        if let Some(interface) = self.all.get_mut(&host) {
            interface.answered(now, mad);
        }
    }

    /// Something has happened at the port of a host.
    pub(super) fn note_event(&mut self, host: usize, now: Time, event: PortEvent) {
        if event == PortEvent::ClientReregister
            && let Some(interface) = self.all.get_mut(&host)
        {
            interface.join_groups(now);
        }
    }
}

impl LiveSubnet {
    /// Has interfaces follow the state of their ports and the time. Their requests to the manager are sent.
    pub(super) fn run_interfaces(&mut self, now: Time) {
        let Interfaces { all, actions, .. } = &mut self.interfaces;
        for (host, interface) in all {
            interface.set_port(now, &self.subnet.node(*host).ports[usize::from(PORT)]);
            if interface.next_event() <= now {
                interface.run(now);
            }
            for action in interface.take_actions() {
                match action {
                    Action::Ask(packet) => {
                        let (node, port) = (*host, PORT);
                        self.subnet.send(now, End { node, port }, packet);
                    }
                    other => actions.push((*host, other)),
                }
            }
        }
    }

    /// Passes packets between interfaces and the network.
    pub(crate) fn serve_interfaces(&mut self, now: Time, network: &mut Network) {
        for place in 0..network.ports.len() {
            let port = &mut network.ports[place];
            let host = port.host.number as usize;
            let (Some(ip), Some(interface)) = (&mut port.ip, self.interfaces.all.get_mut(&host))
            else {
                continue;
            };
            if !ip.has_work() {
                continue;
            }
            for frame in std::mem::take(&mut ip.unresolved) {
                interface.send(now, frame);
            }
            for (to, mut frame) in std::mem::take(&mut ip.arrived) {
                let ether_type = frame.ether_type();
                let body = frame.as_ref();
                let datagram = Datagram {
                    to,
                    ether_type,
                    body,
                };
                if interface.receive(now, &datagram) == Verdict::ForHost {
                    network.hand_over(place, &mut frame);
                }
            }
        }
        self.run_interfaces(now);
        for (host, action) in std::mem::take(&mut self.interfaces.actions) {
            if let Some(place) = network.index_of_host(host as u32) {
                self.carry_out(place, action, network);
            }
        }
    }

    fn carry_out(&mut self, place: usize, action: Action<IpFrame>, network: &mut Network) {
        match action {
            Action::Send { to, parcel } => {
                let frame = match parcel {
                    Parcel::OfHost(frame) => frame,
                    Parcel::Own { ether_type, body } => IpFrame::new(ether_type, &body),
                };
                network.enter_packet(place, to, &frame);
            }
            Action::Neighbour { address, handle } => {
                let Some(ip) = &mut network.ports[place].ip else {
                    return;
                };
                match handle {
                    Some(handle) => ip.handles.insert(address, handle),
                    None => ip.handles.remove(&address),
                };
            }
            Action::Link(link) => set_link(place, link, network),
            Action::Resolved { number, result } => self.interfaces.resolved.push((number, result)),
            // Requests to the manager are sent when they are made.
            Action::Ask(_) => {}
        }
    }

    /// A program of a host asks for a path.
    pub(crate) fn resolve(
        &mut self,
        now: Time,
        host: usize,
        number: u64,
        target: Target,
        time: Span,
    ) {
        match self.interfaces.all.get_mut(&host) {
            Some(interface) => interface.resolve(now, number, target, now + time),
            None => self
                .interfaces
                .resolved
                .push((number, Err(Failure::NoPath))),
        }
    }

    /// A program does not wait any more.
    pub(crate) fn cancel(&mut self, host: usize, number: u64) {
        if let Some(interface) = self.interfaces.all.get_mut(&host) {
            interface.cancel(number);
        }
    }

    /// Takes the answers to programs that have asked for paths.
    pub(crate) fn take_resolved(&mut self) -> Vec<Resolved> {
        std::mem::take(&mut self.interfaces.resolved)
    }
}

/// The kernel of a host sees the link, and its MTU.
fn set_link(place: usize, link: Option<Link>, network: &mut Network) {
    let port = &mut network.ports[place];
    let Some(ip) = &mut port.ip else {
        return;
    };
    ip.link = link;
    if let Some(mtu) = link.map(|link| link.mtu).filter(|mtu| *mtu != ip.mtu)
        && let Some(socket) = &ip.socket
        && interface::set_mtu_at(socket.as_raw_fd(), NAME, u32::from(mtu)).is_ok()
    {
        ip.mtu = mtu;
    }
    if let Some(tap) = &port.tap {
        tap.set_carrier(link.is_some());
    }
}

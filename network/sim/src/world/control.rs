//! The control of a world with live hosts: makes hosts live, runs up to the time of a clock, and changes
//! links and switches while they work.

use super::event_key::{EventKey, EventKind};
use super::link_state::SwitchPorts;
use super::live::LiveHosts;
use super::placed_switch::PlacedSwitch;
use super::scenario::AdapterFunction;
use super::{Captured, World};
use fabric::Time;
use fabric::config::{CLASSES, PfcConfig, QueueConfig, SwitchConfig};
use fabric::topology::{LinkConfig, Node};

impl World {
    /// Makes a host live. The world then has no end but the scenario's.
    pub fn set_live(&mut self, host: u32) {
        if let Some((part, index)) = self.host_at.get(host as usize).copied() {
            let host = &mut self.parts[usize::from(part)].hosts[index as usize];
            host.is_live = true;
            host.egress.set_fed();
            self.is_live = true;
        }
    }

    /// Has a live host poll for packets at `at`, or now if that is over.
    pub fn wake_live(&mut self, host: u32, at: Time) {
        let Some((part, index)) = self.host_at.get(host as usize).copied() else {
            return;
        };
        let part = &mut self.parts[usize::from(part)];
        let at = at.max(self.now);
        if part.hosts[index as usize].wants_clock(at) {
            part.links
                .events
                .push(at, EventKey::new(host, EventKind::Clock));
        }
    }

    /// Runs until `at` in one thread, with the packets of live hosts.
    pub fn run_live(&mut self, at: Time, live: &mut dyn LiveHosts) {
        self.run_with(at, Some(live));
        for part in &mut self.parts {
            part.links
                .lost_tokens
                .drain(..)
                .for_each(|token| live.lose(token));
        }
    }

    /// Takes a link down, or brings it up again: packets that are on it or sent meanwhile are lost.
    pub fn set_link(&mut self, link: u32, up: bool) {
        let now = self.now;
        self.parts
            .iter_mut()
            .for_each(|part| part.links.set_link(link, up, now));
    }

    /// Gives a link another rate, delay, and chance of damage. Packets on it arrive as they would have. The
    /// delay must not be below the shortest of the scenario: nodes are driven by themselves for so long.
    pub fn set_link_config(&mut self, link: u32, ends: [Node; 2], config: LinkConfig) {
        self.parts
            .iter_mut()
            .for_each(|part| part.links.set_config(link, config));
        for end in ends {
            if let Node::Host(host) = end
                && let Some((part, index)) = self.host_at.get(host as usize).copied()
            {
                self.parts[usize::from(part)].hosts[index as usize]
                    .egress
                    .set_rate(config.rate);
            }
        }
    }

    /// Gives the port of a host other queues and PFC than its scenario has, as its adapter has agreed with
    /// the switch.
    pub fn set_host_port(&mut self, host: u32, pfc: PfcConfig, queues: [QueueConfig; CLASSES]) {
        let Some((part, index)) = self.host_at.get(host as usize).copied() else {
            return;
        };
        let now = self.now;
        let part = &mut self.parts[usize::from(part)];
        let host = &mut part.hosts[index as usize];
        let wanted = part.kinds[usize::from(host.kind)].with_port(pfc, queues);
        let found = part.kinds.iter().position(|kind| *kind == wanted);
        let number = found.unwrap_or(part.kinds.len());
        let Ok(kind) = u16::try_from(number) else {
            return;
        };
        if found.is_none() {
            part.kinds = part.kinds.iter().cloned().chain([wanted]).collect();
        }
        host.kind = kind;
        host.egress.follow(now, &part.kinds[number].profile);
    }

    /// Gives a function of an adapter other rates, another VLAN and other checks. These checks apply to its
    /// packets that are still on their way, too.
    pub fn set_function(&mut self, function: &AdapterFunction) {
        let Some((part, index)) = self.host_at.get(function.host as usize).copied() else {
            return;
        };
        let part = &mut self.parts[usize::from(part)];
        let Some(seat) = &mut part.hosts[index as usize].seat else {
            return;
        };
        seat.guard = function.guard;
        part.cards[seat.card as usize].set(seat.function, function);
        for part in &mut self.parts {
            let mut attachments = part.attachments.to_vec();
            attachments[function.host as usize].vlan = function.vlan;
            part.attachments = attachments.into();
        }
    }

    /// Gives the ports of a switch another configuration; false, and nothing changes, where it does not fit
    /// ([`fabric::Switch::reconfigure`]).
    pub fn reconfigure(&mut self, switch: u32, config: &SwitchConfig) -> bool {
        let Some((part, index)) = self.switch_at.get(switch as usize).copied() else {
            return false;
        };
        let now = self.now;
        let part = &mut self.parts[usize::from(part)];
        let PlacedSwitch {
            switch, first_lane, ..
        } = &mut part.switches[index as usize];
        let mut ports = SwitchPorts {
            links: &mut part.links,
            first_lane: *first_lane,
        };
        switch.reconfigure(now, config, &mut part.packets, &mut ports)
    }

    /// Begins or ends the capture of a link, in both directions. At most `captured_max` packets are kept
    /// until [`Self::take_captured`].
    pub fn set_capture(&mut self, link: u32, on: bool, captured_max: usize) {
        self.parts
            .iter_mut()
            .for_each(|part| part.links.set_capture(link, on, captured_max));
    }

    /// Takes the packets captured since the last call, in order of time.
    pub fn take_captured(&mut self) -> Vec<Captured> {
        let mut all: Vec<Captured> = self
            .parts
            .iter_mut()
            .flat_map(|part| part.links.captured.drain(..))
            .collect();
        all.sort_by_key(|packet| packet.at);
        all
    }

    /// When something happens next in the network; never, if everything is at rest.
    pub fn next_event(&self) -> Time {
        self.parts
            .iter()
            .filter_map(|part| part.links.events.next_at())
            .min()
            .unwrap_or(Time::NEVER)
    }

    /// Packets that are in the network.
    pub fn in_flight(&self) -> u32 {
        self.parts.iter().map(|part| part.packets.len()).sum()
    }
}

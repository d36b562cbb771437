//! A link with LLDP agents: the port of an adapter, and that of a switch.

use super::agent::{Agent, Neighbour, VALID_SECONDS};
use super::settings::PortSettings;
use super::sharing::Sharing;
use crate::plan::LiveHost;
use crate::tap::Tap;
use fabric::topology::{End, Node};
use fabric_file::Network;
use wire::dcbx::{Advertisement, takes_ets, takes_pfc};
use wire::ethernet::{ETHERNET_SIZE_MAX, FRAME_SIZE_MIN};
use wire::lldp::{Applications, LLDP_DESTINATION, LldpTlv, TLV_VALUE_MAX};
use wire::{EtherType, Ethernet, MacAddress};

/// Subtypes of chassis and port (802.1AB tables 8-2 and 8-3).
const CHASSIS_MAC: u8 = 4;
const PORT_MAC: u8 = 3;
const PORT_NAME: u8 = 5;

/// Characters of a name in a frame at most (802.1AB clause 8.5.7.3).
const NAME_MAX: usize = 255;

/// One end of a link.
#[derive(Debug)]
pub(crate) struct LinkPort {
    pub(crate) end: End,
    pub(super) mac: MacAddress,
    chassis: MacAddress,
    /// The name of the port; an adapter's is its MAC address.
    port: Option<String>,
    system: String,
    pub(super) settings: PortSettings,
    pub(super) agent: Agent,
    /// The operational settings that the network has for this port.
    applied: Sharing,
}

impl LinkPort {
    pub(super) fn adapter(end: End, host: &LiveHost, settings: PortSettings) -> Self {
        let mac = MacAddress(host.mac);
        Self::new(end, [mac; 2], None, &host.name, settings)
    }

    pub(super) fn switch(end: End, network: &Network, settings: PortSettings) -> Self {
        let Node::Switch(number) = end.node else {
            return Self::new(end, Default::default(), None, "", settings);
        };
        let [_, _, high, low] = number.to_be_bytes();
        let mac = |port: u16| {
            let [a, b] = port.to_be_bytes();
            MacAddress([2, 1, high, low, a, b])
        };
        let switch = &network.switches[number as usize];
        let port = switch.ports.get(usize::from(end.port)).cloned();
        Self::new(
            end,
            [mac(end.port), mac(u16::MAX)],
            port,
            &switch.name,
            settings,
        )
    }

    fn new(
        end: End,
        [mac, chassis]: [MacAddress; 2],
        port: Option<String>,
        system: &str,
        settings: PortSettings,
    ) -> Self {
        let (system, applied) = (system.to_owned(), settings.sharing);
        Self {
            end,
            mac,
            chassis,
            port,
            system,
            settings,
            agent: Agent::new(),
            applied,
        }
    }

    /// Takes other settings, which are announced.
    pub(super) fn set(&mut self, settings: PortSettings, now: u64) {
        if settings != self.settings {
            self.settings = settings;
            self.agent.announce(now);
        }
    }

    /// The frame that advertises the port, valid for so many seconds.
    fn frame(&self, seconds: u16) -> Vec<u8> {
        let PortSettings {
            willing,
            sharing,
            applications,
        } = &self.settings;
        let port = match &self.port {
            Some(name) => LldpTlv::Port(PORT_NAME, cut(name)),
            None => LldpTlv::Port(PORT_MAC, &self.mac.0),
        };
        let entries: Vec<u8> = applications
            .iter()
            .flat_map(|entry| entry.to_bytes())
            .collect();
        let mut tlvs = vec![
            LldpTlv::Chassis(CHASSIS_MAC, &self.chassis.0),
            port,
            LldpTlv::TimeToLive(seconds),
        ];
        // A shutdown frame has only the mandatory TLVs (802.1AB clause 9.1.2.3).
        if seconds > 0 {
            tlvs.extend([
                LldpTlv::SystemName(cut(&self.system)),
                LldpTlv::Ets(sharing.ets_tlv(*willing, false)),
                LldpTlv::Ets(sharing.ets_tlv(*willing, true)),
                LldpTlv::Pfc(sharing.pfc_tlv(*willing)),
                LldpTlv::Applications(Applications::new(&entries)),
            ]);
        }
        tlvs.push(LldpTlv::End);
        let header = Ethernet {
            destination: LLDP_DESTINATION,
            source: self.mac,
            vlan: None,
            ethertype: EtherType::LLDP,
        };
        let mut bytes = [0; ETHERNET_SIZE_MAX];
        let length = header.encode(&mut bytes);
        let mut frame = bytes[..length].to_vec();
        for tlv in tlvs {
            let mut out = [0; TLV_VALUE_MAX + 2];
            let length = tlv.encode(&mut out).unwrap_or(0);
            frame.extend_from_slice(&out[..length]);
        }
        frame.resize(frame.len().max(FRAME_SIZE_MIN), 0);
        frame
    }

    /// The DCBX peer of the port, whose settings are compared with its own.
    pub(super) fn peer(&self) -> Option<&Neighbour> {
        self.agent.peer()
    }

    /// Whether the port operates with its peer's PFC.
    pub(super) fn takes_pfc(&self) -> bool {
        let own = self.settings.sharing.pfc_tlv(self.settings.willing);
        let peer = self.peer().and_then(|peer| Some((peer.pfc?, peer.mac)));
        peer.is_some_and(|(pfc, mac)| takes_pfc(own, self.mac, pfc, mac))
    }

    /// Whether the port operates with the ETS that its peer recommends.
    pub(super) fn takes_ets(&self) -> bool {
        let own = self.settings.sharing.ets_tlv(self.settings.willing, false);
        takes_ets(&own, self.peer().and_then(|peer| peer.recommended.as_ref()))
    }

    pub(super) fn takes_any(&self) -> bool {
        self.takes_pfc() || self.takes_ets()
    }

    /// The operational settings of the port.
    pub(super) fn operational(&self) -> Sharing {
        let mut operational = self.settings.sharing;
        let peer = self.peer();
        if let Some(pfc) = peer.and_then(|peer| peer.pfc).filter(|_| self.takes_pfc()) {
            operational.pfc = pfc.enabled;
        }
        match peer
            .and_then(|peer| peer.recommended.as_ref())
            .filter(|_| self.takes_ets())
        {
            Some(ets) => operational.with_ets(ets),
            None => operational,
        }
    }

    /// Whether the network does not have these operational settings of the port yet; it is taken as updated.
    pub(super) fn is_news(&mut self, operational: Sharing, all: bool) -> bool {
        let before = std::mem::replace(&mut self.applied, operational);
        before != operational || all && operational != self.settings.sharing
    }
}

fn cut(name: &str) -> &[u8] {
    let end = (0..=name.len().min(NAME_MAX))
        .rev()
        .find(|end| name.is_char_boundary(*end));
    &name.as_bytes()[..end.unwrap_or(0)]
}

/// A link with a port of an adapter, and one of a switch.
#[derive(Debug)]
pub(crate) struct AgentLink {
    /// Number of the link in the topology.
    pub(super) link: u32,
    /// The place of the live host.
    pub(super) place: usize,
    /// The port of the adapter, then that of the switch.
    pub(crate) ports: [LinkPort; 2],
    is_up: bool,
}

impl AgentLink {
    pub(super) fn new(link: u32, place: usize, ports: [LinkPort; 2], up: bool, now: u64) -> Self {
        let mut made = Self {
            link,
            place,
            ports,
            is_up: false,
        };
        made.set_up(up, now);
        made
    }

    /// Takes the state of the link.
    pub(super) fn set_up(&mut self, up: bool, now: u64) {
        if std::mem::replace(&mut self.is_up, up) == up {
            return;
        }
        for port in &mut self.ports {
            if up {
                port.agent.start(now)
            } else {
                port.agent.stop()
            }
        }
    }

    /// When something is to be done next.
    pub(super) fn next(&self) -> u64 {
        self.ports
            .iter()
            .map(|port| port.agent.next())
            .min()
            .unwrap_or(u64::MAX)
    }

    /// Passes on what is due, and what the host's kernel has sent; returns the frames that crossed the link.
    pub(super) fn serve(&mut self, now: u64, mut tap: Option<&mut Tap>) -> Vec<Vec<u8>> {
        let mut crossed = Vec::new();
        let mut from_kernel = Vec::new();
        if let Some(tap) = tap.as_mut() {
            from_kernel.extend(tap.lldp.drain(..));
        }
        let [adapter, switch] = &mut self.ports;
        for frame in from_kernel.into_iter().filter(|_| self.is_up) {
            hear(switch, &frame, true, now);
            crossed.push(frame);
        }
        for port in [&mut *adapter, &mut *switch] {
            port.agent.expire(now);
        }
        // The port of the host has one agent: that of the host's programs, if they take part in DCBX.
        let spoken_for = switch.agent.hears_program();
        if spoken_for && adapter.agent.is_started() {
            adapter.agent.stop();
            let frame = adapter.frame(0);
            hear(switch, &frame, false, now);
            crossed.push(frame);
        } else if !spoken_for && self.is_up && !adapter.agent.is_started() {
            adapter.agent.start(now);
            switch.agent.announce(now);
        }
        if adapter.agent.sends(now) {
            let frame = adapter.frame(VALID_SECONDS);
            hear(switch, &frame, false, now);
            crossed.push(frame);
        }
        if switch.agent.sends(now) {
            let frame = switch.frame(VALID_SECONDS);
            hear(adapter, &frame, false, now);
            tap.into_iter().for_each(|tap| tap.put_control(&frame));
            crossed.push(frame);
        }
        crossed
    }
}

/// Processes a frame that a port receives. Frames that cannot be parsed are dropped, as by a receiver.
fn hear(port: &mut LinkPort, frame: &[u8], is_program: bool, now: u64) {
    if let Some((mac, said)) = said(frame) {
        port.agent.hear(&said, mac, is_program, now);
    }
}

/// The advertisement in a frame for the port of a switch, and its source address.
pub fn said(frame: &[u8]) -> Option<(MacAddress, Advertisement<'_>)> {
    let (ethernet, payload) = Ethernet::parse(frame).ok()?;
    let is_for_port =
        ethernet.destination == LLDP_DESTINATION && ethernet.ethertype == EtherType::LLDP;
    let said = Advertisement::parse(payload).ok().filter(|_| is_for_port)?;
    Some((ethernet.source, said))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lldp::sharing::applications_of;
    use sim::world::HostConfig;
    use wire::lldp::PfcTlv;

    const SECOND: u64 = 1_000_000_000;

    /// A port with PFC for these priorities.
    fn settings(willing: bool, pfc: u8) -> PortSettings {
        let sharing = Sharing {
            pfc,
            ..Sharing::of_host(&HostConfig::new())
        };
        PortSettings {
            willing,
            sharing,
            applications: applications_of(&[(26, 3), (48, 6)].into()),
        }
    }

    /// An adapter with 02:00:00:00:00:01, and a switch with a higher address, after their first exchange.
    fn link(adapter: PortSettings, switch: PortSettings) -> AgentLink {
        let host = crate::fuzz_entry::host(0);
        let end = |node| End { node, port: 0 };
        let higher = MacAddress([2, 1, 0, 0, 0, 0]);
        let ports = [
            LinkPort::adapter(end(Node::Host(0)), &host, adapter),
            LinkPort::new(
                end(Node::Switch(0)),
                [higher; 2],
                Some("swp1".to_owned()),
                "leaf",
                switch,
            ),
        ];
        let mut link = AgentLink::new(0, 0, ports, true, 0);
        assert_eq!(link.serve(0, None).len(), 2);
        link
    }

    fn pfc(link: &AgentLink) -> [u8; 2] {
        link.ports.each_ref().map(|port| port.operational().pfc)
    }

    #[test]
    fn ports_operate_with_what_802_1q_says() {
        for (willing, operational) in [
            ([false, false], [1 << 2, 1 << 3]),
            ([true, false], [1 << 3, 1 << 3]),
            ([false, true], [1 << 2, 1 << 2]),
            // The adapter has the lower address.
            ([true, true], [1 << 2, 1 << 2]),
        ] {
            let link = link(settings(willing[0], 1 << 2), settings(willing[1], 1 << 3));
            assert_eq!(pfc(&link), operational, "{willing:?}");
        }
    }

    #[test]
    fn ets_is_taken_as_the_peer_recommends_it() {
        let mut switch = settings(false, 0);
        switch.sharing.bandwidth = [25, 0, 0, 75, 0, 0, 0, 0];
        let [adapter, _] = link(settings(true, 0), switch).ports;
        assert_eq!(adapter.operational().bandwidth, [25, 0, 0, 75, 0, 0, 0, 0]);
    }

    #[test]
    fn a_pulled_cable_ends_what_was_agreed_and_a_change_is_agreed_at_once() {
        let mut link = link(settings(true, 0), settings(false, 1 << 3));
        assert_eq!(pfc(&link)[0], 1 << 3);
        link.ports[1].set(settings(false, 1 << 4), SECOND / 2);
        link.serve(SECOND / 2, None);
        assert_eq!(pfc(&link)[0], 1 << 4);
        link.set_up(false, SECOND);
        assert_eq!((pfc(&link)[0], link.next()), (0, u64::MAX));
        link.set_up(true, 2 * SECOND);
        link.serve(2 * SECOND, None);
        assert_eq!(pfc(&link)[0], 1 << 4);
    }

    #[test]
    fn a_program_that_takes_part_in_dcbx_speaks_in_place_of_the_adapter() {
        let mut link = link(settings(false, 1 << 3), settings(false, 1 << 3));
        let mut program = LinkPort::adapter(
            link.ports[0].end,
            &crate::fuzz_entry::host(0),
            settings(true, 1 << 5),
        );
        program.port = Some("eth0".to_owned());
        hear(&mut link.ports[1], &program.frame(2), true, SECOND);
        let said: Vec<u16> = link
            .serve(SECOND, None)
            .iter()
            .filter_map(|frame| said(frame).map(|(_, said)| said.seconds))
            .collect();
        assert!(
            said.contains(&0),
            "the adapter takes back what it said: {said:?}"
        );
        assert!(
            link.ports[1]
                .peer()
                .is_some_and(|peer| peer.is_program && peer.pfc.is_some_and(|pfc| pfc.willing))
        );
        // The program has ended.
        link.serve(4 * SECOND, None);
        assert!(link.ports[1].peer().is_some_and(|peer| !peer.is_program));
    }

    #[test]
    fn a_frame_says_all_of_its_port() {
        let port = &link(settings(true, 1 << 3), settings(false, 0)).ports[0];
        let frame = port.frame(VALID_SECONDS);
        let (mac, said) = said(&frame).expect("a frame of LLDP");
        assert_eq!(
            (mac, said.seconds, said.system),
            (port.mac, 121, &b"h0"[..])
        );
        let pfc = PfcTlv {
            willing: true,
            macsec_bypass: false,
            capability: 8,
            enabled: 1 << 3,
        };
        assert_eq!(said.pfc, Some(pfc));
        assert!(said.ets.is_some_and(|ets| ets.willing) && said.recommended.is_some());
        assert_eq!(
            said.applications.map(|entries| entries.iter().count()),
            Some(3)
        );
    }
}

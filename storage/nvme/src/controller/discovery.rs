//! The discovery service: which subsystems a host can reach, and through which ports (Base 5.16.1.23).

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use wire::nvme::discovery::{
    Entry, Head, REQUIREMENT_NO_FLOW_CONTROL, family, flag, kind, rdma_specific, tcp_specific,
    transport,
};
use wire::nvme::{fabrics, text};

use super::State;
use super::origin::Origin;
use crate::limits::ADMIN_ENTRIES;
use crate::nqn::Nqn;

/// The transport of a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transport {
    /// NVMe/TCP, in TLS or not.
    Tcp {
        /// Whether the port requires TLS 1.3.
        tls: bool,
    },
    /// NVMe/RDMA over RoCEv2 or another RDMA network.
    Rdma,
}

/// A port of the target.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Port {
    /// The port identifier (PORTID).
    pub id: u16,
    /// The transport type (TRTYPE) and its security.
    pub transport: Transport,
    /// The address and port number that it listens on.
    pub address: SocketAddr,
    /// The subsystems that hosts reach through it; all when `None`.
    pub subsystems: Option<BTreeSet<Nqn>>,
}

impl Port {
    /// Whether hosts reach this subsystem through the port.
    pub fn leads_to(&self, subsystem: &Nqn) -> bool {
        self.subsystems
            .as_ref()
            .is_none_or(|names| names.contains(subsystem))
    }
}

/// A referral to another discovery service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Referral {
    /// The transport type (TRTYPE) and its security.
    pub transport: Transport,
    /// The transport address (TRADDR) and port (TRSVCID).
    pub address: SocketAddr,
}

impl State {
    pub(super) fn discovery_page(&self, id: u16, origin: &Origin) -> Vec<u8> {
        let mut entries = Vec::new();
        let current = self
            .ports
            .get(&origin.port)
            .map(|port| (port.transport, port.id));
        if let Some((transport, port)) = current {
            let flags = flag::DUPLICATE | flag::EXPLICIT_PERSISTENT;
            let own = entry(
                transport,
                origin.local,
                fabrics::DISCOVERY_NQN,
                kind::CURRENT,
            );
            entries.push(Entry {
                port_id: port,
                flags,
                ..own
            });
        }
        let host = self
            .controllers
            .get(&id)
            .map(|controller| controller.session.name());
        for subsystem in self.subsystems.values() {
            if !host.is_some_and(|host| subsystem.snapshot().may_come(host)) {
                continue;
            }
            let name = subsystem.name();
            for port in self.ports.values().filter(|port| port.leads_to(name)) {
                let Some(address) = reachable(port, origin) else {
                    continue;
                };
                let entry = entry(port.transport, address, name.as_str(), kind::NVM);
                entries.push(Entry {
                    port_id: port.id,
                    ..entry
                });
            }
        }
        for referral in &self.referrals {
            let name = fabrics::DISCOVERY_NQN;
            entries.push(entry(
                referral.transport,
                referral.address,
                name,
                kind::REFERRAL,
            ));
        }
        let head = Head {
            generation: self.discovery_changes,
            count: entries.len() as u64,
            format: 0,
        };
        let mut page = head.to_bytes().to_vec();
        page.extend(entries.iter().flat_map(Entry::to_bytes));
        page
    }
}

/// The address of a port for this host. A port that listens on the wildcard address is listed with the
/// address that the host connected to.
fn reachable(port: &Port, origin: &Origin) -> Option<SocketAddr> {
    if !super::is_any(&port.address) {
        return Some(port.address);
    }
    let local = origin.local.ip();
    // A socket on [::] accepts IPv4 too; one on 0.0.0.0 does not accept IPv6.
    (port.address.is_ipv6() || local.is_ipv4()).then(|| SocketAddr::new(local, port.address.port()))
}

fn entry(by: Transport, address: SocketAddr, subsystem: &str, kind: u8) -> Entry {
    let ip = match address.ip() {
        IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or(IpAddr::V6(v6), IpAddr::V4),
        v4 => v4,
    };
    let (transport, specific) = match by {
        Transport::Tcp { tls } => (transport::TCP, tcp_specific(tls)),
        Transport::Rdma => (transport::RDMA, rdma_specific()),
    };
    let required = matches!(by, Transport::Tcp { tls: true });
    Entry {
        transport,
        family: if ip.is_ipv4() {
            family::IPV4
        } else {
            family::IPV6
        },
        kind,
        requirements: REQUIREMENT_NO_FLOW_CONTROL | u8::from(required),
        controller_id: fabrics::CONTROLLER_DYNAMIC,
        admin_size: ADMIN_ENTRIES,
        service: text::spaced(&address.port().to_string()),
        subsystem: text::zeroed(subsystem),
        address: text::spaced(&ip.to_string()),
        specific,
        ..Entry::default()
    }
}

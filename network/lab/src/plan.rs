//! The plan of a lab: which hosts of a fabric file are live, and their names and addresses.

use crate::LabError;
use crate::frame::{class_of, link_local};
use crate::functions::{self, LiveFunction, cable_of};
use crate::link_changes::LinkChange;
use crate::neighbours::HostAddresses;
use fabric::topology::Node;
use fabric::{Rate, Span, Time};
use fabric_file::congestion::Congestion;
use fabric_file::{Document, ReadFile};
use infiniband::ipoib;
use link::lab::Welcome;
use sim::experiment::Experiment;
use sim::world::{Headers, HostConfig, Marking};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Live hosts of a lab at most.
pub(crate) const LIVE_MAX: usize = 64;

/// Bytes of MTU that an interface has beyond the payload of RoCEv2 packets: their headers, with room.
const HEADERS_BYTES: u32 = 104;

/// Bytes of the longest RoCEv2 packet.
const PACKET_BYTES: u32 = 4096 + 82;

/// For how long a device has packets in a ring while it waits for a processor, by the clock of the machine.
const AHEAD: Span = Span(4_000_000_000);

/// Bytes that a device may have in a ring in any case: two packets, and a third one begins before the limit.
const AHEAD_BYTES_MIN: u64 = 2 * PACKET_BYTES as u64;

/// A live host of the file.
#[derive(Clone, PartialEq, Debug)]
pub struct LiveHost {
    /// Number of the host in the network.
    pub number: u32,
    /// Name of the host, which other hosts resolve.
    pub name: String,
    /// IPv4 address, in 10.0.0.0/8.
    pub v4: Ipv4Addr,
    /// IPv6 address, in fd6c:6162::/64.
    pub v6: Ipv6Addr,
    /// The MAC address of its interface.
    pub mac: [u8; 6],
    /// The link-local address, which its kernel has made of the first MAC address.
    pub link_local: Ipv6Addr,
    /// MTU of its interface in bytes.
    pub mtu: u32,
    /// Rate of its link.
    pub rate: Rate,
    /// The function of another host's adapter that this host is, if it is one.
    pub function: Option<LiveFunction>,
    /// Whether the host's port is one of an InfiniBand subnet.
    pub is_infiniband: bool,
    /// Marks of data, acknowledgements and congestion notifications.
    pub(crate) marks: [Marking; 3],
    /// Variables of its programs.
    pub(crate) variables: Vec<(String, String)>,
}

impl LiveHost {
    pub(crate) fn addresses(&self) -> HostAddresses {
        HostAddresses {
            v4: self.v4,
            v6: self.v6,
            link_local: self.link_local,
            mac: self.mac,
        }
    }

    /// The class of a DSCP that a program chose.
    pub(crate) fn class_of(&self, dscp: u8) -> u8 {
        class_of(&self.marks, dscp)
    }

    /// How devices fill their rings while the clock is slower than the machine's by `slowdown`.
    ///
    /// An adapter chooses between queue pairs when its port takes a packet. A device of a program can do so
    /// only before its packets are in a ring, so it puts no more there than leaves while it waits for a
    /// processor.
    pub(crate) fn welcome(&self, slowdown: u64) -> Welcome {
        let ahead = self
            .rate
            .bytes_in(Span(AHEAD.0 / slowdown))
            .max(AHEAD_BYTES_MIN);
        let [data, acknowledgements, _] = self.marks.map(|marking| marking.class);
        Welcome {
            ahead: u32::try_from(ahead).unwrap_or(u32::MAX),
            classes: [data, acknowledgements],
            by_dscp: std::array::from_fn(|dscp| self.class_of(dscp as u8)),
        }
    }

    /// The VLAN that it is in; 0 is untagged.
    pub(crate) fn vlan(&self) -> u16 {
        self.function.map_or(0, |function| function.vlan)
    }
}

/// The file of a lab, and what was changed since it was read.
#[derive(Clone, Debug)]
struct Source {
    document: Document,
    /// Changed properties of links that are named by their ends, in order.
    links: Vec<LinkChange>,
}

/// A lab, before it runs.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The name of the lab.
    pub name: String,
    /// The network of the file, without transfers of live hosts.
    pub experiment: Experiment,
    /// The hosts in which programs run.
    pub hosts: Vec<LiveHost>,
    /// The network of the file with all transfers.
    pub whole: Experiment,
    source: Source,
    /// The texts of the files that the file names, as they were when the plan was made.
    files: BTreeMap<String, String>,
}

impl Plan {
    /// Makes the plan of a file: the hosts that it calls live, or all of them if it calls none so. Transfers
    /// in which live hosts take part are left out, because programs make them.
    ///
    /// # Errors
    /// When the file has a mistake, or has something that a lab does not support.
    pub fn new(
        name: String,
        document: Document,
        read: &mut ReadFile<'_>,
    ) -> Result<Self, LabError> {
        let mut files = BTreeMap::new();
        let mut keep = |name: &str| {
            let text = read(name)?;
            files.insert(name.to_owned(), text.clone());
            Ok(text)
        };
        let experiment = Experiment::idle(&document, &mut keep)?;
        let links = Vec::new();
        Self::made(name, experiment, Source { document, links }, files)
    }

    /// Whether programs run in a host.
    pub fn is_live(&self, host: u32) -> bool {
        self.hosts.iter().any(|live| live.number == host)
    }

    /// The time that the shortest link takes for a packet of the longest kind that hosts send: a device which
    /// acts on a packet that much later acts before the next one of its link would have arrived. What goes to
    /// a function of an adapter comes no faster than its PCIe slot writes.
    pub fn shortest_link(&self) -> Span {
        let mtu = self.hosts.iter().map(|host| host.mtu).min().unwrap_or(0);
        let Experiment {
            network, scenario, ..
        } = &self.experiment;
        let takes = network.topology.links().iter().map(|link| {
            let hosts = link.ends.iter().filter_map(|end| match end.node {
                Node::Host(host) if network.adapter_of(host).is_some() => Some(host),
                _ => None,
            });
            let slots = hosts.filter_map(|host| Some(scenario.hosts[host as usize].pcie?.rate));
            let rate = slots
                .chain([link.config.rate])
                .min_by_key(|rate| rate.bps());
            link.config.delay
                + rate
                    .unwrap_or(link.config.rate)
                    .time_of(mtu.min(PACKET_BYTES))
        });
        takes.min().unwrap_or_default()
    }

    /// The shortest delay of a link.
    pub(crate) fn shortest_delay(&self) -> Span {
        let links = self.experiment.network.topology.links();
        links
            .iter()
            .map(|link| link.config.delay)
            .min()
            .unwrap_or_default()
    }

    /// The same with other values, which are paths and their values.
    ///
    /// # Errors
    /// As [`Plan::new`].
    pub(crate) fn with(&self, values: &[(String, String)]) -> Result<Self, LabError> {
        let Source {
            mut document,
            mut links,
        } = self.source.clone();
        for (path, value) in values {
            match LinkChange::of(&self.experiment, path, value) {
                Some(change) => links.push(change.map_err(LabError::Link)?),
                None => document.set(path, value)?,
            }
        }
        let mut read = |name: &str| {
            self.files
                .get(name)
                .cloned()
                .ok_or_else(|| "the file was not read when the lab began".to_owned())
        };
        let mut experiment = Experiment::idle(&document, &mut read)?;
        links
            .iter()
            .for_each(|change| change.apply(&mut experiment));
        let source = Source { document, links };
        Self::made(self.name.clone(), experiment, source, self.files.clone())
    }

    fn made(
        name: String,
        mut experiment: Experiment,
        source: Source,
        files: BTreeMap<String, String>,
    ) -> Result<Self, LabError> {
        let network = &experiment.network;
        let chosen = network.hosts.iter().any(|host| host.live);
        let numbered = (0_u32..)
            .zip(&network.hosts)
            .filter(|(_, host)| host.live || !chosen);
        let live: Vec<(u32, &fabric_file::NamedHost)> = numbered.collect();
        if live.len() > LIVE_MAX {
            return Err(LabError::TooMany {
                hosts: live.len(),
                max: LIVE_MAX,
            });
        }
        let mut hosts = Vec::new();
        for (number, host) in live {
            let Some(cable) = cable_of(&network.topology, number) else {
                return Err(LabError::NotConnected(host.name.clone()));
            };
            let config = &experiment.scenario.hosts[number as usize];
            if config.headers != Headers::RoceV2 {
                return Err(LabError::Adapter(host.name.clone()));
            }
            hosts.push(live_host(&experiment, number, cable));
        }
        check_macs(&hosts)?;
        let whole = experiment.clone();
        let is_live = |number: u32| hosts.iter().any(|host| host.number == number);
        experiment.retain_flows(|flow| !is_live(flow.from) && !is_live(flow.to));
        if experiment.scenario.flows.is_empty() {
            experiment.workloads.clear();
        }
        experiment.scenario.end = Time::NEVER;
        experiment.scenario.threads = 1;
        Ok(Self {
            name,
            experiment,
            hosts,
            whole,
            source,
            files,
        })
    }
}

/// A live host as its programs see it: addresses by its number, and what its adapter and its link determine.
fn live_host(experiment: &Experiment, number: u32, cable: u32) -> LiveHost {
    let network = &experiment.network;
    let host = &network.hosts[number as usize];
    let config = &experiment.scenario.hosts[number as usize];
    let [a, b, c, d] = (number + 1).to_be_bytes();
    let [high, low] = [[a, b], [c, d]].map(u16::from_be_bytes);
    let own = network
        .function(number)
        .map(|(_, function)| function.settings.mac);
    let mac = own.unwrap_or([2, 0, 0, b, c, d]);
    let adapter = network
        .infiniband
        .as_ref()
        .map(|subnet| &subnet.hosts[number as usize]);
    LiveHost {
        number,
        name: host.name.clone(),
        function: functions::function_of(network, number),
        v4: Ipv4Addr::new(10, b, c, d),
        v6: Ipv6Addr::new(0xfd6c, 0x6162, 0, 0, 0, 0, high, low),
        mac,
        link_local: adapter.map_or(link_local(mac), |adapter| {
            ipoib::link_local(adapter.port_guid)
        }),
        mtu: mtu(host.nic.mtu),
        rate: network.topology.links()[cable as usize].config.rate,
        is_infiniband: network.infiniband.is_some(),
        marks: [config.data, config.acknowledgements, config.notifications],
        variables: variables(host.nic.congestion, config),
    }
}

/// Frames are delivered by MAC address: no two hosts have the same.
fn check_macs(hosts: &[LiveHost]) -> Result<(), LabError> {
    let mut taken = BTreeMap::new();
    for host in hosts {
        if let Some(other) = taken.insert(host.mac, &host.name) {
            return Err(LabError::Mac {
                one: other.clone(),
                other: host.name.clone(),
            });
        }
    }
    Ok(())
}

/// The MTU of the interface: the usual one into which RoCEv2 packets of this payload fit.
fn mtu(payload: u32) -> u32 {
    match payload {
        4096.. => 9000,
        1024 => 1500,
        other => other + HEADERS_BYTES,
    }
}

fn variables(congestion: Congestion, config: &HostConfig) -> Vec<(String, String)> {
    let congestion = match congestion {
        Congestion::Off => "off",
        Congestion::Dcqcn => "dcqcn",
        // Swift and HPCC need measurements that switches of a lab do not provide to programs.
        _ => "window",
    };
    let mut variables = vec![(host::settings::CONGESTION.to_owned(), congestion.to_owned())];
    variables.push((
        host::settings::NIC.to_owned(),
        host::parameters::text(&config.device()),
    ));
    if config.out_of_order {
        variables.push((host::settings::OUT_OF_ORDER.to_owned(), "1".to_owned()));
    }
    variables
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topology_without_transfers_is_a_lab() {
        let file = "topology = { kind = \"star\", hosts = 3 }\n";
        let mut none = |name: &str| Err(format!("{name} is not there"));
        let document = Document::read("test", file, &mut none).expect("a file");
        let plan = Plan::new("test".to_owned(), document, &mut none).expect("a plan");
        assert_eq!((plan.hosts.len(), plan.whole.workloads.len()), (3, 0));
    }

    #[test]
    fn devices_of_live_hosts_have_the_parameters_of_the_file() {
        let file = "[[host]]\nname = \"h\"\ncount = 2\n[[switch]]\nname = \"sw\"\n\
                    [[link]]\nbetween = [\"h*\", \"sw\"]\nrate = \"25Gb/s\"\n[[workload]]\n\
                    pattern = \"ring\"\nmessages = 1\n[nic.default]\ncongestion = \"dcqcn\"\n\
                    window = \"64KiB\"\nack-interval = 7\n[nic.default.dcqcn]\nminimum-rate = \"1Gb/s\"\n";
        let mut none = |name: &str| Err(format!("{name} is not there"));
        let document = Document::read("test", file, &mut none).expect("a file");
        let plan = Plan::new("test".to_owned(), document, &mut none).expect("a plan");
        let nic = plan.hosts[0]
            .variables
            .iter()
            .find(|(name, _)| name == host::settings::NIC);
        let (_, text) = nic.expect("parameters");
        let wanted = [
            "window=65536",
            "ack-interval=7",
            "line-rate=25000000000",
            "minimum-rate=1000000000",
        ];
        for parameter in wanted {
            assert!(
                text.split(',').any(|pair| pair == parameter),
                "{parameter}: {text}"
            );
        }
    }
}

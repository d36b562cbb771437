//! Virtual functions of adapters: each one is a host of its own in a lab, as a function is whose network
//! device was moved into a container. The embedded switch is the simulator's.

use fabric::topology::{Node, Topology};
use fabric_file::functions::{Eswitch, FunctionLink, FunctionSettings};
use fabric_file::{Network, SharedAdapter};
use serde::{Deserialize, Serialize};
use sim::world::FunctionDrops;
use std::collections::BTreeSet;

/// The function that a live host is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LiveFunction {
    /// Number of the host whose adapter has it.
    pub of: u32,
    /// Number of the function in the adapter.
    pub number: u32,
    /// VLAN that the embedded switch has it in; 0 is untagged.
    pub vlan: u16,
}

/// A virtual function, as `ps` shows it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FunctionStatus {
    /// The host whose adapter has it.
    pub of: String,
    /// Its number in the adapter.
    pub vf: u32,
    /// Whether its link is up.
    pub up: bool,
    /// Packets of the function that the embedded switch dropped, by cause.
    pub dropped: FunctionDrops,
}

/// An adapter with functions, as a running lab has it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LiveAdapter {
    /// The host that is its physical function.
    pub host: String,
    /// Its table `[nic.NAME]`.
    pub nic: String,
    /// Payload bytes per packet.
    pub mtu: u32,
    /// How the embedded switch is managed.
    pub eswitch: Eswitch,
    /// The virtual functions by number.
    pub functions: Vec<FunctionSettings>,
}

/// The adapters with functions of a network.
pub fn adapters_of(network: &Network) -> Vec<LiveAdapter> {
    let one = |adapter: &SharedAdapter| LiveAdapter {
        host: network.hosts[adapter.host as usize].name.clone(),
        nic: adapter.nic.clone(),
        mtu: network.hosts[adapter.host as usize].nic.mtu,
        eswitch: adapter.eswitch,
        functions: adapter
            .functions
            .iter()
            .map(|function| function.settings.clone())
            .collect(),
    };
    network.adapters.iter().map(one).collect()
}

/// The function that a host is, if it is one.
pub(crate) fn function_of(network: &Network, host: u32) -> Option<LiveFunction> {
    let (number, function) = network.function(host)?;
    let of = network.adapter_of(host)?.host;
    Some(LiveFunction {
        of,
        number,
        vlan: function.settings.vlan,
    })
}

/// The link of a host.
pub(crate) fn cable_of(topology: &Topology, host: u32) -> Option<u32> {
    let links = (0_u32..).zip(topology.links());
    let mut own =
        links.filter(|(_, link)| link.ends.iter().any(|end| end.node == Node::Host(host)));
    own.next().map(|(number, _)| number)
}

/// The link of an adapter's port.
pub(crate) fn uplink_of(topology: &Topology, adapter: &SharedAdapter) -> Option<u32> {
    let is_port =
        |end: &fabric::topology::End| (end.node, end.port) == (Node::Switch(adapter.switch), 0);
    let links = (0_u32..).zip(topology.links());
    links
        .filter(|(_, link)| link.ends.iter().any(is_port))
        .map(|(number, _)| number)
        .next()
}

/// Which links were taken down by command. Links of functions also follow their state in the file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cables {
    pulled: BTreeSet<u32>,
}

impl Cables {
    pub(crate) fn pull(&mut self, link: u32) {
        self.pulled.insert(link);
    }

    pub(crate) fn plug(&mut self, link: u32) {
        self.pulled.remove(&link);
    }

    /// Links that are down.
    pub(crate) fn down(&self, network: &Network) -> BTreeSet<u32> {
        let mut down = self.pulled.clone();
        for adapter in &network.adapters {
            let uplink = uplink_of(&network.topology, adapter);
            let port_is_down = uplink.is_some_and(|uplink| self.pulled.contains(&uplink));
            let is_down = |state: FunctionLink| match state {
                FunctionLink::Disable => true,
                FunctionLink::Enable => false,
                FunctionLink::Auto => port_is_down,
            };
            let functions = adapter
                .functions
                .iter()
                .filter(|one| is_down(one.settings.state));
            down.extend(
                functions.filter_map(|function| cable_of(&network.topology, function.host)),
            );
        }
        down
    }

    /// Whether the interface of a host sees a carrier: its own link is up, and that of the port where the
    /// host is the physical function.
    pub(crate) fn carrier(&self, network: &Network, host: u32) -> bool {
        let is_pulled = |link: Option<u32>| link.is_some_and(|link| self.pulled.contains(&link));
        let own = network
            .adapter_of(host)
            .filter(|adapter| adapter.host == host);
        let port_is_down =
            own.is_some_and(|adapter| is_pulled(uplink_of(&network.topology, adapter)));
        let cable = cable_of(&network.topology, host);
        !port_is_down && cable.is_none_or(|cable| !self.down(network).contains(&cable))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Plan;
    use fabric_file::Document;

    const FILE: &str = r#"
        [[host]]
        name = "server"
        nic = "x"
        [[host]]
        name = "client"
        [[switch]]
        name = "sw"
        [[link]]
        between = ["server", "sw"]
        [[link]]
        between = ["client", "sw"]
        [nic.x.pcie]
        [nic.x.functions]
        count = 3
        [nic.x.functions.vf.0]
        mac = "02:00:00:00:77:01"
        vlan = 100
        [nic.x.functions.vf.1]
        state = "enable"
        [nic.x.functions.vf.2]
        state = "disable"
        [[workload]]
        from = ["server"]
        to = ["client"]
        messages = 1
    "#;

    fn plan(text: &str) -> Result<Plan, crate::LabError> {
        let mut none = |name: &str| Err(format!("{name} is not there"));
        let document = Document::read("test", text, &mut none).expect("a file");
        Plan::new("test".to_owned(), document, &mut none)
    }

    #[test]
    fn functions_are_hosts_with_addresses_of_their_own() {
        let plan = plan(FILE).expect("a plan");
        let names: Vec<&str> = plan.hosts.iter().map(|host| host.name.as_str()).collect();
        assert_eq!(
            names,
            ["server", "client", "serverv0", "serverv1", "serverv2"]
        );
        assert_eq!(plan.hosts[2].mac, [2, 0, 0, 0, 0x77, 1]);
        assert_eq!(
            plan.hosts[2].function,
            Some(LiveFunction {
                of: 0,
                number: 0,
                vlan: 100
            })
        );
        assert_eq!(plan.hosts[0].function, None);
        let addresses: BTreeSet<_> = plan.hosts.iter().map(|host| (host.v4, host.v6)).collect();
        assert_eq!(addresses.len(), 5);
    }

    #[test]
    fn a_mac_address_that_another_host_has_is_refused() {
        let error = plan(&FILE.replace("77:01", "00:02")).expect_err("client has it");
        assert!(error.to_string().contains("client and serverv0"), "{error}");
    }

    #[test]
    fn a_function_that_moves_keeps_its_link_local_address_and_kernels_are_told() {
        let before = plan(FILE).expect("a plan");
        let value = [(
            "nic.x.functions.vf.0.mac".to_owned(),
            "02:00:00:00:99:99".to_owned(),
        )];
        let after = crate::changes::changed(&before, &value).expect("a free address");
        let [old, new] = [&before, &after].map(|plan| plan.hosts[2].addresses());
        assert_eq!(
            (new.mac, new.link_local),
            ([2, 0, 0, 0, 0x99, 0x99], old.link_local)
        );
        let [arp, global, local] = new.announcements();
        assert_eq!(
            (&arp[22..28], &arp[28..32], &arp[38..42]),
            (&new.mac[..], &new.v4.octets()[..], &arp[28..32])
        );
        for (advertisement, address) in [(global, new.v6), (local, old.link_local)] {
            assert_eq!(
                (&advertisement[62..78], &advertisement[80..]),
                (&address.octets()[..], &new.mac[..])
            );
        }
        let taken = [(
            "nic.x.functions.vf.0.mac".to_owned(),
            "02:00:00:00:00:02".to_owned(),
        )];
        assert!(
            crate::changes::changed(&before, &taken)
                .expect_err("client's")
                .contains("client")
        );
    }

    #[test]
    fn links_of_functions_follow_the_port_as_their_state_says() {
        let plan = plan(FILE).expect("a plan");
        let network = &plan.experiment.network;
        let carriers = |cables: &Cables| [0, 1, 2, 3, 4].map(|host| cables.carrier(network, host));
        let mut cables = Cables::default();
        assert_eq!(carriers(&cables), [true, true, true, true, false]);
        let uplink = uplink_of(&network.topology, &network.adapters[0]).expect("a port");
        cables.pull(uplink);
        assert_eq!(carriers(&cables), [false, true, false, true, false]);
        cables.plug(uplink);
        let own = cable_of(&network.topology, 3).expect("a link");
        cables.pull(own);
        assert_eq!(carriers(&cables), [true, true, true, false, false]);
    }
}

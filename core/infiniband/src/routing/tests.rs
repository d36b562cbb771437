use super::up_down::find_roots;
use super::*;
use alloc::collections::BTreeMap;
use fabric::topology::{LinkConfig, Node, Speeds, Topology, dragonfly, fat_tree, leaf_spine};
use fabric::{Rate, Span};
use proptest::prelude::*;

const LINK: LinkConfig = LinkConfig::new(Rate::from_gbps(100), Span::from_us(1));
const SPEEDS: Speeds = Speeds {
    hosts: LINK,
    fabric: LINK,
};

/// The cables of a topology: ports of switches are numbered from 1 in the order of connection.
fn cabling(topology: &Topology) -> Cabling {
    let hosts = topology.hosts() as usize;
    let end = |end: fabric::topology::End| match end.node {
        Node::Host(host) => End {
            node: host as usize,
            port: 1,
        },
        Node::Switch(switch) => End {
            node: hosts + switch as usize,
            port: end.port as u8 + 1,
        },
    };
    let cables = topology.links().iter().map(|link| link.ends.map(end));
    Cabling::new(hosts, topology.switches() as usize, cables)
}

/// Switches in a circle, with hosts at each, and other cables between switches.
fn ring(switches: u32, hosts: u32, others: &[(u32, u32)]) -> Cabling {
    let mut topology = Topology::default();
    for _ in 0..switches {
        topology.add_switch();
    }
    for switch in 0..switches {
        for _ in 0..hosts {
            let host = topology.add_host();
            let ends = (Node::Host(host), Node::Switch(switch));
            topology.connect(ends.0, ends.1, LINK).unwrap();
        }
    }
    let around = (0..switches).map(|switch| (switch, (switch + 1) % switches));
    for (from, to) in around.chain(others.iter().copied()) {
        let ends = (Node::Switch(from), Node::Switch(to));
        topology.connect(ends.0, ends.1, LINK).unwrap();
    }
    cabling(&topology)
}

fn order(engine: Engine) -> Order<'static> {
    Order {
        engine,
        roots: &[],
        alternatives: false,
    }
}

/// The ports that packets from one host to another leave switches by.
fn path(cabling: &Cabling, tables: &Tables, from: usize, to: usize) -> Vec<End> {
    let mut ports = Vec::new();
    let mut at = cabling.leaf_of(from).unwrap().node;
    while at != to {
        assert!(ports.len() < 64, "{from} to {to} goes in a circle");
        let port = tables.port(cabling, at, to).unwrap();
        ports.push(End { node: at, port });
        at = cabling.neighbour(End { node: at, port }).unwrap().node;
    }
    ports
}

fn pairs(cabling: &Cabling) -> impl Iterator<Item = (usize, usize)> {
    let hosts = 0..cabling.hosts();
    let all = hosts
        .clone()
        .flat_map(move |from| hosts.clone().map(move |to| (from, to)));
    all.filter(|(from, to)| from != to)
}

#[test]
fn paths_of_trees_are_shortest_with_every_engine() {
    let trees = [
        fat_tree(4, SPEEDS).unwrap(),
        fat_tree(6, SPEEDS).unwrap(),
        leaf_spine(5, 3, 4, SPEEDS).unwrap(),
    ];
    for topology in trees {
        let cabling = cabling(&topology);
        for engine in [Engine::MinHop, Engine::UpDown, Engine::FatTree] {
            let tables = route(&cabling, &order(engine)).unwrap();
            for (from, to) in pairs(&cabling) {
                let [first, last] = [from, to].map(|host| cabling.leaf_of(host).unwrap().node);
                let hops = distances::distances_from(&cabling, first)[last] as usize + 1;
                assert_eq!(path(&cabling, &tables, from, to).len(), hops, "{engine:?}");
            }
            assert_eq!(tables.credit_loop(&cabling), None, "{engine:?}");
        }
    }
}

#[test]
fn a_ring_has_a_loop_of_credits_with_shortest_paths_and_none_with_up_and_down() {
    for switches in 4..9 {
        let cabling = ring(switches, 2, &[]);
        let tables = route(&cabling, &order(Engine::MinHop)).unwrap();
        let found = tables.credit_loop(&cabling).unwrap();
        assert_eq!(found.ports.len(), switches as usize);
        for (at, port) in found.ports.iter().enumerate() {
            let next = found.ports[(at + 1) % found.ports.len()];
            assert_eq!(cabling.neighbour(*port).unwrap().node, next.node);
        }
        let [from, to] = found.closed_by;
        let path = path(&cabling, &tables, from, to);
        let last = path
            .iter()
            .position(|port| Some(port) == found.ports.last());
        assert_eq!(path[last.unwrap() + 1], found.ports[0]);
        let tables = route(&cabling, &order(Engine::UpDown)).unwrap();
        assert_eq!(tables.credit_loop(&cabling), None);
    }
    // Packets of a ring of three cross one link between switches.
    let cabling = ring(3, 2, &[]);
    let tables = route(&cabling, &order(Engine::MinHop)).unwrap();
    assert_eq!(tables.credit_loop(&cabling), None);
}

/// Zahavi et al.: with this routing every shift of a whole tree has links for itself.
#[test]
fn shifts_of_a_fat_tree_share_no_link() {
    for k in [4, 6, 8] {
        let cabling = cabling(&fat_tree(k, SPEEDS).unwrap());
        let tables = route(&cabling, &order(Engine::FatTree)).unwrap();
        let hosts = cabling.hosts();
        for shift in 1..hosts {
            let mut flows: BTreeMap<End, u32> = BTreeMap::new();
            for from in 0..hosts {
                for port in path(&cabling, &tables, from, (from + shift) % hosts) {
                    *flows.entry(port).or_default() += 1;
                }
            }
            assert_eq!(flows.values().max(), Some(&1), "k {k}, shift {shift}");
        }
        let shares = tables.shares(&cabling);
        assert!(shares.iter().all(|share| share.pairs == share.mean));
    }
}

#[test]
fn destinations_are_spread_evenly_over_the_ports_of_a_leaf() {
    let cabling = cabling(&leaf_spine(4, 4, 8, SPEEDS).unwrap());
    let tables = route(&cabling, &order(Engine::MinHop)).unwrap();
    for leaf in &cabling.leaves {
        let mut by_port: BTreeMap<u8, u32> = BTreeMap::new();
        let own: Vec<usize> = cabling.hosts_at(*leaf).collect();
        for host in (0..cabling.hosts()).filter(|host| !own.contains(host)) {
            let port = tables.port(&cabling, *leaf, host).unwrap();
            *by_port.entry(port).or_default() += 1;
        }
        let counts: Vec<u32> = by_port.into_values().collect();
        assert_eq!(counts, [6; 4]);
    }
}

#[test]
fn roots_of_trees_are_the_switches_at_the_top() {
    let tree = cabling(&fat_tree(4, SPEEDS).unwrap());
    // A fat tree of 4-port switches has 8 at the edge, 8 above them and 4 at the top.
    let roots = find_roots(&tree);
    let levels = distances::distances(&tree, tree.leaves.iter().copied(), |_, _| true);
    assert_eq!(roots.len(), 4);
    assert!(roots.iter().all(|root| levels[*root] == 2));
    // With many leaves, a leaf has nearly all hosts at one distance as well.
    let wide = cabling(&leaf_spine(24, 2, 2, SPEEDS).unwrap());
    assert_eq!(find_roots(&wide).len(), 2);
    assert_eq!(find_roots(&ring(5, 1, &[])).len(), 1);
}

#[test]
fn what_is_no_fat_tree_is_refused_with_the_cable() {
    let cabling = ring(4, 1, &[]);
    let refused = route(&cabling, &order(Engine::FatTree)).unwrap_err();
    let NotRouted::SameLevel { switches } = refused else {
        panic!("{refused:?}");
    };
    assert!(
        cabling
            .to_switches(switches[0])
            .any(|(_, to)| to == switches[1])
    );
}

#[test]
fn a_host_that_no_switch_leads_to_is_named() {
    let mut topology = Topology::default();
    for switch in 0..2 {
        topology.add_switch();
        let host = topology.add_host();
        topology
            .connect(Node::Host(host), Node::Switch(switch), LINK)
            .unwrap();
    }
    for engine in [Engine::MinHop, Engine::UpDown, Engine::FatTree] {
        let refused = route(&cabling(&topology), &order(engine));
        assert_eq!(refused, Err(NotRouted::NoPath { from: 3, to: 0 }));
    }
}

#[test]
fn a_fat_tree_without_some_links_is_routed_all_the_same() {
    let whole = fat_tree(4, SPEEDS).unwrap();
    let hosts = whole.hosts() as usize;
    let to_switches = |link: &&fabric::topology::Link| {
        link.ends
            .iter()
            .all(|end| matches!(end.node, Node::Switch(_)))
    };
    for missing in 0..whole.links().iter().filter(to_switches).count() {
        let mut rest = Topology::default();
        for _ in 0..whole.hosts() {
            rest.add_host();
        }
        for _ in 0..whole.switches() {
            rest.add_switch();
        }
        let mut number = 0;
        for link in whole.links() {
            let is_missing = to_switches(&link) && {
                number += 1;
                number == missing + 1
            };
            if !is_missing {
                rest.connect(link.ends[0].node, link.ends[1].node, LINK)
                    .unwrap();
            }
        }
        let cabling = cabling(&rest);
        let tables = route(&cabling, &order(Engine::FatTree)).unwrap();
        assert_eq!(tables.credit_loop(&cabling), None);
        for (from, to) in pairs(&cabling) {
            assert!(path(&cabling, &tables, from, to).len() <= 5);
        }
        assert_eq!(cabling.hosts(), hosts);
    }
}

#[test]
fn a_dragonfly_has_loops_of_credits_with_shortest_paths_alone() {
    let cabling = cabling(&dragonfly(5, 2, 2, SPEEDS).unwrap());
    let tables = route(&cabling, &order(Engine::MinHop)).unwrap();
    assert!(tables.credit_loop(&cabling).is_some());
    let tables = route(&cabling, &order(Engine::UpDown)).unwrap();
    assert_eq!(tables.credit_loop(&cabling), None);
}

#[test]
fn switches_that_choose_by_load_have_all_ports_of_shortest_paths() {
    let cabling = cabling(&leaf_spine(3, 4, 2, SPEEDS).unwrap());
    for engine in [Engine::MinHop, Engine::UpDown, Engine::FatTree] {
        let order = Order {
            alternatives: true,
            ..order(engine)
        };
        let tables = route(&cabling, &order).unwrap();
        let far = cabling.leaves[0] - cabling.hosts();
        let ports = &tables.alternatives[far][cabling.hosts() - 1];
        let wanted = if engine == Engine::FatTree { 1 } else { 4 };
        assert_eq!(ports.len(), wanted, "{engine:?}");
    }
}

proptest! {
    #[test]
    fn up_and_down_reaches_all_without_loops(
        switches in 2_u32..14,
        others in prop::collection::vec((0_u32..14, 0_u32..14), 0..20),
        root in 0_usize..14,
        alternatives: bool,
    ) {
        let others: Vec<(u32, u32)> = others
            .into_iter()
            .map(|(from, to)| (from % switches, to % switches))
            .filter(|(from, to)| from != to)
            .collect();
        let cabling = ring(switches, 1, &others);
        let root = cabling.hosts() + root % switches as usize;
        for roots in [&[][..], &[root]] {
            let order = Order { engine: Engine::UpDown, roots, alternatives };
            let tables = route(&cabling, &order).unwrap();
            prop_assert_eq!(tables.credit_loop(&cabling), None);
            for (from, to) in pairs(&cabling) {
                path(&cabling, &tables, from, to);
            }
        }
    }
}

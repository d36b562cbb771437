//! The values of a fabric file that can change while its lab runs.

use crate::functions::adapters_of;
use crate::link_changes::{FIELDS, LinkChange};
use crate::plan::Plan;
use sim::experiment::Experiment;

/// The paths that `rockery lab set` takes.
const SETTABLE: &str = "link.N, or A-B for all links between two nodes, with rate, delay, length, \
                        loss and bit-errors; qos.NAME with lossy-limit, queue.CLASS.limit, \
                        queue.CLASS.ecn and pfc, its watchdog excepted; nic.NAME.functions.vf.N with mac, \
                        vlan, qos, min-rate, max-rate, spoof-check, trust and state";

/// Whether a path names a value that can change.
fn is_settable(path: &str) -> bool {
    let keys: Vec<&str> = path.split('.').map(str::trim).collect();
    match keys[..] {
        ["link", _, field] => FIELDS.contains(&field),
        ["qos", _, "pfc", "watchdog", ..] => false,
        ["qos", _, "lossy-limit"] | ["qos", _, "queue", _, "limit" | "ecn", ..] => true,
        ["qos", _, "pfc", ..] => true,
        ["nic", _, "functions", "vf", _, field] => [
            "mac",
            "vlan",
            "qos",
            "min-rate",
            "max-rate",
            "spoof-check",
            "trust",
            "state",
        ]
        .contains(&field),
        _ => false,
    }
}

/// The plan with other values, which are checked as those of a file.
///
/// # Errors
/// Why a value cannot be set in a lab that runs.
pub(crate) fn changed(plan: &Plan, values: &[(String, String)]) -> Result<Plan, String> {
    let is_link = |path: &str, value: &str| LinkChange::of(&plan.experiment, path, value).is_some();
    let other = values
        .iter()
        .find(|(path, value)| !is_settable(path) && !is_link(path, value));
    if let Some((path, _)) = other {
        return Err(format!(
            "{path} cannot change while the lab runs; what can is {SETTABLE}"
        ));
    }
    let mut changed = plan.with(values).map_err(|error| error.to_string())?;
    // Kernels keep the link-local address that they have made of their first MAC address.
    for (after, before) in changed.hosts.iter_mut().zip(&plan.hosts) {
        after.link_local = before.link_local;
    }
    // The buffer of an embedded switch stays divided as it was, whatever shares functions have.
    for adapter in &plan.experiment.network.adapters {
        let number = adapter.switch as usize;
        let before = &plan.experiment.scenario.switches[number];
        changed.experiment.scenario.switches[number].clone_from(before);
    }
    let all: Vec<String> = values
        .iter()
        .map(|(path, value)| format!("{path}={value}"))
        .collect();
    let all = all.join(" ");
    if is_another_network(&plan.experiment, &changed.experiment) {
        return Err(format!(
            "{all} would change which ports are connected, or the size of buffers"
        ));
    }
    if !changes(&plan.experiment, &changed.experiment) {
        return Err(format!(
            "{all} changes nothing: it is the value already, or the switch is configured by a vendor's file, \
             which a running lab does not read again"
        ));
    }
    Ok(changed)
}

fn is_another_network(before: &Experiment, after: &Experiment) -> bool {
    let [before, after] = [before, after].map(|experiment| &experiment.scenario);
    let ends = |scenario: &sim::world::Scenario| {
        scenario
            .topology
            .links()
            .iter()
            .map(|link| link.ends)
            .collect::<Vec<_>>()
    };
    let buffers = before
        .switches
        .iter()
        .zip(&after.switches)
        .any(|(before, after)| {
            (before.ports.len(), before.buffer) != (after.ports.len(), after.buffer)
        });
    ends(before) != ends(after) || before.switches.len() != after.switches.len() || buffers
}

fn changes(before: &Experiment, after: &Experiment) -> bool {
    let links = [before, after].map(|experiment| experiment.scenario.topology.links().iter());
    let [before_links, after_links] = links;
    before_links
        .zip(after_links)
        .any(|(before, after)| before.config != after.config)
        || before.scenario.switches != after.scenario.switches
        || adapters_of(&before.network) != adapters_of(&after.network)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fabric_file::Document;

    const FILE: &str = "[[host]]\nname = \"h\"\ncount = 2\n[[switch]]\nname = \"sw\"\n\
                        [[link]]\nbetween = [\"h*\", \"sw\"]\n[[workload]]\n\
                        pattern = \"ring\"\nmessages = 1\n";

    fn plan() -> Plan {
        let mut none = |name: &str| Err(format!("{name} is not there"));
        let document = Document::read("test", FILE, &mut none).expect("a file");
        Plan::new("test".to_owned(), document, &mut none).expect("a plan")
    }

    fn one(path: &str, value: &str) -> [(String, String); 1] {
        [(path.to_owned(), value.to_owned())]
    }

    #[test]
    fn rates_thresholds_and_pauses_change() {
        let plan = plan();
        for (path, value) in [
            ("link.0.rate", "10Gbps"),
            ("link.*.loss", "0.1"),
            ("qos.default.pfc.classes", "[]"),
            ("qos.default.queue.3.ecn.min", "1KiB"),
        ] {
            let changed = changed(&plan, &one(path, value)).expect(path);
            // Devices that programs open from then on begin at the rate of the port.
            let addresses = |plan: &Plan| {
                let hosts = plan.hosts.iter();
                hosts
                    .map(|host| (host.number, host.v4, host.v6, host.mac))
                    .collect::<Vec<_>>()
            };
            assert_eq!(addresses(&changed), addresses(&plan));
        }
    }

    /// A network of a generated topology, which has no tables of links.
    const STAR: &str = "topology = { kind = \"star\", hosts = 3 }\n[[workload]]\n\
                        pattern = \"ring\"\nmessages = 1\n";

    #[test]
    fn links_of_a_generated_topology_change_by_their_ends() {
        let mut none = |name: &str| Err(format!("{name} is not there"));
        let document = Document::read("test", STAR, &mut none).expect("a file");
        let plan = Plan::new("test".to_owned(), document, &mut none).expect("a plan");
        let network = &plan.experiment.network;
        let (host, switch) = (
            network.hosts[1].name.clone(),
            network.switches[0].name.clone(),
        );
        let path = |field: &str| format!("{host}-{switch}.{field}");
        let rates = |plan: &Plan| -> Vec<u64> {
            let links = plan.experiment.scenario.topology.links().iter();
            links.map(|link| link.config.rate.bps()).collect()
        };
        let before = rates(&plan);
        let slower = changed(&plan, &one(&path("rate"), "10Gb/s")).expect("a rate");
        let mut expected = before.clone();
        expected[1] = 10_000_000_000;
        assert_eq!(rates(&slower), expected);
        // A later change of another property, or of the file, keeps the first one.
        let lossy = changed(&slower, &one(&path("loss"), "0.5")).expect("a loss");
        let marking = one("qos.default.queue.3.ecn.min", "1KiB");
        let marking = changed(&lossy, &marking).expect("a threshold");
        assert_eq!(rates(&marking), expected);
        let links = marking.experiment.scenario.topology.links();
        assert_eq!((links[1].config.loss, links[0].config.loss), (1 << 31, 0));
        // The other order of the ends is the same link.
        let turned = format!("{switch}-{host}.rate");
        assert_eq!(
            rates(&changed(&plan, &one(&turned, "10Gb/s")).expect("a rate")),
            expected
        );
        let error = changed(&plan, &one("h7-nowhere.rate", "10Gb/s")).expect_err("no link");
        assert!(error.contains("no link is between"), "{error}");
        let error = changed(&plan, &one(&path("rate"), "quick")).expect_err("no rate");
        assert!(error.contains("rate"), "{error}");
        assert!(changed(&plan, &one(&path("between"), "1")).is_err());
    }

    #[test]
    fn everything_else_is_refused_with_what_can_be_set() {
        let plan = plan();
        for path in [
            "seed",
            "link.0.between",
            "qos.default.buffer",
            "qos.default.pfc.watchdog.detect",
        ] {
            let error = changed(&plan, &one(path, "1")).expect_err(path);
            assert!(error.contains("qos.NAME"), "{error}");
        }
        assert!(changed(&plan, &one("link.0.rate", "quick")).is_err());
        assert!(
            changed(&plan, &one("link.0.rate", "100Gbps"))
                .expect_err("the same")
                .contains("nothing")
        );
    }
}

//! Functions of adapters on FreeBSD hosts, and guests that are given them.

use super::{Consequence, Finding, HostFacts};
use vendors::facts::{BsdDevice, Evidence, Fact, FreeBsdFacts};

const GUESTS: Consequence =
    Consequence::NotSimulated("guests are not simulated: none gets a function");

const CHELSIO: u16 = 0x1425;
const NVIDIA: u16 = 0x15b3;

/// Drivers whose functions do not work, with what is published of them.
const WITHOUT: [(&str, &str); 3] = [
    (
        "igb",
        "has no virtual functions on FreeBSD (the published experiment, i350)",
    ),
    ("em", "has no virtual functions on FreeBSD"),
    (
        "ix",
        "switches SR-IOV on, and functions of an X540 passed no traffic (the published experiment)",
    ),
];

/// Vendors whose drivers are modules, by what a loaded one calls the card.
const MODULES: [(u16, &[&str], &str); 2] = [
    (CHELSIO, &["t4nex", "t5nex", "t6nex"], "if_cxgbe"),
    (NVIDIA, &["mlx5_core", "mlx4_core"], "mlx5en"),
];

pub(super) fn check(host: &HostFacts, found: &mut Vec<Finding>) {
    let Some(facts) = &host.freebsd else { return };
    let own = Own { host, facts };
    own.modules(found);
    for wanted in &facts.wanted {
        own.functions(wanted, found);
    }
    for passed in &facts.passed {
        own.passed(passed, found);
    }
}

struct Own<'a> {
    host: &'a HostFacts,
    facts: &'a FreeBsdFacts,
}

/// The driver of a name: `ixl` of `ixl0`.
fn driver(name: &str) -> &str {
    name.trim_end_matches(|letter: char| letter.is_ascii_digit())
}

/// The number of a function on its bus.
fn number(device: &BsdDevice) -> u32 {
    u32::from(device.place[1]) * 8 + u32::from(device.place[2])
}

impl Own<'_> {
    fn say(
        &self,
        rule: &'static str,
        name: &str,
        what: String,
        seen: Vec<Evidence>,
        fix: String,
    ) -> Finding {
        let place = format!("{}, {name}", self.host.name);
        Finding::new(rule, place, what, seen, GUESTS, fix)
    }

    /// Cards without a driver, which is a module that was not loaded.
    fn modules(&self, found: &mut Vec<Finding>) {
        for (vendor, names, module) in MODULES {
            let mut of_vendor = self
                .facts
                .devices
                .iter()
                .filter(|own| own.value.vendor == vendor);
            let has_driver = |own: &Fact<BsdDevice>| names.contains(&driver(&own.value.name));
            if of_vendor.clone().any(has_driver) {
                continue;
            }
            let bare =
                |own: &&Fact<BsdDevice>| own.value.is_network && driver(&own.value.name) == "none";
            let Some(card) = of_vendor.find(bare) else {
                continue;
            };
            let what = format!("the card has no driver: the module {module} is not loaded");
            let fix = format!(
                "kldload {module}; at each start {module}_load=\"YES\" in /boot/loader.conf"
            );
            let seen = vec![card.seen.clone()];
            found.push(self.say("bsd-module", &card.value.name, what, seen, fix));
        }
    }

    /// The PCI device of an adapter: `cxl0` is a port of `t5nex0`, and `mce0` of `mlx5_core0`.
    fn card(&self, adapter: &str) -> Option<&Fact<BsdDevice>> {
        let of_driver = |names: &'static [&'static str]| {
            let mut devices = self.facts.devices.iter();
            devices.find(|own| names.contains(&driver(&own.value.name)))
        };
        let mut devices = self.facts.devices.iter();
        devices
            .find(|own| own.value.name == adapter)
            .or_else(|| match driver(adapter) {
                "cxl" | "cxgbe" | "cc" => of_driver(MODULES[0].1),
                "mce" => of_driver(MODULES[1].1),
                _ => None,
            })
    }

    /// Functions that a file asks for, and that are not there.
    fn functions(&self, wanted: &Fact<(String, u16)>, found: &mut Vec<Finding>) {
        let (adapter, count) = (wanted.value.0.as_str(), usize::from(wanted.value.1));
        let without = WITHOUT.iter().find(|(name, _)| *name == driver(adapter));
        let mut offers = self.facts.offers.iter();
        let refuses = offers.find(|own| own.value.0 == adapter && !own.value.1);
        if let Some((name, why)) = without {
            let seen = vec![wanted.seen.clone()];
            let fix = "a card whose driver has functions: the table of drivers in docs/reference/rules.md"
                .to_owned();
            found.push(self.say(
                "bsd-driver",
                adapter,
                format!("the driver {name} {why}"),
                seen,
                fix,
            ));
        } else if let Some(refuses) = refuses {
            let what = "the driver offers no virtual functions (iovctl -S)".to_owned();
            let seen = vec![wanted.seen.clone(), refuses.seen.clone()];
            let fix = "SR-IOV and VT-d or AMD-Vi on in the BIOS, and functions on in the card's firmware; \
                       dmesg then has \"SR-IOV ready\"";
            found.push(self.say("bsd-driver", adapter, what, seen, fix.to_owned()));
        } else if let Some(card) = self.card(adapter) {
            // Functions have numbers above those of the card itself.
            let is_function = |own: &&Fact<BsdDevice>| {
                let near = own.value.place[0].wrapping_sub(card.value.place[0]) <= 1;
                let of_card = own.value.vendor == card.value.vendor && near && own.value.is_network;
                of_card && (own.value.place[0] != card.value.place[0] || number(&own.value) >= 8)
            };
            let made = self.facts.devices.iter().filter(is_function).count();
            if made < count {
                let what =
                    format!("{count} virtual functions are asked for, and pciconf lists {made}");
                let seen = vec![wanted.seen.clone(), card.seen.clone()];
                let fix = "iovctl -C -f FILE (after iovctl -D -f FILE, where some are); iovctl_files in \
                           /etc/rc.conf makes them at each start; dmesg has the reason where it fails";
                found.push(self.say("bsd-functions", adapter, what, seen, fix.to_owned()));
            }
        }
    }

    /// Devices that guests are given, and that the host keeps.
    fn passed(&self, passed: &Fact<[u8; 3]>, found: &mut Vec<Finding>) {
        if !self.facts.has_devices {
            return;
        }
        let [bus, slot, function] = passed.value;
        let name = format!("{bus}/{slot}/{function}");
        let mut devices = self.facts.devices.iter();
        let (what, seen) = match devices.find(|own| own.value.place == passed.value) {
            Some(own) if driver(&own.value.name) == "ppt" => return,
            Some(own) => (
                format!(
                    "the guest is given a device that {} of the host has",
                    own.value.name
                ),
                vec![passed.seen.clone(), own.seen.clone()],
            ),
            None => (
                "the guest is given a device that pciconf does not list".to_owned(),
                vec![passed.seen.clone()],
            ),
        };
        let fix = "passthrough : true; in the file of iovctl, then iovctl -D and iovctl -C: it is ppt then; \
                   the numbers are decimal: bus/slot/function of pciconf -l";
        found.push(self.say("bsd-passthru", &name, what, seen, fix.to_owned()));
    }
}

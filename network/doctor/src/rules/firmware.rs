//! Firmware of cards, modules, and what drivers wrote into the kernel's log.

use super::{Adapter, Consequence, Evidence, Finding, HostFacts, is_of_interest, place_of_adapter};
use vendors::facts::{CardFacts, Fact, FirmwareSetting, KernelEvent};
use vendors::shell::quoted;

const BY_SETTINGS: Consequence =
    Consequence::NotSimulated("adapters are simulated by their settings and not by their firmware");

pub(super) fn check(host: &HostFacts, found: &mut Vec<Finding>) {
    for card in &host.cards {
        let own = Card {
            host,
            card,
            adapter: adapter_of(host, card.pci.as_deref(), &card.name),
        };
        own.link_type(found);
        own.pending(found);
        own.functions(found);
        own.order(found);
        own.trouble(found);
    }
    modules(host, found);
    kernel_log(host, found);
    psids(host, found);
}

fn adapter_of<'h>(host: &'h HostFacts, pci: Option<&str>, device: &str) -> Option<&'h Adapter> {
    let is_own =
        |own: &&Adapter| own.device == device || (pci.is_some() && own.pci.as_deref() == pci);
    host.adapters.iter().find(is_own)
}

/// A card, and the adapter that it is, if the snapshot has it.
struct Card<'a> {
    host: &'a HostFacts,
    card: &'a CardFacts,
    adapter: Option<&'a Adapter>,
}

impl Card<'_> {
    fn say(
        &self,
        rule: &'static str,
        what: String,
        seen: &Evidence,
        consequence: Consequence,
        fix: String,
    ) -> Finding {
        let place = match self.adapter {
            Some(adapter) => place_of_adapter(self.host, adapter),
            None => format!("{}, {}", self.host.name, self.card.name),
        };
        Finding::new(rule, place, what, vec![seen.clone()], consequence, fix)
    }

    fn device(&self) -> String {
        quoted(&self.card.name)
    }

    fn reset(&self) -> String {
        format!(
            "mlxfwreset -d {} reset, or a restart of the host",
            self.device()
        )
    }

    /// Ports that are InfiniBand after the next reset, where Ethernet is planned or in use. A card that is
    /// InfiniBand now, without a plan, is meant so.
    fn link_type(&self, found: &mut Vec<Finding>) {
        let is_ethernet = self.adapter.and_then(|own| own.ethernet.as_ref());
        let is_ethernet = is_ethernet.is_some_and(|own| own.value);
        if self.host.planned.is_none() && !is_ethernet {
            return;
        }
        let types = self.card.settings.iter();
        for (key, setting) in types.filter(|(key, _)| key.starts_with("LINK_TYPE_P")) {
            if setting.value.next != "IB(1)" {
                continue;
            }
            let what = format!("{key} is IB(1): the port is InfiniBand after the next reset");
            let fix = format!(
                "mlxconfig -d {} set {key}=2   # Ethernet; then {}",
                self.device(),
                self.reset()
            );
            let nothing = Consequence::NothingArrives;
            found.push(self.say("firmware-link-type", what, &setting.seen, nothing, fix));
        }
    }

    /// Settings that are not in use before a reset.
    fn pending(&self, found: &mut Vec<Finding>) {
        let differs = |setting: &Fact<FirmwareSetting>| {
            let current = setting.value.current.as_ref();
            current.is_some_and(|current| *current != setting.value.next)
        };
        let waiting: Vec<_> = self
            .card
            .settings
            .iter()
            .filter(|(_, own)| differs(own))
            .collect();
        let Some((_, first)) = waiting.first() else {
            return;
        };
        let list: Vec<String> = waiting
            .iter()
            .map(|(key, own)| {
                let current = own.value.current.as_deref().unwrap_or_default();
                format!("{key} is {current} and becomes {}", own.value.next)
            })
            .collect();
        let what = format!(
            "settings of the firmware wait for a reset: {}",
            list.join(", ")
        );
        found.push(self.say(
            "firmware-pending",
            what,
            &first.seen,
            BY_SETTINGS,
            self.reset(),
        ));
    }

    /// Virtual functions that are planned or made, and that the firmware does not offer.
    fn functions(&self, found: &mut Vec<Finding>) {
        let planned = self
            .host
            .planned
            .as_ref()
            .map_or(0, |planned| planned.functions);
        let made = self.adapter.and_then(|own| own.functions.as_ref());
        let wanted = made.map_or(0, |own| own.value).max(planned);
        if wanted == 0 {
            return;
        }
        let number = |text: &str| text.parse::<u32>().ok();
        let off = self
            .card
            .settings
            .get("SRIOV_EN")
            .filter(|own| own.value.next == "False(0)");
        let few = self.card.settings.get("NUM_OF_VFS");
        let few = few.filter(|own| number(&own.value.next).is_some_and(|count| count < wanted));
        let Some(seen) = off.or(few) else {
            return;
        };
        let what = match (off, few) {
            (Some(_), _) => {
                format!("SR-IOV is off in the firmware, and {wanted} functions are wanted")
            }
            (None, own) => format!(
                "the firmware offers {} virtual functions, and {wanted} are wanted",
                own.map_or("", |own| own.value.next.as_str())
            ),
        };
        let fix = format!(
            "mlxconfig -d {} set SRIOV_EN=1 NUM_OF_VFS={wanted}; then {}",
            self.device(),
            self.reset()
        );
        let none = Consequence::NotSimulated("the functions are not made");
        found.push(self.say("firmware-functions", what, &seen.seen, none, fix));
    }

    /// Packets in any order are asked for, and the firmware has the feature off: the register then has no
    /// effect (ConnectX-6 firmware 20.35.2000, known issue 3209624).
    fn order(&self, found: &mut Vec<Finding>) {
        let forced = self.card.out_of_order.as_ref().is_some_and(|any| any.value);
        let planned = self.host.planned.as_ref();
        let is_planned = planned.is_some_and(|planned| planned.out_of_order);
        let off = self
            .card
            .settings
            .get("ROCE_ADAPTIVE_ROUTING_EN")
            .filter(|own| own.value.next == "False(0)" && (forced || is_planned));
        let Some(off) = off else { return };
        let what = "packets in any order are asked for, and the firmware has them off: the register \
                    ROCE_ACCL has no effect";
        let fix = format!(
            "mlxconfig -d {} set ROCE_ADAPTIVE_ROUTING_EN=1; then {}",
            self.device(),
            self.reset()
        );
        found.push(self.say(
            "firmware-order",
            what.to_owned(),
            &off.seen,
            BY_SETTINGS,
            fix,
        ));
    }

    /// What `mlxlink` recommends for a link that is not up.
    fn trouble(&self, found: &mut Vec<Finding>) {
        let is_up = self
            .adapter
            .and_then(|own| own.up.as_ref())
            .is_some_and(|up| up.value);
        let is_used = self
            .adapter
            .is_none_or(|own| is_of_interest(self.host, own));
        if let Some(trouble) = self.card.trouble.as_ref().filter(|_| !is_up && is_used) {
            let what = format!("the card names the fault of its link: {}", trouble.value);
            let fix = "cable, module and port at both ends; mlxlink -m shows the module".to_owned();
            let nothing = Consequence::NothingArrives;
            found.push(self.say("link-trouble", what, &trouble.seen, nothing, fix));
        }
    }
}

/// Alarms of modules.
fn modules(host: &HostFacts, found: &mut Vec<Finding>) {
    for alarm in &host.module_alarms {
        let (interface, name) = &alarm.value;
        let place = format!("{}, {interface}", host.name);
        let what = format!("the module has an alarm: {name}");
        let fix = "a module that the card's vendor names; air to the cage; clean or replace fibre and module";
        let why =
            Consequence::NotSimulated("modules are not simulated; links with alarms lose frames");
        let seen = vec![alarm.seen.clone()];
        found.push(Finding::new(
            "module-alarm",
            place,
            what,
            seen,
            why,
            fix.to_owned(),
        ));
    }
}

/// A message of the kernel's log: rule, what it tells, consequence and repair.
type Message = (&'static str, &'static str, Consequence, &'static str);

fn message(event: KernelEvent) -> Option<Message> {
    let functions = Consequence::NotSimulated("the functions are not made");
    Some(match event {
        KernelEvent::Plugged => return None,
        KernelEvent::Unplugged => (
            "kernel-cable",
            "the last message about the cable is that it was taken out",
            Consequence::NothingArrives,
            "plug the cable in at both ends; ethtool -m IF shows a module that is seen",
        ),
        KernelEvent::Power => (
            "kernel-power",
            "the slot gives the card less power than it needs",
            Consequence::NotSimulated("cards with too little power reset, or keep ports off"),
            "another slot (75 W), or the cable for power of the card",
        ),
        KernelEvent::Health => (
            "kernel-health",
            "the driver found the firmware of the card stopped",
            Consequence::NothingArrives,
            "restart the host; then newer firmware, and the temperature of the card",
        ),
        KernelEvent::NoMemorySpace => (
            "sriov-memory",
            "virtual functions have no room in the memory window of the port above the card",
            functions,
            "\"Above 4G decoding\" and a larger MMIO window in the firmware settings of the host; fewer \
             functions; else pci=realloc on the kernel's command line",
        ),
        KernelEvent::NoBusNumber => (
            "sriov-bus",
            "virtual functions have no bus number: the port above the card has no ARI, or too small a range",
            functions,
            "ARI in the firmware settings of the host, another slot, or seven functions at most",
        ),
    })
}

/// Modules that were built for other RDMA modules, as those of NVIDIA's MLNX_OFED are beside a kernel's own.
fn odd_modules(host: &HostFacts, found: &mut Vec<Finding>) {
    let mut seen: Vec<&str> = Vec::new();
    for module in &host.odd_modules {
        let name = module.value.as_str();
        if seen.contains(&name) {
            continue;
        }
        seen.push(name);
        let what = format!("{name} was built for other RDMA modules than those that are loaded");
        let fix = format!(
            "modinfo -F filename {name} ib_core shows which are of MLNX_OFED (updates, extra): the kernel's \
             own drivers, or {name} built against the headers of MLNX_OFED"
        );
        let why =
            Consequence::NotSimulated("the module is not loaded, and what needs it does not run");
        let evidence = vec![module.seen.clone()];
        found.push(Finding::new(
            "kernel-modules",
            host.name.clone(),
            what,
            evidence,
            why,
            fix,
        ));
    }
}

fn kernel_log(host: &HostFacts, found: &mut Vec<Finding>) {
    odd_modules(host, found);
    let is_cable = |event| matches!(event, KernelEvent::Unplugged | KernelEvent::Plugged);
    for (index, event) in host.kernel_events.iter().enumerate() {
        let (pci, kind) = &event.value;
        let again = host.kernel_events[index + 1..].iter().any(|later| {
            let is_same = later.value.1 == *kind || (is_cable(*kind) && is_cable(later.value.1));
            later.value.0 == *pci && is_same
        });
        let Some((rule, what, consequence, fix)) = message(*kind).filter(|_| !again) else {
            continue;
        };
        let adapter = adapter_of(host, Some(pci), pci);
        // A second port without a cable is not in use.
        let is_used = adapter.is_some_and(|own| {
            is_of_interest(host, own) && own.up.as_ref().is_none_or(|up| !up.value)
        });
        if is_cable(*kind) && !is_used {
            continue;
        }
        let place = match adapter {
            Some(adapter) => place_of_adapter(host, adapter),
            None => format!("{}, {pci}", host.name),
        };
        let seen = vec![event.seen.clone()];
        let (what, fix) = (what.to_owned(), fix.to_owned());
        found.push(Finding::new(rule, place, what, seen, consequence, fix));
    }
}

/// The chip of an adapter: its PCI device, else the first number of its firmware, which is of the chip.
fn chip(host: &HostFacts, adapter: &Adapter) -> Option<String> {
    if let Some(card) = &adapter.card {
        return Some(format!("{:04x}", card.value.1));
    }
    let card = host
        .cards
        .iter()
        .find(|own| own.pci.is_some() && own.pci == adapter.pci)?;
    let version = &card.version.as_ref()?.value;
    version.split('.').next().map(str::to_owned)
}

/// Adapters of one chip with firmware of different PSIDs: one is an OEM's, or was flashed as another model.
fn psids(host: &HostFacts, found: &mut Vec<Finding>) {
    let known: Vec<_> = host
        .adapters
        .iter()
        .filter_map(|adapter| Some((adapter, adapter.psid.as_ref()?, chip(host, adapter))))
        .collect();
    for (index, (adapter, psid, chip)) in known.iter().enumerate() {
        let differs = |(_, other, of): &&(&Adapter, &Fact<String>, Option<String>)| {
            let is_other_chip = chip.is_some() && of.is_some() && of != chip;
            !is_other_chip && !other.value.eq_ignore_ascii_case(&psid.value)
        };
        let Some((_, first, _)) = known[..index].iter().find(differs) else {
            continue;
        };
        let what = format!(
            "firmware {} and {}: adapters of one host differ",
            first.value, psid.value
        );
        let card = host
            .cards
            .iter()
            .find(|own| own.pci.is_some() && own.pci == adapter.pci);
        let is_secure = card
            .and_then(|own| own.secure.as_ref())
            .is_some_and(|own| own.value);
        let fix = match is_secure {
            true => {
                "one board is an OEM's; this card (secure-fw) takes signed firmware of its own PSID only"
            }
            false => {
                "one board is an OEM's or was flashed as another model: mstflint -d BDF query; firmware of \
                 the board's own PSID for each"
            }
        };
        let consequence = Consequence::NotSimulated(
            "adapters are simulated by their settings and not by their firmware; features and defaults of \
             firmware differ between PSIDs",
        );
        let seen = vec![psid.seen.clone(), first.seen.clone()];
        let place = place_of_adapter(host, adapter);
        found.push(Finding::new(
            "firmware-psid",
            place,
            what,
            seen,
            consequence,
            fix.to_owned(),
        ));
        return;
    }
}

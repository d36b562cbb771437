//! RDMA of ESXi hosts.

use super::{Consequence, Finding, HostFacts};
use vendors::facts::Fact;

/// Priorities of storage that vSAN's check of a host accepts (VsanNicRdmaInfo of its API).
const PRIORITIES: u8 = 1 << 3 | 1 << 4;

pub(super) fn check(host: &HostFacts, found: &mut Vec<Finding>) {
    let Some(esxi) = &host.esxi else { return };
    let mut say = |rule, name: &str, what: &str, seen: &dyn Seen, why, fix: String| {
        let place = format!("{}, {name}", host.name);
        let evidence = vec![seen.evidence()];
        found.push(Finding::new(
            rule,
            place,
            what.to_owned(),
            evidence,
            why,
            fix,
        ));
    };
    for device in &esxi.devices {
        let (name, is_active) = &device.value;
        if !is_active {
            let fix = format!(
                "the uplink of {name} (esxcli network nic list), its cable and its switch port"
            );
            let what = "the RDMA device is not active";
            say(
                "esxi-device",
                name,
                what,
                device,
                Consequence::NothingArrives,
                fix,
            );
        }
        let bound = esxi.bound.as_ref();
        if let Some(list) = bound.filter(|list| *is_active && !list.value.contains(name)) {
            let what = "no vmkernel port is bound to the RDMA device";
            let fix = format!(
                "a vmkernel port on the uplink of {name}; esxcli rdma device vmknic list shows it"
            );
            say(
                "esxi-vmknic",
                name,
                what,
                list,
                Consequence::NothingArrives,
                fix,
            );
        }
    }
    for protocol in esxi.protocols.iter().filter(|protocol| !protocol.value.1) {
        let name = &protocol.value.0;
        let fix = "RoCE v2 in the card's settings of the host (its driver or firmware)".to_owned();
        let what = "the RDMA device has no RoCE v2";
        say(
            "esxi-protocol",
            name,
            what,
            protocol,
            Consequence::NothingArrives,
            fix,
        );
    }
    for dcb in esxi
        .dcb
        .iter()
        .filter(|dcb| dcb.value.pfc & PRIORITIES == 0)
    {
        let what = "PFC is off for the priorities 3 and 4, of which storage over RDMA has one";
        let fix = "PFC of that priority at the switch, which offers it by DCBX (IEEE mode); or fixed values \
                   of the driver's module"
            .to_owned();
        let why = Consequence::NotSimulated("packets are dropped when ports are congested");
        say("esxi-pfc", &dcb.value.nic, what, dcb, why, fix);
    }
}

/// A fact of any kind, for its line.
trait Seen {
    fn evidence(&self) -> vendors::facts::Evidence;
}

impl<T> Seen for Fact<T> {
    fn evidence(&self) -> vendors::facts::Evidence {
        self.seen.clone()
    }
}

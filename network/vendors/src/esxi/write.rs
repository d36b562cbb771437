//! Intents, written for ESXi: what fits, and the text.

use std::fmt::Write;

use crate::intent::{Fit, HostSettings, Intent, Queue};
use crate::shell::quoted;

/// The MTU of a virtual switch that nothing was set of.
const MTU: u32 = 1500;

/// Virtual functions of a port at most (`max_vfs`).
pub(super) const FUNCTIONS_MAX: u16 = 128;

pub(crate) fn fit(intent: &mut Intent, fit: &mut Fit) {
    fit.host(intent);
    fit.no_rates(intent);
    fit.in_order(intent);
    fit.one_trust(intent);
    let by_eight: [u8; 64] = core::array::from_fn(|value| value as u8 / 8);
    if intent.trust.dscp() && intent.dscp != by_eight {
        fit.add_note("the priority of a DSCP is its value divided by eight");
    }
    intent.dscp = by_eight;
    if intent.queues != [Queue::WEIGHTED; 8] {
        fit.add_note(
            "shares and strict queues are not written: the driver has no parameter of them",
        );
        intent.queues = [Queue::WEIGHTED; 8];
    }
    if intent.mtu != MTU {
        fit.add_note(format!(
            "an MTU of {} is that of the virtual switch and of the vmkernel port, whose names the file \
             does not have: see the comments",
            intent.mtu
        ));
        intent.mtu = MTU;
    }
    let name = intent.ports.first().map(|port| port.name.clone());
    let Some(host) = &mut intent.host else { return };
    if host.willing {
        fit.add_note("PFC is set by the driver's parameters, and not by the switch's DCBX");
    }
    if (host.ecn, host.cnp_dscp, host.cnp_priority) != (true, 48, 6) {
        fit.add_note(
            "ECN and the marks of notifications are the firmware's: set them with mlxconfig",
        );
    }
    if host.functions > FUNCTIONS_MAX {
        fit.add_note(format!(
            "{FUNCTIONS_MAX} virtual functions are the most (max_vfs)"
        ));
    }
    *host = HostSettings {
        device: name.unwrap_or_default(),
        dscp: host.dscp & 63,
        functions: host.functions.min(FUNCTIONS_MAX),
        ..HostSettings::default()
    };
}

pub(crate) fn write(intent: &Intent) -> String {
    let (port, host) = match (&intent.ports[..], &intent.host) {
        ([port, ..], Some(host)) => (quoted(&port.name), host),
        _ => return String::new(),
    };
    let trust = if intent.trust.dscp() { 2 } else { 1 };
    let mask = intent.pfc_send;
    let mut text = String::from(
        "# Parameters of a module are replaced all at once, and count from the next start of the host on.\n\
         # max_vfs has a number for each port of the driver: 8,8 for two.\n",
    );
    let _ = writeln!(
        text,
        "esxcli system module parameters set -m nmlx5_core -p \"pfctx={mask:#04x} pfcrx={mask:#04x} \
         trust_state={trust} max_vfs={}\"\n\
         esxcli system module parameters set -m nmlx5_rdma -p \"dscp_force={}\"\n\
         esxcli network nic pauseParams set -n {port} -t 0 -r 0",
        host.functions, host.dscp
    );
    text += "# MTU of the virtual switch and of the vmkernel port that RDMA uses, by their names there:\n\
             #   esxcli network vswitch standard set -v SWITCH -m 9000\n\
             #   esxcli network ip interface set -i VMK -m 9000\n\
             # After the start: esxcli rdma device list, rdma device vmknic list, network nic dcb status\n\
             # get -n NIC and, with functions, network sriovnic vf list -n NIC.\n";
    text
}

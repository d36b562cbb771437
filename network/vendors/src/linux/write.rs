//! Intents, written for Linux: what fits, and the text.

use std::fmt::Write;

use crate::highest_rate::KILOBIT;
use crate::intent::{Fit, Intent, Schedule, Trust};
use crate::shell::quoted;
use crate::text::classes;

/// The largest rate of a traffic class in bits per second.
const RATE_MAX: u64 = 10_000_000_000_000;

pub(crate) fn fit(intent: &mut Intent, fit: &mut Fit) {
    fit.host(intent);
    if intent.trust == Trust::None {
        fit.add_note(
            "an adapter trusts PCP or DSCP: it trusts PCP, which untagged packets do not have",
        );
        intent.trust = Trust::Pcp;
    }
    fit.percents(intent);
    fit.rates(intent, KILOBIT, RATE_MAX);
    fit_host(intent, fit);
}

/// Settings of hosts that no tool of Linux has.
pub(crate) fn fit_host(intent: &mut Intent, fit: &mut Fit) {
    let Some(host) = &mut intent.host else { return };
    if host.smb_priority != 3 {
        fit.add_note(
            "SMB Direct has no priority of its own on Linux: its connections have the ToS of all",
        );
        host.smb_priority = 3;
    }
    host.cnp_priority &= 7;
}

/// The unit that runs the script at every start, since settings of `dcb` and `mlnx_qos` are lost at a reboot.
pub(crate) const UNIT: &str = "[Unit]\nDescription=QoS of the RDMA adapter\nAfter=network-pre.target \
    systemd-modules-load.service\nBefore=network-online.target\n\n[Service]\n\
    Type=oneshot\nRemainAfterExit=yes\n\
    ExecStart=/bin/sh /usr/local/sbin/rockery-roce.sh\n\n[Install]\nWantedBy=multi-user.target\n";

pub(crate) fn write(intent: &Intent) -> String {
    let mut text = String::from(
        "# Install as /usr/local/sbin/rockery-roce.sh, which rockery-roce.service runs.\n",
    );
    let port = port_name(intent);
    let _ = writeln!(text, "dcb dcbx set dev {port} host ieee");
    let order = match intent.trust {
        Trust::Both => "dscp pcp",
        Trust::Dscp => "dscp",
        Trust::Pcp | Trust::None => "pcp",
    };
    let _ = writeln!(
        text,
        "dcb apptrust set dev {port} order {order}\ndcb app flush dev {port} dscp-prio"
    );
    if intent.trust.dscp() {
        for class in 1..8 {
            let entries: Vec<String> = intent
                .dscp_of(class)
                .map(|value| format!("{value}:{class}"))
                .collect();
            if !entries.is_empty() {
                let _ = writeln!(
                    text,
                    "dcb app replace dev {port} dscp-prio {}",
                    entries.join(" ")
                );
            }
        }
    }
    let on: String = classes(intent.pfc_send)
        .map(|class| format!(" {class}:on"))
        .collect();
    let _ = writeln!(text, "dcb pfc set dev {port} prio-pfc all:off{on}");
    let (mut tsa, mut bandwidth) = (String::new(), String::new());
    for (class, queue) in intent.queues.iter().enumerate() {
        match queue.schedule {
            Schedule::Strict => tsa += &format!(" {class}:strict"),
            Schedule::Weighted(percent) | Schedule::Background(percent) => {
                tsa += &format!(" {class}:ets");
                bandwidth += &format!(" {class}:{percent}");
            }
        }
    }
    let willing = if intent.host.as_ref().is_some_and(|host| host.willing) {
        "on"
    } else {
        "off"
    };
    let _ = writeln!(
        text,
        "dcb ets set dev {port} willing {willing} tc-tsa{tsa} tc-bw all:0{bandwidth} \
         prio-tc 0:0 1:1 2:2 3:3 4:4 5:5 6:6 7:7"
    );
    let rates: String = (0..8)
        .filter_map(|class| Some((class, intent.queues[class].rate?)))
        .map(|(class, rate)| format!(" {class}:{}kbit", rate.kbps()))
        .collect();
    if !rates.is_empty() {
        let _ = writeln!(text, "dcb maxrate set dev {port} tc-maxrate{rates}");
    }
    write_host(&mut text, intent);
    text
}

pub(crate) fn port_name(intent: &Intent) -> String {
    quoted(
        intent
            .ports
            .first()
            .map_or("eth0", |port| port.name.as_str()),
    )
}

/// Marking, MTU, 802.3x pause, SR-IOV and firmware.
pub(crate) fn write_host(text: &mut String, intent: &Intent) {
    let Some(host) = &intent.host else { return };
    let (port, device) = (port_name(intent), quoted(&host.device));
    let _ = write!(
        text,
        "ip link set dev {port} mtu {}\nethtool -A {port} autoneg off rx off tx off\n\
         cma_roce_mode -d {device} -p 1 -m 2\n\
         cma_roce_tos -d {device} -p 1 -t {}\nsysctl -w net.ipv4.tcp_ecn=1\n",
        intent.mtu,
        host.tos()
    );
    if host.functions > 0 {
        let _ = writeln!(
            text,
            "echo {} > /sys/class/infiniband/{device}/device/sriov_numvfs",
            host.functions
        );
    }
    if host.out_of_order {
        // A register, which is 0 again after a reset (NVIDIA, MLNX_OFED: Out-of-Order Data Placement).
        let _ = writeln!(
            text,
            "mlxreg -d {device} --reg_name ROCE_ACCL --set \"adaptive_routing_forced_en=0x1\" --yes"
        );
    }
    // Settings of the firmware are kept, and take effect after a reset of the adapter.
    let _ = write!(
        text,
        "if [ \"$1\" = firmware ]; then\n\
         # Ethernet. Cards that know no other link have no such setting, and say so.\n\
         mlxconfig -y -d {device} set LINK_TYPE_P1=2 || true\n\
         mlxconfig -y -d {device} set SRIOV_EN={} NUM_OF_VFS={} CNP_DSCP_P1={} CNP_802P_PRIO_P1={} \
         ROCE_CC_PRIO_MASK_P1=255\nfi\n",
        u8::from(host.functions > 0),
        host.functions,
        host.cnp_dscp,
        host.cnp_priority
    );
}

//! Corrections of a Linux host: with NVIDIA's tools where the adapter is theirs, else with iproute2's `dcb`.

use crate::facts::{Adapter, CardVendor};
use crate::host_remedy::HostRemedy;
use crate::shell::quoted;
use crate::text::{classes, set_bits};

/// The commands for a setting, where one is known.
pub(crate) fn command(remedy: HostRemedy, adapter: &Adapter) -> Option<String> {
    let own = match adapter.vendor() {
        Some(CardVendor::Nvidia) => of_nvidia(remedy, adapter),
        Some(CardVendor::Broadcom) => of_broadcom(remedy, adapter),
        Some(CardVendor::Intel) => of_intel(remedy, adapter),
        Some(CardVendor::Chelsio) => of_chelsio(remedy),
        None => None,
    };
    own.or_else(|| of_any(remedy, adapter))
}

/// Broadcom's script `bnxt_setupcc.sh` sets PFC and congestion control at once, so it needs all values of the
/// site; `niccli` shows what is set.
fn of_broadcom(remedy: HostRemedy, adapter: &Adapter) -> Option<String> {
    let (netdev, device) = (quoted(interface(adapter)), quoted(&adapter.device));
    let script = |option: String| {
        format!(
            "bnxt_setupcc.sh -d {device} -i {netdev} -m 3 {option}   # with the site's other values: -s DSCP \
             and -r priority of data, -p DSCP and -c priority of notifications; niccli shows them"
        )
    };
    Some(match remedy {
        HostRemedy::CnpDscp(dscp) => script(format!("-p {dscp}")),
        HostRemedy::CnpPriority(priority) => script(format!("-c {priority}")),
        HostRemedy::Notify(priority) | HostRemedy::React(priority) => {
            script(format!("-r {priority}"))
        }
        HostRemedy::ReceiveBuffer(priority) => format!(
            "PFC for priority {priority} gives it buffers of its own; niccli --dev N qos --ets --show \
             shows it"
        ),
        _ => return None,
    })
}

/// Intel's firmware has an LLDP agent that holds DCB while it runs.
fn of_intel(remedy: HostRemedy, adapter: &Adapter) -> Option<String> {
    let netdev = quoted(interface(adapter));
    let agent = format!("   # after: ethtool --set-priv-flags {netdev} fw-lldp-agent off");
    Some(match remedy {
        HostRemedy::Pfc(_) | HostRemedy::Shares(_) | HostRemedy::MapDscp { .. } => {
            of_any(remedy, adapter)? + &agent
        }
        HostRemedy::ReceiveBuffer(priority) => {
            format!("PFC for priority {priority} gives it buffers of its own")
        }
        HostRemedy::Notify(priority) | HostRemedy::React(priority) => format!(
            "DCQCN for priority {priority}: Intel's driver irdma has it by parameters of the module, at both \
             ends"
        ),
        _ => return None,
    })
}

/// Chelsio's cards take DCB from the switch: their firmware is willing.
fn of_chelsio(remedy: HostRemedy) -> Option<String> {
    Some(match remedy {
        HostRemedy::Pfc(mask) => {
            let list = crate::text::ranges(classes(mask));
            format!(
                "PFC for priority {list} in the DCBX of the switch, which Chelsio's firmware takes"
            )
        }
        HostRemedy::Shares(shares) => {
            let list = shares.map(|share| share.to_string()).join(",");
            format!("shares {list} in the DCBX of the switch, which Chelsio's firmware takes")
        }
        _ => return None,
    })
}

fn interface(adapter: &Adapter) -> &str {
    adapter
        .netdev
        .as_ref()
        .map_or("IF", |netdev| netdev.value.as_str())
}

/// Commands of NVIDIA's tools, and files that their driver has.
fn of_nvidia(remedy: HostRemedy, adapter: &Adapter) -> Option<String> {
    let (netdev, device) = (quoted(interface(adapter)), quoted(&adapter.device));
    let ecn = format!("/sys/class/net/{netdev}/ecn");
    Some(match remedy {
        HostRemedy::Pfc(mask) => {
            let bits = (0..8).map(|priority| (mask >> priority & 1).to_string());
            let is_set_elsewhere = adapter.dcbx_by_host.as_ref().is_some_and(|os| !os.value);
            let os = if is_set_elsewhere { " --dcbx os" } else { "" };
            let bits = bits.collect::<Vec<_>>().join(",");
            format!("mlnx_qos -i {netdev}{os} --pfc {bits}")
        }
        HostRemedy::AnyOrder(is_on) => format!(
            "mlxreg -d {} --reg_name ROCE_ACCL --set \"adaptive_routing_forced_en=0x{}\" --yes   # at both \
             ends; a register, so a unit has to set it at each start",
            quoted(adapter.pci.as_deref().unwrap_or(&adapter.device)),
            u8::from(is_on)
        ),
        HostRemedy::TrustDscp => format!(
            "mlnx_qos -i {netdev} --trust dscp   (or: dcb apptrust set dev {netdev} order dscp)"
        ),
        HostRemedy::MapDscp { dscp, priority } => {
            format!("mlnx_qos -i {netdev} --dscp2prio set,{dscp},{priority}")
        }
        HostRemedy::Tos(tos) => {
            let ect = if tos & 3 == 0 { "" } else { " and ECT(0)" };
            format!(
                "cma_roce_tos -d {device} -p 1 -t {tos}   # DSCP {}{ect}",
                tos >> 2
            )
        }
        HostRemedy::Shares(shares) => {
            let list = shares.map(|share| share.to_string()).join(",");
            format!(
                "mlnx_qos -i {netdev} --tcbw {list}   # with --tsa ets for each class that has a share"
            )
        }
        HostRemedy::ReceiveBuffer(priority) => {
            let own = (0..8).map(|other| u8::from(other == priority).to_string());
            let list = own.collect::<Vec<_>>().join(",");
            format!("mlnx_qos -i {netdev} --prio2buffer {list}   # and --buffer_size for both")
        }
        HostRemedy::CnpDscp(dscp) => format!(
            "echo {dscp} > {ecn}/roce_np/cnp_dscp; mlxconfig -d {device} set CNP_DSCP_P1={dscp} keeps it"
        ),
        HostRemedy::CnpPriority(priority) => {
            format!("echo {priority} > {ecn}/roce_np/cnp_802p_prio")
        }
        HostRemedy::Notify(priority) => {
            format!("echo 1 > {ecn}/roce_np/enable/{priority}, at both ends")
        }
        HostRemedy::React(priority) => {
            format!("echo 1 > {ecn}/roce_rp/enable/{priority}, at both ends")
        }
        HostRemedy::RoceV2 => format!("cma_roce_mode -d {device} -p 1 -m 2"),
        _ => return None,
    })
}

/// Commands of the kernel's own tools.
fn of_any(remedy: HostRemedy, adapter: &Adapter) -> Option<String> {
    let (netdev, device) = (quoted(interface(adapter)), quoted(&adapter.device));
    let rdma_cm = format!("/sys/kernel/config/rdma_cm/{device}");
    Some(match remedy {
        HostRemedy::Pfc(mask) => {
            let mut off = 0xff;
            set_bits(&mut off, mask, false);
            let pair = |state: &'static str| move |priority: u8| format!("{priority}:{state}");
            let on = classes(mask).map(pair("on"));
            let all: Vec<String> = on.chain(classes(off).map(pair("off"))).collect();
            format!("dcb pfc set dev {netdev} prio-pfc {}", all.join(" "))
        }
        HostRemedy::TrustDscp => format!("dcb apptrust set dev {netdev} order dscp"),
        HostRemedy::MapDscp { dscp, priority } => {
            format!("dcb app replace dev {netdev} dscp-prio {dscp}:{priority}")
        }
        HostRemedy::Tos(tos) => {
            format!("mkdir -p {rdma_cm}; echo {tos} > {rdma_cm}/ports/1/default_roce_tos")
        }
        HostRemedy::Shares(shares) => {
            let pairs = shares.iter().enumerate();
            let pairs: Vec<String> = pairs
                .map(|(class, share)| format!("{class}:{share}"))
                .collect();
            format!(
                "dcb ets set dev {netdev} tc-bw {}   # with tc-tsa C:ets for each of them",
                pairs.join(" ")
            )
        }
        HostRemedy::Up => format!("ip link set {netdev} up"),
        HostRemedy::Speed => format!("ethtool -s {netdev} autoneg on"),
        HostRemedy::Address => format!("ip addr add ADDRESS/24 dev {netdev}"),
        HostRemedy::NoGlobalPause => format!("ethtool -A {netdev} autoneg off rx off tx off"),
        HostRemedy::Mtu(bytes) => {
            format!("ip link set dev {netdev} mtu {bytes}, at both ends, and 9216 on the switch")
        }
        HostRemedy::RoceV2 => {
            format!("mkdir -p {rdma_cm}; echo \"RoCE v2\" > {rdma_cm}/ports/1/default_roce_mode")
        }
        HostRemedy::Roce => {
            let pci = quoted(adapter.pci.as_deref().unwrap_or("BDF"));
            format!(
                "devlink dev param set pci/{pci} name enable_roce value true cmode driverinit; devlink dev \
                 reload pci/{pci}   (older irdma: modprobe irdma roce_ena=1)"
            )
        }
        HostRemedy::Functions(count) => {
            let file = format!("/sys/class/net/{netdev}/device/sriov_numvfs");
            format!("echo 0 > {file}; echo {count} > {file}")
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::command;
    use crate::facts::{Adapter, Evidence, Fact};
    use crate::host_remedy::HostRemedy;

    #[test]
    fn only_adapters_of_nvidia_get_their_tools() {
        let adapter = |device: &str| Adapter {
            device: device.to_owned(),
            ..Adapter::default()
        };
        for remedy in [
            HostRemedy::Pfc(1 << 5),
            HostRemedy::TrustDscp,
            HostRemedy::MapDscp {
                dscp: 24,
                priority: 5,
            },
            HostRemedy::Tos(98),
            HostRemedy::Shares([50, 0, 0, 0, 0, 50, 0, 0]),
            HostRemedy::ReceiveBuffer(5),
            HostRemedy::CnpDscp(40),
            HostRemedy::CnpPriority(1),
            HostRemedy::Notify(5),
            HostRemedy::React(5),
            HostRemedy::RoceV2,
        ] {
            let nvidia = remedy.of(&adapter("mlx5_0"), false);
            let is_own = ["mlnx_qos", "cma_roce", "/ecn/"]
                .iter()
                .any(|tool| nvidia.contains(tool));
            assert!(is_own, "{nvidia}");
            for device in ["bnxt_re0", "irdma0", "cxgb4_0", "qedr0", "rocep23s0"] {
                let other = remedy.of(&adapter(device), false);
                let is_nvidias = ["mlnx", "mlxconfig", "cma_roce", "/ecn/"];
                assert!(
                    is_nvidias.iter().all(|tool| !other.contains(tool)),
                    "{device}: {other}"
                );
                assert!(!other.is_empty());
            }
        }
        let broadcom = HostRemedy::CnpDscp(40).of(&adapter("bnxt_re0"), false);
        assert!(broadcom.starts_with("bnxt_setupcc.sh -d bnxt_re0 -i IF -m 3 -p 40 "));
        let intel = command(HostRemedy::Pfc(1 << 5), &adapter("irdma0")).unwrap();
        assert!(intel.ends_with("ethtool --set-priv-flags IF fw-lldp-agent off"));
        let chelsio = command(HostRemedy::Pfc(1 << 5), &adapter("cxgb4_0")).unwrap();
        assert!(chelsio.contains("DCBX of the switch"));
        // A name that the driver does not choose: the card decides.
        let named = Adapter {
            card: Some(Fact {
                value: (0x14e4, 0x1750),
                seen: Evidence {
                    file: String::new(),
                    line: 1,
                    text: String::new(),
                },
            }),
            ..adapter("rocep23s0")
        };
        assert!(
            command(HostRemedy::CnpPriority(7), &named)
                .unwrap()
                .contains("-c 7")
        );
        let pfc = command(HostRemedy::Pfc(1 << 5), &adapter("qedr0")).unwrap();
        assert_eq!(
            pfc,
            "dcb pfc set dev IF prio-pfc 5:on 0:off 1:off 2:off 3:off 4:off 6:off 7:off"
        );
    }
}

//! The page of a host that has no RDMA adapter.

use ::sim::report::counted;
use doctor::collect;

/// The page of a host without RDMA adapters: what RoCE its interfaces could carry, and what rockery makes of
/// them.
pub(super) fn page() -> String {
    let mut text = String::from(
        "This host has no RDMA adapter (/sys/class/infiniband is empty).\n\nInterfaces, and what RoCE they \
         could carry:\n",
    );
    for interface in collect::interfaces() {
        let driver = interface.driver.as_deref().unwrap_or("no device");
        let speed = interface.mbps.map_or_else(String::new, |mbps| {
            format!(", {:.1} Gb/s", f64::from(mbps) / 1000.0)
        });
        let mtu = interface
            .mtu
            .map_or_else(String::new, |mtu| format!(", MTU {mtu}{}", roce_mtu(mtu)));
        text += &format!("  {}: {driver}{speed}{mtu}\n", interface.name);
    }
    text += "\nDevices that rockery run gives programs (RoCEv2 in software, UDP port 4791):\n";
    let devices = host::all();
    for device in &devices {
        let reach = if device.is_loopback {
            ", reached from this host only"
        } else {
            ""
        };
        text += &format!(
            "  {}: on {}, path MTU {}, {}{reach}\n",
            device.name,
            device.interface,
            device.active_mtu.bytes(),
            counted(device.gids.len() as u64, "GID", "GIDs"),
        );
    }
    if let Some(holder) = host::PortHolder::foreign() {
        text += &format!("  {}\n", crate::devices::port_is_taken(&holder));
    }
    text += match devices.is_empty() {
        true => "  none: no interface is up and has an address\n",
        false => {
            "Each offers reliable and unreliable connections and datagrams, with SEND, WRITE, READ and \
             atomics:\nrockery run PROGRAM starts a program with them, and rockery doctor probe HOST asks \
             other hosts from here.\n"
        }
    };
    text + "\nWith an adapter for RoCE in a PCIe slot, lossless traffic between hosts takes DSCP 26 on their \
        packets, PFC and\nECN on the adapters, and switches with the configuration that rockery plan writes. \
        rockery doctor --host\nSNAPSHOT and --switch FILE look at hosts and switches that have it.\n"
}

/// The size of RoCE packets for the MTU of an interface: 80 bytes are headers.
fn roce_mtu(mtu: u32) -> String {
    let fits = [4096, 2048, 1024, 512, 256]
        .into_iter()
        .find(|size| mtu >= size + 80);
    match fits {
        Some(4096) => ": RoCE packets of 4096 bytes".to_owned(),
        Some(size) => format!(": RoCE packets of {size} bytes, and of 4096 with an MTU of 4200"),
        None => ": too small for RoCE, which needs 336".to_owned(),
    }
}

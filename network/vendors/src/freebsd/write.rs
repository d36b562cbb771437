//! Intents, written for FreeBSD: what fits, and the text.

use crate::intent::{Fit, HostSettings, Intent, Port};
use crate::names::ucl;

pub(crate) fn fit(intent: &mut Intent, fit: &mut Fit) {
    fit.no_rates(intent);
    fit.no_watchdog(intent);
    fit.in_order(intent);
    fit.by_flow(intent);
    let name = intent
        .ports
        .first()
        .map(|port| port.name.clone())
        .unwrap_or_default();
    let functions = intent.host.as_ref().map_or(0, |host| host.functions);
    let quiet = Intent {
        ports: vec![Port {
            name: name.clone(),
            mbps: None,
            metres: None,
        }],
        host: Some(HostSettings {
            device: name,
            functions,
            ..HostSettings::default()
        }),
        ..Intent::nothing()
    };
    if *intent != quiet {
        fit.add_note("iovctl configures SR-IOV functions only: QoS is not written");
    }
    *intent = quiet;
}

pub(crate) fn write(intent: &Intent) -> String {
    let (name, functions) = match (&intent.ports[..], &intent.host) {
        ([port, ..], Some(host)) => (port.name.as_str(), host.functions),
        _ => ("mce0", 0),
    };
    // Chelsio's driver is a module, and so is NVIDIA's.
    let module = match name.trim_end_matches(|letter: char| letter.is_ascii_digit()) {
        "cxl" | "cc" => "# In /boot/loader.conf: if_cxgbe_load=\"YES\" (now: kldload if_cxgbe).\n",
        "mce" => "# In /boot/loader.conf: mlx5en_load=\"YES\" (now: kldload mlx5en).\n",
        _ => "",
    };
    let name = ucl(name);
    format!(
        "{module}# As /etc/iov/NAME.conf, with iovctl_files=\"/etc/iov/NAME.conf\" in /etc/rc.conf; now:\n\
         # iovctl -C -f FILE (after iovctl -D -f FILE, where some are there). A guest of vm-bhyve takes\n\
         # one as passthru0=\"BUS/SLOT/FUNCTION\" of its ppt device in pciconf -l, with vmm_load=\"YES\".\n\
         PF {{\n\tdevice : \"{name}\";\n\tnum_vfs : {functions};\n}}\n\nDEFAULT {{\n\tpassthrough : \
            true;\n}}\n"
    )
}

//! The files of a view, as the kernel has them: `Documentation/ABI/stable/sysfs-class-infiniband` of Linux.
//!
//! They show the state at the start of the program, except for counters: `librockery-view.so` reads those
//! whenever a program opens one.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use host::DeviceInfo;
use host::counter_files::FILES;

/// Entries of the GID table, used or not, as `ibv_query_port` reports them.
const GIDS: usize = 16;
/// ABI versions of libibverbs, libibumad and the kernel.
const VERBS_ABI: &str = "6";
const MAD_ABI: &str = "5";
/// Speed and width, as `ibv_query_port` reports them.
const INTERFACE_RATE: &str = "100 Gb/sec (4X EDR)";
const LOOPBACK_RATE: &str = "10 Gb/sec (1X FDR10)";
/// The port's capabilities: connection management, bit 16, and no subnet management, bit 10. Tools of
/// InfiniBand look for the first port that does not say so.
const CAPABILITIES: &str = "0x00010400";
/// Not attached to any node.
const NO_NUMA_NODE: &str = "-1";
/// A character device that every user may open, which is all that programs do with the device files.
const CHARACTER_DEVICE: &str = "/dev/null";

/// The file with all devices, for `librockery-view.so` alone.
const LIST: &str = "rdma-devices";

/// An entry of the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// A file with this line in it.
    File(String),
    /// A file with a counter, which is read when a program opens the file.
    Counter,
    /// A file with a value that a subnet manager may change, such as a port's LID. The library asks for the
    /// value again when a program opens the file.
    Live(String),
    /// A symbolic link.
    Link(PathBuf),
}

/// All entries, by their path without the leading slash.
pub(crate) type Tree = BTreeMap<PathBuf, Entry>;

/// The files that show `devices`. A host of a lab with an InfiniBand device shows that one alone: tools of
/// InfiniBand take the first device that is active, and ports of Ethernet have no subnet management.
pub(crate) fn of(devices: &[DeviceInfo]) -> Tree {
    match link::management::describe() {
        Ok(files) => with_subnet(of_devices(&[]), &files),
        Err(_) => of_devices(devices),
    }
}

/// Adds the files of an InfiniBand device, as its lab has them.
fn with_subnet(mut tree: Tree, files: &[(String, String)]) -> Tree {
    for name in ["umad0", "issm0"] {
        let path = Path::new("dev/infiniband").join(name);
        tree.insert(path, Entry::Link(CHARACTER_DEVICE.into()));
    }
    for (path, value) in files {
        tree.insert(path.into(), Entry::Live(value.clone()));
    }
    tree
}

fn of_devices(devices: &[DeviceInfo]) -> Tree {
    let mut tree = Tree::new();
    let mut root = Folder {
        tree: &mut tree,
        path: PathBuf::new(),
    };
    root.link("dev/infiniband/rdma_cm", CHARACTER_DEVICE);
    root.file("sys/class/infiniband_mad/abi_version", MAD_ABI);
    root.file("sys/class/infiniband_verbs/abi_version", VERBS_ABI);
    root.file(
        LIST,
        &devices.iter().map(listed).collect::<Vec<_>>().join("\n"),
    );
    for device in devices {
        let uverbs = format!("uverbs{}", device.ifindex);
        root.link(&format!("dev/infiniband/{uverbs}"), CHARACTER_DEVICE);
        let mut verbs = root.folder(&format!("sys/class/infiniband_verbs/{uverbs}"));
        verbs.file("ibdev", &device.name);
        verbs.file("abi_version", "1");
        adapter(&mut verbs, device);
        let mut class = root.folder(&format!("sys/class/infiniband/{}", device.name));
        describe(&mut class, device);
        adapter(&mut class, device);
    }
    tree
}

/// A device for `librockery-view.so`, which answers netlink from it: index, name, interface, firmware version
/// and GUID.
fn listed(device: &DeviceInfo) -> String {
    let DeviceInfo {
        ifindex,
        name,
        interface,
        guid,
        ..
    } = device;
    let guid = u64::from_be_bytes(*guid);
    format!(
        "{ifindex}\t{name}\t{interface}\t{}\t{guid:#x}",
        env!("CARGO_PKG_VERSION")
    )
}

/// A folder of the tree that is being made.
struct Folder<'a> {
    tree: &'a mut Tree,
    path: PathBuf,
}

impl Folder<'_> {
    fn folder(&mut self, name: &str) -> Folder<'_> {
        Folder {
            tree: self.tree,
            path: self.path.join(name),
        }
    }

    fn file(&mut self, name: &str, line: &str) {
        self.tree
            .insert(self.path.join(name), Entry::File(line.to_owned()));
    }

    fn link(&mut self, name: &str, to: impl AsRef<Path>) {
        self.tree
            .insert(self.path.join(name), Entry::Link(to.as_ref().to_owned()));
    }
}

fn describe(class: &mut Folder<'_>, device: &DeviceInfo) {
    class.file("node_type", "1: CA");
    class.file("node_guid", &groups(&device.guid));
    class.file("sys_image_guid", &groups(&device.guid));
    class.file("node_desc", "rockery");
    class.file("hca_type", "rockery");
    class.file("board_id", "rockery");
    class.file("fw_ver", env!("CARGO_PKG_VERSION"));
    class.file("hw_rev", "1");
    let mut port = class.folder("ports/1");
    port.file("state", "4: ACTIVE");
    port.file("phys_state", "5: LinkUp");
    port.file(
        "rate",
        if device.is_loopback {
            LOOPBACK_RATE
        } else {
            INTERFACE_RATE
        },
    );
    port.file("link_layer", "Ethernet");
    port.file("cap_mask", CAPABILITIES);
    // Ethernet has neither LIDs nor a subnet manager.
    port.file("lid", "0x0");
    port.file("lid_mask_count", "0");
    port.file("sm_lid", "0x0");
    port.file("sm_sl", "0");
    port.file("pkeys/0", "0xffff");
    for file in FILES {
        port.tree
            .insert(port.path.join(file.folder).join(file.name), Entry::Counter);
    }
    for index in 0..GIDS {
        let gid = device.gids.get(index);
        port.file(
            &format!("gids/{index}"),
            &groups(&gid.map_or([0; 16], |gid| gid.0)),
        );
        // In the kernel these files of an empty index cannot be read: here they do not exist.
        if gid.is_some() {
            port.file(&format!("gid_attrs/types/{index}"), "RoCE v2");
            port.file(&format!("gid_attrs/ndevs/{index}"), &device.interface);
        }
    }
}

/// The parent device: the network adapter, where the interface has one, so that programs find its bus
/// address and NUMA node.
fn adapter(class: &mut Folder<'_>, device: &DeviceInfo) {
    let net = Path::new("/sys/class/net").join(&device.interface);
    if let Ok(adapter) = net.join("device").canonicalize() {
        class.link("device", function_of(&adapter));
        return;
    }
    let mut virtual_adapter = class.folder("device");
    virtual_adapter.link(&format!("net/{}", device.interface), net);
    virtual_adapter.file("numa_node", NO_NUMA_NODE);
    let online = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    if let Some(mask) = mask_of(online.trim()) {
        virtual_adapter.file("local_cpus", &mask);
        virtual_adapter.file("local_cpulist", online.trim());
    }
}

/// The PCI function above a virtio device, because programs look for a PCI function. Other devices, and
/// virtio on another bus, are returned as they are.
fn function_of(adapter: &Path) -> &Path {
    let bus = |device: &Path| {
        let subsystem = fs::read_link(device.join("subsystem")).ok()?;
        Some(subsystem.file_name()?.to_owned())
    };
    match adapter.parent() {
        Some(above)
            if bus(adapter).is_some_and(|bus| bus == "virtio")
                && bus(above).is_some_and(|bus| bus == "pci") =>
        {
            above
        }
        _ => adapter,
    }
}

/// Groups of 16 bits.
fn groups(bytes: &[u8]) -> String {
    let groups: Vec<String> = bytes
        .chunks(2)
        .map(|group| group.iter().map(|byte| format!("{byte:02x}")).collect())
        .collect();
    groups.join(":")
}

/// Processors that a mask has room for, as in the largest kernels.
const PROCESSORS_MAX: usize = 8192;

/// A list as `0-3,6` as a mask, in words of 32 bits, the highest first.
fn mask_of(list: &str) -> Option<String> {
    let mut words: Vec<u32> = Vec::new();
    for range in list.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        if last >= PROCESSORS_MAX {
            return None;
        }
        words.resize(words.len().max(last / 32 + 1), 0);
        (first..=last).for_each(|processor| words[processor / 32] |= 1 << (processor % 32));
    }
    let words: Vec<String> = words
        .iter()
        .rev()
        .map(|word| format!("{word:08x}"))
        .collect();
    Some(words.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line<'a>(tree: &'a Tree, path: &str) -> &'a str {
        match &tree[Path::new(path)] {
            Entry::File(line) => line,
            other => panic!("{path} is {other:?}"),
        }
    }

    #[test]
    fn a_device_is_described_as_the_kernel_does() {
        let tree = of_devices(&host::all());
        let port = |name: &str| format!("sys/class/infiniband/rk_lo/ports/1/{name}");
        assert_eq!(
            line(&tree, "sys/class/infiniband/rk_lo/node_guid"),
            "0200:00ff:fe00:0000"
        );
        assert_eq!(
            line(&tree, &port("gids/1")),
            "0000:0000:0000:0000:0000:ffff:7f00:0001"
        );
        assert_eq!(
            line(&tree, &port("gids/15")),
            "0000:0000:0000:0000:0000:0000:0000:0000"
        );
        assert_eq!(line(&tree, &port("gid_attrs/types/1")), "RoCE v2");
        assert_eq!(line(&tree, &port("gid_attrs/ndevs/0")), "lo");
        assert!(!tree.contains_key(Path::new(&port("gid_attrs/types/15"))));
        let net = Path::new("sys/class/infiniband/rk_lo/device/net/lo");
        assert_eq!(tree[net], Entry::Link("/sys/class/net/lo".into()));
        assert_eq!(
            tree[Path::new("dev/infiniband/uverbs1")],
            Entry::Link("/dev/null".into())
        );
        assert_eq!(
            line(&tree, "sys/class/infiniband_verbs/uverbs1/ibdev"),
            "rk_lo"
        );
    }

    #[test]
    fn every_device_has_counters_and_a_line() {
        let tree = of_devices(&host::all());
        let port = Path::new("sys/class/infiniband/rk_lo/ports/1");
        assert_eq!(tree[&port.join("counters/port_xmit_data")], Entry::Counter);
        assert_eq!(
            tree[&port.join("hw_counters/out_of_sequence")],
            Entry::Counter
        );
        let list = line(&tree, LIST);
        assert!(
            list.lines().any(|line| line.starts_with("1\trk_lo\tlo\t")),
            "{list}"
        );
    }

    #[test]
    fn files_of_an_infiniband_device_are_read_again() {
        let path = "sys/class/infiniband/rk_ib0/ports/1/state";
        let tree = with_subnet(of_devices(&[]), &[(path.to_owned(), "2: INIT".to_owned())]);
        assert_eq!(tree[Path::new(path)], Entry::Live("2: INIT".to_owned()));
        assert!(tree.contains_key(Path::new("dev/infiniband/umad0")));
        assert!(!of_devices(&[]).contains_key(Path::new("dev/infiniband/umad0")));
    }

    #[test]
    fn a_virtio_interface_stands_for_its_pci_function() {
        let root = tempfile::tempdir().unwrap();
        let device = |path: &str, bus: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(&path).unwrap();
            std::os::unix::fs::symlink(format!("/sys/bus/{bus}"), path.join("subsystem")).unwrap();
            path
        };
        let function = device("pci0000:00/0000:00:03.0", "pci");
        let virtio = device("pci0000:00/0000:00:03.0/virtio0", "virtio");
        assert_eq!(function_of(&virtio), function);
        assert_eq!(function_of(&function), function);
        device("platform/a003e00.virtio_mmio", "platform");
        let elsewhere = device("platform/a003e00.virtio_mmio/virtio1", "virtio");
        assert_eq!(function_of(&elsewhere), elsewhere);
        let usb = device("pci0000:00/0000:00:03.0/usb1", "usb");
        assert_eq!(function_of(&usb), usb);
    }

    #[test]
    fn processors_are_a_mask() {
        assert_eq!(mask_of("0-1").as_deref(), Some("00000003"));
        assert_eq!(mask_of("0,2,33-34").as_deref(), Some("00000006,00000005"));
        assert_eq!(mask_of("0-99999"), None);
        assert_eq!(mask_of(""), None);
    }
}

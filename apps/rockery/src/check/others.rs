//! Other RDMA devices of the machine, and variables that name devices.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::{Finding, Level};

/// How programs get rockery's devices in its place.
const REMEDY: &str = "start programs with rockery run, which hides it, or once for a whole shell: \
                      eval \"$(rockery env)\"";

/// Where the kernel shows its devices.
#[derive(Debug, Clone)]
pub(super) struct Folders {
    sys: PathBuf,
    dev: PathBuf,
}

impl Folders {
    /// Folders of this machine.
    pub(super) fn of_this_machine() -> Self {
        Self {
            sys: "/sys".into(),
            dev: "/dev".into(),
        }
    }
}

/// A line for each device of the kernel: whether it works, and what programs do with it.
pub(super) fn devices(folders: &Folders) -> Vec<Finding> {
    let class = folders.sys.join("class/infiniband");
    let mut found: Vec<Finding> = names(&class)
        .iter()
        .map(|name| device(folders, &class.join(name), name))
        .collect();
    if found.is_empty() {
        found.push(Finding::fine("other devices", "none"));
    }
    found
}

/// The entries of a folder, in order; none where it cannot be read.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    names
}

fn line(path: PathBuf) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned())
}

fn device(folders: &Folders, path: &Path, name: &str) -> Finding {
    let driver = driver(path, name);
    let faults = [opening(folders, name), limits(&driver), port(path)];
    let faults: Vec<String> = faults.into_iter().flatten().collect();
    let state = match faults.is_empty() {
        true => {
            "an RDMA device with a port that is up: programs without rockery run use it".to_owned()
        }
        false => format!(
            "an RDMA device that programs without rockery run find, and may fail on: {}",
            faults.join("; ")
        ),
    };
    Finding::new(
        Level::Interferes,
        name,
        format!("{state} (driver {driver})"),
        REMEDY,
    )
}

/// The name of a device's driver. The kernel's devices in software have no bus, and are told by their names.
fn driver(path: &Path, name: &str) -> String {
    let link = fs::read_link(path.join("device/driver")).ok();
    let driver = link.as_deref().and_then(Path::file_name);
    let known = driver.map(|driver| driver.to_string_lossy().into_owned());
    known.unwrap_or_else(
        || match name.trim_end_matches(|it: char| it.is_ascii_digit()) {
            "rxe" => "rdma_rxe".to_owned(),
            "siw" => "siw".to_owned(),
            "mana_" => "mana".to_owned(),
            _ => "unknown".to_owned(),
        },
    )
}

/// Why this user cannot open the device, if that is so.
fn opening(folders: &Folders, name: &str) -> Option<String> {
    let class = folders.sys.join("class/infiniband_verbs");
    let is_its = |node: &&String| line(class.join(node).join("ibdev")).as_deref() == Some(name);
    let all = names(&class);
    let Some(node) = all.iter().find(is_its) else {
        return Some("it has no uverbs device (the module ib_uverbs is not loaded)".to_owned());
    };
    let path = folders.dev.join("infiniband").join(node);
    let shown = format!("/dev/infiniband/{node}");
    match fs::File::options().read(true).write(true).open(&path) {
        Ok(_) => None,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Some(format!(
            "{shown} is not there, as in a container without the device"
        )),
        Err(error) => Some(format!("{shown} cannot be opened: {error}")),
    }
}

/// What devices of a driver cannot do.
fn limits(driver: &str) -> Option<String> {
    match driver {
        "mana" => Some(
            "Azure's MANA, which on most sizes of virtual machines has queue pairs for raw packets (DPDK) \
             and none that connect"
                .to_owned(),
        ),
        "efa" => Some("Amazon's EFA, which has no RC queue pairs and no RDMA-CM".to_owned()),
        "rdma_rxe" => {
            Some("the kernel's RoCE in software, which holds UDP port 4791 of its namespace".to_owned())
        }
        _ => None,
    }
}

/// What is wrong with the ports, where none is active.
fn port(path: &Path) -> Option<String> {
    let ports = path.join("ports");
    let states: Vec<String> = names(&ports)
        .iter()
        .filter_map(|port| {
            let state = line(ports.join(port).join("state"))?;
            let state = state.split_once(": ").map_or(&*state, |(_, name)| name);
            Some(format!("port {port} is {state}"))
        })
        .collect();
    match states.iter().any(|state| state.ends_with("is ACTIVE")) {
        true => None,
        false if states.is_empty() => Some("it has no port".to_owned()),
        false => Some(states.join(", ")),
    }
}

/// Variables by which libraries choose devices, and how their values are written.
const VARIABLES: [&str; 4] = [
    "UCX_NET_DEVICES",
    "NCCL_IB_HCA",
    "NVSHMEM_HCA_LIST",
    "FI_VERBS_DEVICE_NAME",
];

/// A finding for each variable that names no device of rockery.
pub(super) fn variables(value_of: impl Fn(&str) -> Option<String>) -> Vec<Finding> {
    let own: Vec<String> = host::list().into_iter().map(|device| device.name).collect();
    let one = |name: &&str| {
        let value = value_of(name).filter(|value| !value.is_empty())?;
        let named = named_device(&value)?;
        let is_ours = own.iter().any(|device| device.starts_with(named));
        (!is_ours).then(|| {
            Finding::new(
                Level::Interferes,
                name,
                format!("chooses {value}; rockery's devices are {}", own.join(", ")),
                format!(
                    "unset {name}, or name rockery's device so: rockery run --as {named} -- PROGRAM"
                ),
            )
        })
    };
    VARIABLES.iter().filter_map(one).collect()
}

/// The first device of a list such as `mlx5_0:1,mlx5_1:1` or `=mlx5_0`; `None` for `all`, and for a list of
/// devices that are not to be used.
fn named_device(value: &str) -> Option<&str> {
    let list = value.strip_prefix('=').unwrap_or(value);
    let first = list.split([',', ':']).next().unwrap_or_default().trim();
    (host::settings::is_device_name(first) && first != "all").then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// A machine with one device.
    fn machine(name: &str, driver: Option<&str>, state: &str, has_node: bool) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let write = |path: String, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let class = format!("sys/class/infiniband/{name}");
        write(format!("{class}/ports/1/state"), &format!("{state}\n"));
        if let Some(driver) = driver {
            write(format!("{class}/device/vendor"), "0x1414\n");
            let link = root.path().join(&class).join("device/driver");
            symlink(format!("../../../bus/pci/drivers/{driver}"), link).unwrap();
        }
        write(
            "sys/class/infiniband_verbs/uverbs3/ibdev".to_owned(),
            &format!("{name}\n"),
        );
        if has_node {
            write("dev/infiniband/uverbs3".to_owned(), "");
        }
        root
    }

    fn found(root: &tempfile::TempDir) -> Vec<Finding> {
        devices(&Folders {
            sys: root.path().join("sys"),
            dev: root.path().join("dev"),
        })
    }

    #[test]
    fn a_machine_without_devices_has_none() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(found(&root), [Finding::fine("other devices", "none")]);
    }

    #[test]
    fn azures_device_is_named_with_what_it_cannot_do() {
        let root = machine("mana_0", Some("mana"), "4: ACTIVE", true);
        let [mana] = &found(&root)[..] else {
            panic!("one device")
        };
        assert_eq!((mana.level, &*mana.subject), (Level::Interferes, "mana_0"));
        assert!(mana.found.contains("may fail on: Azure's MANA"), "{mana:?}");
        assert!(mana.found.ends_with("(driver mana)"), "{mana:?}");
    }

    #[test]
    fn an_adapter_that_does_not_work_says_why() {
        let root = machine("mlx5_0", Some("mlx5_core"), "1: DOWN", false);
        let [device] = &found(&root)[..] else {
            panic!("one device")
        };
        assert_eq!(
            device.found,
            "an RDMA device that programs without rockery run find, and may fail on: \
             /dev/infiniband/uverbs3 is not there, as in a container without the device; port 1 is DOWN \
             (driver mlx5_core)"
        );
    }

    #[test]
    fn an_adapter_that_works_is_what_programs_use() {
        let root = machine("mlx5_0", Some("mlx5_core"), "4: ACTIVE", true);
        assert!(
            found(&root)[0]
                .found
                .starts_with("an RDMA device with a port that is up")
        );
        let root = machine("rxe0", None, "4: ACTIVE", true);
        assert!(found(&root)[0].found.contains("holds UDP port 4791"));
    }

    #[test]
    fn variables_that_name_other_devices_are_found() {
        let only = |wanted: &'static str, value: &'static str| {
            variables(move |name| (name == wanted).then(|| value.to_owned()))
        };
        let [found] = &only("UCX_NET_DEVICES", "mlx5_0:1,mlx5_1:1")[..] else {
            panic!("one variable")
        };
        assert!(
            found.remedy.as_ref().unwrap().contains("--as mlx5_0"),
            "{found:?}"
        );
        assert_eq!(only("NCCL_IB_HCA", "=mlx5_2").len(), 1);
        for (name, value) in [
            ("UCX_NET_DEVICES", "all"),
            ("UCX_NET_DEVICES", "rk_lo:1"),
            ("NCCL_IB_HCA", "rk_"),
            ("NCCL_IB_HCA", "^mlx5_3"),
            ("NCCL_IB_HCA", ""),
        ] {
            assert_eq!(only(name, value), [], "{name}={value}");
        }
    }
}

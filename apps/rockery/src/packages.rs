//! The packages of Debian and Ubuntu that have RDMA programs, for programs that are not installed, and
//! folders that are not on `PATH`, for those that are.

use std::path::Path;

/// Programs, with `*` for any characters, and their package.
const PACKAGES: [(&[&str], &str); 10] = [
    (&["ib_*_bw", "ib_*_lat", "raw_ethernet_*"], "perftest"),
    (&["ibv_*"], "ibverbs-utils"),
    (
        &[
            "rping",
            "ucmatose",
            "cmtime",
            "udaddy",
            "udpong",
            "mckey",
            "rstream",
            "riostream",
            "rcopy",
            "rdma_client",
            "rdma_server",
            "rdma_xclient",
            "rdma_xserver",
        ],
        "rdmacm-utils",
    ),
    (
        &[
            "ibstat",
            "ibstatus",
            "ibaddr",
            "ibnetdiscover",
            "ibping",
            "iblinkinfo",
            "ibqueryerrors",
            "perfquery",
            "sminfo",
            "smpquery",
        ],
        "infiniband-diags",
    ),
    (&["opensm"], "opensm"),
    (&["ucx_*"], "ucx-utils"),
    (&["fi_*"], "libfabric-bin"),
    (&["qperf"], "qperf"),
    (&["iperf3"], "iperf3"),
    (&["nvme"], "nvme-cli"),
];

/// Folders with programs of administrators. Debian has them on `PATH` for root alone.
const FOLDERS: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// What to do where a program is missing.
pub(crate) fn advice(program: &str) -> String {
    advice_for(program, &FOLDERS)
}

fn advice_for(program: &str, folders: &[&str]) -> String {
    let mut folders = folders.iter();
    let folder = folders.find(|folder| Path::new(folder).join(program).is_file());
    if let Some(folder) = folder.filter(|_| !program.contains('/')) {
        return format!("it is in {folder}, which is not on PATH: call PATH=$PATH:{folder}");
    }
    let package = PACKAGES
        .iter()
        .find(|(programs, _)| programs.iter().any(|pattern| is_match(pattern, program)));
    match package {
        Some((_, package)) => format!("it is in the package {package} (apt install {package})"),
        None => "is it installed, and on PATH?".to_owned(),
    }
}

fn is_match(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        Some((start, end)) => {
            name.len() > start.len() + end.len() && name.starts_with(start) && name.ends_with(end)
        }
        None => pattern == name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_of_known_programs_are_named() {
        for (program, package) in [
            ("ib_write_bw", "perftest"),
            ("ibv_devinfo", "ibverbs-utils"),
            ("rping", "rdmacm-utils"),
            ("fi_info", "libfabric-bin"),
        ] {
            assert_eq!(
                advice_for(program, &[]),
                format!("it is in the package {package} (apt install {package})")
            );
        }
        for program in ["my-test", "ib_bw", "ibv_", "./ib_write_bw"] {
            assert!(advice_for(program, &[]).contains("PATH"), "{program}");
        }
    }

    #[test]
    fn a_program_of_another_folder_is_found_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_str().unwrap();
        std::fs::write(folder.path().join("ibstat"), "").unwrap();
        let found = advice_for("ibstat", &["/nowhere", path]);
        assert_eq!(
            found,
            format!("it is in {path}, which is not on PATH: call PATH=$PATH:{path}")
        );
        assert!(advice_for("opensm", &[path]).contains("apt install opensm"));
        // A path is looked for at one place.
        assert!(!advice_for("./ibstat", &[path]).contains("not on PATH"));
    }
}

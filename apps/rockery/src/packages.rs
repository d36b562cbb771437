//! The packages of Debian and Ubuntu that have RDMA programs, for programs that are not installed.

/// Programs, with `*` for any characters, and their package.
const PACKAGES: [(&[&str], &str); 9] = [
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
            "perfquery",
            "smpquery",
        ],
        "infiniband-diags",
    ),
    (&["ucx_*"], "ucx-utils"),
    (&["fi_*"], "libfabric-bin"),
    (&["qperf"], "qperf"),
    (&["iperf3"], "iperf3"),
    (&["nvme"], "nvme-cli"),
];

/// What to do where a program is missing.
pub(crate) fn advice(program: &str) -> String {
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
                advice(program),
                format!("it is in the package {package} (apt install {package})")
            );
        }
        for program in ["my-test", "ib_bw", "ibv_", "./ib_write_bw"] {
            assert!(advice(program).contains("PATH"), "{program}");
        }
    }
}

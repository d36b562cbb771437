//! Programs that look for devices in `/sys` and `/dev`: no variable set by hand, no root needed, both ways.

use programs::probe::Probe;
use programs::{Job, Machine, Namespace, Pair, Rockery};

const SECONDS: u64 = 60;
const BOTH: [&str; 2] = ["preload", "namespace"];

/// Runs a program in a namespace of the test with a view of this kind, and returns what it printed.
fn look(namespace: &Namespace, view: &str, argv: &[&str]) -> String {
    let rockery = Rockery::built();
    let path = rockery.path().to_string_lossy();
    let run = [&*path, "run", "--view", view, "--"];
    let mut job = namespace.start_plain(&[&run, argv].concat()).expect("it starts");
    let finished = job.wait(SECONDS).expect("in time");
    finished.expect_success().output
}

#[test]
fn ibstat_and_ibstatus_tell_what_verbs_tell() {
    let pair = Pair::new(1500).unwrap();
    for view in BOTH {
        let listed = look(&pair.left, view, &["ibstat", "-l"]);
        assert_eq!(listed.lines().collect::<Vec<_>>(), ["rk_eth0", "rk_lo"]);
        let devinfo = look(&pair.left, view, &["ibv_devinfo", "-d", "rk_eth0"]);
        let guid = devinfo.lines().find_map(|line| line.trim().strip_prefix("node_guid:")).unwrap().trim();
        let stat = look(&pair.left, view, &["ibstat", "rk_eth0"]);
        let said = |what: &str| assert!(stat.contains(what), "{view}: no {what} in\n{stat}");
        said(&format!("Node GUID: 0x{}", guid.replace(':', "")));
        said("State: Active");
        said("Physical state: LinkUp");
        said("Rate: 100");
        assert!(look(&pair.left, view, &["ibstat", "rk_lo"]).contains("Rate: 10 (FDR10)"));
        said("Link layer: Ethernet");
        assert!(devinfo.contains("board_id:\t\t\trockery"), "{devinfo}");
        let status = look(&pair.left, view, &["ibstatus", "rk_eth0:1"]);
        assert!(status.contains("4: ACTIVE") && status.contains("100 Gb/sec (4X EDR)"), "{status}");
    }
}

#[test]
fn files_are_what_a_shell_finds_them_to_be() {
    let pair = Pair::new(1500).unwrap();
    let script = "set -e; cd /sys/class/infiniband; echo *; cat rk_eth0/ports/1/gids/1
        cat rk_eth0/ports/1/gid_attrs/types/1; ls rk_eth0/device/net
        test -c /dev/infiniband/uverbs$(cat /sys/class/net/eth0/ifindex) && echo character device
        echo 0 >/dev/null; cat /sys/class/net/eth0/mtu; test -e /sys/class/infiniband/mlx5_0 || echo none";
    for view in BOTH {
        let said = look(&pair.left, view, &["bash", "-c", script]);
        let expected = ["rk_eth0 rk_lo", "0000:0000:0000:0000:0000:ffff:0a58:0001", "RoCE v2", "eth0"];
        let expected = [&expected[..], &["character device", "1500", "none"]].concat();
        assert_eq!(said.lines().collect::<Vec<_>>(), expected, "{view}");
    }
}

#[test]
fn an_ordinary_user_needs_no_rights() {
    let pair = Pair::new(1500).unwrap();
    let (_prefix, rockery) = Rockery::built().installed();
    let path = rockery.to_string_lossy();
    let user = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", &*path, "run", "--view"];
    for view in BOTH {
        let argv = [&user[..], &[view, "--", "sh", "-c", "id -u; ibstat -l"]].concat();
        let said = pair.left.start_plain(&argv).unwrap().wait(SECONDS).unwrap().expect_success().output;
        assert_eq!(said.lines().collect::<Vec<_>>(), ["65534", "rk_eth0", "rk_lo"], "{view}");
    }
}

/// The way that is taken when nothing is said makes no namespace; the other says why it cannot.
#[test]
fn where_namespaces_are_forbidden_nothing_is_missed() {
    let confine = Probe::compile("confine").unwrap();
    let pair = Pair::new(1500).unwrap();
    let rockery = Rockery::built();
    let run = [&*confine.path().to_string_lossy(), "namespaces", &*rockery.path().to_string_lossy(), "run"];
    let confined = |argv: &[&str]| {
        let mut job = pair.left.start_plain(&[&run, argv].concat()).expect("it starts");
        job.wait(SECONDS).expect("in time")
    };
    let listed = confined(&["--", "ibstat", "-l"]).expect_success().output;
    assert_eq!(listed.lines().collect::<Vec<_>>(), ["rk_eth0", "rk_lo"]);
    let found = confined(&["--", "ucx_info", "-d"]).expect_success().output;
    assert!(found.contains("Transport: rc_verbs\n#         Device: rk_eth0:1"), "{found}");
    let refused = confined(&["--view", "namespace", "--", "ibstat", "-l"]);
    assert!(!refused.succeeded() && refused.output.contains("--view preload"), "{}", refused.output);
}

#[test]
fn without_a_view_there_is_nothing() {
    let alone = Namespace::alone().unwrap();
    let said =
        look(&alone, "none", &["sh", "-c", "ls /sys/class/infiniband /dev/infiniband 2>/dev/null; true"]);
    assert_eq!(said, "");
}

#[test]
fn a_hidden_device_is_hidden_here_too() {
    let pair = Pair::new(1500).unwrap();
    for view in BOTH {
        let rockery = Rockery::built();
        let path = rockery.path().to_string_lossy();
        let argv = [&*path, "run", "--device", "eth0", "--view", view, "--", "ls", "/sys/class/infiniband"];
        let said = pair.left.start_plain(&argv).unwrap().wait(SECONDS).unwrap().expect_success().output;
        assert_eq!(said, "rk_eth0\n", "{view}");
    }
}

/// NCCL links no library: it looks each of its functions up, by name and version.
#[test]
fn a_program_that_loads_libraries_as_nccl_does_finds_all_it_asks_for() {
    let probe = Probe::compile("loader").unwrap();
    let path = probe.path().to_string_lossy();
    let pair = Pair::new(1500).unwrap();
    for view in BOTH {
        let said = look(&pair.left, view, &[&*path, "rk_eth0", "10.88.0.1"]);
        assert!(
            said.contains("26 of 26 functions") && said.contains("65536 bytes written"),
            "{view}:\n{said}"
        );
    }
    let rockery = Rockery::built();
    let alone = Namespace::alone().unwrap().with(&rockery);
    alone.run(&[&*path, "rk_lo", "127.0.0.1"], SECONDS).unwrap().expect_success();
}

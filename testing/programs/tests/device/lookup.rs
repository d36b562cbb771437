//! Programs that look for devices in `/sys` and `/dev`: no variable set by hand, no root needed, both ways.

use programs::machine::until;
use programs::probe::Probe;
use programs::{Exchange, Job, Machine, Namespace, Pair, Rockery};

const SECONDS: u64 = 60;
const BOTH: [&str; 2] = ["preload", "namespace"];

/// Runs a program in a namespace of the test with a view of this kind, and returns what it printed.
fn look(namespace: &Namespace, view: &str, argv: &[&str]) -> String {
    let rockery = Rockery::built();
    let path = rockery.path().to_string_lossy();
    let run = [&*path, "run", "--view", view, "--"];
    let mut job = namespace
        .start_plain(&[&run, argv].concat())
        .expect("it starts");
    let finished = job.wait(SECONDS).expect("in time");
    finished.expect_success().output
}

#[test]
fn ibstat_and_ibstatus_print_what_verbs_report() {
    let pair = Pair::new(1500).unwrap();
    for view in BOTH {
        let listed = look(&pair.left, view, &["ibstat", "-l"]);
        assert_eq!(listed.lines().collect::<Vec<_>>(), ["rk_eth0", "rk_lo"]);
        let devinfo = look(&pair.left, view, &["ibv_devinfo", "-d", "rk_eth0"]);
        let guid = devinfo
            .lines()
            .find_map(|line| line.trim().strip_prefix("node_guid:"))
            .unwrap()
            .trim();
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
        assert!(
            status.contains("4: ACTIVE") && status.contains("100 Gb/sec (4X EDR)"),
            "{status}"
        );
    }
}

#[test]
fn shells_see_the_files_of_the_view() {
    let pair = Pair::new(1500).unwrap();
    let script = "set -e; cd /sys/class/infiniband; echo *; cat rk_eth0/ports/1/gids/1
        cat rk_eth0/ports/1/gid_attrs/types/1; ls rk_eth0/device/net
        test -c /dev/infiniband/uverbs$(cat /sys/class/net/eth0/ifindex) && echo character device
        echo 0 >/dev/null; cat /sys/class/net/eth0/mtu; test -e /sys/class/infiniband/mlx5_0 || echo none";
    for view in BOTH {
        let said = look(&pair.left, view, &["bash", "-c", script]);
        let expected = [
            "rk_eth0 rk_lo",
            "0000:0000:0000:0000:0000:ffff:0a58:0001",
            "RoCE v2",
            "eth0",
        ];
        let expected = [&expected[..], &["character device", "1500", "none"]].concat();
        assert_eq!(said.lines().collect::<Vec<_>>(), expected, "{view}");
    }
}

#[test]
fn an_ordinary_user_needs_no_rights() {
    let pair = Pair::new(1500).unwrap();
    let (_prefix, rockery) = Rockery::built().installed();
    let path = rockery.to_string_lossy();
    let user = [
        "setpriv",
        "--reuid",
        "65534",
        "--regid",
        "65534",
        "--clear-groups",
        &*path,
        "run",
        "--view",
    ];
    for view in BOTH {
        let argv = [&user[..], &[view, "--", "sh", "-c", "id -u; ibstat -l"]].concat();
        let said = pair
            .left
            .start_plain(&argv)
            .unwrap()
            .wait(SECONDS)
            .unwrap()
            .expect_success()
            .output;
        assert_eq!(
            said.lines().collect::<Vec<_>>(),
            ["65534", "rk_eth0", "rk_lo"],
            "{view}"
        );
    }
}

/// The default method makes no namespace; the other one fails with a reason.
#[test]
fn the_preloaded_view_works_where_namespaces_are_forbidden() {
    let confine = Probe::compile("confine").unwrap();
    let pair = Pair::new(1500).unwrap();
    let rockery = Rockery::built();
    let run = [
        &*confine.path().to_string_lossy(),
        "namespaces",
        &*rockery.path().to_string_lossy(),
        "run",
    ];
    let confined = |argv: &[&str]| {
        let mut job = pair
            .left
            .start_plain(&[&run, argv].concat())
            .expect("it starts");
        job.wait(SECONDS).expect("in time")
    };
    let listed = confined(&["--", "ibstat", "-l"]).expect_success().output;
    assert_eq!(listed.lines().collect::<Vec<_>>(), ["rk_eth0", "rk_lo"]);
    let found = confined(&["--", "ucx_info", "-d"]).expect_success().output;
    assert!(
        found.contains("Transport: rc_verbs\n#         Device: rk_eth0:1"),
        "{found}"
    );
    let refused = confined(&["--view", "namespace", "--", "ibstat", "-l"]);
    assert!(
        !refused.succeeded() && refused.output.contains("--view preload"),
        "{}",
        refused.output
    );
}

#[test]
fn without_a_view_no_device_files_exist() {
    let alone = Namespace::alone().unwrap();
    let said = look(
        &alone,
        "none",
        &[
            "sh",
            "-c",
            "ls /sys/class/infiniband /dev/infiniband 2>/dev/null; true",
        ],
    );
    assert_eq!(said, "");
}

#[test]
fn a_hidden_device_is_hidden_here_too() {
    let pair = Pair::new(1500).unwrap();
    for view in BOTH {
        let rockery = Rockery::built();
        let path = rockery.path().to_string_lossy();
        let argv = [
            &*path,
            "run",
            "--device",
            "eth0",
            "--view",
            view,
            "--",
            "ls",
            "/sys/class/infiniband",
        ];
        let said = pair
            .left
            .start_plain(&argv)
            .unwrap()
            .wait(SECONDS)
            .unwrap()
            .expect_success()
            .output;
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
    alone
        .run(&[&*path, "rk_lo", "127.0.0.1"], SECONDS)
        .unwrap()
        .expect_success();
}

/// iproute2's tool asks the kernel over netlink; scripts and tests of other projects look there.
#[test]
fn rdma_lists_devices_links_and_counters() {
    let pair = Pair::new(1500).unwrap();
    let index = pair.left.call("cat /sys/class/net/eth0/ifindex").unwrap();
    let rdma = |words: &[&str]| look(&pair.left, "preload", &[&["rdma"], words].concat());
    let links = rdma(&["link"]);
    assert!(
        links.contains("link rk_eth0/1 state ACTIVE physical_state LINK_UP netdev eth0"),
        "{links}"
    );
    assert!(
        links.contains("link rk_lo/1 ") && links.lines().count() == 2,
        "{links}"
    );
    let devices = rdma(&["dev", "show", "rk_eth0"]);
    assert!(
        devices.contains(&format!("{}: rk_eth0: node_type ca", index.trim())),
        "{devices}"
    );
    let guid = look(
        &pair.left,
        "preload",
        &["cat", "/sys/class/infiniband/rk_eth0/node_guid"],
    );
    assert!(
        devices.contains(&format!("node_guid {}", guid.trim())),
        "{devices}"
    );
    let statistics = rdma(&["statistic", "show", "link", "rk_lo/1"]);
    assert!(
        statistics.contains("link rk_lo/1") && statistics.contains("out_of_sequence 0"),
        "{statistics}"
    );
    let json = rdma(&["-j", "link"]);
    assert!(
        json.contains("\"ifname\":\"rk_eth0\"") && json.contains("\"netdev\":\"eth0\""),
        "{json}"
    );
}

#[test]
fn unsupported_requests_of_rdma_fail_with_an_error() {
    let pair = Pair::new(1500).unwrap();
    let script =
        "rdma resource show qp; echo status $?; rdma link add rxe0 type rxe netdev eth0; echo status $?
        rdma dev show nothing; echo status $?";
    let said = look(&pair.left, "preload", &["sh", "-c", script]);
    let failed = said
        .lines()
        .filter(|line| line.starts_with("status ") && *line != "status 0")
        .count();
    assert_eq!(failed, 3, "{said}");
}

#[test]
fn counters_follow_the_traffic() {
    let pair = Pair::with_rockery(1500);
    let argv = ["ib_write_bw", "--run_infinitely", "-s", "4096", "-x", "1"];
    let mut server = pair.left.start(&argv).unwrap();
    pair.left.wait_for_listener(18515, SECONDS).unwrap();
    let address = pair.left.address().to_string();
    let mut client = pair
        .right
        .start(&[&argv[..], &[&address]].concat())
        .unwrap();
    let folder = "/sys/class/infiniband/rk_eth0/ports/1";
    let value = |name: &str| -> u64 {
        let said = look(
            &pair.right,
            "preload",
            &["cat", &format!("{folder}/{name}")],
        );
        said.trim().parse().expect(&said)
    };
    assert!(until(SECONDS, || Ok(value("counters/port_xmit_data") > 1 << 20)).unwrap());
    let before = value("hw_counters/sent_packets");
    assert!(until(SECONDS, || Ok(value("hw_counters/sent_packets") > before)).unwrap());
    // A shell that works in the folder, and lists it.
    let listed = look(
        &pair.right,
        "preload",
        &["sh", "-c", &format!("cd {folder}/counters; grep -H . *")],
    );
    let sent = listed
        .lines()
        .find_map(|line| line.strip_prefix("port_xmit_packets:"))
        .unwrap();
    assert!(
        sent.parse::<u64>().unwrap() > 0 && listed.contains("port_rcv_errors:0"),
        "{listed}"
    );
    let told = look(
        &pair.right,
        "preload",
        &["rdma", "statistic", "show", "link", "rk_eth0/1"],
    );
    assert!(!told.contains("sent_packets 0 "), "{told}");
    client.kill().unwrap();
    server.kill().unwrap();
    assert!(
        until(SECONDS, || Ok(value("counters/port_xmit_data") == 0)).unwrap(),
        "no program has it open"
    );
}

/// Programs name the indices 0, 1 and 3 without looking at the table.
#[test]
fn common_gid_indices_are_the_ipv4_address() {
    let pair = Pair::with_rockery(1500);
    for end in [&pair.left, &pair.right] {
        end.call("sysctl -qw net.ipv6.conf.eth0.disable_ipv6=1")
            .unwrap();
    }
    for index in ["0", "1", "2", "3"] {
        let argv = [
            "ibv_rc_pingpong",
            "-d",
            "rk_eth0",
            "-g",
            index,
            "-n",
            "20",
            "-c",
        ];
        let done = Exchange::run(&pair.left, &pair.right, &argv, "-g", 18515, SECONDS).unwrap();
        done.expect_success();
    }
    // The same in the files, as verbs tell it.
    let script = "cd /sys/class/infiniband/rk_eth0/ports/1
        for i in 0 1 2 3 4; do echo $(cat gids/$i) $(cat gid_attrs/types/$i 2>/dev/null); done";
    let files = look(&pair.left, "preload", &["sh", "-c", script]);
    let address = "0000:0000:0000:0000:0000:ffff:0a58:0001 RoCE v2";
    let none = "0000:0000:0000:0000:0000:0000:0000:0000";
    assert_eq!(
        files.lines().collect::<Vec<_>>(),
        [address, address, address, address, none]
    );
    let verbs = look(
        &pair.left,
        "preload",
        &["ibv_devinfo", "-v", "-d", "rk_eth0"],
    );
    let gids = verbs
        .lines()
        .filter(|line| line.contains("GID[") && line.contains("::ffff:10.88.0.1"));
    assert_eq!(gids.count(), 4, "{verbs}");
}

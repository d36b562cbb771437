//! `rockery run --as`: devices with the names by which programs choose them.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where")]

use programs::{Exchange, Job, Machine, Namespace, Pair, Rockery, perftest};

const SECONDS: u64 = 120;
const UCX_PORT: u16 = 13337;
const NAMED: [&str; 2] = ["--as", "mlx5_0"];

/// Runs a program with these options of `run`; returns its exit status and what it printed.
fn run(namespace: &Namespace, options: &[&str], argv: &[&str]) -> (Option<i32>, String) {
    let rockery = Rockery::built();
    let path = rockery.path().to_string_lossy();
    let mut job = namespace
        .start_plain(&[&[&*path, "run"], options, &["--"], argv].concat())
        .unwrap();
    let finished = job.wait(SECONDS).unwrap();
    (finished.status, finished.output)
}

#[test]
fn programs_find_the_device_by_its_name_and_others_do_not() {
    let pair = Pair::new(1500).unwrap();
    let (status, said) = run(&pair.left, &NAMED, &["ibv_devinfo", "-d", "mlx5_0"]);
    assert!(
        status == Some(0) && said.contains("mlx5_0") && said.contains("PORT_ACTIVE"),
        "{said}"
    );
    let (status, said) = run(&pair.left, &NAMED, &["ibv_devinfo", "-d", "rk_eth0"]);
    assert!(status != Some(0), "the usual name is gone: {said}");
    let (_, said) = run(&pair.left, &[], &["ibv_devices"]);
    assert!(
        said.contains("rk_eth0") && !said.contains("mlx5_0"),
        "off by default: {said}"
    );
    let (_, said) = run(
        &pair.left,
        &["--as", "mlx5_0", "--as", "mlx5_1"],
        &["ibv_devices"],
    );
    assert!(
        said.contains("mlx5_0") && said.contains("mlx5_1") && !said.contains("rk_"),
        "{said}"
    );
    let (_, said) = run(
        &pair.left,
        &["--device", "rk_lo", "--as", "mlx5_0"],
        &["ibv_devices"],
    );
    assert_eq!(said.matches("mlx5_0").count(), 1, "{said}");
    assert!(!said.contains("rk_"), "{said}");
}

#[test]
fn views_of_both_kinds_and_netlink_have_the_name() {
    let pair = Pair::new(1500).unwrap();
    let script = "cd /sys/class/infiniband && echo * && cat mlx5_0/ports/1/state \
                  && ls mlx5_0/device/net && ibstat -l";
    for view in ["preload", "namespace"] {
        let (status, said) = run(
            &pair.left,
            &["--as", "mlx5_0", "--view", view],
            &["bash", "-c", script],
        );
        let expected = ["mlx5_0 rk_lo", "4: ACTIVE", "eth0", "mlx5_0", "rk_lo"];
        assert_eq!(
            (status, said.lines().collect::<Vec<_>>()),
            (Some(0), expected.to_vec()),
            "{view}"
        );
    }
    let (_, said) = run(&pair.left, &NAMED, &["rdma", "link"]);
    assert!(
        said.contains("link mlx5_0/1 state ACTIVE") && said.contains("netdev eth0"),
        "{said}"
    );
}

#[test]
fn perftest_chooses_the_device_and_its_counters_count() {
    const OPTIONS: &[&str] = &["--as", "mlx5_0", "--no-same-host"];
    let rockery = Rockery::with_options(OPTIONS);
    let pair = Pair::new(1500).unwrap().with(&rockery);
    let rows = perftest::expect(
        &pair.left,
        &pair.right,
        "ib_write_bw -d mlx5_0 -s 65536 -n 200",
    );
    assert_eq!(rows.len(), 1, "{rows:?}");
    // The counters of a view are those of the programs that have the device open: these two, one of which
    // may start before the other listens.
    let address = pair.left.address();
    let script = format!(
        "ib_write_bw -d mlx5_0 -D 60 >/dev/null 2>&1 &
         for try in $(seq 200); do
           jobs -r | grep -q {address} || ib_write_bw -d mlx5_0 -D 60 {address} >/dev/null 2>&1 &
           sleep 0.1
           count=$(cat /sys/class/infiniband/mlx5_0/ports/1/counters/port_xmit_packets)
           test $count -gt 100 && break
         done
         kill $(jobs -p); echo counted $count"
    );
    let (_, said) = run(&pair.left, OPTIONS, &["bash", "-c", &script]);
    let count = said
        .lines()
        .find_map(|line| line.strip_prefix("counted ")?.trim().parse::<u64>().ok());
    assert!(count.is_some_and(|count| count > 100), "{said}");
}

#[test]
fn ucx_chooses_the_device_by_name() {
    let pair = Pair::new(1500)
        .unwrap()
        .with(&Rockery::with_options(&NAMED));
    let line = format!(
        "env UCX_NET_DEVICES=mlx5_0:1 UCX_TLS=rc_verbs,ud_verbs ucx_perftest \
         -p {UCX_PORT} -w 10 -n 500 -t tag_lat"
    );
    let argv: Vec<&str> = line.split_whitespace().collect();
    let exchange = Exchange::run(&pair.left, &pair.right, &argv, "-x", UCX_PORT, SECONDS);
    let exchange = exchange.unwrap().expect_success();
    assert!(
        exchange.client.output.contains("Final:"),
        "{}",
        exchange.client.output
    );
}

#[test]
fn names_that_cannot_be_given_are_refused() {
    let pair = Pair::new(1500).unwrap();
    for (options, reason) in [
        (
            &["--as", "a", "--as", "b", "--as", "c"][..],
            "leave out names",
        ),
        (&["--as", "a", "--as", "a"], "two devices would be called a"),
        (&["--as", "rk_lo"], "two devices would be called rk_lo"),
        (&["--as", "a/b"], "letters, digits"),
    ] {
        let (status, said) = run(&pair.left, options, &["ibv_devices"]);
        assert!(
            status != Some(0) && said.contains(reason),
            "{options:?}: {said}"
        );
    }
}

//! UCX, and OpenMPI over it, which find the device as they find hardware, without variables.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use programs::probe::Probe;
use programs::{Exchange, Machine, Namespace, Pair, Rockery};
use tempfile::TempDir;

const PORT: u16 = 13337;
const SECONDS: u64 = 120;

/// Runs `ucx_perftest` between two machines, with variables of UCX before it.
fn expect(server: &dyn Machine, client: &dyn Machine, variables: &str, test: &str) {
    let line = format!("env {variables} ucx_perftest -p {PORT} -w 10 {test}");
    let argv: Vec<&str> = line.split_whitespace().collect();
    let exchange = Exchange::run(server, client, &argv, "-x", PORT, SECONDS);
    let exchange = exchange
        .unwrap_or_else(|error| panic!("{line}: {error}"))
        .expect_success();
    assert!(
        exchange.client.output.contains("Final:"),
        "{line}:\n{}",
        exchange.client.output
    );
}

#[test]
fn ucx_finds_the_transports_that_verbs_give() {
    let pair = Pair::with_rockery(1500);
    let found = pair
        .left
        .run(&["ucx_info", "-d"], SECONDS)
        .unwrap()
        .expect_success()
        .output;
    for device in ["rk_eth0:1", "rk_lo:1"] {
        for transport in ["rc_verbs", "ud_verbs"] {
            let lines = format!("Transport: {transport}\n#         Device: {device}");
            assert!(
                found.contains(&lines),
                "no {transport} on {device}:\n{found}"
            );
        }
    }
    assert!(!found.contains("WARN"), "{found}");
}

#[test]
fn uct_runs_over_rc() {
    let pair = Pair::with_rockery(1500);
    for test in [
        "put_lat -s 8",
        "put_bw -s 1024 -D bcopy",
        "put_bw -s 65536 -D zcopy",
        "get -s 4096 -D zcopy",
    ] {
        expect(
            &pair.left,
            &pair.right,
            "",
            &format!("-d rk_eth0:1 -x rc_verbs -n 500 -t {test}"),
        );
    }
    for test in ["am_lat -s 8", "am_bw -s 2048 -D zcopy"] {
        expect(
            &pair.left,
            &pair.right,
            "",
            &format!("-d rk_eth0:1 -x rc_verbs -n 500 -t {test}"),
        );
    }
}

#[test]
fn ucx_atomics_are_executed_by_the_device() {
    let pair = Pair::with_rockery(1500);
    let found = pair
        .left
        .run(&["ucx_info", "-d", "-t", "rc_verbs"], SECONDS)
        .unwrap()
        .expect_success()
        .output;
    for what in [
        "atomic_add: 64 bit",
        "atomic_fadd: 64 bit",
        "atomic_cswap: 64 bit",
    ] {
        assert!(found.contains(what), "no {what}:\n{found}");
    }
    for test in ["add_lat", "add_mr", "fadd", "cswap"] {
        expect(
            &pair.left,
            &pair.right,
            "",
            &format!("-d rk_eth0:1 -x rc_verbs -n 500 -s 8 -t {test}"),
        );
    }
    for test in ["ucp_add", "ucp_fadd", "ucp_cswap", "ucp_swap"] {
        let variables = "UCX_TLS=rc UCX_NET_DEVICES=rk_eth0:1";
        expect(
            &pair.left,
            &pair.right,
            variables,
            &format!("-n 200 -s 8 -t {test}"),
        );
    }
}

#[test]
fn uct_runs_over_ud() {
    let pair = Pair::with_rockery(9000);
    for test in [
        "am_lat -s 8",
        "am_bw -s 8",
        "am_bw -s 2048 -D bcopy",
        "am_bw -s 4000 -D zcopy",
    ] {
        expect(
            &pair.left,
            &pair.right,
            "",
            &format!("-d rk_eth0:1 -x ud_verbs -n 500 -t {test}"),
        );
    }
}

#[test]
fn ucp_runs_over_rc_and_ud() {
    for (mtu, transports) in [(1500, "rc"), (9000, "rc"), (1500, "ud"), (9000, "ud")] {
        let pair = Pair::with_rockery(mtu);
        let variables = format!("UCX_TLS={transports} UCX_NET_DEVICES=rk_eth0:1");
        for test in [
            "tag_bw -s 65536",
            "tag_lat -s 8",
            "ucp_put_bw -s 65536",
            "ucp_get -s 65536",
            "stream_bw -s 1024",
        ] {
            expect(
                &pair.left,
                &pair.right,
                &variables,
                &format!("-n 200 -t {test}"),
            );
        }
    }
}

#[test]
fn uct_and_ucp_run_on_one_host() {
    let alone = Namespace::with_rockery();
    for (transport, test) in [
        ("rc_verbs", "put_lat -s 8"),
        ("rc_verbs", "put_bw -s 65536 -D zcopy"),
        ("rc_verbs", "get -s 4096 -D zcopy"),
        ("rc_verbs", "am_bw -s 2048 -D zcopy"),
        ("ud_verbs", "am_lat -s 8"),
        ("ud_verbs", "am_bw -s 2048 -D bcopy"),
    ] {
        expect(
            &alone,
            &alone,
            "",
            &format!("-d rk_lo:1 -x {transport} -n 500 -t {test}"),
        );
    }
    for transport in ["rc", "ud"] {
        let variables = format!("UCX_TLS={transport} UCX_NET_DEVICES=rk_lo:1");
        for test in [
            "tag_lat -s 8",
            "ucp_put_bw -s 65536",
            "ucp_get -s 65536",
            "stream_bw -s 1024",
        ] {
            expect(&alone, &alone, &variables, &format!("-n 200 -t {test}"));
        }
    }
}

#[test]
fn ucx_runs_over_the_loopback_and_over_ipv6() {
    let alone = Namespace::with_rockery();
    expect(
        &alone,
        &alone,
        "UCX_TLS=rc UCX_NET_DEVICES=rk_lo:1",
        "-n 200 -t tag_bw -s 65536",
    );
    let pair = Pair::with_rockery(1500);
    for transport in ["rc", "ud"] {
        let variables = format!("UCX_TLS={transport} UCX_NET_DEVICES=rk_eth0:1 UCX_IB_GID_INDEX=2");
        expect(
            &pair.left,
            &pair.right,
            &variables,
            "-n 200 -t tag_bw -s 65536",
        );
    }
}

/// Compiles `probe/mpi_transfers.c` with OpenMPI's compiler.
fn mpi_program() -> Probe {
    Probe::compile_with("mpicc", "mpi_transfers", &[]).expect("mpicc: libopenmpi-dev has it")
}

const MPIRUN: &str =
    "mpirun --allow-run-as-root --oversubscribe --mca pml ucx --mca osc ucx --mca btl ^openib,ofi";

#[test]
fn mpi_ranks_on_one_host_exchange_what_they_check() {
    let alone = Namespace::with_rockery();
    let probe = mpi_program();
    for (transports, ranks) in [("rc", 2), ("ud", 2), ("rc", 4), ("ud", 4)] {
        let line = format!(
            "{MPIRUN} -np {ranks} -x UCX_TLS={transports} {}",
            probe.path().display()
        );
        let argv: Vec<&str> = line.split_whitespace().collect();
        let said = alone.run(&argv, SECONDS).unwrap().expect_success().output;
        assert!(
            said.contains(&format!("all {ranks} ranks are right")),
            "{said}"
        );
    }
}

/// The program that mpirun runs, in place of ssh, to start its daemon on another host.
fn launch_agent(pair: &Pair, folder: &Path) -> PathBuf {
    let path = folder.join("agent");
    let (left, right) = (pair.left.netns(), pair.right.netns());
    let rockery = Rockery::built().path().display().to_string();
    let script = format!(
        "#!/bin/sh\ncase $1 in {}) host={left};; *) host={right};; esac\nshift\n\
         exec ip netns exec $host {rockery} run -- sh -c \"$*\"\n",
        pair.left.address()
    );
    fs::write(&path, script).expect("a temporary file");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("our own file");
    path
}

/// Each rank talks to one on the other host, and where there are four to one on its own as well. UCX is given
/// no device: it must not take the loopback's, which each host has, for a way to the other.
#[test]
fn mpi_ranks_on_two_hosts_exchange_what_they_check() {
    let (probe, folder) = (mpi_program(), TempDir::new().unwrap());
    for mtu in [1500, 9000] {
        let pair = Pair::with_rockery(mtu);
        let agent = launch_agent(&pair, folder.path());
        let [left, right] = [pair.left.address(), pair.right.address()];
        let hosts = format!(
            "--host {left}:2,{right}:2 --map-by node --mca plm_rsh_agent {}",
            agent.display()
        );
        for (transports, ranks, gid) in [
            ("rc", 2, 1),
            ("ud", 2, 1),
            ("rc", 4, 1),
            ("ud", 4, 1),
            ("rc", 2, 2),
        ] {
            let variables = format!("-x UCX_TLS={transports} -x UCX_IB_GID_INDEX={gid}");
            let line = format!(
                "{MPIRUN} {hosts} -np {ranks} {variables} {}",
                probe.path().display()
            );
            let argv: Vec<&str> = line.split_whitespace().collect();
            let said = pair
                .left
                .run(&argv, SECONDS)
                .unwrap()
                .expect_success()
                .output;
            assert!(
                said.contains(&format!("all {ranks} ranks are right")),
                "{line}:\n{said}"
            );
        }
    }
}

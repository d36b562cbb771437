//! Programs as they are packaged, on the hosts of a lab: connections, datagrams, MPI, storage.

use programs::live;
use programs::probe::Probe;

const SECONDS: u64 = 300;

#[test]
fn rping_connects_and_checks_what_it_reads() {
    let said = live::script(
        r#"
        $R lab up -d $F/lab.toml || exit 1
        $R lab exec server -- rping -s -C 20 -v >$D/server 2>&1 &
        for _ in $(seq 50); do
            $R lab exec sender0 -- rping -c -a 10.0.0.1 -C 20 -v -V >$D/client 2>&1 && break
            sleep 0.2
        done
        wait
        echo "client: $(grep -c 'ping data' $D/client), server: $(grep -c 'ping data' $D/server)"
        down"#,
        SECONDS,
    );
    live::expect_lines(
        &said,
        &["client: 20, server: 20", "left: 0 processes, 0 sockets"],
    );
}

#[test]
fn datagrams_of_perftest_and_of_udaddy_cross_the_switch() {
    let said = live::script(
        r#"
        set -e
        $R lab up -d $F/lab.toml
        $R lab exec server -- ib_send_bw -c UD -n 400 -s 2048 >/dev/null &
        until_it_listens 4853
        $R lab exec sender0 -- ib_send_bw -c UD -n 400 -s 2048 server | grep -A2 '#bytes'
        wait
        $R lab exec server -- udaddy -c 4 -C 10 -S 1000 >$D/server 2>&1 &
        set +e
        for _ in $(seq 50); do
            $R lab exec sender1 -- udaddy -s 10.0.0.1 -c 4 -C 10 -S 1000 >$D/client 2>&1
            grep -q 'return status 0' $D/client && break
            sleep 0.2
        done
        wait
        cat $D/client $D/server
        $R lab ps --json | grep -o '"rdma_received":[0-9]*'
        down"#,
        SECONDS,
    );
    assert!(
        said.lines()
            .any(|line| line.trim().starts_with("2048") && line.contains("400")),
        "{said}"
    );
    assert_eq!(said.matches("return status 0").count(), 2, "{said}");
    live::expect_lines(&said, &["left: 0 processes, 0 sockets"]);
    let received = said.split("\"rdma_received\":").skip(1);
    let most = received
        .filter_map(|rest| rest.lines().next()?.parse().ok())
        .max();
    assert!(
        most.is_some_and(|packets: u64| packets >= 400 + 40),
        "{said}"
    );
}

/// Each member joins the group and gets the packets of another one: the lab replicates them in place of the
/// switches.
#[test]
fn a_multicast_group_reaches_its_members_on_other_hosts() {
    let said = live::script(
        r#"
        $R lab up -d $F/lab.toml || exit 1
        for host in server sender0 sender1; do
            $R lab exec $host -- ip route add 224.0.0.0/4 dev eth0
        done
        $R lab exec server -- mckey -m 239.1.2.3 -b 10.0.0.1 -C 10 >$D/server 2>&1 &
        $R lab exec sender0 -- mckey -m 239.1.2.3 -b 10.0.0.2 -C 10 >$D/sender0 2>&1 &
        sleep 1
        for _ in $(seq 20); do
            $R lab exec sender1 -- mckey -m 239.1.2.3 -s -b 10.0.0.3 -C 10 >$D/sender 2>&1
            grep -q 'return status 0' $D/server && grep -q 'return status 0' $D/sender0 && break
            sleep 0.5
        done
        cat $D/server $D/sender0 $D/sender
        down"#,
        SECONDS,
    );
    assert_eq!(said.matches("return status 0").count(), 3, "{said}");
    live::expect_lines(&said, &["left: 0 processes, 0 sockets"]);
}

/// Runs a program as eight ranks, one on each host of a lab; prints what it prints, and the packets of each
/// host.
///
/// mpirun in one host starts the daemons of the others by an agent, as it would by ssh. A host does not reach
/// the lab's control socket, so the agent leaves its command in a file, and the script runs it.
fn eight_ranks(program: &str) -> String {
    format!(
        r#"
        cat >$D/eight.toml <<FILE
        [[host]]
        name = "h"
        count = 8
        [[switch]]
        name = "sw"
        [[link]]
        between = ["h*", "sw"]
        [[workload]]
        pattern = "ring"
        messages = 1
FILE
        cat >$D/agent <<'FILE'
#!/bin/sh
host=$1
shift
echo "$*" >$D/$host.part
mv $D/$host.part $D/$host.command
until [ -f $D/$host.done ]; do sleep 0.2; done
FILE
        chmod +x $D/agent
        export D HOME=$D TMPDIR=$D
        $R lab up -d $D/eight.toml || exit 1
        HOSTS=h0:1,h1:1,h2:1,h3:1,h4:1,h5:1,h6:1,h7:1
        $R lab exec h0 -- mpirun --oversubscribe --mca pml ucx --mca osc ucx --mca btl ^openib,ofi \
            --mca oob_tcp_if_include eth0 --mca plm_rsh_agent $D/agent --mca plm_rsh_no_tree_spawn 1 \
            --host $HOSTS --map-by node -np 8 -x UCX_TLS=rc -x UCX_IB_GID_INDEX=1 \
            -x UCX_NET_DEVICES=rk_eth0:1 $D/{program} >$D/said 2>&1 &
        MPIRUN=$!
        while kill -0 $MPIRUN 2>/dev/null; do
            for command in $D/*.command; do
                [ -f "$command" ] || continue
                host=$(basename $command .command)
                mv $command $D/$host.started
                (
                    $R lab exec $host -- sh -c "$(cat $D/$host.started)" >>$D/daemons 2>&1
                    touch $D/$host.done
                ) &
            done
            sleep 0.2
        done
        cat $D/said
        $R lab ps --json | grep -o '"rdma_sent":[0-9]*'
        down"#
    )
}

#[test]
fn mpi_ranks_on_eight_hosts_exchange_what_they_check() {
    let probe =
        Probe::compile_with("mpicc", "mpi_transfers", &[]).expect("mpicc: libopenmpi-dev has it");
    let program = probe
        .path()
        .file_name()
        .expect("a program")
        .to_string_lossy();
    let said = live::script_with(&eight_ranks(&program), SECONDS, &[probe.path()]);
    live::expect_lines(
        &said,
        &["all 8 ranks are right", "left: 0 processes, 0 sockets"],
    );
    let sent: Vec<u64> = said
        .split("\"rdma_sent\":")
        .skip(1)
        .filter_map(|rest| rest.lines().next()?.parse().ok())
        .collect();
    assert!(
        sent.len() == 8 && sent.iter().all(|packets| *packets > 0),
        "{said}"
    );
}

#[test]
fn storage_over_rdma_between_two_hosts() {
    let said = live::script(
        r#"
        $R lab up -d $F/lab.toml || exit 1
        $R lab exec server -- $R serve nvme --memory 64MiB --rdma 10.0.0.1:4420 --listen 10.0.0.1:4421 \
            >$D/server 2>&1 &
        head -c 16777216 /dev/urandom >$D/data
        for _ in $(seq 50); do
            $R lab exec sender0 -- $R nvme write --transport rdma 10.0.0.1:4420 <$D/data && break
            sleep 0.2
        done
        $R lab exec sender1 -- $R nvme read --transport rdma --blocks 4096 10.0.0.1:4420 >$D/read
        cmp $D/data $D/read && echo "the same bytes"
        $R lab ps --json | grep -o '"rdma_sent":[0-9]*'
        down
        cat $D/server"#,
        SECONDS,
    );
    live::expect_lines(&said, &["the same bytes", "left: 0 processes, 0 sockets"]);
    // The client's data crossed the network: 16 MiB in packets of 4096 bytes.
    let sent = said.split("\"rdma_sent\":").skip(1);
    let most = sent
        .filter_map(|rest| rest.lines().next()?.parse().ok())
        .max();
    assert!(most.is_some_and(|packets: u64| packets >= 4096), "{said}");
}

/// Three hosts write to one disk at once, over a port that is slow enough to be congested, and fio compares
/// what it reads back.
#[test]
fn three_clients_of_storage_share_a_congested_port() {
    let said = live::script(
        r#"
        $R lab up -d --slow 1000 $F/lab.toml || exit 1
        $R lab exec --machine-clock server -- $R serve nvme --memory 64MiB --rdma 10.0.0.1:4420 \
            --listen 10.0.0.1:4421 >$D/server 2>&1 &
        cat >$D/client <<'FILE'
            export XDG_RUNTIME_DIR=$D/client$1
            mkdir $XDG_RUNTIME_DIR
            for _ in $(seq 50); do
                URI=$($R nvme connect --transport rdma 10.0.0.1:4420) && break
                sleep 0.2
            done
            fio --name=client$1 --ioengine=nbd --uri="$URI" --rw=randwrite --bsrange=4k-256k \
                --offset=$((16 * $1))M --size=16M --io_size=4M --iodepth=8 --verify=crc32c --verify_fatal=1 \
                --do_verify=1 --verify_state_save=0 >$D/fio$1 2>&1 && echo "client $1 has verified"
            $R nvme disconnect
FILE
        export D R
        for number in 0 1 2; do
            $R lab exec --machine-clock sender$number -- sh $D/client $number &
            CLIENTS="$CLIENTS $!"
        done
        wait $CLIENTS
        $R lab ps | grep -o 'marked [0-9]*, pauses [0-9]*'
        down
        cat $D/fio? $D/server"#,
        SECONDS,
    );
    let verified = [
        "client 0 has verified",
        "client 1 has verified",
        "client 2 has verified",
    ];
    live::expect_lines(&said, &verified);
    live::expect_lines(&said, &["left: 0 processes, 0 sockets"]);
    // The port to the server was congested: its queue was marked, or paused the senders.
    let line = said.lines().find_map(|line| line.strip_prefix("marked "));
    let congested = line.is_some_and(|line| line != "0, pauses 0");
    assert!(congested, "{said}");
}

//! smbclient over rockery's dial and gateway to the distribution's Samba: TCP, SMB Direct, TCP.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use programs::machine::until;
use programs::samba::{SHARE, run, smbclient};
use programs::{Job, SmbChain};

/// Long enough for anything here on a busy machine.
const SECONDS: u64 = 60;
const UNSIGNED: &str = "--option=client signing=disabled";
/// Connections of one address without a session, at most (`rockery smb` has this limit).
const UNAUTHENTICATED_MAX: usize = 128;

const fn loopback(port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)
}

#[test]
fn files_pass_unsigned_signed_and_sealed() {
    let chain = SmbChain::new();
    chain.there_and_back(&[UNSIGNED]);
    let [read, write] = chain.moved("gateway");
    assert!(
        read >= 22 && write >= 22,
        "{read} READs and {write} WRITEs of 128 KiB used RDMA"
    );
    assert_eq!(chain.moved("dial"), [read, write]);
    // The dial's keys are those of memory windows, each of which the gateway's answer invalidated.
    assert_eq!(chain.invalidated(), [read + write; 2]);
    chain.there_and_back(&["--client-protection=encrypt"]);
    chain.there_and_back(&["--client-protection=sign"]);
    assert_eq!(
        chain.moved("gateway"),
        [read, write],
        "signed and sealed sessions use no RDMA"
    );
    assert_eq!(chain.invalidated(), [read + write; 2]);
    chain.wait_until_idle();

    let top = chain.ask("dial", "top --total");
    assert!(
        top.starts_with("SMB dial: 0 connections") && top.contains("READ/s"),
        "{top}"
    );
    let metrics = chain.ask("gateway", "serve metrics");
    let line =
        format!("rockery_smb_rdma_requests_total{{role=\"gateway\",operation=\"read\"}} {read}\n");
    assert!(metrics.contains(&line), "{metrics}");
}

#[test]
fn a_port_without_a_listener_rejects() {
    let chain = SmbChain::new();
    let listen = loopback(3445);
    let mut dial = chain.another_dial(listen, loopback(5445));
    let words = smbclient(listen, SHARE, &[], "ls");
    assert!(
        !run(&chain.namespace, &words, SECONDS)
            .expect("it ends")
            .succeeded()
    );
    let log = dial.output().expect("its output");
    // Reason 8: invalid service ID. The kernel's client expects it, and tries port 445 then.
    assert!(
        log.contains("the peer refuses the connection (reason 8)"),
        "{log}"
    );
}

#[test]
fn silent_connections_are_limited() {
    let chain = SmbChain::new();
    let script = "import socket, time\n\
                  all = []\n\
                  for _ in range(1000): all.append(socket.create_connection(('127.0.0.1', 2445)))\n\
                  print('connected', flush=True)\n\
                  time.sleep(600)\n";
    let mut silent = chain
        .namespace
        .start_plain(&["python3", "-c", script])
        .expect("it starts");
    silent.expect_output("connected", SECONDS);
    let refused =
        || Ok(chain.report("dial")["refused"].as_u64() >= Some(1000 - UNAUTHENTICATED_MAX as u64));
    assert!(
        until(SECONDS, refused).expect("no error"),
        "{}",
        chain.report("dial")
    );
    assert!(
        chain.connections("dial") <= UNAUTHENTICATED_MAX,
        "{}",
        chain.report("dial")
    );
    assert!(chain.connections("gateway") <= UNAUTHENTICATED_MAX);
    silent.kill().expect("it is ours");
    chain.wait_until_idle();
    chain.there_and_back(&[UNSIGNED]);
}

//! The Linux kernel as a host that proves who it is: DH-HMAC-CHAP, with secrets that nvme-cli made.

use std::fs;

use programs::{Machine, Rockery, Segment};
use tempfile::TempDir;

const NQN: &str = "nqn.2024-01.org.example:disk";
const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:2cd2c43b-a90a-45c1-a8cd-86b33ab273b5";
const HOST_ID: &str = "2cd2c43b-a90a-45c1-a8cd-86b33ab273b5";
const SECONDS: u64 = 60;

/// How one server of the test asks: its port, and what its file says of the host.
struct Way {
    port: u16,
    hash: u8,
    bytes: u8,
    group: &'static str,
    both: bool,
}

/// Every kind of secret, one way and both ways. The larger groups take a kernel under emulation minutes, and
/// with 8192 bits longer than a connection may take.
const WAYS: [Way; 4] = [
    Way { port: 4421, hash: 0, bytes: 32, group: "null", both: false },
    Way { port: 4422, hash: 1, bytes: 32, group: "ffdhe2048", both: true },
    Way { port: 4423, hash: 2, bytes: 48, group: "ffdhe3072", both: false },
    Way { port: 4424, hash: 3, bytes: 64, group: "ffdhe2048", both: true },
];

#[test]
fn the_kernel_proves_who_it_is_and_asks_in_return() {
    let folder = TempDir::new().expect("a folder");
    let segment = Segment::new(1500).expect("a segment");
    let server = segment.namespace(1).expect("a namespace");
    let guest = segment.authenticating_guest(11).expect("a guest");
    segment.introduce(&server, &guest).expect("they hear each other");
    let shell = |line: &str| guest.shell(line).expect("the guest answers");
    shell("/sbin/modprobe nvme_tcp").expect_success();
    let key = |way: &Way, name: &str| {
        let line = format!("nvme gen-dhchap-key --hmac={} --key-length={} --nqn={name}", way.hash, way.bytes);
        let printed = shell(&line).expect_success().output;
        let key = printed.lines().find(|line| line.starts_with("DHHC-1:")).expect("a key");
        key.trim().to_owned()
    };
    let mut servers = Vec::new();
    let mut secrets = Vec::new();
    for way in &WAYS {
        let (secret, controller) = (key(way, HOST), key(way, NQN));
        let mutual = if way.both { format!("controller-secret = \"{controller}\"\n") } else { String::new() };
        let text = format!(
            "[[subsystem]]\nnqn = \"{NQN}\"\n[subsystem.host.\"{HOST}\"]\nsecret = \"{secret}\"\n\
             {mutual}group = \"{}\"\n[[subsystem.namespace]]\nid = 1\nmemory = \"8MiB\"\n\
             [[port]]\naddress = \"0.0.0.0:{}\"\n",
            way.group, way.port
        );
        let path = |kind: &str| folder.path().join(format!("{kind}{}", way.port)).display().to_string();
        fs::write(path("config"), text).expect("a file");
        let rockery = Rockery::built().path().display().to_string();
        let (config, control) = (path("config"), path("control"));
        let argv = [&rockery, "serve", "nvme", "--config", &config, "--control", &control];
        servers.push(server.start_plain(&argv).expect("it starts"));
        secrets.push((secret, controller));
    }
    let address = server.address();
    for (way, (secret, controller)) in WAYS.iter().zip(&secrets) {
        server.wait_for_listener(way.port, SECONDS).expect("it listens");
        let connect = |secret: &str, controller: Option<&str>| {
            let mutual = controller.map(|key| format!("--dhchap-ctrl-secret={key}")).unwrap_or_default();
            shell(&format!(
                "nvme connect -t tcp -a {address} -s {} -n {NQN} -q {HOST} -I {HOST_ID} -i 1 \
                 --dhchap-secret={secret} {mutual} 2>&1",
                way.port
            ))
        };
        let group = way.group;
        let connected = connect(secret, way.both.then_some(controller));
        let log = || shell("dmesg | tail -n 20").output;
        assert!(connected.succeeded(), "{group}: {}\n{}", connected.output, log());
        shell("i=0; until [ -b /dev/nvme0n1 ] || [ $i = 100 ]; do i=$((i+1)); sleep 0.1; done");
        shell("dd if=/dev/nvme0n1 of=/dev/null bs=64k count=4 iflag=direct 2>&1").expect_success();
        shell(&format!("nvme disconnect -n {NQN}")).expect_success();
        // The wrong secret, of the host and of the controller; and none.
        let other = key(way, HOST);
        assert!(!connect(&other, None).succeeded(), "{group}: {}", log());
        if way.both {
            assert!(!connect(secret, Some(&other)).succeeded(), "{group}: {}", log());
        }
        let without = format!(
            "nvme connect -t tcp -a {address} -s {} -n {NQN} -q {HOST} -I {HOST_ID} -i 1 2>&1",
            way.port
        );
        assert!(!shell(&without).succeeded(), "{group}: {}", log());
        assert!(!shell("ls /dev/nvme0n1 2>/dev/null").succeeded(), "{group}");
    }
}

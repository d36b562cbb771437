//! The Linux kernel as a host that authenticates itself: DH-HMAC-CHAP, with secrets that nvme-cli made.

use std::fs;

use programs::storage::{HOST, HOST_ID, NQN};
use programs::{Guest, Job, Machine, Namespace, Rockery, Segment};
use tempfile::TempDir;

const SECONDS: u64 = 60;

/// How one server of the test authenticates: its port, and the host's entry in its file.
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
    Way {
        port: 4421,
        hash: 0,
        bytes: 32,
        group: "null",
        both: false,
    },
    Way {
        port: 4422,
        hash: 1,
        bytes: 32,
        group: "ffdhe2048",
        both: true,
    },
    Way {
        port: 4423,
        hash: 2,
        bytes: 48,
        group: "ffdhe3072",
        both: false,
    },
    Way {
        port: 4424,
        hash: 3,
        bytes: 64,
        group: "ffdhe2048",
        both: true,
    },
];

#[test]
fn the_kernel_authenticates_itself_and_our_target() {
    let folder = TempDir::new().expect("a folder");
    let segment = Segment::new(1500).expect("a segment");
    let server = segment.namespace(1).expect("a namespace");
    let guest = segment.authenticating_guest(11).expect("a guest");
    segment
        .introduce(&server, &guest)
        .expect("they hear each other");
    let shell = |line: &str| guest.shell(line).expect("the guest answers");
    shell("/sbin/modprobe nvme_tcp").expect_success();
    let key = |way: &Way, name: &str| {
        let line = format!(
            "nvme gen-dhchap-key --hmac={} --key-length={} --nqn={name}",
            way.hash, way.bytes
        );
        let printed = shell(&line).expect_success().output;
        let key = printed
            .lines()
            .find(|line| line.starts_with("DHHC-1:"))
            .expect("a key");
        key.trim().to_owned()
    };
    let mut servers = Vec::new();
    let mut secrets = Vec::new();
    for way in &WAYS {
        let (secret, controller) = (key(way, HOST), key(way, NQN));
        let mutual = if way.both {
            format!("controller-secret = \"{controller}\"\n")
        } else {
            String::new()
        };
        let text = format!(
            "[[subsystem]]\nnqn = \"{NQN}\"\n[subsystem.host.\"{HOST}\"]\nsecret = \"{secret}\"\n\
             {mutual}group = \"{}\"\n[[subsystem.namespace]]\nid = 1\nmemory = \"8MiB\"\n\
             [[port]]\naddress = \"0.0.0.0:{}\"\n",
            way.group, way.port
        );
        let path = |kind: &str| {
            folder
                .path()
                .join(format!("{kind}{}", way.port))
                .display()
                .to_string()
        };
        fs::write(path("config"), text).expect("a file");
        let rockery = Rockery::built().path().display().to_string();
        let (config, control) = (path("config"), path("control"));
        // Modular exponentiation in an emulated kernel takes long on a busy machine.
        let argv = [
            &rockery,
            "serve",
            "nvme",
            "--config",
            &config,
            "--control",
            &control,
        ];
        let argv = [&argv[..], &["--connect-timeout", "120"]].concat();
        servers.push(server.start_plain(&argv).expect("it starts"));
        secrets.push((secret, controller));
    }
    let address = server.address();
    for (way, (secret, controller)) in WAYS.iter().zip(&secrets) {
        server
            .wait_for_listener(way.port, SECONDS)
            .expect("it listens");
        let connect = |secret: &str, controller: Option<&str>| {
            let mutual = controller
                .map(|key| format!("--dhchap-ctrl-secret={key}"))
                .unwrap_or_default();
            shell(&format!(
                "nvme connect -t tcp -a {address} -s {} -n {NQN} -q {HOST} -I {HOST_ID} -i 1 \
                 --dhchap-secret={secret} {mutual} 2>&1",
                way.port
            ))
        };
        let group = way.group;
        let connected = connect(secret, way.both.then_some(controller));
        let log = || shell("dmesg | tail -n 20").output;
        assert!(
            connected.succeeded(),
            "{group}: {}\n{}",
            connected.output,
            log()
        );
        shell("i=0; until [ -b /dev/nvme0n1 ] || [ $i = 100 ]; do i=$((i+1)); sleep 0.1; done");
        shell("dd if=/dev/nvme0n1 of=/dev/null bs=64k count=4 iflag=direct 2>&1").expect_success();
        shell(&format!("nvme disconnect -n {NQN}")).expect_success();
        // The wrong secret, of the host and of the controller; and none.
        let other = key(way, HOST);
        assert!(!connect(&other, None).succeeded(), "{group}: {}", log());
        if way.both {
            assert!(
                !connect(secret, Some(&other)).succeeded(),
                "{group}: {}",
                log()
            );
        }
        let without = format!(
            "nvme connect -t tcp -a {address} -s {} -n {NQN} -q {HOST} -I {HOST_ID} -i 1 2>&1",
            way.port
        );
        assert!(!shell(&without).succeeded(), "{group}: {}", log());
        assert!(!shell("ls /dev/nvme0n1 2>/dev/null").succeeded(), "{group}");
    }
}

/// Makes the kernel's own target require this secret with this group, and answer with the controller's.
fn nvmet(guest: &Guest, secret: &str, controller: &str, group: &str) {
    let address = guest.address();
    let made = format!(
        "/sbin/modprobe nvmet_tcp; mount -t configfs config /sys/kernel/config 2>/dev/null; \
         n=/sys/kernel/config/nvmet; s=$n/subsystems/{NQN}; h=$n/hosts/{HOST}; p=$n/ports/1; \
         [ -d $s ] || {{ dd if=/dev/zero of=/tmp/disk bs=1M count=4 2>/dev/null; mkdir $s $h $p && \
         ln -s $h $s/allowed_hosts/host && mkdir $s/namespaces/1 && \
         echo /tmp/disk >$s/namespaces/1/device_path && echo 1 >$s/namespaces/1/enable && \
         echo {address} >$p/addr_traddr && echo tcp >$p/addr_trtype && echo 4420 >$p/addr_trsvcid && \
         echo ipv4 >$p/addr_adrfam && ln -s $s $p/subsystems/disk; }} && \
         echo {secret} >$h/dhchap_key && echo {controller} >$h/dhchap_ctrl_key && \
         echo {group} >$h/dhchap_dhgroup"
    );
    guest
        .shell(&made)
        .expect("the guest answers")
        .expect_success();
}

/// The other way round: the kernel's target authenticates our host, which authenticates the target.
#[test]
fn our_host_authenticates_itself_and_the_kernels_target() {
    let segment = Segment::new(1500).expect("a segment");
    let place = segment.namespace(1).expect("a namespace");
    let guest = segment.authenticating_guest(11).expect("a guest");
    segment
        .introduce(&place, &guest)
        .expect("they hear each other");
    let key = |hash: u8, bytes: u8, name: &str| {
        let line = format!("nvme gen-dhchap-key --hmac={hash} --key-length={bytes} --nqn={name}");
        let printed = guest
            .shell(&line)
            .expect("the guest answers")
            .expect_success()
            .output;
        printed
            .lines()
            .find(|line| line.starts_with("DHHC-1:"))
            .expect("a key")
            .trim()
            .to_owned()
    };
    for (hash, bytes, group) in [(0, 32, "null"), (2, 48, "null"), (3, 64, "ffdhe2048")] {
        let (secret, controller) = (key(hash, bytes, HOST), key(hash, bytes, NQN));
        nvmet(&guest, &secret, &controller, group);
        our_host_is_believed(&guest, &place, &secret, &controller);
    }
}

fn our_host_is_believed(guest: &Guest, place: &Namespace, secret: &str, controller: &str) {
    let address = guest.address();
    let nvme = |act: &str, words: &str| {
        let rockery = Rockery::built().path().display().to_string();
        let line = format!(
            "{rockery} nvme {act} {address}:4420 --subsystem {NQN} --host {HOST} {words} 2>&1"
        );
        let mut job = place.start_plain(&["sh", "-c", &line]).expect("it starts");
        job.wait(SECONDS).expect("in time")
    };
    let log = || {
        guest
            .shell("dmesg | tail -n 20")
            .expect("the guest answers")
            .output
    };
    let written = nvme("write", &format!("--secret {secret} </bin/sh"));
    assert!(written.succeeded(), "{}\n{}", written.output, log());
    let both = format!("--secret {secret} --controller-secret {controller}");
    let read = nvme(
        "read",
        &format!("--blocks 8 {both} | cmp -n 4096 - /bin/sh"),
    );
    assert!(read.succeeded(), "{}\n{}", read.output, log());
    let crossed = format!("--secret {secret} --controller-secret {secret}");
    for wrong in [String::new(), format!("--secret {controller}"), crossed] {
        assert!(!nvme("id-ctrl", &wrong).succeeded(), "{wrong}");
    }
}

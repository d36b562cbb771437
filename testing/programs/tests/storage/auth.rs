//! The Linux kernel as a host that authenticates itself: DH-HMAC-CHAP, with secrets that nvme-cli made.

use std::fs;

use programs::namespace::Process;
use programs::storage::{HOST, HOST_ID, NQN};
use programs::{Finished, Guest, Job, Machine, Namespace, Rockery, Segment, StoragePlace};

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

/// A key that nvme-cli makes in the guest, for the host or the subsystem of this name.
fn dhchap_key(guest: &Guest, hash: u8, bytes: u8, name: &str) -> String {
    let line = format!("nvme gen-dhchap-key --hmac={hash} --key-length={bytes} --nqn={name}");
    let printed = guest
        .shell(&line)
        .expect("the guest answers")
        .expect_success()
        .output;
    let key = printed
        .lines()
        .find(|line| line.starts_with("DHHC-1:"))
        .expect("a key");
    key.trim().to_owned()
}

/// A server that authenticates in one way, with its secrets.
struct Authenticating<'a> {
    place: &'a StoragePlace,
    way: &'a Way,
    secret: String,
    controller: String,
    _process: Process,
}

impl<'a> Authenticating<'a> {
    fn start(place: &'a StoragePlace, way: &'a Way) -> Self {
        let key = |name| dhchap_key(&place.guest, way.hash, way.bytes, name);
        let (secret, controller) = (key(HOST), key(NQN));
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
        let path = |kind: &str| place.file(&format!("{kind}{}", way.port));
        fs::write(path("config"), text).expect("a file");
        // Modular exponentiation in an emulated kernel takes long on a busy machine.
        let line = format!(
            "{} serve nvme --config {} --control {} --connect-timeout 120",
            Rockery::built().path().display(),
            path("config").display(),
            path("control").display()
        );
        let _process = place.server.start_line(&line);
        Self {
            place,
            way,
            secret,
            controller,
            _process,
        }
    }

    /// Connects the kernel with these options.
    fn connect(&self, options: &str) -> Finished {
        let address = self.place.server.address();
        let line = format!(
            "nvme connect -t tcp -a {address} -s {} -n {NQN} -q {HOST} -I {HOST_ID} -i 1 {options} 2>&1",
            self.way.port
        );
        self.place.guest.shell(&line).expect("the guest answers")
    }

    fn connect_with(&self, secret: &str, controller: Option<&str>) -> Finished {
        let mutual = controller
            .map(|key| format!("--dhchap-ctrl-secret={key}"))
            .unwrap_or_default();
        self.connect(&format!("--dhchap-secret={secret} {mutual}"))
    }

    fn log(&self) -> String {
        self.place.shell("dmesg | tail -n 20")
    }

    fn expect_a_disk_with_the_secrets(&self) {
        let controller = self.way.both.then_some(self.controller.as_str());
        let connected = self.connect_with(&self.secret, controller);
        assert!(
            connected.succeeded(),
            "{}: {}\n{}",
            self.way.group,
            connected.output,
            self.log()
        );
        self.place.wait_for_disk();
        self.place
            .shell("dd if=/dev/nvme0n1 of=/dev/null bs=64k count=4 iflag=direct 2>&1");
        self.place.nvme(&format!("disconnect -n {NQN}"));
    }

    /// The wrong secret, of the host and of the controller; and none.
    fn expect_refusal_of_others(&self) {
        let Way {
            hash,
            bytes,
            group,
            both,
            ..
        } = *self.way;
        let other = dhchap_key(&self.place.guest, hash, bytes, HOST);
        let refused = self.connect_with(&other, None);
        assert!(!refused.succeeded(), "{group}: {}", self.log());
        if both {
            let refused = self.connect_with(&self.secret, Some(&other));
            assert!(!refused.succeeded(), "{group}: {}", self.log());
        }
        assert!(!self.connect("").succeeded(), "{group}: {}", self.log());
        let disk = self.place.guest.shell("ls /dev/nvme0n1 2>/dev/null");
        assert!(!disk.expect("the guest answers").succeeded(), "{group}");
    }
}

#[test]
fn the_kernel_authenticates_itself_and_our_target() {
    let place = StoragePlace::authenticating();
    let servers: Vec<_> = WAYS
        .iter()
        .map(|way| Authenticating::start(&place, way))
        .collect();
    for server in &servers {
        place
            .server
            .wait_for_listener(server.way.port, SECONDS)
            .expect("it listens");
        server.expect_a_disk_with_the_secrets();
        server.expect_refusal_of_others();
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
    for (hash, bytes, group) in [(0, 32, "null"), (2, 48, "null"), (3, 64, "ffdhe2048")] {
        let (secret, controller) = (
            dhchap_key(&guest, hash, bytes, HOST),
            dhchap_key(&guest, hash, bytes, NQN),
        );
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

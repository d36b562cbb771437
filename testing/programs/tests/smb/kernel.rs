//! The Linux kernel's SMB Direct, client and server, with rockery's gateway and dial as the other side.

use std::path::Path;

use programs::samba::{self, SHARE, smbclient};
use programs::smb_place::{Counts, counts};
use programs::{Machine, SmbPlace, dissector};

/// How long a program may take on this host.
const SECONDS: u64 = 120;
/// Files of a tree, with sizes around those at which transfers change: inline, one descriptor, several
/// requests.
const SIZES: [usize; 10] = [
    0, 1, 1000, 4095, 4096, 4097, 65_535, 131_072, 131_073, 300_001,
];

/// fio with a check of every block that it wrote.
fn fio(place: &SmbPlace, name: &str, how: &str) {
    let options =
        "--filename=/mnt/fio --ioengine=psync --direct=1 --verify=crc32c --verify_fatal=1";
    place.shell(&format!(
        "fio --name={name} --size=4m {options} {how} >/tmp/fio 2>&1 || {{ cat /tmp/fio; false; }}"
    ));
}

/// The hashes of all files below a folder of this host.
fn hashes(folder: &Path) -> String {
    let line = format!(
        "cd {} && find . -type f | sort | xargs sha256sum",
        folder.display()
    );
    let output = std::process::Command::new("sh")
        .args(["-c", &line])
        .output()
        .expect("a shell");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The same in the guest.
fn hashes_in_guest(place: &SmbPlace, folder: &str) -> String {
    place.shell(&format!(
        "cd {folder} && find . -type f | sort | xargs sha256sum"
    ))
}

/// A file of each of [`SIZES`] in each of three folders, nested.
fn tree(root: &Path) {
    let mut folder = root.to_owned();
    for level in 0..3 {
        folder.push(format!("level{level}"));
        std::fs::create_dir_all(&folder).expect("our folder");
        for size in SIZES {
            let content: Vec<u8> = (0..size)
                .map(|at| ((at + level).wrapping_mul(0x9e37_79b1) >> 9) as u8)
                .collect();
            std::fs::write(folder.join(format!("file{size}")), content).expect("room");
        }
    }
}

/// Mounts, runs a line of shell, unmounts, and counts the packets.
fn counted(place: &SmbPlace, server: std::net::SocketAddr, options: &str, line: &str) -> Counts {
    let recording = place.record("capture");
    place.mount(server, options);
    place.shell(line);
    place.shell("umount /mnt");
    let capture = recording.end().expect("tshark ends");
    // tshark finds fault with every NEGOTIATE response (command 0), between two kernels as well, and with
    // messages of protected sessions, whose content it cannot read.
    let filter = "_ws.malformed && !(smb2.cmd == 0)";
    let malformed = dissector::read(&capture, filter, &["frame.number"]).expect("tshark reads it");
    assert!(
        malformed.is_empty() || options != "rdma",
        "malformed frames {malformed:?}"
    );
    let direct =
        dissector::read(&capture, "smb_direct", &["frame.number"]).expect("tshark reads it");
    assert!(
        !direct.is_empty(),
        "{options}: no SMB Direct in the capture"
    );
    counts(&capture).expect("tshark reads it")
}

#[test]
fn the_kernel_mounts_samba_through_the_gateway() {
    let place = SmbPlace::new();
    let samba = place.samba(&[]);
    let _gateway = place.gateway(&samba);
    let server = std::net::SocketAddr::new(place.host.address(), 445);
    place.shell("dd if=/dev/urandom of=/tmp/x bs=64k count=8");
    let line = "dd if=/tmp/x of=/mnt/x bs=64k oflag=direct && dd if=/mnt/x of=/tmp/y bs=64k iflag=direct && \
                cmp /tmp/x /tmp/y";
    let unsigned = counted(&place, server, "rdma", line);
    assert!(
        unsigned.reads > 0 && unsigned.writes > 0 && unsigned.invalidating > 0,
        "{unsigned:?}"
    );
    // Kernel 6.1 sends wrong signatures of long WRITEs over SMB Direct, which its own server refuses as well.
    let line =
        "echo short >/mnt/short && dd if=/mnt/x of=/tmp/y bs=64k iflag=direct && cmp /tmp/x /tmp/y";
    for options in ["rdma,sec=ntlmsspi", "rdma,seal"] {
        let protected = counted(&place, server, options, line);
        assert!(protected.sends > 0, "{options}: {protected:?}");
        assert_eq!((protected.reads, protected.writes), (0, 0), "{options}");
    }
    place.mount(server, "rdma");
    fio(&place, "sequential", "--rw=write --bs=128k");
    fio(&place, "random", "--rw=randwrite --bs=4k --io_size=1m");
    fio(&place, "uneven", "--rw=randrw --bs=12k --io_size=1m");
    tree(&samba.share().join("there"));
    place.shell("cp -r /mnt/there /tmp/copy && cp -r /tmp/copy /mnt/back && sync");
    let there = hashes(&samba.share().join("there"));
    assert_eq!(there.lines().count(), 3 * SIZES.len());
    assert_eq!(
        hashes_in_guest(&place, "/tmp/copy"),
        there,
        "read by the guest"
    );
    assert_eq!(
        hashes(&samba.share().join("back")),
        there,
        "written by the guest"
    );
    place.shell("umount /mnt");
}

#[test]
fn the_kernel_binds_four_channels_through_the_gateway() {
    let place = SmbPlace::new();
    let address = place.host.address();
    // The kernel opens several channels to one interface only if that reports several queues (RSS).
    let interfaces =
        format!("interfaces = \"{address};capability=RSS,capability=RDMA,speed=10000000000\"");
    let samba = place.samba(&[&interfaces]);
    let _gateway = place.gateway(&samba);
    place.mount(
        std::net::SocketAddr::new(address, 445),
        "rdma,multichannel,max_channels=4",
    );
    let channels = place.shell("cat /proc/fs/cifs/DebugData");
    assert!(channels.contains("Extra Channels: 3"), "{channels}");
    fio(&place, "channels", "--rw=randwrite --bs=64k");
    place.shell("umount /mnt");
}

#[test]
fn smbclient_reaches_the_kernels_server_through_dial() {
    let place = SmbPlace::new();
    let (_dial, listen) = place.dial(place.ksmbd());
    let (from, to) = (place.file("from"), place.file("to"));
    for folder in [&from, &to] {
        std::fs::create_dir(folder).expect("our folder");
    }
    for number in 0..100_usize {
        let length = number * number * 13;
        let content: Vec<u8> = (0..length)
            .map(|at| ((at + number).wrapping_mul(0x9e37_79b1) >> 7) as u8)
            .collect();
        std::fs::write(from.join(format!("file{number}")), content).expect("room");
    }
    let commands = format!(
        "prompt off; lcd {}; mput file*; lcd {}; mget file*",
        from.display(),
        to.display()
    );
    let argv = smbclient(listen, SHARE, &[], &commands);
    let recording = place.record("capture");
    samba::run(&place.host, &argv, SECONDS)
        .expect("it ends")
        .expect_success();
    let counts = counts(&recording.end().expect("tshark ends")).expect("tshark reads it");
    // The kernel writes into memory windows of the dial and invalidates their keys with its answers.
    assert!(
        counts.reads > 0 && counts.writes > 0 && counts.invalidating > 0,
        "{counts:?}"
    );
    let sent = hashes(&from);
    assert_eq!(sent.lines().count(), 100);
    assert_eq!(hashes_in_guest(&place, "/srv"), sent, "written");
    assert_eq!(hashes(&to), sent, "read");
}

//! SMB Direct between rockery in a namespace of this host and the Linux kernel in a guest, as client (cifs)
//! or as server (ksmbd).

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::machine::until;
use crate::namespace::Process;
use crate::samba::{PASSWORD, SHARE, USER};
use crate::{Error, Guest, Job, Machine, Namespace, Rockery, Samba, Segment, dissector};

/// How long anything may take in an emulated guest on a busy machine.
const SECONDS: u64 = 120;
/// MTU of the network: its RDMA path MTU is 4096, and emulated guests are slow by packet.
const MTU: u32 = 9000;
/// The port of SMB Direct on RoCE (MS-SMBD 2.1).
pub const PORT: u16 = 445;
/// The port on which Samba listens in the namespace.
const SAMBA_PORT: u16 = 1445;
/// The port on which `rockery smb dial` listens in the namespace.
const DIAL_PORT: u16 = 2445;

/// A namespace and a guest on one network.
#[derive(Debug)]
pub struct SmbPlace {
    folder: TempDir,
    /// Where rockery, Samba and its programs run.
    pub host: Namespace,
    /// The Linux kernel.
    pub guest: Guest,
    _segment: Segment,
}

impl SmbPlace {
    /// Makes the namespace and the guest, and waits until they reach each other.
    ///
    /// # Panics
    /// When the host of this test cannot make them.
    pub fn new() -> Self {
        let segment = Segment::new(MTU).expect("a segment");
        let host = segment
            .namespace(1)
            .expect("a namespace")
            .with(&Rockery::built());
        let guest = segment.smb_guest(11).expect("a guest");
        segment
            .introduce(&host, &guest)
            .expect("they hear each other");
        Self {
            folder: TempDir::new().expect("a folder"),
            host,
            guest,
            _segment: segment,
        }
    }

    /// A path in a temporary folder of this host.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A line of shell in the guest, which has to succeed; returns what it prints.
    ///
    /// # Panics
    /// When it fails, with the end of the kernel's log.
    #[track_caller]
    pub fn shell(&self, line: &str) -> String {
        let done = self.guest.shell(line).expect("the guest answers");
        if !done.succeeded() {
            let log = self
                .guest
                .shell("dmesg | tail -n 30")
                .expect("the guest answers")
                .output;
            panic!("{line}: status {:?}:\n{}\n{log}", done.status, done.output);
        }
        done.output
    }

    /// Starts Samba with further lines of `[global]`.
    ///
    /// # Panics
    /// When it does not start.
    pub fn samba(&self, settings: &[&str]) -> Samba {
        Samba::within(&self.host, SAMBA_PORT, settings).expect("Samba starts")
    }

    fn start(&self, words: &str) -> Process {
        let rockery = Rockery::built().path().display().to_string();
        // A control socket of its own: other tests' servers run at the same time.
        let control = self.file(&format!(
            "{}.sock",
            words.split(' ').next().unwrap_or_default()
        ));
        let line = format!("{rockery} smb {words} --control {}", control.display());
        let argv: Vec<&str> = line.split_whitespace().collect();
        self.host.start_plain(&argv).expect("it starts")
    }

    /// Starts `rockery smb gateway` before Samba on the port of SMB Direct, and waits until it listens.
    ///
    /// # Panics
    /// When it does not.
    pub fn gateway(&self, samba: &Samba) -> Process {
        let rdma = SocketAddr::new(self.host.address(), PORT);
        let mut gateway = self.start(&format!(
            "gateway --rdma {rdma} --server {}",
            samba.address()
        ));
        let listens =
            until(SECONDS, || self.host.awaits_requests()).expect("the namespace is there");
        assert!(listens, "{}", gateway.output().unwrap_or_default());
        gateway
    }

    /// Starts `rockery smb dial` for an SMB Direct server, waits until it listens, and returns its address.
    ///
    /// # Panics
    /// When it does not.
    pub fn dial(&self, server: SocketAddr) -> (Process, SocketAddr) {
        let listen = SocketAddr::new(self.host.address(), DIAL_PORT);
        let dial = self.start(&format!("dial --listen {listen} --server {server}"));
        self.host
            .wait_for_listener(DIAL_PORT, SECONDS)
            .expect("it listens");
        (dial, listen)
    }

    /// Mounts a server's share in the guest, by SMB Direct if `options` have `rdma`.
    ///
    /// # Panics
    /// When it cannot be mounted.
    #[track_caller]
    pub fn mount(&self, server: SocketAddr, options: &str) {
        mount(&self.guest, server, options).expect_success_of(self);
    }

    /// Starts the kernel's server (ksmbd) in the guest, and returns the address of its SMB Direct listener.
    ///
    /// # Panics
    /// When it does not listen.
    pub fn ksmbd(&self) -> SocketAddr {
        serve(&self.guest).expect("ksmbd starts");
        SocketAddr::new(self.guest.address(), PORT)
    }

    /// Records the RoCE packets of the namespace from now on.
    ///
    /// # Panics
    /// When tshark does not begin.
    pub fn record(&self, name: &str) -> Recording {
        let path = self.file(name);
        let tshark = dissector::record(&self.host, "udp port 4791", &path).expect("tshark records");
        Recording { path, tshark }
    }
}

impl Default for SmbPlace {
    fn default() -> Self {
        Self::new()
    }
}

/// A capture that grows.
#[derive(Debug)]
pub struct Recording {
    path: PathBuf,
    tshark: Process,
}

impl Recording {
    /// Ends the capture and returns its file.
    ///
    /// # Errors
    /// When tshark does not end.
    pub fn end(mut self) -> Result<PathBuf, Error> {
        dissector::stop(&mut self.tshark)?;
        Ok(self.path)
    }
}

/// Numbers of packets in a capture by what SMB Direct does with them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// SENDs that name a key to be invalidated.
    pub invalidating: usize,
    /// All other SENDs.
    pub sends: usize,
    /// The number of RDMA WRITE messages.
    pub writes: usize,
    /// The number of RDMA READ requests.
    pub reads: usize,
}

/// Counts the packets of a capture by opcode (IBTA table 38).
///
/// # Errors
/// When tshark cannot read it.
pub fn counts(capture: &Path) -> Result<Counts, Error> {
    let mut counts = Counts::default();
    for line in dissector::read(capture, "infiniband", &["infiniband.bth.opcode"])? {
        match line.trim().parse::<u8>() {
            Ok(0..=5) => counts.sends += 1,
            Ok(6..=11) => counts.writes += 1,
            Ok(12) => counts.reads += 1,
            Ok(22..=23) => counts.invalidating += 1,
            _ => {}
        }
    }
    Ok(counts)
}

/// A guest's answer to a line of shell, whose failure is shown with the kernel's log.
#[derive(Debug)]
pub struct Answer(crate::Finished);

impl Answer {
    #[track_caller]
    fn expect_success_of(self, place: &SmbPlace) {
        if !self.0.succeeded() {
            let log = place
                .guest
                .shell("dmesg | tail -n 30")
                .expect("the guest answers")
                .output;
            panic!(
                "mount: status {:?}:\n{}\n{log}",
                self.0.status, self.0.output
            );
        }
    }

    /// Whether the line succeeded.
    pub fn succeeded(&self) -> bool {
        self.0.succeeded()
    }
}

/// Mounts a server's share at `/mnt` of a guest.
///
/// # Panics
/// When the guest is gone.
pub fn mount(guest: &Guest, server: SocketAddr, options: &str) -> Answer {
    let (ip, port) = (server.ip(), server.port());
    let line = format!(
        "/sbin/modprobe cifs && mkdir -p /mnt && mount -t cifs //{ip}/{SHARE} /mnt \
         -o ip={ip},port={port},vers=3.1.1,username={USER},password={PASSWORD},noperm,{options}"
    );
    Answer(guest.shell(&line).expect("the guest answers"))
}

/// Starts ksmbd in a guest, with a share in memory. Nothing is signed, so that data may go by RDMA READ and
/// WRITE.
///
/// # Errors
/// When the guest is gone, or ksmbd does not listen.
pub fn serve(guest: &Guest) -> Result<(), Error> {
    // ksmbd gives its guest account, by default `nobody`, to sessions without a password.
    let settings =
        "server signing = disabled\\nserver multi channel support = yes\\nguest account = guest";
    let lines = [
        "echo root:x:0:0::/:/bin/sh >/etc/passwd; echo guest:x:65533:65534::/:/bin/sh >>/etc/passwd",
        "echo nobody:x:65534:65534::/:/bin/sh >>/etc/passwd; echo nogroup:x:65534: >/etc/group",
        "mkdir -p /srv; chmod 777 /srv; /sbin/modprobe ksmbd",
        &format!("printf '[global]\\n{settings}\\n' >/etc/ksmbd/ksmbd.conf"),
        &format!("printf '[{SHARE}]\\npath = /srv\\nread only = no\\n' >>/etc/ksmbd/ksmbd.conf"),
        &format!("ksmbd.adduser -a {USER} -p {PASSWORD}"),
        "(ksmbd.mountd -n >/tmp/mountd 2>&1 &)",
    ];
    for line in lines {
        let done = guest.shell(line)?;
        if !done.succeeded() {
            return Err(Error::Failed {
                command: line.to_owned(),
                output: done.output,
            });
        }
    }
    if until(SECONDS, || guest.awaits_requests())? {
        return Ok(());
    }
    let output = guest.shell("cat /tmp/mountd; dmesg | tail -n 20")?.output;
    Err(Error::TooLate {
        what: "listening of ksmbd".to_owned(),
        seconds: SECONDS,
        output,
    })
}

//! Guests: virtual machines that run a distribution's kernel with its RoCE device, rxe.
//!
//! They run under software emulation, which needs no privilege and no processor feature. Their packets are
//! those of the kernel; their speed is that of the emulation.

mod arm;
mod control;
mod image;

use std::cell::{Cell, RefCell};
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::addresses::addresses;
use crate::machine::until;
use crate::namespace::Process;
use crate::{Error, Finished, Job, Machine, Namespace, Rockery};

pub use arm::Arm;
use control::Control;
pub(crate) use image::Kernel;

/// How long a guest may take to come up: it takes 3 s on an idle machine, and more than two minutes where
/// twenty other processes use the two cores.
const BOOT_SECONDS: u64 = 300;
/// Memory of a guest. Its initramfs takes 40 MiB of it, and another 90 with the programs for storage.
const MEMORY_MIB: u32 = 448;

/// UDP port 4791 as the kernel's tables of sockets have it.
const ROCE_PORT: &str = ":12B7 ";

/// rxe's GID 0 comes from the link-local address, the next from the first that init.sh gives.
const IPV4_GID: u32 = 1;

/// Additional programs in a guest.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Extras<'a> {
    /// Programs of this host.
    Programs(&'a [&'a Path]),
    /// The programs and modules for NVMe.
    Storage(Kernel),
    /// SMB Direct's client and server, and fio.
    Smb,
    /// All programs of a distribution of 64-bit ARM.
    Arm(&'a Arm),
}

/// The virtual machine of a guest, by the first words of its command line.
struct Hardware {
    machine: Vec<String>,
    /// The name that the kernel has for the machine's first serial port.
    console: &'static str,
    kernel: PathBuf,
    initrd: PathBuf,
}

impl Hardware {
    fn new(extras: Extras<'_>, folder: &Path) -> Result<Self, Error> {
        let kernel = match extras {
            Extras::Arm(arm) => return Ok(Self::of_arm(arm)),
            Extras::Programs(_) => Kernel::Plain,
            Extras::Storage(kernel) => kernel,
            Extras::Smb => Kernel::Smb,
        };
        let image = image::build(kernel)?;
        let initrd = match extras {
            Extras::Programs(programs) => image::with_programs(&image, programs, folder)?,
            Extras::Smb => image::with_archives(&image, &["storage.gz", "smb.gz"], folder)?,
            Extras::Storage(_) | Extras::Arm(_) => {
                image::with_archives(&image, &["storage.gz"], folder)?
            }
        };
        let machine = "qemu-system-x86_64 -accel tcg -cpu max";
        Ok(Self {
            machine: machine.split(' ').map(str::to_owned).collect(),
            console: "ttyS0",
            kernel: image.join("vmlinuz"),
            initrd,
        })
    }

    fn of_arm(arm: &Arm) -> Self {
        Self {
            machine: arm.machine(),
            console: "ttyAMA0 rockery.distribution",
            kernel: arm.kernel(),
            initrd: arm.initrd(),
        }
    }
}

/// A guest. It ends when it is dropped.
pub struct Guest {
    name: String,
    number: u8,
    control: RefCell<Control>,
    /// Whether its processor is so slow that questions which follow each other at once would take all of it.
    is_slow: bool,
    jobs: Cell<u32>,
    // Dropped in this order: the machine first, then the files it has open.
    process: RefCell<Process>,
    _folder: TempDir,
}

impl Guest {
    /// Boots one on a tap device of `bridge`.
    pub(crate) fn boot(
        bridge: &Namespace,
        tap: &str,
        number: u8,
        mtu: u32,
        processors: u32,
        extras: Extras<'_>,
    ) -> Result<Self, Error> {
        let netdev = format!("tap,id=n,ifname={tap},script=no,downscript=no");
        let more = ["-smp".to_owned(), processors.to_string()];
        Self::start(&netdev, number, mtu, &more, extras, |argv| {
            bridge.start_plain(argv)
        })
    }

    /// Boots one that is on no bridge: its TCP port `port` is loopback's `forwarded`, whose connections end
    /// when it does. `disk` is its `/dev/vda`, as QEMU's `-blockdev` has it, and `programs` are in it.
    ///
    /// # Errors
    /// When the guest cannot be built or does not come up.
    pub fn with_disk(
        forwarded: u16,
        port: u16,
        disk: &str,
        programs: &[&Path],
    ) -> Result<Self, Error> {
        let own = addresses(1).0;
        let net =
            format!("user,id=n,net=10.88.0.0/24,hostfwd=tcp:127.0.0.1:{forwarded}-{own}:{port}");
        Self::start(
            &net,
            1,
            1500,
            &disk_options(disk),
            Extras::Programs(programs),
            start_here,
        )
    }

    /// The same with the programs and modules for NVMe, and without a forwarded port.
    ///
    /// # Errors
    /// As [`Guest::with_disk`].
    pub fn with_disk_and_storage(disk: &str) -> Result<Self, Error> {
        let extras = Extras::Storage(Kernel::Plain);
        Self::start(
            "user,id=n,net=10.88.0.0/24",
            1,
            1500,
            &disk_options(disk),
            extras,
            start_here,
        )
    }

    fn start(
        netdev: &str,
        number: u8,
        mtu: u32,
        more: &[String],
        extras: Extras<'_>,
        start: impl FnOnce(&[&str]) -> Result<Process, Error>,
    ) -> Result<Self, Error> {
        let folder = TempDir::new().map_err(Error::file("a temporary folder"))?;
        let hardware = Hardware::new(extras, folder.path())?;
        let is_slow = matches!(extras, Extras::Arm(_));
        let mut argv = qemu(hardware, folder.path(), netdev, number, mtu);
        argv.extend_from_slice(more);
        let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
        let mut process = start(&argv)?;
        let name = format!("guest{number}");
        let gone = |process: &mut Process| Error::GuestGone {
            name: name.clone(),
            console: console(folder.path()) + &process.output().unwrap_or_default(),
        };
        let socket = folder.path().join("control");
        let mut control = None;
        until(BOOT_SECONDS, || {
            control = Control::connect(&socket, BOOT_SECONDS);
            Ok(control.is_some() || process.finished()?.is_some())
        })?;
        let Some(mut control) = control else {
            return Err(gone(&mut process));
        };
        if control.answer().is_none() {
            return Err(gone(&mut process));
        }
        let (control, jobs) = (RefCell::new(control), Cell::new(0));
        Ok(Self {
            name,
            number,
            control,
            is_slow,
            jobs,
            process: RefCell::new(process),
            _folder: folder,
        })
    }

    /// Kills the machine, as a power loss does: data that is not on its disk is lost.
    ///
    /// # Errors
    /// When it has none already.
    pub fn power_off(&self) -> Result<(), Error> {
        let mut process = self.process.borrow_mut();
        process.kill()?;
        process.wait(BOOT_SECONDS).map(drop)
    }

    /// Runs a line of shell in the guest, one at a time.
    ///
    /// # Errors
    /// When the guest is gone.
    pub fn shell(&self, line: &str) -> Result<Finished, Error> {
        let answer = self.control.borrow_mut().ask(line);
        let console = || console(self._folder.path());
        answer.ok_or_else(|| Error::GuestGone {
            name: self.name.clone(),
            console: console(),
        })
    }
}

impl Guest {
    /// What a line of shell prints that is asked again and again until its answer is another.
    fn ask(&self, line: &str) -> Result<String, Error> {
        let asked = match self.is_slow {
            true => self.shell(&format!("sleep 0.2; {line}")),
            false => self.shell(line),
        };
        Ok(asked?.output)
    }
}

impl std::fmt::Debug for Guest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guest")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

fn console(folder: &Path) -> String {
    let bytes = fs::read(folder.join("console")).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let skipped = text.lines().count().saturating_sub(30);
    text.lines()
        .skip(skipped)
        .map(|line| format!("{line}\n"))
        .collect()
}

/// Starts a program where this one runs.
fn start_here(argv: &[&str]) -> Result<Process, Error> {
    let (program, words) = argv.split_first().ok_or(Error::Start {
        program: String::new(),
        source: std::io::ErrorKind::InvalidInput.into(),
    })?;
    let mut command = Command::new(program);
    command.args(words);
    Process::start(command)
}

fn disk_options(disk: &str) -> [String; 4] {
    let blockdev = format!("node-name=disk,{disk}");
    [
        "-blockdev".to_owned(),
        blockdev,
        "-device".to_owned(),
        "virtio-blk-pci,drive=disk".to_owned(),
    ]
}

fn qemu(hardware: Hardware, folder: &Path, netdev: &str, number: u8, mtu: u32) -> Vec<String> {
    let (v4, v6) = addresses(number);
    let path = |path: &Path| path.display().to_string();
    // On a busy machine emulated ticks come too late for the kernel's own check of them.
    let command_line = format!(
        "console={} quiet panic=-1 mitigations=off no_timer_check \
         rockery.addr={v4}/24 rockery.addr={v6}/64 rockery.mtu={mtu}",
        hardware.console
    );
    // Offloads are off, so that what crosses the bridge are whole packets with whole checksums.
    let nic = format!(
        "virtio-net-pci,netdev=n,mac=52:54:00:88:00:{number:02x},host_mtu={mtu},gso=off,csum=off,\
         guest_csum=off,guest_tso4=off,guest_tso6=off,guest_ufo=off"
    );
    let chardev = format!(
        "socket,id=c,path={},server=on,wait=off",
        path(&folder.join("control"))
    );
    let mut argv = hardware.machine;
    argv.extend(
        "-display none -monitor none -no-reboot -device virtio-serial-pci"
            .split(' ')
            .map(str::to_owned),
    );
    let options: [(&str, String); 9] = [
        ("-m", MEMORY_MIB.to_string()),
        ("-kernel", path(&hardware.kernel)),
        ("-initrd", path(&hardware.initrd)),
        ("-append", command_line),
        ("-serial", format!("file:{}", path(&folder.join("console")))),
        ("-netdev", netdev.to_owned()),
        ("-device", nic),
        ("-chardev", chardev),
        (
            "-device",
            "virtserialport,chardev=c,name=control".to_owned(),
        ),
    ];
    argv.extend(
        options
            .into_iter()
            .flat_map(|(option, value)| [option.to_owned(), value]),
    );
    argv
}

impl Machine for Guest {
    fn name(&self) -> &str {
        &self.name
    }

    fn address(&self) -> IpAddr {
        addresses(self.number).0
    }

    fn address_v6(&self) -> IpAddr {
        addresses(self.number).1
    }

    fn start(&self, argv: &[&str]) -> Result<Box<dyn Job + '_>, Error> {
        let number = self.jobs.replace(self.jobs.get() + 1);
        let stem = format!("/tmp/job{number}");
        let command: Vec<String> = argv.iter().map(|word| quoted(word)).collect();
        // The program's own number is what `kill` has to hit; its status is written after its end.
        let line = format!(
            "( {} >{stem}.out 2>&1 & echo $! >{stem}.pid; wait $!; echo $? >{stem}.status ) \
             >/dev/null 2>&1 &",
            command.join(" ")
        );
        self.shell(&line)?;
        Ok(Box::new(GuestJob { guest: self, stem }))
    }

    fn tcp_sockets(&self) -> Result<String, Error> {
        self.ask("cat /proc/net/tcp /proc/net/tcp6")
    }

    fn awaits_requests(&self) -> Result<bool, Error> {
        Ok(self
            .shell("rdma resource show cm_id")?
            .output
            .contains("LISTEN"))
    }

    fn device(&self) -> Option<(&str, u32)> {
        Some(("rxe0", IPV4_GID))
    }
}

/// A guest in which programs see rockery's device, which takes the place of the kernel's: both need UDP port
/// 4791. The files of [`Rockery::files`] have to be in it.
#[derive(Debug)]
pub struct GuestWithRockery {
    guest: Guest,
    rockery: Rockery,
}

impl GuestWithRockery {
    /// Unloads the kernel's device.
    ///
    /// # Errors
    /// When that fails, or the guest is gone.
    pub fn new(guest: Guest, rockery: &Rockery) -> Result<Self, Error> {
        unload_rxe(&guest)?;
        Ok(Self {
            guest,
            rockery: rockery.clone(),
        })
    }
}

/// Takes the kernel's device away, which has UDP port 4791.
fn unload_rxe(guest: &Guest) -> Result<(), Error> {
    call(guest, "rdma link delete rxe0 && /sbin/modprobe -r rdma_rxe")
}

/// Runs a line of shell that has to succeed.
fn call(guest: &Guest, command: &str) -> Result<(), Error> {
    let finished = guest.shell(command)?;
    if finished.succeeded() {
        return Ok(());
    }
    Err(Error::Failed {
        command: command.to_owned(),
        output: finished.output,
    })
}

impl Machine for GuestWithRockery {
    fn name(&self) -> &str {
        self.guest.name()
    }

    fn address(&self) -> IpAddr {
        self.guest.address()
    }

    fn address_v6(&self) -> IpAddr {
        self.guest.address_v6()
    }

    fn start(&self, argv: &[&str]) -> Result<Box<dyn Job + '_>, Error> {
        let path = self.rockery.path().to_string_lossy();
        self.guest.start(&[&[&*path, "run", "--"], argv].concat())
    }

    fn tcp_sockets(&self) -> Result<String, Error> {
        self.guest.tcp_sockets()
    }

    fn awaits_requests(&self) -> Result<bool, Error> {
        let listed = self
            .guest
            .shell(&format!("{} listeners", self.rockery.path().display()))?;
        Ok(!listed.output.is_empty())
    }

    fn device(&self) -> Option<(&str, u32)> {
        Some(("rk_eth0", IPV4_GID))
    }
}

/// A guest of 64-bit ARM in which programs see rockery's device, by the libraries of its tarball.
#[derive(Debug)]
pub struct ArmWithRockery(Guest);

impl ArmWithRockery {
    /// Unloads the kernel's device.
    ///
    /// # Errors
    /// When that fails, or the guest is gone.
    pub fn new(guest: Guest) -> Result<Self, Error> {
        unload_rxe(&guest)?;
        Ok(Self(guest))
    }

    /// The guest, for lines of shell.
    pub fn guest(&self) -> &Guest {
        &self.0
    }

    /// The guest with the kernel's device again, once no program of rockery has its port.
    ///
    /// # Errors
    /// When the port stays taken, the kernel's device cannot be made, or the guest is gone.
    pub fn with_the_kernels_device(self) -> Result<Guest, Error> {
        let sockets = "cat /proc/net/udp /proc/net/udp6";
        let mut seen = String::new();
        let is_free = until(BOOT_SECONDS, || {
            seen = self.0.ask(sockets)?;
            Ok(!seen.contains(ROCE_PORT))
        })?;
        if !is_free {
            return Err(Error::TooLate {
                what: "a guest without a socket on UDP port 4791".to_owned(),
                seconds: BOOT_SECONDS,
                output: seen,
            });
        }
        call(
            &self.0,
            "/sbin/modprobe rdma_rxe && rdma link add rxe0 type rxe netdev eth0",
        )?;
        Ok(self.0)
    }
}

impl Machine for ArmWithRockery {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn address(&self) -> IpAddr {
        self.0.address()
    }

    fn address_v6(&self) -> IpAddr {
        self.0.address_v6()
    }

    fn start(&self, argv: &[&str]) -> Result<Box<dyn Job + '_>, Error> {
        let libraries = ["env", "LD_LIBRARY_PATH=/rockery/lib/rockery"];
        self.0.start(&[&libraries, argv].concat())
    }

    fn tcp_sockets(&self) -> Result<String, Error> {
        self.0.tcp_sockets()
    }

    fn awaits_requests(&self) -> Result<bool, Error> {
        Ok(!self.0.ask("/rockery/bin/rockery listeners")?.is_empty())
    }

    fn device(&self) -> Option<(&str, u32)> {
        Some(("rk_eth0", IPV4_GID))
    }
}

fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

struct GuestJob<'a> {
    guest: &'a Guest,
    stem: String,
}

impl Job for GuestJob<'_> {
    fn output(&mut self) -> Result<String, Error> {
        Ok(self.guest.shell(&format!("cat {}.out", self.stem))?.output)
    }

    fn finished(&mut self) -> Result<Option<Finished>, Error> {
        let status = self
            .guest
            .ask(&format!("cat {}.status 2>/dev/null", self.stem))?;
        let Ok(status) = status.trim().parse() else {
            return Ok(None);
        };
        // The shell's status is 128 + N for a program that signal N ended.
        let status = Some(status).filter(|status| *status < 128);
        Ok(Some(Finished {
            status,
            output: self.output()?,
        }))
    }

    fn kill(&mut self) -> Result<(), Error> {
        self.guest
            .shell(&format!("kill -KILL $(cat {}.pid)", self.stem))
            .map(drop)
    }
}

impl Drop for GuestJob<'_> {
    fn drop(&mut self) {
        if matches!(self.finished(), Ok(None)) {
            _ = self.kill();
        }
    }
}

/// The path of `name` in this package.
fn of_this_package(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

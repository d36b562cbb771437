//! The namespaces of a host, and what is in them: interface, name, names of the other hosts.

use crate::LabError;
use crate::listener::listen;
use crate::network::IP_MTU;
use crate::plan::LiveHost;
use crate::subnet::IP_INTERFACE;
use crate::sys::interface::{self, Interfaces};
use crate::sys::namespace::{self, Mount};
use crate::sys::process::{self, Forked};
use link::unix;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

/// The interface of a host.
const INTERFACE: &str = "eth0";
/// Abstract name at which devices of a host attach, in the network namespace of the host.
pub(crate) const ATTACH: &str = "rockery-lab";
/// Where files of a host are, which end with its mount namespace.
const FOLDER: &str = "/dev/shm";
/// The folder there that is the user's alone.
pub(crate) const RUNTIME: &str = "/dev/shm/run";
const MESSAGE_BYTES: usize = 4096;

/// The namespaces of a host, held by descriptors, and what the lab has in them.
#[derive(Debug)]
pub(crate) struct Spaces {
    pub(crate) net: OwnedFd,
    pub(crate) uts: OwnedFd,
    pub(crate) ipc: OwnedFd,
    pub(crate) mnt: OwnedFd,
    /// Where devices attach.
    pub(crate) listener: OwnedFd,
    /// Where device files of an InfiniBand subnet are opened; none where the lab has no subnet.
    pub(crate) management: Option<OwnedFd>,
    /// None where the machine has no `/dev/net/tun`.
    pub(crate) tap: Option<OwnedFd>,
    /// A socket by which the interface of IP over InfiniBand is changed; none on other hosts.
    pub(crate) interfaces: Option<OwnedFd>,
}

/// Makes the namespaces of a host, in the PID namespace of the lab. Returns them, and a warning if TCP or
/// names of hosts do not work.
pub(crate) fn make(
    host: &LiveHost,
    hosts: &[LiveHost],
    pid: BorrowedFd<'_>,
) -> Result<(Spaces, Option<String>), LabError> {
    let failed = |what: String| LabError::Host {
        host: host.name.clone(),
        what,
    };
    let [ours, theirs] = unix::message_pair().map_err(LabError::system("a socket pair"))?;
    let child = match process::fork().map_err(LabError::system("fork"))? {
        Forked::Parent(child) => child,
        Forked::Child => {
            drop(ours);
            in_pid_namespace(pid, || {
                let (message, fds) = match set_up(host, hosts) {
                    Ok((made, warning)) => (format!("+{}", warning.unwrap_or_default()), made),
                    Err(error) => (format!("-{error}"), Vec::new()),
                };
                let raw: Vec<RawFd> = fds.iter().map(AsRawFd::as_raw_fd).collect();
                let _ = unix::send_fds(theirs.as_raw_fd(), message.as_bytes(), &raw);
            })
        }
    };
    drop(theirs);
    let mut bytes = [0; MESSAGE_BYTES];
    let received = unix::receive_fds::<{ unix::FDS_MAX }>(ours.as_raw_fd(), &mut bytes);
    let _ = process::wait(child);
    let (length, fds) = received.map_err(|error| failed(error.to_string()))?;
    let text = String::from_utf8_lossy(&bytes[..length]).into_owned();
    let Some(warning) = text.strip_prefix('+') else {
        return Err(failed(
            text.strip_prefix('-')
                .unwrap_or("its process has ended")
                .to_owned(),
        ));
    };
    let mut fds = fds.into_iter().flatten();
    let mut next = || {
        fds.next().ok_or_else(|| {
            failed(
                "the process of the host sent fewer descriptors than there are namespaces"
                    .to_owned(),
            )
        })
    };
    let (net, uts, ipc, mnt, listener) = (next()?, next()?, next()?, next()?, next()?);
    let management = Some(next()?);
    let spaces = Spaces {
        net,
        uts,
        ipc,
        mnt,
        listener,
        management,
        tap: fds.next(),
        interfaces: fds.next(),
    };
    Ok((
        spaces,
        Some(warning.to_owned()).filter(|warning| !warning.is_empty()),
    ))
}

/// Runs in a grandchild, which is in the PID namespace; both end then.
fn in_pid_namespace(pid: BorrowedFd<'_>, work: impl FnOnce()) -> ! {
    if namespace::enter(pid).is_ok() {
        match process::fork() {
            Ok(Forked::Child) => work(),
            Ok(Forked::Parent(child)) => {
                let _ = process::wait(child);
            }
            Err(_) => {}
        }
    }
    process::exit(0)
}

fn named(what: &str) -> impl Fn(io::Error) -> String {
    move |error| format!("{what}: {error}")
}

/// Sets up the namespaces of this process as a host. Returns descriptors in the order of [`Spaces`].
fn set_up(host: &LiveHost, hosts: &[LiveHost]) -> Result<(Vec<OwnedFd>, Option<String>), String> {
    namespace::own_host_namespaces().map_err(named("namespaces"))?;
    namespace::set_host_name(&host.name).map_err(named("host name"))?;
    let without_names = mounts(host, hosts)?;
    let mut made = interfaces(host)?;
    let warnings = without_names.into_iter().chain(made.warning.take());
    let warning = warnings.reduce(|one, other| format!("{one}; {other}"));
    let open = |name: &str| {
        let path = format!("/proc/self/ns/{name}");
        fs::File::open(&path)
            .map(OwnedFd::from)
            .map_err(named(&path))
    };
    let mut fds = vec![open("net")?, open("uts")?, open("ipc")?, open("mnt")?];
    fds.push(listen(ATTACH).map_err(named("socket for devices"))?);
    fds.push(listen(link::management::NAME).map_err(named("socket for device files"))?);
    fds.extend(made.tap);
    fds.extend(made.socket);
    Ok((fds, warning))
}

/// Mounts what is a host's own. Returns a warning if names of hosts do not work.
fn mounts(host: &LiveHost, hosts: &[LiveHost]) -> Result<Option<String>, String> {
    let none = Path::new("none");
    namespace::mount(none, Path::new("/"), Mount::Private).map_err(named("mounts"))?;
    // Where a sandbox covers parts of /proc, the kernel refuses another one. Programs then see the processes
    // of the machine in it, by other numbers than their own.
    let _ = namespace::mount(none, Path::new("/proc"), Mount::New("proc"));
    let folder = Path::new(FOLDER);
    namespace::mount(none, folder, Mount::New("tmpfs")).map_err(named(FOLDER))?;
    let folder_of_user = fs::DirBuilder::new().mode(0o700).create(RUNTIME);
    folder_of_user.map_err(named(RUNTIME))?;
    let mut text = format!(
        "127.0.0.1 localhost\n::1 localhost ip6-localhost\n{} {}\n",
        host.v4, host.name
    );
    for other in hosts.iter().filter(|other| other.number != host.number) {
        text += &format!("{} {}\n", other.v4, other.name);
    }
    for other in hosts {
        text += &format!("{} {}\n", other.v6, other.name);
    }
    let names = folder.join("hosts");
    fs::write(&names, text).map_err(named("names of hosts"))?;
    let target = Path::new("/etc/hosts");
    if !target.exists() {
        let what = "this machine has no /etc/hosts, in whose place a lab has the names of its hosts: \
                    programs know hosts by their addresses alone until there is one (touch /etc/hosts)";
        return Ok(Some(what.to_owned()));
    }
    namespace::mount(&names, target, Mount::Bind).map_err(named("/etc/hosts"))?;
    Ok(None)
}

/// The interface of a host.
struct Made {
    tap: Option<OwnedFd>,
    /// By which the interface of IP over InfiniBand is changed.
    socket: Option<OwnedFd>,
    warning: Option<String>,
}

/// Makes the interface. Without `/dev/net/tun` it has an address, by which devices are found, and leads
/// nowhere.
fn interfaces(host: &LiveHost) -> Result<Made, String> {
    let interfaces = Interfaces::new().map_err(named("a socket"))?;
    interfaces.up("lo").map_err(named("lo"))?;
    // Addresses come from the file and are unique, so duplicate address detection would only delay.
    for what in ["all", "default"] {
        let _ = fs::write(format!("/proc/sys/net/ipv6/conf/{what}/accept_dad"), "0");
        let _ = fs::write(format!("/proc/sys/net/ipv6/conf/{what}/accept_ra"), "0");
    }
    let (open, name): (fn(&str) -> _, _) = match host.is_infiniband {
        true => (interface::infiniband, IP_INTERFACE),
        false => (interface::tap, INTERFACE),
    };
    let (tap, name, warning) = match open(name) {
        Ok(tap) => (Some(tap), name, None),
        Err(error) => {
            let what = format!(
                "/dev/net/tun cannot be used ({error}), so there is no TCP between hosts, nor what uses it \
                 to connect; RDMA works"
            );
            (None, "lo", Some(what))
        }
    };
    if tap.is_some() {
        let mtu = if host.is_infiniband {
            u32::from(IP_MTU)
        } else {
            interfaces
                .set_mac(name, host.mac)
                .map_err(named("MAC address"))?;
            host.mtu
        };
        interfaces.set_mtu(name, mtu).map_err(named("MTU"))?;
        interfaces.up(name).map_err(named(name))?;
    }
    // A further address of the loopback interface, beside 127.0.0.1.
    let label = if tap.is_some() {
        name.to_owned()
    } else {
        format!("{name}:1")
    };
    interfaces
        .add_v4(&label, host.v4)
        .map_err(named("IPv4 address"))?;
    // Machines without IPv6 have labs without it.
    let _ = interfaces.add_v6(name, host.v6);
    let mut socket = None;
    if host.is_infiniband && tap.is_some() {
        // The kernel makes none without a hardware address, which it does not keep for such an interface.
        let _ = interfaces.add_v6(name, host.link_local);
        socket = Some(interfaces.into_socket());
    }
    Ok(Made {
        tap,
        socket,
        warning,
    })
}

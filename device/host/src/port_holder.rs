//! The process that holds UDP port 4791 where this process cannot have a share of it: for errors.

use std::fmt;
use std::fs;
use std::os::fd::AsRawFd;

use link::unix;

/// The port as the kernel's tables of sockets write it.
const PORT: &str = ":12B7";
/// The name that an agent's process has given itself.
const AGENT_PROCESS: &str = "rockery-agent";
/// The tables of UDP sockets of this network namespace.
const TABLES: [&str; 2] = ["/proc/self/net/udp", "/proc/self/net/udp6"];
/// Columns of these tables.
const LOCAL_ADDRESS: usize = 1;
const USER: usize = 7;
const INODE: usize = 9;

/// The holder of UDP port 4791.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PortHolder {
    /// An agent of rockery, which shares the port between processes of its user only.
    Rockery {
        /// User ID of the socket, from the kernel's table.
        user: u32,
        /// Process ID in this PID namespace; 0 where it has none.
        process: u32,
        /// The name of the process, where it can be read.
        program: Option<String>,
    },
    /// Another program of this user, or the kernel's RoCE device, whose sockets are root's.
    Program {
        /// User ID of the socket, from the kernel's table.
        user: u32,
        /// Its process and the name of that, where this user may see whose descriptor the socket is.
        process: Option<(u32, String)>,
    },
    /// The tables of sockets cannot be read.
    Unknown,
}

impl fmt::Display for PortHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rockery {
                user,
                process,
                program,
            } => {
                let program = program.as_deref().unwrap_or("a program");
                write!(f, "rockery of user {user} ({program}, process {process})")
            }
            Self::Program {
                user,
                process: Some((process, program)),
            } => write!(f, "user {user} ({program}, process {process})"),
            Self::Program { user: 0, .. } => write!(
                f,
                "a program of root (`ss -lunp sport = 4791`, as root), or by the kernel's RoCE device \
                 (`rdma link`)"
            ),
            Self::Program { user, .. } => write!(
                f,
                "a program of user {user} (`ss -lunp sport = 4791` shows it to that user and to root)"
            ),
            Self::Unknown => write!(f, "another program (`ss -lunp sport = 4791`, as root)"),
        }
    }
}

/// The abstract socket name of a user's agent.
pub(crate) fn agent_name(user: u32) -> String {
    format!("rockery-agent-{user}")
}

impl PortHolder {
    /// The process that keeps programs of this user from the port, if there is one.
    pub fn foreign() -> Option<Self> {
        let own = os::user();
        Self::find().filter(|holder| !matches!(holder, Self::Rockery { user, .. } if *user == own))
    }

    /// The holder, if the port is held.
    pub(crate) fn find() -> Option<Self> {
        let tables = TABLES.map(fs::read_to_string);
        if tables.iter().all(Result::is_err) {
            return Some(Self::Unknown);
        }
        let mut sockets = tables.iter().flatten().flat_map(|table| sockets(table));
        let Socket { user, inode } = sockets.next()?;
        Some(Self::rockery(user, inode).unwrap_or_else(|| Self::Program {
            user,
            process: owner(inode),
        }))
    }

    /// The agent of a user, where it runs and has the socket. Any user can listen at its name: the kernel
    /// tells whose process it is. An agent that could not get the port runs for a while as well, and the
    /// sockets of the kernel's RoCE device have root as their user.
    fn rockery(user: u32, inode: u64) -> Option<Self> {
        let connection = unix::connect_now(&agent_name(user)).ok()?;
        let fd = connection.as_raw_fd();
        if unix::peer_user(fd).ok()? != user {
            return None;
        }
        let process = unix::peer_process(fd).unwrap_or(0);
        if has_socket(process, inode) == Some(false) && !is_of_agent(inode) {
            return None;
        }
        Some(Self::Rockery {
            user,
            process,
            program: program_name(process),
        })
    }
}

/// The name of a process, which it has chosen; `None` for one with control characters.
fn program_name(process: u32) -> Option<String> {
    let name = fs::read_to_string(format!("/proc/{process}/comm")).ok()?;
    let name = name.trim_end();
    name.chars()
        .all(|it| !it.is_control())
        .then(|| name.to_owned())
}

/// A socket at the port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Socket {
    user: u32,
    inode: u64,
}

/// The sockets at the port.
fn sockets(table: &str) -> Vec<Socket> {
    let lines = table.lines().skip(1);
    lines
        .filter_map(|line| {
            let columns: Vec<&str> = line.split_whitespace().collect();
            if !columns.get(LOCAL_ADDRESS)?.ends_with(PORT) {
                return None;
            }
            Some(Socket {
                user: columns.get(USER)?.parse().ok()?,
                inode: columns.get(INODE)?.parse().ok()?,
            })
        })
        .collect()
}

/// A process that has the socket open, of those whose descriptors this user may read: its own ones, and all
/// for root.
fn owner(inode: u64) -> Option<(u32, String)> {
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let mut numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let process = numbers.find(|&process| has_socket(process, inode) == Some(true))?;
    Some((process, program_name(process)?))
}

/// Whether an agent has the socket: the program that has started it listens at its name, as the kernel sees
/// it, and the sockets are in a process of the agent's own.
fn is_of_agent(inode: u64) -> bool {
    owner(inode).is_some_and(|(_, name)| name == AGENT_PROCESS)
}

/// Whether a process has a socket open; `None` where this user may not read its descriptors.
fn has_socket(process: u32, inode: u64) -> Option<bool> {
    let target = format!("socket:[{inode}]");
    let descriptors = fs::read_dir(format!("/proc/{process}/fd")).ok()?.flatten();
    let mut links = descriptors.filter_map(|entry| fs::read_link(entry.path()).ok());
    Some(links.any(|link| link.as_os_str() == target.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_of_the_port_are_read_from_the_kernels_table() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n \
            1: 00000000:12B6 00000000:0000 07 00000000:00000000 00:00000000 00000000  1001  0 5 2 0 0\n \
            2: 00000000:12B7 00000000:0000 07 00000000:00000000 00:00000000 00000000  1002  0 6 2 0 0\n \
            3: 00000000:12B7\n";
        assert_eq!(
            sockets(table),
            [Socket {
                user: 1002,
                inode: 6
            }]
        );
    }

    #[test]
    fn a_socket_of_this_process_is_found_by_its_inode() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let link = fs::read_link(format!("/proc/self/fd/{}", socket.as_raw_fd())).expect("a link");
        let text = link.to_string_lossy();
        let inode = text.trim_start_matches("socket:[").trim_end_matches(']');
        let (process, _) = owner(inode.parse().expect("an inode")).expect("its owner");
        assert_eq!(process, std::process::id());
        assert_eq!(owner(u64::MAX), None);
    }

    #[test]
    fn holders_are_named_with_what_shows_more() {
        let rockery = PortHolder::Rockery {
            user: 1000,
            process: 42,
            program: Some("ib_write_bw".to_owned()),
        };
        assert_eq!(
            rockery.to_string(),
            "rockery of user 1000 (ib_write_bw, process 42)"
        );
        let known = PortHolder::Program {
            user: 1001,
            process: Some((43, "socat".to_owned())),
        };
        assert_eq!(known.to_string(), "user 1001 (socat, process 43)");
        let root = PortHolder::Program {
            user: 0,
            process: None,
        }
        .to_string();
        assert!(
            root.contains("rdma link") && root.contains("ss -lunp"),
            "{root}"
        );
    }
}

//! The user at the other end of a TCP connection within this machine. Every user of a machine can connect to
//! a port of its loopback interface, so a server that has no authentication asks the kernel for that user.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};

use socket2::{Domain, Protocol, Socket, Type};

/// sock_diag(7): the protocol of netlink, its message, and that of an error.
const SOCK_DIAG: i32 = 4;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const ERROR: u16 = 2;
const REQUEST: u16 = 1;
/// Bytes of a netlink header, and of the answer that follows it (`struct inet_diag_msg`).
const HEADER_BYTES: usize = 16;
const ANSWER_BYTES: usize = 72;

/// Whether processes of a user are those of this process' user or of root.
pub(crate) fn is_trusted(user: u32) -> bool {
    user == os::user() || user == 0
}

/// The user of the process at the other end; `None` if that process has closed the connection.
pub(crate) fn user_of(stream: &TcpStream) -> Option<u32> {
    let (own, other) = (stream.local_addr().ok()?, stream.peer_addr().ok()?);
    user_between(other, own)
}

/// The user of the socket at `local` that is connected to `remote`, of this network namespace.
fn user_between(local: SocketAddr, remote: SocketAddr) -> Option<u32> {
    // Kernels may be built without sock_diag.
    asked(local, remote).unwrap_or_else(|_| listed(local, remote))
}

/// The answer of sock_diag(7), which looks the connection up.
fn asked(local: SocketAddr, remote: SocketAddr) -> io::Result<Option<u32>> {
    let kind = Protocol::from(SOCK_DIAG);
    let mut socket = Socket::new(Domain::from(libc::AF_NETLINK), Type::DGRAM, Some(kind))?;
    socket.write_all(&question(local, remote))?;
    let mut answer = [0; 1024];
    let length = socket.read(&mut answer)?;
    let answer = &answer[..length];
    let number = |at: usize| {
        let bytes = answer
            .get(at..at + 4)
            .and_then(|bytes| bytes.try_into().ok());
        bytes.map(u32::from_ne_bytes)
    };
    let kind = answer.get(4..6).and_then(|bytes| bytes.try_into().ok());
    if kind.map(u16::from_ne_bytes) == Some(ERROR) || length < HEADER_BYTES + ANSWER_BYTES {
        return Err(io::ErrorKind::Unsupported.into());
    }
    // The destination port: a listening socket, which is found where no connection is, has none.
    let port = answer[HEADER_BYTES + 6..HEADER_BYTES + 8] == remote.port().to_be_bytes();
    let (user, inode) = (number(HEADER_BYTES + 64), number(HEADER_BYTES + 68));
    // A socket that its process has closed has no inode, and its user is shown as root.
    Ok(user.filter(|_| port && inode.is_some_and(|inode| inode != 0)))
}

/// `struct inet_diag_req_v2` for one connection.
fn question(local: SocketAddr, remote: SocketAddr) -> Vec<u8> {
    let family = if local.is_ipv4() {
        libc::AF_INET
    } else {
        libc::AF_INET6
    };
    let any_state = u32::MAX;
    let mut body = vec![family as u8, libc::IPPROTO_TCP as u8, 0, 0];
    body.extend(any_state.to_ne_bytes());
    body.extend(local.port().to_be_bytes());
    body.extend(remote.port().to_be_bytes());
    for end in [local, remote] {
        let mut address = [0; 16];
        match end.ip() {
            IpAddr::V4(it) => address[..4].copy_from_slice(&it.octets()),
            IpAddr::V6(it) => address = it.octets(),
        }
        body.extend(address);
    }
    // Any interface, and any cookie.
    body.extend(0_u32.to_ne_bytes());
    body.extend([0xff; 8]);
    let length = (HEADER_BYTES + body.len()) as u32;
    let mut message = Vec::from(length.to_ne_bytes());
    message.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    message.extend(REQUEST.to_ne_bytes());
    // Sequence number and port.
    message.extend([0; 8]);
    message.extend(body);
    message
}

/// The user in the kernel's table of connections, which is searched line by line.
fn listed(local: SocketAddr, remote: SocketAddr) -> Option<u32> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"];
    let tables = tables.map(|path| fs::read_to_string(path).unwrap_or_default());
    tables
        .iter()
        .find_map(|table| user_in(table, local, remote))
}

fn user_in(table: &str, local: SocketAddr, remote: SocketAddr) -> Option<u32> {
    let is = |field: &str, wanted: SocketAddr| {
        let (address, port) = field.rsplit_once(':').unwrap_or_default();
        let (v4, v6) = match wanted.ip() {
            IpAddr::V4(it) => (it.octets().to_vec(), it.to_ipv6_mapped().octets()),
            IpAddr::V6(it) => (Vec::new(), it.octets()),
        };
        let written = |bytes: &[u8]| {
            let (words, _) = bytes.as_chunks::<4>();
            let words = words.iter().map(|word| u32::from_ne_bytes(*word));
            words.map(|word| format!("{word:08X}")).collect::<String>()
        };
        port == format!("{:04X}", wanted.port())
            && (address == written(&v6) || !v4.is_empty() && address == written(&v4))
    };
    table.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (own, other, user) = (fields.get(1)?, fields.get(2)?, fields.get(7)?);
        let is_open = *fields.get(9)? != "0";
        (is_open && is(own, local) && is(other, remote)).then(|| user.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn the_user_of_a_connection_is_found_until_its_process_closes_it() {
        for address in ["127.0.0.1:0", "127.8.0.1:0", "[::1]:0"] {
            let listener = TcpListener::bind(address).unwrap();
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (server, _) = listener.accept().unwrap();
            let (local, remote) = (client.local_addr().unwrap(), listener.local_addr().unwrap());
            assert_eq!(asked(local, remote).unwrap(), Some(os::user()), "{address}");
            assert_eq!(listed(local, remote), Some(os::user()), "{address}");
            assert_eq!(user_of(&server), Some(os::user()), "{address}");
            drop(client);
            assert_eq!(user_between(local, remote), None, "{address}");
            assert_eq!(user_of(&server), None, "{address}");
        }
    }

    #[test]
    fn the_user_of_the_process_and_root_are_trusted() {
        let own = os::user();
        assert!(is_trusted(own) && is_trusted(0));
        assert!(!is_trusted(own ^ 0x4000));
    }

    #[test]
    fn a_line_of_another_connection_or_of_a_closed_socket_is_not_taken() {
        let line = |local, remote, user, inode| {
            format!(
                "  0: {local} {remote} 01 00000000:00000000 00:00000000 00000000  {user} 0 {inode} 1 0\n"
            )
        };
        let (own, other) = ("0100007F:9C40", "0100007F:2116");
        let (local, remote) = (
            "127.0.0.1:40000".parse().unwrap(),
            "127.0.0.1:8470".parse().unwrap(),
        );
        let user = |text: String| user_in(&text, local, remote);
        if cfg!(target_endian = "little") {
            assert_eq!(user(line(own, other, 1000, 77)), Some(1000));
            assert_eq!(user(line(own, other, 0, 0)), None);
            assert_eq!(user(line(other, own, 1000, 77)), None);
            let mapped = "0000000000000000FFFF0000";
            let [own, other] = [own, other].map(|it| format!("{mapped}{it}"));
            assert_eq!(user(line(&own, &other, 7, 1)), Some(7));
        }
        assert_eq!(user("sl local\n".to_owned()), None);
    }
}

//! The kernel's TCP congestion control of a connection.

use std::io;

use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, Type};

/// Where the kernel lists the algorithms that it has loaded.
const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";

/// Checks, before anything is served, that the kernel has an algorithm and lets this process use it.
///
/// # Errors
/// A sentence that names the algorithms that there are.
pub fn check(name: &str) -> Result<(), String> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP));
    let Err(error) = socket.and_then(|socket| socket.set_tcp_congestion(name.as_bytes())) else {
        return Ok(());
    };
    let loaded = std::fs::read_to_string(AVAILABLE).unwrap_or_default();
    let reason = match error.kind() {
        io::ErrorKind::NotFound => "the kernel has no such congestion control".to_owned(),
        io::ErrorKind::PermissionDenied => "only privileged processes may use it".to_owned(),
        _ => error.to_string(),
    };
    Err(format!("{reason}; loaded are: {}", loaded.trim()))
}

/// How the names of the algorithms begin that send each segment at its own time, by a timer.
const PACING: &[u8] = b"bbr";
/// Algorithms without pacing, the best first.
const UNPACED: [&str; 2] = ["cubic", "reno"];

/// Sets the algorithm of a socket. Without a name the system's default stays, unless that paces segments and
/// both ends are on this host: there is no network between them that could be congested, and the timers take
/// a large part of the time. An error, which [`check`] makes unlikely, is logged, and the default stays.
pub(crate) fn set(socket: &SockRef<'_>, name: Option<&str>) {
    let Some(name) = name else {
        if is_within_this_host(socket)
            && socket
                .tcp_congestion()
                .is_ok_and(|it| it.starts_with(PACING))
        {
            UNPACED
                .iter()
                .find(|name| socket.set_tcp_congestion(name.as_bytes()).is_ok());
        }
        return;
    };
    if let Err(error) = socket.set_tcp_congestion(name.as_bytes()) {
        tracing::warn!(name, "the system's congestion control stays: {error}");
    }
}

/// Whether a connected socket has the same address at both ends.
fn is_within_this_host(socket: &SockRef<'_>) -> bool {
    let address = |it: io::Result<SockAddr>| Some(it.ok()?.as_socket()?.ip().to_canonical());
    let local = address(socket.local_addr());
    local.is_some() && local == address(socket.peer_addr())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn only_a_connection_within_this_host_is_not_paced() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (listening, connected) = (SockRef::from(&listener), SockRef::from(&stream));
        assert!(!is_within_this_host(&listening) && is_within_this_host(&connected));
        set(&connected, None);
        assert!(!connected.tcp_congestion().unwrap().starts_with(PACING));
        set(&connected, Some("reno"));
        assert!(connected.tcp_congestion().unwrap().starts_with(b"reno"));
        set(&connected, None);
        assert!(
            connected.tcp_congestion().unwrap().starts_with(b"reno"),
            "it does not pace"
        );
    }

    #[test]
    fn an_algorithm_that_the_kernel_does_not_have_is_an_error_that_names_others() {
        assert_eq!(check("reno"), Ok(()));
        let error = check("fastest").expect_err("no such algorithm");
        assert!(
            error.contains("no such congestion control") && error.contains("reno"),
            "{error}"
        );
    }
}

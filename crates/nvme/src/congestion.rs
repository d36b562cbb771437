//! The kernel's TCP congestion control of a connection.

use std::io;

use socket2::{Domain, Protocol, SockRef, Socket, Type};

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

/// Sets the algorithm of a socket; without a name the system's default stays. An error, which [`check`] makes
/// unlikely, is logged, and the default stays.
pub(crate) fn set(socket: &SockRef<'_>, name: Option<&str>) {
    let Some(name) = name else { return };
    if let Err(error) = socket.set_tcp_congestion(name.as_bytes()) {
        tracing::warn!(name, "the system's congestion control stays: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_algorithm_that_the_kernel_does_not_have_is_an_error_that_names_others() {
        assert_eq!(check("reno"), Ok(()));
        let error = check("fastest").expect_err("no such algorithm");
        assert!(error.contains("no such congestion control") && error.contains("reno"), "{error}");
    }
}

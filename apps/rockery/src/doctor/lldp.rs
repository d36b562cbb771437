//! `rockery doctor lldp`: what neighbours say by LLDP and DCBX, from a capture or an interface.

use std::io::{self, Read as _};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::{Duration, Instant};

use ::sim::input;
use doctor::{Neighbour, hear, neighbours, page};

use crate::Error;
use crate::{output, printable, sys};

/// The neighbours in a capture.
///
/// # Errors
/// A file that cannot be read, or that is no capture.
pub(super) fn captured(capture: &Path) -> Result<Vec<Neighbour>, Error> {
    let bytes = input::read(capture).map_err(Error::file(capture))?;
    Ok(neighbours(&capture.display().to_string(), &bytes)?)
}

/// Listens on an interface for so long.
///
/// # Errors
/// An interface that cannot be listened on.
pub(super) fn heard(interface: &str, time: Duration) -> Result<Vec<Neighbour>, Error> {
    let failed = |error: io::Error| {
        let what = match error.kind() {
            io::ErrorKind::PermissionDenied => format!(
                "listening needs CAP_NET_RAW: run it as root, or read a capture that tcpdump -i {interface} \
                 -w lldp.pcap ether proto 0x88cc has written"
            ),
            _ => error.to_string(),
        };
        Error::Unread(format!("{interface}: {what}"))
    };
    let mut frames = sys::listen_for_lldp(interface).map_err(failed)?;
    let (until, mut found, mut frame) = (Instant::now() + time, Vec::new(), [0; 2048]);
    loop {
        let left = until.saturating_duration_since(Instant::now());
        sys::datagrams::wait(&[(frames.as_raw_fd(), false)], left).map_err(failed)?;
        match frames.read(&mut frame) {
            Ok(length) => hear(&mut found, &frame[..length]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(failed(error)),
        }
        if left.is_zero() {
            return Ok(found);
        }
    }
}

/// Prints what each neighbour says, or that no neighbour was heard.
///
/// # Errors
/// When standard output cannot be written.
pub(super) fn show(found: &[Neighbour], json: bool) -> Result<(), Error> {
    if json {
        output::json(serde_json::to_string_pretty(found).unwrap_or_default())
    } else if found.is_empty() {
        output::line("no frame of LLDP in it: switches send one every 30 seconds")
    } else {
        output::print(printable::lines(&page(found)))
    }
}

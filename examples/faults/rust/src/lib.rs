//! Rules of faults in a running program: what `rockery fault` does, for tests that decide while they run.
//! Copy this file; rockery's docs/faults.md lists the rules. Tests run by
//! `rockery run --fault none -- cargo test`.

use std::io::{Error, ErrorKind, Result};
use std::mem::{offset_of, size_of, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process;

/// The longest answer.
const BYTES: usize = 4096;
/// Libraries of a process that have rules: libibverbs and librdmacm.
const LIBRARIES: u32 = 2;

/// A rule, which is removed when this is dropped.
#[derive(Debug)]
pub struct Fault {
    process: u32,
    rule: u32,
}

impl Fault {
    /// Adds a rule, such as `post_send: fail ENOMEM times 3`, to this process.
    ///
    /// # Errors
    /// `NotFound` where the process was started without `--fault`, `InvalidInput` for a rule that is refused.
    pub fn add(rule: &str) -> Result<Self> {
        Self::add_to(process::id(), rule)
    }

    /// Adds a rule to a process.
    ///
    /// # Errors
    /// As [`Self::add`].
    pub fn add_to(process: u32, rule: &str) -> Result<Self> {
        let lines = ask(process, &format!("add {rule}"))?;
        let mut numbers = lines.iter().filter_map(|line| line.strip_prefix("added "));
        let number = numbers.next().and_then(|number| number.parse().ok());
        let rule = number.ok_or_else(|| Error::new(ErrorKind::InvalidData, lines.join("; ")))?;
        Ok(Self { process, rule })
    }

    /// How many faults the rule has caused.
    ///
    /// # Errors
    /// As [`Self::add`].
    pub fn count(&self) -> Result<u64> {
        let lines = ask(self.process, "list")?;
        // rule NUMBER MATCHED FAULTS TEXT
        let counts = lines.iter().filter_map(|line| {
            let mut words = line.strip_prefix("rule ")?.split(' ');
            let is_it = words.next()?.parse() == Ok(self.rule);
            is_it.then_some(words.nth(1)?.parse::<u64>().ok()?)
        });
        Ok(counts.sum())
    }
}

impl Drop for Fault {
    fn drop(&mut self) {
        let _ = ask(self.process, &format!("remove {}", self.rule));
    }
}

/// The lines that the libraries of a process answer.
fn ask(process: u32, request: &str) -> Result<Vec<String>> {
    let mut lines = Vec::new();
    let mut is_there = false;
    for library in 0..LIBRARIES {
        match ask_one(&format!("rockery-faults-{process}-{library}"), request) {
            Ok(answer) => {
                is_there = true;
                lines.extend(answer);
            }
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
            Err(error) => return Err(error),
        }
    }
    if !is_there {
        let what = "the process has no rules: start it by `rockery run --fault none`";
        return Err(Error::new(ErrorKind::NotFound, what));
    }
    match lines.iter().find_map(|line| line.strip_prefix("refused ")) {
        Some(reason) => Err(Error::new(ErrorKind::InvalidInput, reason.to_owned())),
        None => Ok(lines),
    }
}

/// What a call returned, or its error.
fn checked(result: isize) -> Result<usize> {
    usize::try_from(result).map_err(|_| Error::last_os_error())
}

/// Sends a request to one library and reads its answer. The socket has a name in the abstract namespace
/// (unix(7)): the name begins with a zero byte, and no file exists. `SOCK_SEQPACKET` keeps the boundaries
/// between messages.
fn ask_one(name: &str, request: &str) -> Result<Vec<String>> {
    // SAFETY: plain calls; the address and the buffers outlive them, with their lengths.
    unsafe {
        let fd = libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0);
        checked(fd as isize)?;
        let connection = OwnedFd::from_raw_fd(fd);
        let mut address: libc::sockaddr_un = zeroed();
        address.sun_family = libc::AF_UNIX as libc::sa_family_t;
        for (place, byte) in address.sun_path[1..].iter_mut().zip(name.bytes()) {
            *place = byte as libc::c_char;
        }
        let length = offset_of!(libc::sockaddr_un, sun_path) + 1 + name.len();
        debug_assert!(length <= size_of::<libc::sockaddr_un>());
        let fd = connection.as_raw_fd();
        let pointer = (&raw const address).cast();
        checked(libc::connect(fd, pointer, length as libc::socklen_t) as isize)?;
        let flags = libc::MSG_NOSIGNAL;
        checked(libc::send(
            fd,
            request.as_ptr().cast(),
            request.len(),
            flags,
        ))?;
        let mut lines = Vec::new();
        loop {
            let mut line = [0_u8; BYTES];
            match checked(libc::recv(fd, line.as_mut_ptr().cast(), BYTES, 0))? {
                0 => return Ok(lines),
                length => lines.push(String::from_utf8_lossy(&line[..length]).into_owned()),
            }
        }
    }
}

//! Processes by descriptor: unlike a number, a descriptor never names another process later (pidfd_open(2)).

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// A process, whether it has ended or not.
#[derive(Debug)]
pub struct Pidfd(OwnedFd);

impl Pidfd {
    /// The process that has this number now.
    ///
    /// # Errors
    /// When there is none, or the kernel is older than Linux 5.3.
    pub fn open(process: u32) -> io::Result<Self> {
        let process = i32::try_from(process).map_err(io::Error::other)?;
        // SAFETY: numbers only.
        let result = unsafe { libc::syscall(libc::SYS_pidfd_open, process, 0) };
        match i32::try_from(result) {
            // SAFETY: a new descriptor, which nothing else has.
            Ok(fd) if fd >= 0 => Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) })),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Requests its end by SIGTERM.
    ///
    /// # Errors
    /// When it has ended, or is not this user's.
    pub fn terminate(&self) -> io::Result<()> {
        let (fd, none) = (self.0.as_raw_fd(), std::ptr::null::<libc::siginfo_t>());
        // SAFETY: the descriptor is open; without a siginfo the kernel makes one.
        match unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd, libc::SIGTERM, none, 0) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Waits until it has ended; `false` when it has not in this time.
    ///
    /// # Errors
    /// As `poll`.
    pub fn wait(&self, most: Duration) -> io::Result<bool> {
        os::wait::wait([(self.0.as_raw_fd(), false)], most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_ended_by_its_descriptor() {
        let mut child = std::process::Command::new("sleep")
            .arg("600")
            .spawn()
            .unwrap();
        let process = Pidfd::open(child.id()).unwrap();
        assert!(!process.wait(Duration::ZERO).unwrap());
        process.terminate().unwrap();
        assert!(process.wait(Duration::from_secs(60)).unwrap());
        child.wait().unwrap();
        assert_eq!(
            process.terminate().unwrap_err().raw_os_error(),
            Some(libc::ESRCH)
        );
    }
}

//! System calls that tests need: shared mappings, raw Unix sockets, signals.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::{NonNull, null_mut};

/// Memory that is mapped.
pub(crate) struct Mapping {
    start: NonNull<u8>,
    length: usize,
    /// Kept open, because rockery finds the file of an unnamed mapping among the descriptors.
    file: Option<File>,
}

impl Mapping {
    /// A shared mapping of a file in memory.
    pub(crate) fn new(name: &std::ffi::CStr, length: usize) -> Self {
        // SAFETY: a name that lives until the call returns, a new descriptor.
        let file =
            unsafe { File::from_raw_fd(libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC)) };
        file.set_len(length as u64).unwrap();
        let fd = file.as_raw_fd();
        Self::map(length, libc::MAP_SHARED, fd, Some(file))
    }

    /// A private anonymous mapping.
    pub(crate) fn private(length: usize) -> Self {
        Self::map(length, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, None)
    }

    fn map(length: usize, flags: i32, fd: RawFd, file: Option<File>) -> Self {
        // SAFETY: a new range.
        let start = unsafe {
            libc::mmap(
                null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                flags,
                fd,
                0,
            )
        };
        assert_ne!(start, libc::MAP_FAILED);
        Self {
            start: NonNull::new(start.cast()).unwrap(),
            length,
            file,
        }
    }

    /// Truncates its file.
    pub(crate) fn truncate(&self, length: usize) {
        self.file.as_ref().unwrap().set_len(length as u64).unwrap();
    }

    /// Removes its pages, as `munmap` does, but keeps the range reserved, so that no other test gets it.
    pub(crate) fn take_pages(&self) {
        // SAFETY: the range is that of this mapping; there are no references into it.
        let refused =
            unsafe { libc::mprotect(self.start.as_ptr().cast(), self.length, libc::PROT_NONE) };
        assert_eq!(refused, 0);
    }

    pub(crate) fn address(&self) -> u64 {
        self.start.addr().get() as u64
    }

    pub(crate) fn byte(&self, at: usize) -> u8 {
        assert!(at < self.length);
        // SAFETY: within the mapping.
        unsafe { self.start.add(at).read_volatile() }
    }

    pub(crate) fn set(&self, at: usize, byte: u8) {
        assert!(at < self.length);
        // SAFETY: within the mapping.
        unsafe { self.start.add(at).write_volatile(byte) }
    }
}

// SAFETY: bytes that are read and written one by one, and may change at any time.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: our own mapping, which is not used any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

/// Connects to an abstract socket name.
pub(crate) fn connect(name: &str) -> io::Result<OwnedFd> {
    // SAFETY: a new descriptor; all zeros is a valid address; an address of that length.
    unsafe {
        let socket = libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0);
        let socket = OwnedFd::from_raw_fd(socket);
        let mut address: libc::sockaddr_un = std::mem::zeroed();
        address.sun_family = libc::AF_UNIX as u16;
        for (place, byte) in address.sun_path.iter_mut().skip(1).zip(name.bytes()) {
            *place = byte as libc::c_char;
        }
        let length = (std::mem::offset_of!(libc::sockaddr_un, sun_path) + 1 + name.len()) as u32;
        match libc::connect(socket.as_raw_fd(), (&raw const address).cast(), length) {
            0 => Ok(socket),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Sends a message with a descriptor.
pub(crate) fn send(socket: &OwnedFd, bytes: &[u8], with: RawFd) {
    let mut control = [0u64; 3];
    let mut piece = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    // SAFETY: every pointer is to something that lives until the call returns; there is room for a header and
    // one descriptor.
    unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        (message.msg_iov, message.msg_iovlen) = (&mut piece, 1);
        (message.msg_control, message.msg_controllen) =
            (control.as_mut_ptr().cast(), libc::CMSG_SPACE(4) as _);
        let header = libc::CMSG_FIRSTHDR(&message);
        ((*header).cmsg_level, (*header).cmsg_type) = (libc::SOL_SOCKET, libc::SCM_RIGHTS);
        (*header).cmsg_len = libc::CMSG_LEN(4) as _;
        libc::CMSG_DATA(header)
            .cast::<RawFd>()
            .write_unaligned(with);
        assert_eq!(
            libc::sendmsg(socket.as_raw_fd(), &message, 0),
            bytes.len() as isize
        );
    }
}

/// Receives a message; 0 bytes when the other end is closed.
pub(crate) fn receive(socket: &OwnedFd, bytes: &mut [u8]) -> usize {
    // SAFETY: a slice and its length.
    let length = unsafe {
        libc::recv(
            socket.as_raw_fd(),
            bytes.as_mut_ptr().cast(),
            bytes.len(),
            0,
        )
    };
    length.max(0) as usize
}

/// Stops a process, or continues it.
pub(crate) fn stop(process: i32, stops: bool) {
    // SAFETY: no pointers.
    unsafe { libc::kill(process, if stops { libc::SIGSTOP } else { libc::SIGCONT }) };
}

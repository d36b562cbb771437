//! Closing all descriptors from one on, with any kernel and any C library.

use std::mem::offset_of;

/// `struct linux_dirent64` of getdents64(2), without the name that follows.
#[repr(C)]
struct Entry {
    inode: u64,
    offset: i64,
    length: u16,
    kind: u8,
    name: [u8; 0],
}

const NAME: usize = offset_of!(Entry, name);
const LENGTH: usize = offset_of!(Entry, length);

/// Closes all descriptors from `first` on.
///
/// # Safety
/// Nothing uses any of them. May be called after a fork: system calls alone, and no memory is allocated.
pub(crate) unsafe fn close_from(first: i32) {
    // SAFETY: numbers only. As a system call: glibc has the function from 2.34 on.
    let code = unsafe { libc::syscall(libc::SYS_close_range, first as u32, u32::MAX, 0u32) };
    if code != 0 {
        // Before Linux 5.9.
        // SAFETY: as the caller promises.
        unsafe { close_listed(first) };
    }
}

/// The same by the list in `/proc/self/fd`. A limit would not do: descriptors above it stay where the limit
/// was lowered. Without `/proc` nothing is closed: a lock or a socket that stays open is the lesser harm
/// beside two thousand million calls.
unsafe fn close_listed(first: i32) {
    let mut entries = [0; 4096];
    // SAFETY: a path that ends with zero; room for as many bytes as are said; descriptors that the caller
    // gives up.
    unsafe {
        let folder = libc::open(
            c"/proc/self/fd".as_ptr(),
            libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC,
        );
        if folder < 0 {
            return;
        }
        loop {
            let read = libc::syscall(
                libc::SYS_getdents64,
                folder,
                entries.as_mut_ptr(),
                entries.len(),
            );
            let Some(listed) = usize::try_from(read)
                .ok()
                .and_then(|read| entries.get(..read))
            else {
                break;
            };
            if listed.is_empty() {
                break;
            }
            each(listed, |fd| {
                if fd >= first && fd != folder {
                    libc::close(fd);
                }
            });
        }
        libc::close(folder);
    }
}

/// The descriptors that entries of `/proc/self/fd` name. `.` and `..` are none.
fn each(mut entries: &[u8], mut found: impl FnMut(i32)) {
    while let Some(&[low, high]) = entries.get(LENGTH..LENGTH + 2) {
        let length = usize::from(u16::from_ne_bytes([low, high]));
        let Some((entry, rest)) = entries.split_at_checked(length.max(NAME)) else {
            return;
        };
        let digits = entry[NAME..]
            .split(|byte| *byte == 0)
            .next()
            .unwrap_or_default();
        let number = std::str::from_utf8(digits)
            .ok()
            .and_then(|digits| digits.parse().ok());
        if let Some(fd) = number {
            found(fd);
        }
        entries = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a descriptor is open.
    fn is_open(fd: i32) -> bool {
        // SAFETY: a number.
        unsafe { libc::fcntl(fd, libc::F_GETFD) >= 0 }
    }

    /// Runs `close` in a child, which has descriptors on both sides of `FIRST` and more of them than one call
    /// of getdents64 lists, some above the limit; returns whether those below stayed and all others went.
    fn closes(close: unsafe fn(i32)) -> bool {
        const FIRST: i32 = 200;
        const LAST: i32 = 600;
        // SAFETY: the child uses system calls alone, and ends here.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                (100..LAST).for_each(|fd| _ = libc::dup2(2, fd));
                let limit = libc::rlimit {
                    rlim_cur: 300,
                    rlim_max: 300,
                };
                libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
                close(FIRST);
                let right = (100..FIRST).all(is_open) && !(FIRST..LAST).any(is_open);
                libc::_exit(i32::from(!right));
            }
            let mut status = -1;
            libc::waitpid(child, &mut status, 0);
            libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
        }
    }

    #[test]
    fn descriptors_from_the_first_on_are_closed_and_others_stay() {
        assert!(closes(close_from));
    }

    #[test]
    fn a_kernel_without_close_range_has_the_list_in_proc() {
        assert!(closes(close_listed));
    }
}

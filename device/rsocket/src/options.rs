//! Values of the options of stream sockets, and their layouts in C.

use super::defaults;
use super::protocol::{scale, unscale};
use super::sizes::{BYTES, INLINE_BYTES_MAX, REQUESTS, Sizes};
use core::ffi::{c_int, c_void};
use ffi::Errno;
use std::time::Duration;

/// Levels and option names of rdma/rsocket.h.
pub(super) const SOL_RDMA: c_int = 0x1_0000;
pub(super) const RDMA_SQSIZE: c_int = 0;
pub(super) const RDMA_RQSIZE: c_int = 1;
pub(super) const RDMA_INLINE: c_int = 2;
const RDMA_IOMAPSIZE: c_int = 3;

/// Default of `TCP_KEEPIDLE`: two hours, as for TCP.
const KEEPALIVE: Duration = Duration::from_secs(7200);
const SEGMENT_BYTES: c_int = 4096;

/// The values of all self.
#[derive(Clone, Debug)]
pub(super) struct Options {
    pub(super) sizes: Sizes,
    pub(super) keepalive: bool,
    pub(super) keepalive_idle: Duration,
    pub(super) linger: Option<u32>,
    pub(super) receive_timeout: Option<Duration>,
    pub(super) send_timeout: Option<Duration>,
    reuse_address: bool,
    v6_only: bool,
    no_delay: bool,
    out_of_band_inline: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            sizes: defaults::of_this_host().sizes.clone(),
            keepalive: false,
            keepalive_idle: KEEPALIVE,
            linger: None,
            receive_timeout: None,
            send_timeout: None,
            reuse_address: false,
            v6_only: false,
            no_delay: false,
            out_of_band_inline: false,
        }
    }
}

/// Reads a value of C.
///
/// # Safety
/// `length` bytes are at `value`.
pub(super) unsafe fn read<T: Copy>(value: *const c_void, length: u32) -> Result<T, Errno> {
    if value.is_null() || (length as usize) < size_of::<T>() {
        return Err(Errno::INVALID);
    }
    // SAFETY: by this function's contract, `length` bytes are at `value`.
    Ok(unsafe { value.cast::<T>().read_unaligned() })
}

pub(super) fn timeout(value: libc::timeval) -> Option<Duration> {
    let seconds = u64::try_from(value.tv_sec).unwrap_or(0);
    let rest = u64::try_from(value.tv_usec).unwrap_or(0);
    Some(Duration::from_secs(seconds) + Duration::from_micros(rest)).filter(|time| !time.is_zero())
}

pub(super) fn timeval(time: Option<Duration>) -> libc::timeval {
    let time = time.unwrap_or_default();
    libc::timeval {
        tv_sec: time.as_secs() as i64,
        tv_usec: i64::from(time.subsec_micros()),
    }
}

/// An option of a socket, as `setsockopt(2)` names it.
#[derive(Clone, Copy)]
pub(super) struct OptionName {
    /// The protocol that has the option: `SOL_SOCKET` for those of all sockets.
    pub(super) level: c_int,
    pub(super) name: c_int,
}

impl Options {
    /// Stores the value of an option. Sizes cannot be set any more when `has_queues`.
    ///
    /// # Safety
    /// `length` bytes are at `value`.
    pub(super) unsafe fn set(
        &mut self,
        option: OptionName,
        value: *const c_void,
        length: u32,
        has_queues: bool,
    ) -> Result<(), Errno> {
        // SAFETY: by this function's contract, `length` bytes are at `value`.
        let number = || unsafe { read::<c_int>(value, length) };
        let flag = || number().map(|value| value != 0);
        // SAFETY: by this function's contract, `length` bytes are at `value`.
        let time = || unsafe { read::<libc::timeval>(value, length) }.map(timeout);
        let bytes =
            || number().map(|value| (value.max(0) as usize).clamp(*BYTES.start(), *BYTES.end()));
        let requests = || {
            number().map(|value| (value.max(0) as u32).clamp(*REQUESTS.start(), *REQUESTS.end()))
        };
        match (option.level, option.name) {
            (libc::SOL_SOCKET, libc::SO_REUSEADDR) => self.reuse_address = flag()?,
            (libc::SOL_SOCKET, libc::SO_RCVBUF) => self.sizes.receive_bytes = even(bytes()?),
            (libc::SOL_SOCKET, libc::SO_SNDBUF) => self.sizes.send_bytes = bytes()?,
            (libc::SOL_SOCKET, libc::SO_KEEPALIVE) => self.keepalive = flag()?,
            (libc::SOL_SOCKET, libc::SO_OOBINLINE) => self.out_of_band_inline = flag()?,
            (libc::SOL_SOCKET, libc::SO_RCVTIMEO) => self.receive_timeout = time()?,
            (libc::SOL_SOCKET, libc::SO_SNDTIMEO) => self.send_timeout = time()?,
            (libc::SOL_SOCKET, libc::SO_LINGER) => {
                // SAFETY: by this function's contract, `length` bytes are at `value`.
                let linger = unsafe { read::<libc::linger>(value, length) }?;
                self.linger = (linger.l_onoff != 0).then_some(linger.l_linger.max(0) as u32);
            }
            (libc::IPPROTO_TCP, libc::TCP_NODELAY) => self.no_delay = flag()?,
            (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE) => {
                let seconds = u64::try_from(number()?).ok().filter(|seconds| *seconds > 0);
                self.keepalive_idle = Duration::from_secs(seconds.ok_or(Errno::INVALID)?);
            }
            // Accepted without an effect.
            (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => {}
            (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) => self.v6_only = flag()?,
            (SOL_RDMA, RDMA_SQSIZE) if !has_queues => self.sizes.sends = requests()?,
            (SOL_RDMA, RDMA_RQSIZE) if !has_queues => self.sizes.receives = requests()?,
            (SOL_RDMA, RDMA_INLINE) if !has_queues => {
                self.sizes.inline_bytes = (number()?.max(0) as u32).min(INLINE_BYTES_MAX);
            }
            (SOL_RDMA, RDMA_IOMAPSIZE) if !has_queues => {
                self.sizes.mappings = unscale(scale(number()?.max(0) as u32));
            }
            (SOL_RDMA, _) => return Err(Errno::INVALID),
            _ => return Err(Errno(libc::ENOPROTOOPT)),
        }
        Ok(())
    }

    /// Writes the value of an option to the program's memory.
    ///
    /// # Safety
    /// `*length` bytes are writable at `value`.
    pub(super) unsafe fn get(
        &self,
        option: OptionName,
        value: *mut c_void,
        length: *mut u32,
    ) -> Result<(), Errno> {
        let flag = |flag: bool| Ok(c_int::from(flag));
        let number: Result<c_int, Errno> = match (option.level, option.name) {
            (libc::SOL_SOCKET, libc::SO_TYPE) => Ok(libc::SOCK_STREAM),
            (libc::SOL_SOCKET, libc::SO_REUSEADDR) => flag(self.reuse_address),
            (libc::SOL_SOCKET, libc::SO_RCVBUF) => Ok(self.sizes.receive_bytes as c_int),
            (libc::SOL_SOCKET, libc::SO_SNDBUF) => Ok(self.sizes.send_bytes as c_int),
            (libc::SOL_SOCKET, libc::SO_KEEPALIVE) => flag(self.keepalive),
            (libc::SOL_SOCKET, libc::SO_OOBINLINE) => flag(self.out_of_band_inline),
            (libc::SOL_SOCKET, libc::SO_RCVTIMEO) => {
                // SAFETY: by this function's contract, `*length` bytes are writable at `value`.
                return unsafe { write(timeval(self.receive_timeout), value, length) };
            }
            (libc::SOL_SOCKET, libc::SO_SNDTIMEO) => {
                // SAFETY: by this function's contract, `*length` bytes are writable at `value`.
                return unsafe { write(timeval(self.send_timeout), value, length) };
            }
            (libc::SOL_SOCKET, libc::SO_LINGER) => {
                let l_linger = self.linger.unwrap_or(0) as c_int;
                let linger = libc::linger {
                    l_onoff: self.linger.is_some().into(),
                    l_linger,
                };
                // SAFETY: by this function's contract, `*length` bytes are writable at `value`.
                return unsafe { write(linger, value, length) };
            }
            (libc::IPPROTO_TCP, libc::TCP_NODELAY) => flag(self.no_delay),
            (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE) => Ok(self.keepalive_idle.as_secs() as c_int),
            (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => Ok(SEGMENT_BYTES),
            // Reported as 0 (`TCP_INFO` and the like): there are no TCP segments.
            (libc::IPPROTO_TCP, libc::TCP_INFO) => {
                // SAFETY: by this function's contract, `*length` bytes are writable at `value`.
                unsafe {
                    core::ptr::write_bytes(
                        value.cast::<u8>(),
                        0,
                        length.as_ref().map_or(0, |it| *it as usize),
                    )
                };
                return Ok(());
            }
            (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) => flag(self.v6_only),
            (SOL_RDMA, RDMA_SQSIZE) => Ok(self.sizes.sends as c_int),
            (SOL_RDMA, RDMA_RQSIZE) => Ok(self.sizes.receives as c_int),
            (SOL_RDMA, RDMA_INLINE) => Ok(self.sizes.inline_bytes as c_int),
            (SOL_RDMA, RDMA_IOMAPSIZE) => Ok(self.sizes.mappings as c_int),
            _ => Err(Errno(libc::ENOPROTOOPT)),
        };
        // SAFETY: by this function's contract, `*length` bytes are writable at `value`.
        unsafe { write(number?, value, length) }
    }
}

const fn even(bytes: usize) -> usize {
    bytes & !1
}

/// Writes a value of C.
///
/// # Safety
/// `*length` bytes are writable at `value`.
pub(super) unsafe fn write<T>(from: T, value: *mut c_void, length: *mut u32) -> Result<(), Errno> {
    // SAFETY: by this function's contract, `*length` bytes are writable at `value`.
    unsafe {
        let room = length.as_mut().ok_or(Errno::INVALID)?;
        if value.is_null() || (*room as usize) < size_of::<T>() {
            return Err(Errno::INVALID);
        }
        value.cast::<T>().write_unaligned(from);
        *room = size_of::<T>() as u32;
    }
    Ok(())
}

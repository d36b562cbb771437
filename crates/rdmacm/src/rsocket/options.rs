//! `rsetsockopt` and `rgetsockopt`: options that are stored, and those that have an effect.

use super::defaults::{self, Sizes};
use super::protocol::{scale, unscale};
use super::socket::{Inner, Phase};
use crate::options::rdma_set_option;
use abi::{RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, RDMA_OPTION_ID_REUSEADDR};
use core::ffi::{c_int, c_void};
use door::Errno;
use std::time::Duration;

/// Levels and option names of rdma/rsocket.h.
pub(super) const SOL_RDMA: c_int = 0x1_0000;
pub(super) const RDMA_SQSIZE: c_int = 0;
pub(super) const RDMA_RQSIZE: c_int = 1;
pub(super) const RDMA_INLINE: c_int = 2;
const RDMA_IOMAPSIZE: c_int = 3;

/// Work requests of a direction: more than the control messages need, and at most what the 16-bit credits can
/// count.
pub(super) const REQUESTS: core::ops::RangeInclusive<u32> = 16..=0x7ffe;
/// Buffer sizes: at least two halves of a page, and at most what one message can announce.
pub(super) const BYTES: core::ops::RangeInclusive<usize> = 4096..=256 << 20;
pub(super) const INLINE_BYTES_MAX: u32 = 1024;
/// Default of `TCP_KEEPIDLE`: two hours, as for TCP.
const KEEPALIVE: Duration = Duration::from_secs(7200);
const SEGMENT_BYTES: c_int = 4096;

/// The values of all options.
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

/// Sets an option of a stream socket.
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
    libc::timeval { tv_sec: time.as_secs() as i64, tv_usec: i64::from(time.subsec_micros()) }
}

impl Inner {
    /// # Safety
    /// `length` bytes are at `value`.
    pub(super) unsafe fn set_option(
        &mut self,
        level: c_int,
        name: c_int,
        value: *const c_void,
        length: u32,
    ) -> Result<(), Errno> {
        // SAFETY: by this function's contract, `length` bytes are at `value`.
        let number = || unsafe { read::<c_int>(value, length) };
        let flag = || number().map(|value| value != 0);
        // SAFETY: by this function's contract, `length` bytes are at `value`.
        let time = || unsafe { read::<libc::timeval>(value, length) }.map(timeout);
        let bytes = || number().map(|value| (value.max(0) as usize).clamp(*BYTES.start(), *BYTES.end()));
        let requests =
            || number().map(|value| (value.max(0) as u32).clamp(*REQUESTS.start(), *REQUESTS.end()));
        let is_fresh = matches!(self.phase, Phase::Fresh | Phase::Bound | Phase::Listening);
        match (level, name) {
            (libc::SOL_SOCKET, libc::SO_REUSEADDR) => {
                self.options.reuse_address = flag()?;
                self.pass_on(RDMA_OPTION_ID_REUSEADDR, number()?)?;
            }
            (libc::SOL_SOCKET, libc::SO_RCVBUF) => self.options.sizes.receive_bytes = even(bytes()?),
            (libc::SOL_SOCKET, libc::SO_SNDBUF) => self.options.sizes.send_bytes = bytes()?,
            (libc::SOL_SOCKET, libc::SO_KEEPALIVE) => self.options.keepalive = flag()?,
            (libc::SOL_SOCKET, libc::SO_OOBINLINE) => self.options.out_of_band_inline = flag()?,
            (libc::SOL_SOCKET, libc::SO_RCVTIMEO) => self.options.receive_timeout = time()?,
            (libc::SOL_SOCKET, libc::SO_SNDTIMEO) => self.options.send_timeout = time()?,
            (libc::SOL_SOCKET, libc::SO_LINGER) => {
                // SAFETY: by this function's contract, `length` bytes are at `value`.
                let linger = unsafe { read::<libc::linger>(value, length) }?;
                self.options.linger = (linger.l_onoff != 0).then_some(linger.l_linger.max(0) as u32);
            }
            (libc::IPPROTO_TCP, libc::TCP_NODELAY) => self.options.no_delay = flag()?,
            (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE) => {
                let seconds = u64::try_from(number()?).ok().filter(|seconds| *seconds > 0);
                self.options.keepalive_idle = Duration::from_secs(seconds.ok_or(Errno::INVALID)?);
            }
            // Accepted without an effect.
            (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => {}
            (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) => {
                self.options.v6_only = flag()?;
                self.pass_on(RDMA_OPTION_ID_AFONLY, number()?)?;
            }
            (SOL_RDMA, RDMA_SQSIZE) if is_fresh => self.options.sizes.sends = requests()?,
            (SOL_RDMA, RDMA_RQSIZE) if is_fresh => self.options.sizes.receives = requests()?,
            (SOL_RDMA, RDMA_INLINE) if is_fresh => {
                self.options.sizes.inline_bytes = (number()?.max(0) as u32).min(INLINE_BYTES_MAX);
            }
            (SOL_RDMA, RDMA_IOMAPSIZE) if is_fresh => {
                self.options.sizes.mappings = unscale(scale(number()?.max(0) as u32));
            }
            (SOL_RDMA, _) => return Err(Errno::INVALID),
            _ => return Err(Errno(libc::ENOPROTOOPT)),
        }
        Ok(())
    }

    fn pass_on(&mut self, name: u32, mut value: c_int) -> Result<(), Errno> {
        if self.phase != Phase::Fresh {
            return Ok(());
        }
        let place = core::ptr::from_mut(&mut value).cast();
        // SAFETY: the identifier is ours, and the value lives until the call returns.
        Errno::check(unsafe {
            rdma_set_option(self.id, RDMA_OPTION_ID as c_int, name as c_int, place, size_of::<c_int>())
        })
    }

    /// # Safety
    /// `*length` bytes are writable at `value`.
    pub(super) unsafe fn option(
        &mut self,
        level: c_int,
        name: c_int,
        value: *mut c_void,
        length: *mut u32,
    ) -> Result<(), Errno> {
        let options = &self.options;
        let flag = |flag: bool| Ok(c_int::from(flag));
        let number: Result<c_int, Errno> = match (level, name) {
            (libc::SOL_SOCKET, libc::SO_TYPE) => Ok(libc::SOCK_STREAM),
            (libc::SOL_SOCKET, libc::SO_ERROR) => Ok(core::mem::take(&mut self.error)),
            (libc::SOL_SOCKET, libc::SO_REUSEADDR) => flag(options.reuse_address),
            (libc::SOL_SOCKET, libc::SO_RCVBUF) => Ok(options.sizes.receive_bytes as c_int),
            (libc::SOL_SOCKET, libc::SO_SNDBUF) => Ok(options.sizes.send_bytes as c_int),
            (libc::SOL_SOCKET, libc::SO_KEEPALIVE) => flag(options.keepalive),
            (libc::SOL_SOCKET, libc::SO_OOBINLINE) => flag(options.out_of_band_inline),
            (libc::SOL_SOCKET, libc::SO_RCVTIMEO) => {
                // SAFETY: by this function's contract, `*length` bytes are writable at `value`.
                return unsafe { write(timeval(options.receive_timeout), value, length) };
            }
            (libc::SOL_SOCKET, libc::SO_SNDTIMEO) => {
                // SAFETY: by this function's contract, `*length` bytes are writable at `value`.
                return unsafe { write(timeval(options.send_timeout), value, length) };
            }
            (libc::SOL_SOCKET, libc::SO_LINGER) => {
                let l_linger = options.linger.unwrap_or(0) as c_int;
                let linger = libc::linger { l_onoff: options.linger.is_some().into(), l_linger };
                // SAFETY: by this function's contract, `*length` bytes are writable at `value`.
                return unsafe { write(linger, value, length) };
            }
            (libc::IPPROTO_TCP, libc::TCP_NODELAY) => flag(options.no_delay),
            (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE) => Ok(options.keepalive_idle.as_secs() as c_int),
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
            (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) => flag(options.v6_only),
            (SOL_RDMA, RDMA_SQSIZE) => Ok(options.sizes.sends as c_int),
            (SOL_RDMA, RDMA_RQSIZE) => Ok(options.sizes.receives as c_int),
            (SOL_RDMA, RDMA_INLINE) => Ok(options.sizes.inline_bytes as c_int),
            (SOL_RDMA, RDMA_IOMAPSIZE) => Ok(options.sizes.mappings as c_int),
            _ => Err(Errno(libc::ENOPROTOOPT)),
        };
        // SAFETY: by this function's contract, `*length` bytes are writable at `value`.
        unsafe { write(number?, value, length) }
    }
}

const fn even(bytes: usize) -> usize {
    bytes & !1
}

/// Returns the value of an option of a stream socket.
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

//! Registered data buffers of connections. Clients share the memory of all connections fairly.

use std::net::IpAddr;
use std::sync::Arc;

use buffer::Buffer;
use rdma::{Domain, Error};
use server::budget::{Budget, Charge, Share};
use server::{UnauthenticatedShare, Wake};

/// Free buffers that a connection keeps, in bytes: registering memory costs more than keeping it.
const KEPT_BYTES: usize = 16 << 20;
/// The same of a connection whose client is not authenticated, while half of the memory of these is used.
const UNAUTHENTICATED_KEPT_BYTES: usize = 1 << 20;
/// The longest buffer for which another unauthenticated connection may have to end. Longer ones, and more
/// than one, wait until there is room.
const DISPLACING_BYTES_MAX: usize = 2 << 20;

/// The buffers of one connection.
#[derive(Debug)]
pub struct Pool {
    /// The part of the memory of all connections that this one may charge.
    share: Arc<Share>,
    /// Bytes of buffers in use and kept.
    charge: Charge,
    domain: Arc<Domain>,
    /// What an unauthenticated client holds: buffers are charged to it too.
    unauthenticated: Option<Arc<UnauthenticatedShare>>,
    in_use: usize,
    /// Free buffers, by [`Access`].
    kept: [Vec<Buffer>; 3],
}

/// A request that waits for memory looks for it at times, because it waits for completions as well.
struct NoWake;

impl Wake for NoWake {
    fn wake(&self) {}
}

/// How the peer gets access to a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// It does not.
    None,
    /// By the key of the memory region, as long as the buffer lives.
    Region,
    /// By the key of a memory window, which the peer invalidates.
    Window,
}

/// Buffers have one of a few lengths, so that a kept one fits: powers of two, and between two of them eight
/// steps. A mebibyte of data behind the head of a message takes an eighth more, and not twice as much.
fn class(length: usize) -> usize {
    let length = length.max(buffer::ALIGNMENT);
    let step = (length.next_power_of_two() / 16).max(buffer::ALIGNMENT);
    length.next_multiple_of(step)
}

impl Pool {
    /// No buffers yet, for a connection from `host`, whose client is not authenticated if there is something
    /// to charge.
    pub fn new(
        memory: &Arc<Budget>,
        host: IpAddr,
        domain: Arc<Domain>,
        unauthenticated: Option<Arc<UnauthenticatedShare>>,
    ) -> Self {
        let share = memory.share(host, Arc::new(NoWake));
        Self {
            charge: Charge::none(&share),
            share,
            domain,
            unauthenticated,
            in_use: 0,
            kept: Default::default(),
        }
    }

    /// The client is authenticated: its buffers are charged to the memory of all connections only.
    pub fn trust(&mut self) {
        self.unauthenticated = None;
    }

    /// A registered buffer; `None` when a limit is reached.
    ///
    /// # Errors
    /// When the device registers no more memory, or has no memory windows.
    pub fn take(&mut self, length: usize, access: Access) -> Result<Option<Buffer>, Error> {
        let length = class(length);
        if let Some(buffer) = self.reuse(length, access) {
            return Ok(Some(buffer));
        }
        match self.charge(length) {
            Some(charge) => self.make(length, access, charge),
            None => Ok(None),
        }
    }

    /// A registered buffer, whether the limit of all connections is reached or not; `None` when that of
    /// unauthenticated clients is.
    ///
    /// # Errors
    /// As [`Pool::take`].
    pub fn take_beyond(&mut self, length: usize, access: Access) -> Result<Option<Buffer>, Error> {
        let length = class(length);
        if let Some(buffer) = self.reuse(length, access) {
            return Ok(Some(buffer));
        }
        let charge = self.share.charge_anyway(length);
        self.make(length, access, charge)
    }

    /// The kept buffer of this length that was returned last: its bytes are still in the processor's cache.
    fn reuse(&mut self, length: usize, access: Access) -> Option<Buffer> {
        let kept = &mut self.kept[access as usize];
        let place = kept.iter().rposition(|buffer| buffer.len() == length)?;
        self.in_use += length;
        Some(kept.remove(place))
    }

    /// Charges the memory of all connections. Kept buffers of other lengths give way, and the first buffer is
    /// charged although the limit is reached, so that each connection makes progress.
    fn charge(&mut self, length: usize) -> Option<Charge> {
        if let Some(charge) = self.share.charge(length) {
            return Some(charge);
        }
        self.release_idle();
        match self.in_use {
            0 => Some(self.share.charge_anyway(length)),
            _ => self.share.charge(length),
        }
    }

    fn make(
        &mut self,
        length: usize,
        access: Access,
        charge: Charge,
    ) -> Result<Option<Buffer>, Error> {
        if !self.charge_unauthenticated(length) {
            return Ok(None);
        }
        let buffer = self
            .registered(length, access)
            .inspect_err(|_| self.discharge_unauthenticated(length))?;
        self.charge.add(charge);
        self.in_use += length;
        Ok(Some(buffer))
    }

    fn registered(&self, length: usize, access: Access) -> Result<Buffer, Error> {
        match access {
            Access::None => self.domain.registered(length),
            Access::Region => self.domain.open(length),
            Access::Window => self.domain.windowed(length),
        }
    }

    /// Charges a new buffer to an unauthenticated client; returns whether that is possible. Kept buffers of
    /// other lengths give way.
    fn charge_unauthenticated(&mut self, bytes: usize) -> bool {
        let Some(memory) = self.unauthenticated.clone() else {
            return true;
        };
        if !memory.has_room(bytes) {
            self.release_idle();
        }
        // The first buffer displaces others if necessary, so that few connections cannot stop all transfers.
        let may_displace = self.in_use == 0 && bytes <= DISPLACING_BYTES_MAX;
        (may_displace || memory.has_room(bytes)) && memory.grow(bytes)
    }

    fn discharge_unauthenticated(&self, bytes: usize) {
        if let Some(memory) = &self.unauthenticated {
            memory.shrink(bytes);
        }
    }

    /// Takes a buffer back. The peer must have invalidated the key of a window's.
    pub fn give(&mut self, buffer: Buffer, access: Access) {
        self.in_use = self.in_use.saturating_sub(buffer.len());
        let is_scarce = self
            .unauthenticated
            .as_ref()
            .is_some_and(|memory| !memory.leaves_half(0));
        let limit = if is_scarce {
            UNAUTHENTICATED_KEPT_BYTES
        } else {
            KEPT_BYTES
        };
        let kept = self.charge.bytes() - self.in_use;
        let is_kept = kept <= limit && !self.share.is_exceeded() && !self.share.is_wanted();
        if is_kept {
            self.kept[access as usize].push(buffer)
        } else {
            self.free(buffer.len())
        }
    }

    /// Takes a buffer back and frees it, so that the peer's access ends.
    pub fn discard(&mut self, buffer: Buffer) {
        self.in_use = self.in_use.saturating_sub(buffer.len());
        self.free(buffer.len());
    }

    fn free(&mut self, bytes: usize) {
        self.discharge_unauthenticated(bytes);
        self.charge.release(bytes);
    }

    /// Frees all buffers that are not in use.
    pub fn release_idle(&mut self) {
        for buffer in std::mem::take(&mut self.kept).into_iter().flatten() {
            self.free(buffer.len());
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.discharge_unauthenticated(self.charge.bytes());
    }
}

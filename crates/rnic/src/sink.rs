//! Where packets go.

use crate::address::Path;
use crate::domain::{Owner, Visit};
use crate::memory::{Fault, Gather};
use crate::time::Instant;
use wire::{Packet, Qpn, Reth};

/// A request that a peer on the same host may have executed for it.
#[derive(Clone, Copy, Debug)]
pub enum Direct<'a> {
    /// RDMA WRITE of these bytes.
    Write(Gather<'a>),
    /// RDMA READ into these bytes.
    Read(Gather<'a>),
    /// Fetch and add.
    FetchAdd {
        /// The addend.
        add: u64,
        /// What was there goes here.
        into: Gather<'a>,
    },
    /// Compare and swap.
    CompareSwap {
        /// Expected.
        compare: u64,
        /// New.
        swap: u64,
        /// What was there goes here.
        into: Gather<'a>,
    },
}

/// Takes the packets that [`crate::Device::transmit`] makes, one call each, in the order in which they are to
/// leave.
pub trait Sink {
    /// Sends one packet. The payload is read during the call: afterwards the program may have it back.
    /// A `Fault` means that the payload could not be read; nothing is sent.
    fn send(&mut self, path: &Path, packet: &Packet, payload: Gather<'_>) -> Result<(), Fault>;

    /// When the driver will ask for the next packet at the earliest, if it knows: a queue pair that must not
    /// send by then is not asked before its own time has come.
    fn asks_again_at(&self) -> Option<Instant> {
        None
    }

    /// How many packets of a message, each as long as the path MTU, may be sent as one now. It has the
    /// PSN of the first of them, and moves the receiver on by as many. On a network that is one; a lane takes
    /// more, or none while it is full: then the queue pair waits for [`crate::Device::resume`].
    fn room(&mut self, _path: &Path, _mtu: u32) -> u32 {
        1
    }

    /// Executes a request of ours on the peer's memory, on the spot, if the peer grants it and the driver can
    /// reach that memory. False, with nothing said about what the range holds then, where the request has to
    /// go the usual way.
    fn execute(&mut self, _path: &Path, _from: Qpn, _to: Qpn, _reth: &Reth, _direct: Direct<'_>) -> bool {
        false
    }

    /// Whether requests on this way are executed so cheaply that it pays to wait until the peer has shown
    /// that it is ready, and to execute all of them.
    fn prefers_to_execute(&mut self, _path: &Path) -> bool {
        false
    }

    /// The lane for a datagram from one queue pair to another; 0 is the network.
    fn lane(&mut self, _path: &Path, _from: Qpn, _to: Qpn) -> u16 {
        0
    }

    /// Who has the XRC shared receive queue that a message to our queue pair names.
    fn owner(&mut self, _holder: Qpn, _srq: Qpn) -> Owner {
        Owner::Nobody
    }

    /// Hands a request on to the other side of a lane, which takes it with [`crate::Device::handle_visit`].
    /// [`Self::room`] said that it fits.
    fn visit(&mut self, _lane: u16, _visit: &Visit, _packet: &Packet, _payload: &[u8]) {}
}

//! Where packets go.

use crate::address::Path;
use crate::memory::{Fault, Gather};
use wire::{Packet, Qpn};

/// Takes the packets that [`crate::Device::transmit`] makes, one call each, in the order in which they are to
/// leave.
pub trait Sink {
    /// Sends one packet. The payload is read during the call: afterwards the program may have it back.
    /// A `Fault` means that the payload could not be read; nothing is sent.
    fn send(&mut self, path: &Path, packet: &Packet, payload: Gather<'_>) -> Result<(), Fault>;

    /// How many packets of a message, each as long as the path MTU, may be sent as one now. It has the
    /// PSN of the first of them, and moves the receiver on by as many. On a network that is one; a lane takes
    /// more, or none while it is full: then the queue pair waits for [`crate::Device::resume`].
    fn room(&mut self, _path: &Path, _mtu: u32) -> u32 {
        1
    }

    /// The lane for a datagram from one queue pair to another; 0 is the network.
    fn lane(&mut self, _path: &Path, _from: Qpn, _to: Qpn) -> u16 {
        0
    }
}

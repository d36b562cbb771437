//! Where packets go.

use crate::address::Path;
use crate::memory::{Fault, Gather};
use wire::Packet;

/// Takes the packets that [`crate::Device::transmit`] makes, one call each, in the order in which they are to
/// leave.
pub trait Sink {
    /// Sends one packet. The payload is read during the call: afterwards the program may have it back.
    /// A `Fault` means that the payload could not be read; nothing is sent.
    fn send(&mut self, path: &Path, packet: &Packet, payload: Gather<'_>) -> Result<(), Fault>;
}

//! The directed route of a subnet management packet (IBTA 14.2.1.2): the field of the status has the
//! direction in its top bit, and the two paths name the port by which each node sends.

use super::{Mad, get, put};

/// Hops of a path at most. Entry 0 of either path is unused.
pub const PATH_MAX: u8 = 63;

const DIRECTION: u16 = 0x8000;
const HOP_POINTER: usize = 6;
const HOP_COUNT: usize = 7;
const DR_SLID: usize = 32;
const DR_DLID: usize = 34;
const INITIAL_PATH: usize = 128;
const RETURN_PATH: usize = 192;

/// Views the fields of a directed route.
pub trait DirectedRoute {
    /// Whether the packet is on its way back.
    fn returns(&self) -> bool;
    /// Turns the packet around.
    fn set_returns(&mut self);
    /// Index into the path.
    fn hop_pointer(&self) -> u8;
    /// Moves the index.
    fn set_hop_pointer(&mut self, pointer: u8);
    /// Number of hops.
    fn hop_count(&self) -> u8;
    /// Where the part routed by LIDs before the directed route began; 0xffff when there is none.
    fn dr_slid(&self) -> u16;
    /// Where the part routed by LIDs after the directed route leads; 0xffff when there is none.
    fn dr_dlid(&self) -> u16;
    /// The port by which the node of an index sends outbound packets.
    fn initial_path(&self, index: u8) -> u8;
    /// The port by which the node of an index sends returning packets.
    fn return_path(&self, index: u8) -> u8;
    /// Notes the port at which a packet arrived.
    fn set_return_path(&mut self, index: u8, port: u8);
    /// The key of the manager.
    fn m_key(&self) -> u64;
}

impl DirectedRoute for Mad {
    fn returns(&self) -> bool {
        self.u16(4) & DIRECTION != 0
    }

    fn set_returns(&mut self) {
        self.put_u16(4, self.u16(4) | DIRECTION);
    }

    fn hop_pointer(&self) -> u8 {
        self.bytes()[HOP_POINTER]
    }

    fn set_hop_pointer(&mut self, pointer: u8) {
        self.bytes_mut()[HOP_POINTER] = pointer;
    }

    fn hop_count(&self) -> u8 {
        self.bytes()[HOP_COUNT]
    }

    fn dr_slid(&self) -> u16 {
        self.u16(DR_SLID)
    }

    fn dr_dlid(&self) -> u16 {
        self.u16(DR_DLID)
    }

    fn initial_path(&self, index: u8) -> u8 {
        get(
            &self.bytes()[..],
            INITIAL_PATH + usize::from(index & PATH_MAX),
        )
    }

    fn return_path(&self, index: u8) -> u8 {
        get(
            &self.bytes()[..],
            RETURN_PATH + usize::from(index & PATH_MAX),
        )
    }

    fn set_return_path(&mut self, index: u8, port: u8) {
        put(
            &mut self.bytes_mut()[..],
            RETURN_PATH + usize::from(index & PATH_MAX),
            port,
        );
    }

    fn m_key(&self) -> u64 {
        self.u64(HEADER_M_KEY)
    }
}

/// The key lies behind the common header.
const HEADER_M_KEY: usize = super::HEADER_BYTES;

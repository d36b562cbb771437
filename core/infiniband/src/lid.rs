//! Local identifiers (IBTA 4.1.1).

/// The first LID of multicast groups; those of ports are below.
pub const FIRST_MULTICAST: u16 = 0xc000;

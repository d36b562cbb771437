//! MAC control frames that stop a neighbour: pause (IEEE 802.3 annex 31B) and priority flow control (802.1Q
//! clause 36, 802.3 annex 31D). Both go to an address that no bridge forwards.

use crate::ethernet::{ETHERNET_SIZE, Ethernet, FRAME_SIZE_MIN, MacAddress};
use crate::ethertype::EtherType;
use crate::frame_error::FrameError;

/// How long one unit of pause time is, in bit times of the link (802.3 annex 31B.2).
pub const QUANTUM_BITS: u32 = 512;

/// How many priorities there are (802.1Q clause 6.9.3).
pub const PRIORITIES: usize = 8;

const OPCODE_PAUSE: u16 = 0x0001;
const OPCODE_PFC: u16 = 0x0101;
const PARAMETERS_SIZE: usize = FRAME_SIZE_MIN - ETHERNET_SIZE - 2;
const CLASS_VECTOR: usize = 0;
const QUANTA: usize = 2;

/// The traffic to stop, and for how long.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Pause {
    /// Everything, for so many quanta of 512 bit times; 0 resumes it.
    Link(u16),
    /// Single priorities: `Some(quanta)` for each that the frame enables, 0 resumes it.
    Priorities([Option<u16>; PRIORITIES]),
}

impl Pause {
    /// Where pause frames go (802.3 annex 31B.1).
    pub const DESTINATION: MacAddress = MacAddress([0x01, 0x80, 0xc2, 0x00, 0x00, 0x01]);

    /// Parses the payload of a MAC control frame, behind the Ethernet header.
    ///
    /// # Errors
    /// [`FrameError::MacControl`] for another opcode, [`FrameError::Ethernet`] when the frame ends early.
    pub fn parse(payload: &[u8]) -> Result<Self, FrameError> {
        let truncated = FrameError::Ethernet {
            length: payload.len(),
        };
        let (opcode, parameters) = payload.split_first_chunk().ok_or(truncated)?;
        let field = |at: usize| {
            parameters.get(at..at + 2).map_or(Err(truncated), |bytes| {
                Ok(u16::from_be_bytes([bytes[0], bytes[1]]))
            })
        };
        match u16::from_be_bytes(*opcode) {
            OPCODE_PAUSE => Ok(Self::Link(field(0)?)),
            OPCODE_PFC => {
                // The upper byte of the vector is reserved and ignored on receipt (802.3 annex 31D.3).
                let enabled = field(CLASS_VECTOR)?;
                let mut priorities = [None; PRIORITIES];
                for (priority, quanta) in priorities.iter_mut().enumerate() {
                    let time = field(QUANTA + 2 * priority)?;
                    *quanta = (enabled >> priority & 1 == 1).then_some(time);
                }
                Ok(Self::Priorities(priorities))
            }
            opcode => Err(FrameError::MacControl { opcode }),
        }
    }

    /// The whole frame, padded to the shortest that Ethernet has.
    pub fn to_frame(&self, source: MacAddress) -> [u8; FRAME_SIZE_MIN] {
        let mut frame = [0; FRAME_SIZE_MIN];
        let ethertype = EtherType::MAC_CONTROL;
        let ethernet = Ethernet {
            destination: Self::DESTINATION,
            source,
            vlan: None,
            ethertype,
        };
        let mut header = [0; ETHERNET_SIZE + 4];
        ethernet.encode(&mut header);
        let (opcode, parameters) = self.parameters();
        frame[..ETHERNET_SIZE].copy_from_slice(&header[..ETHERNET_SIZE]);
        frame[ETHERNET_SIZE..ETHERNET_SIZE + 2].copy_from_slice(&opcode.to_be_bytes());
        frame[ETHERNET_SIZE + 2..].copy_from_slice(&parameters);
        frame
    }

    fn parameters(&self) -> (u16, [u8; PARAMETERS_SIZE]) {
        let mut parameters = [0; PARAMETERS_SIZE];
        match self {
            Self::Link(quanta) => {
                parameters[..2].copy_from_slice(&quanta.to_be_bytes());
                (OPCODE_PAUSE, parameters)
            }
            Self::Priorities(priorities) => {
                for (priority, quanta) in priorities.iter().enumerate() {
                    if let Some(quanta) = quanta {
                        let at = QUANTA + 2 * priority;
                        parameters[CLASS_VECTOR + 1] |= 1 << priority;
                        parameters[at..at + 2].copy_from_slice(&quanta.to_be_bytes());
                    }
                }
                (OPCODE_PFC, parameters)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: MacAddress = MacAddress([2, 0, 0, 0, 0, 7]);

    #[test]
    fn priority_three_is_stopped_and_five_goes_on() {
        let mut priorities = [None; 8];
        priorities[3] = Some(0xffff);
        priorities[5] = Some(0);
        let pause = Pause::Priorities(priorities);
        let frame = pause.to_frame(SOURCE);
        assert_eq!(frame[..6], [1, 0x80, 0xc2, 0, 0, 1]);
        assert_eq!(frame[12..18], [0x88, 0x08, 0x01, 0x01, 0x00, 0x28]);
        assert_eq!(
            frame[18..34],
            [0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0]
        );
        let (ethernet, payload) = Ethernet::parse(&frame).unwrap();
        assert_eq!(
            (ethernet.ethertype, ethernet.source),
            (EtherType::MAC_CONTROL, SOURCE)
        );
        assert_eq!(Pause::parse(payload), Ok(pause));
        assert_eq!(
            Pause::parse(&payload[..19]),
            Err(FrameError::Ethernet { length: 19 })
        );
    }

    #[test]
    fn the_whole_link_is_stopped() {
        let frame = Pause::Link(512).to_frame(SOURCE);
        assert_eq!(frame[12..18], [0x88, 0x08, 0x00, 0x01, 0x02, 0x00]);
        assert_eq!(Pause::parse(&frame[14..]), Ok(Pause::Link(512)));
        assert_eq!(
            Pause::parse(&[0, 2, 0, 0]),
            Err(FrameError::MacControl { opcode: 2 })
        );
    }
}

//! Connection management over queue pair 1 (IBTA chapter 12): every message, from bytes to fields and back,
//! and the addresses that RDMA-CM puts into them.

mod cma;
mod code;
mod layout;
mod message;

pub use cma::{CMA_HEADER_SIZE, CmaAddresses, CmaError, CmaHeader};
pub use code::{AprStatus, CommId, PortSpace, RejectReason, ServiceId, SidrStatus, Subject};
pub use message::{
    APR_PRIVATE_DATA, Apr, DREP_PRIVATE_DATA, DREQ_PRIVATE_DATA, Drep, Dreq, INFORMATION,
    LAP_PRIVATE_DATA, Lap, MRA_PRIVATE_DATA, Mra, REJ_PRIVATE_DATA, REP_PRIVATE_DATA,
    REQ_PRIVATE_DATA, RTU_PRIVATE_DATA, Rej, Rep, Req, RequestPath, Rtu, SIDR_REP_PRIVATE_DATA,
    SIDR_REQ_PRIVATE_DATA, SidrRep, SidrReq,
};

use crate::mad::{MAD_DATA_SIZE, MAD_HEADER_SIZE, MAD_SIZE, MadError, MadHeader};

/// A connection management datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CmMad {
    /// Chosen by the requester, repeated in the answer.
    pub transaction: u64,
    /// Options of enhanced connection establishment in REQ, REP and SIDR_REP (IBTA A18); otherwise 0.
    pub modifier: u32,
    /// Body of the message.
    pub message: CmMessage,
}

macro_rules! messages {
    ($($(#[$doc:meta])* $name:ident = $attribute:literal;)+) => {
        /// The message of a connection management datagram.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum CmMessage {
            $($(#[$doc])* $name($name),)+
        }

        impl CmMessage {
            /// The attributes of all messages (IBTA table 105).
            pub const ATTRIBUTES: &[u16] = &[$($attribute),+];

            /// Parses the bytes behind the common header.
            ///
            /// # Errors
            /// [`MadError::Attribute`] when no message has this attribute.
            pub fn parse(attribute: u16, data: &[u8; MAD_DATA_SIZE]) -> Result<Self, MadError> {
                match attribute {
                    $($attribute => Ok(Self::$name($name::parse(data))),)+
                    _ => Err(MadError::Attribute { attribute }),
                }
            }

            /// The bytes behind the common header.
            pub fn to_bytes(&self) -> [u8; MAD_DATA_SIZE] {
                match self {
                    $(Self::$name(message) => message.to_bytes(),)+
                }
            }

            /// Attribute ID of the message in its class.
            pub const fn attribute(&self) -> u16 {
                match self {
                    $(Self::$name(_) => $attribute,)+
                }
            }
        }

        $(impl From<$name> for CmMessage {
            fn from(message: $name) -> Self {
                Self::$name(message)
            }
        })+
    };
}

messages! {
    /// Request for communication.
    Req = 0x10;
    /// Message receipt acknowledgement.
    Mra = 0x11;
    /// Reject: the connection or the path is refused.
    Rej = 0x12;
    /// Reply to a request for communication.
    Rep = 0x13;
    /// Ready to use.
    Rtu = 0x14;
    /// Request for release.
    Dreq = 0x15;
    /// Reply to a request for release.
    Drep = 0x16;
    /// Service ID resolution request.
    SidrReq = 0x17;
    /// Service ID resolution response.
    SidrRep = 0x18;
    /// Load alternate path.
    Lap = 0x19;
    /// Alternate path response.
    Apr = 0x1a;
}

impl CmMad {
    /// Takes a datagram apart. Reserved bits, status and class-specific field are not looked at.
    ///
    /// # Errors
    /// [`MadError`] names the field that is not connection management's.
    pub fn parse(bytes: &[u8]) -> Result<Self, MadError> {
        let wrong_length = MadError::Length {
            length: bytes.len(),
        };
        let (header, data) = bytes.split_first_chunk().ok_or(wrong_length)?;
        let data = data.try_into().map_err(|_| wrong_length)?;
        let header = MadHeader::parse(header);
        header.check_cm()?;
        let message = CmMessage::parse(header.attribute, data)?;
        Ok(Self {
            transaction: header.transaction,
            modifier: header.modifier,
            message,
        })
    }

    /// The datagram's bytes.
    pub fn to_bytes(&self) -> [u8; MAD_SIZE] {
        let header = MadHeader::cm(self.message.attribute(), self.transaction, self.modifier);
        let mut bytes = [0; MAD_SIZE];
        bytes[..MAD_HEADER_SIZE].copy_from_slice(&header.to_bytes());
        bytes[MAD_HEADER_SIZE..].copy_from_slice(&self.message.to_bytes());
        bytes
    }
}

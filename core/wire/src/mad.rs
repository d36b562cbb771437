//! Management datagrams: the packets of queue pair 1 (IBTA 13.4). On RoCEv2 they are UD SENDs of 256 bytes,
//! and connection management is the one class in use.

use thiserror::Error;

/// Size of a management datagram in bytes (IBTA 13.4.2).
pub const MAD_SIZE: usize = 256;
/// Size of the common header in bytes (IBTA figure 153).
pub const MAD_HEADER_SIZE: usize = 24;
/// Size of the data behind the common header, in bytes.
pub const MAD_DATA_SIZE: usize = MAD_SIZE - MAD_HEADER_SIZE;

/// The queue key of queue pair 1 (IBTA 10.2.5).
pub const GSI_QKEY: u32 = 0x8001_0000;
/// The only base version there is (IBTA 13.4.3).
pub const BASE_VERSION: u8 = 1;
/// The class of connection management (IBTA table 145).
pub const CLASS_CM: u8 = 0x07;
/// The version of connection management that this crate implements (IBTA 12.6.2).
pub const CLASS_VERSION_CM: u8 = 2;
/// The method Send, which every connection management message uses (IBTA 12.6.2).
pub const METHOD_SEND: u8 = 0x03;

/// The common header. The two reserved bytes are ignored when read and written as 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct MadHeader {
    /// Version of the common header: [`BASE_VERSION`].
    pub base_version: u8,
    /// Management class: [`CLASS_CM`].
    pub class: u8,
    /// Version of the class: [`CLASS_VERSION_CM`].
    pub class_version: u8,
    /// The top bit marks a response, the rest is the method.
    pub method: u8,
    /// Status of a response; 0 in connection management.
    pub status: u16,
    /// Belongs to the class; 0 in connection management.
    pub class_specific: u16,
    /// Chosen by the requester, repeated in the answer.
    pub transaction: u64,
    /// Attribute ID: which message of the class this is.
    pub attribute: u16,
    /// Modifies the attribute: in a REQ, REP and SIDR_REP the options of enhanced connection establishment.
    pub modifier: u32,
}

/// The reason why bytes are no datagram of the expected class. Each is a reason to drop it without an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum MadError {
    /// Not 256 bytes.
    #[error("management datagram of {length} bytes, all have {MAD_SIZE}")]
    Length {
        /// Bytes there were.
        length: usize,
    },
    /// Another base version than 1.
    #[error("MAD: base version {version}, only {BASE_VERSION} is defined")]
    BaseVersion {
        /// The version byte of the datagram.
        version: u8,
    },
    /// Another class than connection management.
    #[error("MAD: class {class:#04x}, connection management is {CLASS_CM:#04x}")]
    Class {
        /// The class byte of the datagram.
        class: u8,
    },
    /// A version of connection management that is not spoken here.
    #[error("MAD: class version {version} of connection management, {CLASS_VERSION_CM} is spoken")]
    ClassVersion {
        /// The class version byte of the datagram.
        version: u8,
    },
    /// Another method than Send.
    #[error("MAD: method {method:#04x}, connection management has {METHOD_SEND:#04x} only")]
    Method {
        /// The method byte of the datagram.
        method: u8,
    },
    /// An attribute that connection management does not have.
    #[error("MAD: attribute {attribute:#06x} is not a connection management message")]
    Attribute {
        /// The attribute field of the datagram.
        attribute: u16,
    },
}

impl MadHeader {
    /// The header of a connection management message.
    pub const fn cm(attribute: u16, transaction: u64, modifier: u32) -> Self {
        Self {
            base_version: BASE_VERSION,
            class: CLASS_CM,
            class_version: CLASS_VERSION_CM,
            method: METHOD_SEND,
            status: 0,
            class_specific: 0,
            transaction,
            attribute,
            modifier,
        }
    }

    /// Versions, class and method 0..4, status 4, class specific 6, transaction 8..16, attribute 16, reserved
    /// 18, modifier 20..24.
    pub const fn parse(b: &[u8; MAD_HEADER_SIZE]) -> Self {
        Self {
            base_version: b[0],
            class: b[1],
            class_version: b[2],
            method: b[3],
            status: u16::from_be_bytes([b[4], b[5]]),
            class_specific: u16::from_be_bytes([b[6], b[7]]),
            transaction: u64::from_be_bytes([b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]]),
            attribute: u16::from_be_bytes([b[16], b[17]]),
            modifier: u32::from_be_bytes([b[20], b[21], b[22], b[23]]),
        }
    }

    /// The header's bytes.
    pub fn to_bytes(&self) -> [u8; MAD_HEADER_SIZE] {
        let mut bytes = [0; MAD_HEADER_SIZE];
        bytes[..4].copy_from_slice(&[
            self.base_version,
            self.class,
            self.class_version,
            self.method,
        ]);
        bytes[4..6].copy_from_slice(&self.status.to_be_bytes());
        bytes[6..8].copy_from_slice(&self.class_specific.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.transaction.to_be_bytes());
        bytes[16..18].copy_from_slice(&self.attribute.to_be_bytes());
        bytes[20..].copy_from_slice(&self.modifier.to_be_bytes());
        bytes
    }

    /// Whether this is a message of connection management, before its attribute is looked at.
    ///
    /// # Errors
    /// The first field that is not connection management's.
    pub const fn check_cm(&self) -> Result<(), MadError> {
        if self.base_version != BASE_VERSION {
            return Err(MadError::BaseVersion {
                version: self.base_version,
            });
        }
        if self.class != CLASS_CM {
            return Err(MadError::Class { class: self.class });
        }
        if self.class_version != CLASS_VERSION_CM {
            return Err(MadError::ClassVersion {
                version: self.class_version,
            });
        }
        if self.method != METHOD_SEND {
            return Err(MadError::Method {
                method: self.method,
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_lies_as_the_specification_draws_it() {
        let header = MadHeader {
            status: 0x0405,
            class_specific: 0x0607,
            ..MadHeader::cm(0x1011, 0x0809_0a0b_0c0d_0e0f, 0x1415_1617)
        };
        let bytes = header.to_bytes();
        assert_eq!(
            bytes[..16],
            [1, 7, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]
        );
        assert_eq!(bytes[16..], [0x10, 0x11, 0, 0, 0x14, 0x15, 0x16, 0x17]);
        assert_eq!(MadHeader::parse(&bytes), header);
        assert_eq!(header.check_cm(), Ok(()));
    }

    #[test]
    fn each_field_that_is_not_connection_managements_is_named() {
        let right = MadHeader::cm(0x10, 1, 0);
        let with = |change: fn(&mut MadHeader)| {
            let mut header = right;
            change(&mut header);
            header.check_cm()
        };
        assert_eq!(
            with(|h| h.base_version = 2),
            Err(MadError::BaseVersion { version: 2 })
        );
        assert_eq!(with(|h| h.class = 3), Err(MadError::Class { class: 3 }));
        assert_eq!(
            with(|h| h.class_version = 1),
            Err(MadError::ClassVersion { version: 1 })
        );
        assert_eq!(
            with(|h| h.method = 0x83),
            Err(MadError::Method { method: 0x83 })
        );
    }
}

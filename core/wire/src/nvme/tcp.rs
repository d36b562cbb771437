//! PDUs of NVMe/TCP (TCP transport 1.0, 3.6): a header of eight bytes that is common to all, the rest of the
//! header by type, digests if they were agreed, and data.

use thiserror::Error;

use super::{Command, Completion};
use crate::layout::layouts;

/// The port that is assigned to NVMe/TCP; discovery has [`DISCOVERY_PORT`].
pub const PORT: u16 = 4420;
/// The port of discovery.
pub const DISCOVERY_PORT: u16 = 8009;
/// Bytes of a digest.
pub const DIGEST_SIZE: usize = 4;
/// Bytes of the longest header.
pub const HEADER_MAX: usize = 128;
/// Data that a termination request carries at most: the header that was wrong (3.6.2.4).
pub const TERMINATION_DATA_MAX: usize = 128;

layouts! {
    /// The first eight bytes of a PDU.
    CommonHeader[8] {
        /// PDU type, a [`Kind`].
        kind: u8 = 0;
        /// PDU flags, the bits of [`flag`].
        flags: u8 = 1;
        /// Bytes of the header, digest excluded.
        header_length: u8 = 2;
        /// Where data begin, from the start of the PDU; 0 without data.
        data_offset: u8 = 3;
        /// Bytes of the PDU.
        length: u32 = 4;
    }
    /// ICReq and ICResp, behind the common header.
    Initialize[120] {
        /// Version of the format: 0.
        format: u16 = 0;
        /// Data alignment that the sender requires, in dwords less one.
        alignment: u8 = 2;
        /// Digests: bit 0 of headers, bit 1 of data.
        digests: u8 = 3;
        /// ICReq: outstanding R2Ts of a command, less one. ICResp: bytes of one H2CData.
        limit: u32 = 4;
    }
    /// H2CTermReq and C2HTermReq, behind the common header.
    Terminate[16] {
        /// Fatal error status, a [`Fatal`].
        status: u16 = 0;
        /// More about the error, as its status defines (FEI).
        information: u32 = 2;
    }
    /// H2CData and C2HData, behind the common header.
    Data[16] {
        /// Identifier of the command (CCCID).
        cid: u16 = 0;
        /// The R2T's name for the transfer; not in C2HData.
        tag: u16 = 2;
        /// From which byte of the command's data.
        offset: u32 = 4;
        /// Length of the data, in bytes.
        length: u32 = 8;
    }
    /// R2T, behind the common header.
    ReadyToTransfer[16] {
        /// Identifier of the command (CCCID).
        cid: u16 = 0;
        /// The controller's name for the transfer.
        tag: u16 = 2;
        /// From which byte of the command's data.
        offset: u32 = 4;
        /// Length of the requested data, in bytes.
        length: u32 = 8;
    }
}

/// Flags of a PDU.
pub mod flag {
    /// A header digest follows the header.
    pub const HEADER_DIGEST: u8 = 1;
    /// A data digest follows the data.
    pub const DATA_DIGEST: u8 = 1 << 1;
    /// The last data of a transfer.
    pub const LAST: u8 = 1 << 2;
    /// The command succeeded, and no response follows.
    pub const SUCCESS: u8 = 1 << 3;
}

/// Types of PDUs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// The host's first.
    InitializeRequest = 0,
    /// The controller's first.
    InitializeResponse = 1,
    /// The host gives up.
    HostTermination = 2,
    /// The controller gives up.
    ControllerTermination = 3,
    /// A command, perhaps with data.
    Command = 4,
    /// Response capsule (CapsuleResp).
    Response = 5,
    /// Data to the controller.
    HostData = 6,
    /// Data to the host.
    ControllerData = 7,
    /// The controller requests data.
    ReadyToTransfer = 9,
}

impl Kind {
    /// The type that is written so.
    pub const fn parse(byte: u8) -> Option<Self> {
        Some(match byte {
            0 => Self::InitializeRequest,
            1 => Self::InitializeResponse,
            2 => Self::HostTermination,
            3 => Self::ControllerTermination,
            4 => Self::Command,
            5 => Self::Response,
            6 => Self::HostData,
            7 => Self::ControllerData,
            9 => Self::ReadyToTransfer,
            _ => return None,
        })
    }

    /// Bytes of its header.
    pub const fn header_length(self) -> u8 {
        match self {
            Self::InitializeRequest | Self::InitializeResponse => 128,
            Self::Command => 72,
            Self::HostTermination
            | Self::ControllerTermination
            | Self::Response
            | Self::HostData
            | Self::ControllerData
            | Self::ReadyToTransfer => 24,
        }
    }

    /// Whether the host sends it.
    pub const fn is_from_host(self) -> bool {
        matches!(
            self,
            Self::InitializeRequest | Self::HostTermination | Self::Command | Self::HostData
        )
    }

    /// Whether data may follow its header.
    pub const fn may_have_data(self) -> bool {
        matches!(
            self,
            Self::HostTermination
                | Self::ControllerTermination
                | Self::Command
                | Self::HostData
                | Self::ControllerData
        )
    }

    /// Whether the PDU can have digests: not before they are agreed, nor when it ends the connection.
    pub const fn has_digests(self) -> bool {
        !matches!(
            self,
            Self::InitializeRequest
                | Self::InitializeResponse
                | Self::HostTermination
                | Self::ControllerTermination
        )
    }
}

/// Why a connection is given up (3.6.2.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum Fatal {
    /// A field of a header is wrong; the information is its offset.
    HeaderField = 1,
    /// A PDU came that must not come now.
    Sequence = 2,
    /// A header's digest is wrong.
    HeaderDigest = 3,
    /// Data came for bytes that were not requested.
    DataRange = 4,
    /// More data than requested, or more R2Ts than agreed.
    Limit = 5,
    /// A parameter that is not supported.
    Unsupported = 6,
}

/// The reason why bytes are no PDU, as the [`Terminate`] that answers them reports it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum PduError {
    /// The type is reserved.
    #[error("PDU type {kind:#04x} is reserved")]
    Kind {
        /// The PDU type byte.
        kind: u8,
    },
    /// The header has another length than its type.
    #[error("PDU type {kind:#04x} with a header of {length} bytes")]
    HeaderLength {
        /// The PDU type byte.
        kind: u8,
        /// HLEN: length of the header.
        length: u8,
    },
    /// Data begin where they cannot.
    #[error("PDU type {kind:#04x} with data at byte {offset}")]
    DataOffset {
        /// The PDU type byte.
        kind: u8,
        /// Where data would begin.
        offset: u8,
    },
    /// The PDU is shorter than its header, or longer than it may be.
    #[error("PDU type {kind:#04x} of {length} bytes")]
    Length {
        /// The PDU type byte.
        kind: u8,
        /// The length in the header, in bytes.
        length: u32,
    },
    /// Flags without a digest where one was agreed, or with one where none was.
    #[error("PDU type {kind:#04x} with flags {flags:#04x}, which are not what was agreed")]
    Flags {
        /// The PDU type byte.
        kind: u8,
        /// The flags byte of the header.
        flags: u8,
    },
}

impl PduError {
    /// The fatal error status for the sender, and the byte of the header that was wrong.
    pub const fn fatal(self) -> (Fatal, u32) {
        match self {
            Self::Kind { .. } => (Fatal::HeaderField, 0),
            Self::Flags { .. } => (Fatal::HeaderField, 1),
            Self::HeaderLength { .. } => (Fatal::HeaderField, 2),
            Self::DataOffset { .. } => (Fatal::HeaderField, 3),
            Self::Length { .. } => (Fatal::HeaderField, 4),
        }
    }
}

/// Digests that PDUs of the connection have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Digests {
    /// Digests protect headers (HDGST).
    pub header: bool,
    /// Digests protect data (DDGST).
    pub data: bool,
}

impl Digests {
    /// The digest bits of ICReq and ICResp.
    pub const fn bits(self) -> u8 {
        self.header as u8 | (self.data as u8) << 1
    }

    /// Parses the digest bits of ICReq or ICResp.
    pub const fn parse(bits: u8) -> Self {
        Self {
            header: bits & 1 != 0,
            data: bits & 2 != 0,
        }
    }
}

/// Offsets of the parts of a PDU, checked against each other: a receiver needs them before it reads on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame {
    /// Type of the PDU.
    pub kind: Kind,
    /// Flags of the PDU.
    pub flags: u8,
    /// Bytes before the data: the header, its digest, padding.
    pub before_data: usize,
    /// Bytes of the header alone.
    pub header: usize,
    /// Whether a digest follows the header.
    pub header_digest: bool,
    /// Bytes of data.
    pub data: usize,
    /// Whether a digest follows the data.
    pub data_digest: bool,
}

impl Frame {
    /// Checks the first eight bytes of a PDU. `data_max` is how many bytes of data the receiver takes.
    ///
    /// # Errors
    /// [`PduError`] names the field.
    #[inline]
    pub fn parse(
        header: &CommonHeader,
        digests: Digests,
        data_max: usize,
    ) -> Result<Self, PduError> {
        let CommonHeader {
            kind: byte,
            flags,
            header_length,
            length,
            ..
        } = *header;
        let kind = Kind::parse(byte).ok_or(PduError::Kind { kind: byte })?;
        if header_length != kind.header_length() {
            return Err(PduError::HeaderLength {
                kind: byte,
                length: header_length,
            });
        }
        let expected = if kind.has_digests() {
            digests
        } else {
            Digests::default()
        };
        let header_digest = flags & flag::HEADER_DIGEST != 0;
        let data_digest = flags & flag::DATA_DIGEST != 0;
        if header_digest != expected.header || data_digest && !expected.data {
            return Err(PduError::Flags { kind: byte, flags });
        }
        let end = usize::from(header_length) + if header_digest { DIGEST_SIZE } else { 0 };
        let length_error = PduError::Length { kind: byte, length };
        let length = usize::try_from(length).map_err(|_| length_error)?;
        let mut frame = Self {
            kind,
            flags,
            before_data: end,
            header: usize::from(header_length),
            header_digest,
            data: 0,
            data_digest,
        };
        if length == end && !data_digest {
            return Ok(frame);
        }
        if !kind.may_have_data() {
            return Err(length_error);
        }
        let offset = frame.data_offset(header)?;
        let trailer = if data_digest { DIGEST_SIZE } else { 0 };
        let data = length.checked_sub(offset + trailer).ok_or(length_error)?;
        if data == 0 || data > data_max || expected.data != data_digest {
            return Err(if expected.data == data_digest {
                length_error
            } else {
                PduError::Flags { kind: byte, flags }
            });
        }
        frame.before_data = offset;
        frame.data = data;
        Ok(frame)
    }

    /// Where the data begin, if not before the end of the header and its digest.
    #[inline]
    fn data_offset(&self, header: &CommonHeader) -> Result<usize, PduError> {
        // Terminations have their data right behind the header and no offset (3.6.2.4).
        let offset = match self.kind {
            Kind::HostTermination | Kind::ControllerTermination => self.before_data,
            _ => usize::from(header.data_offset),
        };
        if offset < self.before_data || offset % 4 != 0 {
            return Err(PduError::DataOffset {
                kind: header.kind,
                offset: header.data_offset,
            });
        }
        Ok(offset)
    }

    /// The first eight bytes of a PDU of ours with `data` bytes of data, which begin at the next multiple of
    /// `alignment`. Also where they begin.
    #[inline]
    pub fn header(
        kind: Kind,
        flags: u8,
        digests: Digests,
        data: usize,
        alignment: usize,
    ) -> (CommonHeader, usize) {
        let digests = if kind.has_digests() {
            digests
        } else {
            Digests::default()
        };
        let header_length = kind.header_length();
        let end = usize::from(header_length) + if digests.header { DIGEST_SIZE } else { 0 };
        let mut flags = flags
            | if digests.header {
                flag::HEADER_DIGEST
            } else {
                0
            };
        let (mut offset, mut length) = (0, end);
        if data != 0 {
            offset = end.next_multiple_of(alignment.max(1));
            length = offset + data;
            if digests.data {
                flags |= flag::DATA_DIGEST;
                length += DIGEST_SIZE;
            }
        }
        let header = CommonHeader {
            kind: kind as u8,
            flags,
            header_length,
            data_offset: offset as u8,
            length: length as u32,
        };
        (header, if data == 0 { end } else { offset })
    }
}

/// The header behind the common one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Header {
    /// Initialize Connection Request (ICReq).
    InitializeRequest(Initialize),
    /// Initialize Connection Response (ICResp).
    InitializeResponse(Initialize),
    /// Host to Controller Terminate Connection Request (H2CTermReq).
    HostTermination(Terminate),
    /// Controller to Host Terminate Connection Request (C2HTermReq).
    ControllerTermination(Terminate),
    /// Command capsule (CapsuleCmd).
    Command(Command),
    /// Response capsule (CapsuleResp).
    Response(Completion),
    /// Host to Controller Data Transfer (H2CData).
    HostData(Data),
    /// Controller to Host Data Transfer (C2HData).
    ControllerData(Data),
    /// Ready to Transfer (R2T).
    ReadyToTransfer(ReadyToTransfer),
}

impl Header {
    /// Parses the header behind the common one; `None` when `bytes` are fewer than its type has.
    #[inline]
    pub fn parse(kind: Kind, bytes: &[u8]) -> Option<Self> {
        Some(match kind {
            Kind::InitializeRequest => Self::InitializeRequest(Initialize::split(bytes)?.0),
            Kind::InitializeResponse => Self::InitializeResponse(Initialize::split(bytes)?.0),
            Kind::HostTermination => Self::HostTermination(Terminate::split(bytes)?.0),
            Kind::ControllerTermination => Self::ControllerTermination(Terminate::split(bytes)?.0),
            Kind::Command => Self::Command(Command::split(bytes)?.0),
            Kind::Response => Self::Response(Completion::split(bytes)?.0),
            Kind::HostData => Self::HostData(Data::split(bytes)?.0),
            Kind::ControllerData => Self::ControllerData(Data::split(bytes)?.0),
            Kind::ReadyToTransfer => Self::ReadyToTransfer(ReadyToTransfer::split(bytes)?.0),
        })
    }

    /// Type of the PDU that has this header.
    #[inline]
    pub const fn kind(&self) -> Kind {
        match self {
            Self::InitializeRequest(_) => Kind::InitializeRequest,
            Self::InitializeResponse(_) => Kind::InitializeResponse,
            Self::HostTermination(_) => Kind::HostTermination,
            Self::ControllerTermination(_) => Kind::ControllerTermination,
            Self::Command(_) => Kind::Command,
            Self::Response(_) => Kind::Response,
            Self::HostData(_) => Kind::HostData,
            Self::ControllerData(_) => Kind::ControllerData,
            Self::ReadyToTransfer(_) => Kind::ReadyToTransfer,
        }
    }

    /// Writes header and common header to the start of `out`, padding up to the data cleared, and returns
    /// where data (or the end) are. The caller computes the digest of the header (CRC-32C): its place is
    /// [`Kind::header_length`] bytes in.
    #[inline]
    pub fn encode(
        &self,
        flags: u8,
        digests: Digests,
        data: usize,
        alignment: usize,
        out: &mut [u8; ENCODED_MAX],
    ) -> usize {
        let (common, end) = Frame::header(self.kind(), flags, digests, data, alignment);
        out[..CommonHeader::SIZE].copy_from_slice(&common.to_bytes());
        let place = &mut out[CommonHeader::SIZE..];
        match self {
            Self::InitializeRequest(it) | Self::InitializeResponse(it) => {
                copy_bytes(place, &it.to_bytes())
            }
            Self::HostTermination(it) | Self::ControllerTermination(it) => {
                copy_bytes(place, &it.to_bytes())
            }
            Self::Command(it) => copy_bytes(place, &it.to_bytes()),
            Self::Response(it) => copy_bytes(place, &it.to_bytes()),
            Self::HostData(it) | Self::ControllerData(it) => copy_bytes(place, &it.to_bytes()),
            Self::ReadyToTransfer(it) => copy_bytes(place, &it.to_bytes()),
        }
        let header = usize::from(common.header_length);
        if let Some(padding) = out.get_mut(header..end) {
            padding.fill(0);
        }
        end
    }
}

/// Room for every header with its digest and padding.
pub const ENCODED_MAX: usize = 256;

#[inline]
fn copy_bytes(place: &mut [u8], bytes: &[u8]) {
    for (place, byte) in place.iter_mut().zip(bytes) {
        *place = *byte;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Digests = Digests {
        header: false,
        data: false,
    };
    const BOTH: Digests = Digests {
        header: true,
        data: true,
    };

    #[test]
    fn what_we_say_of_a_pdu_is_what_we_read() {
        for digests in [NONE, BOTH] {
            for (kind, data) in [
                (Kind::Command, 0),
                (Kind::Command, 4096),
                (Kind::Response, 0),
            ] {
                let (header, offset) = Frame::header(kind, 0, digests, data, 4);
                let frame = Frame::parse(&header, digests, 8192).unwrap();
                assert_eq!((frame.data, frame.before_data), (data, offset));
                assert_eq!(frame.data_digest, digests.data && data != 0);
            }
        }
    }

    #[test]
    fn headers_that_contradict_themselves_are_refused() {
        let (good, _) = Frame::header(Kind::Command, 0, NONE, 512, 4);
        let parse = |header| Frame::parse(&header, NONE, 512);
        assert!(parse(good).is_ok());
        assert!(matches!(
            parse(CommonHeader { kind: 8, ..good }),
            Err(PduError::Kind { .. })
        ));
        assert!(matches!(
            parse(CommonHeader {
                header_length: 71,
                ..good
            }),
            Err(PduError::HeaderLength { .. })
        ));
        assert!(matches!(
            parse(CommonHeader {
                data_offset: 68,
                ..good
            }),
            Err(PduError::DataOffset { .. })
        ));
        assert!(matches!(
            parse(CommonHeader {
                data_offset: 74,
                ..good
            }),
            Err(PduError::DataOffset { .. })
        ));
        assert!(matches!(
            parse(CommonHeader { length: 71, ..good }),
            Err(PduError::Length { .. })
        ));
        assert!(matches!(
            parse(CommonHeader {
                length: u32::MAX,
                ..good
            }),
            Err(PduError::Length { .. })
        ));
        assert!(matches!(
            parse(CommonHeader { flags: 1, ..good }),
            Err(PduError::Flags { .. })
        ));
        assert!(matches!(
            parse(CommonHeader { flags: 2, ..good }),
            Err(PduError::Flags { .. })
        ));
        assert!(matches!(
            Frame::parse(&good, BOTH, 512),
            Err(PduError::Flags { .. })
        ));
    }
}

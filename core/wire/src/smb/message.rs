//! The header of SMB 2 messages, and READ and WRITE, whose data may move by RDMA (MS-SMB2 2.2.1, 2.2.19 to
//! 2.2.22). Offsets in their fields count from the start of the header.

use crate::layout::layouts;

/// The first four bytes of a message in the clear.
pub const PROTOCOL_ID: [u8; 4] = [0xfe, b'S', b'M', b'B'];
/// The first four bytes of an encrypted message (`SMB2_TRANSFORM_HEADER`, MS-SMB2 2.2.41).
pub const TRANSFORM_PROTOCOL_ID: [u8; 4] = [0xfd, b'S', b'M', b'B'];
/// The first four bytes of a compressed message (MS-SMB2 2.2.42).
pub const COMPRESSION_PROTOCOL_ID: [u8; 4] = [0xfc, b'S', b'M', b'B'];
/// The value of StructureSize in the header.
pub const HEADER_STRUCTURE_SIZE: u16 = 64;

/// The commands that a gateway distinguishes (MS-SMB2 2.2.1.2).
pub mod command {
    /// `SMB2_NEGOTIATE`: the two sides agree on a dialect.
    pub const NEGOTIATE: u16 = 0x0000;
    /// `SMB2_SESSION_SETUP`: the user authenticates.
    pub const SESSION_SETUP: u16 = 0x0001;
    /// `SMB2_TREE_CONNECT`: the client connects to a share.
    pub const TREE_CONNECT: u16 = 0x0003;
    /// `SMB2_READ`: bytes of a file.
    pub const READ: u16 = 0x0008;
    /// `SMB2_WRITE`: bytes for a file.
    pub const WRITE: u16 = 0x0009;
    /// `SMB2_CANCEL`: the client gives up a request; the command has no response of its own.
    pub const CANCEL: u16 = 0x000c;
}

/// Bits of [`Header::flags`] (MS-SMB2 2.2.1.2).
pub mod flag {
    /// The message is a response.
    pub const RESPONSE: u32 = 0x0000_0001;
    /// The header has an AsyncId in place of the tree.
    pub const ASYNC: u32 = 0x0000_0002;
    /// The request belongs to the one before it in the compound.
    pub const RELATED: u32 = 0x0000_0004;
    /// The message is signed: not one byte of it may change.
    pub const SIGNED: u32 = 0x0000_0008;
}

/// Where the data of a READ or WRITE are (MS-SMB2 2.2.19).
pub mod channel {
    /// The data are in the message.
    pub const NONE: u32 = 0;
    /// The data are where buffer descriptors point.
    pub const RDMA_V1: u32 = 1;
    /// The same, and the response invalidates the first descriptor's token.
    pub const RDMA_V1_INVALIDATE: u32 = 2;
    /// The same with data that are encrypted or signed on their own.
    pub const RDMA_TRANSFORM: u32 = 3;
}

/// Bits of [`SessionSetupResponse::session_flags`] (MS-SMB2 2.2.6).
pub mod session_flag {
    /// The server does not know the user, and admits it as a guest.
    pub const IS_GUEST: u16 = 1;
    /// The user is anonymous.
    pub const IS_NULL: u16 = 1 << 1;
}

/// Share type of files.
pub const SHARE_DISK: u8 = 1;

/// `STATUS_PENDING`: an interim response, the final one follows.
pub const STATUS_PENDING: u32 = 0x0000_0103;

layouts! {
    /// The header of a message (MS-SMB2 2.2.1).
    Header[64] {
        /// The protocol identifier: [`PROTOCOL_ID`].
        protocol_id: [u8; 4] = 0;
        /// Size of the header: [`HEADER_STRUCTURE_SIZE`].
        structure_size: u16 = 4;
        /// How many credits the request consumes.
        credit_charge: u16 = 6;
        /// In a response its NTSTATUS; in a request the channel's sequence number.
        status: u32 = 8;
        /// The command, one of [`command`].
        command: u16 = 12;
        /// The number of credits that are requested or granted.
        credits: u16 = 14;
        /// The bits of [`flag`].
        flags: u32 = 16;
        /// Where the next message of a compound begins, from this header; 0 in the last.
        next_command: u32 = 20;
        /// The number that ties a response to its request.
        message_id: u64 = 24;
        /// AsyncId of asynchronous messages; of others a reserved field, and the tree above it.
        async_id: u64 = 32;
        /// Identifier of the session (SessionId).
        session_id: u64 = 40;
        /// The signature of signed messages.
        signature: [u8; 16] = 48;
    }
    /// The beginning of the NEGOTIATE response, behind the header (MS-SMB2 2.2.4).
    NegotiateResponse[8] {
        /// 65: the fixed part and one byte of the buffer.
        structure_size: u16 = 0;
        /// Bit 0: signing is enabled; bit 1: it is required.
        security_mode: u16 = 2;
        /// The dialect that both sides use from now on.
        dialect: u16 = 4;
    }
    /// The beginning of the SESSION_SETUP response, behind the header (MS-SMB2 2.2.6).
    SessionSetupResponse[8] {
        /// 9: the fixed part and one byte of the buffer.
        structure_size: u16 = 0;
        /// The bits of [`session_flag`].
        session_flags: u16 = 2;
        /// Where the security token begins.
        token_offset: u16 = 4;
        /// Bytes of the security token.
        token_length: u16 = 6;
    }
    /// The beginning of the TREE_CONNECT response, behind the header (MS-SMB2 2.2.10).
    TreeConnectResponse[8] {
        /// Size of the whole structure: 16.
        structure_size: u16 = 0;
        /// The kind of the share: [`SHARE_DISK`], a named pipe (2) or a printer (3).
        share_type: u8 = 2;
        /// Properties of the share.
        share_flags: u32 = 4;
    }
    /// READ request, behind the header (MS-SMB2 2.2.19).
    ReadRequest[48] {
        /// 49: the fixed part and one byte of the buffer.
        structure_size: u16 = 0;
        /// Where the client would like the data in the response.
        padding: u8 = 2;
        /// Unbuffered or compressed reading.
        flags: u8 = 3;
        /// How many bytes to read.
        length: u32 = 4;
        /// Where in the file to begin, in bytes.
        offset: u64 = 8;
        /// The open file.
        file_id: [u8; 16] = 16;
        /// The read fails where it gets fewer bytes.
        minimum_count: u32 = 32;
        /// Where the data go, one of [`channel`].
        channel: u32 = 36;
        /// How many bytes the client will read after these.
        remaining_bytes: u32 = 40;
        /// Where the buffer descriptors begin.
        channel_info_offset: u16 = 44;
        /// How many bytes of buffer descriptors there are.
        channel_info_length: u16 = 46;
    }
    /// READ response, behind the header (MS-SMB2 2.2.20).
    ReadResponse[16] {
        /// 17: the fixed part and one byte of the buffer.
        structure_size: u16 = 0;
        /// Where the data begin.
        data_offset: u8 = 2;
        /// How many bytes of data the message has.
        data_length: u32 = 4;
        /// How many bytes went to the client by RDMA.
        data_remaining: u32 = 8;
        /// Flags of RDMA transforms; otherwise 0.
        flags: u32 = 12;
    }
    /// WRITE request, behind the header (MS-SMB2 2.2.21).
    WriteRequest[48] {
        /// 49: the fixed part and one byte of the buffer.
        structure_size: u16 = 0;
        /// Where the data begin.
        data_offset: u16 = 2;
        /// How many bytes of data the message has; 0 where they are to be fetched by RDMA.
        length: u32 = 4;
        /// Where in the file to begin, in bytes.
        offset: u64 = 8;
        /// The open file.
        file_id: [u8; 16] = 16;
        /// Where the data are, one of [`channel`].
        channel: u32 = 32;
        /// How many bytes are to be fetched by RDMA.
        remaining_bytes: u32 = 36;
        /// Where the buffer descriptors begin.
        channel_info_offset: u16 = 40;
        /// How many bytes of buffer descriptors there are.
        channel_info_length: u16 = 42;
        /// Write-through or unbuffered writing.
        flags: u32 = 44;
    }
    /// WRITE response, behind the header (MS-SMB2 2.2.22).
    WriteResponse[16] {
        /// 17: the fixed part and one byte of the buffer.
        structure_size: u16 = 0;
        /// How many bytes were written.
        count: u32 = 4;
        /// Not used, 0.
        remaining: u32 = 8;
        /// Not used, 0.
        channel_info_offset: u16 = 12;
        /// Not used, 0.
        channel_info_length: u16 = 14;
    }
}

impl Header {
    /// Whether the message is a response.
    pub const fn is_response(&self) -> bool {
        self.flags & flag::RESPONSE != 0
    }

    /// The tree connection (TreeId); `None` in asynchronous messages, which have an AsyncId in its place.
    pub const fn tree_id(&self) -> Option<u32> {
        if self.flags & flag::ASYNC == 0 {
            Some((self.async_id >> 32) as u32)
        } else {
            None
        }
    }

    /// Whether the message is signed, so that a gateway must not change a byte of it.
    pub const fn is_signed(&self) -> bool {
        self.flags & flag::SIGNED != 0
    }
}

/// The bytes of `message` that an offset and a length in one of its fields name; `None` when they lie
/// outside of the message or within its header.
pub fn buffer(message: &[u8], offset: u16, length: u16) -> Option<&[u8]> {
    let begin = usize::from(offset);
    if begin < Header::SIZE {
        return None;
    }
    message.get(begin..begin + usize::from(length))
}

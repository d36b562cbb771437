//! The SMB 2 messages of the benchmark's client (MS-SMB2 2.2): dialect 3.0.2, a guest's session that
//! neither signs nor encrypts, one share, one file.

use std::io;

use wire::smb::message::{self, Header, ReadRequest, WriteRequest, command, flag};

/// SMB 3.0.2, the first dialect with both kinds of RDMA channels, and without negotiate contexts.
const DIALECT: u16 = 0x0302;
/// Requests may be longer than 64 KiB and cost several credits (SMB2_GLOBAL_CAP_LARGE_MTU).
const LARGE_MTU: u32 = 0x0000_0004;
/// Signing is possible and not required.
const SIGNING_ENABLED: u16 = 1;
/// STATUS_MORE_PROCESSING_REQUIRED: the session setup has another round.
pub(super) const MORE_PROCESSING: u32 = 0xc000_0016;
/// Commands that the gateway does not name.
const TREE_CONNECT: u16 = 3;
pub(super) const CREATE: u16 = 5;
/// Bytes of data that one credit pays for.
const CREDIT_BYTES: usize = 65_536;
/// The CreditRequest of each request: more than any job needs.
const CREDITS_REQUESTED: u16 = 512;
/// Flags of NTLMSSP: Unicode, request target, NTLM, always sign, extended session security.
const NTLMSSP_FLAGS: u32 = 0x0008_8205;
/// A name that is no user of any server.
const UNKNOWN_USER: &str = "rockery-bench-guest";
/// Bytes of an NTLM response.
const RESPONSE_BYTES: usize = 24;

/// An open file.
pub(super) type FileId = [u8; 16];

/// The fields that the header of every request of a connection has.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Ids {
    pub(super) message: u64,
    pub(super) session: u64,
    pub(super) tree: u32,
}

/// Credits that a transfer of so many bytes costs.
pub(super) fn charge(bytes: usize) -> u16 {
    u16::try_from(bytes.div_ceil(CREDIT_BYTES).max(1)).unwrap_or(u16::MAX)
}

fn header(command: u16, charge: u16, ids: Ids) -> Vec<u8> {
    let header = Header {
        protocol_id: message::PROTOCOL_ID,
        structure_size: message::HEADER_STRUCTURE_SIZE,
        credit_charge: charge,
        command,
        credits: CREDITS_REQUESTED,
        message_id: ids.message,
        // The upper half of the field is the tree where the message is synchronous.
        async_id: u64::from(ids.tree) << 32,
        session_id: ids.session,
        ..Header::default()
    };
    header.to_bytes().to_vec()
}

fn utf16(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_le_bytes).collect()
}

/// NEGOTIATE, which offers one dialect.
pub(super) fn negotiate(ids: Ids, client: [u8; 16]) -> Vec<u8> {
    let mut request = header(command::NEGOTIATE, 1, ids);
    for field in [36, 1, SIGNING_ENABLED, 0] {
        request.extend(field.to_le_bytes());
    }
    request.extend(LARGE_MTU.to_le_bytes());
    request.extend(client);
    request.extend([0; 8]);
    request.extend(DIALECT.to_le_bytes());
    request
}

/// The limits of the server for READ and WRITE in bytes, from its NEGOTIATE response.
pub(super) fn negotiated(response: &[u8]) -> io::Result<[usize; 2]> {
    let dialect = field::<2>(response, 4).map(u16::from_le_bytes)?;
    if dialect != DIALECT {
        return Err(io::Error::other("the server does not speak SMB 3.0.2"));
    }
    let limit = |at| field::<4>(response, at).map(|bytes| u32::from_le_bytes(bytes) as usize);
    Ok([limit(32)?, limit(36)?])
}

/// The body of a NEGOTIATE response of a server in memory, which takes transfers of so many bytes.
pub(super) fn negotiate_answer(longest: u32) -> Vec<u8> {
    let mut body = Vec::with_capacity(64);
    for field in [65, SIGNING_ENABLED, DIALECT, 0] {
        body.extend(field.to_le_bytes());
    }
    body.extend([0; 16]);
    for field in [LARGE_MTU, longest, longest, longest] {
        body.extend(field.to_le_bytes());
    }
    body.resize(64, 0);
    body
}

/// SESSION_SETUP with a token.
fn session_setup(ids: Ids, token: &[u8]) -> Vec<u8> {
    let mut request = header(command::SESSION_SETUP, 1, ids);
    request.extend(25_u16.to_le_bytes());
    request.extend([0, SIGNING_ENABLED as u8]);
    request.extend([0; 8]);
    request.extend(88_u16.to_le_bytes());
    request.extend((token.len() as u16).to_le_bytes());
    request.extend([0; 8]);
    request.extend(token);
    request
}

/// The first SESSION_SETUP: it requests a challenge (MS-NLMP 2.2.1.1).
pub(super) fn first_setup(ids: Ids) -> Vec<u8> {
    let mut token = b"NTLMSSP\0\x01\0\0\0".to_vec();
    token.extend(NTLMSSP_FLAGS.to_le_bytes());
    token.extend([0; 16]);
    session_setup(ids, &token)
}

/// The second SESSION_SETUP: an unknown user, whom the server takes for a guest, if it has guests (MS-NLMP
/// 2.2.1.3). A session of a guest neither signs nor encrypts.
pub(super) fn second_setup(ids: Ids) -> Vec<u8> {
    const FIXED: usize = 64;
    let responses = [0; 2 * RESPONSE_BYTES];
    let user = utf16(UNKNOWN_USER);
    let mut token = b"NTLMSSP\0\x03\0\0\0".to_vec();
    // LM response, NT response, domain, user, workstation, session key.
    let lengths = [RESPONSE_BYTES, RESPONSE_BYTES, 0, user.len(), 0, 0];
    let mut offset = FIXED;
    for length in lengths {
        token.extend([length as u16; 2].map(u16::to_le_bytes).as_flattened());
        token.extend((offset as u32).to_le_bytes());
        offset += length;
    }
    token.extend(NTLMSSP_FLAGS.to_le_bytes());
    token.extend(responses);
    token.extend(user);
    session_setup(ids, &token)
}

/// TREE_CONNECT to `\\SERVER\SHARE`.
pub(super) fn tree_connect(ids: Ids, server: &str, share: &str) -> Vec<u8> {
    let path = utf16(&format!(r"\\{server}\{share}"));
    let mut request = header(TREE_CONNECT, 1, ids);
    for field in [9, 0, 72, path.len() as u16] {
        request.extend(field.to_le_bytes());
    }
    request.extend(path);
    request
}

/// CREATE: opens a file for reading and writing, and makes it where there is none.
pub(super) fn create(ids: Ids, name: &str) -> Vec<u8> {
    const READ_AND_WRITE: u32 = 0x0012_019f;
    const IMPERSONATION: u32 = 2;
    const SHARED_BY_ALL: u32 = 7;
    const OPEN_OR_CREATE: u32 = 3;
    const NO_DIRECTORY: u32 = 0x40;
    let name = utf16(name);
    let mut request = header(CREATE, 1, ids);
    request.extend(57_u16.to_le_bytes());
    request.extend([0; 2]);
    request.extend(IMPERSONATION.to_le_bytes());
    request.extend([0; 16]);
    for field in [
        READ_AND_WRITE,
        0,
        SHARED_BY_ALL,
        OPEN_OR_CREATE,
        NO_DIRECTORY,
    ] {
        request.extend(field.to_le_bytes());
    }
    for field in [120, name.len() as u16] {
        request.extend(field.to_le_bytes());
    }
    request.extend([0; 8]);
    request.extend(name);
    request
}

/// The open file, from its CREATE response.
pub(super) fn created(response: &[u8]) -> io::Result<FileId> {
    field(response, 64)
}

/// Where the data of a READ or WRITE are.
#[derive(Clone, Copy, Debug)]
pub(super) enum Data<'a> {
    /// In the message.
    Inline,
    /// In the client's memory, described by buffer descriptors, which stay valid.
    Described(&'a [u8]),
}

/// READ of so many bytes.
pub(super) fn read(ids: Ids, file: FileId, offset: u64, bytes: usize, data: Data<'_>) -> Vec<u8> {
    let mut request = header(command::READ, charge(bytes), ids);
    let (channel, descriptors) = range_of(data);
    let body = ReadRequest {
        structure_size: 49,
        padding: 80,
        length: bytes as u32,
        offset,
        file_id: file,
        channel,
        channel_info_offset: if descriptors.is_empty() { 0 } else { 112 },
        channel_info_length: descriptors.len() as u16,
        ..ReadRequest::default()
    };
    request.extend(body.to_bytes());
    // The fixed part counts one byte of the buffer, even where there is none.
    request.extend(if descriptors.is_empty() {
        &[0]
    } else {
        descriptors
    });
    request
}

/// WRITE of so many bytes, which follow the message where they are in it.
pub(super) fn write(ids: Ids, file: FileId, offset: u64, bytes: usize, data: Data<'_>) -> Vec<u8> {
    let mut request = header(command::WRITE, charge(bytes), ids);
    let (channel, descriptors) = range_of(data);
    let is_inline = descriptors.is_empty();
    let body = WriteRequest {
        structure_size: 49,
        data_offset: if is_inline { 112 } else { 0 },
        length: if is_inline { bytes as u32 } else { 0 },
        offset,
        file_id: file,
        channel,
        remaining_bytes: if is_inline { 0 } else { bytes as u32 },
        channel_info_offset: if is_inline { 0 } else { 112 },
        channel_info_length: descriptors.len() as u16,
        flags: 0,
    };
    request.extend(body.to_bytes());
    request.extend(descriptors);
    request
}

fn range_of(data: Data<'_>) -> (u32, &[u8]) {
    match data {
        Data::Inline => (message::channel::NONE, &[]),
        Data::Described(descriptors) => (message::channel::RDMA_V1, descriptors),
    }
}

/// A response: its header and what follows that.
pub(super) fn response(bytes: &[u8]) -> io::Result<(Header, &[u8])> {
    let found = Header::split(bytes).filter(|(header, _)| {
        header.protocol_id == message::PROTOCOL_ID && header.flags & flag::RESPONSE != 0
    });
    found.ok_or_else(|| io::Error::other("the server sent something other than an SMB 2 response"))
}

/// The tree that a TREE_CONNECT response has in its header.
pub(super) fn tree(header: &Header) -> u32 {
    (header.async_id >> 32) as u32
}

/// A field of a response's body.
fn field<const N: usize>(body: &[u8], at: usize) -> io::Result<[u8; N]> {
    let found = body.get(at..).and_then(|rest| rest.first_chunk()).copied();
    found.ok_or_else(|| io::Error::other("the server sent a response that is too short"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_cost_a_credit_for_each_64_kib() {
        assert_eq!(
            [0, 1, 65_536, 65_537, 1 << 20].map(charge),
            [1, 1, 1, 2, 16]
        );
    }

    #[test]
    fn buffers_begin_where_their_offsets_say() {
        let ids = Ids {
            message: 3,
            session: 5,
            tree: 7,
        };
        let setup = second_setup(ids);
        assert_eq!(setup.get(88..96), Some(&b"NTLMSSP\0"[..]));
        // The user: its length twice, and its offset in the token, behind two responses.
        let user = UNKNOWN_USER.len() as u8 * 2;
        assert_eq!(
            setup.get(124..132),
            Some(&[user, 0, user, 0, 112, 0, 0, 0][..])
        );
        assert_eq!(setup.len(), 88 + 112 + usize::from(user));
        assert_eq!(setup.get(88 + 112..88 + 114), Some(&b"r\0"[..]));
        assert_eq!(create(ids, "f").get(120..), Some(&b"f\0"[..]));
        assert_eq!(tree_connect(ids, "s", "t").get(72..74), Some(&b"\\\0"[..]));
        assert_eq!(write(ids, [0; 16], 0, 4096, Data::Inline).len(), 112);
        let described = write(ids, [0; 16], 0, 4096, Data::Described(&[1; 16]));
        assert_eq!(described.get(112..), Some(&[1; 16][..]));
        let (header, _) = Header::split(&described).expect("a header");
        assert_eq!(
            (tree(&header), header.session_id, header.message_id),
            (7, 5, 3)
        );
        assert_eq!(negotiated(&negotiate_answer(9)).ok(), Some([9, 9]));
    }
}

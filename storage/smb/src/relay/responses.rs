//! READ responses, whose data are in the message or went by RDMA (MS-SMB2 2.2.20).

use wire::smb::message::{Header, ReadResponse};

/// The bytes of a READ response before its data.
pub const FIXED: usize = Header::SIZE + ReadResponse::SIZE;
/// `STATUS_BUFFER_OVERFLOW`: a message of a pipe is longer than the READ; there are data.
const BUFFER_OVERFLOW: u32 = 0x8000_0005;

/// Whether a READ with this status has data.
pub fn has_data(status: u32) -> bool {
    matches!(status, 0 | BUFFER_OVERFLOW)
}

/// Where the data of a READ response are, from its header, and how many. `None` when they are not behind the
/// fixed part and within the message.
pub fn data_of(fixed: &[u8; FIXED], total: u32) -> Option<(u32, u32)> {
    let (response, _) = ReadResponse::split(&fixed[Header::SIZE..])?;
    let offset = u32::from(response.data_offset);
    let end = offset.checked_add(response.data_length)?;
    let is_inside = offset as usize >= FIXED && end <= total;
    (response.data_length == 0 || is_inside).then_some((offset, response.data_length))
}

/// The response whose data went to the client by RDMA.
pub fn placed(header: &Header, length: u32) -> [u8; FIXED] {
    response(
        header,
        ReadResponse {
            data_length: 0,
            data_remaining: length,
            ..fixed()
        },
    )
}

/// The response whose data follow in the message.
pub fn inline(header: &Header, length: u32) -> [u8; FIXED] {
    response(
        header,
        ReadResponse {
            data_length: length,
            data_remaining: 0,
            ..fixed()
        },
    )
}

fn fixed() -> ReadResponse {
    ReadResponse {
        structure_size: 17,
        data_offset: FIXED as u8,
        ..ReadResponse::default()
    }
}

fn response(header: &Header, body: ReadResponse) -> [u8; FIXED] {
    let mut bytes = [0; FIXED];
    let header = Header {
        next_command: 0,
        ..*header
    };
    bytes[..Header::SIZE].copy_from_slice(&header.to_bytes());
    bytes[Header::SIZE..].copy_from_slice(&body.to_bytes());
    bytes
}

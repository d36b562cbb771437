//! READ and WRITE requests, whose data are in the message or where buffer descriptors point (MS-SMB2 2.2.19
//! and 2.2.21). Nothing here changes a message with the SIGNED flag.

use std::ops::Range;

use wire::smb::direct::BufferDescriptor;
use wire::smb::message::{Header, ReadRequest, WriteRequest, buffer, channel, command};

use super::elements::Element;
use crate::limits::READ_WRITE_MAX;

/// The bytes of a request before its buffer.
pub const FIXED: usize = Header::SIZE + WriteRequest::SIZE;
/// Where the data of a response begin, from its header.
const READ_PADDING: u8 = 80;

const _: () = assert!(ReadRequest::SIZE == WriteRequest::SIZE);

/// The memory of the client that a request names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Remote {
    /// The pieces of memory, which have exactly `length` bytes together.
    pub descriptors: Vec<BufferDescriptor>,
    /// The bytes to read or to write.
    pub length: u32,
    /// The key that the answer is to invalidate (Channel 2).
    pub invalidate: Option<u32>,
}

/// Where a READ or WRITE has its buffer descriptors, and what they are.
#[derive(Clone, Copy)]
struct ChannelInfo {
    channel: u32,
    /// From the header of the message.
    offset: u16,
    length: u16,
}

impl ChannelInfo {
    fn of_read(read: &ReadRequest) -> Self {
        Self {
            channel: read.channel,
            offset: read.channel_info_offset,
            length: read.channel_info_length,
        }
    }

    fn of_write(write: &WriteRequest) -> Self {
        Self {
            channel: write.channel,
            offset: write.channel_info_offset,
            length: write.channel_info_length,
        }
    }
}

/// The RDMA transfer that a client's message requests of a gateway.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Asked {
    /// No transfer: the message passes unchanged.
    Nothing,
    /// A READ whose data go to this memory.
    Read(Remote),
    /// A WRITE whose data are in this memory.
    Write(Remote),
    /// The descriptors do not describe the data: the server is to answer STATUS_INVALID_PARAMETER.
    Invalid,
}

/// The RDMA transfer that a message of the client requests. A response, a signed message and one without
/// descriptors request none.
pub fn asked(element: &Element<'_>) -> Asked {
    if element.header.is_response() || element.header.is_signed() {
        return Asked::Nothing;
    }
    match element.header.command {
        command::READ => {
            let Some((read, _)) = ReadRequest::split(element.body()) else {
                return Asked::Nothing;
            };
            let info = ChannelInfo::of_read(&read);
            match info.channel {
                channel::NONE => Asked::Nothing,
                _ => remote(element, info, read.length).map_or(Asked::Invalid, Asked::Read),
            }
        }
        command::WRITE => {
            let Some((write, _)) = WriteRequest::split(element.body()) else {
                return Asked::Nothing;
            };
            let info = ChannelInfo::of_write(&write);
            match info.channel {
                channel::NONE => Asked::Nothing,
                _ if write.length != 0 => Asked::Invalid,
                _ => {
                    let length = write.remaining_bytes;
                    remote(element, info, length).map_or(Asked::Invalid, Asked::Write)
                }
            }
        }
        _ => Asked::Nothing,
    }
}

/// Whether a message is a READ or WRITE with buffer descriptors, and not signed. The fixed part is enough.
pub fn has_channel(element: &Element<'_>) -> bool {
    if element.header.is_response() || element.header.is_signed() {
        return false;
    }
    let channel = match element.header.command {
        command::READ => ReadRequest::split(element.body()).map(|(read, _)| read.channel),
        command::WRITE => WriteRequest::split(element.body()).map(|(write, _)| write.channel),
        _ => None,
    };
    channel.is_some_and(|channel| channel != channel::NONE)
}

fn remote(element: &Element<'_>, info: ChannelInfo, length: u32) -> Option<Remote> {
    let channel = info.channel;
    if !matches!(channel, channel::RDMA_V1 | channel::RDMA_V1_INVALIDATE) || length > READ_WRITE_MAX
    {
        return None;
    }
    let all: Vec<_> =
        BufferDescriptor::array(buffer(element.bytes, info.offset, info.length)?)?.collect();
    let invalidate = (channel == channel::RDMA_V1_INVALIDATE).then_some(all.first()?.token);
    let descriptors = part_of(&all, 0..length)?;
    Some(Remote {
        descriptors,
        length,
        invalidate,
    })
}

/// The described memory from one byte to another; `None` when there is less of it, or an address wraps.
pub fn part_of(
    descriptors: &[BufferDescriptor],
    range: Range<u32>,
) -> Option<Vec<BufferDescriptor>> {
    let (mut skipped, mut missing) = (range.start, range.end.checked_sub(range.start)?);
    let mut pieces = Vec::new();
    for descriptor in descriptors {
        let before = descriptor.length.min(skipped);
        let length = (descriptor.length - before).min(missing);
        let offset = descriptor.offset.checked_add(u64::from(before))?;
        offset.checked_add(u64::from(length))?;
        (skipped, missing) = (skipped - before, missing - length);
        if length > 0 {
            pieces.push(BufferDescriptor {
                offset,
                length,
                ..*descriptor
            });
        }
    }
    (missing == 0).then_some(pieces)
}

/// The READ without descriptors: its answer has the data.
pub fn inline_read(element: &Element<'_>) -> Vec<u8> {
    let fixed = ReadRequest::split(element.body())
        .map(|(read, _)| read)
        .unwrap_or_default();
    let read = ReadRequest {
        padding: READ_PADDING,
        channel: channel::NONE,
        remaining_bytes: 0,
        channel_info_offset: 0,
        channel_info_length: 0,
        ..fixed
    };
    // The buffer of a READ has at least one byte.
    [&header_of(element)[..], &read.to_bytes(), &[0]].concat()
}

/// The WRITE without descriptors: `length` bytes of data follow.
pub fn inline_write(element: &Element<'_>, length: u32) -> Vec<u8> {
    let fixed = WriteRequest::split(element.body())
        .map(|(write, _)| write)
        .unwrap_or_default();
    let write = WriteRequest {
        data_offset: FIXED as u16,
        length,
        channel: channel::NONE,
        remaining_bytes: 0,
        channel_info_offset: 0,
        channel_info_length: 0,
        ..fixed
    };
    [&header_of(element)[..], &write.to_bytes()].concat()
}

/// The request with a StructureSize of 0, which every server answers with STATUS_INVALID_PARAMETER. The
/// server has to answer, because it counts MessageIds and grants credits.
pub fn invalid(element: &Element<'_>) -> Vec<u8> {
    [&header_of(element)[..], &[0; ReadRequest::SIZE + 1]].concat()
}

/// The header, as that of the last message of a compound.
fn header_of(element: &Element<'_>) -> [u8; Header::SIZE] {
    Header {
        next_command: 0,
        ..element.header
    }
    .to_bytes()
}

/// The READ or WRITE with one buffer descriptor in place of inline data. `fixed` has the first 112 bytes.
pub fn with_descriptor(fixed: &[u8; FIXED], descriptor: BufferDescriptor, channel: u32) -> Vec<u8> {
    let (header, body) = fixed.split_at(Header::SIZE);
    let info = ChannelInfo {
        channel,
        offset: FIXED as u16,
        length: BufferDescriptor::SIZE as u16,
    };
    let body = match Header::split(header) {
        Some((
            Header {
                command: command::WRITE,
                ..
            },
            _,
        )) => write_with(body, info, descriptor.length),
        _ => read_with(body, info),
    };
    [header, &body[..], &descriptor.to_bytes()].concat()
}

fn read_with(body: &[u8], info: ChannelInfo) -> [u8; 48] {
    let fixed = ReadRequest::split(body)
        .map(|(read, _)| read)
        .unwrap_or_default();
    ReadRequest {
        channel: info.channel,
        channel_info_offset: info.offset,
        channel_info_length: info.length,
        ..fixed
    }
    .to_bytes()
}

fn write_with(body: &[u8], info: ChannelInfo, remaining_bytes: u32) -> [u8; 48] {
    let fixed = WriteRequest::split(body)
        .map(|(write, _)| write)
        .unwrap_or_default();
    WriteRequest {
        data_offset: 0,
        length: 0,
        remaining_bytes,
        channel: info.channel,
        channel_info_offset: info.offset,
        channel_info_length: info.length,
        ..fixed
    }
    .to_bytes()
}

//! Captures of the kernel's SMB Direct client and server: every message is parsed and encoded again to the
//! same bytes, and descriptors of READ and WRITE name the memory that RDMA reads and writes.

use std::collections::{BTreeMap, BTreeSet};

use crate::captures::for_each_packet;
use wire::smb::direct::{
    BufferDescriptor, DATA_OFFSET, DataTransfer, NegotiateRequest, NegotiateResponse, VERSION,
};
use wire::smb::message::{self, Header, ReadRequest, WriteRequest, channel, command, flag};
use wire::{Message, Qpn, Service};

/// The content of the capture.
#[derive(Default)]
struct Capture {
    /// The messages of each direction, by the queue pair that receives them.
    messages: BTreeMap<Qpn, Vec<Vec<u8>>>,
    /// The keys of RDMA READs and WRITEs.
    keys: BTreeSet<u32>,
}

fn capture() -> Capture {
    let mut capture = Capture::default();
    for_each_packet(|name, _, dissected| {
        if name != "smbdirect" || dissected.packet.service != Service::Rc {
            return;
        }
        match dissected.packet.message {
            Message::Send { position, .. } => {
                let messages = capture.messages.entry(dissected.packet.dest).or_default();
                if position.starts() {
                    messages.push(Vec::new());
                }
                let last = messages.last_mut().expect("a message has begun");
                last.extend_from_slice(dissected.payload);
            }
            Message::ReadRequest { reth, .. }
            | Message::Write {
                reth: Some(reth), ..
            } => {
                capture.keys.insert(reth.rkey.0);
            }
            _ => {}
        }
    });
    capture
}

#[test]
fn every_message_of_the_kernel_survives() {
    let capture = capture();
    assert!(capture.messages.len() >= 2, "two directions");
    let mut counts = [0; 3];
    for messages in capture.messages.values() {
        for (index, bytes) in messages.iter().enumerate() {
            match (index, bytes.len()) {
                (0, NegotiateRequest::SIZE) => {
                    let (request, rest) = NegotiateRequest::split(bytes).unwrap();
                    assert!(rest.is_empty() && request.max_version == VERSION);
                    assert_eq!(request.to_bytes()[..], bytes[..]);
                    counts[0] += 1;
                }
                (0, NegotiateResponse::SIZE) => {
                    let (response, rest) = NegotiateResponse::split(bytes).unwrap();
                    assert!(rest.is_empty() && response.negotiated_version == VERSION);
                    assert_eq!(response.to_bytes()[..], bytes[..]);
                    counts[1] += 1;
                }
                _ => {
                    let (header, data) = DataTransfer::parse_message(bytes).unwrap();
                    let mut again = header.to_bytes().to_vec();
                    if !data.is_empty() {
                        again.resize(DATA_OFFSET, 0);
                        again.extend_from_slice(data);
                    }
                    assert_eq!(again, *bytes, "message {index}");
                    counts[2] += 1;
                }
            }
        }
    }
    assert!(
        counts[0] >= 1 && counts[1] >= 1 && counts[2] > 20,
        "{counts:?}"
    );
}

/// The SMB messages in all fragments.
fn smb_messages(capture: &Capture) -> Vec<Vec<u8>> {
    let mut whole = Vec::new();
    for messages in capture.messages.values() {
        let mut message = Vec::new();
        for bytes in &messages[1..] {
            let (header, data) = DataTransfer::parse_message(bytes).unwrap();
            message.extend_from_slice(data);
            if !data.is_empty() && header.remaining_data_length == 0 {
                whole.push(std::mem::take(&mut message));
            }
        }
        assert!(message.is_empty(), "the capture ends within a message");
    }
    whole
}

#[test]
fn reads_and_writes_name_the_memory_that_rdma_uses() {
    let capture = capture();
    let (mut reads, mut writes, mut named) = (0, 0, BTreeSet::new());
    for bytes in smb_messages(&capture) {
        let (header, body) = Header::split(&bytes).expect("a header");
        assert_eq!(header.protocol_id, message::PROTOCOL_ID);
        assert_eq!(header.to_bytes()[..], bytes[..Header::SIZE]);
        if header.flags & flag::RESPONSE != 0 {
            continue;
        }
        let (kind, offset, length) = match header.command {
            command::READ => {
                let (read, _) = ReadRequest::split(body).unwrap();
                assert_eq!(read.to_bytes()[..], body[..ReadRequest::SIZE]);
                reads += u32::from(read.channel != channel::NONE);
                (
                    read.channel,
                    read.channel_info_offset,
                    read.channel_info_length,
                )
            }
            command::WRITE => {
                let (write, _) = WriteRequest::split(body).unwrap();
                assert_eq!(write.to_bytes()[..], body[..WriteRequest::SIZE]);
                writes += u32::from(write.channel != channel::NONE);
                (
                    write.channel,
                    write.channel_info_offset,
                    write.channel_info_length,
                )
            }
            _ => continue,
        };
        if kind == channel::NONE {
            continue;
        }
        let array =
            message::buffer(&bytes, offset, length).expect("descriptors lie in the message");
        named.extend(
            BufferDescriptor::array(array)
                .expect("whole descriptors")
                .map(|it| it.token),
        );
    }
    assert!(
        reads > 0 && writes > 0,
        "{reads} READs and {writes} WRITEs with descriptors"
    );
    // The server leaves memory alone where it has nothing to read, at the end of a file for example.
    assert!(
        !capture.keys.is_empty() && capture.keys.is_subset(&named),
        "{:?} of {named:?}",
        capture.keys
    );
}

//! The guarantees of parsing and encoding for any bytes whatever: checked here for random ones, and by the
//! fuzzer.

use wire::cm::{CMA_HEADER_SIZE, CmMad, CmMessage, CmaHeader};
use wire::frame::FRAME_HEADERS_MAX;
use wire::mad::{MAD_DATA_SIZE, MAD_HEADER_SIZE, MAD_SIZE};
use wire::nvme::Sgl;
use wire::nvme::tcp::{
    CommonHeader, DIGEST_SIZE, Digests, ENCODED_MAX, Frame as NvmeFrame, Header as NvmeHeader,
};
use wire::opcode::{CNP_RESERVED_SIZE, HeaderKind, Opcode, Operation};
use wire::{FrameHeaders, Ip, MAX_HEADERS, Packet, Pause, Service, pad_of};

/// A packet that parses is encoded to its own bytes, but for reserved bits, which come out clear.
pub(crate) fn transport(bytes: &[u8]) {
    let Ok((packet, payload)) = Packet::parse(bytes) else {
        return;
    };
    let pad = bytes[1] >> 4 & 3;
    let mut headers = [0; MAX_HEADERS];
    let length = packet
        .encode(pad, &mut headers)
        .expect("what was parsed can be encoded");
    let again = [&headers[..length], payload, &[0; 3][..usize::from(pad)]].concat();
    assert_eq!(again, without_reserved(bytes, payload.len()));
    assert_eq!(Packet::parse(&again), Ok((packet, payload)));
    assert!(pad_of(payload.len()) < 4);
}

/// `bytes` with the bits cleared that receivers ignore, padding among them.
pub(crate) fn without_reserved(bytes: &[u8], payload_length: usize) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let opcode = Opcode::parse(bytes[0]).expect("it was parsed before");
    bytes[4] &= 0xc0;
    bytes[8] &= if opcode.operation == Operation::ReadRequest {
        0xc0
    } else {
        0x80
    };
    if opcode.has_xrc_eth() {
        bytes[12] = 0;
    }
    if opcode.service == Service::Ud {
        bytes[12 + 4] = 0;
    }
    if opcode.row().headers == [HeaderKind::CnpReserved] {
        bytes[12..12 + CNP_RESERVED_SIZE].fill(0);
    }
    bytes[opcode.header_size() + payload_length..].fill(0);
    bytes
}

/// The headers of a frame that parses are encoded to their own bytes, and its datagram honours the rest.
pub(crate) fn frame(bytes: &[u8]) {
    if let Some(payload) = bytes.get(14..)
        && let Ok(pause) = Pause::parse(payload)
    {
        let again = pause.to_frame(wire::MacAddress::default());
        assert_eq!(Pause::parse(&again[14..]), Ok(pause));
    }
    let Ok((headers, datagram)) = FrameHeaders::parse(bytes) else {
        return;
    };
    let mut again = [0; FRAME_HEADERS_MAX];
    let length = headers.encode(&mut again);
    let mut original = bytes[..length].to_vec();
    if let Ip::V4(_) = headers.ip {
        // Ones' complement has two zeros: a checksum of 0xffff is as right as 0, which we write.
        let checksum = length - 8 - 10;
        if original[checksum..checksum + 2] == [0xff, 0xff] {
            original[checksum..checksum + 2].fill(0);
        }
    }
    assert_eq!(again[..length], original);
    transport(datagram);
}

/// A management datagram that parses is encoded to its own bytes; reserved bits come out clear.
pub(crate) fn mad(bytes: &[u8]) {
    if let Some((cma, _)) = bytes.split_first_chunk::<CMA_HEADER_SIZE>()
        && let Ok(header) = CmaHeader::parse(cma)
    {
        assert_eq!(CmaHeader::parse(&header.to_bytes()), Ok(header));
    }
    let Ok(mad) = CmMad::parse(bytes) else { return };
    let again = mad.to_bytes();
    assert_eq!(CmMad::parse(&again), Ok(mad));
    let defined = defined_bits(mad.message.attribute());
    let expected: Vec<u8> = bytes
        .iter()
        .zip(defined)
        .map(|(byte, defined)| byte & defined)
        .collect();
    assert_eq!(again.as_slice(), expected);
}

/// The bits of a message that are not reserved: those that survive when all are set.
fn defined_bits(attribute: u16) -> [u8; MAD_SIZE] {
    let message =
        CmMessage::parse(attribute, &[0xff; MAD_DATA_SIZE]).expect("it was parsed before");
    let mut bits = [0xff; MAD_SIZE];
    // Status, class specific, and the reserved bits of the common header.
    bits[4..8].fill(0);
    bits[18..20].fill(0);
    bits[MAD_HEADER_SIZE..].copy_from_slice(&message.to_bytes());
    bits
}

/// An NVMe/TCP PDU that parses is encoded to the same bytes, reserved ones clear; so are the structures that
/// NVMe has in capsules and data.
pub(crate) fn nvme(bytes: &[u8]) {
    for digests in [
        Digests::default(),
        Digests {
            header: true,
            data: true,
        },
    ] {
        nvme_pdu(bytes, digests);
    }
    if let Some(sgl) = bytes.first_chunk()
        && let Ok(sgl) = Sgl::parse(sgl)
    {
        assert_eq!(Sgl::parse(&sgl.to_bytes()), Ok(sgl));
    }
}

fn nvme_pdu(bytes: &[u8], digests: Digests) {
    let Some((common, behind)) = CommonHeader::split(bytes) else {
        return;
    };
    assert_eq!(common.to_bytes(), bytes[..CommonHeader::SIZE]);
    let Ok(frame) = NvmeFrame::parse(&common, digests, 1 << 20) else {
        return;
    };
    let trailer = if frame.data_digest { DIGEST_SIZE } else { 0 };
    assert_eq!(
        frame.before_data + frame.data + trailer,
        common.length as usize
    );
    let Some(header) = NvmeHeader::parse(frame.kind, behind) else {
        return;
    };
    let mut again = [0; ENCODED_MAX];
    let end = header.encode(frame.flags, digests, frame.data, 4, &mut again);
    let first = CommonHeader::split(&again).expect("a header is longer").0;
    let parsed = NvmeFrame::parse(&first, digests, 1 << 20).expect("what we encode can be read");
    assert_eq!(
        (parsed.kind, parsed.data, parsed.before_data),
        (frame.kind, frame.data, end)
    );
    assert_eq!(
        NvmeHeader::parse(parsed.kind, &again[CommonHeader::SIZE..]),
        Some(header)
    );
}

/// A record of verbs calls: a line that is read is written as the same bytes.
pub(crate) fn record(bytes: &[u8]) {
    let Ok(text) = core::str::from_utf8(bytes) else {
        return;
    };
    let Ok(lines) = wire::record::lines(text) else {
        return;
    };
    let original: Vec<&str> = text.split('\n').collect();
    for (number, line) in lines {
        if let Ok(line) = line {
            assert_eq!(line.to_string(), original[number - 1]);
        }
    }
}

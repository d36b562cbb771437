//! The messages of a compound (MS-SMB2 3.2.4.1.4): each header contains the offset of the next one.

use wire::smb::message::{HEADER_STRUCTURE_SIZE, Header, PROTOCOL_ID};

/// One message of a compound, from its header to the next header.
#[derive(Clone, Copy, Debug)]
pub struct Element<'a> {
    /// The header, which begins the bytes.
    pub header: Header,
    /// All bytes, with the header and the padding behind.
    pub bytes: &'a [u8],
}

impl<'a> Element<'a> {
    /// The bytes behind the header.
    pub fn body(&self) -> &'a [u8] {
        self.bytes.get(Header::SIZE..).unwrap_or_default()
    }

    /// Whether another message follows.
    pub fn is_last(&self) -> bool {
        self.header.next_command == 0
    }
}

/// The header at the start of a message in the clear; `None` for anything else.
pub fn header(bytes: &[u8]) -> Option<Header> {
    let (header, _) = Header::split(bytes)?;
    let is_plain =
        header.protocol_id == PROTOCOL_ID && header.structure_size == HEADER_STRUCTURE_SIZE;
    is_plain.then_some(header)
}

/// The messages of a compound; `None` when a header or an offset is invalid.
pub fn split(mut message: &[u8]) -> Option<Vec<Element<'_>>> {
    let mut elements = Vec::new();
    loop {
        let header = header(message)?;
        let next = header.next_command as usize;
        if next == 0 {
            elements.push(Element {
                header,
                bytes: message,
            });
            return Some(elements);
        }
        if next < Header::SIZE || !next.is_multiple_of(8) {
            return None;
        }
        let (bytes, rest) = message.split_at_checked(next)?;
        elements.push(Element { header, bytes });
        message = rest;
    }
}

/// Sets where the next message begins.
pub fn set_next(bytes: &mut [u8], next: u32) {
    if let Some(place) = bytes.get_mut(20..24) {
        place.copy_from_slice(&next.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(next: u32) -> [u8; 64] {
        let header = Header {
            protocol_id: PROTOCOL_ID,
            structure_size: HEADER_STRUCTURE_SIZE,
            next_command: next,
            ..Header::default()
        };
        header.to_bytes()
    }

    #[test]
    fn offsets_lead_from_header_to_header() {
        let mut message = plain(72).to_vec();
        message.extend([0; 8]);
        message.extend(plain(0));
        let elements = split(&message).unwrap();
        assert_eq!(
            elements.iter().map(|it| it.bytes.len()).collect::<Vec<_>>(),
            [72, 64]
        );
        for next in [8, 68, 136, 1 << 20, u32::MAX] {
            set_next(&mut message, next);
            assert!(split(&message).is_none(), "{next}");
        }
    }
}

//! Control messages of `sendmsg` and `recvmsg`.

use std::mem::size_of;

/// Size of the buffer for the control messages of one call: the largest set is packet information of both
/// families, segment size, traffic class and TTL, 144 bytes on 64-bit machines.
pub(crate) const CONTROL_BYTES: usize = 256;

/// A buffer for control messages, aligned as the kernel writes them.
#[repr(C, align(8))]
pub(crate) struct Control {
    bytes: [u8; CONTROL_BYTES],
    length: usize,
}

const HEADER: usize = size_of::<libc::cmsghdr>();
const _: () = assert!(HEADER == align(HEADER));

const fn align(length: usize) -> usize {
    length.next_multiple_of(size_of::<usize>())
}

impl Control {
    pub(crate) const fn new() -> Self {
        Self {
            bytes: [0; CONTROL_BYTES],
            length: 0,
        }
    }

    pub(crate) fn as_mut_ptr(&mut self) -> *mut libc::c_void {
        self.bytes.as_mut_ptr().cast()
    }

    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// Adds a message. One that does not fit is left out: the set is fixed and fits the buffer.
    pub(crate) fn push(&mut self, level: i32, kind: i32, data: &[u8]) {
        let Some(place) = self
            .bytes
            .get_mut(self.length..self.length + HEADER + align(data.len()))
        else {
            return;
        };
        place[..size_of::<usize>()].copy_from_slice(&(HEADER + data.len()).to_ne_bytes());
        place[8..12].copy_from_slice(&level.to_ne_bytes());
        place[12..16].copy_from_slice(&kind.to_ne_bytes());
        place[HEADER..HEADER + data.len()].copy_from_slice(data);
        self.length += HEADER + align(data.len());
    }

    /// The messages in the first `length` bytes: level, kind, data.
    pub(crate) fn messages(&self, length: usize) -> impl Iterator<Item = (i32, i32, &[u8])> {
        let mut rest = &self.bytes[..length.min(CONTROL_BYTES)];
        std::iter::from_fn(move || {
            let total = usize::from_ne_bytes(*rest.first_chunk()?);
            let level = i32::from_ne_bytes(*rest.get(8..)?.first_chunk()?);
            let kind = i32::from_ne_bytes(*rest.get(12..)?.first_chunk()?);
            let data = rest.get(HEADER..total)?;
            rest = rest.get(align(total)..).unwrap_or_default();
            Some((level, kind, data))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_back_as_they_were_put() {
        let mut control = Control::new();
        control.push(1, 2, &[3; 12]);
        control.push(4, 5, &[6; 2]);
        let length = control.len();
        let messages: Vec<_> = control.messages(length).collect();
        assert_eq!(messages, [(1, 2, &[3; 12][..]), (4, 5, &[6; 2][..])]);
        assert_eq!(control.messages(length - 1).count(), 2);
        assert_eq!(control.messages(20).count(), 0);
    }
}

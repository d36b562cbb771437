//! Payloads of frames that stay in the memory into which they were read from a tap, while their headers cross
//! the network.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::ops::Range;
use std::rc::Rc;

/// Pieces of a payload at most.
pub(crate) const PIECES_MAX: usize = 64;
/// Buffers of a tap at most, beside the one into which it reads. When all of them have payloads of frames
/// that are in the network, payloads of further ones are copied.
const BUFFERS_MAX: usize = 32;

/// A part of a buffer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Slice {
    buffer: Rc<[u8]>,
    range: Range<usize>,
}

impl Slice {
    pub(crate) fn new(buffer: &Rc<[u8]>, range: Range<usize>) -> Self {
        Self {
            buffer: Rc::clone(buffer),
            range,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.range.len()
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.buffer.get(self.range.clone()).unwrap_or_default()
    }

    /// Whether another slice is the memory behind this one.
    fn is_followed_by(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.buffer, &other.buffer) && self.range.end == other.range.start
    }
}

/// A piece of a payload.
#[derive(Debug)]
enum Piece {
    Shared(Slice),
    /// A part of what was copied.
    Copied(Range<usize>),
}

/// A payload in pieces.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    all: VecDeque<Piece>,
    copied: Vec<u8>,
    len: usize,
}

impl Pieces {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether a slice and a copied piece have room.
    pub(crate) fn has_room(&self) -> bool {
        self.all.len() + 2 <= PIECES_MAX
    }

    /// Adds a slice.
    pub(crate) fn push(&mut self, slice: &Slice) {
        self.len += slice.len();
        match self.all.back_mut() {
            Some(Piece::Shared(last)) if last.is_followed_by(slice) => {
                last.range.end = slice.range.end
            }
            _ => self.all.push_back(Piece::Shared(slice.clone())),
        }
    }

    /// Adds a copy.
    pub(crate) fn copy(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let begin = self.copied.len();
        self.copied.extend_from_slice(bytes);
        self.len += bytes.len();
        match self.all.back_mut() {
            Some(Piece::Copied(last)) => last.end = self.copied.len(),
            _ => self.all.push_back(Piece::Copied(begin..self.copied.len())),
        }
    }

    /// Writes where the pieces are to `out`, which has room for [`PIECES_MAX`]; returns how many there are.
    pub(crate) fn fill<'a>(&'a self, out: &mut [IoSlice<'a>]) -> usize {
        let bytes = self.all.iter().map(|piece| match piece {
            Piece::Shared(slice) => slice.bytes(),
            Piece::Copied(range) => self.copied.get(range.clone()).unwrap_or_default(),
        });
        out.iter_mut()
            .zip(bytes)
            .map(|(out, bytes)| *out = IoSlice::new(bytes))
            .count()
    }

    pub(crate) fn clear(&mut self) {
        self.all.clear();
        self.copied.clear();
        self.len = 0;
    }
}

/// The memory into which frames of a tap are read, one at a time.
#[derive(Debug)]
pub(crate) struct Buffers {
    current: Rc<[u8]>,
    /// Others, which may have payloads of frames that are in the network.
    others: Vec<Rc<[u8]>>,
    /// Whether payloads of what was read last may stay in its buffer.
    shares: bool,
}

impl Buffers {
    pub(crate) fn new(bytes: usize) -> Self {
        Self {
            current: Rc::from(vec![0; bytes]),
            others: Vec::new(),
            shares: true,
        }
    }

    /// What was read last.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.current
    }

    /// A part of what was read last; `None` where it has to be copied.
    pub(crate) fn slice(&self, range: Range<usize>) -> Option<Slice> {
        self.shares.then(|| Slice::new(&self.current, range))
    }

    /// A buffer without payloads of frames that are in the network.
    pub(crate) fn free(&mut self) -> &mut [u8] {
        if Rc::get_mut(&mut self.current).is_none() {
            match self
                .others
                .iter()
                .rposition(|one| Rc::strong_count(one) == 1)
            {
                Some(place) => std::mem::swap(&mut self.others[place], &mut self.current),
                None => {
                    let new = Rc::from(vec![0; self.current.len()]);
                    self.others.push(std::mem::replace(&mut self.current, new));
                }
            }
        }
        // One of the others is free when this one is not any more, or one more can be made.
        self.shares = self.others.len() < BUFFERS_MAX
            || self.others.iter().any(|one| Rc::strong_count(one) == 1);
        Rc::get_mut(&mut self.current).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_keeps_its_buffer_until_it_is_dropped_and_there_are_so_many_buffers() {
        let mut buffers = Buffers::new(8);
        let mut kept = Vec::new();
        for number in 0..2 * BUFFERS_MAX as u8 {
            buffers.free().fill(number);
            kept.extend(buffers.slice(2..4));
        }
        assert_eq!(
            (kept.len(), buffers.others.len()),
            (BUFFERS_MAX, BUFFERS_MAX)
        );
        for (number, slice) in (0..).zip(&kept) {
            assert_eq!(slice.bytes(), [number, number]);
        }
        kept.remove(5);
        buffers.free().fill(99);
        kept.extend(buffers.slice(2..4));
        assert_eq!(kept.last().expect("there was room").bytes(), [99, 99]);
        buffers.free().fill(1);
        assert!(buffers.slice(2..4).is_none());
        assert!(
            kept[2..].iter().all(|slice| slice.bytes() != [1, 1]),
            "none of them was read into"
        );
        assert_eq!(buffers.others.len(), BUFFERS_MAX);
    }

    #[test]
    fn pieces_that_follow_each_other_are_one() {
        let buffer: Rc<[u8]> = (0..10).collect();
        let mut pieces = Pieces::default();
        pieces.push(&Slice::new(&buffer, 0..3));
        pieces.push(&Slice::new(&buffer, 3..5));
        pieces.copy(&[]);
        pieces.copy(&[7]);
        pieces.copy(&[8]);
        pieces.push(&Slice::new(&buffer, 6..7));
        let mut out = [IoSlice::new(&[]); PIECES_MAX];
        let count = pieces.fill(&mut out);
        let found: Vec<&[u8]> = out[..count].iter().map(|piece| &**piece).collect();
        assert_eq!(
            (found, pieces.len()),
            (vec![&[0, 1, 2, 3, 4][..], &[7, 8], &[6]], 8)
        );
        pieces.clear();
        let mut none = [IoSlice::new(&[]); PIECES_MAX];
        assert_eq!((pieces.fill(&mut none), pieces.len()), (0, 0));
    }
}

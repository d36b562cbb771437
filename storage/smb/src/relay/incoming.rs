//! Messages over TCP as they come in: into a staging area, or straight into the buffer of their data.

use buffer::Buffer;

use super::frame;
use crate::close_reason::Ended;

/// Bytes of the staging area.
const STAGING: usize = 64 << 10;
/// From so many bytes of data on, of the message before, a message is read up to its head first: data that
/// are read with the head are copied once more, and one system call takes as long as copying a part of these.
const LONG: usize = 32 << 10;

/// The state of the message under way.
#[derive(Debug)]
enum State {
    /// The next bytes are a prefix.
    Prefix,
    /// A message of this length, of which nothing was taken.
    Head { total: u32 },
    /// The rest of a message is taken as it comes.
    Stream { remaining: u32 },
    /// The next bytes go to a buffer.
    Fill {
        buffer: Buffer,
        at: usize,
        end: usize,
        rest: u32,
    },
}

/// Bytes for the session.
#[derive(Debug)]
pub(super) enum Piece<'a> {
    /// The first bytes of a message of this length: all of it, or at least as many as the session asked for.
    Head(u32, &'a [u8]),
    /// More bytes of it, and how many remain.
    More(&'a [u8], u32),
    /// The buffer is full.
    Filled(Buffer),
}

/// The receiving end of a TCP connection.
#[derive(Debug)]
pub(super) struct FromTcp {
    staging: Box<[u8]>,
    begin: usize,
    end: usize,
    state: State,
    head: usize,
    /// The last data for a buffer were long.
    is_long: bool,
    /// The session waits for memory.
    is_blocked: bool,
}

impl FromTcp {
    /// A session that decides on the first `head` bytes of each message.
    pub(super) fn new(head: usize) -> Self {
        let staging = vec![0; STAGING].into_boxed_slice();
        Self {
            staging,
            begin: 0,
            end: 0,
            state: State::Prefix,
            head,
            is_long: false,
            is_blocked: false,
        }
    }

    /// The place where received bytes are to be put.
    pub(super) fn room_for_bytes(&mut self) -> Option<&mut [u8]> {
        if self.is_blocked {
            return None;
        }
        let limit = match self.state {
            State::Prefix | State::Head { .. } if self.is_long => frame::PREFIX + self.head,
            _ => self.staging.len(),
        };
        if let State::Fill {
            buffer, at, end, ..
        } = &mut self.state
            && self.begin == self.end
        {
            return buffer.get_mut(*at..*end);
        }
        self.staging.copy_within(self.begin..self.end, 0);
        (self.begin, self.end) = (0, self.end - self.begin);
        self.staging.get_mut(self.end..limit)
    }

    /// Notes that bytes were received at [`FromTcp::place`].
    pub(super) fn received(&mut self, count: usize) {
        match &mut self.state {
            State::Fill { at, .. } if self.begin == self.end => *at += count,
            _ => self.end += count,
        }
    }

    pub(super) fn set_blocked(&mut self, is_blocked: bool) {
        self.is_blocked = is_blocked;
    }

    pub(super) fn is_blocked(&self) -> bool {
        self.is_blocked
    }

    /// The next bytes, if there are any. A head is passed until [`FromTcp::take`] has taken some of it.
    pub(super) fn next(&mut self) -> Result<Option<Piece<'_>>, Ended> {
        loop {
            let staged = self.end - self.begin;
            match &mut self.state {
                State::Prefix => {
                    let bytes = &self.staging[self.begin..self.end];
                    let Some(prefix) = bytes.first_chunk() else {
                        return Ok(None);
                    };
                    let total = frame::length(*prefix)?;
                    self.begin += frame::PREFIX;
                    if total > 0 {
                        self.state = State::Head { total };
                    }
                }
                State::Head { total } => {
                    let total = *total;
                    if staged < self.head.min(total as usize) {
                        return Ok(None);
                    }
                    let count = staged.min(total as usize);
                    return Ok(Some(Piece::Head(
                        total,
                        &self.staging[self.begin..self.begin + count],
                    )));
                }
                State::Stream { remaining: 0 } => self.state = State::Prefix,
                State::Stream { .. } if staged == 0 => return Ok(None),
                State::Stream { remaining } => {
                    let count = staged.min(*remaining as usize);
                    *remaining -= count as u32;
                    let bytes = &self.staging[self.begin..self.begin + count];
                    self.begin += count;
                    return Ok(Some(Piece::More(bytes, *remaining)));
                }
                State::Fill {
                    buffer, at, end, ..
                } if *at < *end => {
                    if staged == 0 {
                        return Ok(None);
                    }
                    let count = staged.min(*end - *at);
                    buffer[*at..*at + count]
                        .copy_from_slice(&self.staging[self.begin..self.begin + count]);
                    *at += count;
                    self.begin += count;
                }
                State::Fill { rest, .. } => {
                    let next = State::Stream { remaining: *rest };
                    if let State::Fill { buffer, .. } = std::mem::replace(&mut self.state, next) {
                        return Ok(Some(Piece::Filled(buffer)));
                    }
                }
            }
        }
    }

    /// Takes the first bytes of a message: the rest follows as [`Piece::More`].
    pub(super) fn take(&mut self, count: usize) {
        if let State::Head { total } = self.state {
            self.begin += count;
            self.is_long = false;
            self.state = State::Stream {
                remaining: total - count as u32,
            };
        }
    }

    /// Has the next `length` bytes of a message of which some were taken put into the buffer.
    pub(super) fn fill(&mut self, buffer: Buffer, length: usize) {
        if let State::Stream { remaining } = self.state {
            self.is_long = length >= LONG;
            self.state = State::Fill {
                buffer,
                at: 0,
                end: length,
                rest: remaining - length as u32,
            };
        }
    }
}

//! Fixed newstyle negotiation: the options of a client before its first request.

use super::terms::{Export, Fault, REQUEST_BYTES_MAX};

/// Data of one option. Names have 4096 bytes at most.
pub(super) const OPTION_BYTES_MAX: usize = 8192;
/// Options that a client may send; more than there are, so that unknown ones are answered.
pub(super) const OPTIONS_MAX: usize = 64;

/// The first magic number of the greeting: `NBDMAGIC` in ASCII.
const MAGIC: u64 = u64::from_be_bytes(*b"NBDMAGIC");
/// The magic number of each option: `IHAVEOPT` in ASCII.
const OPTION_MAGIC: u64 = u64::from_be_bytes(*b"IHAVEOPT");
/// The magic number of replies to options.
const REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;

/// Flags of the handshake, for server and client alike.
mod handshake {
    pub(super) const FIXED_NEWSTYLE: u16 = 1;
    pub(super) const NO_ZEROES: u16 = 1 << 1;
}

mod option {
    pub(super) const EXPORT_NAME: u32 = 1;
    pub(super) const ABORT: u32 = 2;
    pub(super) const LIST: u32 = 3;
    pub(super) const INFO: u32 = 6;
    pub(super) const GO: u32 = 7;
}

mod reply {
    pub(super) const ACKNOWLEDGE: u32 = 1;
    pub(super) const SERVER: u32 = 2;
    pub(super) const INFO: u32 = 3;
    pub(super) const UNSUPPORTED: u32 = 1 << 31 | 1;
    pub(super) const INVALID: u32 = 1 << 31 | 3;
    pub(super) const UNKNOWN: u32 = 1 << 31 | 6;
    pub(super) const TOO_BIG: u32 = 1 << 31 | 9;
}

mod info {
    pub(super) const EXPORT: u16 = 0;
    pub(super) const NAME: u16 = 1;
    pub(super) const BLOCK_SIZE: u16 = 3;
}

/// The next step after an option.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Next {
    /// The client sends another option.
    Option,
    /// The transmission phase: the client sends requests.
    Requests,
    /// The client ended the session.
    End,
}

/// The greeting of the server.
pub(super) fn greeting() -> [u8; 18] {
    let mut bytes = [0; 18];
    bytes[..8].copy_from_slice(&MAGIC.to_be_bytes());
    bytes[8..16].copy_from_slice(&OPTION_MAGIC.to_be_bytes());
    bytes[16..].copy_from_slice(&(handshake::FIXED_NEWSTYLE | handshake::NO_ZEROES).to_be_bytes());
    bytes
}

/// Checks the flags of the client; returns whether 124 zero bytes are omitted (NBD_FLAG_NO_ZEROES).
pub(super) fn client_flags(flags: u32) -> Result<bool, Fault> {
    let known = u32::from(handshake::FIXED_NEWSTYLE | handshake::NO_ZEROES);
    if flags & !known != 0 || flags & u32::from(handshake::FIXED_NEWSTYLE) == 0 {
        return Err(Fault::Handshake);
    }
    Ok(flags & u32::from(handshake::NO_ZEROES) != 0)
}

/// An option: its number, its data, and the offset behind it.
pub(super) type Asked<'a> = (u32, &'a [u8], usize);

/// The next option of a client; `None` while it is incomplete.
pub(super) fn option(bytes: &[u8]) -> Result<Option<Asked<'_>>, Fault> {
    let Some((head, rest)) = bytes.split_first_chunk::<16>() else { return Ok(None) };
    let magic = u64::from_be_bytes([head[0], head[1], head[2], head[3], head[4], head[5], head[6], head[7]]);
    if magic != OPTION_MAGIC {
        return Err(Fault::Magic);
    }
    let number = u32::from_be_bytes([head[8], head[9], head[10], head[11]]);
    let length = u32::from_be_bytes([head[12], head[13], head[14], head[15]]) as usize;
    if length > OPTION_BYTES_MAX {
        return Err(Fault::TooLong);
    }
    Ok(rest.get(..length).map(|data| (number, data, 16 + length)))
}

/// Answers an option.
pub(super) fn answer(
    export: &Export,
    number: u32,
    data: &[u8],
    no_zeroes: bool,
    out: &mut Vec<u8>,
) -> Result<Next, Fault> {
    match number {
        option::EXPORT_NAME if !export.is_called(data) => return Err(Fault::NoSuchExport),
        option::EXPORT_NAME => {
            out.extend_from_slice(&export.size.to_be_bytes());
            out.extend_from_slice(&export.flags.to_be_bytes());
            out.resize(out.len() + if no_zeroes { 0 } else { 124 }, 0);
            return Ok(Next::Requests);
        }
        option::ABORT => {
            push(out, number, reply::ACKNOWLEDGE, &[]);
            return Ok(Next::End);
        }
        option::LIST if data.is_empty() => {
            let name = export.name.as_bytes();
            push(out, number, reply::SERVER, &[&(name.len() as u32).to_be_bytes(), name].concat());
            push(out, number, reply::ACKNOWLEDGE, &[]);
        }
        option::LIST => push(out, number, reply::INVALID, b"LIST has no data"),
        option::INFO | option::GO => return Ok(information(export, number, data, out)),
        _ => push(out, number, reply::UNSUPPORTED, &[]),
    }
    Ok(Next::Option)
}

fn information(export: &Export, number: u32, data: &[u8], out: &mut Vec<u8>) -> Next {
    let Some((name, asked)) = take_name(data) else {
        push(out, number, reply::INVALID, b"lengths contradict each other");
        return Next::Option;
    };
    if name.len() > 4096 {
        push(out, number, reply::TOO_BIG, b"names have 4096 bytes at most");
        return Next::Option;
    }
    if !export.is_called(name) {
        push(out, number, reply::UNKNOWN, b"no such export");
        return Next::Option;
    }
    let mut details = info::EXPORT.to_be_bytes().to_vec();
    details.extend_from_slice(&export.size.to_be_bytes());
    details.extend_from_slice(&export.flags.to_be_bytes());
    push(out, number, reply::INFO, &details);
    for wanted in asked.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]])) {
        if wanted == info::NAME {
            push(out, number, reply::INFO, &[&info::NAME.to_be_bytes(), export.name.as_bytes()].concat());
        }
    }
    // Block sizes are sent even if the client did not request them, so that a client that knows them uses
    // them.
    let mut sizes = info::BLOCK_SIZE.to_be_bytes().to_vec();
    let block = export.block_size;
    for size in [block, block.max(4096), REQUEST_BYTES_MAX as u32] {
        sizes.extend_from_slice(&size.to_be_bytes());
    }
    push(out, number, reply::INFO, &sizes);
    push(out, number, reply::ACKNOWLEDGE, &[]);
    if number == option::GO { Next::Requests } else { Next::Option }
}

/// The export name, and the information requests.
fn take_name(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = data.split_first_chunk::<4>()?;
    let (name, rest) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
    let (count, asked) = rest.split_first_chunk::<2>()?;
    (asked.len() == 2 * usize::from(u16::from_be_bytes(*count))).then_some((name, asked))
}

fn push(out: &mut Vec<u8>, number: u32, kind: u32, data: &[u8]) {
    out.extend_from_slice(&REPLY_MAGIC.to_be_bytes());
    for word in [number, kind, data.len() as u32] {
        out.extend_from_slice(&word.to_be_bytes());
    }
    out.extend_from_slice(data);
}

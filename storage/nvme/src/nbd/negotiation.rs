//! Newstyle negotiation: the options of a client before its first request.

use super::terms::{Export, Fault, REQUEST_BYTES_MAX, flag};

/// Data of one option that are looked at. Names have 4096 bytes at most.
pub(super) const OPTION_BYTES_MAX: usize = 8192;
/// Options that a client may send; more than there are, so that unknown ones are answered.
pub(super) const OPTIONS_MAX: usize = 64;
/// The identifier of the metadata context `base:allocation`, the only one.
pub(super) const ALLOCATION_ID: u32 = 1;

/// The first magic number of the greeting: `NBDMAGIC` in ASCII.
const MAGIC: u64 = u64::from_be_bytes(*b"NBDMAGIC");
/// The magic number of each option: `IHAVEOPT` in ASCII.
const OPTION_MAGIC: u64 = u64::from_be_bytes(*b"IHAVEOPT");
/// The magic number of replies to options.
const REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// The longest name of an export, in bytes.
const NAME_BYTES_MAX: usize = 4096;
/// The metadata context that says which parts of the disk have data.
const ALLOCATION: &[u8] = b"base:allocation";

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
    pub(super) const STRUCTURED_REPLY: u32 = 8;
    pub(super) const LIST_META_CONTEXT: u32 = 9;
    pub(super) const SET_META_CONTEXT: u32 = 10;
}

mod reply {
    pub(super) const ACKNOWLEDGE: u32 = 1;
    pub(super) const SERVER: u32 = 2;
    pub(super) const INFO: u32 = 3;
    pub(super) const META_CONTEXT: u32 = 4;
    pub(super) const UNSUPPORTED: u32 = 1 << 31 | 1;
    pub(super) const INVALID: u32 = 1 << 31 | 3;
    pub(super) const UNKNOWN: u32 = 1 << 31 | 6;
    pub(super) const TOO_BIG: u32 = 1 << 31 | 9;
}

mod info {
    pub(super) const EXPORT: u16 = 0;
    pub(super) const NAME: u16 = 1;
    pub(super) const DESCRIPTION: u16 = 2;
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

/// What client and server have agreed on so far.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Agreed {
    /// Options other than NBD_OPT_EXPORT_NAME are answered (NBD_FLAG_C_FIXED_NEWSTYLE).
    fixed: bool,
    /// The 124 zero bytes of old servers are omitted (NBD_FLAG_C_NO_ZEROES).
    no_zeroes: bool,
    /// Replies are structured.
    pub(super) structured: bool,
    /// NBD_CMD_BLOCK_STATUS is answered for `base:allocation`.
    pub(super) allocation: bool,
}

/// The greeting of the server.
pub(super) fn greeting() -> [u8; 18] {
    let mut bytes = [0; 18];
    bytes[..8].copy_from_slice(&MAGIC.to_be_bytes());
    bytes[8..16].copy_from_slice(&OPTION_MAGIC.to_be_bytes());
    bytes[16..].copy_from_slice(&(handshake::FIXED_NEWSTYLE | handshake::NO_ZEROES).to_be_bytes());
    bytes
}

/// Checks the flags of the client.
pub(super) fn client_flags(flags: u32) -> Result<Agreed, Fault> {
    let has = |flag: u16| flags & u32::from(flag) != 0;
    if flags & !u32::from(handshake::FIXED_NEWSTYLE | handshake::NO_ZEROES) != 0 {
        return Err(Fault::Handshake);
    }
    let (fixed, no_zeroes) = (has(handshake::FIXED_NEWSTYLE), has(handshake::NO_ZEROES));
    Ok(Agreed {
        fixed,
        no_zeroes,
        ..Agreed::default()
    })
}

/// An option of a client.
pub(super) enum Asked<'a> {
    /// A whole option: number, data, and the offset of the next option.
    Whole(u32, &'a [u8], usize),
    /// Its number, and the length of its data, which are too many to be kept.
    TooLong(u32, usize),
}

/// Bytes of an option before its data.
pub(super) const OPTION_HEAD: usize = 16;

/// The next option of a client; `None` while it is incomplete.
pub(super) fn option(bytes: &[u8]) -> Result<Option<Asked<'_>>, Fault> {
    let Some((head, rest)) = bytes.split_first_chunk::<OPTION_HEAD>() else {
        return Ok(None);
    };
    let magic = u64::from_be_bytes([
        head[0], head[1], head[2], head[3], head[4], head[5], head[6], head[7],
    ]);
    if magic != OPTION_MAGIC {
        return Err(Fault::Magic);
    }
    let number = u32::from_be_bytes([head[8], head[9], head[10], head[11]]);
    let length = u32::from_be_bytes([head[12], head[13], head[14], head[15]]) as usize;
    match length {
        0..=OPTION_BYTES_MAX => Ok(rest
            .get(..length)
            .map(|data| Asked::Whole(number, data, OPTION_HEAD + length))),
        // NBD_OPT_EXPORT_NAME has no reply that says so.
        length if length > REQUEST_BYTES_MAX || number == option::EXPORT_NAME => {
            Err(Fault::TooLong)
        }
        length => Ok(Some(Asked::TooLong(number, length))),
    }
}

/// Answers an option whose data are too long.
pub(super) fn refuse_long(agreed: &Agreed, number: u32, out: &mut Vec<u8>) -> Result<(), Fault> {
    if !agreed.fixed {
        return Err(Fault::Handshake);
    }
    push(
        out,
        number,
        reply::TOO_BIG,
        b"options have 8192 bytes at most",
    );
    Ok(())
}

/// Answers an option.
pub(super) fn answer(
    export: &Export,
    number: u32,
    data: &[u8],
    agreed: &mut Agreed,
    out: &mut Vec<u8>,
) -> Result<Next, Fault> {
    match number {
        option::EXPORT_NAME if !export.is_called(data) => return Err(Fault::NoSuchExport),
        option::EXPORT_NAME => {
            out.extend_from_slice(&export.size.to_be_bytes());
            out.extend_from_slice(&flags(export, agreed).to_be_bytes());
            out.resize(out.len() + if agreed.no_zeroes { 0 } else { 124 }, 0);
            return Ok(Next::Requests);
        }
        // A client that has not agreed to fixed newstyle cannot read replies to options.
        _ if !agreed.fixed => return Err(Fault::Handshake),
        option::ABORT => {
            push(out, number, reply::ACKNOWLEDGE, &[]);
            return Ok(Next::End);
        }
        option::LIST if data.is_empty() => {
            let name = export.name.as_bytes();
            push(
                out,
                number,
                reply::SERVER,
                &[&(name.len() as u32).to_be_bytes(), name].concat(),
            );
            push(out, number, reply::ACKNOWLEDGE, &[]);
        }
        option::LIST => push(out, number, reply::INVALID, b"LIST has no data"),
        option::INFO | option::GO => return Ok(information(export, number, data, agreed, out)),
        option::STRUCTURED_REPLY if !data.is_empty() => {
            push(out, number, reply::INVALID, b"STRUCTURED_REPLY has no data");
        }
        option::STRUCTURED_REPLY if agreed.structured => {
            push(
                out,
                number,
                reply::INVALID,
                b"structured replies are negotiated already",
            );
        }
        option::STRUCTURED_REPLY => {
            agreed.structured = true;
            push(out, number, reply::ACKNOWLEDGE, &[]);
        }
        option::LIST_META_CONTEXT | option::SET_META_CONTEXT => {
            contexts(export, number, data, agreed, out);
        }
        _ => push(out, number, reply::UNSUPPORTED, &[]),
    }
    Ok(Next::Option)
}

/// The transmission flags of the export for this client.
fn flags(export: &Export, agreed: &Agreed) -> u16 {
    export.flags
        | if agreed.structured {
            flag::DONT_FRAGMENT
        } else {
            0
        }
}

fn information(
    export: &Export,
    number: u32,
    data: &[u8],
    agreed: &Agreed,
    out: &mut Vec<u8>,
) -> Next {
    let Some((name, asked)) =
        take_name(data).and_then(|(name, rest)| Some((name, take_infos(rest)?)))
    else {
        push(
            out,
            number,
            reply::INVALID,
            b"lengths contradict each other",
        );
        return Next::Option;
    };
    if !is_there(export, number, name, out) {
        return Next::Option;
    }
    let mut details = info::EXPORT.to_be_bytes().to_vec();
    details.extend_from_slice(&export.size.to_be_bytes());
    details.extend_from_slice(&flags(export, agreed).to_be_bytes());
    push(out, number, reply::INFO, &details);
    let texts = [
        (info::NAME, &export.name),
        (info::DESCRIPTION, &export.description),
    ];
    for (kind, text) in texts.into_iter().filter(|(kind, _)| asked.contains(kind)) {
        push(
            out,
            number,
            reply::INFO,
            &[&kind.to_be_bytes(), text.as_bytes()].concat(),
        );
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
    if number == option::GO {
        Next::Requests
    } else {
        Next::Option
    }
}

/// Lists metadata contexts, or selects those that NBD_CMD_BLOCK_STATUS reports.
fn contexts(export: &Export, number: u32, data: &[u8], agreed: &mut Agreed, out: &mut Vec<u8>) {
    let is_selection = number == option::SET_META_CONTEXT;
    if is_selection {
        // A later selection replaces an earlier one, even if it fails.
        agreed.allocation = false;
    }
    if !agreed.structured {
        return push(out, number, reply::INVALID, b"STRUCTURED_REPLY comes first");
    }
    let Some((name, queries)) =
        take_name(data).and_then(|(name, rest)| Some((name, take_queries(rest)?)))
    else {
        return push(
            out,
            number,
            reply::INVALID,
            b"lengths contradict each other",
        );
    };
    if !is_there(export, number, name, out) {
        return;
    }
    let lists_all = !is_selection && (queries.is_empty() || queries.contains(&&b"base:"[..]));
    if lists_all || queries.contains(&ALLOCATION) {
        agreed.allocation |= is_selection;
        let context = [&ALLOCATION_ID.to_be_bytes(), ALLOCATION].concat();
        push(out, number, reply::META_CONTEXT, &context);
    }
    push(out, number, reply::ACKNOWLEDGE, &[]);
}

/// Whether an export has this name; if not, the option is answered.
fn is_there(export: &Export, number: u32, name: &[u8], out: &mut Vec<u8>) -> bool {
    if name.len() > NAME_BYTES_MAX {
        push(
            out,
            number,
            reply::TOO_BIG,
            b"names have 4096 bytes at most",
        );
        return false;
    }
    if !export.is_called(name) {
        push(out, number, reply::UNKNOWN, b"no such export");
        return false;
    }
    true
}

/// Text with its length before it, and the rest.
fn take_name(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = data.split_first_chunk::<4>()?;
    rest.split_at_checked(u32::from_be_bytes(*length) as usize)
}

/// The information requests behind a name.
fn take_infos(data: &[u8]) -> Option<Vec<u16>> {
    let (count, asked) = data.split_first_chunk::<2>()?;
    let is_whole = asked.len() == 2 * usize::from(u16::from_be_bytes(*count));
    let kinds = asked
        .as_chunks::<2>()
        .0
        .iter()
        .map(|pair| u16::from_be_bytes(*pair));
    is_whole.then(|| kinds.collect())
}

/// The queries for metadata contexts behind a name.
fn take_queries(data: &[u8]) -> Option<Vec<&[u8]>> {
    let (count, mut rest) = data.split_first_chunk::<4>()?;
    let mut queries = Vec::new();
    for _ in 0..u32::from_be_bytes(*count) {
        let (query, behind) = take_name(rest)?;
        queries.push(query);
        rest = behind;
    }
    rest.is_empty().then_some(queries)
}

fn push(out: &mut Vec<u8>, number: u32, kind: u32, data: &[u8]) {
    out.extend_from_slice(&REPLY_MAGIC.to_be_bytes());
    for word in [number, kind, data.len() as u32] {
        out.extend_from_slice(&word.to_be_bytes());
    }
    out.extend_from_slice(data);
}

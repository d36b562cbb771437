//! The form of the file. All numbers are little-endian.
//!
//! ```text
//! header, HEADER_BYTES   magic, version, limit, next chunk, lost records, offset of the wall clock
//! chunk, CHUNK_BYTES     process, thread, their names; records; zeros
//! chunk, …
//! ```
//!
//! A thread takes the next chunk by adding 1 to the number in the header, which all processes have mapped,
//! and fills it alone. A record is published by its first word, which is written last: a file that is read
//! while programs run has whole records only.

/// The first bytes of a trace.
pub const MAGIC: [u8; 8] = *b"rk-trace";
/// Version of the format.
pub const VERSION: u64 = 1;
/// Bytes of the header: a multiple of every size of pages, since it is mapped, and so are chunks behind it.
pub const HEADER_BYTES: usize = 64 << 10;
/// Bytes of a chunk: some thousand records.
pub const CHUNK_BYTES: usize = 256 << 10;
/// Bytes at the beginning of a chunk, before its records.
pub const CHUNK_HEAD_BYTES: usize = 64;
/// Bytes of a name in the head of a chunk.
pub const NAME_BYTES: usize = 16;
/// The most bytes that a trace may have, where nothing else is said.
pub const LIMIT_DEFAULT: u64 = 1 << 30;

/// Offset of the version.
pub const AT_VERSION: usize = 8;
/// Offset of the most bytes that the file may have.
pub const AT_LIMIT: usize = 16;
/// Offset of the number of the next chunk.
pub const AT_NEXT: usize = 24;
/// Offset of the number of records that had no room.
pub const AT_LOST: usize = 32;
/// Offset of the wall clock's time when the monotonic clock is at zero, in nanoseconds.
pub const AT_EPOCH: usize = 40;

/// Words in front of the fields of a record: its form, and its time.
pub const RECORD_HEAD_WORDS: usize = 2;
/// The most bytes of text in a record.
pub const TEXT_BYTES_MAX: usize = 255;
/// The most fields of a record.
pub const FIELDS_MAX: usize = 16;

/// The header of a new file.
pub fn header(limit: u64, epoch_ns: u64) -> Vec<u8> {
    let mut header = vec![0; HEADER_BYTES];
    let words = [
        (0, u64::from_le_bytes(MAGIC)),
        (AT_VERSION, VERSION),
        (AT_LIMIT, limit),
        (AT_EPOCH, epoch_ns),
    ];
    for (offset, word) in words {
        if let Some(place) = header.get_mut(offset..offset + 8) {
            place.copy_from_slice(&word.to_le_bytes());
        }
    }
    header
}

/// The head of a chunk: the process, the thread, and their names.
pub fn chunk_head(process: u32, thread: u32, names: [&str; 2]) -> [u8; CHUNK_HEAD_BYTES] {
    let mut head = [0; CHUNK_HEAD_BYTES];
    head[..4].copy_from_slice(&process.to_le_bytes());
    head[4..8].copy_from_slice(&thread.to_le_bytes());
    for (name, place) in names
        .into_iter()
        .zip(head[8..8 + 2 * NAME_BYTES].chunks_mut(NAME_BYTES))
    {
        let length = name.len().min(NAME_BYTES);
        place[..length].copy_from_slice(&name.as_bytes()[..length]);
    }
    head
}

/// The first word of a record: its length in words, kind, number of fields, and bytes of text.
pub const fn record_head(kind: u8, fields: usize, text: usize) -> u64 {
    let length = RECORD_HEAD_WORDS + fields + text.div_ceil(8);
    length as u64 | (kind as u64) << 16 | (fields as u64) << 24 | (text as u64) << 32
}

/// The parts of the first word of a record.
pub(crate) struct RecordHead {
    pub(crate) words: usize,
    pub(crate) kind: u8,
    pub(crate) fields: usize,
    pub(crate) text: usize,
}

/// Takes the first word of a record apart; `None` behind the last one, and for a word that is none.
pub(crate) const fn split_head(word: u64) -> Option<RecordHead> {
    let head = RecordHead {
        words: (word & 0xffff) as usize,
        kind: (word >> 16) as u8,
        fields: (word >> 24 & 0xff) as usize,
        text: (word >> 32 & 0xffff) as usize,
    };
    let is_whole = head.words == RECORD_HEAD_WORDS + head.fields + head.text.div_ceil(8);
    if is_whole { Some(head) } else { None }
}

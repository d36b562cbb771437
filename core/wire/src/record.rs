//! Recorded verbs calls: `rockery run --record` writes them and a `replay` of the simulator reads them.
//!
//! A text file: the line [`HEADER`], then one line per call, in the order in which each process made them.
//!
//! ```text
//! rockery-verbs-record 1
//! 8412067143 4711 259 post write 65536 rc signaled
//! 8412071190 4711 259 done write 65536 0
//! 8412071350 4711 259 receive 4096
//! ```
//!
//! Nanoseconds of the machine's monotonic clock, the process, the number of the queue pair, and
//! - `post OPERATION BYTES TRANSPORT signaled|unsignaled`: a send request, its payload, the transport of the
//!   queue pair (`rc`, `uc`, `ud`, `xrc`);
//! - `receive BYTES`: a receive request, and what it has room for;
//! - `done OPERATION BYTES STATUS`: a completion that the program took, with the status of `ibv_wc`.
//!
//! A reader refuses unsupported versions. A later version adds fields at the end of a line.

use core::fmt;

/// The first line of a record.
pub const HEADER: &str = "rockery-verbs-record 1";

/// Bytes of the longest line, its end included.
pub const LINE_BYTES_MAX: usize = 128;

/// The kind of a work request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verb {
    /// RDMA WRITE, also with immediate data.
    Write,
    /// SEND in all its forms.
    Send,
    /// RDMA READ, which the peer answers with data.
    Read,
    /// An atomic operation.
    Atomic,
    /// A receive; in completions only.
    Receive,
    /// Something without payload, such as invalidating a key.
    Local,
}

/// The transport of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transport {
    /// Reliable connection (IBTA 9.7).
    Rc,
    /// Unreliable connection (IBTA 9.8.2).
    Uc,
    /// Unreliable datagrams (IBTA 9.8.3).
    Ud,
    /// Extended reliable connection.
    Xrc,
}

/// A call of the program, or its result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Call {
    /// A send request was posted.
    Post {
        /// The kind of the request.
        operation: Verb,
        /// Bytes of payload.
        bytes: u32,
        /// Transport of the queue pair.
        transport: Transport,
        /// Whether the request is signaled: it generates a completion.
        signaled: bool,
    },
    /// A receive request was posted.
    Receive {
        /// Bytes that it has room for.
        bytes: u32,
    },
    /// The program took a completion.
    Done {
        /// The kind of the request that completed.
        operation: Verb,
        /// Bytes that it moved, where the completion has that number.
        bytes: u32,
        /// 0, or the error.
        status: u32,
    },
}

/// A line of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Line {
    /// Time in nanoseconds.
    pub at_ns: u64,
    /// The process that called.
    pub process: u32,
    /// Number of the queue pair.
    pub qpn: u32,
    /// The call, with its arguments or result.
    pub call: Call,
}

/// Why a line is none of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RecordError {
    /// The file does not begin as a record.
    #[error("this is no record: it does not begin with \"{HEADER}\"")]
    NoHeader,
    /// An unsupported version.
    #[error("a record of another version: this program reads version 1")]
    Version,
    /// A field is missing, or has another form.
    #[error("field {place} has to be {wanted}")]
    Field {
        /// Its place on the line, counted from 1.
        place: u8,
        /// What it has to be.
        wanted: &'static str,
    },
    /// More fields than version 1 has.
    #[error("the line has more fields than version 1 has for this call")]
    More,
}

const OPERATIONS: [(&str, Verb); 6] = [
    ("write", Verb::Write),
    ("send", Verb::Send),
    ("read", Verb::Read),
    ("atomic", Verb::Atomic),
    ("receive", Verb::Receive),
    ("local", Verb::Local),
];

const TRANSPORTS: [(&str, Transport); 4] = [
    ("rc", Transport::Rc),
    ("uc", Transport::Uc),
    ("ud", Transport::Ud),
    ("xrc", Transport::Xrc),
];

fn named<T: Copy>(table: &[(&'static str, T)], name: Option<&str>) -> Option<T> {
    table
        .iter()
        .find(|(known, _)| Some(*known) == name)
        .map(|(_, value)| *value)
}

fn name<T: PartialEq>(table: &[(&'static str, T)], value: &T) -> &'static str {
    table
        .iter()
        .find(|(_, known)| known == value)
        .map_or("", |(name, _)| name)
}

/// A decimal number as [`Line`] writes it: no sign, no leading zeros.
fn number<T: core::str::FromStr>(text: Option<&str>) -> Option<T> {
    let text = text.filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))?;
    if text.len() > 1 && text.starts_with('0') {
        None
    } else {
        text.parse().ok()
    }
}

/// The lines of a record, each with its number in the file.
///
/// # Errors
/// [`RecordError::NoHeader`] and [`RecordError::Version`].
pub fn lines(
    text: &str,
) -> Result<impl Iterator<Item = (usize, Result<Line, RecordError>)>, RecordError> {
    let mut all = text.split('\n');
    let first = all.next().unwrap_or_default();
    if first != HEADER {
        let other = first.starts_with("rockery-verbs-record ");
        return Err(if other {
            RecordError::Version
        } else {
            RecordError::NoHeader
        });
    }
    let lines = all.enumerate().filter(|(_, line)| !line.is_empty());
    Ok(lines.map(|(index, line)| (index + 2, Line::parse(line))))
}

impl Line {
    /// Reads a line, without its end.
    ///
    /// # Errors
    /// The field that is wrong.
    pub fn parse(line: &str) -> Result<Self, RecordError> {
        let mut fields = line.split(' ');
        let wrong = |place, wanted| RecordError::Field { place, wanted };
        let bytes = "a number of bytes";
        let operation = "write, send, read, atomic or local";
        let completed = "write, send, read, atomic, receive or local";
        let at_ns = number(fields.next()).ok_or(wrong(1, "the time in nanoseconds"))?;
        let process = number(fields.next()).ok_or(wrong(2, "the number of a process"))?;
        let qpn = number(fields.next())
            .filter(|qpn| *qpn < 1 << 24)
            .ok_or(wrong(3, "the number of a queue pair, below 2^24"))?;
        let call = match fields.next() {
            Some("post") => Call::Post {
                operation: named(&OPERATIONS, fields.next())
                    .filter(|operation| *operation != Verb::Receive)
                    .ok_or(wrong(5, operation))?,
                bytes: number(fields.next()).ok_or(wrong(6, bytes))?,
                transport: named(&TRANSPORTS, fields.next())
                    .ok_or(wrong(7, "rc, uc, ud or xrc"))?,
                signaled: named(&SIGNALS, fields.next())
                    .ok_or(wrong(8, "signaled or unsignaled"))?,
            },
            Some("receive") => Call::Receive {
                bytes: number(fields.next()).ok_or(wrong(5, bytes))?,
            },
            Some("done") => Call::Done {
                operation: named(&OPERATIONS, fields.next()).ok_or(wrong(5, completed))?,
                bytes: number(fields.next()).ok_or(wrong(6, bytes))?,
                status: number(fields.next()).ok_or(wrong(7, "the number of a status"))?,
            },
            _ => return Err(wrong(4, "post, receive or done")),
        };
        if fields.next().is_some() {
            return Err(RecordError::More);
        }
        Ok(Self {
            at_ns,
            process,
            qpn,
            call,
        })
    }
}

const SIGNALS: [(&str, bool); 2] = [("signaled", true), ("unsignaled", false)];

impl fmt::Display for Line {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            at_ns,
            process,
            qpn,
            call,
        } = self;
        write!(out, "{at_ns} {process} {qpn} ")?;
        match call {
            Call::Post {
                operation,
                bytes,
                transport,
                signaled,
            } => {
                let (operation, transport) =
                    (name(&OPERATIONS, operation), name(&TRANSPORTS, transport));
                write!(
                    out,
                    "post {operation} {bytes} {transport} {}",
                    name(&SIGNALS, signaled)
                )
            }
            Call::Receive { bytes } => write!(out, "receive {bytes}"),
            Call::Done {
                operation,
                bytes,
                status,
            } => {
                write!(
                    out,
                    "done {} {bytes} {status}",
                    name(&OPERATIONS, operation)
                )
            }
        }
    }
}

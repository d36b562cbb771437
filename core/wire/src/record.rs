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
        /// Of its queue pair.
        transport: Transport,
        /// Whether it is signaled: it generates a completion.
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
    /// A field is missing or something else.
    #[error("{0} is missing, or is something else")]
    Field(&'static str),
    /// More fields than version 1 has.
    #[error("there is more on the line than version 1 has")]
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
        let wrong = RecordError::Field;
        let at_ns = number(fields.next()).ok_or(wrong("the time"))?;
        let process = number(fields.next()).ok_or(wrong("the process"))?;
        let qpn = number(fields.next())
            .filter(|qpn| *qpn < 1 << 24)
            .ok_or(wrong("the queue pair"))?;
        let call = match fields.next() {
            Some("post") => Call::Post {
                operation: named(&OPERATIONS, fields.next())
                    .filter(|operation| *operation != Verb::Receive)
                    .ok_or(wrong("the operation"))?,
                bytes: number(fields.next()).ok_or(wrong("the number of bytes"))?,
                transport: named(&TRANSPORTS, fields.next()).ok_or(wrong("the transport"))?,
                signaled: named(&SIGNALS, fields.next()).ok_or(wrong("signaled or unsignaled"))?,
            },
            Some("receive") => Call::Receive {
                bytes: number(fields.next()).ok_or(wrong("the number of bytes"))?,
            },
            Some("done") => Call::Done {
                operation: named(&OPERATIONS, fields.next()).ok_or(wrong("the operation"))?,
                bytes: number(fields.next()).ok_or(wrong("the number of bytes"))?,
                status: number(fields.next()).ok_or(wrong("the status"))?,
            },
            _ => return Err(wrong("the call")),
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

//! An event of a trace.

use crate::kind::{Kind, NONE};

/// An event: a record with its process and thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event<'a> {
    /// Nanoseconds of the machine's monotonic clock.
    pub at_ns: u64,
    /// ID of the process that made the call.
    pub process: u32,
    /// ID of the thread that made it.
    pub thread: u32,
    /// The name of the process.
    pub process_name: &'a str,
    /// The name of the thread.
    pub thread_name: &'a str,
    /// Kind of the event.
    pub kind: Kind,
    /// Fields of the event, as bytes of words.
    pub(crate) fields: &'a [u8],
    /// A name or addresses, as the kind says.
    pub text: &'a str,
}

impl Event<'_> {
    /// A field by its place; `None` where it has no value.
    fn word(&self, place: usize) -> Option<u64> {
        let bytes = self.fields.get(place * 8..)?.first_chunk()?;
        Some(u64::from_le_bytes(*bytes)).filter(|&word| word != NONE)
    }

    /// A field by its name; `None` where it has no value, or where the kind has no such field.
    pub fn field(&self, name: &str) -> Option<u64> {
        let place = self.kind.fields().iter().position(|field| *field == name)?;
        self.word(place)
    }

    /// All fields that have a value, with their names.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let names = self.kind.fields().iter().enumerate();
        names.filter_map(|(place, name)| Some((*name, self.word(place)?)))
    }

    /// The number of a field that most events have, 0 where it is missing.
    pub(crate) fn number(&self, name: &str) -> u64 {
        self.field(name).unwrap_or(0)
    }
}

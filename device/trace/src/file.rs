//! Reading a trace.

use crate::error::TraceError;
use crate::event::Event;
use crate::kind::Kind;
use crate::layout::{
    AT_EPOCH, AT_LOST, AT_VERSION, CHUNK_BYTES, CHUNK_HEAD_BYTES, HEADER_BYTES, MAGIC, NAME_BYTES,
    RECORD_HEAD_WORDS, VERSION, split_head,
};

/// A trace that was read: the bytes of its file, and where its events are.
#[derive(Clone, Debug)]
pub struct Trace<'a> {
    chunks: Vec<Chunk<'a>>,
    places: Vec<Place>,
    lost: u64,
    epoch_ns: u64,
}

/// A part of the file that one thread has written.
#[derive(Clone, Copy, Debug)]
struct Chunk<'a> {
    bytes: &'a [u8],
    process: u32,
    thread: u32,
    process_name: &'a str,
    thread_name: &'a str,
}

/// Where an event is. Sorting these keeps the order of a thread's events of one time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Place {
    at_ns: u64,
    chunk: u32,
    offset: u32,
}

fn word(bytes: &[u8], offset: usize) -> Option<u64> {
    let bytes = bytes.get(offset..)?.first_chunk()?;
    Some(u64::from_le_bytes(*bytes))
}

/// A name up to its first zero; empty where it is no UTF-8.
fn name(bytes: &[u8]) -> &str {
    let name = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    core::str::from_utf8(name).unwrap_or_default()
}

impl<'a> Chunk<'a> {
    fn of(bytes: &'a [u8]) -> Option<Self> {
        let (head, _) = bytes.split_first_chunk::<CHUNK_HEAD_BYTES>()?;
        let ids = word(head, 0)?;
        let names = head.get(8..8 + 2 * NAME_BYTES)?;
        let (process_name, thread_name) = names.split_at(NAME_BYTES);
        (ids != 0).then(|| Self {
            bytes,
            process: ids as u32,
            thread: (ids >> 32) as u32,
            process_name: name(process_name),
            thread_name: name(thread_name),
        })
    }

    /// Offsets and times of its records.
    fn records(&self) -> impl Iterator<Item = (u32, u64)> {
        let mut offset = CHUNK_HEAD_BYTES;
        core::iter::from_fn(move || {
            let found = offset;
            let head = split_head(word(self.bytes, found)?)?;
            offset += 8 * head.words;
            (offset <= self.bytes.len()).then_some((found as u32, word(self.bytes, found + 8)?))
        })
    }

    fn event(&self, offset: usize) -> Option<Event<'a>> {
        let head = split_head(word(self.bytes, offset)?)?;
        let fields = offset + 8 * RECORD_HEAD_WORDS;
        let text = fields + 8 * head.fields;
        Some(Event {
            at_ns: word(self.bytes, offset + 8)?,
            process: self.process,
            thread: self.thread,
            process_name: self.process_name,
            thread_name: self.thread_name,
            kind: Kind::of(head.kind)?,
            fields: self.bytes.get(fields..text)?,
            text: core::str::from_utf8(self.bytes.get(text..text + head.text)?).unwrap_or_default(),
        })
    }
}

impl<'a> Trace<'a> {
    /// Reads the bytes of one file, or of several: traces of two machines are put together by their wall
    /// clocks.
    ///
    /// # Errors
    /// When a file is no trace of this version. Records that are not whole end their chunk.
    pub fn read(files: &[&'a [u8]]) -> Result<Self, TraceError> {
        let (mut chunks, mut places, mut lost) = (Vec::new(), Vec::new(), 0_u64);
        let mut epochs = Vec::new();
        for file in files {
            if !file.starts_with(&MAGIC) || file.len() < HEADER_BYTES {
                return Err(TraceError::NoTrace);
            }
            if word(file, AT_VERSION) != Some(VERSION) {
                return Err(TraceError::Version);
            }
            epochs.push(word(file, AT_EPOCH).unwrap_or(0));
            lost = lost.saturating_add(word(file, AT_LOST).unwrap_or(0));
        }
        let epoch_ns = epochs.first().copied().unwrap_or(0);
        for (file, epoch) in files.iter().zip(epochs) {
            let body = file.get(HEADER_BYTES..).unwrap_or_default();
            for chunk in body.chunks(CHUNK_BYTES).filter_map(Chunk::of) {
                let number = chunks.len() as u32;
                places.extend(chunk.records().map(|(offset, at_ns)| Place {
                    at_ns: at_ns.wrapping_add(epoch).wrapping_sub(epoch_ns),
                    chunk: number,
                    offset,
                }));
                chunks.push(chunk);
            }
        }
        places.sort_unstable();
        Ok(Self {
            chunks,
            places,
            lost,
            epoch_ns,
        })
    }

    /// Number of records, some of which may be of kinds that this version does not know.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Records that had no room in the file.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// The wall clock's time when [`Event::at_ns`] is zero, in nanoseconds.
    pub fn epoch_ns(&self) -> u64 {
        self.epoch_ns
    }

    /// The time of the first event.
    pub fn begin_ns(&self) -> u64 {
        self.places.first().map_or(0, |place| place.at_ns)
    }

    /// An event by its number in the order of time.
    pub fn event(&self, number: usize) -> Option<Event<'a>> {
        let place = self.places.get(number)?;
        let event = self
            .chunks
            .get(place.chunk as usize)?
            .event(place.offset as usize)?;
        Some(Event {
            at_ns: place.at_ns,
            ..event
        })
    }

    /// All events in the order of time, with their numbers.
    pub fn events(&self) -> impl Iterator<Item = (usize, Event<'a>)> {
        (0..self.len()).filter_map(|number| Some((number, self.event(number)?)))
    }

    /// Processes with their names, in the order of their first chunks.
    pub fn processes(&self) -> Vec<(u32, &'a str)> {
        let mut found: Vec<(u32, &str)> = Vec::new();
        for chunk in &self.chunks {
            if !found.iter().any(|(process, _)| *process == chunk.process) {
                found.push((chunk.process, chunk.process_name));
            }
        }
        found
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::kind::NONE;
    use crate::layout::{chunk_head, header, record_head};
    use proptest::prelude::*;

    /// A record of a test: time, kind, fields by name, text.
    pub(crate) struct Record(
        pub(crate) u64,
        pub(crate) Kind,
        pub(crate) &'static [(&'static str, u64)],
        pub(crate) &'static str,
    );

    fn bytes(record: &Record) -> Vec<u8> {
        let Record(at_ns, kind, fields, text) = record;
        let names = kind.fields();
        let mut words = vec![record_head(*kind as u8, names.len(), text.len()), *at_ns];
        words.extend(names.iter().map(|name| {
            let found = fields.iter().find(|(field, _)| field == name);
            found.map_or(NONE, |(_, value)| *value)
        }));
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.extend(text.as_bytes());
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes
    }

    /// A file with a chunk for each process.
    pub(crate) fn file(processes: &[(u32, &str, &[Record])]) -> Vec<u8> {
        let mut file = header(1 << 20, 1000);
        for (process, name, records) in processes {
            let begin = file.len();
            file.extend(chunk_head(*process, process + 1, [name, "worker"]));
            file.extend(records.iter().flat_map(bytes));
            file.resize(begin + CHUNK_BYTES, 0);
        }
        file
    }

    #[test]
    fn events_of_all_threads_come_in_the_order_of_time() {
        let one: &[Record] = &[
            Record(10, Kind::Destroy, &[("qpn", 1)], ""),
            Record(30, Kind::Call, &[("errno", 12)], "ibv_reg_mr"),
        ];
        let two: &[Record] = &[Record(20, Kind::Destroy, &[("qpn", 2)], "")];
        let file = file(&[(5, "one", one), (7, "two", two)]);
        let trace = Trace::read(&[&file]).unwrap();
        let found: Vec<_> = trace
            .events()
            .map(|(_, event)| (event.at_ns, event.process, event.thread, event.process_name))
            .collect();
        assert_eq!(
            found,
            [(10, 5, 6, "one"), (20, 7, 8, "two"), (30, 5, 6, "one")]
        );
        let last = trace.event(2).unwrap();
        assert_eq!((last.text, last.field("errno")), ("ibv_reg_mr", Some(12)));
        assert_eq!(last.field("qpn"), None, "it has no value");
        assert_eq!(trace.processes(), [(5, "one"), (7, "two")]);
    }

    #[test]
    fn other_files_and_versions_are_refused() {
        assert_eq!(
            Trace::read(&[b"rockery-verbs-record 1\n"]).unwrap_err(),
            TraceError::NoTrace
        );
        let mut other = file(&[]);
        other[AT_VERSION] = 9;
        assert_eq!(Trace::read(&[&other]).unwrap_err(), TraceError::Version);
        assert!(Trace::read(&[&file(&[])]).unwrap().is_empty());
    }

    proptest! {
        /// A file that another program has damaged is read as far as it goes.
        #[test]
        fn any_bytes_behind_a_header_are_read(noise in proptest::collection::vec(any::<u8>(), 0..4096)) {
            let mut damaged = header(1 << 20, 0);
            damaged.extend(&noise);
            let trace = Trace::read(&[&damaged]).unwrap();
            for (_, event) in trace.events() {
                let _ = crate::line(&event, 0);
            }
            let _ = crate::explain(&trace);
        }
    }
}

//! A process that overwrites the shared memory with random values: the other process finds records or a
//! broken ring, and never accesses memory beyond it. Runs are numbered by their seed; the memory is written
//! through its descriptor.

use crate::memory::{
    Broken, HEADERS_MAX, PAYLOAD_MAX, RECORDS_MAX, Reader, Sleeper, Writer, create, open,
};
use rand_core::{RngCore, SeedableRng};
use rand_xoshiro::SplitMix64;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Number of links that are overwritten, and of steps on each.
const LINKS: u64 = if cfg!(miri) { 1 } else { 100 };
const STEPS: u64 = 400;
/// The control words, and both rings.
const CONTROL_WORDS: u64 = 1280;
const FILE_BYTES: u64 = (1 << 16) + (2 << 19);

/// Random numbers of a run, from its seed.
struct Random(SplitMix64);

impl Random {
    fn of_seed(seed: u64) -> Self {
        Self(SplitMix64::seed_from_u64(seed))
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.0.next_u64() % bound
    }

    /// A small value, a large one, or one that is never valid.
    fn word(&mut self) -> u32 {
        let bits = 1 + self.below(32);
        (self.below(1 << 32) >> (32 - bits)) as u32
    }
}

/// Overwrites a word, more often near `near`, where the next record is read or written, than elsewhere.
fn scribble(pen: &File, random: &mut Random, near: u64) {
    let at = match random.below(4) {
        0 => random.below(CONTROL_WORDS / 4) * 4,
        1 => random.below(FILE_BYTES / 4) * 4,
        // The first words of a record in either ring: lines, lengths.
        _ => (1 << 16) + (random.below(2) << 19) + (near + random.below(16) * 4) % (1 << 19),
    };
    pen.write_all_at(&random.word().to_le_bytes(), at).unwrap();
}

fn write(writer: &mut Writer, random: &mut Random) -> u64 {
    let bits = random.below(18);
    let length = random.below(1 << bits) as usize;
    let headers = 1 + random.below(HEADERS_MAX as u64) as usize;
    let lead = |place: &mut [u8; HEADERS_MAX]| {
        place[..headers].fill(1);
        Some(headers)
    };
    let written = writer.write(0, length.min(PAYLOAD_MAX), lead, |place| {
        place.fill(2);
        Ok::<(), ()>(())
    });
    if written.is_some() {
        (16 + headers + length).div_ceil(64) as u64 * 64
    } else {
        0
    }
}

/// Reads all records up to the end or an invalid one, and every byte of them.
fn read(reader: &mut Reader) -> Result<(), Broken> {
    for _ in 0..RECORDS_MAX {
        let Some(record) = reader.next()? else {
            return Ok(());
        };
        assert!(record.headers().len() <= HEADERS_MAX);
        let mut payload = vec![0; record.length as usize];
        assert_eq!(record.copy(&mut payload).len(), payload.len());
        reader.release(&record);
    }
    Ok(())
}

#[test]
fn random_values_in_shared_memory_stay_within_it() {
    let mut broken = 0;
    for seed in 0..LINKS {
        let mut random = Random::of_seed(seed);
        let (mut writer, mut reader, fd) = create().unwrap();
        let (mut far_writer, mut far_reader) = open(&fd).unwrap();
        let (pen, mut near) = (File::from(fd), 0);
        for _ in 0..STEPS {
            if random.below(3) == 0 {
                scribble(&pen, &mut random, near);
            }
            near = (near + write(&mut far_writer, &mut random)) % (1 << 19);
            write(&mut writer, &mut random);
            let _ = (
                writer.has_room(),
                writer.wait_for_room(Sleeper::Thread),
                writer.must_wake(),
                writer.reader_sleeps(),
            );
            let _ = (
                reader.sleep(Sleeper::Thread),
                reader.wake(),
                reader.must_wake(),
                reader.writer_is_busy(),
            );
            if read(&mut reader).is_err() {
                broken += 1;
                break;
            }
            let _ = read(&mut far_reader);
        }
    }
    assert!(
        broken > LINKS / 2,
        "broken rings are detected: {broken} of {LINKS}"
    );
}

#[test]
fn a_busy_word_with_another_value_breaks_the_ring() {
    let (_writer, reader, fd) = create().unwrap();
    let (mut far_writer, _) = open(&fd).unwrap();
    far_writer.begin_busy();
    far_writer.begin_busy();
    assert_eq!(reader.writer_is_busy(), Ok(true));
    far_writer.end_busy();
    assert_eq!(reader.writer_is_busy(), Ok(false));
    File::from(fd)
        .write_all_at(&[0xff; CONTROL_WORDS as usize], 0)
        .unwrap();
    assert_eq!(reader.writer_is_busy(), Err(Broken));
}

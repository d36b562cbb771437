//! Shared memory between two processes of one host, with a ring of records in each direction.
//!
//! ```text
//! create() ─▶ Writer, Reader, descriptor ──Unix socket──▶ open(descriptor) ─▶ Writer, Reader
//! ```
//!
//! The two processes need not trust each other: each checks all that the other writes, and neither can shrink
//! or unmap the other's memory. The rings report whether the other process sleeps; the caller has to wake it.

use crate::sys::ring::ends;
use crate::sys::shared::Mapping;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

pub use crate::sys::ring::{
    Body, Broken, HEADERS_MAX, PAYLOAD_MAX, RECORDS_MAX, Reader, Record, Sleeper, Writer,
};

/// Creates the memory of a link: the two local ends, and the descriptor that the other side opens.
///
/// # Errors
/// Those of `memfd_create(2)` and `mmap(2)`: no descriptors or memory left, or a sandbox forbids it.
pub fn create() -> io::Result<(Writer, Reader, OwnedFd)> {
    let (mapping, fd) = Mapping::create()?;
    let (writer, reader) = ends(&Arc::new(mapping), true);
    Ok((writer, reader, fd))
}

/// Opens the memory of a link that the other side created.
///
/// # Errors
/// `InvalidData` when it is not such memory, otherwise those of `mmap(2)`.
pub fn open(fd: &impl AsFd) -> io::Result<(Writer, Reader)> {
    Ok(ends(&Arc::new(Mapping::open(fd)?), false))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write_record(writer: &mut Writer, headers: &[u8], payload: &[u8]) -> bool {
        let lead = |place: &mut [u8; HEADERS_MAX]| {
            place[..headers.len()].copy_from_slice(headers);
            Some(headers.len())
        };
        let filled = writer.write(7, payload.len(), lead, |place| {
            place.copy_from_slice(payload);
            Ok::<(), ()>(())
        });
        filled == Some(Ok(()))
    }

    fn take(reader: &mut Reader) -> Option<(Vec<u8>, Vec<u8>)> {
        let record = reader.next().unwrap()?;
        assert_eq!(record.flags, 7);
        let mut payload = vec![0; record.length as usize];
        record.copy(&mut payload);
        let taken = (record.headers().to_vec(), payload);
        reader.release(&record);
        Some(taken)
    }

    #[test]
    fn records_come_out_as_they_went_in_however_often_the_ring_wraps() {
        let (mut writer, _ours, fd) = create().unwrap();
        let (_theirs, mut reader) = open(&fd).unwrap();
        let bytes: Vec<u8> = (0..PAYLOAD_MAX).map(|byte| (byte % 251) as u8).collect();
        for round in 0..500usize {
            let (headers, payload) = (&bytes[..round % 90], &bytes[..(round * 7919) % PAYLOAD_MAX]);
            assert!(writer.has_room());
            assert!(write_record(&mut writer, headers, payload));
            assert!(write_record(&mut writer, &[1], &[]));
            assert_eq!(
                take(&mut reader),
                Some((headers.to_vec(), payload.to_vec()))
            );
            assert_eq!(take(&mut reader), Some((vec![1], vec![])));
            assert_eq!(take(&mut reader), None);
        }
    }

    #[test]
    fn a_full_ring_takes_no_more_until_something_is_released() {
        let (mut writer, _ours, fd) = create().unwrap();
        let (_theirs, mut reader) = open(&fd).unwrap();
        let mut written = 0;
        while write_record(&mut writer, &[2; 40], &[3; 1000]) {
            written += 1;
        }
        assert!(written > 100 && !writer.has_room() && !writer.wait_for_room(Sleeper::Program));
        let mut taken = 0;
        while take(&mut reader).is_some() {
            taken += 1;
        }
        assert_eq!(taken, written);
        assert_eq!(
            (reader.must_wake(), reader.must_wake()),
            (Some(Sleeper::Program), None)
        );
        assert!(writer.has_room() && write_record(&mut writer, &[], &vec![4; PAYLOAD_MAX]));
        assert_eq!(
            take(&mut reader).map(|(_, payload)| payload.len()),
            Some(PAYLOAD_MAX)
        );
        assert!(!write_record(&mut writer, &[], &vec![4; PAYLOAD_MAX + 1]));
    }

    #[test]
    fn a_writer_may_be_held_to_less_than_the_ring_has_room_for() {
        let (mut writer, _ours, fd) = create().unwrap();
        let (_theirs, mut reader) = open(&fd).unwrap();
        writer.fill_up_to(10_000);
        let mut written = 0;
        while writer.has_room() {
            assert!(write_record(&mut writer, &[2; 40], &[3; 4096]));
            written += 1;
        }
        assert_eq!(written, 3, "the last one begins before the limit");
        assert!(!writer.wait_for_room(Sleeper::Thread));
        assert!(take(&mut reader).is_some() && reader.must_wake().is_some() && writer.has_room());
    }

    #[test]
    fn what_a_reader_has_passed_keeps_its_room_until_it_is_given_back() {
        let (mut writer, _ours, fd) = create().unwrap();
        let (_theirs, mut reader) = open(&fd).unwrap();
        let mut number = 0;
        while writer.has_room() {
            assert!(write_record(&mut writer, &[2; 40], &[number; 4096]));
            number += 1;
        }
        let passed: Vec<Body> = std::iter::from_fn(|| {
            let record = reader.next().unwrap()?;
            reader.pass(&record);
            Some(record.body())
        })
        .collect();
        assert!(
            passed.len() == usize::from(number)
                && !writer.has_room()
                && reader.must_wake().is_none()
        );
        let mut copied = [0; 4096];
        for (number, body) in (0..).zip(&passed) {
            assert_eq!(body.copy(&mut copied), [number; 4096]);
        }
        reader.give_back(passed[0].end);
        assert!(
            writer.has_room() && reader.must_wake().is_none(),
            "the writer asked for no wake-up"
        );
    }

    #[test]
    fn a_payload_that_cannot_be_read_leaves_no_record() {
        let (mut writer, _ours, fd) = create().unwrap();
        let (_theirs, mut reader) = open(&fd).unwrap();
        assert_eq!(
            writer.write(7, 10, |_| Some(1), |_| Err("fault")),
            Some(Err("fault"))
        );
        assert_eq!(take(&mut reader), None);
        assert!(writer.must_wake().is_none());
        assert!(write_record(&mut writer, &[9], &[8]));
        assert_eq!(take(&mut reader), Some((vec![9], vec![8])));
    }

    #[test]
    fn a_sleeper_is_woken_once() {
        let (mut writer, _ours, fd) = create().unwrap();
        let (_theirs, mut reader) = open(&fd).unwrap();
        assert!(write_record(&mut writer, &[1], &[]) && writer.must_wake().is_none());
        assert!(reader.sleep(Sleeper::Thread), "there is a record");
        reader.wake();
        for sleeper in [Sleeper::Thread, Sleeper::Program] {
            assert!(take(&mut reader).is_some() && !reader.sleep(sleeper));
            assert!(write_record(&mut writer, &[1], &[]));
            assert_eq!(
                (writer.must_wake(), writer.must_wake()),
                (Some(sleeper), None)
            );
        }
    }

    #[test]
    fn only_sealed_memory_of_the_right_size_is_opened() {
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        assert!(open(&file).is_err());
    }

    #[test]
    fn two_threads_pass_a_million_records() {
        const RECORDS: u32 = 1_000_000;
        let (mut writer, _ours, fd) = create().unwrap();
        let (_theirs, mut reader) = open(&fd).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for number in 0..RECORDS {
                    while !writer.has_room() {
                        std::thread::yield_now();
                    }
                    let length = (number % 200) as usize;
                    assert!(write_record(
                        &mut writer,
                        &number.to_le_bytes(),
                        &vec![number as u8; length]
                    ));
                }
            });
            for number in 0..RECORDS {
                let (headers, payload) = loop {
                    match take(&mut reader) {
                        Some(taken) => break taken,
                        None => std::thread::yield_now(),
                    }
                };
                assert_eq!(headers, number.to_le_bytes());
                assert_eq!(payload, vec![number as u8; (number % 200) as usize]);
            }
        });
    }
}

//! Two threads at the ends of one link, for Miri and for ThreadSanitizer (`scripts/sanitize.sh`): they detect
//! unordered accesses, and Miri tries orders of execution and of stores that this processor does not show. A
//! thread that is not woken parks for ever, which Miri reports as a deadlock.

use super::ring::{HEADERS_MAX, PAYLOAD_MAX, Reader, Sleeper, Writer, ends};
use super::shared::Mapping;
use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Miri runs a thousand times slower.
const RECORDS: u32 = if cfg!(miri) { 30 } else { 200_000 };

fn one_way() -> (Writer, Reader) {
    let mapping = Arc::new(Mapping::anonymous().unwrap());
    let ((writer, _), (_, reader)) = (ends(&mapping, true), ends(&mapping, false));
    (writer, reader)
}

/// Writes a record whose payload is `length` bytes, the first `written` of which are set.
fn write_record(writer: &mut Writer, number: u32, length: usize, written: usize) -> bool {
    let headers = |place: &mut [u8; HEADERS_MAX]| {
        place[..4].copy_from_slice(&number.to_le_bytes());
        Some(4)
    };
    let filled = writer.write(3, length, headers, |place| {
        place[..written].fill(number as u8);
        Ok::<(), ()>(())
    });
    filled == Some(Ok(()))
}

fn take_record(reader: &mut Reader, number: u32) -> bool {
    let Some(record) = reader.next().unwrap() else {
        return false;
    };
    assert_eq!(
        (record.headers(), record.flags),
        (&number.to_le_bytes()[..], 3)
    );
    let mut payload = vec![0; record.length as usize];
    record.copy(&mut payload);
    assert!(payload.iter().all(|&byte| byte == number as u8));
    reader.release(&record);
    true
}

#[test]
fn a_seen_record_is_complete_and_a_sleeping_reader_is_woken() {
    let (mut writer, mut reader) = one_way();
    let reading = thread::spawn(move || {
        for number in 0..RECORDS {
            while !take_record(&mut reader, number) {
                // An unpark from elsewhere only causes one more check.
                if !reader.sleep(Sleeper::Thread) {
                    thread::park();
                }
                reader.wake();
            }
        }
    });
    for number in 0..RECORDS {
        while !writer.has_room() {
            thread::yield_now();
        }
        let length = number as usize % 100;
        assert!(write_record(&mut writer, number, length, length));
        if writer.must_wake().is_some() {
            reading.thread().unpark();
        }
    }
    reading.join().unwrap();
}

#[test]
fn a_writer_that_waits_for_room_is_woken() {
    let (mut writer, mut reader) = one_way();
    let records: u32 = if cfg!(miri) { 6 } else { 2000 };
    let writing = thread::spawn(move || {
        for number in 0..records {
            while !writer.has_room() {
                if !writer.wait_for_room(Sleeper::Thread) {
                    thread::park();
                }
            }
            // Miri is slow at copying bytes.
            let written = if cfg!(miri) { 64 } else { PAYLOAD_MAX };
            assert!(write_record(&mut writer, number, PAYLOAD_MAX, written));
        }
    });
    for number in 0..records {
        let record = loop {
            match reader.next().unwrap() {
                Some(record) => break record,
                None => thread::yield_now(),
            }
        };
        assert_eq!(record.headers(), number.to_le_bytes());
        reader.release(&record);
        if reader.must_wake().is_some() {
            writing.thread().unpark();
        }
    }
    writing.join().unwrap();
}

/// Memory that a writer stores to while it is busy; after the region is withdrawn no thread may store to it.
struct Memory(UnsafeCell<u64>);

// SAFETY: that only one thread at a time uses it is what the test is about.
unsafe impl Sync for Memory {}

#[test]
fn what_is_taken_back_is_not_touched_any_more() {
    for _ in 0..if cfg!(miri) { 4 } else { 20_000 } {
        let (mut writer, reader) = one_way();
        let (memory, granted) = (Memory(UnsafeCell::new(0)), AtomicBool::new(true));
        thread::scope(|scope| {
            let (memory, granted) = (&memory, &granted);
            scope.spawn(move || {
                for value in 1..7 {
                    writer.begin_busy();
                    if granted.load(Ordering::Acquire) {
                        // SAFETY: granted, and the owner waits until we are not busy.
                        unsafe { *memory.0.get() = value };
                    }
                    if value % 2 == 0 {
                        writer.end_busy();
                    }
                }
            });
            granted.store(false, Ordering::Release);
            while reader.writer_is_busy().unwrap() {
                thread::yield_now();
            }
            // SAFETY: taken back, and no writer is busy.
            unsafe { *memory.0.get() = 77 };
        });
        assert_eq!(memory.0.into_inner(), 77);
    }
}

//! The rings between a device and its lab: one towards the device, and from it one for congestion
//! notifications and one for each class.
//!
//! ```text
//! create() ─▶ LabEnds, descriptors ──Unix socket──▶ open(descriptors) ─▶ DeviceEnds
//! ```

use crate::lab::CLASSES;
use crate::memory::{Reader, Writer};
use crate::sys::ring::{ends, readers, writers};
use crate::sys::shared::Mapping;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Number of shared memories of a device: one with the ring to the device and the one for notifications, the
/// others with the rings of two classes each.
pub const MEMORIES: usize = 1 + CLASSES / 2;

/// The lab's ends of the rings.
#[derive(Debug)]
pub struct LabEnds {
    /// Packets for the device.
    pub to_device: Writer,
    /// Congestion notifications of the device.
    pub notifications: Reader,
    /// All other packets of the device, by class.
    pub classes: [Reader; CLASSES],
}

/// The device's ends of the rings.
#[derive(Debug)]
pub struct DeviceEnds {
    /// Packets for the device.
    pub arrivals: Reader,
    /// Congestion notifications, which overtake all other packets.
    pub notifications: Writer,
    /// All other packets, by class.
    pub classes: [Writer; CLASSES],
}

/// Creates the rings of a device, and the descriptors with which it opens them.
///
/// # Errors
/// As [`crate::memory::create`].
pub fn create() -> io::Result<(LabEnds, [OwnedFd; MEMORIES])> {
    let (shared, first) = Mapping::create()?;
    let (to_device, notifications) = ends(&Arc::new(shared), true);
    let (second, third, fourth, fifth) = (pair()?, pair()?, pair()?, pair()?);
    let (([a, b], second), ([c, d], third), ([e, f], fourth), ([g, h], fifth)) =
        (second, third, fourth, fifth);
    let ends = LabEnds {
        to_device,
        notifications,
        classes: [a, b, c, d, e, f, g, h],
    };
    Ok((ends, [first, second, third, fourth, fifth]))
}

fn pair() -> io::Result<([Reader; 2], OwnedFd)> {
    let (mapping, fd) = Mapping::create()?;
    Ok((readers(&Arc::new(mapping)), fd))
}

/// Opens the rings that a lab has created.
///
/// # Errors
/// As [`crate::memory::open`].
pub fn open(memories: &[OwnedFd; MEMORIES]) -> io::Result<DeviceEnds> {
    let [first, second, third, fourth, fifth] = memories;
    let (notifications, arrivals) = ends(&Arc::new(Mapping::open(first)?), false);
    let opened = |fd: &OwnedFd| Ok::<_, io::Error>(writers(&Arc::new(Mapping::open(fd)?)));
    let ([a, b], [c, d], [e, f], [g, h]) = (
        opened(second)?,
        opened(third)?,
        opened(fourth)?,
        opened(fifth)?,
    );
    Ok(DeviceEnds {
        arrivals,
        notifications,
        classes: [a, b, c, d, e, f, g, h],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::HEADERS_MAX;

    fn write_mark(writer: &mut Writer, mark: u8) -> bool {
        let headers = |place: &mut [u8; HEADERS_MAX]| {
            place[0] = mark;
            Some(1)
        };
        writer.write(0, 0, headers, |_| Ok::<(), ()>(())).is_some()
    }

    fn take(reader: &mut Reader) -> Option<u8> {
        let record = reader.next().unwrap()?;
        reader.release(&record);
        Some(record.headers()[0])
    }

    #[test]
    fn each_ring_has_its_own_records() {
        let (mut lab, memories) = create().unwrap();
        let mut device = open(&memories).unwrap();
        for (mark, writer) in (1..).zip(&mut device.classes) {
            assert!(write_mark(writer, mark));
        }
        assert!(write_mark(&mut device.notifications, 100) && write_mark(&mut lab.to_device, 101));
        for (mark, reader) in (1..).zip(&mut lab.classes) {
            assert_eq!((take(reader), take(reader)), (Some(mark), None));
        }
        assert_eq!(
            (take(&mut lab.notifications), take(&mut device.arrivals)),
            (Some(100), Some(101))
        );
    }
}

//! What the loop of a lab waits for.

use std::os::fd::RawFd;

/// The kind of a watched descriptor, with its place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Watched {
    Signals,
    Control,
    Command(RawFd),
    Attach(usize),
    Greeting(RawFd),
    Device(usize, RawFd),
    Tap(usize),
    DeviceFiles(usize),
    DeviceFile(RawFd),
}

impl Watched {
    /// As the number that comes back with the descriptor's events.
    pub(crate) fn number(self) -> u64 {
        let number =
            |kind: u64, place: usize, fd: RawFd| kind << 56 | (place as u64) << 32 | fd as u64;
        match self {
            Self::Signals => number(0, 0, 0),
            Self::Control => number(1, 0, 0),
            Self::Command(fd) => number(2, 0, fd),
            Self::Attach(place) => number(3, place, 0),
            Self::Greeting(fd) => number(4, 0, fd),
            Self::Device(place, fd) => number(5, place, fd),
            Self::Tap(place) => number(6, place, 0),
            Self::DeviceFiles(place) => number(7, place, 0),
            Self::DeviceFile(fd) => number(8, 0, fd),
        }
    }

    /// The kind and place of a number.
    pub(crate) fn of(number: u64) -> Self {
        let (place, fd) = (
            (number >> 32 & 0xff_ffff) as usize,
            (number & 0xffff_ffff) as RawFd,
        );
        match number >> 56 {
            0 => Self::Signals,
            1 => Self::Control,
            2 => Self::Command(fd),
            3 => Self::Attach(place),
            4 => Self::Greeting(fd),
            5 => Self::Device(place, fd),
            6 => Self::Tap(place),
            7 => Self::DeviceFiles(place),
            _ => Self::DeviceFile(fd),
        }
    }
}

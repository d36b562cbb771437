//! Counters of a switch, for the tables in the formats of vendors' commands.

use fabric::{BufferCounters, PortCounters};
use fabric::{Rate, Span};

/// A port that a link is attached to.
#[derive(Clone, PartialEq, Debug)]
pub struct CountedPort {
    /// The name of the port.
    pub name: String,
    /// The bit rate of the port.
    pub rate: Rate,
    /// The counters of the port.
    pub counters: PortCounters,
}

/// Counters of a switch, with the names of its ports.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct CountedSwitch {
    /// The time over which events were counted.
    pub elapsed: Span,
    /// Counters of the packet memory.
    pub buffer: BufferCounters,
    /// Ports in use.
    pub ports: Vec<CountedPort>,
}

/// Digits in groups of three.
pub(super) fn grouped(number: u64, by: char) -> String {
    let digits = ToString::to_string(&number);
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(by);
        }
        text.push(digit);
    }
    text
}

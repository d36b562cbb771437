//! How many packets a device sends and receives from one wait of its program to the next.
//!
//! Where there are few, the program waits for each of them, and takes them itself: one thread is woken in
//! place of two. Where there are many, the progress thread handles packets while the program works.

use super::constants::{LIGHT_PACKETS, LIGHT_WAITS};

/// The packets of a device between the waits of its program.
#[derive(Default, Debug)]
pub(crate) struct Traffic {
    /// Packets sent and received up to the last wait.
    packets: u64,
    /// The average between two waits, times [`LIGHT_WAITS`].
    average: u64,
}

impl Traffic {
    /// Notes a wait, and the packets sent and received so far. Whether there were few since the waits before.
    pub(crate) fn is_light(&mut self, packets: u64) -> bool {
        let since = packets.saturating_sub(self.packets);
        self.packets = packets;
        self.average = self.average - self.average / LIGHT_WAITS + since;
        self.average <= LIGHT_PACKETS * LIGHT_WAITS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn single_requests_are_light_and_streams_are_not() {
        let (mut traffic, mut packets) = (Traffic::default(), 0);
        let mut waits = |count: usize, each: u64| {
            let mut light = 0;
            for _ in 0..count {
                packets += each;
                light += usize::from(traffic.is_light(packets));
            }
            light
        };
        assert_eq!(waits(100, 6), 100);
        let at_first = waits(100, 256);
        assert!(at_first <= 1, "a stream is seen at once: {at_first}");
        let later = waits(100, 6);
        assert!(
            (60..100).contains(&later),
            "single requests are seen after some: {later}"
        );
    }
}

//! An adapter with virtual functions: its hosts share the PCIe slot and the port.
//!
//! # Arbitration
//!
//! An adapter fetches a packet's data when it may leave, so that nothing waits inside. Functions that have
//! something to send take turns by start-time fair queueing (Goyal, Vin and Cheng, 1996): the function goes
//! next whose bytes sent so far, divided by its weight, are the least. Data for the port is fetched no faster
//! than the port sends; data for another function of the adapter, as fast as the slot allows. Where both wait
//! they alternate.

use super::pcie_link::Slot;
use super::scenario::{AdapterFunction, Forgery, Guard, SriovAdapterConfig};
use fabric::{Rate, Span, Time};

/// Frames of the largest MTU that may wait for the port: one that leaves, and one behind it.
const AHEAD_FRAMES: u64 = 2;

/// Bytes that a function with a maximum rate may send at once after a rest.
const BURST_BYTES: u32 = 16 << 10;

/// Where a packet goes: through the port, or to a function of the same adapter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    Port = 0,
    Inside = 1,
}

/// A host's place in its adapter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seat {
    /// Index of the adapter in its part of the network.
    pub(super) card: u32,
    /// The function: 0 is the physical one.
    pub(super) function: u32,
    /// The embedded switch's checks of packets that the function sends.
    pub(super) guard: Guard,
}

/// Packets that an embedded switch dropped at the port of one function, by cause.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, serde::Serialize, serde::Deserialize)]
pub struct FunctionDrops {
    /// Sent with the GID of another host.
    pub spoofed_gid: u64,
    /// Sent with the MAC address of another host.
    pub spoofed_mac: u64,
    /// For the function, and of another VLAN than its own.
    pub vlan: u64,
}

impl FunctionDrops {
    /// Whether a packet that its function sends with a forged address is dropped, which is counted.
    pub(super) fn forged(&mut self, guard: Guard, forgery: Forgery) -> bool {
        match forgery {
            Forgery::Gid(_) if guard.spoof_check => self.spoofed_gid += 1,
            Forgery::Mac(_) if guard.spoof_check && !guard.trust => self.spoofed_mac += 1,
            _ => return false,
        }
        true
    }
}

/// The state of an adapter with functions.
#[derive(Debug)]
pub(super) struct SriovAdapter {
    pub(super) slot: Slot,
    port: Rate,
    /// When the port has sent all that was given to it.
    port_until: Time,
    /// How long before that more may be fetched.
    ahead: Span,
    turns: Vec<Turn>,
    /// By way: the tag of the packet that was sent last.
    virtual_time: [u64; 2],
    last: Way,
}

/// The scheduling state of a function.
#[derive(Clone, Debug)]
struct Turn {
    weight: u64,
    /// The rate that it may send at, and when the next packet may leave by that.
    rate: Option<Rate>,
    paced_until: Time,
    /// By way: bytes that were sent, divided by the weight.
    tags: [u64; 2],
    /// Where its last packet went. The next one is taken to go there as well.
    way: Way,
    /// The time of its next call of [`SriovAdapter::ask`]; it is ready to send until then.
    due: Time,
}

impl SriovAdapter {
    pub(super) fn new(config: &SriovAdapterConfig, slot: Slot, frame_bytes: u32) -> Self {
        let turn = |function: &AdapterFunction| Turn {
            weight: function.weight.max(1),
            rate: function.rate,
            paced_until: Time(0),
            tags: [0; 2],
            way: Way::Port,
            due: Time(0),
        };
        Self {
            slot,
            port: config.port,
            port_until: Time(0),
            ahead: config.port.time_of(frame_bytes).times(AHEAD_FRAMES),
            turns: config.functions.iter().map(turn).collect(),
            virtual_time: [0; 2],
            last: Way::Inside,
        }
    }

    /// Gives a function another share and another rate.
    pub(super) fn set(&mut self, function: u32, config: &AdapterFunction) {
        let Some(turn) = self.turns.get_mut(function as usize) else {
            return;
        };
        (turn.weight, turn.rate) = (config.weight.max(1), config.rate);
        if config.rate.is_none() {
            turn.paced_until = Time(0);
        }
    }

    /// Whether a function that has something to send may send it; if not, the error is the time of its next
    /// call.
    pub(super) fn ask(&mut self, function: u32, now: Time) -> Result<(), Time> {
        let index = function as usize;
        let turn = &mut self.turns[index];
        let way = turn.way as usize;
        if turn.due < now {
            // It had nothing to send for a while, which gives it no claim on the bandwidth that others used
            // then.
            turn.tags[way] = turn.tags[way].max(self.virtual_time[way]);
        }
        let port_at = match turn.way {
            Way::Port => Time(self.port_until.0.saturating_sub(self.ahead.0)),
            Way::Inside => Time(0),
        };
        let ready = self.slot.read_until().max(port_at).max(turn.paced_until);
        turn.due = ready.max(now);
        if ready > now {
            return Err(ready);
        }
        let waiting = || {
            self.turns
                .iter()
                .enumerate()
                .filter(|(_, turn)| turn.due == now)
        };
        let both = [Way::Port, Way::Inside].map(|way| waiting().any(|(_, turn)| turn.way == way));
        let turn_of = match (both, self.last) {
            ([true, false], _) | ([true, true], Way::Inside) => Way::Port,
            _ => Way::Inside,
        };
        let next = waiting()
            .filter(|(_, turn)| turn.way == turn_of)
            .min_by_key(|(index, turn)| (turn.tags[turn_of as usize], *index));
        match next {
            // Functions whose next call is due at this moment have made it when the next one comes.
            Some((next, _)) if next != index => {
                self.turns[index].due = Time(now.0 + 1);
                Err(Time(now.0 + 1))
            }
            _ => Ok(()),
        }
    }

    /// A function sent frames: bytes on each way, preamble and gap included.
    pub(super) fn sent(&mut self, function: u32, now: Time, bytes: [u64; 2]) {
        let turn = &mut self.turns[function as usize];
        if let Some(rate) = turn.rate {
            // The time that it waited for its turn is not lost, up to a burst.
            let from = turn
                .paced_until
                .max(Time(now.0.saturating_sub(rate.time_of(BURST_BYTES).0)));
            turn.paced_until =
                from + rate.time_of(u32::try_from(bytes[0] + bytes[1]).unwrap_or(u32::MAX));
        }
        for (way, bytes) in [Way::Port, Way::Inside]
            .into_iter()
            .zip(bytes)
            .filter(|(_, bytes)| *bytes > 0)
        {
            let tag = &mut turn.tags[way as usize];
            self.virtual_time[way as usize] = *tag;
            // Weights are rates in bits per second: 2^40 keeps enough digits of a frame at the highest.
            *tag += ((u128::from(bytes) << 40) / u128::from(turn.weight)) as u64;
            (turn.way, self.last) = (way, way);
            if way == Way::Port {
                self.port_until = self.port_until.max(now)
                    + self.port.time_of(u32::try_from(bytes).unwrap_or(u32::MAX));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::scenario::PcieConfig;
    use super::*;

    fn card(weights: &[u64]) -> SriovAdapter {
        let functions = weights
            .iter()
            .zip(0..)
            .map(|(weight, host)| AdapterFunction {
                host,
                weight: *weight,
                rate: None,
                vlan: 0,
                guard: Guard::default(),
            });
        let config = SriovAdapterConfig {
            port: Rate::from_gbps(10),
            functions: functions.collect(),
        };
        let pcie = PcieConfig {
            rate: Rate::from_gbps(30),
            answer_rate: Rate::from_gbps(30),
            read_latency: Span::ZERO,
            write_latency: Span::ZERO,
            receive_buffer_bytes: 1 << 19,
            doorbell: Span::ZERO,
        };
        SriovAdapter::new(&config, Slot::new(&pcie), 1_000)
    }

    /// Calls [`SriovAdapter::ask`] for all functions, in their order, whenever they are due.
    fn drive(card: &mut SriovAdapter, functions: u32, until: Time) -> Vec<u64> {
        let mut bytes = vec![0; functions as usize];
        let mut due = vec![Time(1); functions as usize];
        while let Some((now, function)) = due
            .iter()
            .copied()
            .zip(0_u32..)
            .min()
            .filter(|(at, _)| *at < until)
        {
            due[function as usize] = match card.ask(function, now) {
                Ok(()) => {
                    card.slot.read(now, 1_000, false);
                    card.sent(function, now, [1_000, 0]);
                    bytes[function as usize] += 1_000;
                    now
                }
                Err(later) => later,
            };
        }
        bytes
    }

    #[test]
    fn functions_share_the_port_by_weight() {
        let mut card = card(&[1, 2, 4]);
        let bytes = drive(&mut card, 3, Time::from_ns(10_000_000));
        let sum: u64 = bytes.iter().sum();
        assert!(
            (12_490_000..12_510_000).contains(&sum),
            "10 Gb/s for 10 ms: {sum}"
        );
        for (bytes, weight) in bytes.iter().zip([1, 2, 4]) {
            assert!(
                bytes.abs_diff(sum * weight / 7) <= 2_000,
                "{bytes} of {sum}"
            );
        }
    }

    #[test]
    fn a_function_that_was_idle_has_no_claim() {
        let mut card = card(&[1, 1]);
        drive(&mut card, 1, Time::from_ns(1_000_000));
        // Its tag is that of now, so that both alternate from here on.
        let late = Time::from_ns(1_000_001);
        let _told = card.ask(1, late);
        assert!(card.turns[1].tags[0].abs_diff(card.turns[0].tags[0]) <= (1_000_u64 << 40) + 1);
    }
}

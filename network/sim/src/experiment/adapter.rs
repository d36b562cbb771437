//! From `[nic.NAME]` to the engine's configuration.

use super::congestion;
use crate::world::{
    Drives, Headers, HostConfig, Marking, Media, PcieConfig, Processor, StorageConfig,
};
use fabric::config::PfcConfig;
use fabric::{Rate, Span};
use fabric_file::NamedHost;
use fabric_file::hosts;
use fabric_file::schema::{NicTable, Pcie, Protocol};
use fabric_file::uet::Transport;
use rnic::Mtu;
use units::{Bandwidth, Size, Timespan};

/// Bytes around the payload of a packet on the PCIe link: framing 4, header 16 with 64-bit addresses, LCRC 4
/// (PCI Express base specification 4.0, sections 2.2 and 4.2.2).
const PCIE_OVERHEAD_BYTES: u64 = 24;

/// The adapter of a host whose link has this rate, or the function `shares` it.
pub(super) fn host(host: &NamedHost, stores: bool, link: Rate, shares: bool) -> HostConfig {
    let nic = &host.nic;
    let base = HostConfig::new();
    let data = Marking {
        class: nic.priority,
        dscp: nic.dscp,
        pcp: nic.pcp,
        ecn: nic.ecn,
    };
    let notifications = Marking {
        class: nic.cnp_priority,
        dscp: nic.cnp_dscp,
        pcp: nic.pcp.map(|_| nic.cnp_priority),
        ecn: false,
    };
    let rate = nic.rate.map(|rate| rate.0);
    let line = rate.map_or(link.bps(), |rate| rate.bps().min(link.bps()));
    let obeyed = nic.pfc.iter().fold(0_u8, |mask, class| mask | 1 << class);
    let control = nic.control_overhead.or(nic.data_overhead);
    // Its acknowledgements are not to wait behind data that is trimmed.
    let answers = match nic.transport {
        Transport::Rc => (data.class, data.dscp),
        Transport::Uet => (nic.cnp_priority, nic.cnp_dscp),
    };
    HostConfig {
        rate,
        mtu: mtu(nic.mtu),
        headers: match nic.data_overhead {
            None if nic.transport == Transport::Uet => Headers::Uet,
            None => Headers::RoceV2,
            Some(data) => Headers::Fixed {
                data: short(data),
                control: control.map_or(0, short),
            },
        },
        out_of_order: nic.out_of_order,
        reorder_window: nic.reorder_window,
        window_bytes: window_bytes(nic),
        ack_interval: nic.ack_interval,
        recovery: nic.recovery.0,
        timeout: nic.timeout,
        retries: nic.retries,
        data,
        acknowledgements: Marking {
            class: nic.ack_priority.unwrap_or(answers.0),
            dscp: nic.ack_dscp.unwrap_or(answers.1),
            ecn: false,
            ..data
        },
        notifications,
        pfc: match shares {
            // Inside an adapter nothing is lost: its switch stops functions at once, whatever the class.
            true => PfcConfig {
                send: 0xff,
                obey: 0xff,
                response: Span::ZERO,
                ..base.pfc
            },
            false => PfcConfig {
                send: obeyed,
                obey: obeyed,
                ..base.pfc
            },
        },
        levels: base.levels,
        congestion: congestion::control(nic, line),
        pcie: nic
            .pcie
            .as_ref()
            .map(|link| within(pcie(link), host.processor.memory)),
        // What depends on paths is set when all flows are known.
        uet: (nic.transport == Transport::Uet).then(|| super::uet::transport(nic, line)),
        storage: stores.then(|| storage(host)),
    }
}

/// The limit of unacknowledged data, from bytes and from packets.
fn window_bytes(nic: &NicTable) -> u32 {
    let packets = nic
        .outstanding
        .map_or(u64::MAX, |packets| u64::from(packets) * u64::from(nic.mtu));
    u32::try_from(nic.window.0.min(packets)).unwrap_or(u32::MAX)
}

fn storage(host: &NamedHost) -> StorageConfig {
    let hosts::ProcessorTable {
        cores,
        io,
        request,
        call,
        packet,
        copy,
        memory,
        moderation,
        interrupt,
        late,
        late_by,
    } = host.processor.clone();
    let drive = &host.drive;
    let media = |latency: Timespan, rate: Bandwidth| Media {
        latency: latency.0,
        rate: rate.0,
    };
    StorageConfig {
        processor: Processor {
            cores,
            io: io.0,
            request: request.0,
            call: call.0,
            packet: packet.0,
            copy: copy.0,
            memory: memory.map(|memory| memory.0),
            moderation: moderation.0,
            interrupt: interrupt.0,
            late_chance: late.chance(),
            late_by: late_by.0,
        },
        drives: Drives {
            count: host.drives,
            parity: host.parity,
            read: media(drive.read_latency, drive.read),
            write: media(drive.write_latency, drive.write),
            tail: drive.tail.0,
            per_command: Span(1_000_000_000_000 / u64::from(drive.commands.max(1))),
        },
        stream: host.nic.protocol == Protocol::Tcp,
    }
}

fn mtu(bytes: u32) -> Mtu {
    match bytes {
        256 => Mtu::B256,
        512 => Mtu::B512,
        1024 => Mtu::B1024,
        2048 => Mtu::B2048,
        _ => Mtu::B4096,
    }
}

fn short(size: Size) -> u16 {
    u16::try_from(size.0).unwrap_or(u16::MAX)
}

/// Bits per second that a PCIe link moves before its packets' headers, as drivers print it (`126.024 Gb/s`
/// for
/// 4.0 x8): the line code taken off.
pub fn pcie_bps(link: &Pcie) -> u64 {
    // Per lane in Mb/s: 8b/10b up to 2.0, 128b/130b up to 5.0, 242 of 256 bytes of each flit in 6.0.
    let lane_mbps = match link.generation {
        0 | 1 => 2_500 * 8 / 10,
        2 => 5_000 * 8 / 10,
        3 => 8_000 * 128 / 130,
        4 => 16_000 * 128 / 130,
        5 => 32_000 * 128 / 130,
        _ => 64_000 * 242 / 256,
    };
    lane_mbps * 1_000_000 * u64::from(link.width)
}

/// A PCIe link is no faster than the memory behind it.
fn within(link: PcieConfig, memory: Option<Bandwidth>) -> PcieConfig {
    let slower = memory
        .map(|memory| memory.0)
        .filter(|memory| memory.bps() < link.rate.bps());
    let rate = slower.unwrap_or(link.rate);
    PcieConfig {
        rate,
        answer_rate: slower_of(rate, link.answer_rate),
        ..link
    }
}

fn slower_of(one: Rate, other: Rate) -> Rate {
    if other.bps() < one.bps() { other } else { one }
}

fn pcie(link: &Pcie) -> PcieConfig {
    let payload = u64::from(link.payload.max(1));
    let rate = Rate::from_bps(
        (u128::from(pcie_bps(link)) * u128::from(payload)
            / u128::from(payload + PCIE_OVERHEAD_BYTES)) as u64,
    );
    let answers = link.read_response_rate.map_or(rate, |limit| limit.0);
    PcieConfig {
        rate,
        answer_rate: slower_of(rate, answers),
        read_latency: link.read_latency.0,
        write_latency: link.write_latency.0,
        receive_buffer_bytes: u32::try_from(link.receive_buffer.0).unwrap_or(u32::MAX),
        doorbell: link.doorbell.0,
    }
}

/// A PCIe link as its generation and width: `PCIe 3.0 x8`.
pub fn pcie_name(link: &Pcie) -> String {
    let generation = match link.generation {
        0 | 1 => "1.1",
        2 => "2.0",
        3 => "3.0",
        4 => "4.0",
        5 => "5.0",
        _ => "6.0",
    };
    format!("PCIe {generation} x{}", link.width)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_carry_what_drivers_print() {
        let bps = |generation, width| {
            pcie_bps(&Pcie {
                generation,
                width,
                ..Pcie::default()
            })
        };
        assert_eq!(bps(1, 8), 16_000_000_000);
        assert_eq!(bps(3, 8) / 1_000_000, 63_008);
        // mlx5 prints 126.024 for 4.0 x8, from whole megabits per lane.
        assert_eq!(bps(4, 8) / 1_000_000, 126_024);
        assert_eq!(
            pcie(&Pcie {
                generation: 1,
                width: 8,
                ..Pcie::default()
            })
            .rate
            .bps()
                / 1_000_000,
            14_628
        );
    }
}

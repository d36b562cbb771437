//! Attacks on connection management: REQ floods, garbage, stale connections.

use std::net::Ipv4Addr;

use programs::namespace::Process;
use programs::{Job, Machine, Rockery};
use rand_core::RngCore;
use wire::cm::{
    CMA_HEADER_SIZE, CmMad, CmMessage, CmaHeader, CommId, PortSpace, Req, RequestPath, ServiceId,
};
use wire::nvme::rdma::Request;
use wire::{PartitionKey, Psn, Qpn};

use crate::Outcome;
use crate::place::{
    Effort, Place, descriptors, memory_limit, peak_memory_mib, random, route, v4, wait_for,
};

/// The port of NVMe over RDMA.
const NVME: u16 = 4420;
const NQN: &str = "nqn.2024-01.org.example:disk";
/// REQs a second: one machine sends many times as many.
const RATE: u32 = 5_000;
const MEMORY_MIB: u64 = 256;
const DESCRIPTORS: usize = 1024;

/// A REQ for a port, as Linux sends one, by numbers that `chance` gives.
fn request(source: Ipv4Addr, to: Ipv4Addr, port: u16, qpn: Qpn, chance: u64) -> CmMad {
    let gid = |address: Ipv4Addr| address.to_ipv6_mapped().octets();
    let path = RequestPath {
        local_lid: 0xffff,
        remote_lid: 0xffff,
        local_gid: gid(source),
        remote_gid: gid(to),
        packet_rate: 3,
        hop_limit: 64,
        local_ack_timeout: 16,
        ..RequestPath::default()
    };
    let mut private = [0; wire::cm::REQ_PRIVATE_DATA];
    let header =
        CmaHeader::new(source.into(), chance as u16 | 0x8000, to.into()).expect("both are IPv4");
    private[..CMA_HEADER_SIZE].copy_from_slice(&header.to_bytes());
    let queue = Request {
        format: 0,
        queue_id: 0,
        receive_size: 128,
        send_size: 127,
        controller_id: 0xffff,
    };
    let queue = queue.to_bytes();
    private[CMA_HEADER_SIZE..][..queue.len()].copy_from_slice(&queue);
    let req = Req {
        local_comm_id: CommId(chance as u32),
        service_id: ServiceId::ip(PortSpace::Tcp, port),
        local_ca_guid: u64::from(u32::from(source)),
        local_qpn: qpn,
        responder_resources: 16,
        initiator_depth: 16,
        remote_response_timeout: 20,
        local_response_timeout: 20,
        starting_psn: Psn::new((chance >> 32) as u32),
        retry_count: 7,
        rnr_retry_count: 7,
        partition_key: PartitionKey::DEFAULT,
        path_mtu: 3,
        max_cm_retries: 15,
        primary_path: path,
        private_data: private,
        ..Req::default()
    };
    CmMad {
        transaction: chance,
        modifier: 0,
        message: CmMessage::Req(req),
    }
}

/// A target with a disk, over RDMA, in the victim's namespace.
pub(crate) fn serve(place: &Place, more: &[&str]) -> Result<Process, String> {
    let rockery = Rockery::built();
    let program = rockery.path().to_string_lossy().into_owned();
    let control = place
        .folder
        .path()
        .join("control")
        .to_string_lossy()
        .into_owned();
    let listen = format!("{}:{NVME}", v4(&place.victim));
    let mut words = vec![
        "prlimit",
        "--nofile=2048",
        &program,
        "serve",
        "nvme",
        "--memory",
        "16MiB",
    ];
    words.extend([
        "--subsystem",
        NQN,
        "--listen",
        &listen,
        "--rdma",
        &listen,
        "--control",
        &control,
    ]);
    words.extend(more);
    let mut server = place
        .victim
        .start_plain(&words)
        .map_err(|error| error.to_string())?;
    wait_for(&mut server, "listening on")?;
    Ok(server)
}

/// Whether a host reads a block over RDMA.
pub(crate) fn host_reads(place: &Place) -> Result<(), String> {
    let target = format!("{}:{NVME}", v4(&place.victim));
    let rockery = Rockery::built();
    let program = rockery.path().to_string_lossy();
    let words = [
        &program,
        "nvme",
        "read",
        &target,
        "--transport",
        "rdma",
        "--subsystem",
        NQN,
        "--blocks",
        "1",
    ];
    let finished = place
        .peer
        .start_plain(&words)
        .and_then(|mut job| job.wait(120));
    match finished {
        Ok(finished) if finished.succeeded() => Ok(()),
        Ok(finished) => Err(format!("a host cannot read: {}", finished.output.trim())),
        Err(error) => Err(format!("a host cannot read: {error}")),
    }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Floods a target with these REQs, and looks at what it lost.
fn flood(place: &Place, server: &Process, packets: &[Vec<u8>], effort: Effort) -> Outcome {
    host_reads(place)?;
    let before = peak_memory_mib(server).ok_or("the target has ended")?;
    let sent = place.blast(packets, RATE, effort).map_err(text)?;
    let after = peak_memory_mib(server).ok_or("the target has ended")?;
    let open = descriptors(server).ok_or("the target has ended")?;
    let grown = after.saturating_sub(before);
    if grown > memory_limit(MEMORY_MIB) || open > DESCRIPTORS {
        return Err(format!(
            "{} REQs: {grown} MiB more memory, {open} descriptors",
            sent.packets
        ));
    }
    host_reads(place)?;
    Ok(format!(
        "{} REQs: {grown} MiB more memory, {open} descriptors; a host reads",
        sent.packets
    ))
}

fn spoofed(place: &Place) -> Vec<Vec<u8>> {
    let mut random = random(1);
    let to = v4(&place.victim);
    let mut packets = Vec::new();
    for _ in 0..10_000 {
        // Addresses of the victim's own subnet that no machine has: the victim answers into the void.
        let source = Ipv4Addr::new(10, 88, 0, 100 + (random.next_u32() % 100) as u8);
        let qpn = Qpn::new(random.next_u32() & 0xff_ffff | 0x100);
        let request = request(source, to, NVME, qpn, random.next_u64());
        packets.push(route(source, &place.victim).management(&request, random.next_u32()));
    }
    packets
}

pub(crate) fn flood_spoofed(effort: Effort) -> Outcome {
    let place = Place::new().map_err(text)?;
    let server = serve(&place, &[])?;
    flood(&place, &server, &spoofed(&place), effort)
}

pub(crate) fn flood_shared(effort: Effort) -> Outcome {
    let place = Place::new().map_err(text)?;
    let server = serve(&place, &["--shared-receives", "512"])?;
    flood(&place, &server, &spoofed(&place), effort)
}

pub(crate) fn flood_one_address(effort: Effort) -> Outcome {
    let place = Place::new().map_err(text)?;
    let server = serve(&place, &[])?;
    let mut random = random(2);
    let (source, to) = (v4(&place.attacker), v4(&place.victim));
    let mut packets = Vec::new();
    for number in 0..10_000 {
        let request = request(
            source,
            to,
            NVME,
            Qpn::new(0x100 + number),
            random.next_u64(),
        );
        packets.push(route(source, &place.victim).management(&request, number));
    }
    flood(&place, &server, &packets, effort)
}

/// Management datagrams that begin as connection management and go on at random, of every message.
pub(crate) fn garbage(effort: Effort) -> Outcome {
    let place = Place::new().map_err(text)?;
    let server = serve(&place, &[])?;
    let mut random = random(3);
    let source = v4(&place.attacker);
    let mut packets = Vec::new();
    for number in 0..20_000 {
        let honest = request(
            source,
            v4(&place.victim),
            NVME,
            Qpn::new(0x100),
            random.next_u64(),
        );
        let mut bytes = honest.to_bytes();
        let attributes = CmMessage::ATTRIBUTES;
        bytes[17] = attributes[number as usize % attributes.len()] as u8;
        for _ in 0..1 + random.next_u32() % 16 {
            let at = random.next_u32() as usize % bytes.len();
            bytes[at] = random.next_u32() as u8;
        }
        packets.push(route(source, &place.victim).management_bytes(&bytes, number));
    }
    let sent = place.blast(&packets, 2 * RATE, effort).map_err(text)?;
    peak_memory_mib(&server).ok_or("the target has ended")?;
    host_reads(&place)?;
    Ok(format!("{} datagrams; a host reads", sent.packets))
}

/// REQs in the peer's name for queue pair numbers of a whole range: each claims a new queue pair
/// of the peer with this number, so that a connection with the same number looks stale (IBTA 12.9.8.3.1).
pub(crate) fn stale(effort: Effort) -> Outcome {
    let place = Place::new().map_err(text)?;
    let seconds = (effort.seconds() + 10).to_string();
    let words = ["ib_write_bw", "-R", "-F", "-s", "65536", "-D", &seconds];
    let mut server = place.victim.start(&words).map_err(text)?;
    let listens = || place.victim.awaits_requests();
    programs::machine::until(60, listens).map_err(text)?;
    let address = v4(&place.victim).to_string();
    let mut client = place
        .peer
        .start(&[&words[..], &[&address]].concat())
        .map_err(text)?;
    let peers = crate::rc::queue_pair_of(&place.peer)?;
    let mut random = random(4);
    let source = v4(&place.peer);
    let range = peers & !0x3fff;
    let mut packets = Vec::new();
    for number in 0..0x4000 {
        let qpn = Qpn::new(range + number);
        let request = request(source, v4(&place.victim), 18515, qpn, random.next_u64());
        packets.push(route(source, &place.victim).management(&request, number));
    }
    let sent = place.blast(&packets, 2 * RATE, effort).map_err(text)?;
    let client = client.wait(120).map_err(text)?;
    let server = server.wait(120).map_err(text)?;
    if !client.succeeded() || !server.succeeded() {
        return Err(format!(
            "the connection ended: {}{}",
            client.output, server.output
        ));
    }
    Ok(format!("{} REQs; the connection went on", sent.packets))
}

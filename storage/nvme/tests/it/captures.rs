//! The messages of the Linux kernel to nvmet, from a capture, sent to this target.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

use nvme::controller::{Hosts, Identity, Namespace, Port, Subsystem, Target, Transport};
use nvme::store::{Memory, Store};
use wire::nvme::tcp::{CommonHeader, Digests, Frame, Header};
use wire::nvme::{Admin, Command, Completion, Io, opcode};

use crate::support::{Line, nqn};

const NAME: &str = "nqn.2024-01.org.example:lab";

/// The PDUs of the host, by its port, in the order of the capture.
fn host_pdus() -> Vec<(u16, Vec<u8>)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../testing/data/captures/nvmeof_tcp_io.pcap");
    let capture = std::fs::read(path).unwrap();
    let mut streams: BTreeMap<u16, Vec<u8>> = BTreeMap::new();
    let mut pdus = Vec::new();
    let mut at = 24;
    while at < capture.len() {
        let length = u32::from_le_bytes(capture[at + 8..at + 12].try_into().unwrap()) as usize;
        let frame = &capture[at + 16..at + 16 + length];
        at += 16 + length;
        let is_tcp = frame[12..14] == [8, 0] && frame[23] == 6;
        if !is_tcp || frame[36..38] != 4420_u16.to_be_bytes() {
            continue;
        }
        let total = usize::from(u16::from_be_bytes([frame[16], frame[17]]));
        let port = u16::from_be_bytes([frame[34], frame[35]]);
        // On that bridge no packet was lost or reordered.
        let data = &frame[34 + usize::from(frame[46] >> 4) * 4..14 + total];
        let stream = streams.entry(port).or_default();
        stream.extend(data);
        while let Some((common, _)) = CommonHeader::split(stream) {
            let length = common.length as usize;
            if stream.len() < length {
                break;
            }
            pdus.push((port, stream.drain(..length).collect()));
        }
    }
    pdus
}

fn lab_target() -> Arc<Target> {
    let target = Target::new();
    let subsystem = Subsystem::new(nqn(NAME), "1".to_owned(), "Linux".to_owned(), Hosts::Any);
    target.add_subsystem(subsystem).unwrap();
    let bytes = 16 << 20;
    let store = Store::Memory(Memory::new(bytes).unwrap());
    let namespace = Namespace::new(1, Identity::of(&nqn(NAME), 1), 512, bytes, store);
    target.add_namespace(&nqn(NAME), namespace).unwrap();
    let address = "10.77.0.11:4420".parse().unwrap();
    target.add_port(Port {
        id: 1,
        transport: Transport::Tcp { tls: false },
        address,
        subsystems: None,
    });
    Arc::new(target)
}

#[test]
fn the_kernels_session_with_nvmet_succeeds_here() {
    let target = lab_target();
    let mut lines: HashMap<u16, Line> = HashMap::new();
    let mut sent: HashMap<(u16, u16), Command> = HashMap::new();
    let (mut written, mut read) = (BTreeMap::<u64, Vec<u8>>::new(), 0);
    let mut succeeded = BTreeMap::<u8, usize>::new();
    let mut tags: HashMap<(u16, u16), u16> = HashMap::new();
    for (port, mut pdu) in host_pdus() {
        let line = lines.entry(port).or_insert_with(|| Line::new(&target, 1));
        let (common, behind) = CommonHeader::split(&pdu).unwrap();
        let frame = Frame::parse(&common, Digests::default(), 1 << 20).unwrap();
        match Header::parse(frame.kind, behind).unwrap() {
            Header::Command(command) => {
                sent.insert((port, command.cid), command);
                if command.opcode == Io::Write as u8 && frame.data > 0 {
                    written.insert(command.qword10(), pdu[frame.before_data..].to_vec());
                }
            }
            Header::HostData(data) => {
                // The tag (TTAG) that this target assigned, instead of that of nvmet.
                let tag = tags[&(port, data.cid)];
                pdu[10..12].copy_from_slice(&tag.to_le_bytes());
                let command = sent[&(port, data.cid)];
                let whole = written.entry(command.qword10()).or_default();
                whole.truncate(data.offset as usize);
                whole.extend(&pdu[frame.before_data..]);
            }
            _ => {}
        }
        line.bytes(&pdu);
        while let Some(answer) = line.pdus.pop_front() {
            match answer.header {
                Header::ReadyToTransfer(ready) => _ = tags.insert((port, ready.cid), ready.tag),
                Header::ControllerData(data) => {
                    let command = sent[&(port, data.cid)];
                    let expected = written
                        .get(&command.qword10())
                        .filter(|it| it.len() == answer.data.len());
                    if command.opcode == Io::Read as u8
                        && let Some(expected) = expected
                    {
                        assert!(*expected == answer.data);
                        read += 1;
                    }
                }
                Header::Response(completion) => {
                    check(&sent[&(port, completion.cid)], completion, &mut succeeded)
                }
                _ => {}
            }
        }
    }
    assert!(read >= 2, "two reads are of what was written");
    let count = |code: u8| succeeded.get(&code).copied().unwrap_or_default();
    assert!(count(Admin::Identify as u8) >= 5 && count(opcode::FABRICS) >= 10);
    assert!(count(Io::Write as u8) >= 2);
}

/// Checks that every command that nvmet executed succeeds here.
fn check(command: &Command, completion: Completion, succeeded: &mut BTreeMap<u8, usize>) {
    let status = completion.status();
    // The kernel requests Identify with CNS 08h, which nvmet does not have.
    assert!(status.is_success(), "{command:?}: {status}");
    *succeeded.entry(command.opcode).or_default() += 1;
}

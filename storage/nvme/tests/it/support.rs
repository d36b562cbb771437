//! A host for tests: it sends exact bytes, and reads what the target sends.

use std::collections::{BTreeSet, VecDeque};
use std::io::IoSlice;
use std::sync::Arc;

use buffer::Buffer;
use nvme::Nqn;
use nvme::controller::{
    Hosts, Identity, Namespace, Origin, Outcome, Plan, Port, Queue, Subsystem, Target, Transport,
    Wake,
};
use nvme::engine::Engine;
use nvme::store::{Memory, Store};
use nvme::tcp::{Closing, Connection};
use wire::nvme::fabrics::{self, Connect, ConnectData, Property};
use wire::nvme::property;
use wire::nvme::tcp::{
    CommonHeader, DIGEST_SIZE, Digests, ENCODED_MAX, Frame, Header, Initialize, Kind, flag,
};
use wire::nvme::{Command, Completion, Fabrics, Sgl, Status, text};

pub(crate) const SUBSYSTEM: &str = "nqn.2024-01.org.example:disk";
pub(crate) const BLOCK: usize = 512;
pub(crate) const BLOCKS: u64 = 4096;

pub(crate) struct NoWake;

impl Wake for NoWake {
    fn wake(&self) {}
}

pub(crate) fn nqn(text: &str) -> Nqn {
    text.parse().unwrap()
}

pub(crate) fn host_name(number: u8) -> String {
    format!("nqn.2014-08.org.nvmexpress:uuid:host{number}")
}

pub(crate) fn memory_namespace(nsid: u32) -> Namespace {
    let bytes = BLOCKS * BLOCK as u64;
    let store = Store::Memory(Memory::new(bytes).unwrap());
    Namespace::new(
        nsid,
        Identity::of(&nqn(SUBSYSTEM), nsid),
        BLOCK as u32,
        bytes,
        store,
    )
}

/// A target with one subsystem of one namespace in memory.
pub(crate) fn target() -> Arc<Target> {
    target_for(Hosts::Any)
}

pub(crate) fn target_for(hosts: Hosts) -> Arc<Target> {
    let target = Target::new();
    let subsystem = Subsystem::new(
        nqn(SUBSYSTEM),
        "serial".to_owned(),
        "model".to_owned(),
        hosts,
    );
    target.add_subsystem(subsystem).unwrap();
    target
        .add_namespace(&nqn(SUBSYSTEM), memory_namespace(1))
        .unwrap();
    let address = "192.0.2.1:4420".parse().unwrap();
    target.add_port(Port {
        id: 1,
        transport: Transport::Tcp { tls: false },
        address,
        subsystems: None,
    });
    Arc::new(target)
}

pub(crate) fn only(names: &[&str]) -> Hosts {
    Hosts::Only(names.iter().map(|name| nqn(name)).collect::<BTreeSet<_>>())
}

/// A PDU of the target.
#[derive(Clone, Debug)]
pub(crate) struct Pdu {
    pub(crate) header: Header,
    pub(crate) flags: u8,
    pub(crate) data: Vec<u8>,
}

/// Where [`Line::work`] stops.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Hold {
    /// Tasks do not get to the engine.
    Tasks,
    /// What the engine has executed, or the kernel executes, is not finished.
    Engine,
    /// The host receives nothing.
    Output,
    /// The work goes on until nothing is left.
    Nothing,
}

/// A connection between a host, played by the test, and the target.
pub(crate) struct Line {
    pub(crate) connection: Connection,
    engine: Engine,
    pub(crate) now_ns: u64,
    pub(crate) digests: Digests,
    incoming: Vec<u8>,
    pub(crate) pdus: VecDeque<Pdu>,
    pub(crate) number: u8,
    pub(crate) hold: Hold,
    next_cid: u16,
}

impl Line {
    pub(crate) fn new(target: &Arc<Target>, number: u8) -> Self {
        let origin = Origin {
            port: 1,
            local: "192.0.2.1:4420".parse().unwrap(),
            peer: [192, 0, 2, number].into(),
        };
        let queue = Queue::new(Arc::clone(target), origin, Arc::new(NoWake));
        Self {
            connection: Connection::new(queue),
            engine: Engine::new(),
            now_ns: 1_000_000_000,
            digests: Digests::default(),
            incoming: Vec::new(),
            pdus: VecDeque::new(),
            number,
            hold: Hold::Nothing,
            next_cid: 0,
        }
    }

    /// A connection after ICReq and ICResp.
    pub(crate) fn initialized(target: &Arc<Target>, number: u8, digests: Digests) -> Self {
        let mut line = Self::new(target, number);
        let request = Initialize {
            format: 0,
            alignment: 0,
            digests: digests.bits(),
            limit: 0,
        };
        line.send(&Header::InitializeRequest(request), 0, &[]);
        let Header::InitializeResponse(response) = line.pdu().header else {
            panic!("no ICResp")
        };
        assert_eq!(response.digests, digests.bits());
        line.digests = digests;
        line
    }

    /// Passes raw bytes to the target, and lets it work.
    pub(crate) fn bytes(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && self.connection.wants_input() {
            bytes = self.receive_some(bytes);
            self.work();
        }
        self.work();
    }

    /// Passes as many bytes to the target as it has room for, and returns the others.
    fn receive_some<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let mut taken = 0;
        for mut room in self.connection.room() {
            let take = room.len().min(bytes.len() - taken);
            room[..take].copy_from_slice(&bytes[taken..taken + take]);
            taken += take;
        }
        self.connection.received(taken, self.now_ns);
        &bytes[taken..]
    }

    /// Passes raw bytes to the target, and submits the tasks without taking any result.
    pub(crate) fn begin_without_end(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() && self.connection.wants_input() {
            rest = self.receive_some(rest);
        }
        while let Some(task) = self.connection.task() {
            self.engine.begin(task);
        }
        self.engine.submit();
    }

    pub(crate) fn work(&mut self) {
        loop {
            self.engine.begin_round(self.now_ns);
            while self.hold > Hold::Tasks
                && let Some(task) = self.connection.task()
            {
                self.engine.begin(task);
            }
            self.engine.submit();
            while self.hold > Hold::Engine
                && let Some(finished) = self.engine.finished()
            {
                self.connection.finish(finished, self.now_ns);
            }
            self.connection.poll(self.now_ns);
            let waits_for_kernel = self.hold > Hold::Engine && self.engine.in_kernel() > 0;
            let has_output = self.hold > Hold::Output && self.connection.has_output();
            if !has_output && !waits_for_kernel {
                break;
            }
            let mut pieces: Vec<IoSlice<'_>> = Vec::new();
            self.connection.pieces(&mut pieces);
            let flat: Vec<u8> = pieces.iter().flat_map(|piece| piece.to_vec()).collect();
            self.connection.sent(flat.len(), self.now_ns);
            self.incoming.extend(flat);
        }
        self.read();
    }

    fn read(&mut self) {
        while let Some((common, behind)) = CommonHeader::split(&self.incoming) {
            let length = common.length as usize;
            assert!(self.incoming.len() >= length, "half a PDU");
            let frame = Frame::parse(&common, self.digests, 2 << 20).unwrap();
            assert!(!frame.kind.is_from_host());
            let header = Header::parse(frame.kind, behind).unwrap();
            if frame.header_digest {
                let digest = crc32c::crc32c(&self.incoming[..frame.header]).to_le_bytes();
                assert_eq!(
                    self.incoming[frame.header..frame.header + DIGEST_SIZE],
                    digest
                );
            }
            let data = self.incoming[frame.before_data..frame.before_data + frame.data].to_vec();
            if frame.data_digest {
                assert_eq!(
                    self.incoming[length - DIGEST_SIZE..length],
                    crc32c::crc32c(&data).to_le_bytes()
                );
            }
            self.incoming.drain(..length);
            self.pdus.push_back(Pdu {
                header,
                flags: frame.flags,
                data,
            });
        }
    }

    pub(crate) fn encode(&self, header: &Header, flags: u8, data: &[u8]) -> Vec<u8> {
        let digests = if header.kind().has_digests() {
            self.digests
        } else {
            Digests::default()
        };
        let mut head = [0; ENCODED_MAX];
        let end = header.encode(flags, digests, data.len(), 4, &mut head);
        let length = usize::from(header.kind().header_length());
        if digests.header {
            let digest = crc32c::crc32c(&head[..length]).to_le_bytes();
            head[length..length + DIGEST_SIZE].copy_from_slice(&digest);
        }
        let mut bytes = head[..end].to_vec();
        bytes.extend(data);
        if digests.data && !data.is_empty() {
            bytes.extend(crc32c::crc32c(data).to_le_bytes());
        }
        bytes
    }

    pub(crate) fn send(&mut self, header: &Header, flags: u8, data: &[u8]) {
        let bytes = self.encode(header, flags, data);
        self.bytes(&bytes);
    }

    pub(crate) fn pdu(&mut self) -> Pdu {
        self.pdus.pop_front().expect("the target answers")
    }

    pub(crate) fn response(&mut self) -> Completion {
        match self.pdu().header {
            Header::Response(completion) => completion,
            other => panic!("{other:?} instead of a response"),
        }
    }

    pub(crate) fn cid(&mut self) -> u16 {
        self.next_cid = self.next_cid.wrapping_add(1);
        self.next_cid
    }

    /// A command without data.
    pub(crate) fn plain(&mut self, command: Command) -> Completion {
        let command = Command {
            cid: self.cid(),
            ..command
        }
        .with_sgl(Sgl::Transport { length: 0 });
        self.send(&Header::Command(command), 0, &[]);
        let completion = self.response();
        assert_eq!(completion.cid, command.cid);
        completion
    }

    /// A command with data in its capsule.
    pub(crate) fn give(&mut self, command: Command, data: &[u8]) -> Completion {
        let sgl = Sgl::InCapsule {
            offset: 0,
            length: data.len() as u32,
        };
        let command = Command {
            cid: self.cid(),
            ..command
        }
        .with_sgl(sgl);
        self.send(&Header::Command(command), 0, data);
        self.response()
    }

    /// Sends a command and its data after an R2T, in PDUs of `piece` bytes.
    pub(crate) fn give_when_asked(
        &mut self,
        command: Command,
        data: &[u8],
        piece: usize,
    ) -> Completion {
        let sgl = Sgl::Transport {
            length: data.len() as u32,
        };
        let command = Command {
            cid: self.cid(),
            ..command
        }
        .with_sgl(sgl);
        self.send(&Header::Command(command), 0, &[]);
        self.answer_request(data, piece);
        self.response()
    }

    /// Sends the data that an R2T requests.
    pub(crate) fn answer_request(&mut self, data: &[u8], piece: usize) {
        let Header::ReadyToTransfer(ready) = self.pdu().header else {
            panic!("no R2T")
        };
        assert_eq!((ready.offset, ready.length as usize), (0, data.len()));
        for (index, part) in data.chunks(piece).enumerate() {
            let offset = index * piece;
            let header = wire::nvme::tcp::Data {
                cid: ready.cid,
                tag: ready.tag,
                offset: offset as u32,
                length: part.len() as u32,
            };
            let flags = if offset + part.len() == data.len() {
                flag::LAST
            } else {
                0
            };
            self.send(&Header::HostData(header), flags, part);
        }
    }

    /// A command that returns data.
    pub(crate) fn take(&mut self, command: Command, length: usize) -> Result<Vec<u8>, Status> {
        let sgl = Sgl::Transport {
            length: length as u32,
        };
        let command = Command {
            cid: self.cid(),
            ..command
        }
        .with_sgl(sgl);
        self.send(&Header::Command(command), 0, &[]);
        let pdu = self.pdu();
        match pdu.header {
            Header::ControllerData(data) => {
                assert_eq!(
                    (data.cid, data.offset, data.length as usize),
                    (command.cid, 0, length)
                );
                assert!(pdu.flags & flag::LAST != 0);
                if pdu.flags & flag::SUCCESS == 0 {
                    assert!(self.response().status().is_success());
                }
                Ok(pdu.data)
            }
            Header::Response(completion) => Err(completion.status().plain()),
            other => panic!("{other:?} instead of data"),
        }
    }

    pub(crate) fn connect_to(
        &mut self,
        subsystem: &str,
        queue_id: u16,
        entries: u16,
        controller_id: u16,
        attributes: u8,
    ) -> Completion {
        self.connect_as(
            &host_name(self.number),
            subsystem,
            queue_id,
            entries,
            controller_id,
            attributes,
        )
    }

    pub(crate) fn connect_as(
        &mut self,
        host: &str,
        subsystem: &str,
        queue_id: u16,
        entries: u16,
        controller_id: u16,
        attributes: u8,
    ) -> Completion {
        let connect = Connect {
            format: 0,
            queue_id,
            size: entries - 1,
            attributes,
            keep_alive_ms: 5000,
        };
        let data = ConnectData {
            host_id: [self.number; 16],
            controller_id,
            subsystem: text::zeroed(subsystem),
            host: text::zeroed(host),
        };
        self.give(connect.to_command(0), &data.to_bytes())
    }

    pub(crate) fn set_property(&mut self, offset: u32, value: u64) -> Completion {
        let property = Property {
            wide: false,
            offset,
            value,
        };
        self.plain(property.to_command(Fabrics::PropertySet, 0))
    }

    pub(crate) fn property(&mut self, wide: bool, offset: u32) -> Completion {
        let property = Property {
            wide,
            offset,
            value: 0,
        };
        self.plain(property.to_command(Fabrics::PropertyGet, 0))
    }

    pub(crate) fn enable(&mut self) {
        let value = property::configuration::ENABLE | property::configuration::ENTRIES;
        assert!(
            self.set_property(property::CONFIGURATION, value.into())
                .status()
                .is_success()
        );
        assert_eq!(self.property(false, property::STATUS).result, 1);
    }

    pub(crate) fn closing(&self) -> Closing {
        self.connection.closing()
    }
}

/// An admin queue and one I/O queue of one controller.
pub(crate) struct Host {
    pub(crate) admin: Line,
    pub(crate) io: Line,
    pub(crate) controller: u16,
}

impl Host {
    pub(crate) fn new(target: &Arc<Target>, number: u8) -> Self {
        Self::with(target, number, Digests::default(), 128, 0)
    }

    pub(crate) fn with(
        target: &Arc<Target>,
        number: u8,
        digests: Digests,
        entries: u16,
        attributes: u8,
    ) -> Self {
        let (admin, controller) = admin(target, number, digests);
        let mut io = Line::initialized(target, number, digests);
        let connected = io.connect_to(SUBSYSTEM, 1, entries, controller, attributes);
        assert!(connected.status().is_success(), "{:?}", connected.status());
        Self {
            admin,
            io,
            controller,
        }
    }
}

/// An admin queue with an enabled controller and a granted I/O queue.
pub(crate) fn admin(target: &Arc<Target>, number: u8, digests: Digests) -> (Line, u16) {
    let mut admin = Line::initialized(target, number, digests);
    let connected = admin.connect_to(SUBSYSTEM, 0, 32, 0xffff, 0);
    assert!(connected.status().is_success(), "{:?}", connected.status());
    let controller = connected.result as u16;
    admin.enable();
    let queues = Command {
        opcode: wire::nvme::Admin::SetFeatures as u8,
        cdw10: wire::nvme::feature::QUEUES.into(),
        cdw11: 3 | 3 << 16,
        ..Command::default()
    };
    assert_eq!(admin.plain(queues).result, 3 | 3 << 16);
    (admin, controller)
}

/// The I/O queue of host 1 without a transport.
pub(crate) fn bare_queue(target: &Arc<Target>, controller_id: u16) -> Queue {
    let origin = Origin {
        port: 1,
        local: ([192, 0, 2, 1], 4420).into(),
        peer: [192, 0, 2, 1].into(),
    };
    let mut queue = Queue::new(Arc::clone(target), origin, Arc::new(NoWake));
    let connect = Connect {
        format: 0,
        queue_id: 1,
        size: 127,
        attributes: 0,
        keep_alive_ms: 0,
    };
    let (subsystem, host) = (text::zeroed(SUBSYSTEM), text::zeroed(&host_name(1)));
    let data = ConnectData {
        host_id: [1; 16],
        controller_id,
        subsystem,
        host,
    }
    .to_bytes();
    let mut buffer = Buffer::zeroed(data.len());
    buffer[..data.len()].copy_from_slice(&data);
    let plan = queue.accept(&connect.to_command(0), data.len() as u32, 0);
    let Plan::Take(request) = plan else {
        panic!("{plan:?}")
    };
    assert!(
        !request.is_written_in_place(),
        "a Fabrics command writes nothing"
    );
    let outcome = queue.execute(request, Some(buffer), 0);
    let Outcome::Reply(completion, _) = outcome else {
        panic!("{outcome:?}")
    };
    assert!(
        completion.status().is_success(),
        "{:?}",
        completion.status()
    );
    queue
}

pub(crate) fn request_event(line: &mut Line, cid: u16) {
    let command = Command {
        cid,
        opcode: wire::nvme::Admin::AsyncEventRequest as u8,
        ..Command::default()
    };
    line.send(
        &Header::Command(command.with_sgl(Sgl::Transport { length: 0 })),
        0,
        &[],
    );
}

pub(crate) fn io(kind: wire::nvme::Io, start: u64, count: u32) -> Command {
    let blocks = wire::nvme::command::Blocks { start, count };
    Command {
        opcode: kind as u8,
        nsid: 1,
        ..Command::default()
    }
    .with_blocks(blocks)
}

/// Data that depend on their offset.
pub(crate) fn pattern(seed: u64, length: usize) -> Vec<u8> {
    (0..length as u64)
        .map(|at| (at.wrapping_mul(0x9e37_79b9) ^ seed.wrapping_mul(31) ^ at >> 9) as u8)
        .collect()
}

pub(crate) fn fabrics_nothing() -> Command {
    fabrics::fabrics(Fabrics::Disconnect, 0)
}

pub(crate) const RESPONSE: Kind = Kind::Response;

//! A small NVMe/TCP target that behaves as a test says: values of ICResp and of properties, refusals, late
//! answers. It records what the host sends.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use nvme::limits::TRANSFER_BYTES_MAX;
use wire::nvme::fabrics::{Connect, Property};
use wire::nvme::identify::{self, IDENTIFY_SIZE, cns};
use wire::nvme::property;
use wire::nvme::tcp::{
    CommonHeader, Data, Digests, ENCODED_MAX, Frame, Header, Initialize, ReadyToTransfer, flag,
};
use wire::nvme::{Admin, Command, Completion, Fabrics, Io, Status, opcode};

/// What the target does.
#[derive(Clone)]
pub(crate) struct Behaviour {
    /// The fields of ICResp.
    pub(crate) response: Initialize,
    /// The properties: CAP, CRTO, and CSTS once the controller is ready.
    pub(crate) capabilities: u64,
    pub(crate) ready_timeouts: u64,
    pub(crate) status: u64,
    /// The time from CC.EN to CSTS.RDY.
    pub(crate) ready_after: Duration,
    pub(crate) controller: identify::Controller,
    /// Active namespaces, of which each has `format`: metadata bytes, and block size as a power of two.
    pub(crate) namespaces: Vec<u32>,
    pub(crate) format: (u16, u8),
    /// Whether the format has an index above 15.
    pub(crate) late_format: bool,
    /// Statuses of the first commands with an opcode; further ones succeed. Connect has the opcode FABRICS.
    pub(crate) refusals: HashMap<u8, Vec<Status>>,
    /// Whether Keep Alive is answered, and whether the controller ends without Keep Alive.
    pub(crate) answers_keep_alive: bool,
    pub(crate) demands_keep_alive: bool,
    /// I/O queues that are granted.
    pub(crate) queues: u32,
    /// Whether writes are not executed until [`Peer::release_writes`].
    pub(crate) holds_writes: bool,
    /// Whether a shutdown of the controller is ever complete.
    pub(crate) shuts_down: bool,
}

pub(crate) const BLOCK: usize = 4096;
pub(crate) const BLOCKS: u64 = 1024;
/// In-capsule data of an I/O queue.
pub(crate) const IN_CAPSULE: usize = 4096;

impl Default for Behaviour {
    fn default() -> Self {
        let controller = identify::Controller {
            command_capsule: (64 + IN_CAPSULE as u32) / 16,
            response_capsule: 1,
            keep_alive: 1,
            transfer_max: 5,
            ..identify::Controller::split(&[0; IDENTIFY_SIZE]).unwrap().0
        };
        Self {
            response: Initialize {
                format: 0,
                alignment: 0,
                digests: 0,
                limit: 131_072,
            },
            capabilities: 127 | 1 << 16 | 1 << 24 | 1 << 37,
            ready_timeouts: 0,
            status: 1,
            ready_after: Duration::ZERO,
            controller,
            namespaces: vec![1],
            format: (0, 12),
            late_format: false,
            refusals: HashMap::new(),
            answers_keep_alive: true,
            demands_keep_alive: false,
            queues: 8,
            holds_writes: false,
            shuts_down: true,
        }
    }
}

/// What the host has sent.
#[derive(Default)]
pub(crate) struct Seen {
    /// Data offsets (PDO) of PDUs with data, and the length of their data.
    pub(crate) data: Vec<(u8, usize)>,
    pub(crate) keep_alives: usize,
    pub(crate) connects: Vec<(Connect, String, String)>,
    pub(crate) configuration: u32,
    pub(crate) host_behaviour: usize,
    /// How often each opcode came on an I/O queue.
    pub(crate) commands: HashMap<u8, usize>,
    /// Writes that were executed, and those of them after the shutdown of the controller.
    pub(crate) written: usize,
    pub(crate) written_after_shutdown: usize,
}

struct State {
    behaviour: Mutex<Behaviour>,
    seen: Mutex<Seen>,
    memory: Mutex<Vec<u8>>,
    enabled: Mutex<Option<Instant>>,
    kept_alive: Mutex<Instant>,
}

/// A running target; its threads end with their connections.
pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    state: Arc<State>,
}

impl Peer {
    pub(crate) fn start(behaviour: Behaviour) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State {
            behaviour: Mutex::new(behaviour),
            seen: Mutex::default(),
            memory: Mutex::new(vec![0; BLOCKS as usize * BLOCK]),
            enabled: Mutex::default(),
            kept_alive: Mutex::new(Instant::now()),
        });
        let accepted = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = Arc::clone(&accepted);
                std::thread::spawn(move || Line::new(&state, stream).serve());
            }
        });
        Self { address, state }
    }

    /// Executes the writes that were held.
    pub(crate) fn release_writes(&self) {
        self.state.behaviour.lock().unwrap().holds_writes = false;
    }

    /// Whether the host has shut down the controller.
    pub(crate) fn is_shut_down(&self) -> bool {
        self.seen().configuration & property::configuration::SHUTDOWN != 0
    }

    pub(crate) fn seen(&self) -> MutexGuard<'_, Seen> {
        self.state.seen.lock().unwrap()
    }
}

/// A command whose data have not all come.
struct Pending {
    command: Command,
    data: Vec<u8>,
    received: usize,
}

/// One connection of a host, which is one queue.
struct Line<'a> {
    state: &'a State,
    stream: TcpStream,
    queue: Option<u16>,
    keep_alive: Duration,
    pending: HashMap<u16, Pending>,
}

impl<'a> Line<'a> {
    fn new(state: &'a State, stream: TcpStream) -> Self {
        stream.set_nodelay(true).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_millis(50)))
            .unwrap();
        Self {
            state,
            stream,
            queue: None,
            keep_alive: Duration::ZERO,
            pending: HashMap::new(),
        }
    }

    /// Serves until the connection ends.
    fn serve(&mut self) -> io::Result<()> {
        loop {
            let mut bytes = [0; CommonHeader::SIZE];
            self.receive(&mut bytes)?;
            let (common, _) = CommonHeader::split(&bytes).unwrap();
            let frame = Frame::parse(&common, Digests::default(), TRANSFER_BYTES_MAX).unwrap();
            let mut rest = vec![0; common.length as usize - bytes.len()];
            self.receive(&mut rest)?;
            let header = Header::parse(frame.kind, &rest).unwrap();
            let data = &rest[rest.len() - frame.data..];
            if frame.data > 0 {
                self.state
                    .seen
                    .lock()
                    .unwrap()
                    .data
                    .push((common.data_offset, frame.data));
            }
            match header {
                Header::InitializeRequest(_) => {
                    let response = self.behaviour().response;
                    self.send(&Header::InitializeResponse(response), 0, &[])?;
                }
                Header::Command(command) => self.command(command, data)?,
                Header::HostData(part) => self.data(&part, data)?,
                other => panic!("{other:?}"),
            }
        }
    }

    fn is_shut_down(&self) -> bool {
        self.state.seen.lock().unwrap().configuration & property::configuration::SHUTDOWN != 0
    }

    fn behaviour(&self) -> MutexGuard<'_, Behaviour> {
        self.state.behaviour.lock().unwrap()
    }

    /// Receives; ends the connection when the host was silent for the keep alive timeout.
    fn receive(&mut self, mut bytes: &mut [u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.stream.read(bytes) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => bytes = &mut bytes[count..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let silent = self.state.kept_alive.lock().unwrap().elapsed();
                    let is_demanded =
                        self.behaviour().demands_keep_alive && !self.keep_alive.is_zero();
                    if is_demanded && silent > self.keep_alive {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn send(&mut self, header: &Header, flags: u8, data: &[u8]) -> io::Result<()> {
        let mut head = [0; ENCODED_MAX];
        let length = header.encode(flags, Digests::default(), data.len(), 4, &mut head);
        self.stream.write_all(&[&head[..length], data].concat())
    }

    fn respond(&mut self, cid: u16, status: Status, result: u64) -> io::Result<()> {
        let completion = Completion {
            result,
            ..Completion::new(cid, status)
        };
        self.send(&Header::Response(completion), 0, &[])
    }

    /// Sends data, and success.
    fn give(&mut self, cid: u16, data: &[u8]) -> io::Result<()> {
        let header = Data {
            cid,
            tag: 0,
            offset: 0,
            length: data.len() as u32,
        };
        self.send(&Header::ControllerData(header), flag::LAST, data)?;
        self.respond(cid, Status::SUCCESS, 0)
    }

    fn command(&mut self, command: Command, data: &[u8]) -> io::Result<()> {
        let is_connect =
            command.opcode == opcode::FABRICS && command.nsid as u8 == Fabrics::Connect as u8;
        let is_io = self.queue.is_some_and(|queue| queue > 0);
        if is_io {
            *self
                .state
                .seen
                .lock()
                .unwrap()
                .commands
                .entry(command.opcode)
                .or_default() += 1;
        }
        if is_connect || is_io {
            let refusal = {
                let mut behaviour = self.behaviour();
                let refusals = behaviour.refusals.get_mut(&command.opcode);
                refusals
                    .filter(|them| !them.is_empty())
                    .map(|them| them.remove(0))
            };
            if let Some(status) = refusal {
                return self.respond(command.cid, status, 0);
            }
        }
        match command.opcode {
            opcode::FABRICS => self.fabrics(command, data),
            _ if is_io => self.io(command, data),
            _ => self.admin(command, data),
        }
    }

    fn fabrics(&mut self, command: Command, data: &[u8]) -> io::Result<()> {
        let cid = command.cid;
        match command.nsid as u8 {
            kind if kind == Fabrics::Connect as u8 => {
                let connect = Connect::parse(&command);
                self.queue = Some(connect.queue_id);
                let name = |from: usize| {
                    let end = data[from..].iter().position(|byte| *byte == 0).unwrap();
                    String::from_utf8(data[from..from + end].to_vec()).unwrap()
                };
                self.state
                    .seen
                    .lock()
                    .unwrap()
                    .connects
                    .push((connect, name(256), name(512)));
                if connect.queue_id == 0 {
                    self.keep_alive = Duration::from_millis(connect.keep_alive_ms.into());
                    *self.state.kept_alive.lock().unwrap() = Instant::now();
                }
                self.respond(cid, Status::SUCCESS, 1)
            }
            kind if kind == Fabrics::PropertySet as u8 => {
                let set = Property::parse(&command).unwrap();
                if set.offset == property::CONFIGURATION {
                    self.state.seen.lock().unwrap().configuration = set.value as u32;
                    *self.state.enabled.lock().unwrap() = Some(Instant::now());
                }
                self.respond(cid, Status::SUCCESS, 0)
            }
            _ => {
                let behaviour = self.behaviour().clone();
                let enabled = *self.state.enabled.lock().unwrap();
                let value = match Property::parse(&command).unwrap().offset {
                    property::CAPABILITIES => behaviour.capabilities,
                    property::READY_TIMEOUTS => behaviour.ready_timeouts,
                    property::CONFIGURATION => self.state.seen.lock().unwrap().configuration.into(),
                    property::STATUS if self.is_shut_down() && behaviour.shuts_down => {
                        property::status::SHUTDOWN_COMPLETE.into()
                    }
                    _ if enabled.is_some_and(|at| at.elapsed() >= behaviour.ready_after) => {
                        behaviour.status
                    }
                    _ => 0,
                };
                self.respond(cid, Status::SUCCESS, value)
            }
        }
    }

    fn admin(&mut self, command: Command, data: &[u8]) -> io::Result<()> {
        let cid = command.cid;
        let behaviour = self.behaviour().clone();
        match command.opcode {
            code if code == Admin::Identify as u8 => {
                let mut bytes = vec![0; IDENTIFY_SIZE];
                match command.cdw10 as u8 {
                    cns::CONTROLLER => bytes = behaviour.controller.to_bytes().to_vec(),
                    cns::ACTIVE => {
                        let after = behaviour
                            .namespaces
                            .iter()
                            .filter(|nsid| **nsid > command.nsid);
                        for (place, nsid) in bytes.chunks_exact_mut(4).zip(after) {
                            place.copy_from_slice(&nsid.to_le_bytes());
                        }
                    }
                    _ => namespace(&behaviour, &mut bytes),
                }
                self.give(cid, &bytes)
            }
            code if code == Admin::SetFeatures as u8 && !data.is_empty() => {
                self.state.seen.lock().unwrap().host_behaviour += usize::from(data[0]);
                self.respond(cid, Status::SUCCESS, 0)
            }
            code if code == Admin::SetFeatures as u8 => {
                let granted = u64::from(behaviour.queues - 1);
                self.respond(cid, Status::SUCCESS, granted | granted << 16)
            }
            code if code == Admin::KeepAlive as u8 => {
                self.state.seen.lock().unwrap().keep_alives += 1;
                *self.state.kept_alive.lock().unwrap() = Instant::now();
                if behaviour.answers_keep_alive {
                    self.respond(cid, Status::SUCCESS, 0)
                } else {
                    Ok(())
                }
            }
            _ => self.respond(cid, Status::INVALID_OPCODE.permanent(), 0),
        }
    }

    fn io(&mut self, command: Command, data: &[u8]) -> io::Result<()> {
        let cid = command.cid;
        let blocks = command.blocks();
        let from = blocks.start as usize * BLOCK;
        let length = blocks.count as usize * BLOCK;
        match command.opcode {
            code if code == Io::Read as u8 => {
                let data = self.state.memory.lock().unwrap()[from..from + length].to_vec();
                self.give(cid, &data)
            }
            code if code == Io::Write as u8 && data.is_empty() => {
                self.pending.insert(
                    cid,
                    Pending {
                        command,
                        data: vec![0; length],
                        received: 0,
                    },
                );
                let ready = ReadyToTransfer {
                    cid,
                    tag: 9,
                    offset: 0,
                    length: length as u32,
                };
                self.send(&Header::ReadyToTransfer(ready), 0, &[])
            }
            code if code == Io::Write as u8 => {
                while self.behaviour().holds_writes {
                    std::thread::sleep(Duration::from_millis(1));
                }
                let is_late = self.is_shut_down();
                let mut seen = self.state.seen.lock().unwrap();
                seen.written += 1;
                seen.written_after_shutdown += usize::from(is_late);
                drop(seen);
                self.state.memory.lock().unwrap()[from..from + length].copy_from_slice(data);
                self.respond(cid, Status::SUCCESS, 0)
            }
            _ => self.respond(cid, Status::SUCCESS, 0),
        }
    }

    fn data(&mut self, part: &Data, data: &[u8]) -> io::Result<()> {
        let pending = self.pending.get_mut(&part.cid).unwrap();
        let from = part.offset as usize;
        pending.data[from..from + data.len()].copy_from_slice(data);
        pending.received += data.len();
        if pending.received < pending.data.len() {
            return Ok(());
        }
        let Pending { command, data, .. } = self.pending.remove(&part.cid).unwrap();
        self.io(command, &data)
    }
}

fn namespace(behaviour: &Behaviour, bytes: &mut [u8]) {
    let (metadata, shift) = behaviour.format;
    bytes[..8].copy_from_slice(&BLOCKS.to_le_bytes());
    // FLBAS: format 0, or 17 by its lower and upper bits.
    bytes[26] = if behaviour.late_format { 1 | 1 << 5 } else { 0 };
    let index = if behaviour.late_format { 17 } else { 0 };
    bytes[128 + 4 * index..][..2].copy_from_slice(&metadata.to_le_bytes());
    bytes[128 + 4 * index + 2] = shift;
}

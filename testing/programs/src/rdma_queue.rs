//! A queue of an NVMe/RDMA host that posts receives when its test wants to. Without a receive the response at
//! the head of the target's send queue waits (RNR), and behind it every RDMA READ and WRITE of the queue.
//!
//! Programs that use it run under `rockery run`.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use buffer::Buffer;
use nvme::limits::RDMA_IN_CAPSULE;
use rdma::{Connection, Domain, Done, Sizes};
use wire::nvme::fabrics::{Connect, ConnectData, Property};
use wire::nvme::rdma::Request;
use wire::nvme::{
    Admin, COMMAND_SIZE, COMPLETION_SIZE, Command, Completion, Fabrics, Sgl, feature, property,
    text,
};

/// How long the target may take, on a busy machine.
pub const TIMEOUT: Duration = Duration::from_secs(60);
/// Memory of a queue that the target may read and write.
pub const MEMORY: usize = 1 << 20;
/// Controller identifier of Connect for a new controller.
pub const NEW_CONTROLLER: u16 = 0xffff;
/// Receives that can be posted at once.
const RECEIVES: u32 = 128;
/// Reason of a REJ (IBTA, table 107).
const STALE_CONNECTION: i32 = 10;
/// Where Connect data and the data of [`RdmaQueue::succeed`] are.
const OWN_DATA: Range<usize> = MEMORY - 4096..MEMORY;

/// A connection, which is a queue after Connect.
pub struct RdmaQueue {
    connection: Connection,
    memory: Buffer,
    cid: u16,
    responses: Vec<Completion>,
    has_ended: bool,
}

fn failed(what: &str) -> impl FnOnce(rdma::Error) -> String {
    move |error| format!("{what}: {error}")
}

/// The NQN of the host with this number.
pub fn host_name(number: u8) -> String {
    format!("nqn.2014-08.org.nvmexpress:uuid:host{number}")
}

impl RdmaQueue {
    /// Connects by CM, with receives for that many responses, and does not send Connect.
    ///
    /// # Errors
    /// When the target rejects the connection.
    pub fn open(
        address: SocketAddr,
        queue_id: u16,
        controller_id: u16,
        entries: u16,
        receives: usize,
    ) -> Result<Self, String> {
        let private = Request {
            format: 0,
            queue_id,
            receive_size: entries,
            send_size: entries - 1,
            controller_id,
        };
        let sizes = Sizes {
            send: 256,
            receive: RECEIVES,
            reads: 0,
            rnr_retry: 7,
        };
        let prepare = |connection: &mut Connection, domain: &Arc<Domain>| {
            (0..receives).try_for_each(|_| post_receive(connection, domain))
        };
        let end = Instant::now() + TIMEOUT;
        let (connection, _) = loop {
            match Connection::connect(address, sizes, &private.to_bytes(), prepare) {
                // The target has a connection of a queue pair that had this number before, and was lost.
                // The rejection makes it end that one (IBTA 12.9.8.3.1).
                Err(rdma::Error::Rejected { reason, .. })
                    if reason == STALE_CONNECTION && Instant::now() < end => {}
                connected => break connected.map_err(failed("CM"))?,
            }
        };
        let memory = connection.domain().open(MEMORY).map_err(failed("memory"))?;
        Ok(Self {
            connection,
            memory,
            cid: 0,
            responses: Vec::new(),
            has_ended: false,
        })
    }

    /// The memory that the target may read and write.
    pub fn memory(&mut self) -> &mut Buffer {
        &mut self.memory
    }

    /// An SGL for a part of the memory.
    ///
    /// # Panics
    /// Never: the memory is open to the target.
    pub fn keyed(&self, part: Range<usize>) -> Sgl {
        let domain = self.connection.domain();
        let (address, key) = domain.remote(&self.memory).expect("it is open");
        Sgl::Keyed {
            address: address + part.start as u64,
            length: part.len() as u32,
            key,
            invalidate: false,
        }
    }

    /// Posts receives for further responses.
    ///
    /// # Errors
    /// When the connection has ended.
    pub fn post_receives(&mut self, count: usize) -> Result<(), String> {
        let domain = Arc::clone(self.connection.domain());
        (0..count)
            .try_for_each(|_| post_receive(&mut self.connection, &domain))
            .and_then(|()| self.connection.flush())
            .map_err(failed("a receive"))
    }

    /// Sends a command with an SGL; returns its CID.
    ///
    /// # Errors
    /// When the connection has ended.
    pub fn send(&mut self, command: Command, sgl: Sgl) -> Result<u16, String> {
        self.send_with_data(command, sgl, &[])
    }

    /// Sends a command with its data in the capsule.
    ///
    /// # Errors
    /// When the connection has ended.
    pub fn send_in_capsule(&mut self, command: Command, data: &[u8]) -> Result<u16, String> {
        assert!(data.len() <= RDMA_IN_CAPSULE, "{} bytes", data.len());
        let length = data.len() as u32;
        self.send_with_data(command, Sgl::InCapsule { offset: 0, length }, data)
    }

    fn send_with_data(&mut self, command: Command, sgl: Sgl, data: &[u8]) -> Result<u16, String> {
        self.cid = self.cid.wrapping_add(1);
        let cid = self.cid;
        let command = Command { cid, ..command }.with_sgl(sgl);
        let length = COMMAND_SIZE + data.len();
        let domain = Arc::clone(self.connection.domain());
        let mut capsule = domain.registered(length).map_err(failed("a capsule"))?;
        capsule[..COMMAND_SIZE].copy_from_slice(&command.to_bytes());
        capsule[COMMAND_SIZE..length].copy_from_slice(data);
        self.connection
            .send(capsule, length, None, 1)
            .map_err(|(error, _)| error)
            .and_then(|()| self.connection.flush())
            .map_err(failed("a capsule"))?;
        Ok(cid)
    }

    /// Takes what has come.
    fn poll(&mut self) {
        let mut completed = Vec::new();
        let polled = self.connection.poll(&mut completed);
        for completed in completed {
            match (completed.done, completed.buffer) {
                (Ok(Done::Receive(_)), Some(buffer)) => {
                    let split = Completion::split(&buffer).map(|(completion, _)| completion);
                    self.responses.extend(split);
                }
                (Err(_), _) => self.has_ended = true,
                _ => {}
            }
        }
        self.has_ended |= polled.is_err() || self.connection.check_events().is_err();
    }

    /// Whether the target has ended the connection.
    pub fn has_ended(&mut self) -> bool {
        self.poll();
        self.has_ended
    }

    /// The next response; `None` when the connection has ended.
    ///
    /// # Errors
    /// When there is none in time.
    pub fn response(&mut self) -> Result<Option<Completion>, String> {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            self.poll();
            if !self.responses.is_empty() {
                return Ok(Some(self.responses.remove(0)));
            }
            if self.has_ended {
                return Ok(None);
            }
            if Instant::now() > deadline {
                return Err("no response in time".to_owned());
            }
            std::thread::yield_now();
        }
    }

    /// Sends a command with data of up to 4096 bytes, which the target reads, and waits for its success. A
    /// receive for its response is posted.
    ///
    /// # Errors
    /// When the command fails.
    pub fn succeed(&mut self, command: Command, data: &[u8]) -> Result<u64, String> {
        self.post_receives(1)?;
        let at = OWN_DATA.start..OWN_DATA.start + data.len();
        self.memory[at.clone()].copy_from_slice(data);
        self.send(command, self.keyed(at))?;
        match self.response()? {
            Some(completion) if completion.status().is_success() => Ok(completion.result),
            Some(completion) => Err(format!(
                "opcode {:#x}: {}",
                command.opcode,
                completion.status()
            )),
            None => Err(format!(
                "opcode {:#x}: the connection ended",
                command.opcode
            )),
        }
    }

    /// Becomes a queue of a controller; returns the identifier of the controller, and the upper bits of the
    /// result of Connect.
    ///
    /// # Errors
    /// When the target refuses.
    pub fn connect(
        &mut self,
        subsystem: &str,
        host: u8,
        queue_id: u16,
        controller_id: u16,
        entries: u16,
    ) -> Result<u64, String> {
        let (command, data) = connect(subsystem, host, queue_id, controller_id, entries);
        self.succeed(command, &data)
    }

    /// Sends Connect for a new controller, with its data in the capsule, without a receive for the response.
    ///
    /// # Errors
    /// When the connection has ended.
    pub fn send_connect(&mut self, subsystem: &str, host: u8, entries: u16) -> Result<u16, String> {
        let (command, data) = connect(subsystem, host, 0, NEW_CONTROLLER, entries);
        self.send_in_capsule(command, &data)
    }

    /// Sets CC of the controller, on its admin queue.
    ///
    /// # Errors
    /// When the target refuses.
    pub fn configure(&mut self, value: u32) -> Result<(), String> {
        let property = Property {
            wide: false,
            offset: property::CONFIGURATION,
            value: value.into(),
        };
        let command = property.to_command(Fabrics::PropertySet, 0);
        self.succeed(command, &[]).map(drop)
    }
}

fn connect(
    subsystem: &str,
    host: u8,
    queue_id: u16,
    controller_id: u16,
    entries: u16,
) -> (Command, [u8; ConnectData::SIZE]) {
    let connect = Connect {
        format: 0,
        queue_id,
        size: entries - 1,
        attributes: 0,
        keep_alive_ms: 0,
    };
    let data = ConnectData {
        host_id: [host; 16],
        controller_id,
        subsystem: text::zeroed(subsystem),
        host: text::zeroed(&host_name(host)),
    };
    (connect.to_command(0), data.to_bytes())
}

fn post_receive(connection: &mut Connection, domain: &Arc<Domain>) -> Result<(), rdma::Error> {
    let buffer = domain.registered(COMPLETION_SIZE)?;
    connection.receive(buffer, 0).map_err(|(error, _)| error)
}

/// An admin queue and I/O queues of one controller.
pub struct RdmaHost {
    /// The admin queue.
    pub admin: RdmaQueue,
    /// The I/O queues.
    pub io: Vec<RdmaQueue>,
}

impl RdmaHost {
    /// Connects the host with this number, with that many I/O queues: its name and its Host Identifier depend
    /// on it. No receive is posted afterwards.
    ///
    /// # Errors
    /// When the target refuses.
    pub fn new(
        address: SocketAddr,
        subsystem: &str,
        number: u8,
        queues: u16,
    ) -> Result<Self, String> {
        const ENTRIES: u16 = 32;
        let mut admin = RdmaQueue::open(address, 0, NEW_CONTROLLER, ENTRIES, 0)?;
        let controller = admin.connect(subsystem, number, 0, NEW_CONTROLLER, ENTRIES)? as u16;
        admin.configure(property::configuration::ENABLE | property::configuration::ENTRIES)?;
        let wanted = u32::from(queues.max(1) - 1);
        let grant = Command {
            opcode: Admin::SetFeatures as u8,
            cdw10: feature::QUEUES.into(),
            cdw11: wanted | wanted << 16,
            ..Command::default()
        };
        admin.succeed(grant, &[])?;
        let mut io = Vec::new();
        for queue_id in 1..=queues {
            const ENTRIES: u16 = 64;
            let mut queue = RdmaQueue::open(address, queue_id, controller, ENTRIES, 0)?;
            queue.connect(subsystem, number, queue_id, controller, ENTRIES)?;
            io.push(queue);
        }
        Ok(Self { admin, io })
    }
}

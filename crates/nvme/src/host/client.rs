//! The connection of a host to one controller.

use std::net::SocketAddr;

use buffer::Buffer;
use wire::nvme::auth::CONNECT_AUTHENTICATE;
use wire::nvme::discovery::{Entry, Head, kind, tcp_specific, transport};
use wire::nvme::fabrics::{CONTROLLER_DYNAMIC, Connect, ConnectData, DISCOVERY_NQN, Property};
use wire::nvme::identify::{self, IDENTIFY_SIZE, cns};
use wire::nvme::property::{self, Capabilities, configuration};
use wire::nvme::{Admin, Command, Fabrics, Io, feature, log, text};

use super::HostError;
use super::authentication::prove;
use super::commands::Payload;
use super::parameters::{Options, QueueParameters, Transport};
use super::queue::Queue;
use crate::limits::{ADMIN_ENTRIES, QUEUE_ENTRIES_MAX, TCP_IN_CAPSULE_ADMIN, TRANSFER_BYTES_MAX};
use crate::nqn::Nqn;

/// Properties of a controller, from Identify.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Controller {
    /// All fields of the Identify Controller data structure.
    pub identified: identify::Controller,
    /// The longest transfer in bytes (from MDTS).
    pub transfer_max: usize,
    /// The depth of I/O queues: CAP.MQES, since one entry of a queue always stays free.
    pub depth_max: u16,
}

/// Properties of a namespace, from Identify.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Namespace {
    /// The namespace identifier (NSID).
    pub nsid: u32,
    /// The size in logical blocks (NSZE).
    pub blocks: u64,
    /// The size of a logical block in bytes.
    pub block_size: usize,
}

/// An entry of a discovery log page: a path to a subsystem.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Discovered {
    /// `tcp` or `rdma`.
    pub transport: &'static str,
    /// The transport address (TRADDR), an IP address as text.
    pub address: String,
    /// The transport service identifier (TRSVCID): the port number as text.
    pub service: String,
    /// The NQN of the subsystem (SUBNQN).
    pub subsystem: String,
    /// `nvm`, `referral` or `current`.
    pub kind: &'static str,
    /// Whether the port requires TLS.
    pub tls: bool,
}

/// A connection to one controller: its admin queue, and what creates its I/O queues.
#[derive(Debug)]
pub struct Client {
    admin: Queue,
    address: SocketAddr,
    subsystem: Nqn,
    options: Options,
    id: u16,
    controller: Controller,
}

impl Client {
    /// Connects to a subsystem, and enables its controller.
    ///
    /// # Errors
    /// When the target does not respond, or refuses the connection.
    pub fn connect(address: SocketAddr, subsystem: &Nqn, options: &Options) -> Result<Self, HostError> {
        let (id, controller) = (0, CONTROLLER_DYNAMIC);
        let (depth, entries) = (ADMIN_ENTRIES, ADMIN_ENTRIES);
        let in_capsule = match options.transport {
            Transport::Tcp => TCP_IN_CAPSULE_ADMIN,
            // nvmet over RDMA accepts 64 bytes of in-capsule data there, less than those of Connect: the
            // target reads them by RDMA.
            Transport::Rdma => 0,
        };
        let role = QueueParameters { id, controller, depth, entries, in_capsule };
        let mut admin = Queue::connect(address, role, subsystem, options)?;
        let id = send_connect(&mut admin, 0, ADMIN_ENTRIES, CONTROLLER_DYNAMIC, subsystem, options)?;
        let value = u64::from(configuration::ENABLE | configuration::ENTRIES);
        let enable = Property { wide: false, offset: property::CONFIGURATION, value };
        admin.call("Property Set", enable.to_command(Fabrics::PropertySet, 0), Payload::None)?;
        let status = Property { wide: false, offset: property::STATUS, value: 0 };
        let command = status.to_command(Fabrics::PropertyGet, 0);
        let ready = admin.call("Property Get", command, Payload::None)?.completion.result;
        if ready & 1 == 0 {
            return Err(HostError::Protocol("the controller does not become ready"));
        }
        let capabilities = Property { wide: true, offset: property::CAPABILITIES, value: 0 };
        let command = capabilities.to_command(Fabrics::PropertyGet, 0);
        let bits = admin.call("Property Get", command, Payload::None)?.completion.result;
        let capabilities = Capabilities::parse(bits);
        let bytes = identify_with(&mut admin, cns::CONTROLLER, 0)?;
        let (identified, _) = identify::Controller::split(&bytes).ok_or(HostError::Protocol("Identify"))?;
        let transfer_max = match identified.transfer_max {
            0 => TRANSFER_BYTES_MAX,
            pages => {
                let shift = u32::from(pages) + u32::from(capabilities.page_min);
                TRANSFER_BYTES_MAX.min(4096_usize << shift.min(32))
            }
        };
        let depth_max = capabilities.entries_max.clamp(1, QUEUE_ENTRIES_MAX - 1);
        let controller = Controller { identified, transfer_max, depth_max };
        let (subsystem, options) = (subsystem.clone(), options.clone());
        Ok(Self { admin, address, subsystem, options, id, controller })
    }

    /// Properties of the controller.
    pub fn controller(&self) -> &Controller {
        &self.controller
    }

    /// The active namespaces of the controller.
    ///
    /// # Errors
    /// When the connection is broken.
    pub fn namespaces(&mut self) -> Result<Vec<Namespace>, HostError> {
        let list = identify_with(&mut self.admin, cns::ACTIVE, 0)?;
        let numbers: Vec<u32> =
            list.chunks_exact(4).map(|it| u32::from_le_bytes([it[0], it[1], it[2], it[3]])).collect();
        numbers.into_iter().take_while(|nsid| *nsid != 0).map(|nsid| self.namespace(nsid)).collect()
    }

    /// Properties of one namespace.
    ///
    /// # Errors
    /// When the namespace does not exist.
    pub fn namespace(&mut self, nsid: u32) -> Result<Namespace, HostError> {
        let bytes = identify_with(&mut self.admin, cns::NAMESPACE, nsid)?;
        let (found, _) = identify::Namespace::split(&bytes).ok_or(HostError::Protocol("Identify"))?;
        let place = 128 + 4 * usize::from(found.format & 0xf) + 2;
        let shift = bytes.get(place).copied().filter(|shift| (9..=16).contains(shift));
        let shift = shift.ok_or(HostError::Protocol("a namespace without blocks"))?;
        Ok(Namespace { nsid, blocks: found.size, block_size: 1 << shift })
    }

    /// The controller identifier (CNTLID).
    pub fn id(&self) -> u16 {
        self.id
    }

    /// Requests `count` I/O queues (Number of Queues) and creates them, each for `depth` outstanding
    /// commands, or for the maximum of the controller if that is lower ([`Controller::depth_max`],
    /// [`Queue::depth`]).
    ///
    /// # Errors
    /// When the target grants fewer queues, or refuses a connection.
    pub fn queues(&mut self, count: u16, depth: u16) -> Result<Vec<Queue>, HostError> {
        self.grant(count)?;
        (1..=count.max(1)).map(|number| self.queue(number, depth)).collect()
    }

    /// Requests `count` I/O queues (Number of Queues).
    ///
    /// # Errors
    /// When the target grants fewer queues.
    pub fn grant(&mut self, count: u16) -> Result<(), HostError> {
        let less_one = u32::from(count.max(1) - 1);
        let command = Command {
            opcode: Admin::SetFeatures as u8,
            cdw10: feature::QUEUES.into(),
            cdw11: less_one | less_one << 16,
            ..Command::default()
        };
        let granted = self.admin.call("Set Features", command, Payload::None)?.completion.result;
        if (granted & 0xffff) < u64::from(less_one) {
            return Err(HostError::Protocol("the target grants fewer queues"));
        }
        Ok(())
    }

    fn queue(&self, number: u16, depth: u16) -> Result<Queue, HostError> {
        let capsule = self.controller.identified.command_capsule as usize * 16;
        let in_capsule = capsule.saturating_sub(wire::nvme::COMMAND_SIZE);
        let depth = depth.clamp(1, self.controller.depth_max);
        // A queue of n entries holds n - 1 commands.
        let (id, controller, entries) = (number, self.id, depth + 1);
        let role = QueueParameters { id, controller, depth, entries, in_capsule };
        let mut queue = Queue::connect(self.address, role, &self.subsystem, &self.options)?;
        send_connect(&mut queue, number, entries, self.id, &self.subsystem, &self.options)?;
        Ok(queue)
    }

    /// Sends Keep Alive. Commands on any queue have the same effect.
    ///
    /// # Errors
    /// When the connection is broken.
    pub fn keep_alive(&mut self) -> Result<(), HostError> {
        let command = Command { opcode: Admin::KeepAlive as u8, ..Command::default() };
        self.admin.call("Keep Alive", command, Payload::None).map(drop)
    }
}

/// The entries of the log page of a discovery service.
///
/// # Errors
/// When the discovery service does not respond.
pub fn discover(address: SocketAddr, options: &Options) -> Result<Vec<Discovered>, HostError> {
    let discovery = Nqn::discovery();
    let mut client = Client::connect(address, &discovery, options)?;
    let mut page = |offset: usize, length: usize| {
        let request = log::Request {
            page: log::DISCOVERY,
            specific: 0,
            retain: false,
            length: length as u64,
            offset: offset as u64,
        };
        let payload = Payload::In(client.admin.buffer(length)?, length);
        let done = client.admin.call("Get Log Page", request.to_command(0, 0), payload)?;
        done.buffer.ok_or(HostError::Protocol("no data"))
    };
    let bytes = page(0, Head::SIZE)?;
    let (head, _) = Head::split(&bytes).ok_or(HostError::Protocol("a short log page"))?;
    let count = usize::try_from(head.count).unwrap_or(usize::MAX).min(TRANSFER_BYTES_MAX / Entry::SIZE - 1);
    let mut found = Vec::new();
    for index in 0..count {
        let bytes = page(Head::SIZE + index * Entry::SIZE, Entry::SIZE)?;
        let (entry, _) = Entry::split(&bytes).ok_or(HostError::Protocol("a short log page"))?;
        let of = |field: &[u8]| text::of(field).unwrap_or_default().to_owned();
        found.push(Discovered {
            transport: if entry.transport == transport::RDMA { "rdma" } else { "tcp" },
            address: of(&entry.address),
            service: of(&entry.service),
            subsystem: of(&entry.subsystem),
            kind: match entry.kind {
                kind::REFERRAL => "referral",
                kind::NVM => "nvm",
                _ => "current",
            },
            tls: entry.transport == transport::TCP && entry.specific == tcp_specific(true),
        });
    }
    Ok(found)
}

/// The NQN of discovery services.
pub const DISCOVERY: &str = DISCOVERY_NQN;

fn identify_with(admin: &mut Queue, kind: u8, nsid: u32) -> Result<Buffer, HostError> {
    let command = Command { opcode: Admin::Identify as u8, nsid, cdw10: kind.into(), ..Command::default() };
    let payload = Payload::In(admin.buffer(IDENTIFY_SIZE)?, IDENTIFY_SIZE);
    admin.call("Identify", command, payload)?.buffer.ok_or(HostError::Protocol("no data"))
}

fn send_connect(
    queue: &mut Queue,
    queue_id: u16,
    entries: u16,
    controller_id: u16,
    subsystem: &Nqn,
    options: &Options,
) -> Result<u16, HostError> {
    let data = ConnectData {
        host_id: options.host_id,
        controller_id,
        subsystem: text::zeroed(subsystem.as_str()),
        host: text::zeroed(options.host.as_str()),
    };
    let keep_alive_ms = if queue_id == 0 { KEEP_ALIVE_MS } else { 0 };
    let connect = Connect { format: 0, queue_id, size: entries - 1, attributes: FLOW, keep_alive_ms };
    let mut buffer = queue.buffer(ConnectData::SIZE)?;
    buffer[..ConnectData::SIZE].copy_from_slice(&data.to_bytes());
    let payload = Payload::Out(buffer, ConnectData::SIZE);
    let result = queue.call("Connect", connect.to_command(0), payload)?.completion.result;
    let secrets = options.secrets.as_ref().filter(|_| !subsystem.is_discovery());
    let asks = secrets.is_some_and(|it| it.controller_secret.is_some());
    match secrets {
        Some(secrets) if asks || result & CONNECT_AUTHENTICATE != 0 => {
            prove(queue, &options.host, subsystem, secrets)?;
        }
        None if result & CONNECT_AUTHENTICATE != 0 => return Err(HostError::NoSecret),
        _ => {}
    }
    Ok(result as u16)
}

/// Disables flow control of the submission queue: the host never has more commands outstanding than entries.
/// The target may then omit responses that only report success.
const FLOW: u8 = wire::nvme::fabrics::CONNECT_NO_FLOW_CONTROL;
/// The keep alive timeout (KATO): the target closes the controller after this time without a command.
const KEEP_ALIVE_MS: u32 = 120_000;

/// A Read or Write command.
pub fn transfer(kind: Io, nsid: u32, start: u64, count: u32) -> Command {
    let blocks = wire::nvme::command::Blocks { start, count };
    Command { opcode: kind as u8, nsid, ..Command::default() }.with_blocks(blocks)
}

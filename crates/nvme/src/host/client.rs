//! A controller, as a host has it.

use std::net::SocketAddr;

use rdma::Buffer;
use wire::nvme::auth::CONNECT_AUTHENTICATE;
use wire::nvme::discovery::{Entry, Head, kind, tcp_specific, transport};
use wire::nvme::fabrics::{CONTROLLER_DYNAMIC, Connect, ConnectData, DISCOVERY_NQN, Property};
use wire::nvme::identify::{self, IDENTIFY_SIZE, cns};
use wire::nvme::property::{self, configuration};
use wire::nvme::tcp::Digests;
use wire::nvme::{Admin, Command, Fabrics, Io, feature, log, text};

use super::HostError;
use super::authentication::prove;
use super::commands::Payload;
use super::queue::{Queue, Role, Transport};
use crate::auth::Secrets;
use crate::limits::{ADMIN_ENTRIES, TCP_IN_CAPSULE_ADMIN, TRANSFER_BYTES_MAX};
use crate::nqn::Nqn;
use crate::tls::{TlsKey, Version};

/// How a host connects.
#[derive(Clone, Debug)]
pub struct Options {
    /// Over what.
    pub transport: Transport,
    /// Who it is.
    pub host: Nqn,
    /// Who it is, as a UUID.
    pub host_id: [u8; 16],
    /// Digests that it asks for.
    pub digests: Digests,
    /// TCP's congestion control; the system's own when `None`.
    pub congestion: Option<String>,
    /// What this host proves itself with when it is asked. With a secret of the controller's, it asks itself,
    /// and does not go on without.
    pub secrets: Option<Secrets>,
    /// What TCP is encrypted with, if it is.
    pub tls: Option<Tls>,
}

/// How a host encrypts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tls {
    /// The key that the target knows it by.
    pub key: TlsKey,
    /// How the key is named.
    pub version: Version,
}

/// What Identify says of a controller.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Controller {
    /// Everything.
    pub identified: identify::Controller,
    /// Bytes of the longest transfer.
    pub transfer_max: usize,
}

/// What Identify says of a namespace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Namespace {
    /// Its number.
    pub nsid: u32,
    /// Its blocks.
    pub blocks: u64,
    /// Bytes of a block.
    pub block_size: usize,
}

/// A way to a subsystem.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Discovered {
    /// `tcp` or `rdma`.
    pub transport: &'static str,
    /// Where.
    pub address: String,
    /// The service.
    pub service: String,
    /// The subsystem.
    pub subsystem: String,
    /// `nvm`, `referral` or `current`.
    pub kind: &'static str,
    /// Whether it takes TLS.
    pub tls: bool,
}

/// A controller.
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
    /// Connects to a subsystem and switches its controller on.
    ///
    /// # Errors
    /// When the target does not answer, or refuses.
    pub fn connect(address: SocketAddr, subsystem: &Nqn, options: &Options) -> Result<Self, HostError> {
        let (id, controller) = (0, CONTROLLER_DYNAMIC);
        let (depth, entries) = (ADMIN_ENTRIES, ADMIN_ENTRIES);
        let in_capsule = match options.transport {
            Transport::Tcp => TCP_IN_CAPSULE_ADMIN,
            // Linux's target has room for 64 bytes there: Connect's data are fetched as well.
            Transport::Rdma => 0,
        };
        let role = Role { id, controller, depth, entries, in_capsule };
        let mut admin = Queue::connect(address, role, subsystem, options)?;
        let id = say_connect(&mut admin, 0, ADMIN_ENTRIES, CONTROLLER_DYNAMIC, subsystem, options)?;
        let value = u64::from(configuration::ENABLE | configuration::ENTRIES);
        let enable = Property { wide: false, offset: property::CONFIGURATION, value };
        admin.call("Property Set", enable.to_command(Fabrics::PropertySet, 0), Payload::None)?;
        let status = Property { wide: false, offset: property::STATUS, value: 0 };
        let command = status.to_command(Fabrics::PropertyGet, 0);
        let ready = admin.call("Property Get", command, Payload::None)?.completion.result;
        if ready & 1 == 0 {
            return Err(HostError::Protocol("the controller does not become ready"));
        }
        let bytes = identify_with(&mut admin, cns::CONTROLLER, 0)?;
        let (identified, _) = identify::Controller::split(&bytes).ok_or(HostError::Protocol("Identify"))?;
        let transfer_max = match identified.transfer_max {
            0 => TRANSFER_BYTES_MAX,
            pages => TRANSFER_BYTES_MAX.min(4096_usize.checked_shl(pages.into()).unwrap_or(usize::MAX)),
        };
        let controller = Controller { identified, transfer_max };
        let (subsystem, options) = (subsystem.clone(), options.clone());
        Ok(Self { admin, address, subsystem, options, id, controller })
    }

    /// What it is.
    pub fn controller(&self) -> &Controller {
        &self.controller
    }

    /// The namespaces that it has.
    ///
    /// # Errors
    /// When the connection is broken.
    pub fn namespaces(&mut self) -> Result<Vec<Namespace>, HostError> {
        let list = identify_with(&mut self.admin, cns::ACTIVE, 0)?;
        let numbers: Vec<u32> =
            list.chunks_exact(4).map(|it| u32::from_le_bytes([it[0], it[1], it[2], it[3]])).collect();
        numbers.into_iter().take_while(|nsid| *nsid != 0).map(|nsid| self.namespace(nsid)).collect()
    }

    /// One namespace.
    ///
    /// # Errors
    /// When there is none of this number.
    pub fn namespace(&mut self, nsid: u32) -> Result<Namespace, HostError> {
        let bytes = identify_with(&mut self.admin, cns::NAMESPACE, nsid)?;
        let (found, _) = identify::Namespace::split(&bytes).ok_or(HostError::Protocol("Identify"))?;
        let place = 128 + 4 * usize::from(found.format & 0xf) + 2;
        let shift = bytes.get(place).copied().filter(|shift| (9..=16).contains(shift));
        let shift = shift.ok_or(HostError::Protocol("a namespace without blocks"))?;
        Ok(Namespace { nsid, blocks: found.size, block_size: 1 << shift })
    }

    /// The number that the target gave it.
    pub fn id(&self) -> u16 {
        self.id
    }

    /// Asks for so many I/O queues and makes them, each for so many commands at once.
    ///
    /// # Errors
    /// When the target grants fewer, or refuses.
    pub fn queues(&mut self, count: u16, depth: u16) -> Result<Vec<Queue>, HostError> {
        self.grant(count)?;
        (1..=count.max(1)).map(|number| self.queue(number, depth)).collect()
    }

    /// Asks for so many I/O queues.
    ///
    /// # Errors
    /// When the target grants fewer.
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
        // A queue of n entries has n - 1 commands at once.
        let (id, controller, entries) = (number, self.id, depth + 1);
        let role = Role { id, controller, depth, entries, in_capsule };
        let mut queue = Queue::connect(self.address, role, &self.subsystem, &self.options)?;
        say_connect(&mut queue, number, entries, self.id, &self.subsystem, &self.options)?;
        Ok(queue)
    }

    /// Says that the host is there. Traffic on any queue says it as well.
    ///
    /// # Errors
    /// When the connection is broken.
    pub fn keep_alive(&mut self) -> Result<(), HostError> {
        let command = Command { opcode: Admin::KeepAlive as u8, ..Command::default() };
        self.admin.call("Keep Alive", command, Payload::None).map(drop)
    }
}

/// What a discovery service knows.
///
/// # Errors
/// When it does not answer.
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

/// The name under which discovery is known.
pub const DISCOVERY: &str = DISCOVERY_NQN;

fn identify_with(admin: &mut Queue, kind: u8, nsid: u32) -> Result<Buffer, HostError> {
    let command = Command { opcode: Admin::Identify as u8, nsid, cdw10: kind.into(), ..Command::default() };
    let payload = Payload::In(admin.buffer(IDENTIFY_SIZE)?, IDENTIFY_SIZE);
    admin.call("Identify", command, payload)?.buffer.ok_or(HostError::Protocol("no data"))
}

fn say_connect(
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

/// The submission queue needs no flow control here: no more commands are sent than there are entries. A
/// target
/// may then leave out responses that only say "success".
const FLOW: u8 = wire::nvme::fabrics::CONNECT_NO_FLOW_CONTROL;
/// How long the target may hear nothing before it gives the host up.
const KEEP_ALIVE_MS: u32 = 120_000;

/// The command that reads or writes blocks.
pub fn transfer(kind: Io, nsid: u32, start: u64, count: u32) -> Command {
    let blocks = wire::nvme::command::Blocks { start, count };
    Command { opcode: kind as u8, nsid, ..Command::default() }.with_blocks(blocks)
}

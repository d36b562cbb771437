//! The connection of a host to one controller.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use wire::nvme::auth::CONNECT_AUTHENTICATE;
use wire::nvme::discovery::{Entry, Head, kind, tcp_specific, transport};
use wire::nvme::fabrics::{CONTROLLER_DYNAMIC, Connect, ConnectData, DISCOVERY_NQN};
use wire::nvme::identify::{self as layout, cns};
use wire::nvme::property::Capabilities;
use wire::nvme::{Admin, Command, Io, Status, feature, log, text};

use super::HostError;
use super::authentication::prove;
use super::commands::Payload;
use super::enable::enable;
use super::identify::identify;
use super::keep_alive::{self, AdminQueue, Keeper};
use super::liveness::Liveness;
use super::namespace::{self, Identifiers, Namespace};
use super::parameters::{Options, QueueParameters, RESPONSE_TIMEOUT, Transport};
use super::queue::Queue;
use super::retry::RetryTimes;
use super::shutdown::Shutdown;
use crate::limits::{ADMIN_ENTRIES, QUEUE_ENTRIES_MAX, TCP_IN_CAPSULE_ADMIN, TRANSFER_BYTES_MAX};
use crate::nqn::Nqn;

/// Properties of a controller, from Identify.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Controller {
    /// All fields of the Identify Controller data structure.
    pub identified: layout::Controller,
    /// The longest transfer in bytes (from MDTS).
    pub transfer_max: usize,
    /// The depth of I/O queues: CAP.MQES, since one entry of a queue always stays free, or MAXCMD if that is
    /// less.
    pub depth_max: u16,
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
    admin: AdminQueue,
    liveness: Arc<Liveness>,
    /// Sends Keep Alive until the client is dropped.
    _keeper: Option<Keeper>,
    retry_times: RetryTimes,
    address: SocketAddr,
    subsystem: Nqn,
    options: Options,
    id: u16,
    controller: Controller,
}

impl Client {
    /// Connects to a subsystem, and enables its controller. A target that is busy is asked again.
    ///
    /// # Errors
    /// When the target does not respond, or refuses the connection.
    pub fn connect(
        address: SocketAddr,
        subsystem: &Nqn,
        options: &Options,
    ) -> Result<Self, HostError> {
        let mut pause = BUSY_PAUSE;
        loop {
            match Self::connect_once(address, subsystem, options) {
                Err(error) if error.is_busy() && pause <= BUSY_PAUSE_MAX => {
                    std::thread::sleep(pause)
                }
                Err(error) => return Err(error.with_names(subsystem, &options.host)),
                Ok(client) => return Ok(client),
            }
            pause *= 2;
        }
    }

    fn connect_once(
        address: SocketAddr,
        subsystem: &Nqn,
        options: &Options,
    ) -> Result<Self, HostError> {
        let (id, controller) = (0, CONTROLLER_DYNAMIC);
        let (depth, entries) = (ADMIN_ENTRIES, ADMIN_ENTRIES);
        let in_capsule = match options.transport {
            Transport::Tcp => TCP_IN_CAPSULE_ADMIN,
            // nvmet over RDMA accepts 64 bytes of in-capsule data there, less than those of Connect: the
            // target reads them by RDMA.
            Transport::Rdma => 0,
        };
        let role = QueueParameters {
            id,
            controller,
            depth,
            entries,
            in_capsule,
        };
        let liveness = Liveness::new()?;
        let mut admin = Queue::connect(address, role, subsystem, options, &liveness)?;
        let id = send_connect(
            &mut admin,
            0,
            ADMIN_ENTRIES,
            CONTROLLER_DYNAMIC,
            subsystem,
            options,
        )?;
        let capabilities = enable(&mut admin)?;
        let bytes = identify(&mut admin, cns::CONTROLLER, 0)?;
        let (identified, _) = layout::Controller::split(&bytes).ok_or(HostError::Protocol(
            "Identify returned less than the data of a controller",
        ))?;
        let transfer_max = match identified.transfer_max {
            0 => TRANSFER_BYTES_MAX,
            pages => {
                let shift = u32::from(pages) + u32::from(capabilities.page_min);
                TRANSFER_BYTES_MAX.min(4096_usize << shift.min(32))
            }
        };
        let depth_max = depth_max(&identified, &capabilities);
        let retry_times = RetryTimes::of(&identified);
        admin.set_retry_times(retry_times);
        if retry_times.has_delays() {
            enable_retry_delays(&mut admin)?;
        }
        let controller = Controller {
            identified,
            transfer_max,
            depth_max,
        };
        let (subsystem, options) = (subsystem.clone(), options.clone());
        let admin = AdminQueue::new(admin);
        let timeout = keep_alive_timeout(&subsystem, &options);
        let _keeper = (!timeout.is_zero())
            .then(|| Keeper::start(&admin, &liveness, timeout))
            .transpose()?;
        Ok(Self {
            admin,
            liveness,
            _keeper,
            retry_times,
            address,
            subsystem,
            options,
            id,
            controller,
        })
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
        let numbers = namespace::active(&mut self.admin.lock())?;
        numbers
            .into_iter()
            .map(|nsid| self.namespace(nsid))
            .collect()
    }

    /// The identifiers of the active namespaces.
    ///
    /// # Errors
    /// When the connection is broken.
    pub fn namespace_ids(&mut self) -> Result<Vec<u32>, HostError> {
        namespace::active(&mut self.admin.lock())
    }

    /// Properties of one namespace.
    ///
    /// # Errors
    /// When the namespace does not exist, or its format is not supported.
    pub fn namespace(&mut self, nsid: u32) -> Result<Namespace, HostError> {
        namespace::identified(&mut self.admin.lock(), nsid, self.controller.transfer_max)
    }

    /// The globally unique identifiers of one namespace (Namespace Identification Descriptor list).
    ///
    /// # Errors
    /// When the namespace does not exist.
    pub fn identifiers(&mut self, nsid: u32) -> Result<Identifiers, HostError> {
        namespace::identifiers(&mut self.admin.lock(), nsid)
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
        (1..=count.max(1))
            .map(|number| self.queue(number, depth))
            .collect()
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
        let done = self
            .admin
            .lock()
            .call("Set Features", command, Payload::None)?;
        let result = done.completion.result as u32;
        // Submission queues in the low half, completion queues in the high one, each less one.
        let granted = (result & 0xffff).min(result >> 16) + 1;
        if granted <= less_one {
            return Err(HostError::Queues {
                wanted: less_one + 1,
                granted,
            });
        }
        Ok(())
    }

    fn queue(&self, number: u16, depth: u16) -> Result<Queue, HostError> {
        let in_capsule = in_capsule(&self.controller.identified, self.options.transport);
        let depth = depth.clamp(1, self.controller.depth_max);
        // A queue of n entries holds n - 1 commands.
        let (id, controller, entries) = (number, self.id, depth + 1);
        let role = QueueParameters {
            id,
            controller,
            depth,
            entries,
            in_capsule,
        };
        let mut queue = Queue::connect(
            self.address,
            role,
            &self.subsystem,
            &self.options,
            &self.liveness,
        )?;
        queue.set_retry_times(self.retry_times);
        send_connect(
            &mut queue,
            number,
            entries,
            self.id,
            &self.subsystem,
            &self.options,
        )?;
        Ok(queue)
    }

    /// What shuts down the controller, for a thread that ends the process.
    pub fn shutdown(&self) -> Shutdown {
        Shutdown::of(&self.admin)
    }

    /// Shuts down the controller: see [`Shutdown::run`].
    ///
    /// # Errors
    /// As [`Shutdown::run`].
    pub fn shut_down(&self) -> Result<(), HostError> {
        self.shutdown().run()
    }

    /// Sends Keep Alive, beside those that a thread sends.
    ///
    /// # Errors
    /// When the connection is broken.
    pub fn keep_alive(&mut self) -> Result<(), HostError> {
        keep_alive::send(&mut self.admin.lock(), RESPONSE_TIMEOUT)
    }
}

/// The entries of the log page of a discovery service.
///
/// # Errors
/// When the discovery service does not respond.
pub fn discover(address: SocketAddr, options: &Options) -> Result<Vec<Discovered>, HostError> {
    let discovery = Nqn::discovery();
    let client = Client::connect(address, &discovery, options)?;
    let page = |offset: usize, length: usize| {
        let request = log::Request {
            page: log::DISCOVERY,
            specific: 0,
            retain: false,
            length: length as u64,
            offset: offset as u64,
        };
        let mut admin = client.admin.lock();
        let payload = Payload::In(admin.buffer(length)?, length);
        let done = admin.call("Get Log Page", request.to_command(0, 0), payload)?;
        done.buffer
            .ok_or(HostError::Protocol("Get Log Page ended without data"))
    };
    let bytes = page(0, Head::SIZE)?;
    let (head, _) = Head::split(&bytes).ok_or(HostError::Protocol(
        "the discovery log page ends within its head",
    ))?;
    let count = usize::try_from(head.count)
        .unwrap_or(usize::MAX)
        .min(TRANSFER_BYTES_MAX / Entry::SIZE - 1);
    let mut found = Vec::new();
    for index in 0..count {
        let bytes = page(Head::SIZE + index * Entry::SIZE, Entry::SIZE)?;
        let (entry, _) = Entry::split(&bytes).ok_or(HostError::Protocol(
            "the discovery log page ends within an entry",
        ))?;
        let of = |field: &[u8]| text::text_of(field).unwrap_or_default().to_owned();
        found.push(Discovered {
            transport: if entry.transport == transport::RDMA {
                "rdma"
            } else {
                "tcp"
            },
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
    let timeout = if queue_id == 0 {
        keep_alive_timeout(subsystem, options)
    } else {
        Duration::ZERO
    };
    let keep_alive_ms = u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX);
    let connect = Connect {
        format: 0,
        queue_id,
        size: entries - 1,
        attributes: FLOW,
        keep_alive_ms,
    };
    let mut buffer = queue.buffer(ConnectData::SIZE)?;
    buffer[..ConnectData::SIZE].copy_from_slice(&data.to_bytes());
    let payload = Payload::Out(buffer, ConnectData::SIZE);
    let result = queue
        .call(CONNECT, connect.to_command(0), payload)?
        .completion
        .result;
    let secrets = options
        .secrets
        .as_ref()
        .filter(|_| !subsystem.is_discovery());
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
/// The pause before a busy target is asked again; it doubles until [`BUSY_PAUSE_MAX`] was waited.
const BUSY_PAUSE: Duration = Duration::from_millis(100);
const BUSY_PAUSE_MAX: Duration = Duration::from_millis(1600);

/// The keep alive timeout (KATO) of a controller. The host reads the log page of a discovery controller and
/// disconnects, which needs no timer, and older discovery controllers refuse one.
fn keep_alive_timeout(subsystem: &Nqn, options: &Options) -> Duration {
    if subsystem.is_discovery() {
        Duration::ZERO
    } else {
        options.keep_alive_timeout
    }
}

/// The longest queue: CAP.MQES, and MAXCMD if the controller reports it.
fn depth_max(identified: &layout::Controller, capabilities: &Capabilities) -> u16 {
    let most = match identified.commands_max {
        0 => capabilities.entries_max,
        commands => commands.min(capabilities.entries_max),
    };
    most.clamp(1, QUEUE_ENTRIES_MAX - 1)
}

/// Bytes of in-capsule data of I/O queues (IOCCSZ). They begin behind the command (ICDOFF 0) or are not used;
/// over RDMA the target has to support an offset for them (SGLS bit 20).
fn in_capsule(identified: &layout::Controller, transport: Transport) -> usize {
    let has_offset = transport == Transport::Tcp || identified.sgls & SGLS_OFFSET != 0;
    if identified.in_capsule_offset != 0 || !has_offset {
        return 0;
    }
    (identified.command_capsule as usize * 16).saturating_sub(wire::nvme::COMMAND_SIZE)
}

/// SGLS: the address of an SGL data block descriptor may be an offset in the capsule.
const SGLS_OFFSET: u32 = 1 << 20;

/// Lets the controller report retry delays (Host Behavior Support, ACRE). A controller that refuses it
/// reports none.
fn enable_retry_delays(admin: &mut Queue) -> Result<(), HostError> {
    const LENGTH: usize = 512;
    let mut buffer = admin.buffer(LENGTH)?;
    buffer[0] = 1;
    let cdw10 = feature::HOST_BEHAVIOUR.into();
    let command = Command {
        opcode: Admin::SetFeatures as u8,
        cdw10,
        ..Command::default()
    };
    match admin.call("Set Features", command, Payload::Out(buffer, LENGTH)) {
        Ok(_) | Err(HostError::Status { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

impl HostError {
    /// Whether the target refused Connect with a status that it will not have for long.
    fn is_busy(&self) -> bool {
        let Self::Status {
            what: CONNECT,
            status,
        } = self
        else {
            return false;
        };
        let busy = [
            Status::CONTROLLER_BUSY,
            Status::NAMESPACE_NOT_READY,
            Status::COMMAND_INTERRUPTED,
            Status::TRANSIENT_TRANSPORT,
        ];
        !status.is_permanent() && busy.contains(&status.plain())
    }

    /// The error with a hint if Connect was refused and a name is no NQN.
    fn with_names(self, subsystem: &Nqn, host: &Nqn) -> Self {
        let names = [("subsystem", subsystem), ("host", host)];
        let odd = names.into_iter().find(|(_, name)| !name.has_form());
        match (&self, odd) {
            (
                Self::Status {
                    what: CONNECT,
                    status,
                },
                Some((whose, name)),
            ) => Self::Name {
                status: *status,
                whose,
                name: name.clone(),
            },
            _ => self,
        }
    }
}

/// The name of the command, in errors.
const CONNECT: &str = "Connect";

/// A Read or Write command.
pub fn transfer(kind: Io, nsid: u32, start: u64, count: u32) -> Command {
    let blocks = wire::nvme::command::Blocks { start, count };
    Command {
        opcode: kind as u8,
        nsid,
        ..Command::default()
    }
    .with_blocks(blocks)
}

//! Connect: associates a connection with a queue (Base 6.3).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use server::Wake;
use wire::nvme::Status;
use wire::nvme::fabrics::{
    CONNECT_NO_FLOW_CONTROL, CONTROLLER_DYNAMIC, Connect, ConnectData, InvalidParameter,
};

use super::features::keep_alive_ms;
use super::origin::{Origin, Proved, Source};
use super::session::{Controller, Session};
use super::{State, Target};
use crate::auth::{Authenticator, Secrets};
use crate::limits::{CONTROLLERS_MAX, DISCOVERY_KEEP_ALIVE_MS, QUEUE_ENTRIES_MAX};
use crate::nqn::Nqn;
use crate::tls::Psk;

/// Why a Connect failed: the status, and dword 0 of its completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Refusal {
    pub(super) status: Status,
    pub(super) result: u64,
}

impl From<Status> for Refusal {
    fn from(status: Status) -> Self {
        Self {
            status: status.permanent(),
            result: 0,
        }
    }
}

/// Offsets of fields in the command and in its data (Base figures 377 and 378).
mod place {
    pub(super) const HOST_ID: u16 = 0;
    pub(super) const FORMAT: u16 = 40;
    pub(super) const QUEUE_ID: u16 = 42;
    pub(super) const SIZE: u16 = 44;
    pub(super) const CONTROLLER_ID: u16 = 16;
    pub(super) const SUBSYSTEM: u16 = 256;
    pub(super) const HOST: u16 = 512;
}

fn wrong_field(offset: u16) -> Refusal {
    invalid(offset, false)
}

fn wrong_data(offset: u16) -> Refusal {
    invalid(offset, true)
}

fn invalid(offset: u16, in_data: bool) -> Refusal {
    let status = Status::CONNECT_INVALID_PARAMETERS.permanent();
    Refusal {
        status,
        result: InvalidParameter { offset, in_data }.result(),
    }
}

/// The name of the host in a Connect.
struct HostName {
    nqn: Nqn,
    /// Whether HOSTNQN has the name. Without one, the name is derived from the Host Identifier.
    is_given: bool,
}

impl HostName {
    /// An empty HOSTNQN means that there is none: the initiator of SPDK sends it, and the targets of SPDK and
    /// Linux accept it.
    fn of(data: &ConnectData) -> Result<Self, Refusal> {
        let is_given = data.host[0] != 0;
        let nqn = match is_given {
            true => Nqn::of_field(&data.host).ok_or(wrong_data(place::HOST))?,
            false => Nqn::of_uuid(data.host_id.into()),
        };
        Ok(Self { nqn, is_given })
    }

    /// The name, if the host has given one.
    fn given(&self) -> Option<&Nqn> {
        self.is_given.then_some(&self.nqn)
    }
}

/// A queue that Connect has created.
#[derive(Debug)]
pub(super) struct Connected {
    pub(super) session: Arc<Session>,
    /// Number of resets of the controller when the queue was entered in its list.
    pub(super) epoch: u64,
    pub(super) queue_id: u16,
    /// Entries of the submission queue: SQSIZE + 1.
    pub(super) entries: u16,
    pub(super) flow_control: bool,
    /// The authentication, if the host has to authenticate.
    pub(super) authenticator: Option<Box<Authenticator>>,
    /// Whether no secret was asked of the host, although this target has secrets.
    pub(super) is_guest: bool,
}

impl Target {
    /// The PSKs for an identity: of each derivation that hosts use, and for the discovery subsystem of each
    /// subsystem that the host may use.
    pub fn psks(&self, identity: &str) -> Vec<Psk> {
        self.lock().psks(identity)
    }

    pub(super) fn connect(
        &self,
        fields: Connect,
        data: &ConnectData,
        source: Source<'_>,
        wake: &Arc<dyn Wake>,
        now_ns: u64,
    ) -> Result<Connected, Refusal> {
        if fields.format != 0 {
            return Err(Refusal {
                result: place::FORMAT.into(),
                ..Status::INCOMPATIBLE_FORMAT.into()
            });
        }
        if fields.size == 0 || fields.size >= QUEUE_ENTRIES_MAX {
            return Err(wrong_field(place::SIZE));
        }
        // A Host Identifier of 0 is not allowed over fabrics (Base 5.27.1.25): all such hosts would be one
        // registrant of reservations.
        if data.host_id == [0; 16] {
            return Err(wrong_data(place::HOST_ID));
        }
        let host = HostName::of(data)?;
        let subsystem = Nqn::of_field(&data.subsystem).ok_or(wrong_data(place::SUBSYSTEM))?;
        let mut state = self.lock();
        if state.has_ended {
            return Err(Refusal {
                status: Status::CONTROLLER_BUSY,
                result: 0,
            });
        }
        let authenticator = state.may_connect(&subsystem, host.given(), source)?;
        let is_guest = authenticator.is_none() && source.proved.is_none() && state.has_secrets();
        let session = match fields.queue_id {
            0 => state.new_controller(fields, data, subsystem, host, source.origin, now_ns)?,
            _ => state.session_of(fields, data, &subsystem, host.given())?,
        };
        let queue_id = fields.queue_id;
        if let Some(controller) = state.controllers.get_mut(&session.id) {
            controller.queues.insert(queue_id, Arc::clone(wake));
        }
        // Resets hold the same lock, so that none comes between the list of queues and the count.
        let epoch = session.epoch.load(Ordering::Acquire);
        let flow_control = fields.attributes & CONNECT_NO_FLOW_CONTROL == 0;
        let entries = fields.size + 1;
        Ok(Connected {
            session,
            epoch,
            queue_id,
            entries,
            flow_control,
            authenticator,
            is_guest,
        })
    }
}

impl State {
    fn psks(&self, identity: &str) -> Vec<Psk> {
        let Some((host, wanted)) = Psk::names(identity) else {
            return Vec::new();
        };
        let reached = self
            .subsystems
            .values()
            .filter(|it| wanted.is_discovery() || *it.name() == wanted);
        let keys = reached.filter_map(|it| it.snapshot().credentials.get(&host)?.tls_key.clone());
        keys.flat_map(|key| key.psks(&host, &wanted))
            .filter(|psk| psk.identity == identity)
            .collect()
    }

    fn may_connect(
        &self,
        subsystem: &Nqn,
        host: Option<&Nqn>,
        Source { origin, proved }: Source<'_>,
    ) -> Result<Option<Box<Authenticator>>, Refusal> {
        // The PSK of one name does not allow another one (TCP transport 3.6.1.5).
        if proved.is_some_and(|Proved(it)| Some(&it.host) != host || it.subsystem != *subsystem) {
            return Err(Status::CONNECT_INVALID_HOST.into());
        }
        // The key of the handshake may have been removed or replaced before Connect.
        if proved.is_some_and(|Proved(it)| !self.psks(&it.identity).contains(it)) {
            return Err(Status::CONNECT_INVALID_HOST.into());
        }
        if subsystem.is_discovery() {
            return Ok(None);
        }
        let found = self.subsystems.get(subsystem);
        let is_here = self
            .ports
            .get(&origin.port)
            .is_none_or(|port| port.leads_to(subsystem));
        let Some(found) = found.filter(|_| is_here) else {
            return Err(wrong_data(place::SUBSYSTEM));
        };
        let snapshot = found.snapshot();
        // Without this check a host could avoid authentication by giving another name.
        if !snapshot.may_come(host) {
            return Err(Status::CONNECT_INVALID_HOST.into());
        }
        let Some(host) = host else { return Ok(None) };
        let Some(credentials) = snapshot.credentials.get(host) else {
            return Ok(None);
        };
        if credentials.tls_key.is_some() && proved.is_none() {
            return Err(Status::CONNECT_INVALID_HOST.into());
        }
        let authenticator = |secrets: &Secrets| {
            Box::new(Authenticator::new(
                host.as_str(),
                subsystem.as_str(),
                secrets.clone(),
            ))
        };
        Ok(credentials.secrets.as_ref().map(authenticator))
    }

    /// Whether any host needs a secret or a TLS key.
    fn has_secrets(&self) -> bool {
        self.subsystems
            .values()
            .any(|subsystem| !subsystem.snapshot().credentials.is_empty())
    }

    fn new_controller(
        &mut self,
        fields: Connect,
        data: &ConnectData,
        subsystem: Nqn,
        host: HostName,
        origin: &Origin,
        now_ns: u64,
    ) -> Result<Arc<Session>, Refusal> {
        // Dynamic controller model: each Connect creates a controller.
        if data.controller_id != CONTROLLER_DYNAMIC {
            return Err(wrong_data(place::CONTROLLER_ID));
        }
        let busy = Refusal {
            status: Status::CONTROLLER_BUSY,
            result: 0,
        };
        if self.controllers.len() >= CONTROLLERS_MAX {
            return Err(busy);
        }
        let id = self.free_id().ok_or(busy)?;
        let is_discovery = subsystem.is_discovery();
        let session = Arc::new(Session {
            id,
            subsystem,
            host: host.nqn,
            is_named: host.is_given,
            host_id: data.host_id,
            port: origin.port,
            is_discovery,
            heard_ns: AtomicU64::new(now_ns),
            is_closed: AtomicBool::new(false),
            is_ready: AtomicBool::new(false),
            epoch: AtomicU64::new(0),
            writes_through: AtomicBool::new(false),
        });
        let keep_alive_ms = match (fields.keep_alive_ms, is_discovery) {
            (0, true) => DISCOVERY_KEEP_ALIVE_MS,
            (asked, _) => keep_alive_ms(asked),
        };
        self.controllers.insert(
            id,
            Controller::new(Arc::clone(&session), keep_alive_ms, now_ns),
        );
        Ok(session)
    }

    /// Identifiers are assigned in turn, so that one is not reused soon.
    fn free_id(&mut self) -> Option<u16> {
        const LAST: u16 = 0xffef;
        for step in 1..=LAST {
            let id = (u32::from(self.last_controller) + u32::from(step) - 1) % u32::from(LAST) + 1;
            let id = id as u16;
            if !self.controllers.contains_key(&id) {
                self.last_controller = id;
                return Some(id);
            }
        }
        None
    }

    /// The session of the controller that an I/O queue belongs to.
    fn session_of(
        &self,
        fields: Connect,
        data: &ConnectData,
        subsystem: &Nqn,
        host: Option<&Nqn>,
    ) -> Result<Arc<Session>, Refusal> {
        let controller = self
            .controllers
            .get(&data.controller_id)
            .ok_or(wrong_data(place::CONTROLLER_ID))?;
        let session = &controller.session;
        if session.subsystem != *subsystem {
            return Err(wrong_data(place::SUBSYSTEM));
        }
        if session.name() != host {
            return Err(wrong_data(place::HOST));
        }
        // The Host Identifier is that of the admin queue. The targets of Linux and SPDK do not compare it,
        // and TrueNAS's client sends another one for each queue.
        if session.is_discovery || fields.queue_id > controller.queues_granted {
            return Err(wrong_field(place::QUEUE_ID));
        }
        if controller.queues.contains_key(&fields.queue_id) {
            return Err(wrong_field(place::QUEUE_ID));
        }
        if session.is_closed() || !session.is_ready.load(Ordering::Acquire) {
            return Err(Status::COMMAND_SEQUENCE.into());
        }
        Ok(Arc::clone(session))
    }
}

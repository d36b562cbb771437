//! Identify (Base 5.17).

use wire::nvme::feature::events;
use wire::nvme::identify::{
    Controller as Identified, IDENTIFY_SIZE, IndependentNamespace,
    Namespace as IdentifiedNamespace, NvmController, cns, descriptor, io_command,
};
use wire::nvme::property::VERSION_2_0;
use wire::nvme::{COMMAND_SIZE, COMPLETION_SIZE, Command, Status, fabrics, text};

use super::State;
use super::discovery::Transport;
use super::features::Answer;
use super::namespace::Namespace;
use super::session::{Controller, Session};
use super::subsystem::{Snapshot, Subsystem};
use super::temperature::{CRITICAL_TEMPERATURE_KELVIN, WARNING_TEMPERATURE_KELVIN};
use crate::identifier::Serial;
use crate::limits::{
    ABORTS_MAX, ANA_GROUPS_MAX, COPY_RANGES_MAX, ERRORS_MAX, EVENT_REQUESTS_MAX, KEEP_ALIVE_UNITS,
    NAMESPACES_MAX, QUEUE_ENTRIES_MAX, RDMA_IN_CAPSULE, TCP_IN_CAPSULE, TRANSFER_BYTES_MAX,
    TRANSFER_PAGES_LOG2,
};

/// The firmware revision (FR).
pub(super) const FIRMWARE: &str = env!("CARGO_PKG_VERSION");

/// SGL support (Base figure 276): any alignment, offsets in capsules, no SGL for metadata.
const SGLS: u32 = 1 | 1 << 20;
/// Keyed SGL data blocks, over RDMA.
const SGLS_KEYED: u32 = 1 << 2;

/// CMIC: several ports, several controllers, and ANA.
const MULTIPATH: u8 = 1 | 1 << 1 | 1 << 3;
/// CTRATT: 128-bit Host Identifiers, and traffic based keep alive.
const ATTRIBUTES: u32 = 1 | 1 << 6;
/// LPA: SMART per namespace, commands supported and effects, extended data.
const LOG_PAGES: u8 = 1 | 1 << 1 | 1 << 2;
/// ANACAP: all states; the group of a namespace does not change.
const ANA_CAPABILITIES: u8 = 0x1f;
/// ANATT: the longest duration of an ANA transition, in seconds.
const ANA_TRANSITION: u8 = 10;
/// RESCAP: all reservation types, and "ignore existing key" as in version 1.3.
const RESERVATIONS: u8 = 0xfe;
/// RESCAP: reservations persist through power loss if hosts request that.
const PERSISTENT: u8 = 1;

fn reservations(namespace: &Namespace) -> u8 {
    RESERVATIONS
        | if namespace.persists_reservations() {
            PERSISTENT
        } else {
            0
        }
}

const IO_COMMANDS: u16 = io_command::COMPARE
    | io_command::DATASET
    | io_command::WRITE_ZEROES
    | io_command::SAVE
    | io_command::RESERVATIONS
    | io_command::TIMESTAMP
    | io_command::VERIFY
    | io_command::COPY;

impl State {
    pub(super) fn identify(&self, id: u16, command: &Command) -> Answer {
        let invalid = Status::INVALID_FIELD.permanent();
        let controller = self.controllers.get(&id).ok_or(Status::INTERNAL_ERROR)?;
        let session = &controller.session;
        let kind = command.cdw10 as u8;
        let rdma = self
            .ports
            .get(&session.port)
            .is_some_and(|it| it.transport == Transport::Rdma);
        if session.is_discovery {
            return match kind {
                cns::CONTROLLER => {
                    let serial = self
                        .discovery_serial
                        .as_ref()
                        .map_or("discovery", Serial::as_str);
                    found(&discovery_controller(session, serial, rdma).to_bytes())
                }
                _ => Err(invalid),
            };
        }
        let subsystem = self
            .subsystems
            .get(&session.subsystem)
            .ok_or(Status::INTERNAL_ERROR)?;
        let snapshot = subsystem.snapshot();
        let command_set = (command.cdw11 >> 24) as u8;
        match kind {
            cns::CONTROLLER => found(&nvm_controller(session, subsystem, rdma).to_bytes()),
            cns::CONTROLLERS => found(&controllers(self, session, (command.cdw10 >> 16) as u16)),
            // Every controller of the subsystem has all of its namespaces.
            cns::NAMESPACE_CONTROLLERS => {
                namespace_of(&snapshot, command.nsid)?;
                found(&controllers(self, session, (command.cdw10 >> 16) as u16))
            }
            cns::COMMAND_SETS => found(&1_u64.to_le_bytes()),
            cns::COMMAND_SET_CONTROLLER if command_set == 0 => {
                // Verify and Write Zeroes transfer no data: their limit is the block count.
                let dataset_ranges = 255;
                let most = NvmController {
                    dataset_ranges,
                    ..NvmController::default()
                };
                found(&most.to_bytes())
            }
            cns::COMMAND_SET_NAMESPACE if command_set == 0 => {
                namespace_of(&snapshot, command.nsid)?;
                found(&[])
            }
            _ => identify_namespace(&snapshot, command, kind, command_set),
        }
    }
}

fn identify_namespace(snapshot: &Snapshot, command: &Command, kind: u8, command_set: u8) -> Answer {
    let nsid = command.nsid;
    match kind {
        cns::NAMESPACE | cns::ALLOCATED_NAMESPACE => {
            // FFFFFFFFh names what all namespaces have in common, for controllers with Namespace Management
            // (NVM 4.1.5.1). The targets of Linux and SPDK refuse it, too.
            if nsid == 0 || nsid > NAMESPACES_MAX {
                return Err(Status::INVALID_NAMESPACE.permanent());
            }
            // An inactive namespace has a data structure of zeros (Base 5.17.2.1).
            let namespace = snapshot.namespaces.get(&nsid);
            namespace.map_or_else(
                || found(&[]),
                |namespace| found(&identified(namespace).to_bytes()),
            )
        }
        cns::ACTIVE | cns::ALLOCATED => list(snapshot, nsid),
        cns::COMMAND_SET_ACTIVE if command_set == 0 => list(snapshot, nsid),
        cns::DESCRIPTORS => found(&descriptors(namespace_of(snapshot, nsid)?)),
        cns::INDEPENDENT_NAMESPACE => {
            let namespace = namespace_of(snapshot, nsid)?;
            let independent = IndependentNamespace {
                sharing: 1,
                reservations: reservations(namespace),
                ana_group: namespace.group(),
                attributes: u8::from(namespace.is_read_only()),
                status: 1,
                ..IndependentNamespace::default()
            };
            found(&independent.to_bytes())
        }
        _ => Err(Status::INVALID_FIELD.permanent()),
    }
}

fn found(bytes: &[u8]) -> Answer {
    Ok((0, bytes.to_vec()))
}

fn namespace_of(snapshot: &Snapshot, nsid: u32) -> Result<&Namespace, Status> {
    let namespace = snapshot.namespaces.get(&nsid);
    namespace
        .map(|namespace| &**namespace)
        .ok_or(Status::INVALID_NAMESPACE.permanent())
}

/// The active namespace identifiers above `nsid`, as many as fit.
fn list(snapshot: &Snapshot, nsid: u32) -> Answer {
    if nsid >= 0xffff_fffe {
        return Err(Status::INVALID_NAMESPACE.permanent());
    }
    let above = snapshot.namespaces.range(nsid + 1..).map(|(nsid, _)| *nsid);
    found(
        &above
            .take(IDENTIFY_SIZE / 4)
            .flat_map(u32::to_le_bytes)
            .collect::<Vec<u8>>(),
    )
}

fn controllers(state: &State, session: &Session, from: u16) -> Vec<u8> {
    let mut ids: Vec<u16> = state
        .controllers
        .range(from..)
        .filter(|(_, other): &(_, &Controller)| other.session.subsystem == session.subsystem)
        .filter(|(_, other)| !other.session.is_closed())
        .map(|(id, _)| *id)
        .take(IDENTIFY_SIZE / 2 - 1)
        .collect();
    ids.insert(0, ids.len() as u16);
    ids.into_iter().flat_map(u16::to_le_bytes).collect()
}

fn descriptors(namespace: &Namespace) -> Vec<u8> {
    let identity = namespace.identity();
    let mut bytes = Vec::new();
    let mut add = |kind: u8, value: &[u8]| {
        bytes.extend([kind, value.len() as u8, 0, 0]);
        bytes.extend(value);
    };
    add(descriptor::UUID, &identity.uuid);
    add(descriptor::NGUID, &identity.nguid);
    add(descriptor::COMMAND_SET, &[0]);
    bytes
}

/// The fields that every controller has.
fn controller(session: &Session, rdma: bool) -> Identified {
    Identified {
        firmware: text::spaced(FIRMWARE),
        transfer_max: TRANSFER_PAGES_LOG2,
        controller_id: session.id,
        version: VERSION_2_0,
        event_requests: EVENT_REQUESTS_MAX as u8 - 1,
        error_entries: ERRORS_MAX as u8 - 1,
        keep_alive: KEEP_ALIVE_UNITS,
        commands_max: QUEUE_ENTRIES_MAX,
        sgls: if rdma { SGLS | SGLS_KEYED } else { SGLS },
        attributes: ATTRIBUTES,
        ..Identified::default()
    }
}

fn discovery_controller(session: &Session, serial: &str, rdma: bool) -> Identified {
    Identified {
        serial: text::spaced(serial),
        model: text::spaced("rockery discovery"),
        multipath: 0,
        events: events::DISCOVERY,
        kind: 2,
        log_pages: 1 << 2,
        subsystem: text::zeroed(fabrics::DISCOVERY_NQN),
        ..controller(session, rdma)
    }
}

fn nvm_controller(session: &Session, subsystem: &Subsystem, rdma: bool) -> Identified {
    let in_capsule = if rdma {
        RDMA_IN_CAPSULE
    } else {
        TCP_IN_CAPSULE
    };
    let mut power_state0 = [0; 32];
    power_state0[..2].copy_from_slice(&1000_u16.to_le_bytes());
    Identified {
        serial: text::spaced(subsystem.serial()),
        model: text::spaced(subsystem.model()),
        multipath: MULTIPATH,
        events: events::NAMESPACES | events::ANA,
        kind: 1,
        retry_delay1: 1,
        aborts: ABORTS_MAX - 1,
        firmware_slots: 1 | 1 << 1,
        log_pages: LOG_PAGES,
        warning_temperature: WARNING_TEMPERATURE_KELVIN,
        critical_temperature: CRITICAL_TEMPERATURE_KELVIN,
        ana_transition: ANA_TRANSITION,
        ana_capabilities: ANA_CAPABILITIES,
        ana_group_max: ANA_GROUPS_MAX,
        ana_groups: ANA_GROUPS_MAX,
        submission_entry: 0x66,
        completion_entry: 0x44,
        namespaces: NAMESPACES_MAX,
        namespaces_allowed: NAMESPACES_MAX,
        io_commands: IO_COMMANDS,
        fused: 1,
        // VWC: a cache is present, and Flush accepts the broadcast NSID.
        write_cache: 1 | 3 << 1,
        write_protection: 1,
        copy_formats: 1,
        subsystem: text::zeroed(subsystem.name().as_str()),
        command_capsule: ((COMMAND_SIZE + in_capsule) / 16) as u32,
        response_capsule: (COMPLETION_SIZE / 16) as u32,
        sgl_blocks_max: 1,
        fabric_commands: 1,
        power_state0,
        ..controller(session, rdma)
    }
}

/// The fields that all namespaces have in common.
fn common_namespace() -> IdentifiedNamespace {
    IdentifiedNamespace {
        formats: 1,
        // NSFEAT: atomicity and preferred sizes are reported for each namespace.
        features: 1 << 1 | 1 << 4,
        sharing: 1,
        reservations: RESERVATIONS,
        format0: [0, 0, 9, 0],
        format1: [0, 0, 12, 0],
        ..IdentifiedNamespace::default()
    }
}

fn identified(namespace: &Namespace) -> IdentifiedNamespace {
    let blocks = namespace.blocks();
    // The preferred granularity of files and memory is a page of 4 KiB, in blocks and 0-based.
    let page = (4096_u32 >> namespace.shift()).max(1) as u16 - 1;
    let copy_blocks = (TRANSFER_BYTES_MAX >> namespace.shift()) as u32;
    let identity = namespace.identity();
    let is_file = matches!(namespace.store(), crate::store::Store::File(_));
    IdentifiedNamespace {
        reservations: reservations(namespace),
        size: blocks,
        capacity: blocks,
        used: blocks,
        format: u8::from(namespace.shift() == 12),
        // DLFEAT: deallocated blocks read as zeros, and Write Zeroes may deallocate, which files may refuse.
        deallocated: if is_file { 1 << 3 } else { 1 | 1 << 3 },
        bytes: namespace.bytes().into(),
        write_granularity: page,
        write_alignment: page,
        deallocate_granularity: page,
        deallocate_alignment: page,
        write_optimal: (1 << 17 >> namespace.shift()) as u16 - 1,
        copy_range_max: copy_blocks.min(0xffff) as u16,
        copy_max: copy_blocks,
        copy_ranges_max: COPY_RANGES_MAX - 1,
        ana_group: namespace.group(),
        attributes: u8::from(namespace.is_read_only()),
        nguid: identity.nguid,
        ..common_namespace()
    }
}

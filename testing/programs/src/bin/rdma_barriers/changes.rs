//! The changes that take rights away from the victim.

use std::collections::BTreeSet;

use nvme::auth::Credentials;
use nvme::limits::BARRIER_TIMEOUT;
use nvme::serve::{Bytes, ServeError};
use programs::rdma_queue::{RdmaQueue, host_name};
use wire::nvme::log::AnaState;
use wire::nvme::reservation::{AcquireData, RegisterData, ReservationType};
use wire::nvme::{Admin, Command, Io, property};

use crate::world::{PORT, RESIZED, World, name, of_namespace, port};

/// The keys of the victim and of the other host.
const KEYS: [u64; 2] = [0xa, 0xb];

type Step = fn(&mut World) -> Result<(), String>;

/// A change, and what precedes it.
pub(crate) struct Change {
    pub(crate) name: &'static str,
    /// Whether it revokes the right to read as well.
    pub(crate) is_of_reads: bool,
    pub(crate) prepare: Step,
    /// Makes the change, and returns when that has returned.
    pub(crate) make: Step,
}

const fn change(name: &'static str, is_of_reads: bool, prepare: Step, make: Step) -> Change {
    Change {
        name,
        is_of_reads,
        prepare,
        make,
    }
}

/// No change, as the control of the table.
pub(crate) const NONE: Change = change("no change", true, nothing, nothing);

pub(crate) const CHANGES: [Change; 20] = [
    change("acquire write exclusive", false, register_other, |world| {
        acquire(world, 0, ReservationType::WriteExclusive)
    }),
    change("acquire exclusive access", true, register_other, |world| {
        acquire(world, 0, ReservationType::ExclusiveAccess)
    }),
    change("preempt", false, victim_reserves, |world| {
        acquire(world, 1, ReservationType::WriteExclusive)
    }),
    change("preempt and abort", true, victim_reserves, |world| {
        acquire(world, 2, ReservationType::WriteExclusive)
    }),
    change(
        "preempt and abort without a reservation",
        true,
        register_both,
        |world| acquire(world, 2, ReservationType::WriteExclusive),
    ),
    change("unregister", true, registrants_reserve, |world| {
        let command = Command {
            cdw10: 1,
            ..of_namespace(Io::ReservationRegister)
        };
        let data = RegisterData {
            current: KEYS[0],
            new: 0,
        };
        succeed(&mut world.second, command, &data.to_bytes())
    }),
    change("write protection", false, nothing, |world| {
        let command = Command {
            opcode: Admin::SetFeatures as u8,
            nsid: 1,
            cdw10: 0x84,
            cdw11: 1,
            ..Command::default()
        };
        succeed(&mut world.other.admin, command, &[])
    }),
    change("reset of the controller", true, nothing, |world| {
        world
            .victim
            .admin
            .configure(property::configuration::ENTRIES)
    }),
    change("shutdown of the controller", true, nothing, |world| {
        const NORMAL: u32 = 1 << 14;
        let enabled = property::configuration::ENABLE | property::configuration::ENTRIES;
        world.victim.admin.configure(enabled | NORMAL)
    }),
    change("ANA inaccessible", true, nothing, |world| {
        set_access(world, AnaState::Inaccessible)
    }),
    change("ANA persistent loss", true, nothing, |world| {
        set_access(world, AnaState::PersistentLoss)
    }),
    change("ANA change", true, nothing, |world| {
        set_access(world, AnaState::Change)
    }),
    change("hosts", true, nothing, |world| {
        let other = host_name(2).parse().map_err(text)?;
        let hosts = Some(BTreeSet::from([other]));
        world.server.set_hosts(&name(), hosts).map_err(text)
    }),
    change("credentials", true, nothing, |world| {
        let credentials = Credentials {
            secrets: None,
            tls_key: None,
        };
        let victim = host_name(1).parse().map_err(text)?;
        let set = world
            .server
            .set_credentials(&name(), victim, Some(credentials));
        set.map_err(text)
    }),
    change("removal of the namespace", true, nothing, |world| {
        world.server.remove_namespace(&name(), 1).map_err(text)
    }),
    change("removal of the subsystem", true, nothing, |world| {
        world.server.remove_subsystem(&name()).map_err(text)
    }),
    change("resize", true, nothing, |world| {
        let resized = world.server.resize_namespace(&name(), 1, Bytes(RESIZED));
        resized.map(drop).map_err(text)
    }),
    change("removal of the port", true, nothing, |world| {
        let barrier = world.server.target().remove_port(PORT);
        match barrier.wait(BARRIER_TIMEOUT) {
            true => Ok(()),
            false => Err(text(ServeError::Unfinished)),
        }
    }),
    change("another port", true, nothing, |world| {
        world.server.add_port(port()).map(drop).map_err(text)
    }),
    change("end of the server", true, nothing, |world| {
        world.server.end().map_err(text)
    }),
];

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn nothing(_: &mut World) -> Result<(), String> {
    Ok(())
}

fn succeed(queue: &mut RdmaQueue, command: Command, data: &[u8]) -> Result<(), String> {
    queue.succeed(command, data).map(drop)
}

fn register(queue: &mut RdmaQueue, new: u64) -> Result<(), String> {
    let data = RegisterData { current: 0, new }.to_bytes();
    succeed(queue, of_namespace(Io::ReservationRegister), &data)
}

fn register_other(world: &mut World) -> Result<(), String> {
    register(&mut world.other.io[0], KEYS[1])
}

fn register_both(world: &mut World) -> Result<(), String> {
    register(&mut world.second, KEYS[0])?;
    register_other(world)
}

fn reserve(
    queue: &mut RdmaQueue,
    action: u32,
    reservation: ReservationType,
    data: AcquireData,
) -> Result<(), String> {
    let command = Command {
        cdw10: action | (reservation as u32) << 8,
        ..of_namespace(Io::ReservationAcquire)
    };
    succeed(queue, command, &data.to_bytes())
}

fn victim_reserves(world: &mut World) -> Result<(), String> {
    register_both(world)?;
    let data = AcquireData {
        current: KEYS[0],
        preempted: 0,
    };
    reserve(&mut world.second, 0, ReservationType::WriteExclusive, data)
}

fn registrants_reserve(world: &mut World) -> Result<(), String> {
    register_both(world)?;
    let data = AcquireData {
        current: KEYS[1],
        preempted: 0,
    };
    let kind = ReservationType::ExclusiveAccessRegistrants;
    reserve(&mut world.other.io[0], 0, kind, data)
}

fn acquire(world: &mut World, action: u32, kind: ReservationType) -> Result<(), String> {
    let preempted = if action == 0 { 0 } else { KEYS[0] };
    let data = AcquireData {
        current: KEYS[1],
        preempted,
    };
    reserve(&mut world.other.io[0], action, kind, data)
}

fn set_access(world: &mut World, access: AnaState) -> Result<(), String> {
    world
        .server
        .set_access(&name(), PORT, 1, access)
        .map_err(text)
}

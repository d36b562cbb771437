//! The log pages (Base 5.16).

use std::sync::atomic::Ordering;

use wire::nvme::log::{self, AnaGroup, AnaHead, CHANGED_NAMESPACES_MAX, Firmware, Health, Request};
use wire::nvme::{Admin, Command, Io, Status, text};

use super::State;
use super::feature_table::{Feature, Scope};
use super::origin::Origin;
use super::session::Controller;
use super::subsystem::Snapshot;
use super::temperature::TEMPERATURE_KELVIN;
use crate::limits::{ANA_GROUPS_MAX, ERRORS_MAX, NAMESPACES_MAX};

/// The longest ANA log page: every group has a namespace, and every namespace exists.
const ANA_PAGE_BYTES: usize =
    AnaHead::SIZE + ANA_GROUPS_MAX as usize * AnaGroup::SIZE + NAMESPACES_MAX as usize * 4;
/// "Supported", in log pages that list capabilities.
const SUPPORTED: u32 = 1;
/// "Changes namespace content" (Base figure 211).
const CHANGES_BLOCKS: u32 = 1 << 1;

impl State {
    /// The contents of a log page.
    pub(super) fn log_page(
        &mut self,
        id: u16,
        command: &Command,
        request: &Request,
        origin: &Origin,
    ) -> Result<Vec<u8>, Status> {
        let invalid = Status::INVALID_LOG_PAGE.permanent();
        let controller = self.controllers.get(&id).ok_or(Status::INTERNAL_ERROR)?;
        let is_discovery = controller.session.is_discovery;
        match request.page {
            log::SUPPORTED => return Ok(supported(is_discovery)),
            log::DISCOVERY if is_discovery => return Ok(self.discovery_page(id, origin)),
            log::ERRORS => return Ok(errors(controller)),
            _ if is_discovery => return Err(invalid),
            _ => {}
        }
        let subsystem = self.subsystems.get(&controller.session.subsystem);
        let snapshot = subsystem.ok_or(Status::INTERNAL_ERROR)?.snapshot();
        let port = controller.session.port;
        match request.page {
            log::HEALTH => health(&snapshot, command.nsid, controller),
            log::FIRMWARE => Ok(Firmware {
                active: 1,
                slot1: text::spaced(super::identify::FIRMWARE),
            }
            .to_bytes()
            .to_vec()),
            log::COMMANDS => Ok(commands()),
            log::FEATURES => Ok(features()),
            log::ANA => Ok(ana(&snapshot, port, request.specific & 1 != 0)),
            log::CHANGED_NAMESPACES => Ok(self.controller(id)?.take_changed()),
            log::RESERVATIONS => Ok(self.controller(id)?.take_notice()),
            _ => Err(invalid),
        }
    }
}

impl Controller {
    /// Changed Namespace List: reading it clears it (Base 5.16.1.5).
    fn take_changed(&mut self) -> Vec<u8> {
        let mut page = vec![0; CHANGED_NAMESPACES_MAX * 4];
        let changed = std::mem::take(&mut self.changed);
        if changed.len() > CHANGED_NAMESPACES_MAX {
            page[..4].fill(0xff);
            return page;
        }
        for (place, nsid) in page.chunks_exact_mut(4).zip(changed) {
            place.copy_from_slice(&nsid.to_le_bytes());
        }
        page
    }

    fn take_notice(&mut self) -> Vec<u8> {
        let notice = self.notices.pop_front().unwrap_or_default();
        let more = self.notices.len().min(255) as u8;
        if more > 0 {
            self.raise(super::events::Event::Reservation);
        }
        log::Reservation { more, ..notice }.to_bytes().to_vec()
    }
}

fn numbers(entries: usize, size: usize, set: impl Iterator<Item = (usize, u32)>) -> Vec<u8> {
    let mut page = vec![0; size.max(entries * 4)];
    for (index, value) in set {
        page[index * 4..index * 4 + 4].copy_from_slice(&value.to_le_bytes());
    }
    page
}

fn supported(is_discovery: bool) -> Vec<u8> {
    let discovery = [log::SUPPORTED, log::ERRORS, log::DISCOVERY];
    let nvm = [
        log::SUPPORTED,
        log::ERRORS,
        log::HEALTH,
        log::FIRMWARE,
        log::CHANGED_NAMESPACES,
        log::COMMANDS,
        log::ANA,
        log::FEATURES,
        log::RESERVATIONS,
    ];
    let pages: &[u8] = if is_discovery { &discovery } else { &nvm };
    numbers(
        256,
        1024,
        pages.iter().map(|page| (usize::from(*page), SUPPORTED)),
    )
}

fn commands() -> Vec<u8> {
    let admin = Admin::ALL
        .iter()
        .map(|command| (*command as usize, SUPPORTED));
    let io = Io::ALL.iter().map(|command| {
        let changes = matches!(
            command,
            Io::Write | Io::WriteZeroes | Io::DatasetManagement | Io::Copy
        );
        (
            256 + *command as usize,
            SUPPORTED | if changes { CHANGES_BLOCKS } else { 0 },
        )
    });
    numbers(512, 4096, admin.chain(io))
}

fn features() -> Vec<u8> {
    // Scope: bit 20 of a namespace, bit 21 of the controller (Base 5.16.1.18).
    let scope = |feature: &Feature| match feature.scope {
        Scope::Controller => 1 << 21,
        Scope::Namespace => 1 << 20,
    };
    let all =
        Feature::all().map(|feature| (usize::from(feature.number), SUPPORTED | scope(feature)));
    numbers(256, 1024, all)
}

fn errors(controller: &Controller) -> Vec<u8> {
    let mut page: Vec<u8> = controller
        .errors
        .iter()
        .flat_map(|error| error.to_bytes())
        .collect();
    page.resize(ERRORS_MAX * log::Error::SIZE, 0);
    page
}

fn health(snapshot: &Snapshot, nsid: u32, controller: &Controller) -> Result<Vec<u8>, Status> {
    const ALL: u32 = 0xffff_ffff;
    let is_known = nsid == 0 || nsid == ALL || snapshot.namespaces.contains_key(&nsid);
    if !is_known {
        return Err(Status::INVALID_NAMESPACE.permanent());
    }
    let counted = snapshot
        .namespaces
        .values()
        .filter(|it| [0, ALL, it.nsid()].contains(&nsid));
    let mut health = Health {
        critical_warning: controller.critical_warning(),
        temperature: TEMPERATURE_KELVIN,
        spare: 100,
        error_entries: controller.error_count.into(),
        ..Health::default()
    };
    // A unit is a thousand times 512 bytes, rounded up (Base figure 208).
    let units = |bytes: u64| u128::from(bytes.div_ceil(512_000));
    for namespace in counted {
        let counters = &namespace.counters;
        let of = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        health.units_read += units(of(&counters.read_bytes));
        health.units_written += units(of(&counters.written_bytes));
        health.reads += u128::from(of(&counters.reads));
        health.writes += u128::from(of(&counters.writes));
    }
    Ok(health.to_bytes().to_vec())
}

fn ana(snapshot: &Snapshot, port: u16, groups_only: bool) -> Vec<u8> {
    let groups = snapshot.groups();
    let changes = snapshot.access_changes;
    let mut page = AnaHead {
        changes,
        groups: groups.len() as u16,
    }
    .to_bytes()
    .to_vec();
    for (group, namespaces) in groups {
        let namespaces = if groups_only { Vec::new() } else { namespaces };
        let state = snapshot.access(port, group) as u8;
        let count = namespaces.len() as u32;
        page.extend(
            AnaGroup {
                group,
                namespaces: count,
                changes,
                state,
            }
            .to_bytes(),
        );
        page.extend(namespaces.iter().flat_map(|nsid| nsid.to_le_bytes()));
    }
    // Hosts compute the longest possible length, and read that much.
    page.resize(page.len().max(ANA_PAGE_BYTES), 0);
    page
}

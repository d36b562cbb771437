//! Get and Set Features (Base 5.15, 5.27).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use wire::nvme::feature::{self, Select};
use wire::nvme::{Admin, Command, Status};

use super::feature_table::{Feature, Scope};
use super::health::Threshold;
use super::namespace::Namespace;
use super::reservation::Reservations;
use super::session::Controller;
use super::{State, Underway};
use crate::limits::{IO_QUEUES_MAX, KEEP_ALIVE_UNITS};

/// The result of an admin command: dwords 0 and 1 of its completion, and data.
pub(super) type Answer = Result<(u64, Vec<u8>), Status>;

const ALL_NAMESPACES: u32 = 0xffff_ffff;
const INVALID: Status = Status::INVALID_FIELD.permanent();

/// The length of the data of a feature, in bytes.
pub(super) fn feature_data(kind: Admin, command: &Command, is_discovery: bool) -> u32 {
    let has_value = !matches!(
        Select::parse(command.cdw10),
        None | Some(Select::Capabilities)
    );
    if kind == Admin::GetFeatures && !has_value {
        return 0;
    }
    let number = command.cdw10 as u8;
    match Feature::find(number, is_discovery) {
        // The Host Identifier has 8 bytes unless dword 11 asks for 16.
        Some(_) if number == feature::HOST_ID && command.cdw11 & 1 == 0 => 8,
        Some(feature) => feature.data,
        None => 0,
    }
}

/// A keep alive timeout in milliseconds, rounded up to the granularity of the timer (KAS).
pub(super) const fn keep_alive_ms(asked: u32) -> u32 {
    const UNIT_MS: u32 = KEEP_ALIVE_UNITS as u32 * 100;
    let most = u32::MAX / UNIT_MS;
    let units = asked.div_ceil(UNIT_MS);
    (if units < most { units } else { most }) * UNIT_MS
}

impl Controller {
    /// The value of a feature with a dword, current or default.
    fn value(&self, feature: &Feature, key: u32, is_default: bool) -> u32 {
        let default = match feature.number {
            feature::TEMPERATURE if key != 0 => Threshold::parse(key << 20, false),
            _ => None,
        };
        let default = default.map_or(feature.default, |threshold| {
            threshold.default_kelvin().into()
        });
        let set = self
            .features
            .get(&(feature.number, key))
            .filter(|_| !is_default);
        *set.unwrap_or(&default)
    }

    /// Answers Get Features for a feature that belongs to the controller.
    fn feature(
        &self,
        feature: &Feature,
        command: &Command,
        is_default: bool,
        now_ns: u64,
    ) -> Answer {
        let value = |value: u32| Ok((u64::from(value), Vec::new()));
        match feature.number {
            feature::QUEUES => {
                let granted = if is_default {
                    IO_QUEUES_MAX
                } else {
                    self.queues_granted
                };
                let less_one = u32::from(granted - 1);
                value(less_one | less_one << 16)
            }
            feature::EVENTS => value(if is_default { 0 } else { self.events.enabled }),
            feature::KEEP_ALIVE if is_default => value(self.keep_alive_default_ms),
            feature::KEEP_ALIVE => value(self.keep_alive_ms),
            feature::TIMESTAMP => Ok((0, self.timestamp(now_ns).to_le_bytes().to_vec())),
            feature::HOST_BEHAVIOUR if is_default => Ok((0, vec![0; feature.data as usize])),
            feature::HOST_BEHAVIOUR => Ok((0, self.host_behaviour.to_vec())),
            // NVMe-oF has the 128-bit form only (Base 5.27.1.25).
            feature::HOST_ID if command.cdw11 & 1 == 1 => Ok((0, self.session.host_id.to_vec())),
            feature::HOST_ID => Err(INVALID),
            feature::TEMPERATURE => {
                let threshold = Threshold::parse(command.cdw11, false).ok_or(INVALID)?;
                value(self.value(feature, threshold.key(), is_default))
            }
            _ => value(self.value(feature, 0, is_default)),
        }
    }

    /// The Timestamp: milliseconds since 1970, or since the controller was created; its origin is in bits 49
    /// to 51.
    fn timestamp(&self, now_ns: u64) -> u64 {
        let (set_ms, at_ns) = self.timestamp_ms;
        let passed = now_ns.saturating_sub(at_ns) / 1_000_000;
        (set_ms.unwrap_or(0) + passed) & ((1 << 48) - 1) | u64::from(set_ms.is_some()) << 49
    }

    /// Sets a feature that belongs to the controller, and returns dword 0 of the completion.
    fn set(
        &mut self,
        feature: &Feature,
        cdw11: u32,
        sent: &[u8],
        now_ns: u64,
    ) -> Result<u64, Status> {
        match feature.number {
            feature::QUEUES => return self.set_queues(cdw11),
            feature::EVENTS => {
                self.events.enabled = cdw11;
                self.report_temperature();
            }
            feature::KEEP_ALIVE => {
                self.keep_alive_ms = keep_alive_ms(cdw11);
                self.wake_admin();
            }
            feature::TIMESTAMP => {
                let milliseconds = u64::from_le_bytes(*sent.first_chunk().ok_or(INVALID)?);
                self.timestamp_ms = (Some(milliseconds & ((1 << 48) - 1)), now_ns);
            }
            feature::HOST_BEHAVIOUR => self.set_host_behaviour(sent)?,
            feature::TEMPERATURE => {
                let threshold = Threshold::parse(cdw11, true).ok_or(INVALID)?;
                self.features
                    .insert((feature.number, threshold.key()), cdw11 & 0xffff);
                self.report_temperature();
            }
            feature::POWER => {
                const STATE: u32 = 0x1f;
                const WORKLOAD_HINT_MAX: u32 = 2;
                if cdw11 & STATE != 0 || cdw11 >> 5 > WORKLOAD_HINT_MAX {
                    return Err(INVALID);
                }
                self.features.insert((feature.number, 0), cdw11);
            }
            // The only combination is number 0: the NVM command set.
            feature::COMMAND_SETS if cdw11 != 0 => {
                return Err(Status::COMMAND_SETS_REJECTED.permanent());
            }
            // The Host Identifier is set by Connect (Base 5.27.1.25).
            feature::HOST_ID => return Err(Status::COMMAND_SEQUENCE.permanent()),
            feature::WRITE_CACHE => {
                self.session
                    .writes_through
                    .store(cdw11 == 0, Ordering::Relaxed);
                self.features.insert((feature.number, 0), cdw11);
            }
            _ => _ = self.features.insert((feature.number, 0), cdw11),
        }
        Ok(0)
    }

    /// Grants I/O queues; as many submission as completion queues.
    fn set_queues(&mut self, cdw11: u32) -> Result<u64, Status> {
        let (submission, completion) = (cdw11 & 0xffff, cdw11 >> 16);
        if submission == 0xffff || completion == 0xffff {
            return Err(INVALID);
        }
        // The number is set before I/O queues are created (Base 5.27.1.5).
        if self.queues.keys().any(|id| *id != 0) {
            return Err(Status::COMMAND_SEQUENCE.permanent());
        }
        self.queues_granted = IO_QUEUES_MAX.min(submission.min(completion) as u16 + 1);
        let less_one = u64::from(self.queues_granted - 1);
        Ok(less_one | less_one << 16)
    }

    /// The first three bytes enable retry delays, a telemetry area and LBA formats. They are 0 or 1; what
    /// later versions define behind them asks for nothing that this controller does.
    fn set_host_behaviour(&mut self, sent: &[u8]) -> Result<(), Status> {
        let behaviour: &[u8; 512] = sent.first_chunk().ok_or(INVALID)?;
        if behaviour[..3].iter().any(|value| *value > 1) {
            return Err(INVALID);
        }
        self.host_behaviour = *behaviour;
        Ok(())
    }
}

impl State {
    pub(super) fn set_feature(
        &mut self,
        id: u16,
        command: &Command,
        sent: &[u8],
        now_ns: u64,
    ) -> Answer {
        const SAVE: u32 = 1 << 31;
        const RESERVED: u32 = 0x7fff_ff00;
        if command.cdw10 & SAVE != 0 {
            return Err(Status::FEATURE_NOT_SAVEABLE.permanent());
        }
        let is_discovery = self.controller(id)?.session.is_discovery;
        let feature = Feature::find(command.cdw10 as u8, is_discovery).ok_or(INVALID)?;
        if command.cdw10 & RESERVED != 0 || command.cdw11 & !feature.fields(is_discovery) != 0 {
            return Err(INVALID);
        }
        let (nsid, cdw11) = (command.nsid, command.cdw11);
        if feature.scope == Scope::Namespace {
            let namespaces = self.namespaces_of(id, nsid)?;
            // Counted, so that the removal of a namespace, with the files of its state, waits for the change.
            let underway: Vec<_> = namespaces
                .iter()
                .map(|it| Underway::new(it, id.into()))
                .collect();
            let is_here = |it: &Arc<Namespace>| {
                self.namespace(id, it.nsid())
                    .is_ok_and(|found| Arc::ptr_eq(&found, it))
            };
            if !namespaces.iter().all(is_here) {
                return Err(Status::INVALID_NAMESPACE.permanent());
            }
            self.set_of_namespaces(id, feature, &namespaces, cdw11)?;
            drop(underway);
            return Ok((0, Vec::new()));
        }
        if nsid != 0 && nsid != ALL_NAMESPACES {
            self.namespace(id, nsid)?;
            return Err(Status::FEATURE_NOT_NAMESPACE_SPECIFIC.permanent());
        }
        let result = self.controller(id)?.set(feature, cdw11, sent, now_ns)?;
        Ok((result, Vec::new()))
    }

    fn namespace(&self, id: u16, nsid: u32) -> Result<Arc<Namespace>, Status> {
        let name = self
            .controllers
            .get(&id)
            .map(|controller| &controller.session.subsystem);
        let subsystem = name.and_then(|name| self.subsystems.get(name));
        let namespace = subsystem.and_then(|subsystem| subsystem.namespace(nsid));
        namespace.ok_or(Status::INVALID_NAMESPACE.permanent())
    }

    /// The namespace with this identifier, or all namespaces for FFFFFFFFh.
    fn namespaces_of(&self, id: u16, nsid: u32) -> Result<Vec<Arc<Namespace>>, Status> {
        if nsid != ALL_NAMESPACES {
            return Ok(vec![self.namespace(id, nsid)?]);
        }
        let name = self
            .controllers
            .get(&id)
            .map(|controller| &controller.session.subsystem);
        let subsystem = name.and_then(|name| self.subsystems.get(name));
        Ok(subsystem
            .map(|subsystem| subsystem.namespaces())
            .unwrap_or_default())
    }

    fn set_of_namespaces(
        &mut self,
        id: u16,
        feature: &Feature,
        namespaces: &[Arc<Namespace>],
        cdw11: u32,
    ) -> Result<(), Status> {
        match feature.number {
            feature::RESERVATION_PERSISTENCE => set_persistence(namespaces, cdw11 == 1),
            feature::WRITE_PROTECTION => self.set_protection(id, namespaces, cdw11),
            number => {
                let controller = self.controller(id)?;
                let keys = namespaces
                    .iter()
                    .map(|namespace| (number, namespace.nsid()));
                controller.features.extend(keys.map(|key| (key, cdw11)));
                Ok(())
            }
        }
    }

    pub(super) fn feature(&mut self, id: u16, command: &Command, now_ns: u64) -> Answer {
        const RESERVED: u32 = 0xffff_f800;
        let select = Select::parse(command.cdw10)
            .filter(|_| command.cdw10 & RESERVED == 0)
            .ok_or(INVALID)?;
        let is_discovery = self.controller(id)?.session.is_discovery;
        let feature = Feature::find(command.cdw10 as u8, is_discovery).ok_or(INVALID)?;
        // No feature is saved: the saved value is the default.
        let is_default = match select {
            Select::Capabilities => return Ok((feature.capabilities(), Vec::new())),
            Select::Default | Select::Saved => true,
            Select::Current => false,
        };
        match feature.scope {
            Scope::Controller => self
                .controller(id)?
                .feature(feature, command, is_default, now_ns),
            Scope::Namespace => {
                let value = self.of_namespace(id, feature, command.nsid, is_default)?;
                Ok((value.into(), Vec::new()))
            }
        }
    }

    fn of_namespace(
        &mut self,
        id: u16,
        feature: &Feature,
        nsid: u32,
        is_default: bool,
    ) -> Result<u32, Status> {
        let is_reservation = matches!(
            feature.number,
            feature::RESERVATION_MASK | feature::RESERVATION_PERSISTENCE
        );
        // Get Features has one value, so that FFFFFFFFh is refused; with this status by the reservation
        // features (Base 5.27.1.26, 5.27.1.27).
        if nsid == ALL_NAMESPACES && is_reservation {
            return Err(INVALID);
        }
        let namespace = self.namespace(id, nsid)?;
        Ok(match feature.number {
            _ if is_default => feature.default,
            feature::RESERVATION_PERSISTENCE => {
                namespace.reservations(Reservations::persists).into()
            }
            feature::WRITE_PROTECTION => namespace.is_read_only().into(),
            _ => self.controller(id)?.value(feature, nsid, is_default),
        })
    }

    /// Sets the write protection state: of the states of Base figure 349, "no write protect" and "write
    /// protect". If one of the namespaces cannot be changed, none is.
    fn set_protection(
        &mut self,
        id: u16,
        namespaces: &[Arc<Namespace>],
        cdw11: u32,
    ) -> Result<(), Status> {
        let protect = match cdw11 {
            0 => false,
            1 => true,
            _ => return Err(INVALID),
        };
        if !protect
            && namespaces
                .iter()
                .any(|namespace| namespace.is_always_read_only())
        {
            return Err(Status::FEATURE_NOT_CHANGEABLE.permanent());
        }
        let subsystem = self.controller(id)?.session.subsystem.clone();
        for namespace in namespaces.iter().filter(|it| it.is_read_only() != protect) {
            namespace.protect(protect)?;
            self.namespace_changed(&subsystem, namespace.nsid());
        }
        Ok(())
    }

    /// The namespaces to flush before Set Features completes: one that is protected is not written any more,
    /// not even from a cache, and a cache that is disabled contains nothing that is not on the medium.
    pub(super) fn flushed_by(&self, id: u16, command: &Command) -> Option<Vec<Arc<Namespace>>> {
        let sets = command.opcode == Admin::SetFeatures as u8;
        match command.cdw10 as u8 {
            feature::WRITE_PROTECTION if sets && command.cdw11 == 1 => {
                self.namespaces_of(id, command.nsid).ok()
            }
            feature::WRITE_CACHE if sets && command.cdw11 == 0 => {
                self.namespaces_of(id, ALL_NAMESPACES).ok()
            }
            _ => None,
        }
    }
}

/// Sets whether reservations persist through power loss. If that is not possible for one of the namespaces,
/// none is changed.
fn set_persistence(namespaces: &[Arc<Namespace>], persists: bool) -> Result<(), Status> {
    if persists
        && namespaces
            .iter()
            .any(|namespace| !namespace.persists_reservations())
    {
        return Err(INVALID);
    }
    for namespace in namespaces {
        namespace.change_reservations(|it| it.set_persistence(persists))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keep_alive_timeouts_are_rounded_up_to_the_granularity() {
        let cases = [
            (0, 0),
            (1, 1000),
            (1000, 1000),
            (1001, 2000),
            (u32::MAX, 4_294_967_000),
        ];
        for (asked, granted) in cases {
            assert_eq!(keep_alive_ms(asked), granted);
        }
    }
}

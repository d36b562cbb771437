//! Get and Set Features (Base 5.15, 5.27).

use wire::nvme::feature::{self, Select, events};
use wire::nvme::{Admin, Command, Status};

use super::State;
use super::admin::Answer;
use super::controller::Controller;
use crate::limits::IO_QUEUES_MAX;

/// The length of the data of a feature, in bytes.
pub(super) fn feature_data(kind: Admin, command: &Command) -> u32 {
    if kind == Admin::GetFeatures && Select::parse(command.cdw10) == Some(Select::Capabilities) {
        return 0;
    }
    match command.cdw10 as u8 {
        feature::TIMESTAMP => 8,
        feature::HOST_BEHAVIOUR => 512,
        feature::HOST_ID => match command.cdw11 & 1 {
            0 => 8,
            _ => 16,
        },
        _ => 0,
    }
}

/// Features whose value is only stored, with their defaults (Base figure 317): arbitration without limit,
/// volatile write cache enabled, everything else 0.
const PLAIN: &[(u8, u32)] = &[
    (feature::ARBITRATION, 7),
    (feature::POWER, 0),
    (feature::TEMPERATURE, 0xffff),
    (feature::ERROR_RECOVERY, 0),
    (feature::WRITE_CACHE, 1),
    (feature::WRITE_ATOMICITY, 0),
];

/// "Changeable", in the supported capabilities of Get Features.
const CHANGEABLE: u64 = 1 << 2;
/// "Namespace specific", in the same field.
const OF_NAMESPACE: u64 = 1 << 1;

impl Controller {
    pub(super) fn feature(&mut self, command: &Command, now_ns: u64) -> Answer {
        let invalid = Status::INVALID_FIELD.permanent();
        let number = command.cdw10 as u8;
        let select = Select::parse(command.cdw10).ok_or(invalid)?;
        let value = |value: u64| Ok((value, Vec::new()));
        if select == Select::Capabilities {
            return match number {
                feature::HOST_ID => value(0),
                _ if NAMESPACE_FEATURES.contains(&number) && !self.session.is_discovery => {
                    value(CHANGEABLE | OF_NAMESPACE)
                }
                _ if self.session.is_discovery && !of_discovery(number) => Err(invalid),
                _ if PLAIN.iter().any(|(plain, _)| *plain == number) || is_special(number) => {
                    value(CHANGEABLE)
                }
                _ => Err(invalid),
            };
        }
        if self.session.is_discovery && !of_discovery(number) {
            return Err(invalid);
        }
        let is_default = matches!(select, Select::Default | Select::Saved);
        if let Some((_, default)) = PLAIN.iter().find(|(plain, _)| *plain == number) {
            let set = self.features.get(&number).filter(|_| !is_default);
            return value(u64::from(*set.unwrap_or(default)));
        }
        match number {
            feature::QUEUES => {
                let granted = if is_default { IO_QUEUES_MAX } else { self.queues_granted };
                let less_one = u64::from(granted.max(1) - 1);
                value(less_one | less_one << 16)
            }
            feature::EVENTS => value(if is_default { 0 } else { self.events.enabled.into() }),
            feature::KEEP_ALIVE => value(self.keep_alive_ms.into()),
            feature::TIMESTAMP => Ok((0, self.timestamp(now_ns).to_le_bytes().to_vec())),
            feature::HOST_BEHAVIOUR => Ok((0, self.host_behaviour.to_vec())),
            // NVMe-oF has the 128-bit form only (Base 5.27.1.25).
            feature::HOST_ID if command.cdw11 & 1 == 1 => Ok((0, self.session.host_id.to_vec())),
            feature::RESERVATION_MASK => {
                value(self.reservation_masks.get(&command.nsid).copied().unwrap_or_default().into())
            }
            feature::RESERVATION_PERSISTENCE | feature::WRITE_PROTECTION => value(0),
            _ => Err(invalid),
        }
    }

    /// The Timestamp: milliseconds since 1970, or since the controller was created; its origin is in bits 49
    /// to 51.
    fn timestamp(&self, now_ns: u64) -> u64 {
        let (set_ms, at_ns) = self.timestamp_ms;
        let origin = if set_ms == 0 { 0 } else { 1 };
        let passed = now_ns.saturating_sub(at_ns) / 1_000_000;
        (set_ms + passed) & ((1 << 48) - 1) | origin << 49
    }
}

/// Features that are namespace specific.
pub(super) const NAMESPACE_FEATURES: [u8; 3] =
    [feature::RESERVATION_MASK, feature::RESERVATION_PERSISTENCE, feature::WRITE_PROTECTION];

/// Features with handlers of their own.
fn is_special(number: u8) -> bool {
    const SPECIAL: [u8; 5] =
        [feature::QUEUES, feature::EVENTS, feature::KEEP_ALIVE, feature::TIMESTAMP, feature::HOST_BEHAVIOUR];
    SPECIAL.contains(&number)
}

/// Features of a discovery controller.
fn of_discovery(number: u8) -> bool {
    matches!(number, feature::EVENTS | feature::KEEP_ALIVE | feature::HOST_ID)
}

impl State {
    pub(super) fn set_feature(&mut self, id: u16, command: &Command, sent: &[u8], now_ns: u64) -> Answer {
        let invalid = Status::INVALID_FIELD.permanent();
        let number = command.cdw10 as u8;
        const SAVE: u32 = 1 << 31;
        if command.cdw10 & SAVE != 0 {
            return Err(Status::FEATURE_NOT_SAVEABLE.permanent());
        }
        if number == feature::RESERVATION_PERSISTENCE {
            return self.set_persistence(id, command);
        }
        let controller = self.controller(id)?;
        if controller.session.is_discovery && !of_discovery(number) {
            return Err(invalid);
        }
        let done = Ok((0, Vec::new()));
        match number {
            feature::QUEUES => {
                let asked = (command.cdw11 & 0xffff).min(command.cdw11 >> 16);
                if asked == 0xffff {
                    return Err(invalid);
                }
                controller.queues_granted = IO_QUEUES_MAX.min(asked as u16 + 1);
                let less_one = u64::from(controller.queues_granted - 1);
                return Ok((less_one | less_one << 16, Vec::new()));
            }
            feature::EVENTS => {
                let known = match controller.session.is_discovery {
                    true => events::DISCOVERY,
                    false => events::HEALTH | events::NAMESPACES | events::ANA,
                };
                if command.cdw11 & !known != 0 {
                    return Err(invalid);
                }
                controller.events.enabled = command.cdw11;
            }
            feature::KEEP_ALIVE => {
                controller.keep_alive_ms = command.cdw11;
                controller.wake_admin();
            }
            feature::TIMESTAMP => {
                let Some(bytes) = sent.first_chunk::<8>() else { return Err(invalid) };
                let milliseconds = u64::from_le_bytes(*bytes) & ((1 << 48) - 1);
                controller.timestamp_ms = (milliseconds, now_ns);
            }
            feature::HOST_BEHAVIOUR => {
                controller.host_behaviour = *sent.first_chunk().ok_or(invalid)?;
            }
            // The Host Identifier is set by Connect (Base 5.27.1.25).
            feature::HOST_ID => return Err(Status::COMMAND_SEQUENCE.permanent()),
            feature::WRITE_PROTECTION => return self.set_protection(id, command),
            feature::RESERVATION_MASK => {
                let nsid = command.nsid;
                self.namespace(id, nsid)?;
                self.controller(id)?.reservation_masks.insert(nsid, command.cdw11);
            }
            _ if PLAIN.iter().any(|(plain, _)| *plain == number) => {
                controller.features.insert(number, command.cdw11);
            }
            _ => return Err(invalid),
        }
        done
    }

    fn namespace(&self, id: u16, nsid: u32) -> Result<std::sync::Arc<super::Namespace>, Status> {
        let name = self.controllers.get(&id).map(|controller| &controller.session.subsystem);
        let subsystem = name.and_then(|name| self.subsystems.get(name));
        let namespace = subsystem.and_then(|subsystem| subsystem.namespace(nsid));
        namespace.ok_or(Status::INVALID_NAMESPACE.permanent())
    }

    /// Get Features, including namespace specific ones.
    pub(super) fn feature(&mut self, id: u16, command: &Command, now_ns: u64) -> Answer {
        let is_set = match command.cdw10 as u8 {
            _ if Select::parse(command.cdw10) != Some(Select::Current) => None,
            feature::RESERVATION_PERSISTENCE => Some(
                self.namespace(id, command.nsid)?.reservations(super::reservation::Reservations::persists),
            ),
            feature::WRITE_PROTECTION => Some(self.namespace(id, command.nsid)?.is_read_only()),
            _ => None,
        };
        match is_set {
            Some(is_set) => Ok((u64::from(is_set), Vec::new())),
            None => self.controller(id)?.feature(command, now_ns),
        }
    }

    fn set_persistence(&self, id: u16, command: &Command) -> Answer {
        let namespace = self.namespace(id, command.nsid)?;
        let persists = command.cdw11 & 1 == 1;
        namespace.change_reservations(|it| it.set_persistence(persists))?;
        Ok((0, Vec::new()))
    }

    /// Sets the write protection state: of the states of Base figure 349, "no write protect" and "write
    /// protect".
    fn set_protection(&mut self, id: u16, command: &Command) -> Answer {
        let namespace = self.namespace(id, command.nsid)?;
        let protect = match command.cdw11 & 7 {
            0 => false,
            1 => true,
            _ => return Err(Status::INVALID_FIELD.permanent()),
        };
        if namespace.is_read_only() != protect {
            namespace.protect(protect)?;
            let subsystem = self.controller(id)?.session.subsystem.clone();
            self.namespace_changed(&subsystem, command.nsid);
        }
        Ok((0, Vec::new()))
    }

    /// The namespaces to flush before Set Features completes: a protected namespace is not written any more,
    /// not even from a cache.
    pub(super) fn protected_by(
        &self,
        id: u16,
        command: &Command,
    ) -> Option<std::sync::Arc<super::Namespace>> {
        let is_set = command.opcode == Admin::SetFeatures as u8
            && command.cdw10 as u8 == feature::WRITE_PROTECTION
            && command.cdw11 & 7 == 1;
        is_set.then(|| self.namespace(id, command.nsid).ok()).flatten()
    }
}

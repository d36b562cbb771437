//! Reservations of one namespace (Base 8.19): the registered hosts with their keys, the holder, and the
//! rights of each host. This module only decides; the notifications to send are returned.

use wire::nvme::Status;
use wire::nvme::reservation::{
    EXTENDED_HEAD_SIZE, Registrant as ReportedRegistrant, RegistrantExtended, ReportHead,
    ReservationType,
};

use serde::{Deserialize, Serialize};

use crate::limits::REGISTRANTS_MAX;

type Host = [u8; 16];

/// Reservation notifications to registrants (Base figure 285).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Notice {
    /// The registration was preempted.
    RegistrationPreempted = 1,
    /// The reservation was released.
    Released = 2,
    /// The reservation was preempted.
    Preempted = 3,
}

/// Notifications with their recipients.
pub(crate) type Notices = Vec<(Host, Notice)>;

/// The notifications of a change, or the status of its refusal.
pub(crate) type Change = Result<Notices, Status>;

const CONFLICT: Status = Status::RESERVATION_CONFLICT.permanent();
const INVALID: Status = Status::INVALID_FIELD.permanent();

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Registrant {
    host: Host,
    key: u64,
}

/// Registrants and reservation of a namespace.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Reservations {
    registrants: Vec<Registrant>,
    held: Option<(ReservationType, Host)>,
    generation: u32,
    persists: bool,
    can_persist: bool,
}

/// The part of the state that persists through power loss (Base 8.19.1), as it is stored.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct PersistentReservations {
    registrants: Vec<Registrant>,
    kind: Option<u8>,
    holder: Host,
    generation: u32,
}

/// The controller identifier of every registrant in a report: controllers are dynamic, and the registration
/// of a host outlives its controllers (NVM 3.2.7).
const DYNAMIC_CONTROLLER: u16 = 0xffff;

impl Reservations {
    /// The type of the reservation.
    pub(crate) fn kind(&self) -> Option<ReservationType> {
        self.held.map(|(kind, _)| kind)
    }

    /// Whether a host may read or write (Base figure 587).
    pub(crate) fn permit(&self, host: &Host, write: bool) -> bool {
        let Some((kind, _)) = self.held else {
            return true;
        };
        self.holds(host)
            || !write && kind.lets_all_read()
            || kind.lets_registrants_write() && self.key_of(host).is_some()
    }

    fn key_of(&self, host: &Host) -> Option<u64> {
        self.registrants
            .iter()
            .find(|it| it.host == *host)
            .map(|it| it.key)
    }

    fn holds(&self, host: &Host) -> bool {
        match self.held {
            Some((kind, _)) if kind.is_held_by_all() => self.key_of(host).is_some(),
            Some((_, holder)) => holder == *host,
            None => false,
        }
    }

    /// Sets whether registrations persist through power loss (PTPL). It is refused where there is no file for
    /// them.
    pub(crate) fn set_persistence(&mut self, persists: bool) -> Result<(), Status> {
        if persists && !self.can_persist {
            return Err(INVALID);
        }
        self.persists = persists;
        Ok(())
    }

    /// Makes registrations persist if there is a file for them, as Reservation Register requests. Linux
    /// requests it with every registration, and RESCAP tells hosts whether it is possible.
    pub(crate) fn request_persistence(&mut self) {
        self.persists |= self.can_persist;
    }

    /// Whether registrations persist through power loss.
    pub(crate) fn persists(&self) -> bool {
        self.persists
    }

    /// No reservations, with persistence available.
    pub(crate) fn persistable() -> Self {
        Self {
            can_persist: true,
            ..Self::default()
        }
    }

    /// The state to store; `None` without persistence.
    pub(crate) fn to_persistent(&self) -> Option<PersistentReservations> {
        let (kind, holder) = self.held.map(|(kind, host)| (kind as u8, host)).unzip();
        let (registrants, generation) = (self.registrants.clone(), self.generation);
        let holder = holder.unwrap_or_default();
        self.persists.then_some(PersistentReservations {
            registrants,
            kind,
            holder,
            generation,
        })
    }

    /// The stored state after a restart.
    pub(crate) fn from_persistent(persistent: PersistentReservations) -> Self {
        let held = persistent
            .kind
            .and_then(ReservationType::parse)
            .map(|kind| (kind, persistent.holder));
        let mut registrants = persistent.registrants;
        registrants.truncate(REGISTRANTS_MAX);
        Self {
            registrants,
            held,
            generation: persistent.generation,
            persists: true,
            can_persist: true,
        }
    }

    fn check_key(&self, host: &Host, key: u64) -> Result<(), Status> {
        if self.key_of(host) == Some(key) {
            Ok(())
        } else {
            Err(CONFLICT)
        }
    }

    /// Registers a host. A key of 0 is refused: no preemption could name it.
    pub(crate) fn register(&mut self, host: Host, key: u64) -> Change {
        match self.key_of(&host) {
            _ if key == 0 => return Err(INVALID),
            Some(known) if known == key => {}
            Some(_) => return Err(CONFLICT),
            None if self.registrants.len() >= REGISTRANTS_MAX => {
                return Err(Status::CAPACITY_EXCEEDED.permanent());
            }
            None => self.registrants.push(Registrant { host, key }),
        }
        self.generation = self.generation.wrapping_add(1);
        Ok(Vec::new())
    }

    /// Replaces the key of a host; `None` for `key` ignores the present key. A new key of 0 unregisters the
    /// host: Linux sends it for `IOC_PR_REGISTER` with a new key of 0, which unregisters.
    pub(crate) fn replace(&mut self, host: Host, key: Option<u64>, new: u64) -> Change {
        if let Some(key) = key {
            self.check_key(&host, key)?;
        }
        if new == 0 {
            return self.unregister(host, None);
        }
        let Some(registrant) = self.registrants.iter_mut().find(|it| it.host == host) else {
            return self.register(host, new);
        };
        registrant.key = new;
        self.generation = self.generation.wrapping_add(1);
        Ok(Vec::new())
    }

    /// Unregisters a host. If it holds the reservation, that is released.
    pub(crate) fn unregister(&mut self, host: Host, key: Option<u64>) -> Change {
        let known = self.key_of(&host).ok_or(CONFLICT)?;
        if key.is_some_and(|key| key != known) {
            return Err(CONFLICT);
        }
        self.generation = self.generation.wrapping_add(1);
        Ok(self.remove(host))
    }

    fn remove(&mut self, host: Host) -> Notices {
        self.registrants.retain(|it| it.host != host);
        let Some((kind, holder)) = self.held else {
            return Vec::new();
        };
        let is_free = if kind.is_held_by_all() {
            self.registrants.is_empty()
        } else {
            holder == host
        };
        if is_free { self.free(host) } else { Vec::new() }
    }

    /// Releases the reservation. Registrants are notified if the type gave them rights (Base 8.19.8).
    fn free(&mut self, by: Host) -> Notices {
        let had_rights = self
            .kind()
            .is_some_and(ReservationType::lets_registrants_write);
        self.held = None;
        if had_rights {
            self.others(by, Notice::Released)
        } else {
            Vec::new()
        }
    }

    fn others(&self, but: Host, notice: Notice) -> Notices {
        let others = self.registrants.iter().filter(|it| it.host != but);
        others.map(|it| (it.host, notice)).collect()
    }

    /// Acquires the reservation.
    pub(crate) fn acquire(&mut self, host: Host, key: u64, kind: ReservationType) -> Change {
        self.check_key(&host, key)?;
        match self.held {
            Some((held, _)) if self.holds(&host) && held == kind => Ok(Vec::new()),
            Some(_) => Err(CONFLICT),
            None => {
                self.held = Some((kind, host));
                Ok(Vec::new())
            }
        }
    }

    /// Preempts the registrants with the key `preempted`, and takes the reservation if one of them held it
    /// (Base 8.19.7).
    pub(crate) fn preempt(
        &mut self,
        host: Host,
        key: u64,
        preempted: u64,
        kind: ReservationType,
    ) -> Change {
        self.check_key(&host, key)?;
        let Some((held, holder)) = self.held else {
            return self.push_out(host, |it| it.key == preempted);
        };
        if held.is_held_by_all() {
            return match preempted {
                0 => self.take_over(host, kind, |it| it.host != host),
                _ => self.push_out(host, |it| it.key == preempted),
            };
        }
        if self.key_of(&holder) == Some(preempted) {
            return self.take_over(host, kind, |it| it.key == preempted);
        }
        if preempted == 0 {
            return Err(INVALID);
        }
        self.push_out(host, |it| it.key == preempted)
    }

    fn push_out(&mut self, by: Host, whom: impl Fn(&Registrant) -> bool) -> Change {
        let out: Vec<Host> = self
            .registrants
            .iter()
            .filter(|it| whom(it))
            .map(|it| it.host)
            .collect();
        if out.is_empty() {
            return Err(CONFLICT);
        }
        self.generation = self.generation.wrapping_add(1);
        let mut notices = Vec::new();
        for host in out {
            notices.extend(self.remove(host));
            if host != by {
                notices.push((host, Notice::RegistrationPreempted));
            }
        }
        Ok(notices)
    }

    fn take_over(
        &mut self,
        host: Host,
        kind: ReservationType,
        whom: impl Fn(&Registrant) -> bool,
    ) -> Change {
        let changes_kind = self.held.is_some_and(|(held, _)| held != kind);
        let (out, stay): (Vec<Registrant>, Vec<Registrant>) = self
            .registrants
            .iter()
            .partition(|it| it.host != host && whom(it));
        self.registrants = stay;
        self.held = Some((kind, host));
        self.generation = self.generation.wrapping_add(1);
        let mut notices: Notices = out
            .iter()
            .map(|it| (it.host, Notice::RegistrationPreempted))
            .collect();
        if changes_kind {
            notices.extend(self.others(host, Notice::Released));
        }
        Ok(notices)
    }

    /// Releases the reservation. A registrant that does not hold it succeeds without effect.
    pub(crate) fn release(&mut self, host: Host, key: u64, kind: ReservationType) -> Change {
        self.check_key(&host, key)?;
        match self.held {
            Some((held, _)) if self.holds(&host) => match held == kind {
                true => Ok(self.free(host)),
                false => Err(INVALID),
            },
            _ => Ok(Vec::new()),
        }
    }

    /// Clears all registrations and the reservation.
    pub(crate) fn clear(&mut self, host: Host, key: u64) -> Change {
        self.check_key(&host, key)?;
        let notices = self.others(host, Notice::Preempted);
        self.held = None;
        self.registrants.clear();
        self.generation = self.generation.wrapping_add(1);
        Ok(notices)
    }

    /// The Reservation Status data structure (NVM 3.2.7).
    pub(crate) fn report(&self, extended: bool) -> Vec<u8> {
        let head = ReportHead {
            generation: self.generation,
            kind: self.kind().map_or(0, |kind| kind as u8),
            registrants: self.registrants.len() as u16,
            persists: u8::from(self.persists),
        };
        let mut bytes = head.to_bytes().to_vec();
        if extended {
            bytes.resize(EXTENDED_HEAD_SIZE, 0);
        }
        for it in &self.registrants {
            let (controller_id, key) = (DYNAMIC_CONTROLLER, it.key);
            let status = u8::from(self.holds(&it.host));
            if extended {
                let host_id = it.host;
                bytes.extend(
                    RegistrantExtended {
                        controller_id,
                        status,
                        key,
                        host_id,
                    }
                    .to_bytes(),
                );
            } else {
                let host_id = u64::from_le_bytes(*it.host.first_chunk().unwrap_or(&[0; 8]));
                bytes.extend(
                    ReportedRegistrant {
                        controller_id,
                        status,
                        host_id,
                        key,
                    }
                    .to_bytes(),
                );
            }
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Host = [1; 16];
    const B: Host = [2; 16];
    const C: Host = [3; 16];

    fn three() -> Reservations {
        let mut it = Reservations::default();
        for (host, key) in [(A, 10), (B, 20), (C, 30)] {
            it.register(host, key).unwrap();
        }
        it
    }

    #[test]
    fn rights_follow_the_kind() {
        // ReservationType, then what a registrant and another host may: read, write.
        let table = [
            (
                ReservationType::WriteExclusive,
                [true, false],
                [true, false],
            ),
            (
                ReservationType::ExclusiveAccess,
                [false, false],
                [false, false],
            ),
            (
                ReservationType::WriteExclusiveRegistrants,
                [true, true],
                [true, false],
            ),
            (
                ReservationType::ExclusiveAccessRegistrants,
                [true, true],
                [false, false],
            ),
            (
                ReservationType::WriteExclusiveAll,
                [true, true],
                [true, false],
            ),
            (
                ReservationType::ExclusiveAccessAll,
                [true, true],
                [false, false],
            ),
        ];
        for (kind, registrant, other) in table {
            let mut it = three();
            it.acquire(A, 10, kind).unwrap();
            let rights = |host| [it.permit(&host, false), it.permit(&host, true)];
            assert_eq!(rights(A), [true, true], "{kind:?}");
            assert_eq!(rights(B), registrant, "{kind:?}");
            assert_eq!(rights([9; 16]), other, "{kind:?}");
        }
    }

    #[test]
    fn keys_are_checked() {
        let mut it = three();
        assert_eq!(
            it.acquire(A, 11, ReservationType::WriteExclusive),
            Err(CONFLICT)
        );
        assert_eq!(
            it.acquire([9; 16], 0, ReservationType::WriteExclusive),
            Err(CONFLICT)
        );
        assert_eq!(it.register(A, 11), Err(CONFLICT));
        assert_eq!(it.unregister(A, Some(11)), Err(CONFLICT));
        it.acquire(A, 10, ReservationType::WriteExclusive).unwrap();
        assert_eq!(
            it.acquire(B, 20, ReservationType::WriteExclusive),
            Err(CONFLICT)
        );
        assert_eq!(
            it.release(A, 10, ReservationType::ExclusiveAccess),
            Err(INVALID)
        );
        assert_eq!(
            it.release(B, 20, ReservationType::WriteExclusive),
            Ok(Vec::new())
        );
        assert_eq!(it.kind(), Some(ReservationType::WriteExclusive));
    }

    #[test]
    fn preempted_registrants_are_notified() {
        let mut it = three();
        it.acquire(A, 10, ReservationType::WriteExclusive).unwrap();
        assert_eq!(
            it.preempt(B, 20, 0, ReservationType::WriteExclusive),
            Err(INVALID)
        );
        assert_eq!(
            it.preempt(B, 20, 99, ReservationType::WriteExclusive),
            Err(CONFLICT)
        );
        let notices = it
            .preempt(B, 20, 10, ReservationType::ExclusiveAccess)
            .unwrap();
        assert_eq!(
            notices,
            [(A, Notice::RegistrationPreempted), (C, Notice::Released)]
        );
        assert_eq!(
            (it.kind(), it.key_of(&A)),
            (Some(ReservationType::ExclusiveAccess), None)
        );
        assert_eq!(it.clear(C, 30).unwrap(), [(B, Notice::Preempted)]);
        assert_eq!((it.kind(), it.registrants.len()), (None, 0));
    }

    #[test]
    fn an_all_registrants_reservation_ends_with_the_last_registrant() {
        let mut it = three();
        it.acquire(A, 10, ReservationType::WriteExclusiveAll)
            .unwrap();
        it.unregister(A, Some(10)).unwrap();
        assert!(it.holds(&B) && it.kind().is_some());
        it.unregister(B, None).unwrap();
        it.unregister(C, None).unwrap();
        assert_eq!(it.kind(), None);
    }

    #[test]
    fn registrants_are_notified_of_a_release() {
        let mut it = three();
        it.acquire(A, 10, ReservationType::WriteExclusiveRegistrants)
            .unwrap();
        let released = it
            .release(A, 10, ReservationType::WriteExclusiveRegistrants)
            .unwrap();
        assert_eq!(released, [(B, Notice::Released), (C, Notice::Released)]);
        let report = it.report(true);
        assert_eq!((report.len(), report[5]), (64 + 3 * 64, 3));
        assert_eq!(it.report(false).len(), 24 + 3 * 24);
    }
}

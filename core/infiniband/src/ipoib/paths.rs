//! Paths to ports, as the manager gives them, and programs that wait for one.

use super::address::HardwareAddress;
use super::requests::Purpose;
use super::{Action, AddressHandle, Failure, Interface};
use crate::lid::FIRST_MULTICAST;
use crate::mad::Mad;
use crate::sa::{Gid, PathRecord};
use crate::subnet::GlobalRoute;
use alloc::vec::Vec;
use core::net::IpAddr;
use fabric::Time;

/// Paths at most; when there are more, those are forgotten to which no neighbour is known.
const PATHS_MAX: usize = 2_048;
/// Programs that wait for a path at most.
const RESOLVING_MAX: usize = 1_024;

/// A path to a port.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Path {
    record: Option<PathRecord>,
    /// The manager has been asked, and has not answered yet.
    is_asked: bool,
}

/// What a program asks the path to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// The interface with an IP address.
    Ip(IpAddr),
    /// The port with a GID.
    Gid(Gid),
}

/// A program that waits for a path.
#[derive(Clone, Copy, Debug)]
pub(super) struct Resolving {
    number: u64,
    target: Target,
    ends_at: Time,
}

impl<P: AsRef<[u8]>> Interface<P> {
    /// Asks for the path to an address, for a program. [`Action::Resolved`] with this number follows, by this
    /// time.
    pub fn resolve(&mut self, now: Time, number: u64, target: Target, ends_at: Time) {
        self.now = self.now.max(now);
        if self.resolving.len() >= RESOLVING_MAX {
            let result = Err(Failure::NoRoom);
            self.actions.push(Action::Resolved { number, result });
            return;
        }
        self.resolving.push(Resolving {
            number,
            target,
            ends_at,
        });
        self.run(now);
    }

    /// A program does not wait for a path any more.
    pub fn cancel(&mut self, number: u64) {
        self.resolving.retain(|one| one.number != number);
    }

    /// The time at which a program has waited too long.
    pub(super) fn next_of_resolving(&self) -> Time {
        let times = self.resolving.iter().map(|one| one.ends_at);
        times.min().unwrap_or(Time::NEVER)
    }

    /// Answers the programs that wait for a path: with the path, or with an error after their timeout. Asks
    /// the manager for paths that are not known.
    pub(super) fn run_resolving(&mut self) {
        let now = self.now;
        for one in core::mem::take(&mut self.resolving) {
            let Resolving {
                number,
                target,
                ends_at,
            } = one;
            let result = match self.path_to(target) {
                Some(record) => Ok(record),
                None if ends_at <= now => Err(Failure::TimedOut),
                None => {
                    self.resolving.push(one);
                    continue;
                }
            };
            self.actions.push(Action::Resolved { number, result });
        }
    }

    /// The path to a target; what is missing for it is asked for.
    fn path_to(&mut self, target: Target) -> Option<PathRecord> {
        self.link?;
        let gid = match target {
            Target::Gid(gid) => gid,
            Target::Ip(address) if self.is_own(address) => self.place.gid,
            Target::Ip(address) if address.is_multicast() => return None,
            Target::Ip(address) => match self.hardware_of(&address) {
                Some(hardware) => hardware.gid,
                None => {
                    self.ensure_neighbour(address);
                    return None;
                }
            },
        };
        let record = self.paths.get(&gid).and_then(|path| path.record);
        if record.is_none() {
            self.ask_for_path(gid);
        }
        record
    }

    /// Programs that wait for an address do so in vain.
    pub(super) fn fail_resolving(&mut self, failure: Failure, fails: impl Fn(IpAddr) -> bool) {
        self.end_resolving(
            failure,
            |target| matches!(target, Target::Ip(address) if fails(address)),
        );
    }

    fn end_resolving(&mut self, failure: Failure, fails: impl Fn(Target) -> bool) {
        let actions = &mut self.actions;
        self.resolving.retain(|one| {
            let ends = fails(one.target);
            if ends {
                let (number, result) = (one.number, Err(failure));
                actions.push(Action::Resolved { number, result });
            }
            !ends
        });
    }

    /// Asks the manager for the path to a port, unless it has been asked.
    pub(super) fn ask_for_path(&mut self, gid: Gid) {
        if self.paths.len() >= PATHS_MAX && !self.paths.contains_key(&gid) {
            let used: Vec<Gid> = self
                .neighbours
                .keys()
                .filter_map(|address| Some(self.hardware_of(address)?.gid))
                .collect();
            self.paths
                .retain(|gid, path| path.is_asked || used.contains(gid));
        }
        let path = self.paths.entry(gid).or_default();
        if core::mem::replace(&mut path.is_asked, true) {
            return;
        }
        let mad = PathRecord::find(self.place.gid, gid, self.place.p_key);
        self.ask(Purpose::Path(gid), mad);
    }

    /// All paths are asked for again, and used as they are until then.
    pub(super) fn renew_paths(&mut self) {
        let all: Vec<Gid> = self.paths.keys().copied().collect();
        for gid in all {
            if let Some(path) = self.paths.get_mut(&gid) {
                path.is_asked = false;
            }
            self.ask_for_path(gid);
        }
    }

    /// The manager has answered for a path; `None` when it has not answered.
    pub(super) fn path_found(&mut self, gid: Gid, answer: Option<&Mad>) {
        let Some(path) = self.paths.get_mut(&gid) else {
            return;
        };
        path.is_asked = false;
        let before = path.record;
        let found = answer.filter(|mad| mad.status() == 0);
        let found = found.map(PathRecord::of_answer).filter(|record| {
            record.destination == gid && (1..FIRST_MULTICAST).contains(&record.destination_lid)
        });
        if let Some(record) = found {
            path.record = Some(record);
            // What was published by another path is published by this one.
            return self.path_changed(gid, false);
        }
        // A path that is known stays in use while no manager answers.
        if answer.is_none() && before.is_some() {
            return;
        }
        self.paths.remove(&gid);
        self.path_changed(gid, true);
        if answer.is_none() {
            return;
        }
        let own = self.place.gid;
        let gids: Vec<(IpAddr, Gid)> = self
            .neighbours
            .keys()
            .filter_map(|address| Some((*address, self.hardware_of(address)?.gid)))
            .collect();
        let owns: Vec<IpAddr> = self.own.iter().map(|one| one.address).collect();
        self.end_resolving(Failure::NoPath, |target| match target {
            Target::Gid(of) => of == gid,
            Target::Ip(address) => {
                gids.contains(&(address, gid)) || own == gid && owns.contains(&address)
            }
        });
    }

    /// How packets for a hardware address are addressed, if the path to its port is known.
    pub(super) fn handle_of(&self, hardware: HardwareAddress) -> Option<AddressHandle> {
        let record = self.paths.get(&hardware.gid)?.record?;
        let link = self.link?;
        // Paths within the subnet need no global route.
        let global = (record.hop_limit > 1).then_some(GlobalRoute {
            traffic_class: record.traffic_class,
            flow_label: record.flow_label,
            hop_limit: record.hop_limit,
            source: self.place.gid,
            destination: hardware.gid,
        });
        Some(AddressHandle {
            lid: record.destination_lid,
            service_level: record.service_level,
            p_key: link.p_key,
            q_key: link.q_key,
            qpn: hardware.qpn,
            global,
        })
    }
}

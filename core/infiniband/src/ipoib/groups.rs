//! Multicast groups of an interface (RFC 4391, 4 and 5): the broadcast group, without which there is no link;
//! groups that the host is a member of; and those to which it sends alone.

use super::address::{MULTICAST_QP, broadcast_gid, group_gid};
use super::reports::Report;
use super::requests::Purpose;
use super::{Action, AddressHandle, Interface, Link, Parcel};
use crate::lid::FIRST_MULTICAST;
use crate::mad::Mad;
use crate::sa::{Gid, MemberRecord, join, mtu_bytes};
use crate::subnet::GlobalRoute;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::IpAddr;
use fabric::{Span, Time};

/// Groups of an interface at most; packets for further ones are dropped.
const GROUPS_MAX: usize = 256;
/// Groups that the programs of a host may be members of.
const MEMBERS_MAX: usize = 128;
/// Packets that wait for a group at most; the oldest is dropped for one more.
const QUEUE_MAX: usize = 16;
/// The first and the longest time after which a join that was refused is tried again, as Linux has them.
const BACKOFF: (Span, Span) = (Span(1_000_000_000_000), Span(16_000_000_000_000));
/// How long a group that did not exist is taken to be absent.
const ABSENT: Span = Span(500_000_000_000);
/// After which time without packets a group is left to which the host sends alone.
const UNUSED: Span = Span(60_000_000_000_000);
/// How long groups are not asked for after the port has become active, or a manager asks for that: it makes
/// ports active one after the other, and what comes before the way is active is lost.
const SETTLING: Span = Span(20_000_000_000);
/// Bytes of the encapsulation header.
const ENCAPSULATION_BYTES: u16 = 4;

/// Where a group is with its manager.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// Asks at this time.
    Waits(Time),
    /// Waits for an answer.
    Asks,
    /// Takes part since this time, or has sent at it.
    Joined(Time),
    /// Does not exist, as far as is known until this time.
    Absent(Time),
}

/// A multicast group.
#[derive(Debug)]
pub(super) struct Group<P> {
    /// The host receives from the group, too.
    is_member: bool,
    stage: Stage,
    record: Option<MemberRecord>,
    backoff: Span,
    queue: VecDeque<Parcel<P>>,
}

impl<P> Group<P> {
    fn new(is_member: bool, now: Time) -> Self {
        Self {
            is_member,
            stage: Stage::Waits(now),
            record: None,
            backoff: BACKOFF.0,
            queue: VecDeque::new(),
        }
    }

    /// The time of the next event; groups other than that of broadcast wait for it.
    fn next_event(&self, may_ask: bool) -> Time {
        match self.stage {
            Stage::Waits(at) if may_ask => at,
            Stage::Absent(until) => until,
            Stage::Joined(at) if !self.is_member => at + UNUSED,
            _ => Time::NEVER,
        }
    }
}

impl<P: AsRef<[u8]>> Interface<P> {
    /// Begins with all groups anew: nothing has been joined.
    pub(super) fn restart_groups(&mut self) {
        let (now, p_key) = (self.now + SETTLING, self.place.p_key);
        let members = self.members.iter().map(|group| group_gid(p_key, *group));
        let all = members.chain([broadcast_gid(p_key)]);
        self.groups = all.map(|gid| (gid, Group::new(true, now))).collect();
    }

    /// Joins all groups again while they are used as before.
    pub(super) fn join_again(&mut self) {
        let now = self.now + SETTLING;
        self.groups.retain(|_, group| {
            (group.stage, group.backoff) = (Stage::Waits(now), BACKOFF.0);
            group.is_member
        });
    }

    fn is_broadcast(&self, gid: &Gid) -> bool {
        *gid == broadcast_gid(self.place.p_key)
    }

    /// The time at which a group has something to do.
    pub(super) fn next_of_groups(&self) -> Time {
        let times = self
            .groups
            .iter()
            .map(|(gid, group)| group.next_event(self.link.is_some() || self.is_broadcast(gid)));
        times.min().unwrap_or(Time::NEVER)
    }

    /// Asks for groups, and leaves those that are not used.
    pub(super) fn run_groups(&mut self) {
        let now = self.now;
        let due = self.groups.iter().filter(|(gid, group)| {
            group.next_event(self.link.is_some() || self.is_broadcast(gid)) <= now
        });
        let due: Vec<(Gid, Stage)> = due.map(|(gid, group)| (*gid, group.stage)).collect();
        for (gid, stage) in due {
            match stage {
                Stage::Waits(_) => self.ask_for_group(gid),
                Stage::Joined(_) => self.leave(gid, join::SEND_ONLY),
                Stage::Absent(_) | Stage::Asks => {
                    self.groups.remove(&gid);
                }
            }
        }
    }

    fn ask_for_group(&mut self, gid: Gid) {
        let is_broadcast = self.is_broadcast(&gid);
        let Some(group) = self.groups.get_mut(&gid) else {
            return;
        };
        group.stage = Stage::Asks;
        let is_member = group.is_member;
        let record = self.member_record(gid, join::FULL);
        if is_member {
            // The manager makes the broadcast group, and others are like it.
            self.ask(Purpose::Join(gid), record.join(!is_broadcast));
        } else {
            self.ask(Purpose::Find(gid), record.find());
        }
    }

    /// What a join asks for: the parameters are those of the broadcast group.
    fn member_record(&self, mgid: Gid, join_state: u8) -> MemberRecord {
        let broadcast = self.groups.get(&broadcast_gid(self.place.p_key));
        let like = broadcast.and_then(|group| group.record).unwrap_or_default();
        MemberRecord {
            mgid,
            port_gid: self.place.gid,
            p_key: self.place.p_key,
            mlid: 0,
            join_state,
            ..like
        }
    }

    /// The manager has answered whether a group exists; `None` when it has not answered.
    pub(super) fn group_found(&mut self, gid: Gid, answer: Option<&Mad>) {
        let exists = answer.is_some_and(|mad| mad.status() == 0);
        let Some(group) = self.groups.get_mut(&gid) else {
            return;
        };
        if group.is_member {
            group.stage = Stage::Waits(self.now);
        } else if exists {
            let record = self.member_record(gid, join::SEND_ONLY);
            self.ask(Purpose::Join(gid), record.join(false));
        } else {
            (group.stage, group.record) = (Stage::Absent(self.now + ABSENT), None);
            group.queue.clear();
        }
    }

    /// The manager has answered a join; `None` when it has not answered.
    pub(super) fn group_joined(&mut self, gid: Gid, answer: Option<&Mad>) {
        let record = answer.filter(|mad| mad.status() == 0);
        let record = record.map(MemberRecord::of_answer);
        let record = record.filter(|it| it.mgid == gid && it.mlid >= FIRST_MULTICAST);
        let Some(group) = self.groups.get_mut(&gid) else {
            return;
        };
        let Some(record) = record else {
            group.stage = if group.is_member {
                Stage::Waits(self.now + group.backoff)
            } else {
                Stage::Absent(self.now + ABSENT)
            };
            group.backoff = Span((group.backoff.0 * 2).min(BACKOFF.1.0));
            group.queue.clear();
            return;
        };
        if group.is_member && record.join_state & join::FULL == 0 {
            group.stage = Stage::Waits(self.now);
            return;
        }
        (group.stage, group.backoff) = (Stage::Joined(self.now), BACKOFF.0);
        group.record = Some(record);
        let waiting = core::mem::take(&mut group.queue);
        if self.is_broadcast(&gid) {
            self.set_link(&record);
        }
        for parcel in waiting {
            self.send_to_group(gid, parcel);
        }
    }

    /// The broadcast group has been joined: its parameters are those of the link.
    fn set_link(&mut self, record: &MemberRecord) {
        let mtu = mtu_bytes(record.mtu).min(mtu_bytes(self.place.mtu));
        let link = Link {
            mtu: mtu - ENCAPSULATION_BYTES,
            q_key: record.q_key,
            p_key: self.place.p_key,
            rate: record.rate,
        };
        let before = self.link.replace(link);
        if before != Some(link) {
            self.actions.push(Action::Link(Some(link)));
        }
        if before.is_none() {
            self.announce();
        } else if before != Some(link) {
            self.publish_again();
        }
    }

    /// Sends to a group, or keeps the packet until that can be.
    pub(super) fn send_to_group(&mut self, gid: Gid, parcel: Parcel<P>) {
        let now = self.now;
        if !self.groups.contains_key(&gid) {
            if self.groups.len() >= GROUPS_MAX {
                self.dropped += 1;
                return;
            }
            self.groups.insert(gid, Group::new(false, now));
        }
        let to = self.group_handle(gid);
        let Some(group) = self.groups.get_mut(&gid) else {
            return;
        };
        match (to, group.stage) {
            (Some(to), stage) => {
                if let Stage::Joined(_) = stage {
                    group.stage = Stage::Joined(now);
                }
                self.actions.push(Action::Send { to, parcel });
            }
            (None, Stage::Absent(_)) => self.dropped += 1,
            (None, _) => {
                if group.queue.len() >= QUEUE_MAX {
                    group.queue.pop_front();
                    self.dropped += 1;
                }
                group.queue.push_back(parcel);
            }
        }
    }

    /// How packets for a group that was joined are addressed.
    fn group_handle(&self, gid: Gid) -> Option<AddressHandle> {
        let record = self.groups.get(&gid)?.record?;
        let link = self.link?;
        Some(AddressHandle {
            lid: record.mlid,
            service_level: record.service_level,
            p_key: link.p_key,
            q_key: link.q_key,
            qpn: MULTICAST_QP,
            global: Some(GlobalRoute {
                traffic_class: record.traffic_class,
                flow_label: record.flow_label,
                hop_limit: record.hop_limit,
                source: self.place.gid,
                destination: gid,
            }),
        })
    }

    /// Whether the host receives packets for a group.
    pub(super) fn is_member(&self, gid: &Gid) -> bool {
        self.groups.get(gid).is_some_and(|group| group.is_member)
    }

    /// The host has joined an IP group, or left it.
    pub(super) fn take_report(&mut self, report: Report) {
        let Report { group, is_member } = report;
        let gid = group_gid(self.place.p_key, group);
        if self.is_permanent(group) || self.is_broadcast(&gid) {
            return;
        }
        if !is_member {
            if self.members.remove(&group) {
                self.leave(gid, join::FULL);
            }
            return;
        }
        if self.members.len() >= MEMBERS_MAX || !self.members.insert(group) {
            return;
        }
        let now = self.now;
        let entry = self
            .groups
            .entry(gid)
            .or_insert_with(|| Group::new(true, now));
        entry.is_member = true;
        if entry.stage != Stage::Asks {
            entry.stage = Stage::Waits(now);
        }
    }

    /// Leaves a group in one of the ways of taking part.
    fn leave(&mut self, gid: Gid, join_state: u8) {
        let group = self.groups.remove(&gid);
        if group.is_some_and(|group| group.record.is_some()) {
            let record = self.member_record(gid, join_state);
            self.ask(Purpose::Leave, record.leave());
        }
    }

    /// Groups that the host is always a member of: all hosts, and those of its own IPv6 addresses.
    fn is_permanent(&self, group: IpAddr) -> bool {
        super::permanent_groups(&self.own).any(|own| own == group)
    }
}

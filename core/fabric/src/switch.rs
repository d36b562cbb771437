//! The switch: packets that arrive are classified, routed, admitted to the buffer, queued, scheduled and
//! sent.

mod lanes;

use crate::config::{
    CLASSES, ClassMap, Limit, PORTS_MAX, PortConfig, Profile, RedAt, SwitchConfig, Treatment, Trim,
};
use crate::counters::{BufferCounters, Drop, IngressCounters, LinkCounters, PortCounters};
use crate::egress::{Egress, Frame, Next, PauseFrame};
use crate::ingress::{Buffer, Ingress, PfcSignal};
use crate::lanes::LaneMap;
use crate::packet::{ECN_CE, Packet, PacketId, Packets, UNTAGGED};
use crate::random::Pcg32;
use crate::route::Routes;
use crate::time::Time;
use crate::watchdog::Watchdog;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Requests of a switch to its driver.
pub trait Wire {
    /// A frame begins to leave `port` now, and its last bit leaves at `end`.
    fn send(&mut self, port: u16, frame: Frame, end: Time, packets: &mut Packets);

    /// Requests a call of [`Switch::handle_wake`] at `at`.
    fn wake(&mut self, port: u16, at: Time);

    /// A packet is put behind others at `egress`, the queues of `port`. Drivers that keep no record of
    /// packets have nothing to do here.
    #[inline]
    fn queued(&mut self, port: u16, id: PacketId, egress: &Egress, packets: &Packets) {
        let _ = (port, id, egress, packets);
    }

    /// Reports that the packet was dropped; its number may be used again.
    fn dropped(&mut self, port: u16, id: PacketId, why: Drop, packets: &mut Packets);
}

/// A port. Fields are in memory order: all that every arrival touches is in one cache line.
#[derive(Clone, Debug)]
#[repr(C)]
struct SwitchPort {
    profile: u8,
    ingress: Ingress,
    egress: Egress,
}

/// The ports by which a packet enters and leaves.
#[derive(Clone, Copy, Debug)]
struct Crossing {
    from: u16,
    out: u16,
}

/// A lossless switch with its ports, queues, routes and buffer. Fields are in memory order: those that every
/// arrival reads come first.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct Switch {
    ports: Vec<SwitchPort>,
    profiles: Vec<Profile>,
    /// Number of this switch: packets for it leave at [`Packet::exit`].
    number: u32,
    routes: Routes,
    random: Pcg32,
    buffer: Buffer,
    watchdog: Option<Watchdog>,
    /// InfiniBand: the lanes of service levels.
    lane_map: Option<Box<LaneMap>>,
}

const _: () = assert!(
    core::mem::offset_of!(SwitchPort, ingress)
        + core::mem::offset_of!(Ingress, counters)
        + core::mem::offset_of!(crate::counters::IngressCounters, bytes)
        + size_of::<u64>()
        <= 64,
    "what every arrival counts is in the first cache line of its port"
);

impl Switch {
    /// Makes the switch `number`.
    pub fn new(config: &SwitchConfig, number: u32, routes: Routes, random: Pcg32) -> Self {
        let profile = |index: u8| &config.profiles[usize::from(index)];
        let ports = config.ports.iter().map(|port| SwitchPort {
            egress: Egress::new(port.rate, profile(port.profile)),
            ingress: Ingress::default(),
            profile: port.profile,
        });
        Self {
            ports: ports.collect(),
            buffer: Buffer::new(
                &config.buffer,
                config.ports.iter().map(|port| profile(port.profile)),
            ),
            profiles: config.profiles.clone(),
            routes,
            watchdog: None,
            lane_map: None,
            random,
            number,
        }
    }

    /// Handles a packet whose last bit arrived.
    #[inline]
    pub fn handle_packet(
        &mut self,
        now: Time,
        port: u16,
        id: PacketId,
        packets: &mut Packets,
        wire: &mut impl Wire,
    ) {
        let SwitchPort {
            ingress, profile, ..
        } = &mut self.ports[usize::from(port)];
        let packet = &mut packets[id];
        ingress.counters.packets += 1;
        ingress.counters.bytes += u64::from(packet.length);
        let profile = &self.profiles[usize::from(*profile)];
        profile.map.apply(packet);
        packet.group = profile.group_of_class[usize::from(packet.class)];
        packet.ingress = port;
        let ports = &self.ports;
        let load = |port: u16| ports[usize::from(port)].egress.queued_bytes();
        let out = match packet.hop_limit.checked_sub(1) {
            None if self.lane_map.is_some() => {
                return self.handle_on_lane(now, port, id, packets, wire);
            }
            None => return self.drop(port, id, Drop::HopLimit, packets, wire),
            Some(left) => {
                packet.hop_limit = left;
                if packet.leaf == self.number {
                    Some(packet.exit)
                } else {
                    self.routes.choose(packet, now, &mut self.random, load)
                }
            }
        };
        let Some(out) = out.filter(|out| usize::from(*out) < self.ports.len()) else {
            return self.drop(port, id, Drop::NoRoute, packets, wire);
        };
        let egress = &mut self.ports[usize::from(out)].egress;
        if egress.is_clear(packet.class, now) {
            // An idle port sends at once: the packet takes no room in the buffer.
            let end = egress.send_at_once(packet, now);
            packets.stamp(id, || egress.hop(port_number(self.number, out)));
            return wire.send(out, Frame::Packet(id), end, packets);
        }
        self.enqueue(now, port, out, id, packets, wire);
    }

    /// Handles a pause frame that arrived; the driver calls this after the response time.
    pub fn handle_pause(
        &mut self,
        now: Time,
        port: u16,
        frame: PauseFrame,
        packets: &mut Packets,
        wire: &mut impl Wire,
    ) {
        let SwitchPort {
            egress,
            ingress,
            profile,
        } = &mut self.ports[usize::from(port)];
        ingress.counters.pauses_received += 1;
        if egress.handle_pause(frame, now, &self.profiles[usize::from(*profile)].pfc) {
            self.advance(now, port, packets, wire);
        }
    }

    /// Handles a wake that was requested with [`Wire::wake`].
    #[inline]
    pub fn handle_wake(
        &mut self,
        now: Time,
        port: u16,
        packets: &mut Packets,
        wire: &mut impl Wire,
    ) {
        if self.ports[usize::from(port)].egress.take_wake(now) {
            self.advance(now, port, packets, wire);
        }
    }

    /// How many ports there are.
    pub fn ports(&self) -> u16 {
        self.ports.len() as u16
    }

    /// The sending half of a port: its queues and their counters.
    #[inline]
    pub fn egress(&self, port: u16) -> &Egress {
        &self.ports[usize::from(port)].egress
    }

    /// The cache lines that releasing the memory of a packet that waits needs.
    #[inline]
    pub fn release_lines(&self, packet: &Packet, load: impl Fn(*const u8)) {
        self.ports
            .get(usize::from(packet.ingress))
            .into_iter()
            .for_each(|port| {
                load(core::ptr::from_ref(port).cast());
                load(port.ingress.use_line(packet.group));
            });
    }

    /// The port by which an arriving packet will leave, by its addresses and their hash alone: for drivers
    /// that prefetch the data that the packet needs.
    #[inline]
    pub fn expected_port(&self, packet: &Packet) -> Option<u16> {
        let port = if packet.leaf == self.number {
            Some(packet.exit)
        } else {
            self.routes.by_hash(packet)
        };
        port.filter(|port| usize::from(*port) < self.ports.len())
    }

    /// The cache lines that a packet needs when it arrives, for drivers that load them in advance: those of
    /// the receiving half of `port`, and of the sending half of the port by which it will leave, which is
    /// returned.
    #[inline]
    pub fn arrival_lines(
        &self,
        port: u16,
        packet: &Packet,
        load: impl Fn(*const u8),
    ) -> Option<u16> {
        load(core::ptr::from_ref(&self.ports[usize::from(port)]).cast());
        let out = self.expected_port(packet)?;
        let egress = &self.ports[usize::from(out)].egress;
        egress.lines(usize::from(packet.class()) % CLASSES, &load);
        Some(out)
    }

    /// The cache lines that a packet needs when it has to wait at the port by which it will leave.
    #[inline]
    pub fn queueing_lines(&self, port: u16, packet: &Packet, load: impl Fn(*const u8)) {
        let out = self.expected_port(packet).unwrap_or(port);
        if self.ports[usize::from(out)].egress.queued_bytes() > 0 {
            let SwitchPort {
                profile, ingress, ..
            } = &self.ports[usize::from(port)];
            let groups = &self.profiles[usize::from(*profile)].group_of_class;
            load(ingress.use_line(groups[usize::from(packet.class) % CLASSES]));
        }
    }

    /// Counters of packets that arrived at a port.
    #[inline]
    pub fn counters(&self, port: u16) -> &IngressCounters {
        &self.ports[usize::from(port)].ingress.counters
    }

    /// All counters of a port until `now`. Those of its link are zero: the driver adds them.
    pub fn port_counters(&self, port: u16, now: Time) -> PortCounters {
        let SwitchPort {
            ingress, egress, ..
        } = &self.ports[usize::from(port)];
        PortCounters {
            ingress: ingress.counters,
            queues: core::array::from_fn(|class| egress.counters(class, now)),
            groups: ingress.peaks(),
            incidents: egress.incidents().cloned().map(Box::new),
            link: LinkCounters::default(),
        }
    }

    /// Bytes of a priority group of a port that are in the buffer.
    pub fn group_bytes(&self, port: u16, group: usize) -> u32 {
        self.ports[usize::from(port)].ingress.bytes(group)
    }

    /// Priority groups of a port for which the last signal to the peer is Xoff, one bit each.
    pub fn xoff_groups(&self, port: u16) -> u8 {
        self.ports[usize::from(port)].ingress.xoff_sent()
    }

    /// The queues (port and class) that hold packets which arrived at `port`.
    pub fn held_from(&self, port: u16, packets: &Packets) -> Vec<(u16, u8)> {
        let mut found = Vec::new();
        for (out, SwitchPort { egress, .. }) in (0..).zip(&self.ports) {
            let held = |class: &u8| {
                egress
                    .waiting(usize::from(*class), packets)
                    .any(|p| p.ingress == port)
            };
            found.extend((0..CLASSES as u8).filter(held).map(|class| (out, class)));
        }
        found
    }

    /// Use of the packet memory, now and at most.
    pub fn buffer(&self) -> BufferCounters {
        self.buffer.counters
    }

    fn drop(
        &mut self,
        port: u16,
        id: PacketId,
        why: Drop,
        packets: &mut Packets,
        wire: &mut impl Wire,
    ) {
        self.ports[usize::from(port)].ingress.counters.dropped[why as usize] += 1;
        wire.dropped(port, id, why, packets);
    }

    /// Drops a packet at the queue that it would have taken.
    fn drop_at_queue(
        &mut self,
        crossing: Crossing,
        id: PacketId,
        why: Drop,
        packets: &mut Packets,
        wire: &mut impl Wire,
    ) {
        let Packet { class, length, .. } = packets[id];
        let Crossing { from, out } = crossing;
        let incidents = self.ports[usize::from(out)].egress.incidents_mut();
        incidents.dropped[usize::from(class)][why as usize].count(length);
        self.drop(from, id, why, packets, wire);
    }

    #[inline(always)]
    fn enqueue(
        &mut self,
        now: Time,
        port: u16,
        out: u16,
        id: PacketId,
        packets: &mut Packets,
        wire: &mut impl Wire,
    ) {
        if let Err(why) = self.early(out, &mut packets[id]) {
            return self.drop_at_queue(Crossing { from: port, out }, id, why, packets, wire);
        }
        let Packet { length, group, .. } = packets[id];
        let cost = self.buffer.cost(length);
        let SwitchPort {
            ingress,
            profile,
            egress,
        } = &mut self.ports[usize::from(port)];
        let profile = &self.profiles[usize::from(*profile)];
        let group = usize::from(group);
        let Some(signal) = ingress.admit(group, cost, &profile.groups[group], &mut self.buffer)
        else {
            egress.incidents_mut().refused[group].count(length);
            let crossing = Crossing { from: port, out };
            return self.drop_at_queue(crossing, id, Drop::Ingress, packets, wire);
        };
        if signal == PfcSignal::Xoff && profile.pfc.send >> group & 1 == 1 {
            ingress.counters.pauses_sent += 1;
            egress.signal(profile.pfc.priority_of_group[group], PfcSignal::Xoff);
            self.advance(now, port, packets, wire);
        }
        let egress = &mut self.ports[usize::from(out)].egress;
        wire.queued(out, id, egress, packets);
        egress.push(id, packets);
        self.advance(now, out, packets, wire);
    }

    /// Applies the queue's limit, and random early detection where it is configured for arrivals.
    #[inline(always)]
    fn early(&mut self, out: u16, packet: &mut Packet) -> Result<(), Drop> {
        let SwitchPort {
            egress, profile, ..
        } = &mut self.ports[usize::from(out)];
        let class = usize::from(packet.class);
        if egress.is_storming(class) {
            return Err(Drop::Storm);
        }
        let config = &self.profiles[usize::from(*profile)].queues[class];
        let waiting = egress.queue_bytes(class);
        if let Some(trim) = config.trim
            && waiting + u32::from(packet.length) > trim.at_bytes
            && packet.length > trim.to_bytes
        {
            return self.trim(out, trim, packet);
        }
        if config.limit != Limit::None
            && waiting + u32::from(packet.length) > self.buffer.limit(config.limit)
        {
            return Err(Drop::Egress);
        }
        let Some(red) = &config.red else {
            return Ok(());
        };
        let (capable, marks) = (
            packet.is_ecn_capable(),
            red.mark && red.at == RedAt::Enqueue,
        );
        if capable && marks && red.hits(waiting, &mut self.random) {
            egress.mark_on_arrival(class, packet);
        } else if red.drop && !(capable && red.mark) && red.hits(waiting, &mut self.random) {
            return Err(Drop::Early);
        }
        Ok(())
    }

    /// Cuts a packet to its headers, and puts it into the queue that these have.
    #[cold]
    fn trim(&mut self, out: u16, trim: Trim, packet: &mut Packet) -> Result<(), Drop> {
        let class = usize::from(packet.class);
        let counters = self.ports[usize::from(out)].egress.incidents_mut();
        counters.trimmed[class].count(packet.length);
        packet.length = trim.to_bytes;
        packet.tos = trim.dscp << 2 | packet.tos & ECN_CE;
        packet.kind = packet.kind.trimmed(packet.leaf == self.number);
        packet.put_into_class(trim.class);
        let profile_at =
            |port: u16| &self.profiles[usize::from(self.ports[usize::from(port)].profile)];
        packet.group = profile_at(packet.ingress).group_of_class[usize::from(packet.class)];
        let limit = profile_at(out).queues[usize::from(packet.class)].limit;
        let egress = &self.ports[usize::from(out)].egress;
        if egress.is_storming(usize::from(packet.class)) {
            return Err(Drop::Storm);
        }
        let waiting = egress.queue_bytes(usize::from(packet.class));
        if limit != Limit::None && waiting + u32::from(packet.length) > self.buffer.limit(limit) {
            return Err(Drop::Egress);
        }
        Ok(())
    }

    /// Reroutes: from now on the switch selects among these next hops. Packets that wait stay in their
    /// queues.
    pub fn set_next_hops(&mut self, next_hops: alloc::sync::Arc<crate::NextHops>) {
        self.routes.set_next_hops(next_hops);
    }

    /// Replaces the configuration of ports while they hold packets. Returns `false`, and changes nothing,
    /// where ports or reserves differ, because packets in the buffer are charged to these. The division of
    /// the buffer and the shapers stay as they are.
    pub fn reconfigure(
        &mut self,
        now: Time,
        config: &SwitchConfig,
        packets: &mut Packets,
        wire: &mut impl Wire,
    ) -> bool {
        let profile = |index: u8| config.profiles.get(usize::from(index));
        let reserves = |profile: &Profile| profile.groups.map(|group| group.reserve_bytes);
        let fits = |(own, new): (&SwitchPort, &PortConfig)| {
            profile(new.profile).is_some_and(|new| {
                reserves(new) == reserves(&self.profiles[usize::from(own.profile)])
            })
        };
        if self.ports.len() != config.ports.len() || !self.ports.iter().zip(&config.ports).all(fits)
        {
            return false;
        }
        let before = core::mem::replace(&mut self.profiles, config.profiles.clone());
        for (number, new) in (0_u16..).zip(&config.ports) {
            let SwitchPort {
                ingress,
                egress,
                profile,
            } = &mut self.ports[usize::from(number)];
            let (old_pfc, new_pfc) = (
                &before[usize::from(*profile)].pfc,
                &self.profiles[usize::from(new.profile)].pfc,
            );
            *profile = new.profile;
            egress.set_rate(new.rate);
            egress.follow(now, &self.profiles[usize::from(new.profile)]);
            let changed = old_pfc.send ^ new_pfc.send;
            for group in
                (0..CLASSES).filter(|group| ingress.xoff_sent() & changed >> group & 1 == 1)
            {
                // The peer is not to wait for an Xon that no group sends any more.
                egress.signal(old_pfc.priority_of_group[group], PfcSignal::Xon);
            }
            ingress.forget_xoff(changed);
            self.advance(now, number, packets, wire);
        }
        true
    }

    /// Sets the PFC watchdog; the driver then has to call [`Self::poll_watchdog`] from time to time.
    pub fn set_watchdog(&mut self, watchdog: Option<Watchdog>) {
        self.watchdog = watchdog;
    }

    /// Runs the PFC watchdog: drops packets in queues that were paused for too long, and packets that arrive
    /// for these queues until they have not been paused for a while (action `drop` of SONiC's `pfcwd`).
    pub fn poll_watchdog(&mut self, now: Time, packets: &mut Packets, wire: &mut impl Wire) {
        let Some(watchdog) = self.watchdog else {
            return;
        };
        for port in 0..self.ports() {
            let storming = self.ports[usize::from(port)].egress.watch(now, &watchdog);
            for class in (0..CLASSES).filter(|class| storming >> class & 1 == 1) {
                while let Some(id) = self.ports[usize::from(port)].egress.take(class, packets) {
                    self.release(now, packets[id], packets, wire);
                    let crossing = Crossing {
                        from: packets[id].ingress,
                        out: port,
                    };
                    self.drop_at_queue(crossing, id, Drop::Storm, packets, wire);
                }
            }
        }
    }

    /// Sends what a port may send now, and requests the wake that it needs.
    fn advance(&mut self, now: Time, port: u16, packets: &mut Packets, wire: &mut impl Wire) {
        let SwitchPort {
            egress, profile, ..
        } = &mut self.ports[usize::from(port)];
        let profile = &self.profiles[usize::from(*profile)];
        let next = egress.next(now, profile, packets, &mut self.random);
        let wake = match next {
            Next::Packet { end, .. } | Next::Pause { end, .. } | Next::Credits { end, .. } => {
                egress.has_more().then_some(end)
            }
            // What follows may leave now.
            Next::Expired { .. } => Some(now),
            Next::Wait(at) => Some(at),
            Next::Idle => None,
        };
        if let Some(at) = wake.filter(|at| egress.wants_wake(*at)) {
            wire.wake(port, at);
        }
        match next {
            Next::Packet { id, end } => {
                packets.stamp(id, || egress.hop(port_number(self.number, port)));
                self.release(now, packets[id], packets, wire);
                wire.send(port, Frame::Packet(id), end, packets);
            }
            Next::Pause { frame, end } => wire.send(port, Frame::Pause(frame), end, packets),
            Next::Credits { update, end } => {
                wire.send(port, Frame::Credits(update), end, packets);
            }
            Next::Expired { id } => self.expire(now, port, id, packets, wire),
            Next::Wait(_) | Next::Idle => {}
        }
    }

    /// A packet leaves the buffer, which may lead to Xon.
    fn release(&mut self, now: Time, packet: Packet, packets: &mut Packets, wire: &mut impl Wire) {
        let cost = self.buffer.cost(packet.length);
        let SwitchPort {
            ingress,
            profile,
            egress,
        } = &mut self.ports[usize::from(packet.ingress)];
        let profile = &self.profiles[usize::from(*profile)];
        let group = usize::from(packet.group);
        let signal = ingress.release(group, cost, &profile.groups[group], &mut self.buffer);
        if egress.has_lanes() {
            let Packet {
                ingress,
                group,
                length,
                ..
            } = packet;
            return self.free_on_lane(now, ingress, group, length, packets, wire);
        }
        if signal == PfcSignal::Xon && profile.pfc.send >> group & 1 == 1 {
            ingress.counters.resumes_sent += 1;
            egress.signal(profile.pfc.priority_of_group[group], PfcSignal::Xon);
            self.advance(now, packet.ingress, packets, wire);
        }
    }
}

/// A number that identifies a port of a switch in the whole network.
fn port_number(switch: u32, port: u16) -> u32 {
    switch
        .wrapping_mul(PORTS_MAX as u32)
        .wrapping_add(u32::from(port))
}

impl ClassMap {
    /// Decides a packet's class, and rewrites its DSCP and priority code point where configured.
    #[inline]
    fn apply(&self, packet: &mut Packet) {
        let Treatment { class, dscp, pcp } = if self.trust_dscp {
            self.dscp[usize::from(packet.tos >> 2)]
        } else if self.trust_pcp && packet.pcp != UNTAGGED {
            self.pcp[usize::from(packet.pcp & 7)]
        } else {
            self.default
        };
        packet.class = class;
        if let Some(dscp) = dscp {
            packet.tos = dscp << 2 | (packet.tos & 3);
        }
        if let Some(pcp) = pcp.filter(|_| packet.pcp != UNTAGGED) {
            packet.pcp = pcp;
        }
    }
}

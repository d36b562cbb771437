//! Facts of a switch and of its ports, from the outputs of its commands.

use std::collections::BTreeMap;

use crate::facts::Fact;
use crate::text::mask;

/// Facts of a port, as the switch shows it. A fact that was not shown is `None`.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ShownPort {
    /// The name of the port.
    pub name: String,
    /// Priorities at which PFC is in operation.
    pub pfc: Option<Fact<u8>>,
    /// Whether PFC is enabled, without regard to whether it is in operation.
    pub pfc_enabled: Option<Fact<bool>>,
    /// Priorities whose queue the watchdog has stopped.
    pub stormed: BTreeMap<u8, Fact<()>>,
    /// Storms that are over, by the queue that the watchdog had stopped.
    pub storms_over: BTreeMap<u8, Fact<StormsOver>>,
    /// Packets dropped on arrival, by priority group.
    pub arrival_drops: BTreeMap<u8, Fact<u64>>,
    /// Dropped packets by queue.
    pub drops: BTreeMap<u8, Fact<u64>>,
    /// The largest payload of a frame.
    pub mtu: Option<Fact<u32>>,
    /// Whether the link is up.
    pub up: Option<Fact<bool>>,
    /// Whether the DSCP decides about the class.
    pub trusts_dscp: Option<Fact<bool>>,
    /// Queues that mark packets, one bit each.
    pub marks: Option<Fact<u8>>,
    /// Whether packets of one flow are sent over several paths (adaptive routing in operation).
    pub sprays: Option<Fact<bool>>,
    /// Packets that were marked, by queue.
    pub marked: BTreeMap<u8, Fact<u64>>,
    /// Class by DSCP, as far as it is shown.
    pub dscp: Option<Fact<[Option<u8>; 64]>>,
}

/// Storms of a queue that are over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StormsOver {
    /// How often the watchdog detected a storm.
    pub detected: u64,
    /// Packets that were dropped in them.
    pub dropped: u64,
}

/// Facts of a file of outputs.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Shown {
    /// Ports in the order in which they appear.
    pub ports: Vec<ShownPort>,
    /// Facts that hold for all ports.
    pub all: ShownPort,
    /// Bytes of the chip's packet memory.
    pub memory: Option<Fact<u64>>,
}

impl Shown {
    /// The port of a name, made if it is new.
    pub(crate) fn port(&mut self, name: &str) -> &mut ShownPort {
        let found = self.ports.iter().position(|port| port.name == name);
        let index = found.unwrap_or_else(|| {
            self.ports.push(ShownPort {
                name: name.to_owned(),
                ..ShownPort::default()
            });
            self.ports.len() - 1
        });
        &mut self.ports[index]
    }

    /// The ports, and the facts of all ports if there are any.
    pub fn each(&self) -> impl Iterator<Item = &ShownPort> {
        let all = Some(&self.all).filter(|all| **all != ShownPort::default());
        self.ports.iter().chain(all)
    }
}

impl Shown {
    /// Gives the priorities of all ports to those that are configured with PFC: an output of profiles names
    /// no ports.
    pub fn pfc_of_profiles<'a>(&mut self, ports: impl Iterator<Item = &'a str>) {
        let Some(pfc) = self.all.pfc.take() else {
            return;
        };
        for name in ports {
            self.port(name).pfc.get_or_insert_with(|| pfc.clone());
        }
    }

    /// Gives counters of queues to classes, where a system numbers them otherwise.
    pub fn number_by_class(&mut self, class_of_queue: [u8; 8]) {
        let class = |queue: u8| {
            class_of_queue
                .get(usize::from(queue))
                .copied()
                .unwrap_or(queue)
        };
        for port in self.ports.iter_mut().chain([&mut self.all]) {
            let renumbered = |counters: &mut BTreeMap<u8, Fact<u64>>| {
                let own = core::mem::take(counters).into_iter();
                *counters = own.map(|(queue, fact)| (class(queue), fact)).collect();
            };
            renumbered(&mut port.drops);
            renumbered(&mut port.marked);
        }
    }

    /// Gives facts of queues to the classes that have them, of which several may share one: a counter is that
    /// of the first of them.
    pub fn number_by_queue_of_class(&mut self, queue_of_class: [u8; 8]) {
        let mut class_of_queue = core::array::from_fn(|queue| queue as u8);
        for (class, queue) in (0_u8..8).zip(queue_of_class).rev() {
            class_of_queue[usize::from(queue & 7)] = class;
        }
        self.number_by_class(class_of_queue);
        for port in self.ports.iter_mut().chain([&mut self.all]) {
            if let Some(marks) = &mut port.marks {
                let queues = marks.value;
                let is_marked =
                    |class: &u8| queues >> (queue_of_class[usize::from(*class)] & 7) & 1 == 1;
                marks.value = mask(&(0..8).filter(is_marked).collect::<Vec<_>>());
            }
        }
    }
}

impl ShownPort {
    /// Takes dropped packets of a queue; of several outputs that count them, the most.
    pub(crate) fn dropped(&mut self, queue: u8, packets: Fact<u64>) {
        let before = self.drops.get(&queue).map_or(0, |drops| drops.value);
        if packets.value >= before {
            self.drops.insert(queue, packets);
        }
    }

    /// The name in messages.
    pub fn title(&self) -> &str {
        if self.name.is_empty() {
            "all ports"
        } else {
            &self.name
        }
    }

    /// Whether a configuration's name is of this port: `Et1` and `Ethernet1` are one port.
    pub fn is_called(&self, name: &str) -> bool {
        let number = |name: &str| {
            name.trim_start_matches(|letter: char| letter.is_ascii_alphabetic())
                .to_owned()
        };
        let short = |name: &str| name.get(..2).unwrap_or_default().to_ascii_lowercase();
        self.name == name
            || (number(&self.name) == number(name) && short(&self.name) == short(name))
    }
}

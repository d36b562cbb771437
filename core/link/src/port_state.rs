//! The state of a host's InfiniBand port, which a lab tells to devices: when they ask, and at each change.

/// Entries of the table of partition keys.
pub const PARTITIONS: usize = 32;

/// Asynchronous events that a change of a port raises.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum PortEvent {
    /// The link carries data.
    Active,
    /// The link carries no data any more.
    Error,
    /// The LID or the number of paths changed.
    LidChange,
    /// The prefix of the GIDs changed.
    GidChange,
    /// A partition key changed.
    PartitionChange,
    /// The manager's LID or service level changed.
    ManagerChange,
    /// The manager asks to register again for groups and events.
    ClientReregister,
}

impl PortEvent {
    const ALL: [Self; 7] = [
        Self::Active,
        Self::Error,
        Self::LidChange,
        Self::GidChange,
        Self::PartitionChange,
        Self::ManagerChange,
        Self::ClientReregister,
    ];
}

/// The state of a port. Codes are those of PortInfo (IBTA 14.2.5.6), but for the speed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PortState {
    /// The GUID of the adapter.
    pub node_guid: u64,
    /// The GUID of the port.
    pub guid: u64,
    /// The first half of its GIDs.
    pub prefix: u64,
    /// What the port can.
    pub capabilities: u32,
    /// The base LID; 0 before a manager has assigned one.
    pub lid: u16,
    /// The LID of the manager.
    pub manager_lid: u16,
    /// One bit for each lane's signalling, from SDR on, as `ibv_port_attr` has it.
    pub speed: u16,
    /// The keys of the partitions that the port is in; 0 is an empty entry.
    pub partitions: [u16; PARTITIONS],
    /// How many low bits of a LID are for paths.
    pub lmc: u8,
    /// The service level towards the manager.
    pub manager_level: u8,
    /// The state of the link.
    pub state: u8,
    /// The state of the physical layer.
    pub physical: u8,
    /// The code of the largest packet that the port takes.
    pub max_mtu: u8,
    /// The code of the largest packet that both ends take.
    pub active_mtu: u8,
    /// The code of the number of lanes.
    pub width: u8,
    /// The code of the number of virtual lanes.
    pub virtual_lanes: u8,
    /// The rate of traps, as a power of two of 4.096 us.
    pub subnet_timeout: u8,
    /// One bit for each event that led to this state.
    events: u8,
}

/// The state of a link that carries data.
const ACTIVE: u8 = 4;

impl PortState {
    /// Length of the message in bytes.
    pub const BYTES: usize = 3 * 8 + 4 + 3 * 2 + 2 * PARTITIONS + 10;

    /// Whether the link carries data.
    pub fn is_active(&self) -> bool {
        self.state == ACTIVE
    }

    /// Adds an event that led to this state.
    pub fn add_event(&mut self, event: PortEvent) {
        self.events |= 1 << event as u8;
    }

    /// The events that led to this state.
    pub fn events(&self) -> impl Iterator<Item = PortEvent> {
        let events = self.events;
        PortEvent::ALL
            .into_iter()
            .filter(move |event| events >> *event as u8 & 1 == 1)
    }

    /// Encodes the state.
    pub fn to_bytes(&self) -> Vec<u8> {
        let wide = [self.node_guid, self.guid, self.prefix];
        let mut bytes: Vec<u8> = wide.into_iter().flat_map(u64::to_le_bytes).collect();
        bytes.extend(self.capabilities.to_le_bytes());
        let words = [self.lid, self.manager_lid, self.speed];
        bytes.extend(
            words
                .into_iter()
                .chain(self.partitions)
                .flat_map(u16::to_le_bytes),
        );
        bytes.extend([
            self.lmc,
            self.manager_level,
            self.state,
            self.physical,
            self.max_mtu,
            self.active_mtu,
            self.width,
            self.virtual_lanes,
            self.subnet_timeout,
            self.events,
        ]);
        bytes
    }

    /// Decodes a state; `None` for what is none.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::BYTES] = bytes.try_into().ok()?;
        let wide = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]));
        let word = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let narrow = |at: usize| bytes[34 + 2 * PARTITIONS + at];
        Some(Self {
            node_guid: wide(0),
            guid: wide(8),
            prefix: wide(16),
            capabilities: u32::from_le_bytes(std::array::from_fn(|byte| bytes[24 + byte])),
            lid: word(28),
            manager_lid: word(30),
            speed: word(32),
            partitions: std::array::from_fn(|index| word(34 + 2 * index)),
            lmc: narrow(0) & 7,
            manager_level: narrow(1),
            state: narrow(2),
            physical: narrow(3),
            max_mtu: narrow(4),
            active_mtu: narrow(5),
            width: narrow(6),
            virtual_lanes: narrow(7),
            subnet_timeout: narrow(8),
            events: narrow(9),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_read_as_it_was_written() {
        let mut state = PortState {
            node_guid: 1 << 60,
            guid: 2 << 50,
            prefix: 0xfe80 << 48,
            capabilities: 0x0251_0868,
            lid: 0xbfff,
            manager_lid: 7,
            speed: 256,
            partitions: std::array::from_fn(|index| index as u16 * 7),
            lmc: 7,
            manager_level: 3,
            state: ACTIVE,
            physical: 5,
            max_mtu: 5,
            active_mtu: 4,
            width: 2,
            virtual_lanes: 1,
            subnet_timeout: 18,
            events: 0,
        };
        state.add_event(PortEvent::ClientReregister);
        state.add_event(PortEvent::Active);
        let bytes = state.to_bytes();
        assert_eq!(bytes.len(), PortState::BYTES);
        assert_eq!(PortState::parse(&bytes), Some(state.clone()));
        assert!(
            state
                .events()
                .eq([PortEvent::Active, PortEvent::ClientReregister])
        );
        assert_eq!(PortState::parse(&bytes[1..]), None);
    }
}

//! Subnet administration (IBTA 15.2): the records that a host asks a manager for, and the requests.

use crate::mad::{Mad, class, get, method, put};

/// A global identifier: the prefix of the subnet, and the GUID of a port; or a multicast group.
pub type Gid = [u8; 16];

/// The version of the class.
const VERSION: u8 = 2;
/// Where the component mask is: it says which fields of a request count.
const MASK_AT: usize = 48;
/// Where the record is.
const RECORD_AT: usize = 56;
/// The selector of MTUs and rates that says "exactly".
const EXACTLY: u8 = 2;
/// The bits of a code beside its selector.
const CODE: u8 = 0x3f;

/// Attributes of records.
pub mod record {
    /// The way from one port to another.
    pub const PATH: u16 = 0x35;
    /// A multicast group with a port that takes part in it.
    pub const MEMBER: u16 = 0x38;
}

/// How a port takes part in a multicast group: bits of JoinState.
pub mod join {
    /// The port receives and sends.
    pub const FULL: u8 = 1;
    /// The port sends alone, and the group ends without regard to it.
    pub const SEND_ONLY: u8 = 4;
}

/// Components of an MCMemberRecord (IBTA table 210).
mod member {
    pub(super) const MGID: u64 = 1 << 0;
    pub(super) const PORT_GID: u64 = 1 << 1;
    pub(super) const Q_KEY: u64 = 1 << 2;
    pub(super) const MTU: u64 = 1 << 4 | 1 << 5;
    pub(super) const TRAFFIC_CLASS: u64 = 1 << 6;
    pub(super) const P_KEY: u64 = 1 << 7;
    pub(super) const RATE: u64 = 1 << 8 | 1 << 9;
    pub(super) const SERVICE_LEVEL: u64 = 1 << 12;
    pub(super) const FLOW_LABEL: u64 = 1 << 13;
    pub(super) const HOP_LIMIT: u64 = 1 << 14;
    pub(super) const JOIN_STATE: u64 = 1 << 16;
    /// What a join names beside the group and the port.
    pub(super) const JOIN: u64 = MGID | PORT_GID | P_KEY | JOIN_STATE;
    /// What a group that does not exist is made of.
    pub(super) const CREATE: u64 =
        Q_KEY | MTU | TRAFFIC_CLASS | RATE | SERVICE_LEVEL | FLOW_LABEL | HOP_LIMIT;
}

/// Components of a PathRecord: the two GIDs, reversible, the number of paths, and the partition.
const PATH_MASK: u64 = 1 << 2 | 1 << 3 | 1 << 11 | 1 << 12 | 1 << 13;

/// A multicast group, and how a port takes part in it: MCMemberRecord.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MemberRecord {
    /// The GID of the group.
    pub mgid: Gid,
    /// The GID of the port.
    pub port_gid: Gid,
    /// The key that members' queue pairs have.
    pub q_key: u32,
    /// The LID to which packets for the group are sent.
    pub mlid: u16,
    /// The largest payload, as a code.
    pub mtu: u8,
    /// The traffic class of packets.
    pub traffic_class: u8,
    /// The partition of the group.
    pub p_key: u16,
    /// The rate, as a code.
    pub rate: u8,
    /// The service level of packets.
    pub service_level: u8,
    /// The flow label of packets.
    pub flow_label: u32,
    /// The hop limit of packets.
    pub hop_limit: u8,
    /// Bits of [`join`].
    pub join_state: u8,
}

impl MemberRecord {
    fn parse(data: &[u8]) -> Self {
        let route: u32 = get(data, 44);
        let gid = |at: usize| get::<u128>(data, at).to_be_bytes();
        Self {
            mgid: gid(0),
            port_gid: gid(16),
            q_key: get(data, 32),
            mlid: get(data, 36),
            mtu: get::<u8>(data, 38) & CODE,
            traffic_class: get(data, 39),
            p_key: get(data, 40),
            rate: get::<u8>(data, 42) & CODE,
            service_level: (route >> 28) as u8,
            flow_label: route >> 8 & 0x000f_ffff,
            hop_limit: route as u8,
            join_state: get::<u8>(data, 48) & 0xf,
        }
    }

    fn write(&self, data: &mut [u8]) {
        put(data, 0, u128::from_be_bytes(self.mgid));
        put(data, 16, u128::from_be_bytes(self.port_gid));
        put(data, 32, self.q_key);
        put(data, 36, self.mlid);
        put(data, 38, EXACTLY << 6 | self.mtu);
        put(data, 39, self.traffic_class);
        put(data, 40, self.p_key);
        put(data, 42, EXACTLY << 6 | self.rate);
        let route = u32::from(self.service_level) << 28
            | (self.flow_label & 0x000f_ffff) << 8
            | u32::from(self.hop_limit);
        put(data, 44, route);
        // The upper half is the scope, which the GID of the group has too.
        put(data, 48, (self.mgid[1] & 0xf) << 4 | self.join_state);
    }

    /// The record of an answer.
    pub fn of_answer(mad: &Mad) -> Self {
        Self::parse(&mad.bytes()[RECORD_AT..])
    }

    /// The request to join the group. With `creates` the group is made if it does not exist.
    pub fn join(&self, creates: bool) -> Mad {
        let more = if creates { member::CREATE } else { 0 };
        self.request(method::SET, member::JOIN | more)
    }

    /// The request to leave the group.
    pub fn leave(&self) -> Mad {
        let mask = member::MGID | member::PORT_GID | member::JOIN_STATE;
        self.request(method::DELETE, mask)
    }

    /// The question whether the group exists.
    pub fn find(&self) -> Mad {
        self.request(method::GET, member::MGID)
    }

    fn request(&self, method: u8, mask: u64) -> Mad {
        let mut mad = request(method, record::MEMBER, mask);
        self.write(&mut mad.bytes_mut()[RECORD_AT..]);
        mad
    }

    /// The answer to a request, as a manager gives it.
    pub fn answer(&self, request: &Mad) -> Mad {
        let mut mad = answer_of(request);
        self.write(&mut mad.bytes_mut()[RECORD_AT..]);
        mad
    }
}

/// The way from one port to another: PathRecord.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PathRecord {
    /// The GID of the port at the end.
    pub destination: Gid,
    /// The GID of the port at the beginning.
    pub source: Gid,
    /// The LID to which packets are sent.
    pub destination_lid: u16,
    /// The LID from which packets are sent.
    pub source_lid: u16,
    /// The flow label, for packets with a global route header.
    pub flow_label: u32,
    /// The hop limit; more than 1 where the path leads through routers.
    pub hop_limit: u8,
    /// The traffic class.
    pub traffic_class: u8,
    /// The key of the partition.
    pub p_key: u16,
    /// The service level.
    pub service_level: u8,
    /// The largest payload, as a code.
    pub mtu: u8,
    /// The rate, as a code.
    pub rate: u8,
    /// How long a packet may be on its way, as a power of two of 4.096 us.
    pub life_time: u8,
}

impl PathRecord {
    /// The record of an answer.
    pub fn of_answer(mad: &Mad) -> Self {
        let data = &mad.bytes()[RECORD_AT..];
        let route: u32 = get(data, 44);
        let gid = |at: usize| get::<u128>(data, at).to_be_bytes();
        Self {
            destination: gid(8),
            source: gid(24),
            destination_lid: get(data, 40),
            source_lid: get(data, 42),
            flow_label: route >> 8 & 0x000f_ffff,
            hop_limit: route as u8,
            traffic_class: get(data, 48),
            p_key: get(data, 50),
            service_level: get::<u8>(data, 53) & 0xf,
            mtu: get::<u8>(data, 54) & CODE,
            rate: get::<u8>(data, 55) & CODE,
            life_time: get::<u8>(data, 56) & CODE,
        }
    }

    fn write(&self, data: &mut [u8]) {
        put(data, 8, u128::from_be_bytes(self.destination));
        put(data, 24, u128::from_be_bytes(self.source));
        put(data, 40, self.destination_lid);
        put(data, 42, self.source_lid);
        let route = (self.flow_label & 0x000f_ffff) << 8 | u32::from(self.hop_limit);
        put(data, 44, route);
        put(data, 48, self.traffic_class);
        // Reversible, and one path.
        put(data, 49, 0x81_u8);
        put(data, 50, self.p_key);
        put(data, 52, u16::from(self.service_level));
        put(data, 54, EXACTLY << 6 | self.mtu);
        put(data, 55, EXACTLY << 6 | self.rate);
        put(data, 56, EXACTLY << 6 | self.life_time);
    }

    /// The question for a reversible path between two ports in a partition.
    pub fn find(source: Gid, destination: Gid, p_key: u16) -> Mad {
        let mut mad = request(method::GET, record::PATH, PATH_MASK);
        let path = Self {
            destination,
            source,
            p_key,
            ..Self::default()
        };
        path.write(&mut mad.bytes_mut()[RECORD_AT..]);
        mad
    }

    /// The answer to a request, as a manager gives it.
    pub fn answer(&self, request: &Mad) -> Mad {
        let mut mad = answer_of(request);
        self.write(&mut mad.bytes_mut()[RECORD_AT..]);
        mad
    }
}

fn request(method: u8, attribute: u16, mask: u64) -> Mad {
    let mut mad = Mad::new(class::SUBNET_ADMINISTRATION, VERSION, method, attribute, 0);
    mad.put_u64(MASK_AT, mask);
    mad
}

fn answer_of(request: &Mad) -> Mad {
    let mut mad = request.clone();
    let method = match request.method() {
        method::DELETE => method::DELETE | method::RESPONSE,
        _ => method::GET_RESPONSE,
    };
    mad.set_method(method);
    mad.set_status(0);
    mad
}

/// Bytes of an MTU's code; 256 for one that is none.
pub const fn mtu_bytes(code: u8) -> u16 {
    match code {
        2 => 512,
        3 => 1024,
        4 => 2048,
        5 => 4096,
        _ => 256,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_as_they_were_written() {
        let member = MemberRecord {
            mgid: [0xff; 16],
            port_gid: [3; 16],
            q_key: 0xb1b,
            mlid: 0xc001,
            mtu: 4,
            traffic_class: 7,
            p_key: 0xffff,
            rate: 3,
            service_level: 5,
            flow_label: 0xabcde,
            hop_limit: 9,
            join_state: join::FULL,
        };
        let request = member.join(true);
        assert_eq!(request.u64(MASK_AT), 0x0001_73f7, "the mask of Linux");
        assert_eq!(member.leave().method(), 0x15);
        assert_eq!(MemberRecord::of_answer(&member.answer(&request)), member);
        let path = PathRecord {
            destination: [1; 16],
            source: [2; 16],
            destination_lid: 7,
            source_lid: 8,
            flow_label: 0x12345,
            hop_limit: 1,
            traffic_class: 3,
            p_key: 0x8001,
            service_level: 2,
            mtu: 5,
            rate: 16,
            life_time: 18,
        };
        let request = PathRecord::find([2; 16], [1; 16], 0x8001);
        assert_eq!(PathRecord::of_answer(&path.answer(&request)), path);
        assert_eq!([0, 1, 4, 5, 9].map(mtu_bytes), [256, 256, 2048, 4096, 256]);
    }
}

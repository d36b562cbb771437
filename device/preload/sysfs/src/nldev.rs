//! Answers of the kernel's RDMA netlink interface for rockery's devices: client `RDMA_NL_NLDEV` of Linux's
//! `rdma_netlink.h`. iproute2's `rdma`, UCX and scripts use it.

use crate::devices::Device;

/// `struct nlmsghdr`: length, type, flags, sequence number, port.
const HEADER_BYTES: usize = 16;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_MULTI: u16 = 2;
const NLM_F_ACK: u16 = 4;
/// `NLM_F_ROOT | NLM_F_MATCH`.
const NLM_F_DUMP: u16 = 0x300;

/// The message type: `RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, command)`.
const NLDEV: u16 = 5 << 10;
const GET: u16 = NLDEV + 1;
const PORT_GET: u16 = NLDEV + 5;
const SYS_GET: u16 = NLDEV + 6;
const STAT_GET: u16 = NLDEV + 17;

/// Types of attributes (`enum rdma_nldev_attr`).
mod attribute {
    pub(super) const DEV_INDEX: u16 = 1;
    pub(super) const DEV_NAME: u16 = 2;
    pub(super) const PORT_INDEX: u16 = 3;
    pub(super) const FW_VERSION: u16 = 5;
    pub(super) const NODE_GUID: u16 = 6;
    pub(super) const SYS_IMAGE_GUID: u16 = 7;
    pub(super) const PORT_STATE: u16 = 12;
    pub(super) const PORT_PHYS_STATE: u16 = 13;
    pub(super) const DEV_NODE_TYPE: u16 = 14;
    pub(super) const NDEV_INDEX: u16 = 50;
    pub(super) const NDEV_NAME: u16 = 51;
    pub(super) const NETNS_MODE: u16 = 66;
    pub(super) const DEV_PROTOCOL: u16 = 67;
    pub(super) const HWCOUNTERS: u16 = 80;
    pub(super) const HWCOUNTER_ENTRY: u16 = 81;
    pub(super) const HWCOUNTER_ENTRY_NAME: u16 = 82;
    pub(super) const HWCOUNTER_ENTRY_VALUE: u16 = 83;
    pub(super) const COPY_ON_FORK: u16 = 93;
    /// Flag of attributes that contain attributes (`NLA_F_NESTED`).
    pub(super) const NESTED: u16 = 1 << 15;
}

/// Node type `RDMA_NODE_IB_CA`: a channel adapter.
const CHANNEL_ADAPTER: u8 = 1;
/// `IB_PORT_ACTIVE`, and `IB_PORT_PHYS_STATE_LINK_UP`.
const PORT_ACTIVE: u8 = 4;
const LINK_UP: u8 = 5;
/// Number of each device's only port.
const PORT: u32 = 1;
/// Devices belong to one network namespace each (exclusive mode).
const NETNS_EXCLUSIVE: u8 = 0;
/// A fork does not take registered memory from the parent (`RDMA_NLDEV_SYS_ATTR_COPY_ON_FORK`).
const COPIED_ON_FORK: u8 = 1;

/// A request to the netlink interface.
#[derive(Clone, Copy)]
struct Request<'a> {
    kind: u16,
    flags: u16,
    sequence: u32,
    /// Netlink port of the socket that sent the request.
    port: u32,
    attributes: &'a [u8],
}

/// The datagrams that answer a request from netlink port `port`. `counters` returns the counters of the
/// device with a name.
pub(crate) fn answers(
    sent: &[u8],
    port: u32,
    devices: &[Device],
    counters: &dyn Fn(&str) -> Vec<(String, u64)>,
) -> Vec<Vec<u8>> {
    let mut answers = Vec::new();
    let mut rest = sent;
    while let Some((request, after)) = next_request(rest, port) {
        answer(&request, devices, counters, &mut answers);
        rest = after;
    }
    answers
}

fn next_request(bytes: &[u8], port: u32) -> Option<(Request<'_>, &[u8])> {
    let word = |at: usize| {
        bytes
            .get(at..at + 4)
            .and_then(|it| it.try_into().ok())
            .map(u32::from_ne_bytes)
    };
    let half = |at: usize| {
        bytes
            .get(at..at + 2)
            .and_then(|it| it.try_into().ok())
            .map(u16::from_ne_bytes)
    };
    let length = word(0)? as usize;
    let attributes = bytes.get(HEADER_BYTES..length)?;
    let request = Request {
        kind: half(4)?,
        flags: half(6)?,
        sequence: word(8)?,
        port,
        attributes,
    };
    Some((
        request,
        bytes.get(length.next_multiple_of(4)..).unwrap_or_default(),
    ))
}

fn answer(
    request: &Request<'_>,
    devices: &[Device],
    counters: &dyn Fn(&str) -> Vec<(String, u64)>,
    answers: &mut Vec<Vec<u8>>,
) {
    if request.kind == SYS_GET {
        answers.push(request.message(0, |it| {
            it.put_attribute(attribute::NETNS_MODE, &[NETNS_EXCLUSIVE]);
            it.put_attribute(attribute::COPY_ON_FORK, &[COPIED_ON_FORK]);
        }));
        return acknowledge(request, answers);
    }
    let describe = |device: &Device, it: &mut Message| match request.kind {
        GET => device_of(device, it),
        PORT_GET => port_of(device, it),
        _ => counters_of(device, &counters(&device.name), it),
    };
    let wanted = request.attribute(attribute::DEV_INDEX);
    let is_wanted = |device: &&Device| wanted.is_none_or(|index| index == device.index);
    match request.kind {
        GET | PORT_GET | STAT_GET if request.flags & NLM_F_DUMP == NLM_F_DUMP => {
            // All of them in one datagram, as the kernel does: UCX reads only one.
            let all = devices.iter().filter(is_wanted);
            let all = all.map(|device| request.message(NLM_F_MULTI, |it| describe(device, it)));
            answers.push(all.collect::<Vec<_>>().concat());
            answers.retain(|datagram| !datagram.is_empty());
            answers.push(request.header(NLMSG_DONE, NLM_F_MULTI, &0i32.to_ne_bytes()));
        }
        GET | PORT_GET | STAT_GET => {
            let has_port = request
                .attribute(attribute::PORT_INDEX)
                .is_none_or(|port| port == PORT);
            let found = devices
                .iter()
                .find(is_wanted)
                .filter(|_| wanted.is_some() && has_port);
            match found {
                Some(device) => {
                    answers.push(request.message(0, |it| describe(device, it)));
                    acknowledge(request, answers);
                }
                None => answers.push(request.error(libc::EINVAL)),
            }
        }
        // Requests that a driver of the kernel would not support either.
        _ => answers.push(request.error(libc::EOPNOTSUPP)),
    }
}

fn acknowledge(request: &Request<'_>, answers: &mut Vec<Vec<u8>>) {
    if request.flags & NLM_F_ACK != 0 {
        answers.push(request.error(0));
    }
}

fn device_of(device: &Device, it: &mut Message) {
    it.handle(device);
    it.put_attribute(attribute::PORT_INDEX, &PORT.to_ne_bytes());
    it.text(attribute::FW_VERSION, &device.firmware);
    it.put_attribute(attribute::NODE_GUID, &device.guid.to_ne_bytes());
    it.put_attribute(attribute::SYS_IMAGE_GUID, &device.guid.to_ne_bytes());
    it.put_attribute(attribute::DEV_NODE_TYPE, &[CHANNEL_ADAPTER]);
    it.text(attribute::DEV_PROTOCOL, "roce");
}

fn port_of(device: &Device, it: &mut Message) {
    it.handle(device);
    it.put_attribute(attribute::PORT_INDEX, &PORT.to_ne_bytes());
    it.put_attribute(attribute::PORT_STATE, &[PORT_ACTIVE]);
    it.put_attribute(attribute::PORT_PHYS_STATE, &[LINK_UP]);
    it.put_attribute(attribute::NDEV_INDEX, &device.index.to_ne_bytes());
    it.text(attribute::NDEV_NAME, &device.interface);
}

fn counters_of(device: &Device, counters: &[(String, u64)], it: &mut Message) {
    it.handle(device);
    it.put_attribute(attribute::PORT_INDEX, &PORT.to_ne_bytes());
    it.nested(attribute::HWCOUNTERS, |it| {
        for (name, value) in counters {
            it.nested(attribute::HWCOUNTER_ENTRY, |it| {
                it.text(attribute::HWCOUNTER_ENTRY_NAME, name);
                it.put_attribute(attribute::HWCOUNTER_ENTRY_VALUE, &value.to_ne_bytes());
            });
        }
    });
}

impl Request<'_> {
    /// The value of a 32-bit attribute.
    fn attribute(&self, wanted: u16) -> Option<u32> {
        let mut rest = self.attributes;
        loop {
            let length = u16::from_ne_bytes(rest.get(..2)?.try_into().ok()?);
            let kind = u16::from_ne_bytes(rest.get(2..4)?.try_into().ok()?);
            let value = rest.get(4..usize::from(length))?;
            if kind == wanted {
                return value.try_into().ok().map(u32::from_ne_bytes);
            }
            rest = rest.get(usize::from(length).next_multiple_of(4)..)?;
        }
    }

    fn header(&self, kind: u16, flags: u16, payload: &[u8]) -> Vec<u8> {
        let length = (HEADER_BYTES + payload.len()) as u32;
        let mut bytes = length.to_ne_bytes().to_vec();
        bytes.extend([kind, flags].iter().flat_map(|it| it.to_ne_bytes()));
        bytes.extend(
            [self.sequence, self.port]
                .iter()
                .flat_map(|it| it.to_ne_bytes()),
        );
        bytes.extend(payload);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn message(&self, flags: u16, fill: impl FnOnce(&mut Message)) -> Vec<u8> {
        let mut message = Message(Vec::new());
        fill(&mut message);
        self.header(self.kind, flags, &message.0)
    }

    /// `struct nlmsgerr`: a negative error number, and the header of the request. 0 is an acknowledgement.
    fn error(&self, errno: i32) -> Vec<u8> {
        let request = self.header(self.kind, self.flags, self.attributes);
        let whole = if errno == 0 {
            &request[..HEADER_BYTES]
        } else {
            &request[..]
        };
        self.header(NLMSG_ERROR, 0, &[&(-errno).to_ne_bytes(), whole].concat())
    }
}

/// Attributes: `struct nlattr` (length, type), the value, and padding to 4 bytes.
struct Message(Vec<u8>);

impl Message {
    fn put_attribute(&mut self, kind: u16, value: &[u8]) {
        let length = (4 + value.len()) as u16;
        self.0
            .extend([length, kind].iter().flat_map(|it| it.to_ne_bytes()));
        self.0.extend(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }

    /// A string attribute, with its terminating zero.
    fn text(&mut self, kind: u16, text: &str) {
        self.put_attribute(kind, &[text.as_bytes(), &[0]].concat());
    }

    fn nested(&mut self, kind: u16, fill: impl FnOnce(&mut Self)) {
        let mut inner = Self(Vec::new());
        fill(&mut inner);
        self.put_attribute(kind | attribute::NESTED, &inner.0);
    }

    fn handle(&mut self, device: &Device) {
        self.put_attribute(attribute::DEV_INDEX, &device.index.to_ne_bytes());
        self.text(attribute::DEV_NAME, &device.name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn devices() -> Vec<Device> {
        [
            "2\trk_eth0\teth0\t1.0\t0x02aabbfffe000001",
            "1\trk_lo\tlo\t1.0\t0x1",
        ]
        .iter()
        .map(|line| Device::parse(line).unwrap())
        .collect()
    }

    fn request(kind: u16, flags: u16, attributes: &[(u16, u32)]) -> Vec<u8> {
        let mut message = Message(Vec::new());
        attributes
            .iter()
            .for_each(|(kind, value)| message.put_attribute(*kind, &value.to_ne_bytes()));
        Request {
            kind,
            flags,
            sequence: 7,
            port: 0,
            attributes: &[],
        }
        .header(kind, flags, &message.0)
    }

    fn ask(sent: &[u8]) -> Vec<Vec<u8>> {
        let counters = |name: &str| vec![(format!("sent_by_{name}"), 9)];
        answers(sent, 42, &devices(), &counters)
    }

    fn kind(datagram: &[u8]) -> u16 {
        u16::from_ne_bytes([datagram[4], datagram[5]])
    }

    fn contains(datagram: &[u8], text: &str) -> bool {
        datagram
            .windows(text.len())
            .any(|window| window == text.as_bytes())
    }

    #[test]
    fn a_dump_has_every_device_in_one_datagram_and_then_its_end() {
        let answers = ask(&request(GET, NLM_F_DUMP | 1, &[]));
        assert_eq!(
            answers.iter().map(|it| kind(it)).collect::<Vec<_>>(),
            [GET, NLMSG_DONE]
        );
        assert!(contains(&answers[0], "rk_eth0\0") && contains(&answers[0], "rk_lo\0"));
        // Sequence number and port are those of the request.
        assert_eq!(
            answers[0][8..16],
            [7u32.to_ne_bytes(), 42u32.to_ne_bytes()].concat()
        );
    }

    #[test]
    fn a_port_is_described_and_acknowledged() {
        let wanted = [(attribute::DEV_INDEX, 2), (attribute::PORT_INDEX, 1)];
        let answers = ask(&request(PORT_GET, NLM_F_ACK | 1, &wanted));
        assert_eq!(
            answers.iter().map(|it| kind(it)).collect::<Vec<_>>(),
            [PORT_GET, NLMSG_ERROR]
        );
        assert!(contains(&answers[0], "eth0\0"));
        assert_eq!(answers[1][16..20], 0i32.to_ne_bytes());
    }

    #[test]
    fn counters_are_returned_per_device() {
        let answers = ask(&request(
            STAT_GET,
            1,
            &[(attribute::DEV_INDEX, 1), (attribute::PORT_INDEX, 1)],
        ));
        assert!(answers.len() == 1 && contains(&answers[0], "sent_by_rk_lo\0"));
    }

    #[test]
    fn unsupported_requests_get_an_error() {
        let errno = |sent: &[u8]| {
            let answers = ask(sent);
            assert_eq!(
                answers.iter().map(|it| kind(it)).collect::<Vec<_>>(),
                [NLMSG_ERROR]
            );
            -i32::from_ne_bytes(answers[0][16..20].try_into().unwrap())
        };
        assert_eq!(
            errno(&request(GET, 1, &[(attribute::DEV_INDEX, 9)])),
            libc::EINVAL
        );
        assert_eq!(errno(&request(GET, 1, &[])), libc::EINVAL);
        let wanted = [(attribute::DEV_INDEX, 2), (attribute::PORT_INDEX, 2)];
        assert_eq!(errno(&request(PORT_GET, 1, &wanted)), libc::EINVAL);
        assert_eq!(errno(&request(NLDEV + 3, 1, &[])), libc::EOPNOTSUPP);
    }

    #[test]
    fn truncated_requests_get_no_answer() {
        let whole = request(GET, 1, &[(attribute::DEV_INDEX, 1)]);
        for length in 0..whole.len() {
            assert!(ask(&whole[..length]).is_empty(), "{length}");
        }
        assert_eq!(ask(&[&whole[..], &whole[..]].concat()).len(), 2);
        assert!(ask(&[0; 64]).is_empty());
    }
}

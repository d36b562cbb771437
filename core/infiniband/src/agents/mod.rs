//! What a kernel does for programs that manage: files of `/dev/infiniband/umadN`, agents, transactions with
//! their timeouts, messages of several datagrams, and the agents that get what arrives (Linux,
//! `drivers/infiniband/core`).

mod files;
mod record;
mod registration;
mod requests;
mod rmpp;

pub use files::{FileId, RECORDS_BYTES_MAX};
pub use record::{HEADER_BYTES, Header, OLD_HEADER_BYTES};

use crate::mad::{Mad, method};
use crate::node::Port;
use crate::subnet::{Packet, unhandled};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use fabric::{Span, Time};
use files::File;
use registration::{Registration, command};
use requests::{Key, Request};
use rmpp::{Kind, Progress, Receiver, Sender};

/// The number of an error, as `errno` has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Errno(pub i32);

impl Errno {
    /// An argument, a record or an agent is not valid.
    pub const INVALID: Self = Self(22);
    /// The file has no room for another agent.
    pub const NO_MEMORY: Self = Self(12);
    /// The file is not open any more.
    pub const IO: Self = Self(5);
    /// The file has no such call.
    pub const NOT_A_CALL: Self = Self(25);
    /// The status of a request without an answer: ETIMEDOUT.
    pub(crate) const TIMED_OUT: u32 = 110;
}

/// Agents of a file at most.
const AGENTS_MAX: usize = 32;
/// How long an answer of RMPP may take, before what it answers is sent again.
const ACKNOWLEDGEMENT: Span = Span(2_000_000_000_000);
/// How often that is.
const RETRIES: u32 = 3;
/// How long a message that is being received, or was, is remembered.
const REMEMBERED: Span = Span(40_000_000_000_000);
/// Messages that are received at once.
const RECEIVERS_MAX: usize = 1_024;
/// Requests of a file that wait for an answer, at most: each event looks at all of them.
const REQUESTS_MAX: usize = 4_096;
/// Bytes of all messages that are sent and received at once by the programs of a host, at most.
const MESSAGES_BYTES_MAX: usize = 128 << 20;

/// The agents of the programs on a port of a host.
#[derive(Debug, Default)]
pub struct Agents {
    files: BTreeMap<FileId, File>,
    next_file: u32,
    /// The number of the last agent: the upper half of transactions.
    last_agent: u32,
    requests: BTreeMap<Key, Request>,
    /// Messages that are sent, by transaction and method.
    senders: BTreeMap<(u64, u8), Outgoing>,
    receivers: BTreeMap<(u16, u64, u8), (Receiver, Time)>,
    outgoing: VecDeque<Packet>,
}

/// A message on its way out.
#[derive(Debug)]
struct Outgoing {
    sender: Sender,
    packet: Packet,
    again_at: Time,
    tries: u32,
    /// The request that this is, if it is one.
    request: Option<(Key, Request)>,
}

impl Agents {
    /// Opens a file.
    pub fn open(&mut self) -> FileId {
        self.next_file += 1;
        let id = FileId(self.next_file);
        self.files.insert(id, File::default());
        id
    }

    /// Closes a file: what its agents wait for is forgotten.
    pub fn close(&mut self, file: FileId) {
        self.files.remove(&file);
        self.requests.retain(|_, request| request.file != file);
    }

    /// The next record for a program to read.
    pub fn first_record(&self, file: FileId) -> Option<&[u8]> {
        self.files.get(&file)?.first_record()
    }

    /// The program has the next record.
    pub fn drop_record(&mut self, file: FileId) {
        if let Some(file) = self.files.get_mut(&file) {
            file.drop_record();
        }
    }

    /// Takes the packets that agents send.
    pub fn take_packets(&mut self) -> Vec<Packet> {
        self.outgoing.drain(..).collect()
    }

    /// The time at which something is due.
    pub fn next_event(&self) -> Time {
        let requests = self.requests.values().map(|request| request.ends_at);
        let senders = self.senders.values().map(|outgoing| outgoing.again_at);
        requests.chain(senders).min().unwrap_or(Time::NEVER)
    }

    /// A call on a file. The argument is read and written in place.
    ///
    /// # Errors
    /// As Linux has them.
    pub fn call(&mut self, file: FileId, command: u32, argument: &mut [u8]) -> Result<(), Errno> {
        let registration = match command {
            command::REGISTER => Registration::parse(argument).ok_or(Errno::INVALID)?,
            command::REGISTER_2 => Registration::parse_2(argument)?,
            command::UNREGISTER => return self.unregister(file, argument),
            command::ENABLE_P_KEY => {
                let file = self.files.get_mut(&file).ok_or(Errno::IO)?;
                return file.enable_p_key();
            }
            _ => return Err(Errno::NOT_A_CALL),
        };
        registration.check_values()?;
        if self.conflicts(&registration) {
            return Err(Errno::INVALID);
        }
        self.last_agent += 1;
        let number = self.last_agent;
        let file = self.files.get_mut(&file).ok_or(Errno::IO)?;
        let id = file.register(number, registration)?;
        if let Some(place) = argument.get_mut(..4) {
            place.copy_from_slice(&id.to_ne_bytes());
        }
        Ok(())
    }

    /// Whether another agent of the port gets some of the same requests.
    fn conflicts(&self, registration: &Registration) -> bool {
        let mut agents = self.files.values().flat_map(File::agents);
        agents.any(|(_, _, other)| other.conflicts(registration))
    }

    fn unregister(&mut self, id: FileId, argument: &[u8]) -> Result<(), Errno> {
        let argument = argument.try_into().map_err(|_| Errno::INVALID)?;
        let file = self.files.get_mut(&id).ok_or(Errno::IO)?;
        let number = file.unregister(u32::from_ne_bytes(argument))?;
        self.requests.retain(|_, request| request.agent != number);
        Ok(())
    }

    /// A program writes a record: a datagram leaves, or a message of several.
    ///
    /// # Errors
    /// As Linux has them.
    pub fn write(
        &mut self,
        now: Time,
        id: FileId,
        record: &[u8],
        port: &Port,
    ) -> Result<(), Errno> {
        let file = self.files.get(&id).ok_or(Errno::IO)?;
        let (header, datagram) = Header::parse(record, file.has_p_key()).ok_or(Errno::INVALID)?;
        if datagram.len() < RMPP_HEADER_BYTES {
            return Err(Errno::INVALID);
        }
        let (number, agent) = file.agent(header.agent)?;
        let mut mad = Mad::of_bytes(datagram);
        let is_message = agent.reassembles && rmpp::is_message(&mad);
        if !is_message && datagram.len() > crate::mad::MAD_BYTES {
            return Err(Errno::INVALID);
        }
        if !mad.is_response() {
            mad.set_transaction(u64::from(number) << 32 | mad.transaction() & 0xffff_ffff);
        }
        let packet = packet_of(&header, agent.qp, mad, port)?;
        let key = Key::of(&packet.mad);
        let waits = self
            .requests
            .values()
            .filter(|request| request.file == id)
            .count();
        let expects = header.timeout_ms > 0 && !packet.mad.is_response();
        if expects && (self.requests.contains_key(&key) || waits >= REQUESTS_MAX) {
            return Err(Errno::INVALID);
        }
        let request = expects.then(|| Request::new(now, id, number, header, packet.clone()));
        if is_message && self.message_bytes() + datagram.len() > MESSAGES_BYTES_MAX {
            return Err(Errno::NO_MEMORY);
        }
        if is_message {
            self.send_message(now, datagram, packet, request.map(|request| (key, request)));
            return Ok(());
        }
        if let Some(request) = request {
            self.requests.insert(key, request);
        }
        self.outgoing.push_back(packet);
        Ok(())
    }

    /// Bytes of the messages that are on their way in either direction.
    fn message_bytes(&self) -> usize {
        let sent = self
            .senders
            .values()
            .map(|outgoing| outgoing.sender.bytes());
        let received = self
            .receivers
            .values()
            .map(|(receiver, _)| receiver.bytes());
        sent.chain(received).sum()
    }

    fn send_message(
        &mut self,
        now: Time,
        datagram: &[u8],
        packet: Packet,
        request: Option<(Key, Request)>,
    ) {
        let mut message = datagram.to_vec();
        message[8..16].copy_from_slice(&packet.mad.transaction().to_be_bytes());
        let key = (packet.mad.transaction(), packet.mad.method());
        let mut outgoing = Outgoing {
            sender: Sender::new(&message),
            packet,
            again_at: now + ACKNOWLEDGEMENT,
            tries: 0,
            request,
        };
        self.outgoing.extend(outgoing.packets());
        self.senders.insert(key, outgoing);
    }

    /// Repeats and ends what is due.
    pub fn run(&mut self, now: Time) {
        let due = self
            .requests
            .iter()
            .filter(|(_, request)| request.ends_at <= now);
        let due: Vec<Key> = due.map(|(key, _)| *key).collect();
        for key in due {
            let Some(request) = self.requests.get_mut(&key) else {
                continue;
            };
            if let Some(packet) = request.repeat(now) {
                self.outgoing.push_back(packet);
            } else if let Some(request) = self.requests.remove(&key)
                && let Some(file) = self.files.get_mut(&request.file)
            {
                file.add_timeout(&request.header, &request.packet.mad);
            }
        }
        let mut ended = Vec::new();
        for (key, outgoing) in &mut self.senders {
            if outgoing.again_at > now {
                continue;
            }
            if outgoing.tries == RETRIES {
                ended.push(*key);
                continue;
            }
            outgoing.tries += 1;
            outgoing.again_at = now + ACKNOWLEDGEMENT;
            outgoing.sender.go_back();
            self.outgoing.extend(outgoing.packets());
        }
        for key in ended {
            if let Some(outgoing) = self.senders.remove(&key) {
                self.give_up(outgoing);
            }
        }
        self.receivers.retain(|_, (_, at)| *at + REMEMBERED > now);
    }

    /// A message that was not acknowledged ends: the receiver hears it, and the program if it waits.
    fn give_up(&mut self, outgoing: Outgoing) {
        let mut abort = outgoing.packet.clone();
        abort.mad = rmpp::abort(&outgoing.packet.mad, rmpp::reason::TOO_MANY_RETRIES);
        abort.mad.set_method(outgoing.packet.mad.method());
        self.outgoing.push_back(abort);
        if let Some((_, request)) = outgoing.request
            && let Some(file) = self.files.get_mut(&request.file)
        {
            file.add_timeout(&request.header, &request.packet.mad);
        }
    }

    /// A packet has arrived at the port. What nothing handles is answered.
    pub fn receive(&mut self, now: Time, packet: Packet, port: &Port) {
        let p_key_index = port.partitions.matching(packet.p_key).unwrap_or_default();
        if rmpp::is_part(&packet.mad) && self.is_reassembled(&packet.mad) {
            return self.receive_part(now, packet, p_key_index);
        }
        let datagram = packet.mad.bytes().to_vec();
        self.deliver(&packet, p_key_index, &datagram);
    }

    /// Whether the agent that a datagram is for has messages put together.
    fn is_reassembled(&self, mad: &Mad) -> bool {
        let for_senders = matches!(
            rmpp::kind(mad),
            Some(Kind::Acknowledgement | Kind::Stop | Kind::Abort)
        ) && self.senders.contains_key(&sender_key(mad));
        for_senders
            || self
                .agent_of(mad)
                .is_some_and(|(_, _, registration)| registration.reassembles)
            || self
                .receivers
                .keys()
                .any(|(_, transaction, _)| *transaction == mad.transaction())
    }

    fn receive_part(&mut self, now: Time, packet: Packet, p_key_index: u16) {
        let mad = &packet.mad;
        match rmpp::kind(mad) {
            Some(Kind::Data) => self.receive_data(now, packet, p_key_index),
            Some(Kind::Acknowledgement) => {
                let key = sender_key(mad);
                let Some(outgoing) = self.senders.get_mut(&key) else {
                    return;
                };
                outgoing.again_at = now + ACKNOWLEDGEMENT;
                outgoing.tries = 0;
                if outgoing.sender.acknowledge(mad) {
                    if let Some((key, mut request)) =
                        self.senders.remove(&key).and_then(|sent| sent.request)
                    {
                        request.restart(now);
                        self.requests.insert(key, request);
                    }
                    return;
                }
                let packets = outgoing.packets();
                self.outgoing.extend(packets);
            }
            Some(Kind::Stop | Kind::Abort) => {
                if let Some(outgoing) = self.senders.remove(&sender_key(mad))
                    && let Some((_, request)) = outgoing.request
                    && let Some(file) = self.files.get_mut(&request.file)
                {
                    file.add_timeout(&request.header, &request.packet.mad);
                }
                self.receivers
                    .remove(&(packet.source_lid, mad.transaction(), mad.method()));
            }
            None => {}
        }
    }

    fn receive_data(&mut self, now: Time, packet: Packet, p_key_index: u16) {
        let mad = &packet.mad;
        let key = (packet.source_lid, mad.transaction(), mad.method());
        let is_full = !self.receivers.contains_key(&key) && self.receivers.len() >= RECEIVERS_MAX;
        // The sender repeats the segment, and gives up in the end.
        if is_full || self.message_bytes() > MESSAGES_BYTES_MAX {
            return;
        }
        let (receiver, at) = self
            .receivers
            .entry(key)
            .or_insert_with(|| (Receiver::new(), now));
        *at = now;
        let progress = receiver.take(mad);
        if let Some(request) = self.requests.get_mut(&Key::of(mad)) {
            request.restart(now);
        }
        match progress {
            Progress::More(answer) => self
                .outgoing
                .extend(answer.map(|answer| reply_with(&packet, answer))),
            Progress::Whole(message, answer) => {
                self.outgoing.push_back(reply_with(&packet, answer));
                self.deliver(&packet, p_key_index, &message);
            }
            Progress::Broken(answer) => {
                self.receivers.remove(&key);
                self.outgoing.push_back(reply_with(&packet, answer));
            }
        }
    }

    /// The agent that a datagram is for: that of the request which it answers, or the one that registered the
    /// method.
    fn agent_of(&self, mad: &Mad) -> Option<(FileId, u32, &Registration)> {
        let mut all = self.files.iter().flat_map(|(id, file)| {
            file.agents()
                .map(move |(agent, number, registration)| (*id, agent, number, registration))
        });
        let is_response = mad.is_response();
        let high = (mad.transaction() >> 32) as u32;
        let found = all.find(|(_, _, number, registration)| {
            if is_response {
                *number == high
            } else {
                registration.takes(mad)
            }
        });
        found.map(|(file, agent, _, registration)| (file, agent, registration))
    }

    fn deliver(&mut self, packet: &Packet, p_key_index: u16, datagram: &[u8]) {
        let mad = &packet.mad;
        let Some((id, agent, _)) = self.agent_of(mad) else {
            return self.outgoing.extend(unhandled(packet));
        };
        // An answer is for a request that waits for it. TrapRepress answers none of a program.
        if mad.is_response()
            && mad.method() != method::TRAP_REPRESS
            && self.requests.remove(&Key::of(mad)).is_none()
        {
            return;
        }
        if let Some(file) = self.files.get_mut(&id) {
            file.add_received(agent, packet, p_key_index, datagram);
        }
    }
}

/// Bytes that a written datagram has at least.
const RMPP_HEADER_BYTES: usize = 36;

impl Outgoing {
    fn packets(&mut self) -> Vec<Packet> {
        let of = |mad: Mad| Packet {
            mad,
            ..self.packet.clone()
        };
        self.sender.next().into_iter().map(of).collect()
    }
}

/// Which message an acknowledgement is about: its method has the response bit turned around.
fn sender_key(mad: &Mad) -> (u64, u8) {
    (mad.transaction(), mad.method() ^ method::RESPONSE)
}

fn reply_with(to: &Packet, mad: Mad) -> Packet {
    Packet { mad, ..to.answer() }
}

/// The packet of a record.
fn packet_of(header: &Header, qp: u8, mad: Mad, port: &Port) -> Result<Packet, Errno> {
    let p_key = port
        .partitions
        .0
        .get(usize::from(header.p_key_index))
        .copied();
    let mut own_gid = [0; 16];
    own_gid[..8].copy_from_slice(&port.gid_prefix.to_be_bytes());
    own_gid[8..].copy_from_slice(&port.guid.to_be_bytes());
    let source_lid = match header.lid {
        u16::MAX => u16::MAX,
        _ => port.lid | u16::from(header.path_bits) & ((1 << port.lmc) - 1),
    };
    Ok(Packet {
        source_lid,
        destination_lid: header.lid,
        service_level: header.service_level & 0xf,
        source_qp: u32::from(qp),
        destination_qp: header.qp & 0x00ff_ffff,
        q_key: header.q_key,
        p_key: p_key.ok_or(Errno::INVALID)?,
        global: header.global.map(|global| crate::subnet::GlobalRoute {
            source: own_gid,
            ..global
        }),
        mad,
    })
}

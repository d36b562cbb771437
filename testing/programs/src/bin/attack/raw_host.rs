//! A host of NVMe/TCP that sends its data when it wants to.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use wire::nvme::fabrics::{Connect, ConnectData, Property};
use wire::nvme::tcp::{CommonHeader, Data, Digests, ENCODED_MAX, Frame, Header, Initialize, flag};
use wire::nvme::{Admin, Command, Completion, Fabrics, Sgl, Status, feature, property, text};

/// The longest data of a PDU that the target sends.
const DATA_MAX: usize = 2 << 20;
/// How long an answer may take.
const TIMEOUT: Duration = Duration::from_secs(20);

/// A connection with one queue, whose commands and data are sent one by one.
pub(crate) struct RawQueue {
    stream: TcpStream,
    cid: u16,
    /// Responses that came before an R2T that was waited for.
    early: Vec<Completion>,
}

/// An admin queue and an I/O queue of one controller.
pub(crate) struct RawHost {
    pub(crate) admin: RawQueue,
    pub(crate) io: RawQueue,
}

fn text_of(error: impl std::fmt::Display) -> String {
    error.to_string()
}

impl RawHost {
    /// Connects the host with this number: its name and its Host Identifier depend on it.
    pub(crate) fn new(address: SocketAddr, subsystem: &str, number: u8) -> Result<Self, String> {
        let mut admin = RawQueue::open(address)?;
        let controller = admin.connect(subsystem, number, 0, 0xffff)?;
        let enabled = property::configuration::ENABLE | property::configuration::ENTRIES;
        let enable = Property {
            wide: false,
            offset: property::CONFIGURATION,
            value: enabled.into(),
        };
        admin.succeed(enable.to_command(Fabrics::PropertySet, 0), &[])?;
        let opcode = Admin::SetFeatures as u8;
        let queues = Command {
            opcode,
            cdw10: feature::QUEUES.into(),
            cdw11: 0,
            ..Command::default()
        };
        admin.succeed(queues, &[])?;
        let mut io = RawQueue::open(address)?;
        io.connect(subsystem, number, 1, controller)?;
        Ok(Self { admin, io })
    }
}

impl RawQueue {
    fn open(address: SocketAddr) -> Result<Self, String> {
        let stream = TcpStream::connect(address).map_err(text_of)?;
        stream.set_read_timeout(Some(TIMEOUT)).map_err(text_of)?;
        stream.set_nodelay(true).map_err(text_of)?;
        let mut queue = Self {
            stream,
            cid: 0,
            early: Vec::new(),
        };
        let request = Initialize {
            format: 0,
            alignment: 0,
            digests: 0,
            limit: 0,
        };
        queue.send(&Header::InitializeRequest(request), 0, &[])?;
        match queue.pdu()? {
            Header::InitializeResponse(_) => Ok(queue),
            other => Err(format!("{other:?} in place of an ICResp")),
        }
    }

    fn connect(
        &mut self,
        subsystem: &str,
        number: u8,
        queue_id: u16,
        controller: u16,
    ) -> Result<u16, String> {
        let connect = Connect {
            format: 0,
            queue_id,
            size: 127,
            attributes: 0,
            keep_alive_ms: 0,
        };
        let data = ConnectData {
            host_id: [number; 16],
            controller_id: controller,
            subsystem: text::zeroed(subsystem),
            host: text::zeroed(&name(number)),
        };
        let completion = self.succeed(connect.to_command(0), &data.to_bytes())?;
        Ok(completion.result as u16)
    }

    fn send(&mut self, header: &Header, flags: u8, data: &[u8]) -> Result<(), String> {
        let mut head = [0; ENCODED_MAX];
        let end = header.encode(flags, Digests::default(), data.len(), 4, &mut head);
        self.stream
            .write_all(&[&head[..end], data].concat())
            .map_err(text_of)
    }

    fn pdu(&mut self) -> Result<Header, String> {
        let mut common = [0; 8];
        self.stream.read_exact(&mut common).map_err(text_of)?;
        let (header, _) = CommonHeader::split(&common).ok_or("a PDU without a header")?;
        let frame =
            Frame::parse(&header, Digests::default(), DATA_MAX).map_err(|it| format!("{it:?}"))?;
        let mut rest = vec![0; header.length as usize - common.len()];
        self.stream.read_exact(&mut rest).map_err(text_of)?;
        Header::parse(frame.kind, &rest).ok_or_else(|| "a PDU that cannot be parsed".to_owned())
    }

    /// Sends a command with data in its capsule; returns its response.
    pub(crate) fn call(&mut self, command: Command, data: &[u8]) -> Result<Completion, String> {
        self.cid += 1;
        let sgl = match data.len() {
            0 => Sgl::Transport { length: 0 },
            length => Sgl::InCapsule {
                offset: 0,
                length: length as u32,
            },
        };
        let command = Command {
            cid: self.cid,
            ..command
        }
        .with_sgl(sgl);
        self.send(&Header::Command(command), 0, data)?;
        self.response()
    }

    /// As [`RawQueue::call`]; a failed command is an error.
    pub(crate) fn succeed(&mut self, command: Command, data: &[u8]) -> Result<Completion, String> {
        let completion = self.call(command, data)?;
        match completion.status().is_success() {
            true => Ok(completion),
            false => Err(format!(
                "opcode {:02x}h: {}",
                command.opcode,
                completion.status()
            )),
        }
    }

    /// Sends a command whose data follow when they are asked for.
    pub(crate) fn announce(&mut self, command: Command, length: usize) -> Result<u16, String> {
        self.cid += 1;
        let sgl = Sgl::Transport {
            length: length as u32,
        };
        self.send(
            &Header::Command(
                Command {
                    cid: self.cid,
                    ..command
                }
                .with_sgl(sgl),
            ),
            0,
            &[],
        )?;
        Ok(self.cid)
    }

    /// Waits until the data of a command are asked for; returns the tag of the transfer.
    pub(crate) fn asked(&mut self, cid: u16) -> Result<u16, String> {
        self.asked_or_refused(cid)?
            .map_err(|status| format!("{status} in place of an R2T"))
    }

    /// Waits until the data of a command are asked for, or it is refused.
    pub(crate) fn asked_or_refused(&mut self, cid: u16) -> Result<Result<u16, Status>, String> {
        loop {
            if let Some(refused) = self.early.iter().find(|it| it.cid == cid) {
                return Ok(Err(refused.status()));
            }
            match self.pdu()? {
                Header::ReadyToTransfer(ready) if ready.cid == cid => return Ok(Ok(ready.tag)),
                Header::Response(completion) => self.early.push(completion),
                other => return Err(format!("{other:?} in place of an R2T")),
            }
        }
    }

    /// Sends the data of a command.
    pub(crate) fn pay(&mut self, cid: u16, tag: u16, data: &[u8]) -> Result<(), String> {
        let header = Data {
            cid,
            tag,
            offset: 0,
            length: data.len() as u32,
        };
        self.send(&Header::HostData(header), flag::LAST, data)
    }

    /// The next response.
    pub(crate) fn response(&mut self) -> Result<Completion, String> {
        if !self.early.is_empty() {
            return Ok(self.early.remove(0));
        }
        match self.pdu()? {
            Header::Response(completion) => Ok(completion),
            other => Err(format!("{other:?} in place of a response")),
        }
    }
}

/// The NQN of a host.
pub(crate) fn name(number: u8) -> String {
    format!("nqn.2014-08.org.nvmexpress:uuid:host{number}")
}

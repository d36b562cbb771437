//! A client of one SMB 2 connection: a file on a share, and READs and WRITEs of which many are under way.

use std::io;

use ::nvme::machine::MachineId;
use wire::smb::message::{Header, STATUS_PENDING};

use super::message::{self, Data, FileId, Ids};

/// A connection that carries SMB 2 messages.
pub(super) trait Carrier: Send {
    /// Sends a message; `data` follow it.
    fn send(&mut self, message: &[u8], data: &[u8]) -> io::Result<()>;

    /// Receives the next message.
    fn receive(&mut self, message: &mut Vec<u8>) -> io::Result<()>;

    /// Buffer descriptors of the memory for request `slot`, if data go past the messages. For a WRITE the
    /// memory has [`pattern`].
    fn descriptors(
        &mut self,
        _slot: usize,
        _bytes: usize,
        _write: bool,
    ) -> io::Result<Option<Vec<u8>>> {
        Ok(None)
    }

    /// The bytes that the memory for request `slot` has now: those that the last READ placed there.
    fn placed(&self, _slot: usize) -> &[u8] {
        &[]
    }
}

/// A request that is under way.
#[derive(Clone, Copy, Debug)]
struct Pending {
    message_id: u64,
    slot: usize,
    bytes: usize,
    write: bool,
}

/// A client with an open file. Requests are identified by slots, numbers from 0 that the caller chooses.
pub(super) struct Client {
    carrier: Box<dyn Carrier>,
    ids: Ids,
    credits: usize,
    file: FileId,
    limits: [usize; 2],
    pending: Vec<Pending>,
    response: Vec<u8>,
    /// The data of WRITEs.
    data: Vec<u8>,
}

/// The error of an answer with another status than the expected one.
fn refused(what: &str, status: u32) -> io::Error {
    io::Error::other(format!("{what}: the server answered status {status:#010x}"))
}

impl Client {
    /// Opens a session, the share and the file.
    pub(super) fn open(
        carrier: Box<dyn Carrier>,
        server: &str,
        share: &str,
        file: &str,
    ) -> io::Result<Self> {
        let mut client = Self {
            carrier,
            ids: Ids::default(),
            credits: 1,
            file: FileId::default(),
            limits: [0; 2],
            pending: Vec::new(),
            response: Vec::new(),
            data: Vec::new(),
        };
        // Connections of one process are one client to the server, and those of no other process are.
        let (machine, process) = (MachineId::this(), std::process::id().to_string());
        let guid = machine.derive("SMB client", &[&machine.host_uuid().to_string(), &process]);
        let request = message::negotiate(client.ids, guid);
        let (_, at) = client.call("NEGOTIATE", &request, 0)?;
        client.limits = message::negotiated(&client.response[at..])?;
        let request = message::first_setup(client.ids);
        let (header, _) = client.call("SESSION_SETUP", &request, message::MORE_PROCESSING)?;
        client.ids.session = header.session_id;
        let request = message::second_setup(client.ids);
        client.call("SESSION_SETUP of a guest", &request, 0)?;
        let request = message::tree_connect(client.ids, server, share);
        let (header, _) = client.call(&format!("TREE_CONNECT to {share}"), &request, 0)?;
        client.ids.tree = message::tree(&header);
        let request = message::create(client.ids, file);
        let (_, at) = client.call(&format!("CREATE of {file}"), &request, 0)?;
        client.file = message::created(&client.response[at..])?;
        Ok(client)
    }

    /// The longest READ or WRITE that the server takes, in bytes.
    pub(super) fn longest(&self, write: bool) -> usize {
        self.limits[usize::from(write)]
    }

    /// Sends a request and waits for its answer; returns its header and where its body begins.
    fn call(&mut self, what: &str, request: &[u8], wanted: u32) -> io::Result<(Header, usize)> {
        self.carrier.send(request, &[])?;
        self.spend(1);
        let header = self.receive()?;
        match header.status {
            status if status == wanted => Ok((header, Header::SIZE)),
            status => Err(refused(what, status)),
        }
    }

    fn spend(&mut self, charge: u16) {
        self.ids.message += u64::from(charge);
        self.credits = self.credits.saturating_sub(usize::from(charge));
    }

    /// The next answer that is one: interim answers only bring credits.
    fn receive(&mut self) -> io::Result<Header> {
        loop {
            self.carrier.receive(&mut self.response)?;
            let (header, _) = message::response(&self.response)?;
            self.credits += usize::from(header.credits);
            if header.status != STATUS_PENDING {
                return Ok(header);
            }
        }
    }

    /// Whether the server's credits allow another transfer of so many bytes.
    pub(super) fn may_submit(&self, bytes: usize) -> bool {
        self.credits >= usize::from(message::charge(bytes))
    }

    /// Begins a READ or WRITE.
    pub(super) fn submit(
        &mut self,
        slot: usize,
        write: bool,
        offset: u64,
        bytes: usize,
    ) -> io::Result<()> {
        let descriptors = self.carrier.descriptors(slot, bytes, write)?;
        let data = descriptors.as_deref().map_or(Data::Inline, Data::Described);
        let request = match write {
            true => message::write(self.ids, self.file, offset, bytes, data),
            false => message::read(self.ids, self.file, offset, bytes, data),
        };
        self.pending.push(Pending {
            message_id: self.ids.message,
            slot,
            bytes,
            write,
        });
        self.spend(message::charge(bytes));
        let is_inline = write && descriptors.is_none();
        if is_inline && self.data.len() < bytes {
            self.data = pattern(bytes);
        }
        self.carrier
            .send(&request, if is_inline { &self.data[..bytes] } else { &[] })
    }

    /// Waits until a READ or WRITE is complete, and returns its slot.
    pub(super) fn complete(&mut self) -> io::Result<usize> {
        let header = self.receive()?;
        let place = self
            .pending
            .iter()
            .position(|it| it.message_id == header.message_id);
        let Some(place) = place else {
            return Err(io::Error::other(
                "the server answered a request that was not made",
            ));
        };
        let Pending {
            slot, bytes, write, ..
        } = self.pending.swap_remove(place);
        let what = if write { "WRITE" } else { "READ" };
        if header.status != 0 {
            return Err(refused(what, header.status));
        }
        let found = transferred(&self.response[Header::SIZE..], write);
        if found != bytes {
            return Err(io::Error::other(format!(
                "{what}: {found} of {bytes} bytes"
            )));
        }
        Ok(slot)
    }

    /// Writes a block and reads it again, and compares them: a rate of wrong bytes would mean nothing.
    pub(super) fn verify(&mut self) -> io::Result<()> {
        const BYTES: usize = 1 << 16;
        // Different slots: memory from which one wrote has the bytes already.
        for write in [true, false] {
            self.submit(usize::from(write), write, 0, BYTES)?;
            self.complete()?;
        }
        match self.data(0, BYTES) == pattern(BYTES) {
            true => Ok(()),
            false => Err(io::Error::other(
                "the server returned other bytes than were written",
            )),
        }
    }

    /// The data of the READ that completed last: in the message, or where the server placed them.
    fn data(&self, slot: usize, bytes: usize) -> &[u8] {
        let at = usize::from(
            self.response
                .get(Header::SIZE + 2)
                .copied()
                .unwrap_or_default(),
        );
        match self.response.get(at..at + bytes) {
            Some(inline) if at > Header::SIZE => inline,
            _ => self.carrier.placed(slot).get(..bytes).unwrap_or_default(),
        }
    }
}

/// The bytes that a READ or WRITE response reports: those in it, and those that moved by RDMA.
fn transferred(body: &[u8], write: bool) -> usize {
    let number = |at: usize| {
        let bytes = body.get(at..).and_then(|rest| rest.first_chunk()).copied();
        u32::from_le_bytes(bytes.unwrap_or_default()) as usize
    };
    if write {
        number(4)
    } else {
        number(4) + number(8)
    }
}

/// The contents of files: bytes that differ from place to place, so that nothing compresses them away.
pub(super) fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes)
        .map(|at| (at.wrapping_mul(0x9e37_79b1) >> 11) as u8)
        .collect()
}

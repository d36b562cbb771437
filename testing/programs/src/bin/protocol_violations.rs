//! An NVMe/RDMA host that violates the protocol in one way after another, and prints the result of each. It
//! connects to a subsystem of its own, whose disk is all zeros: any other bytes belong to another host.
//!
//! `rockery run -- protocol_violations ADDRESS:PORT SUBSYSTEM`

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use buffer::Buffer;
use nvme::host::{Client, HostError, Options, Transport};
use nvme::limits::UNAUTHENTICATED_MAX;
use rdma::{Connection, Domain, Done, Error, Sizes};
use wire::nvme::fabrics::{CONNECT_NO_FLOW_CONTROL, Connect, ConnectData};
use wire::nvme::rdma::{Reject, Request};
use wire::nvme::{Admin, COMMAND_SIZE, COMPLETION_SIZE, Command, Completion, Io, Sgl, text};

const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:7bd2c43b-a90a-45c1-a8cd-86b33ab273b5";
/// Entries of its queues.
const ENTRIES: u16 = 16;
/// How long the target may take.
const TIMEOUT: Duration = Duration::from_secs(30);
const BLOCK: usize = 4096;
/// The byte that fills its memory before the target writes there.
const UNTOUCHED: u8 = 0xee;

/// The outcome of a command or of a violation.
#[derive(Debug)]
enum Outcome {
    Completed(Completion),
    Ended,
    Silence,
}

impl Outcome {
    fn text(&self) -> String {
        match self {
            Self::Completed(completion) => format!("{:#05x}", completion.status().0 & 0x7ff),
            Self::Ended => "ended".to_owned(),
            Self::Silence => "silence".to_owned(),
        }
    }
}

/// One connection, which is an I/O queue after Connect.
struct Line {
    connection: Connection,
    /// Memory that the target may write to.
    memory: Buffer,
    completed: Vec<rdma::Completion>,
}

/// The target's address, the subsystem and the name of this host.
struct Place {
    address: SocketAddr,
    subsystem: nvme::Nqn,
    host: nvme::Nqn,
}

fn private(id: u16, controller: u16) -> Request {
    let (receive_size, send_size) = (ENTRIES, ENTRIES - 1);
    Request {
        format: 0,
        queue_id: id,
        receive_size,
        send_size,
        controller_id: controller,
    }
}

impl Line {
    fn open(address: SocketAddr, private: &[u8]) -> Result<Self, Error> {
        let sizes = Sizes {
            send: 256,
            receive: 256,
            reads: 16,
            rnr_retry: 7,
        };
        let prepare = |connection: &mut Connection, domain: &std::sync::Arc<Domain>| {
            (0..sizes.receive).try_for_each(|_| {
                let buffer = domain.registered(COMPLETION_SIZE)?;
                connection.receive(buffer, 0).map_err(|(error, _)| error)
            })
        };
        let (connection, _) = Connection::connect(address, sizes, private, prepare)?;
        let mut memory = connection.domain().open(BLOCK)?;
        memory.fill(UNTOUCHED);
        Ok(Self {
            connection,
            memory,
            completed: Vec::new(),
        })
    }

    fn remote(&self) -> (u64, u32) {
        self.connection
            .domain()
            .remote(&self.memory)
            .expect("it is open")
    }

    fn keyed(&self, length: u32) -> Sgl {
        let (address, key) = self.remote();
        Sgl::Keyed {
            address,
            length,
            key,
            invalidate: false,
        }
    }

    /// Sends bytes, whatever they are.
    fn send(&mut self, bytes: &[u8], invalidate: Option<u32>) -> Result<(), Error> {
        let mut buffer = self.connection.domain().registered(bytes.len())?;
        buffer[..bytes.len()].copy_from_slice(bytes);
        self.connection
            .send(buffer, bytes.len(), invalidate, 1)
            .map_err(|(error, _)| error)
    }

    /// Waits for the next completion, the end of the connection, or the timeout.
    fn outcome(&mut self) -> Outcome {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            while !self.completed.is_empty() {
                let completed = self.completed.remove(0);
                match (completed.done, completed.buffer) {
                    (Ok(Done::Receive(_)), Some(buffer)) => {
                        let split = Completion::split(&buffer).map(|(completion, _)| completion);
                        return split.map_or(Outcome::Ended, Outcome::Completed);
                    }
                    (Err(_), _) => return Outcome::Ended,
                    _ => {}
                }
            }
            if self.connection.poll(&mut self.completed).is_err()
                || self.connection.check_events().is_err()
            {
                return Outcome::Ended;
            }
            if Instant::now() > deadline {
                return Outcome::Silence;
            }
            std::thread::yield_now();
        }
    }

    fn give(&mut self, bytes: &[u8]) -> Outcome {
        match self.send(bytes, None) {
            Ok(()) => self.outcome(),
            Err(_) => Outcome::Ended,
        }
    }

    fn untouched(&self) -> bool {
        self.memory.iter().all(|byte| *byte == UNTOUCHED)
    }
}

impl Place {
    /// A controller, and an I/O queue of it that is ready. The client has to stay.
    fn queue(&self) -> (Client, Line) {
        let mut client = self.client().expect("a controller");
        client.grant(4).expect("queues are granted");
        let id = client.id();
        let mut line = Line::open(self.address, &private(1, id).to_bytes()).expect("a connection");
        let (status, _) = self.connect(&mut line, 1, id, ENTRIES - 1);
        assert_eq!(status, "0x000", "an I/O queue");
        (client, line)
    }

    fn client(&self) -> Result<Client, HostError> {
        let options = Options {
            transport: Transport::Rdma,
            host: self.host.clone(),
            host_id: self.host.to_host_id(),
            digests: Default::default(),
            congestion: None,
            secrets: None,
            tls: None,
            keep_alive_timeout: nvme::host::KEEP_ALIVE_TIMEOUT,
        };
        Client::connect(self.address, &self.subsystem, &options)
    }

    fn connect(&self, line: &mut Line, id: u16, controller_id: u16, size: u16) -> (String, u64) {
        let data = ConnectData {
            host_id: self.host.to_host_id(),
            controller_id,
            subsystem: text::zeroed(self.subsystem.as_str()),
            host: text::zeroed(self.host.as_str()),
        };
        let attributes = CONNECT_NO_FLOW_CONTROL;
        let connect = Connect {
            format: 0,
            queue_id: id,
            size,
            attributes,
            keep_alive_ms: 0,
        };
        line.memory[..ConnectData::SIZE].copy_from_slice(&data.to_bytes());
        let command = connect
            .to_command(1)
            .with_sgl(line.keyed(ConnectData::SIZE as u32));
        let outcome = line.give(&command.to_bytes());
        line.memory.fill(UNTOUCHED);
        let result = if let Outcome::Completed(it) = &outcome {
            it.result
        } else {
            0
        };
        (outcome.text(), result)
    }
}

fn read(blocks: u32) -> Command {
    Command {
        cid: 7,
        ..nvme::host::transfer(Io::Read, 1, 0, blocks)
    }
}

fn write(blocks: u32) -> Command {
    Command {
        cid: 7,
        ..nvme::host::transfer(Io::Write, 1, 0, blocks)
    }
}

/// A command whose descriptor has another kind.
fn of_kind(line: &Line, kind: u8) -> Vec<u8> {
    let mut bytes = read(1)
        .with_sgl(line.keyed(BLOCK as u32))
        .to_bytes()
        .to_vec();
    bytes[39] = kind;
    bytes
}

fn say(name: &str, outcome: impl std::fmt::Display) {
    println!("{name}: {outcome}");
}

/// Commands that fail by themselves: the queue goes on.
fn wrong_commands(place: &Place) {
    let (_client, mut line) = place.queue();
    for (name, kind) in [
        ("data block", 0x00),
        ("bit bucket", 0x10),
        ("segment", 0x20),
        ("last segment", 0x30),
        ("transport", 0x5a),
        ("vendor", 0xf0),
        ("keyed of a kind that is none", 0x43),
    ] {
        let outcome = line.give(&of_kind(&line, kind));
        say(name, outcome.text());
    }
    let shorter = read(2).with_sgl(line.keyed(BLOCK as u32)).to_bytes();
    say(
        "a descriptor shorter than the command",
        line.give(&shorter).text(),
    );
    let longer = read(1).with_sgl(line.keyed(2 * BLOCK as u32)).to_bytes();
    say(
        "a descriptor longer than the command",
        line.give(&longer).text(),
    );
    let huge = read(512)
        .with_sgl(line.keyed(512 * BLOCK as u32))
        .to_bytes();
    say("more than a command may have", line.give(&huge).text());
    let beyond = Command {
        cdw10: u32::MAX,
        cdw11: u32::MAX,
        ..read(1)
    }
    .with_sgl(line.keyed(BLOCK as u32));
    say(
        "blocks behind the end",
        line.give(&beyond.to_bytes()).text(),
    );
    for (name, offset, length) in [
        ("data in the capsule that are not there", 0, BLOCK as u32),
        ("data behind the capsule", 8192, BLOCK as u32),
        ("data before the capsule", u64::MAX - 100, 101),
        ("an offset and a length that overflow", u64::MAX, u32::MAX),
    ] {
        let command = write(1)
            .with_sgl(Sgl::InCapsule { offset, length })
            .to_bytes();
        say(name, line.give(&command).text());
    }
    let mut backwards = read(1)
        .with_sgl(Sgl::InCapsule {
            offset: 0,
            length: BLOCK as u32,
        })
        .to_bytes()
        .to_vec();
    backwards.resize(COMMAND_SIZE + BLOCK, 0);
    say("a read into its own capsule", line.give(&backwards).text());
    let other = Command { nsid: 2, ..read(1) }
        .with_sgl(line.keyed(BLOCK as u32))
        .to_bytes();
    say("a namespace of another host", line.give(&other).text());
    say("untouched by all that", line.untouched());
    let right = read(1).with_sgl(line.keyed(BLOCK as u32)).to_bytes();
    say("and a right one", line.give(&right).text());
    say(
        "which reads its own zeros",
        line.memory.iter().all(|byte| *byte == 0),
    );
}

type Breach = (&'static str, fn(&mut Line) -> Outcome);

/// Violations that end a connection.
const BREACHES: [Breach; 11] = [
    ("a key that grants nothing, to write", |line| {
        let (address, key) = line.remote();
        let sgl = Sgl::Keyed {
            address,
            length: BLOCK as u32,
            key: key ^ 0x100,
            invalidate: false,
        };
        line.give(&read(1).with_sgl(sgl).to_bytes())
    }),
    ("a key that grants nothing, to read", |line| {
        let (address, key) = line.remote();
        let sgl = Sgl::Keyed {
            address,
            length: BLOCK as u32,
            key: !key,
            invalidate: false,
        };
        line.give(&write(1).with_sgl(sgl).to_bytes())
    }),
    ("memory that ends too early", |line| {
        line.give(&read(2).with_sgl(line.keyed(2 * BLOCK as u32)).to_bytes())
    }),
    ("an address that wraps", |line| {
        let (_, key) = line.remote();
        let (address, length) = (u64::MAX - 4095, 2 * BLOCK as u32);
        line.give(
            &read(2)
                .with_sgl(Sgl::Keyed {
                    address,
                    length,
                    key,
                    invalidate: false,
                })
                .to_bytes(),
        )
    }),
    ("a key to take back that is none", |line| {
        let command = read(1).with_sgl(line.keyed(BLOCK as u32)).to_bytes();
        match line.send(&command, Some(0x1234_5678)) {
            Ok(()) => line.outcome(),
            Err(_) => Outcome::Ended,
        }
    }),
    ("half a capsule", |line| {
        line.give(&read(1).to_bytes()[..32])
    }),
    ("a capsule less a byte", |line| {
        line.give(&read(1).to_bytes()[..COMMAND_SIZE - 1])
    }),
    ("nothing", |line| line.give(&[])),
    ("more than there is room for", |line| {
        line.give(&[0; 64 << 10])
    }),
    ("memory of the target, with a guessed key", |line| {
        let buffer = line.connection.domain().registered(BLOCK).expect("memory");
        let (address, key) = line.remote();
        match line
            .connection
            .read(buffer, BLOCK, rdma::RemoteMemory { address, key }, 1)
        {
            Ok(()) => line.outcome(),
            Err(_) => Outcome::Ended,
        }
    }),
    (
        "more commands than the queue has entries, answered or",
        |line| {
            let command = read(1).with_sgl(line.keyed(BLOCK as u32)).to_bytes();
            let sent = (0..200)
                .take_while(|_| line.send(&command, None).is_ok())
                .count();
            // A target that is fast enough never has more of them than it may; else it ends the connection.
            for _ in 0..sent {
                match line.outcome() {
                    Outcome::Completed(_) => {}
                    outcome => return outcome,
                }
            }
            Outcome::Ended
        },
    ),
];

fn wrong_messages(place: &Place) {
    for (name, act) in BREACHES {
        let (_client, mut line) = place.queue();
        let outcome = act(&mut line);
        let clean = line.untouched() || line.memory.iter().all(|byte| *byte == 0);
        say(
            name,
            format_args!(
                "{}{}",
                outcome.text(),
                if clean {
                    ""
                } else {
                    ", and read what it may not"
                }
            ),
        );
    }
}

/// Why a connection was not established.
fn reason(error: &Error) -> String {
    let Error::Rejected { private_data, .. } = error else {
        return error.to_string();
    };
    let reject = Reject::split(private_data).map(|(reject, _)| reject.status);
    format!(
        "refused ({})",
        reject.map_or_else(String::new, |status| status.to_string())
    )
}

/// Connections with wrong private data or a wrong first command.
fn wrong_connections(place: &Place) {
    let refused = |private: &[u8]| {
        Line::open(place.address, private)
            .map_or_else(|error| reason(&error), |_| "admitted".to_owned())
    };
    let right = private(0, 0xffff);
    say(
        "private data of another format",
        refused(&Request { format: 1, ..right }.to_bytes()),
    );
    say(
        "a queue that is too large",
        refused(
            &Request {
                send_size: 5000,
                ..right
            }
            .to_bytes(),
        ),
    );
    say(
        "a queue for no answers",
        refused(
            &Request {
                receive_size: 0,
                ..right
            }
            .to_bytes(),
        ),
    );
    let mut line = Line::open(place.address, &right.to_bytes()).expect("a connection");
    let early = Command {
        opcode: Admin::Identify as u8,
        cdw10: 1,
        cid: 1,
        ..Command::default()
    };
    let early = early.with_sgl(line.keyed(BLOCK as u32)).to_bytes();
    say("a command before Connect", line.give(&early).text());
    let (status, _) = place.connect(&mut line, 0, 0x1234, ENTRIES - 1);
    say("a controller that is not there", status);
    let (status, _) = place.connect(&mut line, 3, 1, ENTRIES - 1);
    say("a queue of another host's controller", status);
    say("untouched by all that", line.untouched());
}

/// As many connections as may send nothing, and one more. When they are gone, this address is admitted again.
fn crowd(place: &Place) {
    let (sizes, private) = (
        Sizes {
            send: 1,
            receive: 1,
            reads: 0,
            rnr_retry: 7,
        },
        private(0, 0xffff).to_bytes(),
    );
    let mut crowd = Vec::new();
    let refused = loop {
        match Connection::connect(place.address, sizes, &private, |_, _| Ok(())) {
            Ok((connection, _)) => crowd.push(connection),
            Err(error) => break reason(&error),
        }
        if crowd.len() > UNAUTHENTICATED_MAX {
            break "admitted".to_owned();
        }
    };
    say(
        "one connection more than the limit without Connect",
        refused,
    );
    drop(crowd);
    let deadline = Instant::now() + TIMEOUT;
    let mut is_let_in = false;
    while !is_let_in && Instant::now() < deadline {
        is_let_in = place.client().is_ok();
    }
    say("admitted when those are closed", is_let_in);
}

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let (Some(Ok(address)), Some(Ok(subsystem))) = (
        words.next().map(|it| it.parse()),
        words.next().map(|it| it.parse()),
    ) else {
        eprintln!("protocol_violations ADDRESS:PORT SUBSYSTEM");
        return ExitCode::FAILURE;
    };
    let place = Place {
        address,
        subsystem,
        host: HOST.parse().expect("a name"),
    };
    wrong_commands(&place);
    wrong_messages(&place);
    wrong_connections(&place);
    crowd(&place);
    ExitCode::SUCCESS
}

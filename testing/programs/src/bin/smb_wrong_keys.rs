//! A dial or a gateway of SMB Direct that names wrong memory: from one request on, each of its buffer
//! descriptors has another token, or names bytes outside of the memory. It prints `wrong` before it uses one
//! of these, and `ended: REASON` at its end.
//!
//! `rockery run -- smb_wrong_keys dial|gateway LISTEN SERVER token|offset|end REQUESTS`

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use buffer::Buffer;
use rdma::{Listener, ListenerEvent};
use server::budget::Budget;
use smb::close_reason::Ended;
use smb::direct::Parameters;
use smb::memory::Pool;
use smb::peer::{Opened, Peer};
use smb::relay::dial::Dial;
use smb::relay::gateway::Gateway;
use smb::relay::trees::Trees;
use smb::relay::{Session, Trust};
use smb::transport::{self, Transport};
use wire::smb::direct::BufferDescriptor;

const MEMORY_BYTES: usize = 64 << 20;
/// Pause between two looks at what has happened.
const PAUSE: Duration = Duration::from_millis(1);

/// The kind of wrong memory.
#[derive(Clone, Copy)]
enum Wrong {
    /// The key of no memory.
    Token,
    /// Memory behind that of the key.
    Offset,
    /// Memory whose last byte is behind that of the key.
    End,
}

/// A transport whose descriptors are wrong after so many requests with right ones.
struct Falsifier {
    transport: Transport,
    wrong: Wrong,
    right: u32,
}

impl Falsifier {
    /// Whether the next request names wrong memory.
    fn is_next_wrong(&mut self) -> bool {
        if self.right > 0 {
            self.right -= 1;
            return false;
        }
        say("wrong");
        true
    }

    fn falsified(&self, right: BufferDescriptor) -> BufferDescriptor {
        match self.wrong {
            Wrong::Token => BufferDescriptor {
                token: right.token ^ 0x0010_0000,
                ..right
            },
            Wrong::Offset => BufferDescriptor {
                offset: right.offset + (1 << 40),
                ..right
            },
            Wrong::End => BufferDescriptor {
                offset: right.offset + 1,
                ..right
            },
        }
    }

    fn all(&mut self, right: &[BufferDescriptor]) -> Vec<BufferDescriptor> {
        let is_wrong = self.is_next_wrong();
        right
            .iter()
            .map(|&it| if is_wrong { self.falsified(it) } else { it })
            .collect()
    }
}

impl Peer for Falsifier {
    fn begin(&mut self, length: u32, invalidate: Option<u32>) -> Result<(), Ended> {
        self.transport.begin(length, invalidate)
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), Ended> {
        self.transport.append(bytes)
    }

    fn buffer(&mut self, length: usize) -> Result<Option<Buffer>, Ended> {
        self.transport.buffer(length)
    }

    fn buffer_beyond(&mut self, length: usize) -> Result<Option<Buffer>, Ended> {
        self.transport.buffer_beyond(length)
    }

    fn recycle(&mut self, buffer: Buffer) {
        self.transport.recycle(buffer);
    }

    fn fetch(
        &mut self,
        operation: u64,
        buffer: Buffer,
        at: usize,
        from: &[BufferDescriptor],
        length: usize,
    ) {
        let from = self.all(from);
        self.transport.fetch(operation, buffer, at, &from, length);
    }

    fn write_by_rdma(&mut self, buffer: Buffer, range: Range<usize>, to: &[BufferDescriptor]) {
        let to = self.all(to);
        self.transport.write_by_rdma(buffer, range, &to);
    }

    fn open(&mut self, length: usize, invalidates: bool) -> Result<Option<Opened>, Ended> {
        let Some(opened) = self.transport.open(length, invalidates)? else {
            return Ok(None);
        };
        let descriptor = self.all(&[opened.descriptor]).remove(0);
        Ok(Some(Opened {
            descriptor,
            ..opened
        }))
    }

    fn close(&mut self, opened: Opened) {
        self.transport.close(opened);
    }

    fn read_write_size(&self) -> u32 {
        self.transport.read_write_size()
    }
}

fn say(line: &str) {
    println!("{line}");
    _ = io::stdout().flush();
}

fn later(result: io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        result => result.map(Some),
    }
}

/// Relays until the connection ends.
fn relay(
    direct: &mut Falsifier,
    session: &mut impl Session,
    tcp: &mut TcpStream,
) -> Result<(), Ended> {
    tcp.set_nonblocking(true)?;
    loop {
        let mut progress = direct.transport.poll(session)?;
        session.advance(direct)?;
        if session.trust() != Trust::Stranger {
            direct.transport.widen(Parameters::default().credits);
        }
        while let bytes = session.to_tcp().next()
            && !bytes.is_empty()
            && let Some(count) = later(tcp.write(bytes))?
        {
            session.to_tcp().sent(count);
            progress = true;
        }
        if direct.transport.direct().is_established()
            && let Some(place) = session.tcp_place()
        {
            match later(tcp.read(place))? {
                Some(0) => return Err(Ended::TcpClosed),
                Some(count) => {
                    session.tcp_received(count, direct)?;
                    progress = true;
                }
                None => {}
            }
        }
        direct.transport.flush()?;
        direct.transport.check_events()?;
        if !progress {
            std::thread::sleep(PAUSE);
        }
    }
}

/// The data buffers of the only connection.
fn pool(connection: &rdma::Connection, listen: SocketAddr) -> Pool {
    let memory = Budget::new(MEMORY_BYTES);
    Pool::new(&memory, listen.ip(), Arc::clone(connection.domain()), None)
}

/// One connection of a client over TCP to an SMB Direct server.
fn dial(listen: SocketAddr, server: SocketAddr, wrong: Wrong, right: u32) -> Result<(), Ended> {
    let listener = TcpListener::bind(listen)?;
    say("listening");
    let (mut tcp, _) = listener.accept()?;
    let parameters = Parameters::default();
    let prepare = |connection: &mut rdma::Connection, domain: &Arc<rdma::Domain>| {
        let buffer = transport::first_receive(domain, &parameters)?;
        connection
            .receive(buffer, transport::RECEIVE)
            .map_err(|(error, _)| error)
    };
    let (connection, _) =
        rdma::Connection::connect(server, transport::sizes(&parameters), &[], prepare)?;
    let pool = pool(&connection, listen);
    let transport = Transport::new(connection, parameters, false, pool);
    relay(
        &mut Falsifier {
            transport,
            wrong,
            right,
        },
        &mut Dial::new(Trees::default()),
        &mut tcp,
    )
}

/// One connection of an SMB Direct client to a server over TCP.
fn gateway(listen: SocketAddr, server: SocketAddr, wrong: Wrong, right: u32) -> Result<(), Ended> {
    let listener = Listener::new(listen, 1)?;
    say("listening");
    let (parameters, mut waiting) = (Parameters::default(), None);
    let connection = loop {
        match listener.next_event()? {
            Some(ListenerEvent::Request(request)) => {
                let domain = request.domain()?;
                let mut half = request.prepare(&domain, transport::sizes(&parameters))?;
                let buffer = transport::first_receive(&domain, &parameters)?;
                half.receive(buffer, transport::RECEIVE)
                    .map_err(|(error, _)| error)?;
                half.accept(&[])?;
                waiting = Some(half);
            }
            Some(ListenerEvent::Established(_)) => {
                if let Some(half) = waiting.take() {
                    break half.establish()?;
                }
            }
            Some(ListenerEvent::Failed(_)) => return Err(Ended::Disconnected),
            None => std::thread::sleep(PAUSE),
        }
    };
    let mut tcp = TcpStream::connect(server)?;
    let pool = pool(&connection, listen);
    let transport = Transport::new(connection, parameters, true, pool);
    relay(
        &mut Falsifier {
            transport,
            wrong,
            right,
        },
        &mut Gateway::default(),
        &mut tcp,
    )
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [role, listen, server, wrong, right] = &words[..] else {
        return ExitCode::FAILURE;
    };
    let wrong = match wrong.as_str() {
        "token" => Wrong::Token,
        "offset" => Wrong::Offset,
        _ => Wrong::End,
    };
    let (Ok(listen), Ok(server), Ok(right)) = (listen.parse(), server.parse(), right.parse())
    else {
        return ExitCode::FAILURE;
    };
    let ended = match role.as_str() {
        "dial" => dial(listen, server, wrong, right),
        _ => gateway(listen, server, wrong, right),
    };
    if let Err(ended) = ended {
        say(&format!("ended: {ended}"));
    }
    ExitCode::SUCCESS
}

//! An HTTP/1.1 server (RFC 9112) for pages and metrics: one request per connection, with limits for its size,
//! its time and the connections. `httparse` reads the head of a request.

mod clients;

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use crate::deadline::Deadline;
use crate::loopback_peer;
use crate::thread::PAUSE;
use clients::{Admitted, Clients};

/// Headers of a request at most.
const HEADERS_MAX: usize = 64;
/// How long a refused client may go on to send its request: closing the connection earlier would discard the
/// response.
const REFUSED_TIME: Duration = Duration::from_secs(1);
/// Bytes that are read of it.
const REFUSED_BYTES: u64 = 1 << 20;

/// Connections that a server has at the same time.
#[derive(Clone, Copy, Debug)]
pub enum Admission {
    /// At most so many; a further connection is closed.
    AtMost(usize),
    /// As many as this memory suffices for. When it runs short, the oldest one of the address with the most
    /// memory is closed.
    Memory {
        /// The memory of all connections.
        bytes: usize,
        /// What a connection costs besides its response.
        each: usize,
    },
}

/// Users whose processes a server answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Users {
    /// Processes of every user, here and on other machines.
    All,
    /// Processes of this machine of the server's user and of root; other connections are closed before they
    /// take a place.
    Own,
}

/// The limits of a server.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Users whose processes are answered.
    pub users: Users,
    /// How many connections there are at once.
    pub admission: Admission,
    /// Bytes of the request line and the headers.
    pub head_bytes: usize,
    /// Bytes of the body.
    pub body_bytes: usize,
    /// The time for receiving a request, and again for sending the response.
    pub exchange_time: Duration,
}

/// A request: its first line, headers and body.
#[derive(Debug)]
pub struct Request {
    method: String,
    target: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

/// A response, after which the connection is closed.
#[derive(Debug)]
pub struct Response {
    status: &'static str,
    media: &'static str,
    body: Vec<u8>,
}

/// The connection of a request.
#[derive(Debug)]
pub struct Client<'a>(&'a TcpStream);

/// Why there is no request.
#[derive(Debug)]
enum Failure {
    /// The connection has ended, or took too long.
    Gone(io::Error),
    /// What came is not a request that is served: the reason, for the client.
    Invalid(String),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Gone(error)
    }
}

fn invalid<T>(why: impl Into<String>) -> Result<T, Failure> {
    Err(Failure::Invalid(why.into()))
}

impl Request {
    /// Receives a whole request, the body included.
    fn receive(stream: &mut impl Read, limits: &Limits) -> Result<Self, Failure> {
        let mut bytes = Vec::new();
        let mut piece = [0; 4096];
        let (mut request, length) = loop {
            if let Some(parsed) = Self::parse(&bytes)? {
                break parsed;
            }
            let room = limits
                .head_bytes
                .saturating_sub(bytes.len())
                .min(piece.len());
            match stream.read(&mut piece[..room])? {
                0 if room == 0 => {
                    return invalid(format!(
                        "the head has more than {} bytes",
                        limits.head_bytes
                    ));
                }
                0 => return Err(Failure::Gone(io::ErrorKind::UnexpectedEof.into())),
                count => bytes.extend_from_slice(&piece[..count]),
            }
        };
        let body_length = request.body_length()?;
        if body_length > limits.body_bytes {
            return invalid(format!(
                "the body has more than {} bytes",
                limits.body_bytes
            ));
        }
        request.body = bytes.split_off(length);
        request.body.truncate(body_length);
        let received = request.body.len();
        request.body.resize(body_length, 0);
        stream.read_exact(&mut request.body[received..])?;
        Ok(request)
    }

    /// The head of a request and its length; `None` while it is incomplete.
    fn parse(bytes: &[u8]) -> Result<Option<(Self, usize)>, Failure> {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut head = httparse::Request::new(&mut headers);
        let length = match head.parse(bytes) {
            Ok(httparse::Status::Complete(length)) => length,
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(error) => return invalid(format!("this is no request of HTTP/1.1: {error}")),
        };
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        let request = Self {
            method: head.method.unwrap_or_default().to_owned(),
            target: head.path.unwrap_or_default().to_owned(),
            headers: head
                .headers
                .iter()
                .map(|header| (header.name.to_owned(), text(header.value)))
                .collect(),
            body: Vec::new(),
        };
        Ok(Some((request, length)))
    }

    /// A request without a body, from its head; `None` if that is incomplete or is no request of HTTP/1.1.
    pub fn from_head(head: &[u8]) -> Option<Self> {
        let (request, _) = Self::parse(head).ok()??;
        Some(request)
    }

    fn body_length(&self) -> Result<usize, Failure> {
        if self.header("transfer-encoding").is_some() {
            return invalid("a body needs Content-Length");
        }
        let mut lengths = self.headers_named("content-length");
        match (lengths.next(), lengths.next()) {
            (None, _) => Ok(0),
            (Some(length), None) => length
                .parse()
                .or_else(|_| invalid("Content-Length is no number")),
            _ => invalid("there is more than one Content-Length"),
        }
    }

    /// The method, such as `GET`.
    pub fn method(&self) -> &str {
        &self.method
    }

    /// The path of the target, without the query.
    pub fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }

    /// The value of the first header with this name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers_named(name).next()
    }

    fn headers_named(&self, name: &str) -> impl Iterator<Item = &str> {
        self.headers
            .iter()
            .filter(move |(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    /// The body; empty if the request has none.
    pub fn body(&self) -> &[u8] {
        &self.body
    }
}

impl Response {
    /// The status 200 with a body.
    pub fn new(media: &'static str, body: impl Into<Vec<u8>>) -> Self {
        Self {
            status: "200 OK",
            media,
            body: body.into(),
        }
    }

    /// Another status, with its reason as the body.
    pub fn refusal(status: &'static str, why: &str) -> Self {
        Self {
            status,
            media: "text/plain; charset=utf-8",
            body: format!("{why}\n").into_bytes(),
        }
    }

    fn send(&self, stream: &mut impl Write) -> io::Result<()> {
        let Self {
            status,
            media,
            body,
        } = self;
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {media}\r\nContent-Length: {}\r\nConnection: close\r\n\
             Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n\
             Content-Security-Policy: frame-ancestors 'none'\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes())?;
        stream.write_all(body)
    }
}

impl Client<'_> {
    /// Whether the client has closed the connection.
    pub fn is_gone(&self) -> bool {
        let Self(stream) = self;
        if stream.set_nonblocking(true).is_err() {
            return true;
        }
        let is_gone = match stream.peek(&mut [0]) {
            Ok(bytes) => bytes == 0,
            Err(error) => error.kind() != io::ErrorKind::WouldBlock,
        };
        stream.set_nonblocking(false).is_err() || is_gone
    }
}

/// What a server answers.
pub trait Respond: Send + Sync + 'static {
    /// The response to a request.
    fn respond(&self, request: &Request, client: &Client<'_>) -> Response;

    /// Is called when a connection of another user was closed ([`Users::Own`]).
    fn refused(&self, _user: u32) {}
}

impl<F> Respond for F
where
    F: Fn(&Request, &Client<'_>) -> Response + Send + Sync + 'static,
{
    fn respond(&self, request: &Request, client: &Client<'_>) -> Response {
        self(request, client)
    }
}

/// A listening HTTP server.
#[derive(Debug)]
pub struct HttpServer {
    listener: TcpListener,
    address: SocketAddr,
    limits: Limits,
}

impl HttpServer {
    /// Listens at an address.
    ///
    /// # Errors
    /// When the address cannot be bound.
    pub fn bind(address: SocketAddr, limits: Limits) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        Ok(Self {
            address: listener.local_addr()?,
            listener,
            limits,
        })
    }

    /// The address, with the assigned port if port 0 was given.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers requests by `respond` as long as the process lives, each connection in a thread `name`.
    pub fn run(self, name: &str, respond: impl Respond) -> ! {
        let respond = Arc::new(respond);
        let clients = Clients::new(self.limits.admission);
        loop {
            let Ok((stream, peer)) = self.listener.accept() else {
                std::thread::sleep(PAUSE);
                continue;
            };
            if self.limits.users == Users::Own {
                match loopback_peer::user_of(&stream) {
                    Some(user) if loopback_peer::is_trusted(user) => {}
                    Some(user) => {
                        drop(stream);
                        respond.refused(user);
                        continue;
                    }
                    None => continue,
                }
            }
            // The connection is closed if there is no place for it or no thread can be started: the client
            // retries.
            let Some(admitted) = clients.admit(peer.ip(), PAUSE) else {
                continue;
            };
            let (respond, limits) = (Arc::clone(&respond), self.limits);
            let thread = std::thread::Builder::new().name(name.to_owned());
            // A client that is gone needs no response.
            _ = thread.spawn(move || serve(&stream, &admitted, &limits, &*respond));
        }
    }
}

/// Receives one request and sends its response. The connection is closed afterwards: no client needs more
/// than a few responses a second.
fn serve(
    stream: &TcpStream,
    admitted: &Admitted,
    limits: &Limits,
    respond: &impl Respond,
) -> io::Result<()> {
    let displaced = stream.try_clone()?;
    admitted.on_displaced(move || _ = displaced.shutdown(Shutdown::Both));
    let received = Request::receive(&mut Deadline::after(stream, limits.exchange_time), limits);
    let (response, is_refused) = match &received {
        Ok(request) => (respond.respond(request, &Client(stream)), false),
        Err(Failure::Invalid(why)) => (Response::refusal("400 Bad Request", why), true),
        Err(Failure::Gone(error)) => return Err(error.kind().into()),
    };
    if !admitted.holds(response.body.len()) {
        return Err(io::ErrorKind::OutOfMemory.into());
    }
    response.send(&mut Deadline::after(stream, limits.exchange_time))?;
    if is_refused {
        stream.shutdown(Shutdown::Write)?;
        let rest = Deadline::after(stream, REFUSED_TIME);
        io::copy(&mut rest.take(REFUSED_BYTES), &mut io::sink())?;
    }
    Ok(())
}

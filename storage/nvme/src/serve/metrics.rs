//! Metrics over HTTP, for Prometheus: `GET /metrics`, and nothing else.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use server::deadline::Deadline;
use server::{UnauthenticatedBudget, UnauthenticatedShare};

use super::{Report, ServeError, Shared};
use crate::limits::METRICS_BYTES;

/// The longest request in bytes.
const REQUEST_BYTES_MAX: usize = 8 << 10;
/// The time limit for a request and its response.
const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause after running out of descriptors or memory, and for clients that were displaced to end.
const PAUSE: Duration = Duration::from_millis(50);

/// What a client costs besides its response: a thread, a socket, a request.
const CLIENT_BYTES: usize = 256 << 10;

/// The text of the metrics at this moment.
pub type Metrics = Arc<dyn Fn() -> String + Send + Sync>;

/// Serves the metrics of a target at an address as long as the process lives; returns the address, with the
/// assigned port if port 0 was given.
///
/// # Errors
/// When the address cannot be bound, or no thread can be started.
pub fn serve_metrics(shared: &Arc<Shared>, address: SocketAddr) -> Result<SocketAddr, ServeError> {
    let shared = Arc::clone(shared);
    serve_text(
        Arc::new(move || Report::of(&shared).to_prometheus()),
        address,
    )
}

/// Serves any metrics, as [`serve_metrics`].
///
/// # Errors
/// As [`serve_metrics`].
pub fn serve_text(metrics: Metrics, address: SocketAddr) -> Result<SocketAddr, ServeError> {
    let cannot = |source| ServeError::Listen { address, source };
    let listener = TcpListener::bind(address).map_err(cannot)?;
    let address = listener.local_addr().map_err(cannot)?;
    let thread = std::thread::Builder::new().name("metrics".to_owned());
    thread
        .spawn(move || accept(&listener, &metrics))
        .map_err(ServeError::Thread)?;
    Ok(address)
}

fn accept(listener: &TcpListener, metrics: &Metrics) {
    let budget = UnauthenticatedBudget::new(METRICS_BYTES);
    loop {
        let Ok((stream, peer)) = listener.accept() else {
            std::thread::sleep(PAUSE);
            continue;
        };
        // If there is no memory, the connection is closed, and Prometheus retries.
        let Some(memory) = budget.admit_within(peer.ip(), CLIENT_BYTES, PAUSE) else {
            continue;
        };
        let metrics = Arc::clone(metrics);
        let thread = std::thread::Builder::new().name("metrics".to_owned());
        // If no thread can be started, the connection is closed, and Prometheus retries.
        _ = thread.spawn(move || answer(stream, &metrics, &memory));
    }
}

fn answer(stream: TcpStream, metrics: &Metrics, memory: &UnauthenticatedShare) -> io::Result<()> {
    let displaced = stream.try_clone()?;
    memory.on_displaced(move || _ = displaced.shutdown(Shutdown::Both));
    let mut stream = Deadline::after(stream, EXCHANGE_TIMEOUT);
    let request = read_request(&mut stream)?;
    let mut words = request.split(|byte| byte.is_ascii_whitespace());
    let (status, body) = match (words.next(), words.next()) {
        (Some(b"GET"), Some(b"/metrics")) => ("200 OK", metrics()),
        (Some(b"GET"), _) => ("404 Not Found", "there is only /metrics\n".to_owned()),
        _ => ("405 Method Not Allowed", "there is only GET\n".to_owned()),
    };
    let length = body.len();
    if !memory.grow(length) {
        return Err(io::ErrorKind::OutOfMemory.into());
    }
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
         Content-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())
}

/// Reads up to the empty line behind the headers.
fn read_request(stream: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut request = Vec::new();
    let mut piece = [0; 1024];
    while !request.windows(4).any(|it| it == b"\r\n\r\n") {
        if request.len() > REQUEST_BYTES_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        match stream.read(&mut piece)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            bytes => request.extend_from_slice(&piece[..bytes]),
        }
    }
    Ok(request)
}

//! Metrics over HTTP, for Prometheus: `GET /metrics`, and nothing else.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

use super::{Counted, Report, ServeError, Shared};
use crate::limits::METRICS_CLIENTS_MAX;

/// Bytes of the longest request.
const REQUEST_BYTES_MAX: usize = 8 << 10;
/// How long a client may take for its request, and then for its answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long nothing is accepted when descriptors or memory have run out.
const PAUSE: Duration = Duration::from_millis(50);

static CLIENTS: AtomicUsize = AtomicUsize::new(0);

/// Answers at an address for as long as the process lives; returns the address, with the port that was
/// given when it asked for any.
///
/// # Errors
/// When the address cannot be had, or no thread.
pub fn serve_metrics(shared: &Arc<Shared>, address: SocketAddr) -> Result<SocketAddr, ServeError> {
    let cannot = |source| ServeError::Listen { address, source };
    let listener = TcpListener::bind(address).map_err(cannot)?;
    let address = listener.local_addr().map_err(cannot)?;
    let shared = Arc::clone(shared);
    let thread = std::thread::Builder::new().name("metrics".to_owned());
    thread.spawn(move || accept(&listener, &shared)).map_err(ServeError::Thread)?;
    Ok(address)
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    loop {
        let Ok((stream, _)) = listener.accept() else {
            std::thread::sleep(PAUSE);
            continue;
        };
        let shared = Arc::clone(shared);
        let thread = std::thread::Builder::new().name("metrics".to_owned());
        // Without a thread the connection is closed, and Prometheus tries again.
        _ = thread.spawn(move || {
            if let Some(_one) = Counted::one_more(&CLIENTS, METRICS_CLIENTS_MAX) {
                _ = answer(stream, &shared);
            }
        });
    }
}

fn answer(mut stream: TcpStream, shared: &Shared) -> io::Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    let request = read_request(&mut stream)?;
    let mut words = request.split(|byte| byte.is_ascii_whitespace());
    let (status, body) = match (words.next(), words.next()) {
        (Some(b"GET"), Some(b"/metrics")) => ("200 OK", Report::of(shared).to_prometheus()),
        (Some(b"GET"), _) => ("404 Not Found", "there is only /metrics\n".to_owned()),
        _ => ("405 Method Not Allowed", "there is only GET\n".to_owned()),
    };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
         Content-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())
}

/// Up to the empty line behind the headers.
fn read_request(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let deadline = Instant::now() + PATIENCE;
    let mut request = Vec::new();
    let mut piece = [0; 1024];
    while !request.windows(4).any(|it| it == b"\r\n\r\n") {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || request.len() > REQUEST_BYTES_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut piece)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            bytes => request.extend_from_slice(&piece[..bytes]),
        }
    }
    Ok(request)
}

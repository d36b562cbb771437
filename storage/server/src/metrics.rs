//! Metrics over HTTP, for Prometheus: `GET /metrics`, and nothing else.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use crate::http::{Admission, Client, HttpServer, Limits, Request, Response, Users};
use crate::prometheus::MEDIA_TYPE;

/// Memory of the clients of the metrics port together.
pub const METRICS_BYTES: usize = 16 << 20;
/// What a client costs besides its response: a thread, a socket, a request.
const CLIENT_BYTES: usize = 256 << 10;

const LIMITS: Limits = Limits {
    users: Users::All,
    admission: Admission::Memory {
        bytes: METRICS_BYTES,
        each: CLIENT_BYTES,
    },
    head_bytes: 8 << 10,
    body_bytes: 0,
    exchange_time: Duration::from_secs(5),
};

/// Listens at an address.
///
/// # Errors
/// When the address cannot be bound.
pub fn bind(address: SocketAddr) -> io::Result<HttpServer> {
    HttpServer::bind(address, LIMITS)
}

/// Serves the metrics that `text` returns as long as the process lives.
///
/// # Errors
/// When no thread can be started.
pub fn start(
    server: HttpServer,
    text: impl Fn() -> String + Send + Sync + 'static,
) -> io::Result<()> {
    let respond = move |request: &Request, _: &Client<'_>| match request.method() {
        "GET" if request.path() == "/metrics" => Response::new(MEDIA_TYPE, text()),
        "GET" => Response::refusal("404 Not Found", "there is only /metrics"),
        _ => Response::refusal("405 Method Not Allowed", "there is only GET"),
    };
    let thread = std::thread::Builder::new().name("metrics".to_owned());
    thread
        .spawn(move || server.run("metrics", respond))
        .map(drop)
}

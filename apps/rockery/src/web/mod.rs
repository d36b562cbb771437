//! `rockery web`: the playground's page on loopback, with this machine's speed and the counters of its
//! devices, storage servers and labs.

mod labs;
mod live;
mod runs;
mod storage;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ::nvme::serve::Bytes;
use playground::{PAGE, SERVER_ENGINE};
use server::http::{Admission, Client, HttpServer, Limits, Request, Respond, Response, Users};

use crate::{Error, devices, output};
use live::Live;
use runs::Runs;
pub(crate) use runs::one as one_run;

const LIMITS: Limits = Limits {
    // The page shows what runs here, and a run takes a processor and memory.
    users: Users::Own,
    // Each connection has a thread, and a run has a processor.
    admission: Admission::AtMost(32),
    head_bytes: 16 << 10,
    // A fabric file has 16 MiB at most, and JSON escapes some of its characters.
    body_bytes: 32 << 20,
    exchange_time: Duration::from_secs(10),
};

/// Refused users that standard error names at most, once each: many connections must not fill a log.
const REFUSED_USERS: usize = 16;

/// The address of the page.
#[derive(Debug, clap::Args)]
pub(crate) struct Web {
    /// Loopback address and port of the page. Port 0 is any free one.
    ///
    /// Only processes of this user and of root are answered; connections of other users are closed.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8470", value_parser = loopback)]
    listen: SocketAddr,
    /// Memory of a run at most. A run that needs more is refused.
    #[arg(long, value_name = "SIZE", default_value = "2GiB")]
    memory: Bytes,
}

fn loopback(text: &str) -> Result<SocketAddr, String> {
    let address = link::address::socket(text).map_err(|error| error.to_string())?;
    if address.ip().is_loopback() {
        return Ok(address);
    }
    Err("the page has no authentication, so its address is in 127.0.0.0/8 or ::1; reach it through ssh -L"
        .into())
}

/// Serves the page until the process is ended.
///
/// # Errors
/// When the address cannot be bound.
pub(crate) fn serve(what: &Web) -> Result<(), Error> {
    let cannot = || Error::file(what.listen.to_string());
    let server = HttpServer::bind(what.listen, LIMITS).map_err(cannot())?;
    let address = server.address();
    output::announce(format_args!("http://{address}/\n"));
    let site = Site {
        address,
        live: Live::default(),
        runs: Runs::new(what.memory),
        refused: Mutex::default(),
    };
    server.run("web", site)
}

/// What the page is served from.
struct Site {
    address: SocketAddr,
    live: Live,
    runs: Runs,
    /// The user IDs that standard error has named already.
    refused: Mutex<BTreeSet<u32>>,
}

impl Respond for Site {
    fn respond(&self, request: &Request, client: &Client<'_>) -> Response {
        // A page of another site may have its name resolved to this address (DNS rebinding), and then it
        // would read what is served here.
        if !is_for(request, self.address) {
            return Response::refusal(
                "403 Forbidden",
                "this page is served by the address that rockery web prints",
            );
        }
        match (request.method(), request.path()) {
            ("GET", "/api/devices") => {
                Response::new("application/json", devices::now().to_string())
            }
            ("GET", "/api/storage") => {
                Response::new("application/json", self.live.storage.answer(storage::now))
            }
            ("GET", "/api/labs") => {
                Response::new("application/json", self.live.labs.answer(labs::now))
            }
            ("POST", "/api/sim") if is_json(request) => {
                let answer = self.runs.answer(request.body(), &|| client.is_gone());
                Response::new("application/octet-stream", answer)
            }
            ("POST", "/api/sim") => Response::refusal(
                "415 Unsupported Media Type",
                "requests are application/json",
            ),
            ("GET", path) => page(path),
            _ => Response::refusal(
                "405 Method Not Allowed",
                "there are GET, and POST for /api/sim",
            ),
        }
    }

    /// Prints the first refusal of each user: a browser shows an empty answer only.
    fn refused(&self, user: u32) {
        let mut users = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        if users.len() < REFUSED_USERS && users.insert(user) {
            let own = os::user();
            output::note!(
                "rockery web: closed a connection of user {user}: the page answers user {own}, who started \
                 it, and root; that user starts a page of its own (--listen 127.0.0.1:0: any free port)"
            );
        }
    }
}

/// Whether the body is JSON. Pages of other sites cannot send this type without asking first.
fn is_json(request: &Request) -> bool {
    request
        .header("content-type")
        .is_some_and(|media| media.split(';').next() == Some("application/json"))
}

/// Whether the client meant this server, and comes from one of its own pages.
fn is_for(request: &Request, address: SocketAddr) -> bool {
    let names = [address.to_string(), format!("localhost:{}", address.port())];
    let is_ours = |host: &str| names.iter().any(|name| name == host);
    let origin = request
        .header("origin")
        .is_none_or(|origin| origin.strip_prefix("http://").is_some_and(is_ours));
    request.header("host").is_some_and(is_ours) && origin
}

fn page(path: &str) -> Response {
    let name = if path == "/" {
        "index.html"
    } else {
        path.trim_start_matches('/')
    };
    match PAGE
        .iter()
        .chain([&SERVER_ENGINE])
        .find(|(known, ..)| *known == name)
    {
        Some((_, media, text)) => Response::new(media, text.as_bytes().to_vec()),
        None => Response::refusal("404 Not Found", "the page has no such file"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(head: &str) -> Request {
        Request::from_head(head.as_bytes()).unwrap()
    }

    #[test]
    fn a_request_for_another_name_is_not_ours() {
        let address: SocketAddr = "127.0.0.1:8470".parse().unwrap();
        let is_ours = |head| is_for(&parsed(head), address);
        assert!(is_ours("GET / HTTP/1.1\r\nHost: localhost:8470\r\n\r\n"));
        assert!(is_ours("GET / HTTP/1.1\r\nhost:127.0.0.1:8470\r\n\r\n"));
        assert!(!is_ours(
            "GET / HTTP/1.1\r\nHost: evil.example:8470\r\n\r\n"
        ));
        assert!(!is_ours("GET / HTTP/1.1\r\n\r\n"));
        let other =
            "POST /api/sim HTTP/1.1\r\nHost: localhost:8470\r\nOrigin: http://evil.example\r\n\r\n";
        assert!(!is_ours(other));
    }

    #[test]
    fn the_media_type_of_json_may_have_parameters() {
        let media = "Content-Type: application/json; charset=utf-8";
        assert!(is_json(&parsed(&format!(
            "GET /a.js?x HTTP/1.1\r\n{media}\r\n\r\n"
        ))));
        assert!(!is_json(&parsed("GET /a.js?x HTTP/1.1\r\n\r\n")));
    }
}

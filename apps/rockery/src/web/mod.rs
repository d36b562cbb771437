//! `rockery web`: the playground's page on loopback, with this machine's speed and the counters of its
//! devices, storage servers and labs; or the counters alone, for everybody.

mod labs;
mod live;
mod runs;
mod storage;

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ::nvme::serve::Bytes;
use playground::{COUNTERS_PAGE, PAGE, PageFile, SERVER_ENGINE};
use server::http::{Admission, Client, HttpServer, Limits, Request, Respond, Response, Users};

use crate::probe::hostname;
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

/// The limits of a page of counters. Where memory is short, a new connection displaces one of the same
/// address first: a visitor with many connections does not close the page to others.
const LIMITS_OF_COUNTERS: Limits = Limits {
    users: Users::All,
    admission: Admission::Memory {
        bytes: 32 << 20,
        each: 64 << 10,
    },
    head_bytes: 16 << 10,
    body_bytes: 0,
    exchange_time: Duration::from_secs(10),
};

/// Refused users that standard error names at most, once each: many connections must not fill a log.
const REFUSED_USERS: usize = 16;

/// The address of the page.
#[derive(Debug, clap::Args)]
pub(crate) struct Web {
    /// Address and port of the page, on loopback without --read-only. Port 0 is any free one.
    ///
    /// Only processes of this user and of root are answered; connections of other users are closed.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8470")]
    #[arg(value_parser = link::address::socket)]
    listen: SocketAddr,
    /// Serve the live counters only, to every visitor: no simulations, no files, nothing that can be changed.
    ///
    /// The page has names and counters of this user's devices, programs, storage servers and labs, and is not
    /// encrypted: everybody who can connect to the address can read them. Requests to run a
    /// simulation are refused with 403.
    #[arg(long, conflicts_with = "memory")]
    read_only: bool,
    /// Memory of a run at most. A run that needs more is refused.
    #[arg(long, value_name = "SIZE", default_value = "2GiB")]
    memory: Bytes,
}

/// Serves the page until the process is ended.
///
/// # Errors
/// When the address cannot be bound, or is not on loopback and the page is not read-only.
pub(crate) fn serve(what: &Web) -> Result<(), Error> {
    if !what.read_only && !what.listen.ip().is_loopback() {
        return Err(Error::NotLoopback(what.listen.ip()));
    }
    let limits = match what.read_only {
        true => LIMITS_OF_COUNTERS,
        false => LIMITS,
    };
    let cannot = || Error::file(what.listen.to_string());
    let server = HttpServer::bind(what.listen, limits).map_err(cannot())?;
    let address = server.address();
    output::announce(format_args!("http://{address}/\n"));
    let live = Live::default();
    match what.read_only {
        true => server.run(
            "web",
            Counters {
                live,
                name: hostname().unwrap_or_default(),
            },
        ),
        false => server.run(
            "web",
            Site {
                address,
                live,
                runs: Runs::new(what.memory),
                refused: Mutex::default(),
            },
        ),
    }
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
            ("POST", "/api/sim") if is_json(request) => {
                let answer = self.runs.answer(request.body(), &|| client.is_gone());
                Response::new("application/octet-stream", answer)
            }
            ("POST", "/api/sim") => Response::refusal(
                "415 Unsupported Media Type",
                "requests are application/json",
            ),
            ("GET", path) => counters(&self.live, path)
                .unwrap_or_else(|| page(path, PAGE.iter().chain([&SERVER_ENGINE]))),
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

/// What a page of counters alone is served from.
struct Counters {
    live: Live,
    /// The name of this machine.
    name: String,
}

impl Respond for Counters {
    fn respond(&self, request: &Request, _: &Client<'_>) -> Response {
        if !is_by_address(request, &self.name) {
            return Response::refusal(
                "403 Forbidden",
                "this page is served at the addresses and by the name of this machine",
            );
        }
        match (request.method(), request.path()) {
            ("GET", path) => {
                counters(&self.live, path).unwrap_or_else(|| page(path, COUNTERS_PAGE.iter()))
            }
            ("POST", "/api/sim") => Response::refusal(
                "403 Forbidden",
                "rockery web --read-only simulates nothing: run rockery web of your own",
            ),
            _ => Response::refusal("405 Method Not Allowed", "there is GET only"),
        }
    }
}

/// The figures at a path, if there are any.
fn counters(live: &Live, path: &str) -> Option<Response> {
    let figures = match path {
        "/api/devices" => live.devices.answer(devices::now),
        "/api/storage" => live.storage.answer(storage::now),
        "/api/labs" => live.labs.answer(labs::now),
        _ => return None,
    };
    Some(Response::new("application/json", figures))
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

/// Whether the client named this machine by an address, by `localhost` or by the machine's own name. A page
/// of another site has a name of its own, which its owner may let resolve to an address of this machine.
fn is_by_address(request: &Request, name: &str) -> bool {
    let is_ours = |host: &str| {
        let is_socket = host.parse::<SocketAddr>().is_ok();
        let without_port = host.rsplit_once(':').map_or(host, |(name, _)| name);
        let local = without_port.strip_suffix(".local").unwrap_or(without_port);
        let is_address = host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
        let is_named =
            local == "localhost" || (!name.is_empty() && local.eq_ignore_ascii_case(name));
        is_socket || is_address || is_named
    };
    let origin = request
        .header("origin")
        .is_none_or(|origin| origin.strip_prefix("http://").is_some_and(is_ours));
    request.header("host").is_some_and(is_ours) && origin
}

fn page<'a>(path: &str, mut files: impl Iterator<Item = &'a PageFile>) -> Response {
    let name = if path == "/" {
        "index.html"
    } else {
        path.trim_start_matches('/')
    };
    match files.find(|(known, ..)| *known == name) {
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
    fn a_page_for_everybody_is_asked_for_by_address_or_by_the_machines_name() {
        let is_ours = |host: &str, more: &str| {
            let head = format!("GET / HTTP/1.1\r\nHost: {host}\r\n{more}\r\n");
            is_by_address(&parsed(&head), "teacher")
        };
        for host in [
            "192.0.2.7:8470",
            "[2001:db8::7]:8470",
            "192.0.2.7",
            "[2001:db8::7]",
            "localhost:8470",
            "Teacher:8470",
            "teacher.local:8470",
        ] {
            assert!(is_ours(host, ""), "{host}");
        }
        for host in [
            "evil.example:8470",
            "teacher.evil.example",
            "192.0.2.7.evil.example:8470",
            "",
        ] {
            assert!(!is_ours(host, ""), "{host}");
        }
        let origin = |of: &str| is_ours("192.0.2.7:8470", &format!("Origin: {of}\r\n"));
        assert!(origin("http://192.0.2.7:8470") && !origin("http://evil.example"));
        assert!(!origin("null"));
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

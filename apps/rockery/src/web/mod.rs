//! `rockery web`: the playground's page on loopback, with this machine's speed and the counters of its
//! devices, storage servers and labs.

mod http;
mod labs;
mod live;
mod storage;

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use playground::{PAGE, SERVER_ENGINE};

use crate::{Error, devices, output};
use http::{Reply, Request};
use live::Live;

/// Connections at once: each has a thread, and a run has a processor.
const CLIENTS_MAX: usize = 32;
/// Pause after running out of descriptors or memory.
const PAUSE: Duration = Duration::from_millis(50);

/// The address of the page.
#[derive(Debug, clap::Args)]
pub(crate) struct Web {
    /// Loopback address and port of the page: it has no authentication. Port 0 is any free one.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8470", value_parser = loopback)]
    listen: SocketAddr,
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
    let listener = TcpListener::bind(what.listen).map_err(cannot())?;
    let address = listener.local_addr().map_err(cannot())?;
    output::announce(format_args!("http://{address}/\n"));
    let clients = Arc::new(AtomicUsize::new(0));
    let live = Arc::new(Live::default());
    loop {
        let Ok((stream, _)) = listener.accept() else {
            std::thread::sleep(PAUSE);
            continue;
        };
        let (clients, live) = (Arc::clone(&clients), Arc::clone(&live));
        // If no thread can be started, the connection is closed, and the browser says so.
        _ = std::thread::Builder::new()
            .name("web".to_owned())
            .spawn(move || {
                if clients.fetch_add(1, Ordering::Relaxed) < CLIENTS_MAX {
                    // A client that is gone needs no answer.
                    _ = answer(&stream, address, &live);
                }
                clients.fetch_sub(1, Ordering::Relaxed);
            });
    }
}

fn answer(stream: &TcpStream, address: SocketAddr, live: &Live) -> io::Result<()> {
    let reply = match Request::read(stream) {
        Ok(request) => reply(&request, stream, address, live),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            Reply::refusal("400 Bad Request", &error.to_string())
        }
        Err(error) => return Err(error),
    };
    reply.write(stream)
}

fn reply(request: &Request, stream: &TcpStream, address: SocketAddr, live: &Live) -> Reply {
    // A page of another site may have its name resolved to this address (DNS rebinding), and then it would
    // read what is served here.
    if !request.is_for(address) {
        return Reply::refusal(
            "403 Forbidden",
            "this page is served by the address that rockery web prints",
        );
    }
    match (request.method.as_str(), request.path()) {
        ("GET", "/api/devices") => {
            Reply::new("application/json", devices::now().to_string().into_bytes())
        }
        ("GET", "/api/storage") => {
            Reply::new("application/json", live.storage.answer(storage::now))
        }
        ("GET", "/api/labs") => Reply::new("application/json", live.labs.answer(labs::now)),
        ("POST", "/api/sim") if request.is_json() => {
            let answer = playground::answer(&request.body, &mut |_| !http::is_closed(stream));
            Reply::new("application/octet-stream", answer)
        }
        ("POST", "/api/sim") => Reply::refusal(
            "415 Unsupported Media Type",
            "requests are application/json",
        ),
        ("GET", path) => page(path),
        _ => Reply::refusal(
            "405 Method Not Allowed",
            "there are GET, and POST for /api/sim",
        ),
    }
}

fn page(path: &str) -> Reply {
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
        Some((_, media, text)) => Reply::new(media, text.as_bytes().to_vec()),
        None => Reply::refusal("404 Not Found", "the page has no such file"),
    }
}

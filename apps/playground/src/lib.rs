//! The page that runs fabric files in a browser. [`answer`] handles all requests of the page: WebAssembly
//! calls it in a worker, and `rockery web` for an HTTP client. [`PAGE`] is the page itself.

mod dials;
mod examples;
mod problems;
mod request;
mod run;
#[cfg(target_family = "wasm")]
mod sys;

use serde_json::{Value, json};

use request::{Action, Request};

/// The media type of JavaScript (RFC 9239).
const JAVASCRIPT: &str = "text/javascript";

/// A file of the page: its name, its media type, and its text.
pub type PageFile = (&'static str, &'static str, &'static str);

/// The files of the page, except `engine.js`, which selects the simulator.
pub const PAGE: &[PageFile] = &[
    (
        "index.html",
        "text/html; charset=utf-8",
        include_str!("../static/index.html"),
    ),
    (
        "style.css",
        "text/css; charset=utf-8",
        include_str!("../static/style.css"),
    ),
    ("main.js", JAVASCRIPT, include_str!("../static/main.js")),
    ("editor.js", JAVASCRIPT, include_str!("../static/editor.js")),
    ("schema.js", JAVASCRIPT, include_str!("../static/schema.js")),
    (
        "network.js",
        JAVASCRIPT,
        include_str!("../static/network.js"),
    ),
    ("link.js", JAVASCRIPT, include_str!("../static/link.js")),
    ("live.js", JAVASCRIPT, include_str!("../static/live.js")),
    (
        "devices.js",
        JAVASCRIPT,
        include_str!("../static/devices.js"),
    ),
    (
        "storage.js",
        JAVASCRIPT,
        include_str!("../static/storage.js"),
    ),
    ("labs.js", JAVASCRIPT, include_str!("../static/labs.js")),
    ("worker.js", JAVASCRIPT, include_str!("../static/worker.js")),
];

/// The page of live counters alone, which has no simulator.
pub const COUNTERS_PAGE: &[PageFile] = &[
    (
        "index.html",
        "text/html; charset=utf-8",
        include_str!("../static/counters.html"),
    ),
    (
        "counters.js",
        JAVASCRIPT,
        include_str!("../static/counters.js"),
    ),
    (
        "style.css",
        "text/css; charset=utf-8",
        include_str!("../static/style.css"),
    ),
    ("live.js", JAVASCRIPT, include_str!("../static/live.js")),
    (
        "devices.js",
        JAVASCRIPT,
        include_str!("../static/devices.js"),
    ),
    (
        "storage.js",
        JAVASCRIPT,
        include_str!("../static/storage.js"),
    ),
    ("labs.js", JAVASCRIPT, include_str!("../static/labs.js")),
];

/// `engine.js` for a page that is served by a rockery that simulates.
pub const SERVER_ENGINE: PageFile = (
    "engine.js",
    JAVASCRIPT,
    include_str!("../static/engine-server.js"),
);

/// Answers one request of the page, both in JSON; a capture is answered with the bytes of a pcap file.
/// `watch` is called with the part of a run that is done, from 0 to 1; it returns `false` to stop the run.
pub fn answer(request: &[u8], watch: &mut dyn FnMut(f64) -> bool) -> Vec<u8> {
    let request: Request = match serde_json::from_slice(request) {
        Ok(request) => request,
        Err(error) => return bytes(&json!({ "refused": format!("no request: {error}") })),
    };
    match request.action {
        Action::Start => bytes(&json!({
            "version": env!("CARGO_PKG_VERSION"),
            "examples": examples::all(),
            "schema": fabric_file::json_schema(),
        })),
        Action::Run => bytes(&run::report(&request, watch).unwrap_or_else(|problem| problem)),
        Action::Capture => run::capture(&request, watch).unwrap_or_else(|problem| bytes(&problem)),
    }
}

fn bytes(answer: &Value) -> Vec<u8> {
    // Numbers, texts and lists can always be written as JSON.
    serde_json::to_vec(answer).unwrap_or_default()
}

#[cfg(test)]
mod tests;

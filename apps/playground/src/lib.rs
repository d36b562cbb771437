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

/// Media types of the files; that of JavaScript is RFC 9239's.
const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const JAVASCRIPT: &str = "text/javascript";

/// A file of the page: its name, its media type, and its text.
pub type PageFile = (&'static str, &'static str, &'static str);

/// A file of the folder `static`.
macro_rules! page_file {
    ($name:literal, $media:expr) => {
        page_file!($name, $name, $media)
    };
    // The file of another name: both pages begin with an `index.html`.
    ($name:literal, $file:literal, $media:expr) => {
        ($name, $media, include_str!(concat!("../static/", $file)))
    };
}

const STYLE: PageFile = page_file!("style.css", CSS);
const LIVE: PageFile = page_file!("live.js", JAVASCRIPT);
const DEVICES: PageFile = page_file!("devices.js", JAVASCRIPT);
const STORAGE: PageFile = page_file!("storage.js", JAVASCRIPT);
const LABS: PageFile = page_file!("labs.js", JAVASCRIPT);

/// The files of the page, except `engine.js`, which selects the simulator.
pub const PAGE: &[PageFile] = &[
    page_file!("index.html", HTML),
    STYLE,
    page_file!("main.js", JAVASCRIPT),
    page_file!("editor.js", JAVASCRIPT),
    page_file!("schema.js", JAVASCRIPT),
    page_file!("network.js", JAVASCRIPT),
    page_file!("link.js", JAVASCRIPT),
    ("copy.js", JAVASCRIPT, report::COPY_SCRIPT),
    LIVE,
    DEVICES,
    STORAGE,
    LABS,
    page_file!("worker.js", JAVASCRIPT),
];

/// The page of live counters alone, which has no simulator.
pub const COUNTERS_PAGE: &[PageFile] = &[
    page_file!("index.html", "counters.html", HTML),
    page_file!("counters.js", JAVASCRIPT),
    STYLE,
    LIVE,
    DEVICES,
    STORAGE,
    LABS,
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
        Err(error) => {
            return bytes(&json!({ "refused": format!("the request cannot be read: {error}") }));
        }
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

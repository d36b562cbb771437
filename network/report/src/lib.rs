//! Results as HTML without references, which opens offline in any browser: whole pages, and parts of them.
//! The only script is that of the buttons that copy commands.
#![forbid(unsafe_code)]

mod chart;
mod drawing;
pub mod simulation;
mod table;

pub use chart::{Chart, Line};
pub use drawing::{Drawing, DrawnLink, DrawnNode};
pub use table::{rows, table_style};

/// `showCopyButtons(element)` in JavaScript, for pages that contain findings.
pub const COPY_SCRIPT: &str = include_str!("copy.js");

const STYLE: &str = "
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #667; --paper: #fff; --rule: #d8dde3; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ee; --soft: #9aa4b2; --paper: #14171b; --rule: #333a44; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 2rem auto;
  max-width: 68rem; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .9rem; }
th, td { text-align: right; padding: .2rem .7rem; border-bottom: 1px solid var(--rule); }
th:first-child, td:first-child { text-align: left; }
th { font-weight: 600; color: var(--soft); }
.soft { color: var(--soft); }
.finding { border-left: 4px solid #888; padding: .4rem .9rem; margin: .7rem 0; }
.broken { border-color: #c62828; } .slow { border-color: #ef8c00; } .note { border-color: #1976d2; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(26rem, 100%), 1fr)); gap: 1rem; }
figure { margin: 0; } figcaption { font-size: .85rem; color: var(--soft); }
svg { width: 100%; height: auto; } svg text { fill: var(--soft); font: 11px system-ui, sans-serif; }
@media (max-width: 40rem) { svg.network text { font-size: 22px; } }
svg .axis { stroke: var(--rule); } summary h2 { display: inline; } pre { overflow-x: auto; font-size: .8rem; }
.finding code { user-select: all; white-space: pre-wrap; overflow-wrap: anywhere; }
.finding button { font: inherit; font-size: .8rem; margin-left: .5rem; }
";

/// The beginning of a page with this title.
pub fn head(title: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{0}</title>\
         <meta name=\"viewport\" content=\"width=device-width\">\
         <style>{STYLE}{1}</style></head><body>\n<h1>{0}</h1>\n",
        escape(title),
        table_style()
    )
}

/// The end of a page with findings.
fn tail() -> String {
    format!("<script>\n{COPY_SCRIPT}showCopyButtons(document);\n</script></body></html>\n")
}

/// Escapes the characters of markup.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

//! The other processes of the tests beside this folder, in which the parts are described:
//! `host-test-processes PART [ARGUMENT]`.
//!
//! `cargo test --all-targets` builds this as tests too: it has none then, since the tests of the modules
//! below would start this program, which would run the tests again.
#![cfg(not(test))]
#![allow(
    dead_code,
    unused_imports,
    reason = "the modules are shared with the tests, and each side uses a part"
)]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where")]

#[path = "../cuts.rs"]
mod cuts;
#[path = "../descriptors.rs"]
mod descriptors;
#[path = "../idle.rs"]
mod idle;
#[path = "../kills.rs"]
mod kills;
#[path = "../pair.rs"]
mod pair;
#[path = "../scribbles.rs"]
mod scribbles;
#[path = "../sys.rs"]
mod sys;
#[path = "../trust.rs"]
mod trust;

fn main() {
    let mut words = std::env::args().skip(1);
    let (part, argument) = (
        words.next().unwrap_or_default(),
        words.next().unwrap_or_default(),
    );
    match part.as_str() {
        "victim" => kills::victim(&argument),
        "survivor" => kills::survivor(argument.parse().unwrap()),
        "owner" => cuts::owner(),
        "writer" => cuts::writer(),
        "counter" => descriptors::counter(),
        "forger" => trust::forger(),
        "scribbler" => scribbles::scribbler(argument.parse().unwrap()),
        "idler" => idle::idler(&argument),
        _ => panic!("no part is called {part:?}"),
    }
}

//! Where figures are measured: network namespaces in which programs use one build of rockery, and the
//! compiled probes. All of it is made when a row first needs it, so that one row can be measured alone.

use std::cell::OnceCell;
use std::path::Path;

use programs::probe::Probe;
use programs::{Error, Lab, Namespace, Pair, Rockery, TempDir};

/// Two hosts and a switch whose links are faster than any machine forwards.
const SWITCH: &str = r#"
title = "One switch"
[[host]]
name = "h"
count = 2
[[switch]]
name = "sw"
[[link]]
between = ["h*", "sw"]
rate = "800Gb/s"
length = "1m"
[[workload]]                  # programs take its place
from = ["h0"]
to = ["h1"]
message = "64KiB"
messages = 1
"#;

/// One build of rockery and the namespaces that use it.
pub(crate) struct Place {
    rockery: Rockery,
    alone: OnceCell<Namespace>,
    jumbo: OnceCell<Pair>,
    ethernet: OnceCell<Pair>,
    lab: OnceCell<Lab>,
    limits: OnceCell<Probe>,
    many_queue_pairs: OnceCell<Probe>,
    setup: OnceCell<Probe>,
    folder: OnceCell<TempDir>,
}

fn made<T>(cell: &OnceCell<T>, make: impl FnOnce() -> Result<T, Error>) -> Result<&T, Error> {
    if let Some(there) = cell.get() {
        return Ok(there);
    }
    let new = make()?;
    Ok(cell.get_or_init(|| new))
}

impl Place {
    pub(crate) fn new(rockery: Rockery) -> Self {
        Self {
            rockery,
            alone: OnceCell::new(),
            jumbo: OnceCell::new(),
            ethernet: OnceCell::new(),
            lab: OnceCell::new(),
            limits: OnceCell::new(),
            many_queue_pairs: OnceCell::new(),
            setup: OnceCell::new(),
            folder: OnceCell::new(),
        }
    }

    /// The command of the build.
    pub(crate) fn rockery(&self) -> &Path {
        self.rockery.path()
    }

    /// One host without a network.
    pub(crate) fn alone(&self) -> Result<&Namespace, Error> {
        made(&self.alone, || Ok(Namespace::alone()?.with(&self.rockery)))
    }

    /// Two hosts with a link of 9000 bytes.
    pub(crate) fn jumbo(&self) -> Result<&Pair, Error> {
        made(&self.jumbo, || Ok(Pair::new(9000)?.with(&self.rockery)))
    }

    /// Two hosts with a link of 1500 bytes.
    pub(crate) fn ethernet(&self) -> Result<&Pair, Error> {
        made(&self.ethernet, || Ok(Pair::new(1500)?.with(&self.rockery)))
    }

    /// Two hosts with a live switch between them, which is faster than the machine.
    pub(crate) fn lab(&self) -> Result<&Lab, Error> {
        made(&self.lab, || Lab::new(&self.rockery, SWITCH))
    }

    /// `probe/limits.c`: what the machine gives without rockery.
    pub(crate) fn limits(&self) -> Result<&Path, Error> {
        Ok(made(&self.limits, || Probe::compile("limits"))?.path())
    }

    /// `probe/many_queue_pairs.c`: messages among many queue pairs.
    pub(crate) fn many_queue_pairs(&self) -> Result<&Path, Error> {
        Ok(made(&self.many_queue_pairs, || {
            Probe::compile("many_queue_pairs")
        })?
        .path())
    }

    /// `probe/setup.c`: connections one after the other.
    pub(crate) fn setup(&self) -> Result<&Path, Error> {
        let libraries = ["-lrdmacm", "-libverbs"];
        Ok(made(&self.setup, || {
            Probe::compile_with("cc", "setup", &libraries)
        })?
        .path())
    }

    /// A folder for disks and sockets.
    pub(crate) fn folder(&self) -> Result<&Path, Error> {
        Ok(made(&self.folder, || {
            TempDir::new().map_err(Error::file("a temporary folder"))
        })?
        .path())
    }
}

//! Files of a run: input files, which are regular and of a limited size, and output files, none of which may
//! be an input file.

use std::collections::BTreeMap;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use ::sim::input;

use crate::Error;
use crate::args::Sim;

/// The identity of a file, whatever its name: device and inode.
type Identity = (u64, u64);

/// The files of one command.
pub(crate) struct Files {
    /// Where names in the fabric file begin.
    folder: PathBuf,
    /// Files that were read so far: a sweep reads them from several threads.
    inputs: Mutex<BTreeMap<Identity, PathBuf>>,
    outputs: Vec<PathBuf>,
}

impl Files {
    /// The files that a command line names.
    ///
    /// # Errors
    /// When two options write the same file.
    pub(super) fn new(sim: &Sim) -> Result<Self, Error> {
        let folder = sim.file.parent().unwrap_or(Path::new("")).to_owned();
        let outputs = outputs(sim);
        let mut places: Vec<PathBuf> = outputs.iter().filter_map(|path| location(path)).collect();
        places.sort();
        match places.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(Error::SameOutput(pair[0].clone())),
            None => Ok(Self {
                folder,
                inputs: Mutex::default(),
                outputs,
            }),
        }
    }

    /// The files that a fabric file names, for a command that writes no file.
    pub(crate) fn of(file: &Path) -> Self {
        let folder = file.parent().unwrap_or(Path::new("")).to_owned();
        Self {
            folder,
            inputs: Mutex::default(),
            outputs: Vec::new(),
        }
    }

    /// Reads the fabric file, which may come through a pipe.
    pub(crate) fn read(&self, path: &Path) -> Result<String, Error> {
        let read = File::open(path).and_then(|file| self.text(path, file));
        read.map_err(Error::file(path))
    }

    /// Gets files by names relative to the fabric file.
    pub(crate) fn reader(&self) -> impl FnMut(&str) -> Result<String, String> {
        |name| {
            let path = self.folder.join(name);
            let read = input::regular(&path).and_then(|file| self.text(&path, file));
            read.map_err(|error| error.to_string())
        }
    }

    /// Checks that no output file is one of the input files read so far.
    ///
    /// # Errors
    /// The first file that would be overwritten.
    pub(super) fn check_outputs(&self) -> Result<(), Error> {
        let inputs = self.inputs.lock().unwrap_or_else(PoisonError::into_inner);
        let lost = |output: &&PathBuf| {
            fs::metadata(output).is_ok_and(|metadata| inputs.contains_key(&identity(&metadata)))
        };
        self.outputs
            .iter()
            .find(lost)
            .map_or(Ok(()), |path| Err(Error::OutputIsInput(path.clone())))
    }

    fn text(&self, path: &Path, file: File) -> io::Result<String> {
        let metadata = file.metadata()?;
        if metadata.is_file() {
            let mut inputs = self.inputs.lock().unwrap_or_else(PoisonError::into_inner);
            inputs.insert(identity(&metadata), path.to_owned());
        }
        input::text(file)
    }
}

fn identity(metadata: &Metadata) -> Identity {
    (metadata.dev(), metadata.ino())
}

/// Everything that the command writes; `-`, standard output, included.
fn outputs(sim: &Sim) -> Vec<PathBuf> {
    let mut outputs: Vec<PathBuf> = sim.pcap.iter().map(|(_, path)| path.clone()).collect();
    outputs.extend(
        [&sim.json, &sim.html, &sim.repetitions, &sim.trace_out]
            .into_iter()
            .flatten()
            .cloned(),
    );
    if sim.trace.is_some() && sim.trace_out.is_none() {
        outputs.push(PathBuf::from("-"));
    }
    if let Some(csv) = &sim.csv {
        outputs.push(csv.clone());
        if csv != Path::new("-") {
            outputs.extend(
                [".ports.csv", ".hops.csv", ".collectives.csv", ".links.csv"]
                    .map(|more| beside(csv, more)),
            );
        }
    }
    if let Some(parquet) = &sim.parquet {
        outputs.push(parquet.clone());
        let more = [".hops.parquet", ".collectives.parquet"];
        outputs.extend(more.map(|more| beside(parquet, more)));
    }
    outputs
}

/// Where a file is or would be, for comparing; devices may be written by several.
fn location(path: &Path) -> Option<PathBuf> {
    if path == Path::new("-") {
        return Some(path.to_owned());
    }
    match fs::metadata(path) {
        Ok(metadata) if !metadata.is_file() => None,
        Ok(_) => fs::canonicalize(path).ok(),
        Err(_) => {
            let folder = path
                .parent()
                .filter(|folder| *folder != Path::new(""))
                .unwrap_or(Path::new("."));
            Some(fs::canonicalize(folder).ok()?.join(path.file_name()?))
        }
    }
}

/// A file beside another one: its name, and `more` behind it.
pub(super) fn beside(path: &Path, more: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(more);
    PathBuf::from(name)
}

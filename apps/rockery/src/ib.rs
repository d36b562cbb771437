//! `rockery ib`: InfiniBand subnets of tools as fabric files, and the reverse.

use std::path::{Path, PathBuf};

use ::sim::input;
use fabric_file::{Document, ImportedSubnet, Network};
use vendors::infiniband::{Format, opensm, read};

use crate::{Error, output, plan};

/// What to do with an InfiniBand subnet.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Ib {
    /// Print the fabric file of a subnet that ibnetdiscover has printed, or of a net file of ibsim.
    ///
    /// ibnetdiscover may be run with --ports. GUIDs are those of the file; names come from node descriptions.
    /// What is left out or assumed is named on standard error.
    Import {
        /// Output of ibnetdiscover, or net file
        file: PathBuf,
    },
    /// Print the InfiniBand subnet of a fabric file in the form of a tool.
    Export {
        /// Fabric file with link-layer = "infiniband"
        file: PathBuf,
        /// Form to print
        #[arg(long, value_enum)]
        format: SubnetFormat,
    },
}

/// The form of a subnet.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum SubnetFormat {
    /// The output of ibnetdiscover
    Ibnetdiscover,
    /// A net file, for ibsim
    Ibsim,
    /// The topology.conf of Slurm, for its plug-in topology/tree
    Slurm,
    /// A graph, for Graphviz
    Dot,
    /// The routing engines for opensm.conf, by routing.spread of the file
    Opensm,
}

/// Imports or exports.
///
/// # Errors
/// Files that cannot be read or contradict themselves, and fabric files of Ethernet.
pub(crate) fn act(what: &Ib) -> Result<(), Error> {
    match what {
        Ib::Import { file } => import(file),
        Ib::Export { file, format } => export(file, *format),
    }
}

fn import(file: &Path) -> Result<(), Error> {
    let bytes = input::read(file).map_err(Error::file(file))?;
    let name = file.display().to_string();
    let read = read(&name, &String::from_utf8_lossy(&bytes))?;
    let title = file.file_name().unwrap_or(file.as_os_str());
    let imported = ImportedSubnet::of(&title.to_string_lossy(), &read.subnet);
    check_subnet(&name, &imported.text)?;
    output::print(&imported.text)?;
    for remark in &read.remarks {
        output::note!("{remark}");
    }
    for note in &imported.notes {
        output::note!("{name}: {note}");
    }
    Ok(())
}

/// Refuses a subnet that no fabric file can describe.
fn check_subnet(name: &str, text: &str) -> Result<(), Error> {
    let mut none = |file: &str| Err(format!("{file} is not there"));
    let document = Document::read(name, text, &mut none)?;
    let file = document.fields()?;
    Network::build(&document, &file, &mut none)?;
    Ok(())
}

fn export(file: &Path, format: SubnetFormat) -> Result<(), Error> {
    let network = plan::network(file)?;
    let Some((subnet, names)) = network.discovered() else {
        return Err(Error::NoInfiniband(file.to_owned()));
    };
    let format = match format {
        SubnetFormat::Ibnetdiscover => Format::Ibnetdiscover,
        SubnetFormat::Ibsim => Format::Ibsim,
        SubnetFormat::Slurm => Format::Slurm,
        SubnetFormat::Dot => Format::Dot,
        SubnetFormat::Opensm => return output::print(opensm(doctor::spread(&network))),
    };
    output::print(subnet.write(format, &names))
}

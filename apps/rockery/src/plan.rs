//! `rockery plan`: the fabric file as configurations of real switches and hosts.

use std::fs;
use std::path::{Path, PathBuf};

use doctor::cost_simulation::{Case, compare};
use doctor::{SwitchPlan, host_intent, switch_plan};
use fabric_file::{Document, Network};
use vendors::dialect::Version;
use vendors::{Dialect, Intent, changes_by_port};

use ::sim::input;

use crate::{Error, output};

/// The configurations to write.
#[derive(Debug, clap::Args)]
pub(crate) struct Plan {
    /// Fabric file, as rockery sim takes it
    pub(crate) file: PathBuf,
    /// Switch or host of the file, and the system that it runs: crs504=routeros@7.17
    #[arg(long = "for", value_name = "NAME=DIALECT@VERSION", required = true, value_parser = name_and_value)]
    pub(crate) wanted: Vec<(String, String)>,
    /// Folder to write to: a folder for each name
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Running configuration: shows what would change, and what it costs
    #[arg(long, value_name = "[NAME=]RUNNING")]
    pub(crate) diff: Vec<String>,
}

/// Writes the configurations, or shows what they would change.
///
/// # Errors
/// Mistakes in the fabric file, names that it does not have, dialects and versions that are not known,
/// running configurations that are not understood, and files that cannot be written.
pub(crate) fn act(plan: &Plan) -> Result<(), Error> {
    let wanted: Vec<(&str, Dialect, Version)> = plan
        .wanted
        .iter()
        .map(|(name, dialect)| {
            Dialect::parse(dialect).map(|(dialect, version)| (name.as_str(), dialect, version))
        })
        .collect::<Result<_, _>>()?;
    let running = running(plan, &wanted)?;
    let network = network(&plan.file)?;
    for (name, dialect, version) in &wanted {
        let SwitchPlan { groups, notes } = match dialect.is_host() {
            true => SwitchPlan {
                groups: vec![host_intent(&network, name, *dialect)?],
                notes: Vec::new(),
            },
            false => switch_plan(&network, name, *dialect)?,
        };
        let (written, expressed) = dialect
            .write_groups(&groups, *version)
            .map_err(|error| Error::GroupsDiffer(name.to_string(), error))?;
        if let Some(out) = &plan.out {
            let folder = out.join(name);
            fs::create_dir_all(&folder).map_err(Error::file(&folder))?;
            let files = [(written.file, &written.text)];
            let more = written.more.iter().map(|(file, text)| (*file, text));
            for (file, text) in files.into_iter().chain(more) {
                let path = folder.join(file);
                fs::write(&path, text).map_err(Error::file(&path))?;
                output::line(path.display())?;
            }
        } else if running.iter().all(|(own, _)| own != name) {
            output::print(&written.text)?;
        }
        let notes = notes.iter().chain(written.notes.iter().map(|note| &note.0));
        for note in notes {
            output::note!("{name}: {note}");
        }
        for (_, file) in running.iter().filter(|(own, _)| own == name) {
            let text = input::read(file.as_ref()).map_err(Error::file(file))?;
            let text = String::from_utf8_lossy(&text);
            // A text without anything of this system is refused.
            dialect.read(file, &text)?;
            let now = dialect.read_groups(file, &text)?;
            for line in now.outcomes.left() {
                output::note!("{line}: not compared");
            }
            show_diff(name, &now.groups, &groups, &expressed)?;
        }
    }
    Ok(())
}

/// The running configurations, with the names that they are of.
fn running(
    plan: &Plan,
    wanted: &[(&str, Dialect, Version)],
) -> Result<Vec<(String, String)>, Error> {
    let one = |text: &String| match (text.split_once('='), wanted) {
        (Some((name, file)), _) if wanted.iter().any(|(own, ..)| *own == name) => {
            Ok((name.to_owned(), file.to_owned()))
        }
        (Some((name, _)), _) if !Path::new(text).exists() => {
            Err(Error::NotPlanned(name.to_owned()))
        }
        (_, [(name, ..)]) => Ok(((*name).to_owned(), text.clone())),
        _ => Err(Error::WhoseRunning(text.clone())),
    };
    plan.diff.iter().map(one).collect()
}

/// The network of a fabric file.
///
/// # Errors
/// Mistakes in the file, and files that cannot be read.
pub(crate) fn network(path: &Path) -> Result<Network, Error> {
    let read = input::read_text;
    let text = read(path).map_err(Error::file(path))?;
    let folder = path.parent().unwrap_or(Path::new("")).to_owned();
    let mut files = |name: &str| read(&folder.join(name)).map_err(|error| error.to_string());
    let document = Document::read(&path.display().to_string(), &text, &mut files)?;
    let file = document.fields()?;
    Ok(Network::build(&document, &file, &mut files)?)
}

fn show_diff(
    name: &str,
    running: &[Intent],
    planned: &[Intent],
    expressed: &[Intent],
) -> Result<(), Error> {
    let changes = changes_by_port(running, planned, expressed);
    if changes.is_empty() {
        return output::line(format_args!(
            "{name}: the running configuration says what is planned"
        ));
    }
    output::line(format_args!(
        "{name}: {} of the running configuration would change",
        ::sim::report::counted(changes.len() as u64, "setting", "settings")
    ))?;
    for change in changes {
        output::line(format_args!("  {change}"))?;
    }
    let largest = |groups: &[Intent]| {
        let groups = groups.iter().rev();
        groups.max_by_key(|group| group.ports.len()).cloned()
    };
    let (Some(now), Some(planned)) = (largest(running), largest(expressed)) else {
        return Ok(());
    };
    let gbps = planned
        .ports
        .iter()
        .filter_map(vendors::intent::Port::gbps)
        .max()
        .unwrap_or(100);
    match compare(&Case::incast(&now, gbps), &Case::incast(&planned, gbps)) {
        None => Ok(()),
        Some(cost) => output::line(format_args!("  as it runs: {cost}")),
    }
}

/// `NAME=VALUE`, both not empty.
fn name_and_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() && !value.is_empty() => {
            Ok((name.to_owned(), value.to_owned()))
        }
        _ => Err("write NAME=DIALECT@VERSION, as in crs504=routeros@7.17".to_owned()),
    }
}

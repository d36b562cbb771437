//! `rockery check`: whether RDMA programs run on this machine, and what else on it would interfere.
//!
//! Made for the log of a job on a machine that nobody can log in to. [`trial`] carries out a transfer as a
//! program of `rockery run` does, which says more than a list of what the kernel has; [`kernel`] has that
//! list, for what is slower or refused without it. [`others`] finds devices and variables of other RDMA
//! software, which programs would use in place of rockery's.

mod kernel;
mod others;
mod page;
mod trial;

use std::process::ExitCode;

use host::PortHolder;

use crate::{Error, companion, libraries, output};
use others::Folders;
pub(crate) use trial::act as carry_out_trial;

/// What `rockery check` is called with.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Check {
    /// Format of the result
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    /// Exit with status 1 also if RDMA programs run, and something interferes
    #[arg(long)]
    strict: bool,
}

/// The formats of the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// Lines for a person
    Text,
    /// One JSON document
    Json,
}

/// What a finding means for programs of `rockery run`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    /// As it should be.
    Fine,
    /// Slower than it could be, or a command of rockery is refused.
    Note,
    /// Programs may use something else than rockery's devices.
    Interferes,
    /// RDMA programs do not run.
    Broken,
}

impl Level {
    const fn name(self) -> &'static str {
        match self {
            Self::Fine => "ok",
            Self::Note => "note",
            Self::Interferes => "interferes",
            Self::Broken => "broken",
        }
    }
}

/// Something that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Finding {
    subject: String,
    level: Level,
    found: String,
    /// What to do, where something is not as it should be.
    remedy: Option<String>,
}

impl Finding {
    fn fine(subject: &str, found: impl Into<String>) -> Self {
        Self {
            subject: subject.to_owned(),
            level: Level::Fine,
            found: found.into(),
            remedy: None,
        }
    }

    fn new(
        level: Level,
        subject: &str,
        found: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            level,
            remedy: Some(remedy.into()),
            ..Self::fine(subject, found)
        }
    }
}

/// Looks at everything, prints it, and returns the exit status: 0 if RDMA programs run, 1 otherwise.
///
/// # Errors
/// When standard output cannot be written.
pub(crate) fn act(what: &Check) -> Result<ExitCode, Error> {
    let findings = kernel::of_proc().map_or_else(all, |finding| vec![finding]);
    match what.format {
        Format::Text => output::print(page::text(&findings))?,
        Format::Json => output::json(page::json(&findings))?,
    }
    let allowed = match what.strict {
        true => Level::Note,
        false => Level::Interferes,
    };
    Ok(match worst(&findings) > allowed {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    })
}

fn all() -> Vec<Finding> {
    let mut findings = vec![of_libraries(), of_devices()];
    findings.extend(of_port());
    findings.push(trial::result());
    findings.extend(kernel::findings());
    findings.extend(others::devices(&Folders::of_this_machine()));
    findings.extend(others::variables(|name| std::env::var(name).ok()));
    findings
}

fn worst(findings: &[Finding]) -> Level {
    let levels = findings.iter().map(|finding| finding.level);
    levels.max().unwrap_or(Level::Fine)
}

/// The libraries that `rockery run` gives programs.
fn of_libraries() -> Finding {
    let own = companion::own_path();
    match own.and_then(|own| libraries::beside(&own)) {
        Ok(found) => {
            let folder = found.folder.display();
            Finding::fine("libraries", format!("in {folder}"))
        }
        Err(error) => Finding::new(
            Level::Broken,
            "libraries",
            error.to_string(),
            "install rockery again",
        ),
    }
}

/// The devices that programs of `rockery run` have.
fn of_devices() -> Finding {
    let broken =
        |found: String, remedy: &str| Finding::new(Level::Broken, "devices", found, remedy);
    let devices = match host::try_list() {
        Ok(devices) => devices,
        Err(error) => {
            return broken(
                format!("the kernel does not list network interfaces: {error}"),
                "allow netlink sockets (AF_NETLINK) and /proc/net in the container or its seccomp profile",
            );
        }
    };
    if devices.is_empty() {
        return broken(
            "no network interface is up and has an address".to_owned(),
            "bring the loopback interface up: ip link set lo up",
        );
    }
    let one = |device: &host::DeviceInfo| {
        let address = device.addresses.first();
        let address = address.map_or_else(String::new, |address| format!(" ({address})"));
        format!("{}{address}", device.name)
    };
    let all: Vec<String> = devices.iter().map(one).collect();
    Finding::fine("devices", all.join(", "))
}

/// The holder of UDP port 4791, where that is not this user.
fn of_port() -> Option<Finding> {
    let holder = PortHolder::foreign()?;
    Some(Finding::new(
        Level::Broken,
        "UDP port 4791",
        format!("taken by {holder}"),
        "end that, or give programs a network namespace of their own: rockery run --private -- PROGRAM",
    ))
}

//! Starting a lab, and entering its hosts.

use crate::LabError;
use crate::control::{Entered, labs, socket_name};
use crate::engine::{Engine, Held};
use crate::listener::listen;
use crate::namespaces;
use crate::plan::Plan;
use crate::sys::namespace;
use crate::sys::process::{self, Forked};
use link::unix;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// The summary of a lab whose hosts can be entered.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Ready {
    /// The name of the lab.
    pub name: String,
    /// Names of the live hosts.
    pub hosts: Vec<String>,
    /// Features that do not work on this machine.
    pub warnings: Vec<String>,
}

/// Runs a lab in this process, which must have one thread, until a command or a signal ends it. `ready` is
/// called when hosts can be entered.
///
/// # Errors
/// When the lab cannot be started.
pub fn run(plan: Plan, slowdown: u32, ready: impl FnOnce(&Ready)) -> Result<(), LabError> {
    let control = listen(&socket_name(&plan.name)).map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse => LabError::Runs(plan.name.clone()),
        _ => LabError::System {
            what: "the control socket",
            source,
        },
    })?;
    let signals = process::end_signals().map_err(LabError::system("signals"))?;
    namespace::own_user_namespace().map_err(LabError::UserNamespaces)?;
    let Forked::Parent(init) = process::fork_init().map_err(LabError::UserNamespaces)? else {
        process::be_init()
    };
    let ended = |result: Result<Option<OwnedFd>, LabError>| {
        process::kill(init, libc::SIGKILL);
        // The kernel ends all processes of the namespace before this one is reaped.
        let _ = process::wait(init);
        result.map(drop)
    };
    ended(start(plan, slowdown, control, signals, init, ready))
}

fn start(
    plan: Plan,
    slowdown: u32,
    control: OwnedFd,
    signals: OwnedFd,
    init: i32,
    ready: impl FnOnce(&Ready),
) -> Result<Option<OwnedFd>, LabError> {
    let open = |path: String| {
        fs::File::open(path)
            .map(OwnedFd::from)
            .map_err(LabError::system("a namespace of the lab"))
    };
    let user = open("/proc/self/ns/user".to_owned())?;
    let pid = open(format!("/proc/{init}/ns/pid"))?;
    let (mut made, mut warnings) = (Vec::new(), Vec::new());
    for host in &plan.hosts {
        let (spaces, warning) = namespaces::make(host, &plan.hosts, pid.as_fd())?;
        made.push(spaces);
        warnings.extend(warning.filter(|_| warnings.is_empty()));
    }
    let hosts = plan.hosts.iter().map(|host| host.name.clone()).collect();
    let name = plan.name.clone();
    let engine = Engine::new(
        plan,
        slowdown,
        Held {
            control,
            signals,
            user,
            pid,
            spaces: made,
        },
    )?;
    ready(&Ready {
        name,
        hosts,
        warnings,
    });
    Ok(engine.run())
}

/// Runs a lab in a process of its own, and returns when its hosts can be entered.
///
/// # Errors
/// As [`run`].
pub fn run_detached(plan: Plan, slowdown: u32) -> Result<Ready, LabError> {
    let [ours, theirs] = unix::message_pair().map_err(LabError::system("a socket pair"))?;
    let child = match process::fork().map_err(LabError::system("fork"))? {
        Forked::Parent(child) => child,
        Forked::Child => {
            drop(ours);
            // A second child has no session of which it could become the leader, and init reaps it.
            if let Ok(Forked::Child) = process::fork() {
                let fd = theirs.as_raw_fd();
                let say = |text: String| {
                    let _ = unix::send_fds(fd, text.as_bytes(), &[]);
                };
                let result = run(plan, slowdown, |ready| {
                    let _ = process::detach();
                    say(format!(
                        "+{}",
                        serde_json::to_string(ready).unwrap_or_default()
                    ));
                });
                if let Err(error) = result {
                    say(format!("-{error}"));
                }
            }
            process::exit(0)
        }
    };
    drop(theirs);
    let _ = process::wait(child);
    let mut bytes = vec![0; crate::control::MESSAGE_BYTES];
    let length =
        unix::receive_next(ours.as_raw_fd(), &mut bytes).map_err(LabError::system("the lab"))?;
    let text = String::from_utf8_lossy(&bytes[..length]).into_owned();
    let ready = text
        .strip_prefix('+')
        .and_then(|text| serde_json::from_str(text).ok());
    ready.ok_or_else(|| {
        LabError::Refused(
            text.strip_prefix('-')
                .unwrap_or("the lab has ended")
                .to_owned(),
        )
    })
}

/// Runs `program` in a host, in a child of this process, which must have one thread; the exit status as a
/// shell has it. `program` returns only when it cannot be started.
///
/// # Errors
/// When the host cannot be entered.
pub fn enter(host: &Entered, program: impl FnOnce() -> u8) -> Result<u8, LabError> {
    let failed = LabError::system("the host cannot be entered");
    let folder = std::env::current_dir();
    for namespace in &host.namespaces {
        namespace::enter(namespace.as_fd()).map_err(&failed)?;
    }
    if let Ok(folder) = folder {
        // The folder may not be there in the host: programs then begin in the root folder.
        let _ = std::env::set_current_dir(folder);
    }
    match process::fork().map_err(&failed)? {
        Forked::Child => {
            process::end_with_parent();
            process::keep_capabilities();
            process::default_terminal_signals();
            host.variables
                .iter()
                .for_each(|(name, value)| process::set_variable(name, value));
            process::exit(i32::from(program()))
        }
        Forked::Parent(child) => {
            process::ignore_terminal_signals();
            let status = process::wait(child).map_err(&failed)?;
            Ok(process::exit_status(status))
        }
    }
}

/// Whether a lab of this name runs.
pub fn is_running(name: &str) -> bool {
    labs().iter().any(|lab| lab == name)
}

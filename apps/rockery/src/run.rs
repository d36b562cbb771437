//! `rockery run`: starts a program with rockery's libraries.

use std::convert::Infallible;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::args::{Run, Settings, View};
use crate::{Error, environment, program, view};

/// Replaces this process by the program. It keeps the process ID, so signals, job control and the exit status
/// need no forwarding.
///
/// # Errors
/// When the program cannot be started.
pub(crate) fn replace_this_process(run: &Run) -> Result<Infallible, Error> {
    let (name, arguments) = run
        .program
        .split_first()
        .ok_or_else(|| Error::NoSuchProgram(String::new()))?;
    let search: Option<OsString> = std::env::var_os("PATH");
    let path = program::find(name, search.as_deref())?;
    if run.private {
        // Before the devices are listed: they are those of the new namespace.
        ::lab::own_network().map_err(Error::NoNetworkNamespace)?;
    }
    let variables = environment::variables(&run.settings)?;
    if run.settings.view() == View::Namespace {
        view::enter(&environment::devices(&run.settings))?;
    }
    let source = Command::new(&path).args(arguments).envs(variables).exec();
    Err(Error::File { path, source })
}

/// Restarts this command so that the dynamic linker finds rockery's libraries.
///
/// # Errors
/// When they are not there.
pub(crate) fn over_our_devices() -> Result<(), Error> {
    let own = std::env::current_exe().map_err(Error::file("/proc/self/exe"))?;
    let mut program = vec![own.into_os_string()];
    program.extend(std::env::args_os().skip(1));
    program.push("--system-verbs".into());
    match replace_this_process(&Run {
        settings: Settings::default(),
        private: false,
        program,
    })? {}
}

//! `rockery run`.

use std::convert::Infallible;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::args::{Run, View};
use crate::{Error, environment, program, view};

/// Becomes the program: its process number is ours, so signals, job control and its exit status need no help.
///
/// # Errors
/// When it cannot be, and why.
pub(crate) fn replace_this_process(run: &Run) -> Result<Infallible, Error> {
    let (name, arguments) = run.program.split_first().ok_or_else(|| Error::NoSuchProgram(String::new()))?;
    let search: Option<OsString> = std::env::var_os("PATH");
    let path = program::find(name, search.as_deref())?;
    let variables = environment::variables(&run.settings)?;
    if run.settings.view == View::Namespace {
        view::enter(&environment::devices(&run.settings))?;
    }
    let source = Command::new(&path).args(arguments).envs(variables).exec();
    Err(Error::File { path, source })
}

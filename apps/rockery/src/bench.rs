//! `rockery bench`: starts the program `rockery-bench`, which has the comparisons.

use std::convert::Infallible;
use std::os::unix::process::CommandExt;
use std::process::Command;

use command::program::beside;

use crate::Error;

/// The words before the arguments of `rockery-bench`: `rockery bench`.
const WORDS: usize = 2;

/// Replaces this process by `rockery-bench` with the same arguments. It keeps the process ID, so signals, job
/// control and the exit status need no forwarding.
///
/// # Errors
/// When the program is missing, or cannot be started.
pub(crate) fn replace_this_process() -> Result<Infallible, Error> {
    let own = std::env::current_exe().map_err(Error::file("/proc/self/exe"))?;
    let path = beside(&own, "rockery-bench", std::env::var_os("PATH").as_deref())
        .ok_or_else(|| Error::NoBench(own.clone()))?;
    let mut bench = Command::new(&path);
    bench.arg("--rockery").arg(&own);
    bench.args(std::env::args_os().skip(WORDS));
    Err(Error::file(path)(bench.exec()))
}

//! Programs of the same installation that carry out commands of `rockery`: `rockery-bench` and
//! `rockery-device-plugin`.

use std::convert::Infallible;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use command::program::beside;

use crate::Error;

/// The words before the arguments of a program: `rockery` and the command, such as `rockery bench`.
const WORDS: usize = 2;

/// A program that is part of every package.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Companion {
    /// The name of the program.
    pub(crate) name: &'static str,
    /// The package of cargo that builds it.
    pub(crate) package: &'static str,
}

/// The comparisons of `rockery bench`.
pub(crate) const BENCH: Companion = Companion {
    name: "rockery-bench",
    package: "rockery-bench",
};
/// The device plugin of Kubernetes.
pub(crate) const DEVICE_PLUGIN: Companion = Companion {
    name: "rockery-device-plugin",
    package: "rockery-k8s-device-plugin",
};

impl Companion {
    /// Replaces this process by the program with `arguments`, then the arguments of this process. It keeps
    /// the process ID, so signals, job control and the exit status need no forwarding.
    ///
    /// # Errors
    /// When the program is missing, or cannot be started.
    pub(crate) fn replace_this_process(self, arguments: &[OsString]) -> Result<Infallible, Error> {
        let own = own_path()?;
        let path = beside(&own, self.name, std::env::var_os("PATH").as_deref());
        let path = path.ok_or(Error::NoCompanion {
            program: self.name,
            package: self.package,
            own,
        })?;
        let mut program = Command::new(&path);
        program.args(arguments);
        program.args(std::env::args_os().skip(WORDS));
        Err(Error::file(path)(program.exec()))
    }
}

/// The path of this program.
///
/// # Errors
/// When /proc is not mounted.
pub(crate) fn own_path() -> Result<PathBuf, Error> {
    std::env::current_exe().map_err(Error::file("/proc/self/exe"))
}

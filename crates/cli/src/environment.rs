//! The variables that make a program use rockery.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use crate::Error;
use crate::args::{Settings, View};
use crate::libraries::{self, Libraries};
use crate::view;
use host::DeviceInfo;

/// Names and values, to be set for a program.
pub(crate) type Variables = Vec<(&'static str, OsString)>;

/// The variables for `settings`, seen from this binary and this process's own variables.
///
/// # Errors
/// When the libraries are missing, or their path cannot be expressed.
pub(crate) fn variables(settings: &Settings) -> Result<Variables, Error> {
    let binary = std::env::current_exe().map_err(Error::file("/proc/self/exe"))?;
    let libraries = libraries::beside(&binary)?;
    let inherited = |name: &str| std::env::var_os(name);
    let mut preloaded = Vec::new();
    let mut variables = behaviour(settings)?;
    if settings.view == View::Preload {
        let (library, folder) = looking(&libraries, settings)?;
        preloaded.push(library);
        variables.push((view::VARIABLE, folder.into()));
    }
    if settings.sockets {
        preloaded.push(libraries.sockets.clone().ok_or_else(|| missing(libraries::SOCKETS, &libraries))?);
    }
    if settings.preload {
        preloaded.extend(libraries.files.iter().cloned());
    }
    variables.extend(loader(&libraries.folder, &preloaded, inherited)?);
    Ok(variables)
}

/// The devices that the program sees.
pub(crate) fn devices(settings: &Settings) -> Vec<DeviceInfo> {
    let mut devices = host::list();
    if !settings.device.is_empty() {
        devices.retain(|device| settings.device.iter().any(|name| device.is_called(name)));
    }
    devices
}

/// The library that shows them in `/sys` and `/dev`, and the folder it answers from.
fn looking(libraries: &Libraries, settings: &Settings) -> Result<(PathBuf, PathBuf), Error> {
    let library = libraries.view.clone().ok_or_else(|| missing(libraries::VIEW, libraries))?;
    Ok((library, view::in_folder(&devices(settings))?))
}

fn missing(library: &'static str, libraries: &Libraries) -> Error {
    Error::NoLibrary { library, looked: libraries.folder.display().to_string() }
}

/// What the library is told about devices.
fn behaviour(settings: &Settings) -> Result<Variables, Error> {
    let mut variables = Variables::new();
    if !settings.device.is_empty() {
        known(&settings.device, &host::all())?;
        variables.push((host::settings::DEVICES, settings.device.join(",").into()));
    }
    if let Some(path) = &settings.pcap {
        host::capture::create(path).map_err(Error::file(path))?;
        // The program may work in another folder.
        let path = path.canonicalize().map_err(Error::file(path))?;
        variables.push((host::settings::CAPTURE, path.into()));
    }
    if settings.out_of_order {
        variables.push((host::settings::OUT_OF_ORDER, "1".into()));
    }
    if settings.no_same_host {
        variables.push((host::settings::SAME_HOST, "0".into()));
    }
    if let Some(congestion) = settings.congestion {
        variables.push((host::settings::CONGESTION, congestion.name().into()));
    }
    Ok(variables)
}

/// Whether there is a device of each name.
fn known(names: &[String], devices: &[DeviceInfo]) -> Result<(), Error> {
    let is_unknown = |name: &&String| !devices.iter().any(|device| device.is_called(name));
    let Some(name) = names.iter().find(is_unknown) else { return Ok(()) };
    let there: Vec<&str> = devices.iter().map(|device| device.name.as_str()).collect();
    Err(Error::NoSuchDevice { name: name.clone(), there: there.join(", ") })
}

fn loader(
    folder: &Path,
    preloaded: &[PathBuf],
    inherited: impl Fn(&str) -> Option<OsString>,
) -> Result<Variables, Error> {
    // The loader takes a space as the end of a path as well.
    if folder.as_os_str().as_encoded_bytes().iter().any(|byte| b": ;'\"$\n".contains(byte)) {
        return Err(Error::BadPath(folder.to_owned()));
    }
    let ahead_of = |ours: &OsStr, name: &str| match inherited(name) {
        Some(theirs) if !theirs.is_empty() => [ours, OsStr::new(":"), &theirs].into_iter().collect(),
        _ => ours.to_owned(),
    };
    let mut variables = vec![("LD_LIBRARY_PATH", ahead_of(folder.as_os_str(), "LD_LIBRARY_PATH"))];
    if !preloaded.is_empty() {
        let files: Vec<&OsStr> = preloaded.iter().map(|file| file.as_os_str()).collect();
        variables.push(("LD_PRELOAD", ahead_of(&files.join(OsStr::new(":")), "LD_PRELOAD")));
    }
    Ok(variables)
}

/// Prints them as a shell reads them.
///
/// # Errors
/// As [`variables`].
pub(crate) fn print(settings: &Settings) -> Result<(), Error> {
    if settings.view == View::Namespace {
        return Err(Error::ViewNeedsRun);
    }
    for (name, value) in variables(settings)? {
        println!("export {name}={}", quoted(&value.to_string_lossy()));
    }
    Ok(())
}

fn quoted(value: &str) -> String {
    format!("'{}'", value.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_library_comes_first_and_theirs_stay() {
        let theirs = |_: &str| Some("/opt/lib".into());
        let variables =
            loader(Path::new("/lib/rockery"), &["/lib/rockery/libibverbs.so.1".into()], theirs).unwrap();
        assert_eq!(variables[0], ("LD_LIBRARY_PATH", "/lib/rockery:/opt/lib".into()));
        assert_eq!(variables[1], ("LD_PRELOAD", "/lib/rockery/libibverbs.so.1:/opt/lib".into()));
        // An empty entry would mean the current folder.
        let variables = loader(Path::new("/lib/rockery"), &[], |_| Some("".into())).unwrap();
        assert_eq!(variables, [("LD_LIBRARY_PATH", "/lib/rockery".into())]);
    }

    #[test]
    fn a_folder_that_the_loader_would_misread_is_refused() {
        assert!(matches!(loader(Path::new("/a:b"), &[], |_| None), Err(Error::BadPath(_))));
    }

    #[test]
    fn values_survive_a_shell() {
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }
}

//! The variables that make a program use rockery.

use std::ffi::{OsStr, OsString};

use crate::Error;
use crate::args::Settings;
use crate::libraries::{self, Libraries};
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
    let mut variables = loader(&libraries, settings.preload, inherited)?;
    variables.extend(behaviour(settings)?);
    Ok(variables)
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
    libraries: &Libraries,
    preload: bool,
    inherited: impl Fn(&str) -> Option<OsString>,
) -> Result<Variables, Error> {
    let folder = &libraries.folder;
    // The loader takes a space as the end of a path as well.
    if folder.as_os_str().as_encoded_bytes().iter().any(|byte| b": ;'\"$\n".contains(byte)) {
        return Err(Error::BadPath(folder.clone()));
    }
    let ahead_of = |ours: &OsStr, name: &str| match inherited(name) {
        Some(theirs) if !theirs.is_empty() => [ours, OsStr::new(":"), &theirs].into_iter().collect(),
        _ => ours.to_owned(),
    };
    let mut variables = vec![("LD_LIBRARY_PATH", ahead_of(folder.as_os_str(), "LD_LIBRARY_PATH"))];
    if preload {
        let files: Vec<&OsStr> = libraries.files.iter().map(|file| file.as_os_str()).collect();
        variables.push(("LD_PRELOAD", ahead_of(&files.join(OsStr::new(":")), "LD_PRELOAD")));
    }
    Ok(variables)
}

/// Prints them as a shell reads them.
///
/// # Errors
/// As [`variables`].
pub(crate) fn print(settings: &Settings) -> Result<(), Error> {
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
    use std::path::Path;

    fn libraries(folder: &str) -> Libraries {
        Libraries { folder: folder.into(), files: vec![Path::new(folder).join("libibverbs.so.1")] }
    }

    #[test]
    fn our_library_comes_first_and_theirs_stay() {
        let theirs = |_: &str| Some("/opt/lib".into());
        let variables = loader(&libraries("/lib/rockery"), true, theirs).unwrap();
        assert_eq!(variables[0], ("LD_LIBRARY_PATH", "/lib/rockery:/opt/lib".into()));
        assert_eq!(variables[1], ("LD_PRELOAD", "/lib/rockery/libibverbs.so.1:/opt/lib".into()));
        // An empty entry would mean the current folder.
        let variables = loader(&libraries("/lib/rockery"), false, |_| Some("".into())).unwrap();
        assert_eq!(variables, [("LD_LIBRARY_PATH", "/lib/rockery".into())]);
    }

    #[test]
    fn a_folder_that_the_loader_would_misread_is_refused() {
        assert!(matches!(loader(&libraries("/a:b"), false, |_| None), Err(Error::BadPath(_))));
    }

    #[test]
    fn values_survive_a_shell() {
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }
}

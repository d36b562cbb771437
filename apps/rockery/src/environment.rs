//! The variables that make a program use rockery.

use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use crate::args::{Settings, View};
use crate::libraries::{self, Libraries};
use crate::{Error, fault, output, sanitizers, trace, view};
use host::DeviceInfo;

/// Where the verbs library records calls to.
const RECORD: &str = "ROCKERY_RECORD";

/// Names and values of environment variables for a program.
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
    if settings.no_preload && settings.view == Some(View::Preload) {
        return Err(Error::ViewIsPreloaded);
    }
    let mut variables = behaviour(settings)?;
    if settings.view() == View::Preload {
        let library = libraries
            .view
            .clone()
            .ok_or_else(|| missing(libraries::VIEW, &libraries))?;
        match view::in_folder(&devices(settings)) {
            Ok(folder) => {
                preloaded.push(library);
                variables.push((view::VARIABLE, folder.into()));
            }
            // Most programs use verbs alone, and need no view.
            Err(error) => output::note!(
                "rockery: the program sees no devices in /sys and /dev, because their files cannot be \
                 written: {error}; set XDG_RUNTIME_DIR or TMPDIR to a folder of yours"
            ),
        }
    }
    if settings.lab_clock && host::settings::slowdown() > 1 {
        if settings.no_preload {
            return Err(Error::ClockIsPreloaded);
        }
        // Ahead of the sockets' library, whose functions wait for what this one has made of a time.
        preloaded.push(
            libraries
                .clocks
                .clone()
                .ok_or_else(|| missing(libraries::CLOCKS, &libraries))?,
        );
    }
    if settings.sockets {
        preloaded.push(
            libraries
                .sockets
                .clone()
                .ok_or_else(|| missing(libraries::SOCKETS, &libraries))?,
        );
    }
    if settings.no_preload {
        output::note!(
            "rockery: --no-preload: a program that brings a libibverbs or librdmacm of its own uses that, \
             and finds no device of rockery's; in /sys and /dev there are devices with --view namespace"
        );
    } else {
        preloaded.extend(libraries.files.iter().cloned());
    }
    variables.extend(loader(&libraries.folder, &preloaded, inherited)?);
    // Of an option that is there twice the sanitizers use the last one: the user's.
    variables.extend(
        sanitizers::OPTIONS
            .map(|(name, options)| (name, ahead_of(OsStr::new(options), inherited(name)))),
    );
    Ok(variables)
}

/// A list with colons: ours, then the one of the user's environment.
fn ahead_of(ours: &OsStr, inherited: Option<OsString>) -> OsString {
    match inherited {
        Some(theirs) if !theirs.is_empty() => {
            [ours, OsStr::new(":"), &theirs].into_iter().collect()
        }
        _ => ours.to_owned(),
    }
}

/// The devices that the program sees.
pub(crate) fn devices(settings: &Settings) -> Vec<DeviceInfo> {
    let mut devices = host::list();
    if !settings.device.is_empty() {
        devices.retain(|device| settings.device.iter().any(|name| device.is_called(name)));
    }
    devices
        .iter_mut()
        .zip(&settings.names)
        .for_each(|(device, name)| device.name.clone_from(name));
    devices
}

/// The value of the variable that gives the program's devices the wanted names.
///
/// # Errors
/// When there are fewer devices, or two devices would have one name.
fn names(wanted: &[String], devices: &[DeviceInfo]) -> Result<String, Error> {
    if wanted.len() > devices.len() {
        return Err(Error::TooManyNames {
            wanted: wanted.len(),
            there: devices.len(),
        });
    }
    let is_twice = |name: &&String| {
        devices
            .iter()
            .filter(|device| device.name == **name)
            .count()
            > 1
    };
    if let Some(name) = wanted.iter().find(is_twice) {
        return Err(Error::NameTwice(name.clone()));
    }
    let pair = |(device, name): (&DeviceInfo, &String)| format!("{}={name}", device.interface);
    Ok(devices
        .iter()
        .zip(wanted)
        .map(pair)
        .collect::<Vec<_>>()
        .join(","))
}

fn missing(library: &'static str, libraries: &Libraries) -> Error {
    Error::NoLibrary {
        library,
        looked: libraries.folder.display().to_string(),
    }
}

/// The variables that choose devices and their behaviour.
fn behaviour(settings: &Settings) -> Result<Variables, Error> {
    let mut variables = Variables::new();
    if !settings.device.is_empty() {
        known(&settings.device, &host::all())?;
        variables.push((host::settings::DEVICES, settings.device.join(",").into()));
    }
    if !settings.names.is_empty() {
        let names = names(&settings.names, &devices(settings))?;
        variables.push((host::settings::NAMES, names.into()));
    }
    if let Some(path) = &settings.pcap {
        host::capture::create(path).map_err(Error::file(path))?;
        // The program may work in another folder.
        let path = path.canonicalize().map_err(Error::file(path))?;
        variables.push((host::settings::CAPTURE, path.into()));
    }
    if let Some(path) = &settings.record {
        host::capture::create_file(path)
            .and_then(|mut file| writeln!(file, "{}", wire::record::HEADER))
            .map_err(Error::file(path))?;
        let path = path.canonicalize().map_err(Error::file(path))?;
        variables.push((RECORD, path.into()));
    }
    variables.extend(fault::variables(settings)?);
    variables.extend(trace::variables(settings)?);
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
    let Some(name) = names.iter().find(is_unknown) else {
        return Ok(());
    };
    let there: Vec<&str> = devices.iter().map(|device| device.name.as_str()).collect();
    Err(Error::NoSuchDevice {
        name: name.clone(),
        there: there.join(", "),
    })
}

fn loader(
    folder: &Path,
    preloaded: &[PathBuf],
    inherited: impl Fn(&str) -> Option<OsString>,
) -> Result<Variables, Error> {
    // The dynamic linker separates paths in LD_PRELOAD by spaces as well.
    if folder
        .as_os_str()
        .as_encoded_bytes()
        .iter()
        .any(|byte| b": ;'\"$\n".contains(byte))
    {
        return Err(Error::BadPath(folder.to_owned()));
    }
    let mut variables = vec![(
        "LD_LIBRARY_PATH",
        ahead_of(folder.as_os_str(), inherited("LD_LIBRARY_PATH")),
    )];
    if !preloaded.is_empty() {
        let files: Vec<&OsStr> = preloaded.iter().map(|file| file.as_os_str()).collect();
        variables.push((
            "LD_PRELOAD",
            ahead_of(&files.join(OsStr::new(":")), inherited("LD_PRELOAD")),
        ));
    }
    Ok(variables)
}

/// Prints the variables as `export` commands for a shell.
///
/// # Errors
/// As [`variables`].
pub(crate) fn print(settings: &Settings) -> Result<(), Error> {
    if settings.view() == View::Namespace {
        return Err(Error::ViewNeedsRun);
    }
    for (name, value) in variables(settings)? {
        output::line(format_args!(
            "export {name}={}",
            quoted(&value.to_string_lossy())
        ))?;
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
        let variables = loader(
            Path::new("/lib/rockery"),
            &["/lib/rockery/libibverbs.so.1".into()],
            theirs,
        )
        .unwrap();
        assert_eq!(
            variables[0],
            ("LD_LIBRARY_PATH", "/lib/rockery:/opt/lib".into())
        );
        assert_eq!(
            variables[1],
            ("LD_PRELOAD", "/lib/rockery/libibverbs.so.1:/opt/lib".into())
        );
        // An empty entry would mean the current folder.
        let variables = loader(Path::new("/lib/rockery"), &[], |_| Some("".into())).unwrap();
        assert_eq!(variables, [("LD_LIBRARY_PATH", "/lib/rockery".into())]);
    }

    #[test]
    fn names_are_given_in_the_order_of_devices_and_once_each() {
        let named = |wanted: &[&str]| {
            let wanted: Vec<String> = wanted.iter().map(|&name| name.to_owned()).collect();
            let settings = Settings {
                names: wanted.clone(),
                ..Settings::default()
            };
            names(&wanted, &devices(&settings))
        };
        let count = host::list().len();
        let first = host::list()[0].interface.clone();
        assert_eq!(named(&["mlx5_0"]).unwrap(), format!("{first}=mlx5_0"));
        assert!(matches!(
            named(&vec!["a"; count + 1]),
            Err(Error::TooManyNames { .. })
        ));
        if count > 1 {
            assert!(matches!(named(&["a", "a"]), Err(Error::NameTwice(_))));
            assert!(
                matches!(named(&["rk_lo"]), Err(Error::NameTwice(_))),
                "the name of another device"
            );
        }
    }

    #[test]
    fn a_folder_that_the_loader_would_misread_is_refused() {
        assert!(matches!(
            loader(Path::new("/a:b"), &[], |_| None),
            Err(Error::BadPath(_))
        ));
    }

    #[test]
    fn values_survive_a_shell() {
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }
}

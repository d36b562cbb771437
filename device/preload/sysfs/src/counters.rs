//! Counters of the view: files whose values are read from the device when they are opened.

use core::ffi::CStr;
use host::counter_files::FILES;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

/// Folder of the devices.
const DEVICES: &str = "/sys/class/infiniband/";

/// If the path, relative to the view's folder, is that of a counter or of a folder of counters, writes the
/// current values there. If a value cannot be read or written, the file stays as it is.
pub(crate) fn refresh(path: &CStr, folder: &[u8]) {
    let Some(inside) = path.to_bytes().strip_prefix(folder) else {
        return;
    };
    let Some(Place {
        device,
        folder,
        name,
    }) = std::str::from_utf8(inside).ok().and_then(place_of_path)
    else {
        return;
    };
    let path = Path::new(OsStr::from_bytes(path.to_bytes()));
    if !path.exists() {
        return;
    }
    let reports = host::report::collect().reports;
    for file in FILES.iter().filter(|file| file.folder == folder) {
        let value = file.value(device, &reports);
        match name {
            None => write(&path.join(file.name), value),
            Some(name) if name == file.name => write(path, value),
            Some(_) => {}
        }
    }
}

/// Writes the value of a counter.
fn write(path: &Path, value: u64) {
    // The temporary file is outside the folder of counters, because programs list that folder.
    if let Some(beside) = path.parent().and_then(Path::parent) {
        write_aside(path, beside, &value.to_string());
    }
}

/// Replaces a file by renaming one of the folder `beside`, so that readers see it whole.
pub(crate) fn write_aside(path: &Path, beside: &Path, value: &str) {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let aside = beside.join(format!(".counter-{}-{number}", std::process::id()));
    if fs::write(&aside, format!("{value}\n"))
        .and_then(|()| fs::rename(&aside, path))
        .is_err()
    {
        _ = fs::remove_file(&aside);
    }
}

/// A counter's path.
#[derive(PartialEq, Eq, Debug)]
struct Place<'a> {
    device: &'a str,
    folder: &'a str,
    /// Name of the counter; `None` for the folder of counters.
    name: Option<&'a str>,
}

fn place_of_path(path: &str) -> Option<Place<'_>> {
    let (device, file) = path.strip_prefix(DEVICES)?.split_once("/ports/1/")?;
    let (folder, name) = file.split_once('/').unwrap_or((file, ""));
    let name = Some(name).filter(|name| !name.is_empty());
    FILES
        .iter()
        .any(|file| file.folder == folder)
        .then_some(Place {
            device,
            folder,
            name,
        })
}

/// The hardware counters of a device (`hw_counters`), with their values.
pub(crate) fn all(device: &str) -> Vec<(String, u64)> {
    let reports = host::report::collect().reports;
    let hardware = FILES.iter().filter(|file| file.folder == "hw_counters");
    hardware
        .map(|file| (file.name.to_owned(), file.value(device, &reports)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counter_paths_are_parsed() {
        let of = |path: &str| {
            let path = format!("/sys/class/infiniband/{path}");
            place_of_path(&path).map(|it| {
                (
                    it.device.to_owned(),
                    it.folder.to_owned(),
                    it.name.map(str::to_owned),
                )
            })
        };
        let expected = |name: Option<&str>| {
            Some((
                "rk_lo".to_owned(),
                "counters".to_owned(),
                name.map(str::to_owned),
            ))
        };
        assert_eq!(
            of("rk_lo/ports/1/counters/port_xmit_packets"),
            expected(Some("port_xmit_packets"))
        );
        assert_eq!(of("rk_lo/ports/1/counters"), expected(None));
        assert_eq!(of("rk_lo/ports/1/counters/"), expected(None));
        assert_eq!(of("rk_lo/ports/1/state"), None);
        assert_eq!(of("rk_lo/counters"), None);
        assert_eq!(place_of_path("/dev/infiniband/uverbs1"), None);
    }

    #[test]
    fn paths_outside_the_view_are_unchanged() {
        let folder = std::env::temp_dir().join(format!("rockery-view-test-{}", std::process::id()));
        let file = folder.join("sys/class/infiniband/rk_none/ports/1/counters/port_xmit_data");
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, "stale\n").unwrap();
        let path = std::ffi::CString::new(file.as_os_str().as_bytes()).unwrap();
        refresh(&path, b"/elsewhere");
        assert_eq!(fs::read_to_string(&file).unwrap(), "stale\n");
        // No process has opened this device.
        refresh(&path, folder.as_os_str().as_bytes());
        assert_eq!(fs::read_to_string(&file).unwrap(), "0\n");
        assert_eq!(fs::read_dir(file.parent().unwrap()).unwrap().count(), 1);
        fs::remove_dir_all(&folder).unwrap();
    }
}

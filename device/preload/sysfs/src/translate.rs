//! Translates paths of the program to paths in the view.

use core::ffi::CStr;
use std::sync::OnceLock;

/// Longest path of the kernel, with its terminating zero (`PATH_MAX`).
pub(crate) const PATH_BYTES: usize = libc::PATH_MAX as usize;
/// Longest name of the view's folder. The rest of a path is for the files in it.
const FOLDER_BYTES: usize = 1024;
/// Environment variable that names the view's folder.
const VARIABLE: &CStr = c"ROCKERY_VIEW";

/// The places that a view provides, in components. A kernel without RDMA devices has none of them.
const PLACES: [&[&[u8]]; 4] = [
    &[b"dev", b"infiniband"],
    &[b"sys", b"class", b"infiniband"],
    &[b"sys", b"class", b"infiniband_mad"],
    &[b"sys", b"class", b"infiniband_verbs"],
];

/// The interface of IP over InfiniBand, on a host of a lab whose view has it: others may have one of that
/// name in their kernel.
const INTERFACE: &[&[u8]] = &[b"sys", b"class", b"net", b"ib0"];
/// The same in the folder of the view.
const INTERFACE_FOLDER: &[u8] = b"/sys/class/net/ib0";

/// A path, on the stack.
pub(crate) struct Path {
    bytes: [u8; PATH_BYTES],
    length: usize,
}

impl Path {
    pub(crate) const fn new() -> Self {
        Self {
            bytes: [0; PATH_BYTES],
            length: 0,
        }
    }

    /// Appends bytes. Returns whether they and the terminating zero fit.
    fn push(&mut self, more: &[u8]) -> bool {
        let end = self.length.saturating_add(more.len());
        match self.bytes.get_mut(self.length..end) {
            Some(room) if end < PATH_BYTES => {
                room.copy_from_slice(more);
                self.length = end;
                true
            }
            _ => false,
        }
    }

    fn as_c_str(&self) -> Option<&CStr> {
        CStr::from_bytes_with_nul(self.bytes.get(..=self.length)?).ok()
    }
}

/// The folder of this process's view.
struct Folder {
    bytes: [u8; FOLDER_BYTES],
    length: usize,
    has_interface: bool,
}

fn view() -> Option<&'static Folder> {
    static FOLDER: OnceLock<Option<Folder>> = OnceLock::new();
    FOLDER.get_or_init(of_environment).as_ref()
}

/// The folder of this process's view.
pub(crate) fn folder() -> Option<&'static [u8]> {
    view()?.path()
}

/// The translated path; `None` for a path that is not in the view.
pub(crate) fn translated<'a>(path: &CStr, to: &'a mut Path) -> Option<&'a CStr> {
    // Nearly every path ends here.
    if !matches!(path.to_bytes(), [b'/', b'/' | b'd' | b's', ..]) {
        return None;
    }
    let view = view()?;
    within(path.to_bytes(), view.path()?, view.has_interface, to)
}

fn of_environment() -> Option<Folder> {
    environment::with_value(VARIABLE, |value| Folder::named(value.to_bytes())).flatten()
}

impl Folder {
    /// The folder of an absolute path that is not too long.
    fn named(value: &[u8]) -> Option<Self> {
        let mut folder = Self {
            bytes: [0; FOLDER_BYTES],
            length: value.len(),
            has_interface: false,
        };
        folder.bytes.get_mut(..value.len())?.copy_from_slice(value);
        folder.has_interface = folder.exists(INTERFACE_FOLDER);
        value.starts_with(b"/").then_some(folder)
    }

    fn path(&self) -> Option<&[u8]> {
        self.bytes.get(..self.length)
    }

    /// Whether the view has this. As a system call: functions of libc would translate the path.
    fn exists(&self, inside: &[u8]) -> bool {
        let mut path = Path::new();
        let fits = self.path().is_some_and(|folder| path.push(folder)) && path.push(inside);
        let Some(path) = path.as_c_str().filter(|_| fits) else {
            return false;
        };
        // SAFETY: a string that ends with zero, and numbers.
        let result = unsafe {
            libc::syscall(
                libc::SYS_faccessat,
                libc::AT_FDCWD,
                path.as_ptr(),
                libc::F_OK,
            )
        };
        result == 0
    }
}

/// The translated path in the view at `folder`.
fn within<'a>(
    path: &[u8],
    folder: &[u8],
    has_interface: bool,
    to: &'a mut Path,
) -> Option<&'a CStr> {
    let interface = has_interface.then_some(&INTERFACE);
    let (place, rest) = PLACES
        .iter()
        .chain(interface)
        .find_map(|place| Some((*place, after(path, place)?)))?;
    let mut fits = to.push(folder);
    for part in place {
        fits &= to.push(b"/") && to.push(part);
    }
    (fits && to.push(rest)).then_some(())?;
    to.as_c_str()
}

/// The part of `path` after `place`, beginning with a slash. Slashes may be doubled.
fn after<'a>(path: &'a [u8], place: &[&[u8]]) -> Option<&'a [u8]> {
    let mut rest = path;
    for part in place {
        let slashes = rest.iter().take_while(|&&byte| byte == b'/').count();
        rest = rest
            .get(slashes..)
            .filter(|_| slashes > 0)?
            .strip_prefix(*part)?;
    }
    matches!(rest, [] | [b'/', ..]).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn translate_in(path: &str) -> Option<String> {
        let mut room = Path::new();
        let found = within(path.as_bytes(), b"/run/v", false, &mut room)?;
        Some(found.to_str().unwrap().to_owned())
    }

    #[test]
    fn paths_of_the_view_are_translated() {
        for path in [
            "/sys/class/infiniband",
            "/sys/class/infiniband/rk_lo/ports/1/state",
            "/dev/infiniband/",
        ] {
            assert_eq!(translate_in(path), Some(format!("/run/v{path}")));
        }
        assert_eq!(
            translate_in("//sys///class/infiniband//x").as_deref(),
            Some("/run/v/sys/class/infiniband//x")
        );
    }

    #[test]
    fn an_interface_is_translated_where_the_view_has_it() {
        let of = |path: &str, has_interface: bool| {
            let mut room = Path::new();
            let found = within(path.as_bytes(), b"/v", has_interface, &mut room);
            found.map(|found| found.to_str().unwrap().to_owned())
        };
        let path = "/sys/class/net/ib0/address";
        assert_eq!(of(path, true), Some(format!("/v{path}")));
        assert_eq!(
            (of(path, false), of("/sys/class/net/ib1/mtu", true)),
            (None, None)
        );
        let folder = std::env::temp_dir().join(format!("rockery-view-{}", std::process::id()));
        let name = folder.to_str().unwrap().as_bytes();
        assert!(!Folder::named(name).unwrap().has_interface);
        std::fs::create_dir_all(folder.join("sys/class/net/ib0")).unwrap();
        assert!(Folder::named(name).unwrap().has_interface);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn other_paths_are_unchanged() {
        for path in [
            "",
            "/",
            "/sys",
            "/sys/class",
            "/sys/class/infinibandx",
            "/sys/class/net/eth0",
            "/dev/null",
        ] {
            assert_eq!(translate_in(path), None, "{path}");
        }
        for path in [
            "sys/class/infiniband",
            "/sysclass/infiniband",
            "/dev/infiniband_",
            "/dev",
        ] {
            assert_eq!(translate_in(path), None, "{path}");
        }
    }

    #[test]
    fn too_long_paths_are_unchanged() {
        let name = |length| format!("/dev/infiniband/{}", "x".repeat(length));
        let room = PATH_BYTES - "/run/v/dev/infiniband/".len() - 1;
        assert!(translate_in(&name(room)).is_some());
        assert!(translate_in(&name(room + 1)).is_none());
    }
}

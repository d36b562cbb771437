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
}

/// The folder of this process's view.
pub(crate) fn folder() -> Option<&'static [u8]> {
    static FOLDER: OnceLock<Option<Folder>> = OnceLock::new();
    let folder = FOLDER.get_or_init(of_environment).as_ref()?;
    folder.bytes.get(..folder.length)
}

/// The translated path; `None` for a path that is not in the view.
pub(crate) fn translated<'a>(path: &CStr, to: &'a mut Path) -> Option<&'a CStr> {
    // Nearly every path ends here.
    if !matches!(path.to_bytes(), [b'/', b'/' | b'd' | b's', ..]) {
        return None;
    }
    within(path.to_bytes(), folder()?, to)
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
        };
        folder.bytes.get_mut(..value.len())?.copy_from_slice(value);
        value.starts_with(b"/").then_some(folder)
    }
}

/// The translated path in the view at `folder`.
fn within<'a>(path: &[u8], folder: &[u8], to: &'a mut Path) -> Option<&'a CStr> {
    let (place, rest) = PLACES
        .iter()
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
        let found = within(path.as_bytes(), b"/run/v", &mut room)?;
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

//! The identity of this machine. What has to be unique in the world is derived from it: names and identifiers
//! of disks, and the name of a host.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use hmac::{Hmac, Mac};
use sha2::Sha256;
use tracing::warn;

use crate::identifier::{Uuid, of_hex};

/// Files with the machine ID of systemd (machine-id(5)), and of D-Bus, which older systems have alone.
const FILES: [&str; 2] = ["etc/machine-id", "var/lib/dbus/machine-id"];
/// The UUID in the firmware's tables (SMBIOS type 1), which root can read.
const PRODUCT: &str = "sys/class/dmi/id/product_uuid";
/// A UUID that firmware has in place of one of its own.
const PRODUCT_DUMMY: &str = "03000200-0400-0500-0006-000700080009";
/// The UTS namespace of the machine itself (`PROC_UTS_INIT_INO` in the kernel's proc_ns.h).
const MACHINE_UTS: &str = "uts:[4026531838]";

/// An identifier of a machine: secret, because programs of the machine rely on it (machine-id(5)). Only
/// hashes of it leave the machine.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct MachineId([u8; 16]);

impl std::fmt::Debug for MachineId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MachineId")
    }
}

impl From<[u8; 16]> for MachineId {
    fn from(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }
}

impl MachineId {
    /// The identifier of this machine: that of `/etc/machine-id`; without one the UUID of the firmware; then
    /// a random one, which is kept in a file of this user.
    pub fn this() -> Self {
        static THIS: OnceLock<MachineId> = OnceLock::new();
        *THIS.get_or_init(|| {
            Self::of_system(Path::new("/"))
                .unwrap_or_else(|| Self::kept_or_random(kept_path().as_deref()))
        })
    }

    fn of_system(root: &Path) -> Option<Self> {
        let read = |path: &str| Some(fs::read_to_string(root.join(path)).ok()?.trim().to_owned());
        // systemd writes "uninitialized" there before the first boot is complete.
        let own =
            |text: String| of_hex(&text).filter(|bytes| bytes.iter().any(|byte| *byte != bytes[0]));
        let machine = FILES.iter().find_map(|path| own(read(path)?));
        let product = || own(read(PRODUCT).filter(|text| text.to_lowercase() != PRODUCT_DUMMY)?);
        machine.or_else(product).map(Self)
    }

    fn kept_or_random(path: Option<&Path>) -> Self {
        let kept = match path {
            Some(path) => Self::kept(path).map_err(|error| format!("{}: {error}", path.display())),
            None => Err("this user has no folder for it (HOME, XDG_STATE_HOME)".to_owned()),
        };
        kept.unwrap_or_else(|error| {
            warn!(
                "this machine has no /etc/machine-id, and none can be kept ({error}): names and identifiers \
                 of disks and hosts are other ones at each start. Mount a machine-id, or give --subsystem, \
                 uuid and serial"
            );
            let mut bytes = [0; 16];
            // Without random numbers, the process and the time of its start are what is left.
            if getrandom::fill(&mut bytes).is_err() {
                let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
                bytes[..8].copy_from_slice(&(now.unwrap_or_default().as_nanos() as u64).to_le_bytes());
                bytes[8..12].copy_from_slice(&std::process::id().to_le_bytes());
            }
            Self(bytes)
        })
    }

    /// The identifier in a file, which is made with a random one if it does not exist.
    fn kept(path: &Path) -> io::Result<Self> {
        let read = || {
            let text = fs::read_to_string(path)?;
            let found = of_hex(text.trim()).map(Self);
            found.ok_or_else(|| io::Error::other("no 32 hexadecimal digits: remove the file"))
        };
        match read() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            found => return found,
        }
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).map_err(io::Error::other)?;
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        let new = path.with_extension(std::process::id().to_string());
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&new)?;
        writeln!(file, "{}", Uuid::from(bytes))?;
        file.sync_all()?;
        // Of several processes that begin at once, the first one's file stays.
        let linked = fs::hard_link(&new, path);
        fs::remove_file(&new)?;
        match linked {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => read(),
        }
    }

    /// 16 bytes that depend on the machine, the purpose and the parts alone, and from which the machine's
    /// identifier cannot be found: an HMAC with it as the key, as in sd_id128_get_machine_app_specific(3).
    pub fn derive(&self, purpose: &str, parts: &[&str]) -> [u8; 16] {
        let mut bytes = [0; 16];
        // HMAC takes keys of any length.
        if let Ok(mut hmac) = Hmac::<Sha256>::new_from_slice(&self.0) {
            for part in [&["rockery", purpose], parts].concat() {
                hmac.update(&(part.len() as u64).to_le_bytes());
                hmac.update(part.as_bytes());
            }
            bytes.copy_from_slice(&hmac.finalize().into_bytes()[..16]);
        }
        bytes
    }

    /// The UUID of this machine as a host. Containers and hosts of a lab share the files of their machine,
    /// but have UTS namespaces and host names of their own, which count there.
    pub fn host_uuid(&self) -> Uuid {
        let uts = fs::read_link("/proc/self/ns/uts").unwrap_or_default();
        let name = match uts.to_str() == Some(MACHINE_UTS) {
            true => String::new(),
            false => fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default(),
        };
        Uuid::of_hash(self.derive("host", &[name.trim()]))
    }
}

/// The file with the random identifier of a machine that has no other.
fn kept_path() -> Option<PathBuf> {
    let absolute = |name: &str| {
        environment::variable(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let own = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")));
    Some(own?.join("rockery/machine-id"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn system(files: &[(&str, &str)]) -> (tempfile::TempDir, Option<MachineId>) {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let found = MachineId::of_system(root.path());
        (root, found)
    }

    #[test]
    fn the_machine_id_is_taken_before_the_uuid_of_the_firmware() {
        const ID: &str = "3d1219c7c4c5404aaa1f6d2a48adfda4\n";
        const PRODUCT_ID: &str = "4C4C4544-0042-3510-8054-B4C04F4E4E32\n";
        let (of_machine, of_product) = (
            system(&[(FILES[0], ID)]).1,
            system(&[(PRODUCT, PRODUCT_ID)]).1,
        );
        assert!(of_machine.is_some() && of_product.is_some() && of_machine != of_product);
        assert_eq!(system(&[(FILES[1], ID)]).1, of_machine);
        assert_eq!(
            system(&[(FILES[0], ID), (PRODUCT, PRODUCT_ID)]).1,
            of_machine
        );
        for empty in ["", "uninitialized\n", "00000000000000000000000000000000\n"] {
            assert_eq!(system(&[(FILES[0], empty)]).1, None, "{empty}");
            assert_eq!(
                system(&[(FILES[0], empty), (PRODUCT, PRODUCT_ID)]).1,
                of_product,
                "{empty}"
            );
        }
        for dummy in [
            PRODUCT_DUMMY,
            "Not Settable",
            "FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF",
        ] {
            assert_eq!(system(&[(PRODUCT, dummy)]).1, None, "{dummy}");
        }
    }

    #[test]
    fn a_random_machine_id_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state/rockery/machine-id");
        let first = MachineId::kept_or_random(Some(&path));
        assert_eq!(MachineId::kept_or_random(Some(&path)), first);
        assert_ne!(
            MachineId::kept_or_random(Some(&folder.path().join("other"))),
            first
        );
        assert_eq!(
            fs::read_dir(path.parent().unwrap()).unwrap().count(),
            1,
            "no temporary file stays"
        );
        // Where none can be kept, each start has its own, and no two machines the same.
        assert_ne!(
            MachineId::kept_or_random(None),
            MachineId::kept_or_random(None)
        );
    }

    #[test]
    fn purposes_and_parts_are_told_apart() {
        let (one, other) = (MachineId([1; 16]), MachineId([2; 16]));
        let derived = [
            one.derive("a", &[]),
            one.derive("b", &[]),
            one.derive("a", &["b"]),
            one.derive("a", &["b", ""]),
            one.derive("a", &["", "b"]),
            other.derive("a", &[]),
        ];
        let distinct: std::collections::BTreeSet<_> = derived.iter().collect();
        assert_eq!(distinct.len(), derived.len());
        assert_eq!(one.derive("a", &["b"]), derived[2]);
    }
}

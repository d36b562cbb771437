//! The lasting name of a file or block device: text that stays the same over restarts of the server and of
//! the machine, and that no copy of it has. It never leaves the machine: identifiers are hashes of it.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::sys::file::file_system_id;

/// Attributes of a block device in sysfs that identify it, the best one first: device mapper, NVMe, SCSI,
/// software RAID, virtio, MMC. A device mapper without a UUID has a name.
const ATTRIBUTES: [&str; 7] = [
    "dm/uuid",
    "wwid",
    "device/wwid",
    "md/uuid",
    "serial",
    "device/serial",
    "dm/name",
];

/// The lasting name of an open file.
///
/// A regular file is named by its inode, the time of the inode's creation and its file system, so the name
/// stays when the file is renamed within its file system, and copies of the file or of a machine's image have
/// other names. Where a file system knows no times of creation, its path counts in their place.
///
/// # Errors
/// The error of `fstat` or of finding the canonical path.
pub(crate) fn lasting_name(file: &File, path: &Path) -> io::Result<String> {
    let found = file.metadata()?;
    let canonical = || Ok::<_, io::Error>(fs::canonicalize(path)?.display().to_string());
    if found.file_type().is_block_device() {
        let disk = device(found.rdev()).and_then(|folder| disk_name(&folder));
        return Ok(format!("disk {}", disk.map_or_else(canonical, Ok)?));
    }
    let system = match device(found.dev()) {
        // Numbers of devices may be others after the next boot. Without a name of the disk, nothing counts.
        Some(folder) => disk_name(&folder).unwrap_or_default(),
        // btrfs, ZFS, overlays: copies of a subvolume have the same inodes and times, and another identifier.
        None => format!("file system {:x}", file_system_id(file)?),
    };
    let created = found
        .created()
        .ok()
        .and_then(nanoseconds)
        .filter(|time| *time != 0);
    let created = created.map(|time| format!("created at {time} ns"));
    Ok(format!(
        "inode {} {} on {system}",
        found.ino(),
        created.map_or_else(canonical, Ok)?
    ))
}

fn nanoseconds(time: SystemTime) -> Option<i128> {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => i128::try_from(after.as_nanos()).ok(),
        Err(before) => i128::try_from(before.duration().as_nanos())
            .ok()
            .map(|before| -before),
    }
}

/// The folder of a block device in sysfs; `None` for the numbers of file systems without a block device.
fn device(number: u64) -> Option<std::path::PathBuf> {
    let (major, minor) = (libc::major(number), libc::minor(number));
    fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()
}

/// A name of the disk, or of the partition of a disk, that stays when the devices get other numbers.
fn disk_name(folder: &Path) -> Option<String> {
    let read = |attribute: &str| {
        let text = fs::read_to_string(folder.join(attribute)).ok()?;
        Some(text.trim().to_owned()).filter(|text| !text.is_empty())
    };
    if let Some(number) = read("partition") {
        return Some(format!(
            "{} partition {number}",
            disk_name(folder.parent()?)?
        ));
    }
    let attribute = ATTRIBUTES
        .iter()
        .find_map(|name| Some(format!("{name} {}", read(name)?)));
    let over_file = || {
        Some(format!(
            "loop over {} at {}",
            read("loop/backing_file")?,
            read("loop/offset")?
        ))
    };
    attribute.or_else(over_file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(path: &Path) -> String {
        lasting_name(&File::open(path).unwrap(), path).unwrap()
    }

    #[test]
    fn a_name_stays_with_the_file_and_no_copy_has_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("disk"), "data").unwrap();
        let first = name(&path("disk"));
        fs::write(path("disk"), "other data").unwrap();
        assert_eq!(name(&path("disk")), first, "its data do not count");
        fs::hard_link(path("disk"), path("hard")).unwrap();
        std::os::unix::fs::symlink(path("disk"), path("soft")).unwrap();
        let has_creation_time = fs::metadata(path("disk")).unwrap().created().is_ok();
        assert_eq!(name(&path("hard")) == first, has_creation_time);
        assert_eq!(name(&path("soft")), first);
        let copied = std::process::Command::new("cp")
            .arg("-a")
            .args([path("disk"), path("copy")])
            .status();
        assert!(copied.unwrap().success());
        assert_ne!(name(&path("copy")), first);
        fs::rename(path("disk"), path("moved")).unwrap();
        assert_eq!(name(&path("moved")) == first, has_creation_time);
        // The inode of a removed file is used again.
        fs::remove_file(path("copy")).unwrap();
        fs::write(path("new"), "data").unwrap();
        assert_ne!(name(&path("new")), first);
    }

    #[test]
    fn disks_are_named_by_what_identifies_them() {
        let folder = tempfile::tempdir().unwrap();
        let disk = |name: &str, attributes: &[(&str, &str)]| {
            let folder = folder.path().join(name);
            for (attribute, text) in attributes {
                fs::create_dir_all(folder.join(attribute).parent().unwrap()).unwrap();
                fs::write(folder.join(attribute), text).unwrap();
            }
            disk_name(&folder)
        };
        let named = |text: &str| Some(text.to_owned());
        assert_eq!(
            disk("dm-0", &[("dm/uuid", "LVM-x\n"), ("dm/name", "a-b\n")]),
            named("dm/uuid LVM-x")
        );
        assert_eq!(
            disk("dm-1", &[("dm/uuid", "\n"), ("dm/name", "a-b\n")]),
            named("dm/name a-b")
        );
        assert_eq!(
            disk("sda", &[("device/wwid", "naa.5000\n")]),
            named("device/wwid naa.5000")
        );
        assert_eq!(
            disk("sda/sda1", &[("partition", "1\n")]),
            named("device/wwid naa.5000 partition 1")
        );
        let looped = [("loop/backing_file", "/a\n"), ("loop/offset", "0\n")];
        assert_eq!(disk("loop0", &looped), named("loop over /a at 0"));
        assert_eq!(disk("vda", &[("serial", "\n")]), None);
        assert_eq!(disk("vda/vda1", &[("partition", "1\n")]), None);
    }
}

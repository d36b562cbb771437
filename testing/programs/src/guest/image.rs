//! The guest's kernel and initramfs: built once by `guest/build.sh`, kept below `target/`.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use super::of_this_package;
use crate::{Error, system};

/// Which kernel a guest has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kernel {
    /// The distribution's current one.
    Plain,
    /// The newest that the distribution has, whose NVMe host can authenticate.
    Authenticating,
    /// The current one, with SMB Direct built into its SMB client and server.
    Smb,
}

/// Builds the image if that has not happened yet, and returns its path.
pub(super) fn build(kernel: Kernel) -> Result<PathBuf, Error> {
    // Tests run side by side, and one build is enough: within this process by the first lock, and among the
    // several test programs by the second.
    static BUILDING: Mutex<()> = Mutex::new(());
    let _building = BUILDING
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let (folder, kind) = match kernel {
        Kernel::Plain => ("../../target/guest", "plain"),
        Kernel::Authenticating => ("../../target/guest-authenticating", "authenticating"),
        Kernel::Smb => ("../../target/guest-smb", "smb"),
    };
    let folder = of_this_package(folder);
    fs::create_dir_all(&folder).map_err(Error::file(&folder))?;
    let lock = File::create(folder.join("lock")).map_err(Error::file(&folder))?;
    lock.lock().map_err(Error::file(&folder))?;
    let script = of_this_package("guest/build.sh");
    system::call(&[&script.to_string_lossy(), &folder.to_string_lossy(), kind])?;
    Ok(folder)
}

/// Builds the kernel and the initramfs of guests of 64-bit ARM, of what an unpacked distribution has, if that
/// has not happened yet. Returns the path of their folder.
pub(super) fn arm_image(distribution: &Path) -> Result<PathBuf, Error> {
    let name = distribution.file_name().unwrap_or_default();
    let folder = of_this_package("../../target/guest-arm64").join(name);
    fs::create_dir_all(&folder).map_err(Error::file(&folder))?;
    let lock = File::create(folder.join("lock")).map_err(Error::file(&folder))?;
    lock.lock().map_err(Error::file(&folder))?;
    let script = of_this_package("guest/arm64.sh");
    system::call(&[
        &script.to_string_lossy(),
        &folder.to_string_lossy(),
        &distribution.to_string_lossy(),
    ])?;
    Ok(folder)
}

/// An initramfs in `folder` with `programs` at the paths they have here: the kernel unpacks one archive after
/// the other.
pub(super) fn with_programs(
    image: &Path,
    programs: &[&Path],
    folder: &Path,
) -> Result<PathBuf, Error> {
    let plain = image.join("initrd.gz");
    if programs.is_empty() {
        return Ok(plain);
    }
    let tree = folder.join("tree");
    for program in programs {
        let target = tree.join(program.strip_prefix("/").unwrap_or(program));
        let within = target.parent().unwrap_or(&tree);
        fs::create_dir_all(within).map_err(Error::file(within))?;
        fs::copy(program, &target).map_err(Error::file(*program))?;
        // Debug information is most of the size, and a guest has room for half of its memory: of a
        // program that does not fit only the beginning would be there.
        let target = target.to_string_lossy();
        system::call(&["strip", "--strip-debug", &target])?;
    }
    let initrd = folder.join("initrd");
    // An archive that is not compressed has to begin at a multiple of four.
    let script = "cp \"$2\" \"$3\" && truncate -s %4 \"$3\" && \
                  cd \"$1\" && find . | cpio -o -H newc --quiet >>\"$3\"";
    let paths = [&tree, &plain, &initrd].map(|path| path.to_string_lossy());
    system::call(&["sh", "-c", script, "sh", &paths[0], &paths[1], &paths[2]])?;
    Ok(initrd)
}

/// An initramfs in `folder` with these further archives of the image.
pub(super) fn with_archives(
    image: &Path,
    archives: &[&str],
    folder: &Path,
) -> Result<PathBuf, Error> {
    let initrd = folder.join("initrd");
    let sources: Vec<PathBuf> = archives.iter().map(|name| image.join(name)).collect();
    let paths = [&[initrd.clone(), image.join("initrd.gz")][..], &sources].concat();
    let paths: Vec<String> = paths
        .iter()
        .map(|path| path.to_string_lossy().into_owned())
        .collect();
    let mut argv = vec!["sh", "-c", "out=$1; shift; cat \"$@\" >\"$out\"", "sh"];
    argv.extend(paths.iter().map(String::as_str));
    system::call(&argv)?;
    Ok(initrd)
}

//! Guests of 64-bit ARM: a distribution's kernel and programs, with rockery's libraries for that processor.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::image::arm_image;
use crate::distribution::unpacked;
use crate::{Error, Packages};

/// What guests of 64-bit ARM are made of. They mount the folders, so making one takes no copy of them.
#[derive(Debug)]
pub struct Arm {
    distribution: PathBuf,
    image: PathBuf,
    /// The libraries, by the names that programs load.
    libraries: TempDir,
}

impl Arm {
    /// Unpacks a distribution, `debian-13-arm64` or `debian-12-arm64`, and builds the libraries, if that was
    /// not done before.
    ///
    /// # Errors
    /// When the distribution cannot be unpacked, or has no kernel.
    ///
    /// # Panics
    /// When the libraries cannot be built.
    pub fn new(distribution: &str) -> Result<Self, Error> {
        let distribution = unpacked(distribution)?;
        let image = arm_image(&distribution)?;
        let built = Packages::built_for_arm();
        let libraries = TempDir::new().map_err(Error::file("a temporary folder"))?;
        for (library, name) in [
            ("libibverbs.so", "libibverbs.so.1"),
            ("librdmacm.so", "librdmacm.so.1"),
        ] {
            let target = libraries.path().join(name);
            fs::copy(built.join(library), &target).map_err(Error::file(&target))?;
        }
        Ok(Self {
            distribution,
            image,
            libraries,
        })
    }

    /// The root of the distribution, as it is unpacked here.
    pub fn root(&self) -> &Path {
        &self.distribution
    }

    pub(super) fn kernel(&self) -> PathBuf {
        self.image.join("vmlinuz")
    }

    pub(super) fn initrd(&self) -> PathBuf {
        self.image.join("initrd.gz")
    }

    /// The emulator, and how it gives the guest its folders.
    pub(super) fn machine(&self) -> Vec<String> {
        let share = |folder: &Path, name: &str| {
            format!(
                "local,path={},mount_tag={name},security_model=none,readonly=on,multidevs=remap",
                folder.display()
            )
        };
        // perftest compares the processor's counter with the clock, and makes no report where it was
        // interrupted for milliseconds between the two: other programs of this machine do that to an emulator
        // whose clock is the real one. By `-icount` the guest's time is the number of its instructions, which
        // stands still with them. Signed addresses (PAC) take a part of the emulation's time, and no program
        // here needs them.
        let words = "qemu-system-aarch64 -machine virt -accel tcg,thread=single -icount shift=auto \
                     -cpu max,pauth=off";
        let mut machine: Vec<String> = words.split(' ').map(str::to_owned).collect();
        machine.extend([
            "-virtfs".to_owned(),
            share(&self.distribution, "distribution"),
            "-virtfs".to_owned(),
            share(self.libraries.path(), "rockery"),
        ]);
        machine
    }
}

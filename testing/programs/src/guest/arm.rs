//! Guests of 64-bit ARM: a distribution's kernel and programs, with rockery's packages for that processor.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::image::arm_image;
use crate::distribution::unpacked;
use crate::{Error, Packages, system};

/// What guests of 64-bit ARM are made of. They mount the folders, so making one takes no copy of them.
#[derive(Debug)]
pub struct Arm {
    distribution: PathBuf,
    image: PathBuf,
    /// Programs and libraries of the tarball, unpacked, and the script that runs rdma-core's own tests.
    rockery: TempDir,
    time: Time,
}

/// What the clock of a guest of 64-bit ARM follows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Time {
    /// The instructions that its only processor has executed.
    Instructions,
    /// The clock of this machine. Its two processors run at once.
    Real,
}

impl Arm {
    /// Unpacks a distribution, `debian-13-arm64` or `debian-12-arm64`, and makes the packages, if that was
    /// not done before.
    ///
    /// # Errors
    /// When the distribution cannot be unpacked, or has no kernel.
    ///
    /// # Panics
    /// When the packages cannot be made.
    pub fn new(distribution: &str) -> Result<Self, Error> {
        let distribution = unpacked(distribution)?;
        let image = arm_image(&distribution)?;
        let rockery = TempDir::new().map_err(Error::file("a temporary folder"))?;
        let packages = Packages::made_for_arm();
        let tarball = packages
            .folder()
            .join(packages.named("rockery-", ".tar.gz"));
        let paths = [&tarball, rockery.path()].map(|path| path.to_string_lossy().into_owned());
        let (strip, without) = ("--strip-components=1", "--exclude=*/share/*");
        system::call(&[
            "tar", "-xz", strip, without, "-f", &paths[0], "-C", &paths[1],
        ])?;
        let cases = rockery.path().join("run.py");
        let text = include_str!("../../../../device/verbs/tests/pyverbs/run.py");
        fs::write(&cases, text).map_err(Error::file(&cases))?;
        Ok(Self {
            distribution,
            image,
            rockery,
            time: Time::Instructions,
        })
    }

    /// Has the processors of guests run at once, by the clock of this machine.
    #[must_use]
    pub fn in_real_time(mut self) -> Self {
        self.time = Time::Real;
        self
    }

    /// Copies a program to the folder `/rockery` of guests that are booted from now on.
    ///
    /// # Errors
    /// When that fails.
    pub fn add(&self, program: &Path) -> Result<(), Error> {
        let name = program.file_name().unwrap_or_default();
        fs::copy(program, self.rockery.path().join(name))
            .map(drop)
            .map_err(Error::file(program))
    }

    /// Those of a guest. One after the other would take turns in the time of one.
    pub(crate) fn processors(&self) -> u32 {
        match self.time {
            Time::Instructions => 1,
            Time::Real => 2,
        }
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
        let accelerator = match self.time {
            Time::Instructions => "-accel tcg,thread=single -icount shift=auto",
            Time::Real => "-accel tcg,thread=multi",
        };
        let words = format!("qemu-system-aarch64 -machine virt {accelerator} -cpu max,pauth=off");
        let mut machine: Vec<String> = words.split(' ').map(str::to_owned).collect();
        machine.extend([
            "-virtfs".to_owned(),
            share(&self.distribution, "distribution"),
            "-virtfs".to_owned(),
            share(self.rockery.path(), "rockery"),
        ]);
        machine
    }
}

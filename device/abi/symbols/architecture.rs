//! The processor that a drop-in library is built for. Used by the build scripts of the drop-in libraries.

/// Processors that the assembly of the drop-in libraries is written for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Architecture {
    X86_64,
    Aarch64,
}

impl Architecture {
    /// That of the target of this build.
    ///
    /// # Errors
    /// When there is no assembly for it, with the targets for which there is.
    pub(crate) fn of_target() -> Result<Self, String> {
        println!("cargo:rerun-if-changed=../abi/symbols/architecture.rs");
        Self::of(&std::env::var("TARGET").unwrap_or_default())
    }

    /// The architecture of a compiler's target.
    pub(crate) fn of(target: &str) -> Result<Self, String> {
        match target {
            "x86_64-unknown-linux-gnu" => Ok(Self::X86_64),
            "aarch64-unknown-linux-gnu" => Ok(Self::Aarch64),
            _ => Err(format!(
                "rockery's C libraries are for Linux with glibc on x86-64 and 64-bit ARM: exported names are \
                 jumps in assembly, and symbol versions are the GNU linker's; build for \
                 x86_64-unknown-linux-gnu or aarch64-unknown-linux-gnu, not for {target}"
            )),
        }
    }
}

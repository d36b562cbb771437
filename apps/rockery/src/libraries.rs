//! The folder of our libraries, under the names that programs load.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};

use crate::Error;

/// A library: the name that programs load, the name of cargo's build, and whether rockery works without it.
struct Library {
    soname: &'static str,
    /// Other names under which programs load it: without a number, as NCCL does.
    aliases: &'static [&'static str],
    built: &'static str,
    required: bool,
}

impl Library {
    fn names(&self) -> impl Iterator<Item = &'static str> {
        core::iter::once(self.soname).chain(self.aliases.iter().copied())
    }
}

/// Preloaded: no program loads it by name.
pub(crate) const VIEW: &str = "librockery-view.so";
/// Preloaded, also by hand under this name, which is that of rdma-core's library.
pub(crate) const SOCKETS: &str = "librspreload.so";
/// Preloaded in labs that are slowed down.
pub(crate) const CLOCKS: &str = "librockery-clocks.so";

/// The direct verbs of hardware providers, which refuse the device.
const PROVIDERS: &str = "librockery-providers.so";
/// The names of all the libraries that it stands for.
const PROVIDER_NAMES: [&str; 12] = [
    "libmlx5.so.1",
    "libmlx5.so",
    "libmlx4.so.1",
    "libmlx4.so",
    "libefa.so.1",
    "libefa.so",
    "libhns.so.1",
    "libhns.so",
    "libmana.so.1",
    "libmana.so",
    "libionic.so.1",
    "libionic.so",
];

const LIBRARIES: [Library; 6] = [
    Library {
        soname: "libibverbs.so.1",
        aliases: &["libibverbs.so"],
        built: "libibverbs.so",
        required: true,
    },
    Library {
        soname: "librdmacm.so.1",
        aliases: &["librdmacm.so"],
        built: "librdmacm.so",
        required: false,
    },
    Library {
        soname: PROVIDERS,
        aliases: &PROVIDER_NAMES,
        built: "libdv_stubs.so",
        required: false,
    },
    Library {
        soname: VIEW,
        aliases: &[],
        built: "libpreload_sysfs.so",
        required: false,
    },
    Library {
        soname: SOCKETS,
        aliases: &[],
        built: "libpreload_sockets.so",
        required: false,
    },
    Library {
        soname: CLOCKS,
        aliases: &[],
        built: "libpreload_clock.so",
        required: false,
    },
];

/// The folder that holds them, and those that are there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Libraries {
    /// The folder for `LD_LIBRARY_PATH`.
    pub(crate) folder: PathBuf,
    /// For LD_PRELOAD, where a program brings a path of its own.
    pub(crate) files: Vec<PathBuf>,
    /// For LD_PRELOAD: shows the devices in `/sys` and `/dev`.
    pub(crate) view: Option<PathBuf>,
    /// For LD_PRELOAD: turns sockets into rsockets.
    pub(crate) sockets: Option<PathBuf>,
    /// For LD_PRELOAD: slows clocks and waits.
    pub(crate) clocks: Option<PathBuf>,
}

/// Looks beside `binary`: in `../lib/rockery` where it is installed, in its own folder where cargo built it.
///
/// # Errors
/// When one is not there, or when the folder of names for what cargo built cannot be made.
pub(crate) fn beside(binary: &Path) -> Result<Libraries, Error> {
    let folder = binary.parent().unwrap_or(Path::new("."));
    let installed = folder.join("../lib/rockery");
    if LIBRARIES
        .iter()
        .any(|library| installed.join(library.soname).exists())
    {
        let installed = installed.canonicalize().map_err(Error::file(&installed))?;
        complete(&installed);
        return in_folder(installed);
    }
    if !LIBRARIES
        .iter()
        .any(|library| folder.join(library.built).exists())
    {
        let looked = format!("{} and {}", installed.display(), folder.display());
        return Err(Error::NoLibrary {
            library: LIBRARIES[0].soname,
            looked,
        });
    }
    in_folder(named(folder)?)
}

fn in_folder(folder: PathBuf) -> Result<Libraries, Error> {
    let (mut files, mut view, mut sockets, mut clocks) = (Vec::new(), None, None, None);
    for library in &LIBRARIES {
        let file = folder.join(library.soname);
        if library.soname == VIEW {
            view = file.exists().then_some(file);
        } else if library.soname == SOCKETS {
            sockets = file.exists().then_some(file);
        } else if library.soname == CLOCKS {
            clocks = file.exists().then_some(file);
        } else if library.soname == PROVIDERS {
            // Programs find it by the names of its aliases.
        } else if file.exists() {
            files.push(file);
        } else if library.required {
            let looked = folder.display().to_string();
            return Err(Error::NoLibrary {
                library: library.soname,
                looked,
            });
        }
    }
    Ok(Libraries {
        folder,
        files,
        view,
        sockets,
        clocks,
    })
}

/// A folder within `built` where the libraries that cargo made have the names that programs look for. It is
/// not in `/tmp`, where another user could replace the libraries.
fn named(built: &Path) -> Result<PathBuf, Error> {
    let built = built.canonicalize().map_err(Error::file(built))?;
    let folder = built.join("rockery-libraries");
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(&folder)
        .map_err(Error::file(&folder))?;
    let names = LIBRARIES
        .iter()
        .flat_map(|library| library.names().map(|name| (name, library.built)));
    for (name, built_as) in names {
        let (link, target) = (folder.join(name), built.join(built_as));
        if !target.exists() {
            // An earlier build made it: its target is gone.
            _ = fs::remove_file(&link);
        } else if !same_file(&link, &target) {
            link_anew(&link, &target)?;
        }
    }
    Ok(folder)
}

/// Makes the links that an installation from a Python wheel lacks, since wheels hold no links. Where the
/// folder is not ours, programs that load a library by such a name do not find it.
fn complete(folder: &Path) {
    for library in LIBRARIES
        .iter()
        .filter(|library| folder.join(library.soname).exists())
    {
        for alias in library.aliases {
            // One that is there, which may be a file, is not replaced.
            _ = symlink(library.soname, folder.join(alias));
        }
    }
}

fn same_file(one: &Path, other: &Path) -> bool {
    let identity = |path: &Path| {
        path.metadata()
            .ok()
            .map(|metadata| (metadata.dev(), metadata.ino()))
    };
    identity(one).is_some() && identity(one) == identity(other)
}

/// Several `rockery run` may do this at once: a link is made aside, then moved, so that it is always there.
fn link_anew(link: &Path, target: &Path) -> Result<(), Error> {
    // Beside the whole name: `libibverbs.so` and `libibverbs.so.1` are two links.
    let mut aside = link.as_os_str().to_owned();
    aside.push(format!(".{}", std::process::id()));
    let aside = PathBuf::from(aside);
    _ = fs::remove_file(&aside);
    symlink(target, &aside).map_err(Error::file(&aside))?;
    fs::rename(&aside, link).map_err(Error::file(link))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for file in files {
            let path = folder.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, b"").unwrap();
        }
        folder
    }

    #[test]
    fn an_installation_has_them_in_lib_rockery() {
        let tree = tree(&[
            "bin/rockery",
            "lib/rockery/libibverbs.so.1",
            "lib/rockery/librdmacm.so.1",
        ]);
        let found = beside(&tree.path().join("bin/rockery")).unwrap();
        assert!(found.folder.ends_with("lib/rockery"));
        assert_eq!(found.files.len(), 2);
    }

    #[test]
    fn an_installation_without_links_gets_them() {
        let tree = tree(&[
            "bin/rockery",
            "lib/rockery/libibverbs.so.1",
            "lib/rockery/librockery-providers.so",
        ]);
        beside(&tree.path().join("bin/rockery")).unwrap();
        let folder = tree.path().join("lib/rockery");
        for (link, file) in [
            ("libibverbs.so", "libibverbs.so.1"),
            ("libmlx5.so.1", "librockery-providers.so"),
        ] {
            assert!(same_file(&folder.join(link), &folder.join(file)), "{link}");
        }
        assert!(
            !folder.join("librdmacm.so").exists(),
            "its library is not there"
        );
    }

    #[test]
    fn a_build_gets_links_with_the_right_names_and_keeps_them_right() {
        let tree = tree(&["rockery", "libibverbs.so"]);
        let binary = tree.path().join("rockery");
        for _ in 0..2 {
            let found = beside(&binary).unwrap();
            assert_eq!(found.files.len(), 1);
            assert!(same_file(
                &found.folder.join("libibverbs.so.1"),
                &tree.path().join("libibverbs.so")
            ));
        }
    }

    #[test]
    fn libraries_have_the_names_without_a_number_and_those_of_providers() {
        let tree = tree(&["rockery", "libibverbs.so", "librdmacm.so", "libdv_stubs.so"]);
        let found = beside(&tree.path().join("rockery")).unwrap();
        for (name, target) in [
            ("libibverbs.so", "libibverbs.so"),
            ("librdmacm.so", "librdmacm.so"),
            ("libmlx5.so.1", "libdv_stubs.so"),
            ("libefa.so.1", "libdv_stubs.so"),
            ("libmlx5.so", "libdv_stubs.so"),
        ] {
            assert!(
                same_file(&found.folder.join(name), &tree.path().join(target)),
                "{name}"
            );
        }
        assert_eq!(
            found.files.len(),
            2,
            "providers are found by name, and not preloaded"
        );
    }

    #[test]
    fn a_missing_library_is_named_with_the_places_looked_at() {
        let tree = tree(&["bin/rockery"]);
        let error = beside(&tree.path().join("bin/rockery"))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("libibverbs.so.1") && error.contains("lib/rockery"),
            "{error}"
        );
    }
}

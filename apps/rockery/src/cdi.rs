//! `rockery cdi`: the Container Device Interface (CDI) specification of rockery's libraries, for podman,
//! CRI-O, containerd and Docker.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::libraries::{self, Libraries};
use crate::{Error, output, sanitizers};

/// The version of the specification that is written: the first one that all of these engines know.
const CDI_VERSION: &str = "0.5.0";
/// The kind of the device, of which engines make the name `rockery.dev/rdma=all`.
const KIND: &str = "rockery.dev/rdma";
/// The name by which engines and kubelets request it.
pub(crate) const NAME: &str = "rockery.dev/rdma=all";
/// The folder in containers.
const PREFIX: &str = "/opt/rockery";

/// The specification to print or write.
#[derive(Debug, clap::Args)]
pub(crate) struct Cdi {
    /// File for the specification, such as /etc/cdi/rockery.json; standard output if not given.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Prints or writes the specification.
///
/// # Errors
/// When the libraries are not installed, or the file cannot be written.
pub(crate) fn act(what: &Cdi) -> Result<(), Error> {
    let text = format!("{:#}\n", specification(&edits()?));
    let Some(path) = &what.output else {
        return output::print(text);
    };
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(Error::file(folder))?;
    }
    // Engines read the folder at any time: they find the old file or the new one.
    let aside = path.with_extension(format!("{}.tmp", std::process::id()));
    fs::write(&aside, text).map_err(Error::file(&aside))?;
    fs::rename(&aside, path).map_err(Error::file(path))
}

/// Checks that no file of the folder of the libraries is a link out of it: only the folder itself is mounted
/// in containers.
fn contained(libraries: &Libraries) -> Result<(), Error> {
    let folder = &libraries.folder;
    for file in &libraries.files {
        let real = file.canonicalize().map_err(Error::file(file))?;
        if !real.starts_with(folder) {
            return Err(Error::NotInstalled(folder.clone()));
        }
    }
    Ok(())
}

/// The edits of a container: variables, and files of this machine with their paths in the container.
pub(crate) struct Edits {
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) mounts: Vec<(PathBuf, String)>,
}

/// The edits for libraries that are installed.
///
/// # Errors
/// When the libraries are not installed.
pub(crate) fn edits() -> Result<Edits, Error> {
    let binary = std::env::current_exe().map_err(Error::file("/proc/self/exe"))?;
    let libraries = libraries::beside(&binary)?;
    contained(&libraries)?;
    Ok(Edits::new(&binary, &libraries))
}

impl Edits {
    fn new(binary: &Path, libraries: &Libraries) -> Self {
        let inside = format!("{PREFIX}/lib/rockery");
        let preloaded: Vec<String> = libraries
            .files
            .iter()
            .filter_map(|file| Some(format!("{inside}/{}", file.file_name()?.to_string_lossy())))
            .collect();
        Self {
            environment: [
                ("LD_LIBRARY_PATH", inside.clone()),
                ("LD_PRELOAD", preloaded.join(":")),
            ]
            .into_iter()
            .chain(sanitizers::OPTIONS.map(|(name, options)| (name, options.to_owned())))
            .map(|(name, value)| (name.to_owned(), value))
            .collect(),
            mounts: vec![
                (libraries.folder.clone(), inside),
                (binary.to_owned(), format!("{PREFIX}/bin/rockery")),
            ],
        }
    }
}

fn specification(edits: &Edits) -> Value {
    let env: Vec<String> = edits
        .environment
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    let mounts: Vec<Value> = edits
        .mounts
        .iter()
        .map(|(host, container)| mount(host, container))
        .collect();
    // Neither devices nor capabilities: the libraries need UDP sockets and memory, which containers have.
    json!({
        "cdiVersion": CDI_VERSION,
        "kind": KIND,
        "devices": [{ "name": "all", "containerEdits": { "env": env, "mounts": mounts } }],
    })
}

fn mount(host: &Path, container: &str) -> Value {
    json!({
        "hostPath": host.display().to_string(),
        "containerPath": container,
        "options": ["ro", "nosuid", "nodev", "rbind"],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_gets_libraries_and_no_rights() {
        let folder = PathBuf::from("/usr/lib/rockery");
        let files = ["libibverbs.so.1", "librdmacm.so.1"]
            .map(|name| folder.join(name))
            .to_vec();
        let libraries = Libraries {
            folder,
            files,
            view: None,
            sockets: None,
            clocks: None,
        };
        let made = specification(&Edits::new(Path::new("/usr/bin/rockery"), &libraries));
        let device = &made["devices"][0];
        assert_eq!(NAME, format!("{KIND}={}", device["name"].as_str().unwrap()));
        assert_eq!(
            (&made["kind"], &device["name"]),
            (&json!("rockery.dev/rdma"), &json!("all"))
        );
        let edits = device["containerEdits"].as_object().unwrap();
        assert_eq!(
            edits.keys().collect::<Vec<_>>(),
            ["env", "mounts"],
            "no device nodes, no hooks"
        );
        let preload = "LD_PRELOAD=/opt/rockery/lib/rockery/libibverbs.so.1:\
                       /opt/rockery/lib/rockery/librdmacm.so.1";
        assert_eq!(edits["env"][1], preload);
        assert_eq!(edits["env"][2], "ASAN_OPTIONS=verify_asan_link_order=0");
        let options = edits["mounts"][0]["options"].as_array().unwrap();
        assert!(options.contains(&json!("ro")), "{options:?}");
    }

    #[test]
    fn links_that_lead_out_of_the_folder_are_refused() {
        let tree = tempfile::tempdir().unwrap();
        let folder = tree.path().canonicalize().unwrap().join("lib");
        fs::create_dir(&folder).unwrap();
        fs::write(tree.path().join("built.so"), "").unwrap();
        let file = folder.join("libibverbs.so.1");
        std::os::unix::fs::symlink("../built.so", &file).unwrap();
        let libraries = Libraries {
            folder,
            files: vec![file],
            view: None,
            sockets: None,
            clocks: None,
        };
        assert!(matches!(contained(&libraries), Err(Error::NotInstalled(_))));
    }
}

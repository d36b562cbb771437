//! Other distributions: their programs, libraries and C library, on this host's kernel.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::namespace::Process;
use crate::{Error, Job, Machine, Namespace, Rockery, system};

/// The folder with rockery in the distribution's root.
const ROCKERY: &str = "/rockery";

/// PATH in the distribution: programs that a test adds in `/usr/local/sbin` come first.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Mounts before a program is started in the root: `$1` is the root, `$2` where rockery is installed.
/// The mounts are the program's own, since `ip netns exec` gives it a mount namespace, and they end with it.
const ENTER: &str = "root=$1 rockery=$2; shift 2
for folder in proc sys dev; do mount --rbind /$folder $root/$folder || exit 125; done
mount --bind /tmp $root/tmp && mount -t tmpfs run $root/run && mount --bind $rockery $root/rockery || exit 125
exec chroot $root \"$@\"";

/// The root folder of a distribution, unpacked by `scripts/distribution.sh`, with rockery installed for it.
#[derive(Debug)]
pub struct Distribution {
    root: PathBuf,
    /// The folder that programs of the distribution find as [`ROCKERY`].
    shared: PathBuf,
    /// A command of `shared` that programs are started with; none where programs are started directly.
    command: Vec<String>,
    /// Folders that are deleted with this.
    _own: Vec<TempDir>,
}

impl Distribution {
    /// Unpacks it, if that was not done before: a minute or two, and less than half a gigabyte.
    ///
    /// # Errors
    /// When the script fails, with its reason: an unknown name, no mirror, no keyring.
    pub fn new(name: &str, rockery: &Rockery) -> Result<Self, Error> {
        let root = unpacked(name)?;
        let (installed, _) = rockery.installed();
        let command = run_with(&format!("{ROCKERY}/bin/rockery"));
        Ok(Self {
            root,
            shared: installed.path().to_owned(),
            command,
            _own: vec![installed],
        })
    }

    /// A copy of it without rockery, to install packages in: `packages` is a folder that programs there find
    /// as `/rockery`. Programs are started directly. Files of the copy are links, since `dpkg` and `rpm`
    /// replace files and do not write into them.
    ///
    /// # Errors
    /// When the root cannot be copied.
    pub fn clean(name: &str, packages: &Path) -> Result<Self, Error> {
        let original = unpacked(name)?;
        let folder = original.parent().unwrap_or(&original);
        let own = TempDir::with_prefix_in("clean-", folder).map_err(Error::file(folder))?;
        let root = own.path().join(name);
        system::call(&[
            "cp",
            "-al",
            &original.to_string_lossy(),
            &root.to_string_lossy(),
        ])?;
        Ok(Self {
            root,
            shared: packages.to_owned(),
            command: Vec::new(),
            _own: vec![own],
        })
    }

    /// The same root, where programs are started by this `rockery` of its own, in `rockery run`.
    #[must_use]
    pub fn with_command(mut self, rockery: &str) -> Self {
        self.command = run_with(rockery);
        self
    }

    /// The same root, where programs are started directly.
    #[must_use]
    pub fn without_command(mut self) -> Self {
        self.command.clear();
        self
    }

    /// Its root folder, on this host.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// A machine with it, in a network namespace of this host.
    pub fn on<'a>(&'a self, namespace: &'a Namespace) -> Inside<'a> {
        Inside {
            distribution: self,
            namespace,
        }
    }
}

fn run_with(rockery: &str) -> Vec<String> {
    [rockery, "run", "--"].map(str::to_owned).to_vec()
}

/// The root folder of a distribution, which is unpacked if it is not there.
pub(crate) fn unpacked(name: &str) -> Result<PathBuf, Error> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let workspace = workspace
        .canonicalize()
        .map_err(Error::file("the workspace"))?;
    let root = workspace.join("target/distributions").join(name);
    let script = workspace.join("scripts/distribution.sh");
    system::call(&[&script.to_string_lossy(), name, &root.to_string_lossy()])?;
    Ok(root)
}

/// A machine that runs programs of another distribution.
#[derive(Debug)]
pub struct Inside<'a> {
    distribution: &'a Distribution,
    namespace: &'a Namespace,
}

impl Machine for Inside<'_> {
    fn name(&self) -> &str {
        self.namespace.name()
    }

    fn address(&self) -> IpAddr {
        self.namespace.address()
    }

    fn address_v6(&self) -> IpAddr {
        self.namespace.address_v6()
    }

    fn start(&self, argv: &[&str]) -> Result<Box<dyn Job + '_>, Error> {
        let mut command = Command::new("ip");
        command.args([
            "netns",
            "exec",
            self.namespace.netns(),
            "sh",
            "-c",
            ENTER,
            "enter",
        ]);
        command
            .arg(&self.distribution.root)
            .arg(&self.distribution.shared);
        command.args(&self.distribution.command).args(argv);
        // Without this host's environment. OpenMPI, with which UCX's programs are built, needs HOME.
        command.env_clear().env("PATH", PATH).env("HOME", "/root");
        Ok(Box::new(Process::start(command)?))
    }

    fn tcp_sockets(&self) -> Result<String, Error> {
        self.namespace.tcp_sockets()
    }

    fn awaits_requests(&self) -> Result<bool, Error> {
        let enter = ["netns", "exec", self.namespace.netns()];
        // A socket is in the table of its namespace, whichever root its program has.
        let listeners = Rockery::built();
        let listeners = listeners.path().to_string_lossy();
        let mut argv = vec!["ip"];
        argv.extend(enter);
        argv.extend([&*listeners, "listeners"]);
        Ok(!system::call(&argv)?.is_empty())
    }

    fn device(&self) -> Option<(&str, u32)> {
        None
    }
}

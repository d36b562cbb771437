//! Two functions of one adapter in a lab: what goes from one to the other crosses the switch inside it.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use command::runtime;

use crate::place::{Folder, Owned};

/// The hosts of the functions.
pub(super) const HOSTS: [&str; 2] = ["serverv0", "serverv1"];

/// The least MTU with which packets have 4096 bytes of payload, and not 1024. The interfaces of a lab then
/// have an MTU of 9000, and not of 1500.
const LARGE_PACKETS: u32 = 4200;

/// A lab that runs.
#[derive(Debug)]
pub(super) struct Functions {
    lab: Owned,
    name: String,
    binary: PathBuf,
    _folder: Folder,
}

/// The fabric file: links and slot as fast as they can be, so that the machine sets the rate.
fn file(mtu: u32) -> String {
    let payload = if mtu < LARGE_PACKETS { 1024 } else { 4096 };
    format!(
        r#"title = "Two functions of one adapter"
[[host]]
name = "server"
[[switch]]
name = "sw"
[[link]]
between = ["server", "sw"]
rate = "800Gb/s"
length = "3m"
[nic.default]
mtu = {payload}
pcie = {{ generation = 6, width = 16 }}
[nic.default.functions]
count = 2
[[workload]]                  # programs take its place
from = ["{}"]
to = ["{}"]
message = "64KiB"
messages = 1
"#,
        HOSTS[0], HOSTS[1]
    )
}

impl Functions {
    /// Starts the lab.
    pub(super) fn new(rockery: &Path, mtu: u32) -> Result<Self, String> {
        let binary = rockery.to_owned();
        let name = format!("paths-{}", std::process::id());
        let folder = Folder(runtime::subfolder(&name).map_err(|error| error.to_string())?);
        let path = folder.0.join("functions.toml");
        std::fs::write(&path, file(mtu)).map_err(|error| error.to_string())?;
        let mut command = Command::new(&binary);
        command
            .args(["lab", "up", "--json", "--name", &name])
            .arg(&path);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut lab = Owned(command.spawn().map_err(|error| error.to_string())?);
        let mut line = String::new();
        if let Some(out) = lab.0.stdout.take() {
            BufReader::new(out)
                .read_line(&mut line)
                .map_err(|error| error.to_string())?;
        }
        if line.is_empty() {
            let mut said = String::new();
            if let Some(mut error) = lab.0.stderr.take() {
                error
                    .read_to_string(&mut said)
                    .map_err(|error| error.to_string())?;
            }
            return Err(said.trim().to_owned());
        }
        Ok(Self {
            lab,
            name,
            binary,
            _folder: folder,
        })
    }

    /// A program in the host of a function.
    pub(super) fn enter(&self, number: usize) -> Command {
        let mut command = Command::new(&self.binary);
        command.args(["lab", "exec", "--lab", &self.name, HOSTS[number], "--"]);
        command
    }

    /// The `/proc` folder of the process that is the adapter.
    pub(super) fn process(&self) -> PathBuf {
        Path::new("/proc").join(self.lab.0.id().to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_fit_the_mtu_and_the_file_is_one() {
        for (mtu, payload) in [(1500, 1024), (9000, 4096)] {
            let text = file(mtu);
            assert!(text.contains(&format!("mtu = {payload}\n")), "{text}");
            let files = &mut |name: &str| Err(name.to_owned());
            let document =
                fabric_file::Document::read("file", &text, files).expect("a fabric file");
            let plan = ::lab::Plan::new("paths".to_owned(), document, files).expect("a lab");
            assert!(
                HOSTS
                    .iter()
                    .all(|name| plan.hosts.iter().any(|host| host.name == *name)),
                "{text}"
            );
        }
    }
}

//! Hosts of a lab as machines.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::Command;

use tempfile::NamedTempFile;

use crate::namespace::Process;
use crate::system;
use crate::{Error, Job, Machine, Namespace, Rockery};

/// A lab with two hosts, in a network namespace of its own. It ends with this value.
#[derive(Debug)]
pub struct Lab {
    namespace: Namespace,
    rockery: Rockery,
    _file: NamedTempFile,
}

impl Lab {
    /// Starts the lab of a fabric file, whose first two hosts are called `h0` and `h1`.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn new(rockery: &Rockery, fabric: &str) -> Result<Self, Error> {
        let file = NamedTempFile::with_suffix(".toml").map_err(Error::file("a temporary file"))?;
        std::fs::write(file.path(), fabric).map_err(Error::file(file.path()))?;
        let lab = Self {
            namespace: Namespace::alone()?,
            rockery: rockery.clone(),
            _file: file,
        };
        let path = lab._file.path().display();
        lab.namespace.call(&format!(
            "{} lab up -d --name bench {path}",
            rockery.path().display()
        ))?;
        Ok(lab)
    }

    /// A host by its number.
    pub fn host(&self, number: u8) -> LabHost<'_> {
        LabHost {
            lab: self,
            number,
            name: format!("h{number}"),
        }
    }
}

/// A host of a lab.
#[derive(Debug)]
pub struct LabHost<'a> {
    lab: &'a Lab,
    number: u8,
    name: String,
}

impl LabHost<'_> {
    fn command(&self) -> Vec<String> {
        let binary = self.lab.rockery.path().display().to_string();
        let words = [
            "ip",
            "netns",
            "exec",
            self.lab.namespace.netns(),
            &binary,
            "lab",
            "exec",
            &self.name,
            "--",
        ];
        words.map(str::to_owned).to_vec()
    }

    fn call(&self, argv: &[&str]) -> Result<String, Error> {
        let own = self.command();
        system::call(
            &own.iter()
                .map(String::as_str)
                .chain(argv.iter().copied())
                .collect::<Vec<_>>(),
        )
    }
}

impl Machine for LabHost<'_> {
    fn name(&self) -> &str {
        &self.name
    }

    fn address(&self) -> IpAddr {
        Ipv4Addr::new(10, 0, 0, self.number + 1).into()
    }

    fn address_v6(&self) -> IpAddr {
        Ipv6Addr::new(0xfd6c, 0x6162, 0, 0, 0, 0, 0, u16::from(self.number) + 1).into()
    }

    fn start(&self, argv: &[&str]) -> Result<Box<dyn Job + '_>, Error> {
        let own = self.command();
        let mut command = Command::new(&own[0]);
        command.args(&own[1..]).args(argv);
        Ok(Box::new(Process::start(command)?))
    }

    fn tcp_sockets(&self) -> Result<String, Error> {
        self.call(&["cat", "/proc/net/tcp", "/proc/net/tcp6"])
    }

    fn awaits_requests(&self) -> Result<bool, Error> {
        let binary = self.lab.rockery.path().display().to_string();
        Ok(!self.call(&[&binary, "listeners"])?.is_empty())
    }

    fn device(&self) -> Option<(&str, u32)> {
        None
    }
}

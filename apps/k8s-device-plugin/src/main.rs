//! `rockery-device-plugin`: a Kubernetes device plugin for the kubelet's interface `v1beta1`, which is gRPC
//! over Unix sockets in one folder. `rockery device-plugin` starts this program.
//!
//! The plugin listens at its own socket and registers at the kubelet's. The kubelet then calls the plugin:
//! once for the list of devices, which stays open for changes, and for each container that requests some of
//! them. A kubelet that starts again has no registrations, and creates its socket anew, by which the plugin
//! detects it.
//!
//! Reading order: [`plugin`], [`message`], [`service`], [`registration`], [`server`].

#![forbid(unsafe_code)]
#![deny(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a closed standard error must not end the plugin"
)]

mod message;
mod plugin;
mod registration;
mod server;
mod service;

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;
use command::device_plugin::DevicePlugin;
use command::printable;

use plugin::{Allocation, Mount, Plugin};

/// The exit status of an error, as that of `rockery`.
const FAILED: u8 = 125;

/// Offers RDMA as a resource of this Kubernetes node, to the kubelet (device plugin API v1beta1).
///
/// `rockery device-plugin` starts this program with the contents of a container's allocation.
#[derive(Debug, Parser)]
#[command(name = "rockery-device-plugin", version)]
struct Args {
    /// A file or folder of the node, and its path in containers, where it is read-only; once for each.
    #[arg(long, num_args = 2, value_names = ["HOST", "CONTAINER"], action = clap::ArgAction::Append)]
    mount: Vec<String>,
    /// A variable of containers and its value; once for each.
    #[arg(long, num_args = 2, value_names = ["NAME", "VALUE"], action = clap::ArgAction::Append)]
    env: Vec<String>,
    /// Name of the CDI device that containers get with --cdi.
    #[arg(long, value_name = "NAME")]
    cdi_device: Option<String>,
    #[command(flatten)]
    plugin: DevicePlugin,
}

impl Args {
    /// What each container gets.
    fn allocation(&self) -> Result<Allocation, String> {
        let pairs = |words: &[String]| -> Vec<(String, String)> {
            let pairs = words.chunks_exact(2);
            pairs
                .map(|pair| (pair[0].clone(), pair[1].clone()))
                .collect()
        };
        if self.plugin.cdi {
            let name = self.cdi_device.clone();
            return name
                .map(Allocation::Cdi)
                .ok_or_else(|| "--cdi needs --cdi-device NAME".to_owned());
        }
        if self.mount.is_empty() {
            return Err(
                "containers would get nothing: give --mount HOST CONTAINER, or start this program by \
                 `rockery device-plugin`"
                    .to_owned(),
            );
        }
        let mounts = pairs(&self.mount).into_iter();
        Ok(Allocation::Edits {
            mounts: mounts
                .map(|(host, container)| Mount { host, container })
                .collect(),
            environment: pairs(&self.env),
        })
    }

    /// Serves until the process ends.
    fn serve(self) -> Result<(), String> {
        let allocation = self.allocation()?;
        let hosts: Vec<String> = self.mount.iter().step_by(2).cloned().collect();
        let plugin = Plugin {
            resource: self.plugin.resource,
            count: self.plugin.count,
            allocation,
            folder: self.plugin.folder,
            is_healthy: Box::new(move || hosts.iter().all(|path| Path::new(path).exists())),
        };
        server::serve(plugin, |notice| note(&notice.to_string())).map_err(|error| error.to_string())
    }
}

/// Writes a line to standard error. If that is closed, the line is lost: there is no other place for it. The
/// name of the command that users call is before it.
fn note(text: &str) {
    _ = writeln!(io::stderr().lock(), "rockery: {}", printable::lines(text));
}

fn main() -> ExitCode {
    match Args::parse().serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            note(&reason);
            ExitCode::from(FAILED)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn arguments_tell_what_a_container_gets() {
        let with = |words: &str| {
            let words = ["rockery-device-plugin"]
                .into_iter()
                .chain(words.split(' '));
            Args::try_parse_from(words).unwrap().allocation()
        };
        let mounts = "--mount /usr/lib/rockery /opt/lib --mount /usr/bin/rockery /opt/bin";
        let edits = with(&format!("{mounts} --env LD_PRELOAD /opt/a.so --count 3"));
        let mount = |host: &str, container: &str| Mount {
            host: host.to_owned(),
            container: container.to_owned(),
        };
        let expected = Allocation::Edits {
            mounts: vec![
                mount("/usr/lib/rockery", "/opt/lib"),
                mount("/usr/bin/rockery", "/opt/bin"),
            ],
            environment: vec![("LD_PRELOAD".to_owned(), "/opt/a.so".to_owned())],
        };
        assert_eq!(edits, Ok(expected));
        let device = with(&format!("{mounts} --cdi --cdi-device rockery.dev/rdma=all"));
        assert_eq!(
            device,
            Ok(Allocation::Cdi("rockery.dev/rdma=all".to_owned()))
        );
        assert!(
            with(&format!("{mounts} --cdi"))
                .unwrap_err()
                .contains("--cdi-device")
        );
        assert!(
            with("--count 3")
                .unwrap_err()
                .contains("rockery device-plugin")
        );
    }
}

//! The command line. Its help is the first documentation that anyone reads.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Parser, Subcommand};

const EXAMPLES: &str = "\
Examples:
  What RDMA programs see on this machine:
    rockery run -- ibv_devices
    rockery run -- ibv_devinfo -v

  Bandwidth between two hosts, with the tool that everyone uses:
    host1$ rockery run -- ib_write_bw
    host2$ rockery run -- ib_write_bw host1

  The same, with a capture that Wireshark opens:
    rockery run --pcap write.pcap -- ib_write_bw host1

  By hand, for a program that something else starts:
    eval \"$(rockery env)\"";

/// Runs unmodified RDMA programs on a RoCEv2 device made of software: no RDMA NIC, no kernel module, no root.
#[derive(Debug, Parser)]
#[command(name = "rockery", version, after_help = EXAMPLES)]
pub(crate) struct Args {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What rockery does.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a program that uses RDMA, on rockery's devices.
    ///
    /// The program finds rockery's libibverbs.so.1 where it looks for the distribution's, and one device for
    /// each network interface that is up. It replaces this process: signals and its exit status are its own.
    #[command(after_help = EXAMPLES)]
    Run(Run),
    /// Print the variables that `run` sets, for a shell to read.
    ///
    /// Use it where rockery cannot start the program itself: eval "$(rockery env)"
    Env(Settings),
    /// Print the completions of a shell.
    ///
    /// For bash: rockery completions bash >~/.local/share/bash-completion/completions/rockery
    Completions {
        /// Which shell.
        shell: clap_complete::Shell,
    },
}

/// How the devices are to be.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Settings {
    /// Only this device: a network interface's name (eth0), or the device's (rk_eth0). Default: all.
    #[arg(long, value_name = "DEVICE")]
    pub(crate) device: Option<String>,
    /// Write what the devices send and receive to this file. Wireshark opens it.
    #[arg(long, value_name = "FILE")]
    pub(crate) pcap: Option<PathBuf>,
    /// Make the network bad, on purpose: drop=0.01,duplicate=0.01,reorder=0.05,corrupt=0.001,seed=1.
    #[arg(long, value_name = "SPEC")]
    pub(crate) faults: Option<String>,
    /// Load the libraries with LD_PRELOAD as well: for programs that bring a library path of their own.
    #[arg(long)]
    pub(crate) preload: bool,
}

/// A program, and how the devices are to be for it.
#[derive(Debug, clap::Args)]
pub(crate) struct Run {
    /// How the devices are to be.
    #[command(flatten)]
    pub(crate) settings: Settings,
    /// The program and its arguments, behind `--`.
    #[arg(required = true, last = true, value_name = "PROGRAM ARGUMENTS")]
    pub(crate) program: Vec<OsString>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_does_not_contradict_itself() {
        Args::command().debug_assert();
    }

    #[test]
    fn what_stands_behind_two_dashes_is_the_programs() {
        let args =
            Args::parse_from(["rockery", "run", "--device", "eth0", "--", "ib_write_bw", "--device", "x"]);
        let Command::Run(run) = args.command else { panic!("not run") };
        assert_eq!(run.settings.device.as_deref(), Some("eth0"));
        assert_eq!(run.program, ["ib_write_bw", "--device", "x"]);
    }
}

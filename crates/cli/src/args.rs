//! The command line. Its help is the first documentation that anyone reads.

use std::ffi::OsString;

use clap::{Parser, Subcommand};

const EXAMPLES: &str = "\
Examples:
  What RDMA programs see on this machine:
    rockery run -- ibv_devices
    rockery run -- ibv_devinfo -v

  Bandwidth between two hosts, with the tool that everyone uses:
    host1$ rockery run -- ib_write_bw
    host2$ rockery run -- ib_write_bw host1

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

/// How the libraries get into a program.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Settings {
    /// Load the libraries with LD_PRELOAD as well: for programs that bring a library path of their own.
    #[arg(long)]
    pub(crate) preload: bool,
}

/// A program, and how the libraries get into it.
#[derive(Debug, clap::Args)]
pub(crate) struct Run {
    /// How the libraries get into a program.
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
        let args = Args::parse_from(["rockery", "run", "--", "ib_write_bw", "--preload"]);
        let Command::Run(run) = args.command else { panic!("not run") };
        assert!(!run.settings.preload);
        assert_eq!(run.program, ["ib_write_bw", "--preload"]);
    }
}

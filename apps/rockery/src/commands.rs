//! The command line. Its help is the first documentation that anyone reads.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

use crate::args::{Devices, Doctor, Run, Settings, Sim};
use crate::plan::Plan;

const EXAMPLES: &str = "\
Examples:
  What RDMA programs see on this machine:
    rockery run -- ibv_devices
    rockery run -- ibv_devinfo -v

  Bandwidth between two hosts, with perftest:
    host1$ rockery run -- ib_write_bw
    host2$ rockery run -- ib_write_bw host1

  What crosses the wire, for Wireshark:
    host2$ rockery run --pcap write.pcapng -- ib_write_bw host1

  Counters and queue pairs of every open device, twice a second:
    rockery devices --watch 0.5

  Programs that use only sockets, over RDMA:
    host1$ rockery run --sockets -- iperf3 -s
    host2$ rockery run --sockets -- iperf3 -c host1

  For a program that another program starts:
    eval \"$(rockery env)\"";

const SIM_EXAMPLES: &str = "\
Examples:
  What a switch's configuration does to storage traffic before it is live:
    rockery sim examples/crs504/lab.toml

  The same without ECN, as a page with plots:
    rockery sim examples/crs504/lab.toml --set nic.default.ecn=false --html report.html

  The same for a pipeline, which fails if data would be lost:
    rockery sim examples/crs504/lab.toml --set nic.default.ecn=false --fail-on broken

  What crosses a port, pause frames included, for Wireshark:
    rockery sim examples/incast.toml --pcap h0=incast.pcap

  Every run of a sweep, on all cores, as one table:
    rockery sim examples/spraying/recovery.toml --csv recovery.csv";

const LAB_EXAMPLES: &str = "\
Examples:
  Bandwidth between two hosts of a file, through its switch:
    rockery lab up -d examples/crs504/lab.toml
    rockery lab exec server -- ib_write_bw &
    rockery lab exec sender0 -- ib_write_bw server
    rockery lab down";

const DOCTOR_EXAMPLES: &str = "\
Examples:
  rockery doctor
  rockery doctor snapshot >server.txt
  rockery doctor --host server.txt --host client.txt --switch export.rsc
  rockery doctor probe server client
  rockery doctor probe --listen --load 2Gb/s --from monitor      # on server and client
  rockery doctor probe server client --load 2Gb/s                # on monitor
  rockery doctor probe --mesh --json a b c >$(hostname).json     # on a, b and c at the same time
  rockery doctor matrix a.json b.json c.json
  rockery doctor lldp lldp.pcap
  rockery doctor lldp --interface eth0";

const PLAN_EXAMPLES: &str = "\
Examples:
  rockery plan lab.toml --for crs504=routeros@7.17 --out planned
  rockery plan lab.toml --for crs504=routeros@7.17 --diff export.rsc
  rockery plan lab.toml --for server=mlnx@5.8 --for crs504=sonic@202311";

/// Runs unmodified RDMA programs on a RoCEv2 device made of software: no RDMA NIC, no kernel module, no root.
#[derive(Debug, Parser)]
#[command(name = "rockery", version, after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The command to run.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Commands of rockery.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a program that uses RDMA, on rockery's devices.
    ///
    /// The program finds rockery's libibverbs.so.1 where it looks for the distribution's, and one device for
    /// each network interface that is up. It replaces this process: signals and its exit status are its own.
    #[command(after_help = EXAMPLES)]
    Run(Run),
    /// List and change the faults of a program that was started with --fault.
    ///
    /// Start it with --fault none if it has none yet. Run this in the program's network namespace, as its
    /// user or as root (docs/faults.md).
    #[command(subcommand)]
    Fault(crate::fault_control::Fault),
    /// Print the trace of a program that was started with --trace: its verbs calls, completions and events.
    ///
    /// As text, as JSON, for Perfetto, or as a ladder diagram of both ends (docs/trace.md).
    Trace(crate::trace::Show),
    /// Find the usual mistakes in the trace of a program, and name the calls; or explain a rule of doctor.
    ///
    /// Exit status: 0 if there is no mistake, 1 if there are some (docs/trace.md). `rockery explain RULE`
    /// prints the section of a rule (docs/reference/rules.md).
    Explain(crate::trace::Explain),
    /// List the devices of this host, and the programs that have them open.
    ///
    /// A device is named after its network interface. Programs of other users are not shown, except to root.
    Devices(Devices),
    /// List the ports on which programs listen by RDMA-CM.
    ///
    /// They are not in the kernel's tables (ss, netstat).
    Listeners {
        /// Print the listeners as one JSON document.
        #[arg(long)]
        json: bool,
    },
    /// Serve storage as an NVMe-oF target, and reconfigure a running target.
    ///
    /// Hosts connect with the kernel's NVMe host: nvme connect -t tcp -a ADDRESS -s 4420 -n NQN
    #[command(subcommand)]
    Serve(Box<crate::serve::Serve>),
    /// Show commands, bytes and latencies of a running target, by namespace and queue.
    ///
    /// Until Ctrl-C: on a terminal each page replaces the last one, elsewhere pages follow each other.
    Top(crate::top::Top),
    /// Use and measure NVMe/TCP and NVMe/RDMA targets, without privileges.
    #[command(subcommand)]
    Nvme(crate::nvme::HostCommand),
    /// Connect SMB Direct with SMB over TCP: Samba becomes an SMB Direct server, any program a client.
    #[command(subcommand)]
    Smb(crate::smb::Smb),
    /// Repeat published comparisons on this machine, with tables, JSON and a page of plots.
    ///
    /// The program rockery-bench, which is part of every package, carries them out.
    #[command(subcommand)]
    Bench(command::bench::Bench),
    /// Print the variables that `run` sets, for a shell to read.
    ///
    /// For programs that rockery cannot start itself: eval "$(rockery env)"
    Env(Settings),
    /// Run a network in virtual time, from a fabric file.
    ///
    /// The devices are those that `run` gives programs; the file describes switches, links and workloads
    /// (docs/reference/fabric-file.md). The same file and seed give the same results.
    #[command(after_help = SIM_EXAMPLES)]
    Sim(Sim),
    /// Run a fabric file live: unmodified programs on its hosts, its switches and links between them.
    ///
    /// Everything runs in one process of an ordinary user, on this machine. Nothing is left of a lab, however
    /// it ends.
    #[command(subcommand, after_help = LAB_EXAMPLES)]
    Lab(crate::lab::Lab),
    /// Turn outputs of InfiniBand tools into fabric files, and fabric files into what such tools read.
    #[command(subcommand)]
    Ib(crate::ib::Ib),
    /// Make a fabric file of files of other simulators, of a training job's traces, or of its log.
    ///
    /// What is left out or assumed is named on standard error (docs/imports.md).
    #[command(subcommand)]
    Import(crate::import::Import),
    /// Write the configurations of real switches and hosts that a fabric file describes.
    ///
    /// Nothing is applied to a device. Without --out and --diff, configurations are printed (docs/plan.md).
    #[command(after_help = PLAN_EXAMPLES)]
    Plan(Plan),
    /// Show and change the functions (SR-IOV) of a fabric file's adapters, in the words of `ip link`.
    #[command(subcommand)]
    Vf(crate::vf::Vf),
    /// Find what is wrong with RDMA on this host, on other hosts, and on switches.
    ///
    /// Reads facts, changes nothing, and needs no root. A fact that was not seen is unknown, and no rule
    /// judges it. Exit status: 0 nothing is wrong, 1 findings, 2 something could not be read
    /// (docs/doctor.md).
    #[command(after_help = DOCTOR_EXAMPLES)]
    Doctor(Doctor),
    /// Say whether RDMA programs run on this machine, and what else on it would interfere.
    ///
    /// For the log of a CI job: it carries out an RDMA WRITE, looks at what the kernel allows, and names
    /// other RDMA devices that programs would use in place of rockery's. Takes less than a second, and
    /// changes nothing. Exit status: 0 if RDMA programs run, 1 if not (docs/ci.md).
    Check(crate::check::Check),
    /// The transfer of `rockery check`, in a program of `rockery run`.
    #[command(hide = true)]
    CheckTrial,
    /// Serve the playground's page on loopback: fabric files in a browser, and the counters of devices.
    ///
    /// Runs have the speed of this machine. The page works offline, and its links contain the file
    /// (docs/playground.md).
    Web(crate::web::Web),
    /// One run for the page of `rockery web`: a request on standard input, its answer on standard output.
    #[command(hide = true)]
    WebRun {
        /// Bytes of memory that the run may take.
        memory: u64,
    },
    /// Print the Container Device Interface (CDI) specification of the libraries, for containers.
    ///
    /// podman run --device rockery.dev/rdma=all mounts the libraries and sets the variables that `run` sets:
    /// no device node, no capability, no privileged container (docs/kubernetes.md).
    Cdi(crate::cdi::Cdi),
    /// Offer RDMA as a resource of this Kubernetes node, to the kubelet (device plugin API v1beta1).
    ///
    /// Containers that request it get the libraries and variables of `rockery cdi`. Runs until it is ended,
    /// and registers again when the kubelet starts again (docs/kubernetes.md). The program
    /// rockery-device-plugin, which is part of every package, carries it out.
    DevicePlugin(command::device_plugin::DevicePlugin),
    /// Print the completions of a shell.
    ///
    /// For bash: rockery completions bash >~/.local/share/bash-completion/completions/rockery
    Completions {
        /// Name of the shell: bash, elvish, fish, powershell or zsh.
        shell: clap_complete::Shell,
    },
    /// Write the manual pages, one for each command.
    #[command(hide = true)]
    Man {
        /// Folder for the pages, such as /usr/local/share/man/man1.
        folder: PathBuf,
    },
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
    fn arguments_after_two_dashes_are_the_programs() {
        let args = Args::parse_from(["rockery", "run", "--", "ib_write_bw", "--no-preload"]);
        let Command::Run(run) = args.command else {
            panic!("not run")
        };
        assert!(!run.settings.no_preload);
        assert_eq!(run.program, ["ib_write_bw", "--no-preload"]);
    }
}

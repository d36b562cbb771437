//! `rockery`: runs unmodified RDMA programs on a RoCEv2 device made of software.

#![deny(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "`output` decides what happens when standard output or standard error is closed"
)]

mod args;
mod cdi;
mod check;
mod commands;
mod companion;
mod control;
mod credentials;
mod device_plugin;
mod devices;
mod doctor;
mod documents;
mod elf;
mod ending;
mod environment;
mod error;
mod export;
mod fault;
mod fault_control;
mod fault_rules;
mod finding;
mod gen_key;
mod ib;
mod identifiers;
mod import;
mod lab;
mod libraries;
mod listeners;
mod log;
mod nvme;
mod output;
mod packages;
mod plan;
mod probe;
mod program;
mod rules;
mod run;
mod sanitizers;
mod serve;
mod server_report;
mod sim;
mod smb;
mod sys;
mod target;
mod top;
mod trace;
mod trace_limit;
mod value_or_file;
mod vf;
mod view;
mod web;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use command::{printable, runtime};

use commands::{Args, Command};
use error::Error;

fn main() -> ExitCode {
    match act(Args::parse()) {
        Ok(status) => status,
        Err(Error::OutputClosed) => sys::end_by_a_broken_pipe(),
        Err(error) => {
            // The message may contain text of a peer or a target.
            output::note!("rockery: {}", printable::lines(&error.to_string()));
            ExitCode::from(error.status())
        }
    }
}

fn act(args: Args) -> Result<ExitCode, Error> {
    match args.command {
        Command::Run(what) => match run::replace_this_process(&what)? {},
        Command::Fault(what) => fault_control::act(&what),
        Command::Devices(what) => devices::show(&what),
        Command::Listeners { json } => listeners::show(json),
        Command::Nvme(what) => nvme::act(what),
        Command::Smb(what) => smb::act(what),
        Command::Serve(what) => serve::act(*what),
        // The arguments are right: the programs read them again.
        Command::Bench(_) => {
            let own = ["--rockery".into(), companion::own_path()?.into_os_string()];
            match companion::BENCH.replace_this_process(&own)? {}
        }
        Command::Top(what) => top::show(&what),
        Command::Trace(what) => trace::show(&what),
        Command::Explain(what) => return trace::explain(&what),
        Command::Sim(what) => return sim::act(&what),
        Command::Lab(what) => return lab::act(&what),
        Command::Ib(what) => ib::act(&what),
        Command::Import(what) => import::act(&what),
        Command::Plan(what) => plan::act(&what),
        Command::Vf(what) => vf::act(&what),
        Command::Doctor(what) => doctor::act(&what),
        Command::Check(what) => return check::act(&what),
        Command::CheckTrial => check::carry_out_trial(),
        Command::Web(what) => web::serve(&what),
        Command::WebRun { memory } => web::one_run(memory),
        Command::Cdi(what) => cdi::act(&what),
        Command::DevicePlugin(_) => match device_plugin::replace_this_process()? {},
        Command::Env(settings) => environment::print(&settings),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Args::command(), "rockery", &mut script);
            output::bytes(&script)
        }
        Command::Man { folder } => {
            clap_mangen::generate_to(Args::command(), &folder).map_err(Error::file(&folder))
        }
    }
    .map(|()| ExitCode::SUCCESS)
}

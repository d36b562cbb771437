//! `rockery`: runs unmodified RDMA programs on a RoCEv2 device made of software.

mod args;
mod bench;
mod devices;
mod elf;
mod environment;
mod error;
mod export;
mod html;
mod kept;
mod libraries;
mod listeners;
mod log;
mod nvme;
mod program;
mod proofs;
mod run;
mod serve;
mod sim;
mod sys;
mod top;
mod view;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use args::{Args, Command};
use error::Error;

fn main() -> ExitCode {
    match act(Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rockery: {error}");
            ExitCode::from(error.status())
        }
    }
}

fn act(args: Args) -> Result<(), Error> {
    match args.command {
        Command::Run(what) => match run::replace_this_process(&what)? {},
        Command::Devices(what) => devices::show(&what),
        Command::Listeners { json } => listeners::show(json),
        Command::Nvme(what) => nvme::act(what),
        Command::Serve(what) => serve::act(*what),
        Command::Bench(what) => bench::act(&what),
        Command::Top(what) => top::show(&what),
        Command::Sim(what) => sim::act(&what),
        Command::Env(settings) => environment::print(&settings),
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Args::command(), "rockery", &mut std::io::stdout());
            Ok(())
        }
    }
}

//! `rockery lab run`: the workloads of a fabric file, live, and beside them the simulation of the same file.

use std::path::PathBuf;
use std::process::ExitCode;

use ::lab::Numbers;
use ::lab::traffic::{LiveFlow, Moves, Said, Told};
use ::lab::{Client, Measured, Outcome, Plan};
use ::sim::experiment::Experiment;
use ::sim::report::{Report, table};
use ::sim::world::{Flow, Forgery, Transfer};
use fabric::Time;

use super::part::Part;
use super::{SLOW_MAX, compare, refused};
use crate::{Error, output};

/// The slowdown at which lateness is measured first, and how long, in nanoseconds of the lab's clock.
const PROBE_SLOW: u32 = 256;
const PROBE_NS: u64 = 200_000;
/// Runs after which the search for a slowdown ends, valid or not.
const ATTEMPTS: usize = 4;
/// Live flows at most: each has two queue pairs, and memory for its messages.
const FLOWS_MAX: usize = 1024;
/// Bytes of messages that all flows have on their way at most.
const BYTES_MAX: u64 = 4 << 30;
/// From the last connection until the run begins, in nanoseconds of the machine: the time within which all
/// hosts get the command.
const LEAD_NS: u64 = 500_000_000;

/// The slowdown of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Slow {
    /// The least at which the run is valid.
    Auto,
    /// The factor that the command line gives.
    Factor(u32),
}

/// Takes `auto` or a number.
pub(super) fn slow(text: &str) -> Result<Slow, String> {
    if text == "auto" {
        return Ok(Slow::Auto);
    }
    let factor = text
        .parse()
        .ok()
        .filter(|factor| (1..=SLOW_MAX).contains(factor));
    factor
        .map(Slow::Factor)
        .ok_or_else(|| format!("write auto, or a factor from 1 to {SLOW_MAX}"))
}

/// The options of `rockery lab run`.
#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    /// Fabric file (TOML). Its workloads run in the hosts that it calls live, or in all hosts.
    pub(super) file: PathBuf,
    /// Simulate the file too, and show the differences.
    #[arg(long)]
    compare: bool,
    /// By what factor the hosts' clocks run slower, 1 to 10000; auto looks for the least at which the run is
    /// valid.
    #[arg(long, value_name = "FACTOR", default_value = "auto", value_parser = slow)]
    slow: Slow,
    /// Value that replaces the file's, as `--set` of `rockery sim`. May be repeated.
    #[arg(long, value_name = "PATH=VALUE", value_parser = crate::args::setting)]
    pub(super) set: Vec<(String, String)>,
    /// Print one JSON document.
    #[arg(long, conflicts_with = "html")]
    json: bool,
    /// Write the report as an HTML page.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// Runs the workloads of a file. The status is 1 where the run was not valid.
///
/// # Errors
/// When the file has nothing that runs live, or the lab cannot run it.
pub(super) fn act(what: &RunArgs, plan: &Plan) -> Result<ExitCode, Error> {
    let flows = live_flows(plan)?;
    if what.compare {
        output::note!("rockery: simulating the file");
    }
    let simulated = what.compare.then(|| simulate(&plan.whole)).transpose()?;
    let measured = match what.slow {
        Slow::Factor(factor) => {
            output::note!("rockery: running {factor} times slower");
            attempt(plan, &flows, factor, None)?
        }
        Slow::Auto => search(plan, &flows)?,
    };
    if what.json {
        output::json(compare::json(&measured, simulated.as_ref()))?;
    } else if let Some(path) = &what.html {
        let page = compare::page(&plan.whole, &measured, simulated.as_ref());
        std::fs::write(path, page).map_err(Error::file(path))?;
    } else {
        output::print(table(&measured.report))?;
        output::print(format_args!(
            "\n{}",
            compare::text(&measured, simulated.as_ref())
        ))?;
    }
    if measured.valid {
        return Ok(ExitCode::SUCCESS);
    }
    output::note!(
        "rockery: packets were handled {} ns late (99.9 %), and the shortest link takes {} ns: latencies and \
         queues are wrong by about as much, and goodput is too low: {}",
        measured.lateness.p999_ns,
        measured.shortest_link_ns,
        super::advice(u64::from(next(&measured)), measured.slowdown)
    );
    Ok(ExitCode::FAILURE)
}

fn simulate(experiment: &Experiment) -> Result<Report, Error> {
    let ran = experiment
        .run(&mut |_| true)
        .map_err(::lab::LabError::from)?;
    Ok(Report::new(experiment, &ran.results, ran.partial))
}

/// The flows between live hosts, with their numbers.
fn live_flows(plan: &Plan) -> Result<Vec<(u32, Flow)>, Error> {
    let name = |host: u32| &plan.whole.network.hosts[host as usize].name;
    let mut found = Vec::new();
    for (number, flow) in (0..).zip(&plan.whole.scenario.flows) {
        match (plan.is_live(flow.from), plan.is_live(flow.to)) {
            (false, false) => continue,
            (true, true) => {}
            _ => {
                let (from, to) = (name(flow.from), name(flow.to));
                return Err(refused(format!(
                    "{from} sends to {to}, and one of them is simulated: set `live = true` for both or none"
                )));
            }
        }
        if moves(flow.operation).is_none() || flow.trace.is_some() || flow.forgery != Forgery::None
        {
            let workload = plan
                .whole
                .workloads
                .get(flow.workload as usize)
                .map_or("", String::as_str);
            return Err(refused(format!(
                "workload {workload} cannot run live: live hosts move data by WRITE, SEND and READ, without \
                 replays and forged addresses"
            )));
        }
        found.push((number, *flow));
    }
    let bytes: u64 = found
        .iter()
        .map(|(_, flow)| u64::from(flow.message_bytes) * u64::from(flow.depth))
        .sum();
    match found.len() {
        0 => Err(refused(
            "no workload has both its hosts live: set `live = true` for them".to_owned(),
        )),
        count if count > FLOWS_MAX => Err(refused(format!(
            "{count} queue pairs run live, where {FLOWS_MAX} are the most"
        ))),
        _ if bytes > BYTES_MAX => Err(refused(format!(
            "{bytes} bytes would be on their way: lower depth, message or qps"
        ))),
        _ => Ok(found),
    }
}

fn moves(operation: Transfer) -> Option<Moves> {
    match operation {
        Transfer::Write => Some(Moves::Write),
        Transfer::Send => Some(Moves::Send),
        Transfer::Read => Some(Moves::Read),
        _ => None,
    }
}

/// The slowdown at which the lateness of a run would have been within bounds, with room.
fn next(measured: &Measured) -> u32 {
    let machine_ns = measured.lateness.p999_ns.saturating_mul(measured.slowdown);
    let factor = machine_ns.saturating_mul(3) / (2 * measured.shortest_link_ns.max(1)) + 1;
    factor.clamp(1, u64::from(SLOW_MAX)) as u32
}

/// Looks for a slowdown at which the run is valid: by a short one first, then by runs that are slower each.
fn search(plan: &Plan, flows: &[(u32, Flow)]) -> Result<Measured, Error> {
    output::note!("rockery: measuring how late this machine is");
    let mut factor = next(&attempt(plan, flows, PROBE_SLOW, Some(PROBE_NS))?);
    let mut runs = 1;
    loop {
        output::note!("rockery: running {factor} times slower");
        let measured = attempt(plan, flows, factor, None)?;
        if measured.valid || factor == SLOW_MAX || runs == ATTEMPTS {
            return Ok(measured);
        }
        runs += 1;
        factor = next(&measured).max(factor.saturating_mul(2)).min(SLOW_MAX);
    }
}

/// One run, in a lab of its own. `most_ns`: how long at most.
fn attempt(
    plan: &Plan,
    flows: &[(u32, Flow)],
    factor: u32,
    most_ns: Option<u64>,
) -> Result<Measured, Error> {
    ::lab::run_detached(plan.clone(), factor)?;
    let client = Client::connect(Some(&plan.name))?;
    // Whatever ends this command ends the lab and its programs.
    client.own()?;
    let mut hosts = Host::all(plan, flows)?;
    for host in &mut hosts {
        host.expect_listening()?;
    }
    for host in &mut hosts {
        host.tell(&Told::Connect)?;
    }
    let mut numbers: Vec<(u32, u32, u32)> = Vec::new();
    for host in &mut hosts {
        let own = host.expect_connected()?;
        numbers.extend(
            own.into_iter()
                .map(|(flow, number)| (flow, host.number, number)),
        );
    }
    let of = |flow: u32, host: u32| {
        numbers
            .iter()
            .find(|one| (one.0, one.1) == (flow, host))
            .map(|one| one.2)
    };
    let pairs = flows.iter().map(|(number, flow)| {
        let (sender, receiver) = (of(*number, flow.from)?, of(*number, flow.to)?);
        Some(Numbers {
            flow: *number,
            sender,
            receiver,
        })
    });
    let pairs: Option<Vec<Numbers>> = pairs.collect();
    let pairs =
        pairs.ok_or_else(|| refused("a host did not connect all of its flows".to_owned()))?;
    let begin_ns = client.status()?.now_ns + LEAD_NS / u64::from(factor);
    let scenario = plan.whole.scenario.end;
    let lasts = (scenario != Time::NEVER).then(|| scenario.ns());
    let lasts = lasts.into_iter().chain(most_ns).min();
    let end_ns = lasts.map(|lasts| begin_ns + lasts);
    client.measure(&pairs, begin_ns, end_ns)?;
    for host in &mut hosts {
        host.tell(&Told::Begin { begin_ns, end_ns })?;
    }
    let mut outcomes = Vec::new();
    for host in &mut hosts {
        outcomes.extend(host.expect_done()?);
    }
    let measured = client.measured(&outcomes)?;
    drop(hosts);
    client.down()?;
    Ok(measured)
}

/// A host's part in the run, in a process there.
struct Host {
    number: u32,
    part: Part,
}

impl Host {
    /// Starts the parts of all hosts that have one.
    fn all(plan: &Plan, flows: &[(u32, Flow)]) -> Result<Vec<Self>, Error> {
        let mut hosts = Vec::new();
        for live in &plan.hosts {
            let end = |(number, flow): &(u32, Flow)| {
                let posts_at = if flow.operation == Transfer::Read {
                    flow.to
                } else {
                    flow.from
                };
                let other = if live.number == flow.from {
                    flow.to
                } else {
                    flow.from
                };
                let peer = plan
                    .hosts
                    .iter()
                    .find(|host| host.number == other)
                    .map(|host| host.v4);
                (live.number == flow.from || live.number == flow.to).then_some(LiveFlow {
                    number: *number,
                    moves: moves(flow.operation)?,
                    message_bytes: flow.message_bytes,
                    messages: flow.messages,
                    depth: flow.depth,
                    start_ns: flow.start.ns(),
                    peer: peer.filter(|_| posts_at == live.number),
                })
            };
            let own: Vec<LiveFlow> = flows.iter().filter_map(end).collect();
            if own.is_empty() {
                continue;
            }
            let mut host = Self {
                number: live.number,
                part: Part::start(&plan.name, &live.name, "part")?,
            };
            host.tell(&Told::Flows {
                address: live.v4,
                flows: own,
            })?;
            hosts.push(host);
        }
        Ok(hosts)
    }

    fn expect_listening(&mut self) -> Result<(), Error> {
        match self.hear()? {
            Said::Listens => Ok(()),
            _ => Err(self.part.wrong()),
        }
    }

    fn hear(&mut self) -> Result<Said, Error> {
        match self.part.hear()? {
            Said::Failed { why } => Err(self.part.failed(&why)),
            said => Ok(said),
        }
    }

    fn tell(&mut self, what: &Told) -> Result<(), Error> {
        let told = self.part.tell(what);
        // The last message of the host is more specific than the broken pipe.
        told.or_else(|error| self.hear().and(Err(error)))
    }

    fn expect_connected(&mut self) -> Result<Vec<(u32, u32)>, Error> {
        match self.hear()? {
            Said::Connected { numbers } => Ok(numbers),
            _ => Err(self.part.wrong()),
        }
    }

    fn expect_done(&mut self) -> Result<Vec<Outcome>, Error> {
        match self.hear()? {
            Said::Done { outcomes } => Ok(outcomes),
            _ => Err(self.part.wrong()),
        }
    }
}

//! `--mesh`: every host of a list runs the same command, probes all others, and answers them meanwhile. So
//! each pair is measured in both directions, and hosts accept nothing but questions from each other.

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use doctor::probe::{Answer, Ask as _, Heard, Observed, ProbeMessage, Question, survey};

use super::listen::Listener;
use super::network::{Aside, PACKET_MAX, Receiver, own_address};
use super::speaker::Speaker;
use super::{Probe, resolved};
use crate::Error;
use crate::sys::datagrams::Packet;

/// How often a host announces that it has finished, and in what interval.
const END_NOTICES: u32 = 5;
const END_NOTICE_INTERVAL: Duration = Duration::from_millis(100);

/// How long a host that has finished waits for the others without a packet from any of them.
const SILENCE: Duration = Duration::from_secs(30);

/// The observations of a host of a mesh.
#[derive(Debug)]
pub(super) struct Row {
    /// The name of this machine in the list.
    pub(super) from: String,
    /// All others, as this machine sees them.
    pub(super) observed: Vec<Observed>,
}

/// The hosts of the list from which packets have arrived, and those that have finished.
#[derive(Debug)]
struct Progress {
    /// When the last packet of another host came.
    heard: Instant,
    asking: BTreeSet<IpAddr>,
    finished: BTreeSet<IpAddr>,
}

impl Default for Progress {
    fn default() -> Self {
        Self {
            heard: Instant::now(),
            asking: BTreeSet::new(),
            finished: BTreeSet::new(),
        }
    }
}

/// Answers the other hosts of a mesh.
#[derive(Debug)]
struct Answering {
    listener: Listener,
    hosts: Vec<IpAddr>,
    progress: Arc<Mutex<Progress>>,
}

impl Aside for Answering {
    fn takes(&mut self, packet: &Packet, heard: &Heard) -> bool {
        let from = packet.source.ip();
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        if self.hosts.contains(&from) {
            progress.heard = Instant::now();
            progress.asking.insert(from);
        }
        match heard {
            Heard::Probe(ProbeMessage::Finished) => {
                progress.finished.insert(from);
                true
            }
            // If the answer cannot be sent, the other host repeats the question.
            _ => self.listener.hear(packet, heard).unwrap_or(true),
        }
    }
}

/// Probes all hosts of the list but this one.
///
/// # Errors
/// Names that are not resolved, a list without this machine, a port that is in use.
pub(super) fn run(what: &Probe) -> Result<Row, Error> {
    let (from, others) = divided(what)?;
    let addresses: Vec<IpAddr> = others.iter().map(|(_, address)| *address).collect();
    let progress = Arc::new(Mutex::new(Progress::default()));
    let listener = Listener::without_load(what.port);
    let answering = Answering {
        listener,
        hosts: addresses.clone(),
        progress: Arc::clone(&progress),
    };
    let receiver = Receiver::open(what.port)?.answering(Box::new(answering));
    crate::output::note!(
        "{from}: answering on UDP port {}, and waiting for the other hosts",
        what.port
    );
    gather(&receiver, &addresses, Duration::from_secs(what.wait.into()))?;
    let mut observed = Vec::new();
    for (host, address) in &others {
        let mut network = receiver.to(*address)?;
        observed.push(survey(host, *address, &[what.dscp, 48, 0], &mut network));
    }
    let failed = |error: io::Error| Error::Unread(format!("UDP port {}: {error}", what.port));
    let cooperating: Vec<IpAddr> = observed
        .iter()
        .filter(|host| host.cooperates.is_some())
        .map(|host| host.address)
        .collect();
    farewell(&receiver, &addresses);
    answer_until_all_finished(&receiver, &cooperating, &progress).map_err(failed)?;
    Ok(Row { from, observed })
}

type Named = (String, IpAddr);

/// This machine's name in the list, and the others.
fn divided(what: &Probe) -> Result<(String, Vec<Named>), Error> {
    let all: Vec<Named> = what
        .hosts
        .iter()
        .map(|host| resolved(host).map(|address| (host.clone(), address)))
        .collect::<Result<_, _>>()?;
    // Packets to an address of this machine leave from that address.
    let is_own = |address: IpAddr| own_address(address).is_ok_and(|own| own == address);
    let (own, others): (Vec<Named>, Vec<Named>) =
        all.into_iter().partition(|(_, address)| is_own(*address));
    let none = || {
        Error::Unread(
            "no host of the list is this machine: name the same hosts on each of them".to_owned(),
        )
    };
    own.into_iter()
        .next()
        .map(|(name, _)| (name, others))
        .ok_or_else(none)
}

/// Waits until all others answer, or until the time is over: those that do not are down, or blocked.
fn gather(receiver: &Receiver, others: &[IpAddr], time: Duration) -> Result<(), Error> {
    let until = Instant::now() + time;
    let mut missing = others.to_vec();
    while !missing.is_empty() && Instant::now() < until {
        let mut silent = Vec::new();
        for address in missing {
            let look = Question::Look {
                traffic_class: 0,
                bytes: 0,
            };
            if !matches!(receiver.to(address)?.ask(look), Answer::Seen { .. }) {
                silent.push(address);
            }
        }
        missing = silent;
    }
    Ok(())
}

/// Announces to the others that this machine has finished.
fn farewell(receiver: &Receiver, others: &[IpAddr]) {
    for _ in 0..END_NOTICES {
        for address in others {
            // Hosts that do not receive it stop waiting after a while.
            let _ = own_address(*address)
                .and_then(|own| Speaker::new(own, receiver.port()))
                .and_then(|speaker| {
                    let farewell = speaker.ends(*address).message(ProbeMessage::Finished, 0);
                    speaker.send(*address, None, &farewell)
                });
        }
        std::thread::sleep(END_NOTICE_INTERVAL);
    }
}

fn answer_until_all_finished(
    receiver: &Receiver,
    others: &[IpAddr],
    progress: &Mutex<Progress>,
) -> io::Result<()> {
    let mut buffer = vec![0; PACKET_MAX];
    loop {
        {
            let progress = progress.lock().unwrap_or_else(PoisonError::into_inner);
            // A host that probes this one may be unreachable from here.
            let mut waited_for = others.iter().chain(&progress.asking);
            let all = waited_for.all(|other| progress.finished.contains(other));
            if all || progress.heard.elapsed() > SILENCE {
                return Ok(());
            }
        }
        receiver.wait(&[], Duration::from_millis(500))?;
        while receiver.next(&mut buffer)?.is_some() {}
    }
}

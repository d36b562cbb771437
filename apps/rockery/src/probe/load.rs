//! Load, sent by cooperating ends to the machine that requests it.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use doctor::probe::{
    Due, Heard, LoadOrder, Observed, Pacer, ProbeMessage, StreamOutcome, Tally, packet_bytes,
};

use super::Probe;
use super::network::{PACKET_MAX, Receiver, own_address};
use super::speaker::Speaker;
use crate::Error;
use crate::sys::datagrams;

/// How often the end of a stream is announced, and in what interval.
const END_NOTICES: u32 = 20;
const END_NOTICE_INTERVAL: Duration = Duration::from_millis(100);

/// An order is repeated so often until the stream begins.
const ORDER_INTERVAL: Duration = Duration::from_millis(300);

/// Time beyond that of the streams in which their ends have to arrive.
const TIMEOUT: Duration = Duration::from_secs(10);

/// When nothing has arrived for so long, nothing of the streams is on its way any more.
const DRAINED: Duration = Duration::from_millis(500);

/// Sends a stream, then its report. Ends early when the receiver is gone.
pub(super) fn send(speaker: &Speaker, peer: IpAddr, order: &LoadOrder, busy: &AtomicBool) {
    let mut pacer = Pacer::new(order);
    let before = dropped_by_interfaces();
    let gone = send_all(speaker, peer, order, &mut pacer).is_err();
    let dropped = dropped_by_interfaces().saturating_sub(before);
    busy.store(false, Ordering::Release);
    let end = pacer
        .end()
        .without_own_drops(u32::try_from(dropped).unwrap_or(u32::MAX));
    let end = speaker.ends(peer).message(ProbeMessage::Ended(end), 0);
    for _ in 0..if gone { 0 } else { END_NOTICES } {
        // The receiver counts a packet that cannot be sent as lost.
        let _ = speaker
            .mark(0)
            .and_then(|()| speaker.send(peer, None, &end));
        std::thread::sleep(END_NOTICE_INTERVAL);
    }
}

/// Packets that queues of this machine's interfaces have dropped because they were full. Some drivers do that
/// where others have the sender wait.
fn dropped_by_interfaces() -> u64 {
    // After the name, 8 columns of what is received, then bytes, packets, errors and drops of what is sent.
    const SENT_DROPS: usize = 11;
    let table = std::fs::read_to_string("/proc/net/dev").unwrap_or_default();
    let rows = table.lines().filter_map(|line| line.split_once(':'));
    rows.filter_map(|(_, counters)| {
        counters
            .split_whitespace()
            .nth(SENT_DROPS)?
            .parse::<u64>()
            .ok()
    })
    .sum()
}

fn send_all(
    speaker: &Speaker,
    peer: IpAddr,
    order: &LoadOrder,
    pacer: &mut Pacer,
) -> io::Result<()> {
    speaker.mark(order.traffic_class)?;
    let start = Instant::now();
    loop {
        match pacer.due(start.elapsed()) {
            Due::Over => return Ok(()),
            Due::Wait(time) => std::thread::sleep(time),
            Due::Send(index) => {
                let message = ProbeMessage::Load {
                    stream: order.stream,
                    index,
                };
                let bytes = speaker.ends(peer).message(message, order.bytes as usize);
                match speaker.send(peer, None, &bytes) {
                    Ok(()) => pacer.sent(),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        pacer.blocked();
                        datagrams::wait(&[(speaker.raw(), true)], Duration::from_millis(20))?;
                    }
                    // The queue of the interface is full.
                    Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                        pacer.blocked();
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    Err(error) => return Err(error),
                }
            }
        }
    }
}

/// The outcomes of the streams of each load.
#[derive(Debug, Default)]
pub(super) struct Loads {
    /// One host after the other.
    pub(super) alone: Vec<StreamOutcome>,
    /// All hosts at once, in one class.
    pub(super) together: Vec<StreamOutcome>,
    /// All hosts at once, in several classes.
    pub(super) classes: Vec<StreamOutcome>,
}

impl Loads {
    pub(super) fn all(&self) -> impl Iterator<Item = &StreamOutcome> {
        self.alone.iter().chain(&self.together).chain(&self.classes)
    }
}

/// Has cooperating hosts send one after the other, then all at once if they are several, and then each with
/// one of `dscps` if there are any.
///
/// # Errors
/// Sockets that fail.
pub(super) fn run(
    receiver: &Receiver,
    observed: &[Observed],
    kbps: u32,
    dscps: &[u8],
    what: &Probe,
) -> Result<Loads, Error> {
    let failed = |error: io::Error| Error::Unread(format!("load: {error}"));
    let hosts: Vec<&Observed> = observed
        .iter()
        .filter(|host| host.cooperates.is_some())
        .collect();
    let mut next = 0;
    let mut orders = |hosts: &[&Observed], dscps: &[u8]| {
        // Hosts take the classes in turn.
        let of = |(host, dscp): (&&Observed, &u8)| {
            next += 1;
            let mtu = host.sizes.largest.unwrap_or(1024);
            LoadOrder {
                nonce: host.cooperates.map_or(0, |seen| seen.nonce),
                stream: std::process::id() << 8 | next,
                traffic_class: dscp << 2 | 2,
                bytes: packet_bytes(mtu, host.address) as u32,
                kbps,
                millis: what.seconds * 1000,
            }
        };
        hosts
            .iter()
            .zip(dscps.iter().cycle())
            .map(of)
            .collect::<Vec<_>>()
    };
    let mut send = |hosts: &[&Observed], dscps: &[u8]| {
        let ordered = orders(hosts, dscps);
        Streams::new(receiver, hosts, &ordered)
            .and_then(Streams::run)
            .map_err(failed)
    };
    let mut loads = Loads::default();
    for host in &hosts {
        loads.alone.extend(send(&[*host], &[what.dscp])?);
    }
    if hosts.len() > 1 {
        loads.together = send(&hosts, &[what.dscp])?;
    }
    if !dscps.is_empty() && hosts.len() >= dscps.len() {
        loads.classes = send(&hosts, dscps)?;
    }
    Ok(loads)
}

/// Streams that are sent at the same time.
struct Streams<'a> {
    receiver: &'a Receiver,
    hosts: Vec<(&'a Observed, LoadOrder, Speaker)>,
    tallies: BTreeMap<u32, Tally>,
    /// Packets that the kernel dropped here: before the streams, and by now.
    dropped: (Option<u32>, u32),
    /// When the streams were ordered.
    begun: Instant,
    last: Instant,
}

impl<'a> Streams<'a> {
    fn new(
        receiver: &'a Receiver,
        hosts: &[&'a Observed],
        orders: &[LoadOrder],
    ) -> io::Result<Self> {
        let speaker = |host: &Observed| Speaker::new(own_address(host.address)?, receiver.port());
        let hosts = hosts
            .iter()
            .zip(orders)
            .map(|(host, order)| Ok((*host, *order, speaker(host)?)));
        let tallies = orders
            .iter()
            .map(|order| (order.stream, Tally::default()))
            .collect();
        let hosts = hosts.collect::<io::Result<_>>()?;
        let now = Instant::now();
        Ok(Self {
            receiver,
            hosts,
            tallies,
            dropped: (None, 0),
            begun: now,
            last: now,
        })
    }

    fn run(mut self) -> io::Result<Vec<StreamOutcome>> {
        let millis = self
            .hosts
            .iter()
            .map(|(_, order, _)| order.millis)
            .max()
            .unwrap_or(0);
        let give_up = Instant::now() + Duration::from_millis(millis.into()) + TIMEOUT;
        let mut ordered = None;
        while Instant::now() < give_up {
            if ordered.is_none_or(|at: Instant| at.elapsed() >= ORDER_INTERVAL) {
                self.order()?;
                ordered = Some(Instant::now());
            }
            self.receiver.wait(&[], ORDER_INTERVAL)?;
            self.take()?;
            let is_over = |tally: &Tally| tally.end.is_some() || tally.refused.is_some();
            // The ends may overtake packets of a class that waits.
            if self.tallies.values().all(is_over) && self.last.elapsed() >= DRAINED {
                break;
            }
        }
        Ok(self.outcomes())
    }

    fn order(&self) -> io::Result<()> {
        for (host, order, speaker) in &self.hosts {
            while speaker.report()?.is_some() {}
            if self
                .tallies
                .get(&order.stream)
                .is_some_and(|tally| !tally.has_begun())
            {
                let order = speaker
                    .ends(host.address)
                    .message(ProbeMessage::Order(*order), 0);
                speaker.send(host.address, None, &order)?;
            }
        }
        Ok(())
    }

    fn take(&mut self) -> io::Result<()> {
        let mut buffer = [0; PACKET_MAX];
        while let Some((packet, heard)) = self.receiver.next(&mut buffer)? {
            // The kernel's count comes with packets only once it has dropped one.
            self.dropped.0.get_or_insert(packet.dropped);
            self.dropped.1 = self.dropped.1.max(packet.dropped);
            let Some(Heard::Probe(message)) = heard else {
                continue;
            };
            let tallies = &mut self.tallies;
            match message {
                ProbeMessage::Load { stream, index } => {
                    self.last = Instant::now();
                    if let Some(tally) = tallies.get_mut(&stream) {
                        tally.arrived(index, packet.traffic_class, self.last - self.begun);
                    }
                }
                ProbeMessage::Ended(end) => {
                    if let Some(tally) = tallies.get_mut(&end.stream) {
                        tally.end = Some(end);
                    }
                }
                ProbeMessage::Refused {
                    stream,
                    allowed_kbps,
                } => {
                    if let Some(tally) = tallies.get_mut(&stream) {
                        tally.refused = Some(allowed_kbps);
                    }
                }
                // The nonce of an order has expired: the next order has the new one.
                ProbeMessage::Seen(seen) => self.renew(packet.source.ip(), seen.nonce),
                _ => {}
            }
        }
        Ok(())
    }

    /// Orders from a host have this nonce from now on.
    fn renew(&mut self, address: IpAddr, nonce: u64) {
        for (host, order, _) in &mut self.hosts {
            if host.address == address {
                order.nonce = nonce;
            }
        }
    }

    fn outcomes(self) -> Vec<StreamOutcome> {
        let overrun = self.dropped.1.saturating_sub(self.dropped.0.unwrap_or(0));
        let of = |(host, order, _): &(&Observed, LoadOrder, Speaker)| {
            let tally = self.tallies.get(&order.stream).cloned().unwrap_or_default();
            StreamOutcome {
                host: host.host.clone(),
                order: *order,
                end: tally.end,
                refused: tally.refused,
                arrived: tally.count(),
                marked: tally.marked,
                slots: tally.slots,
                overrun,
            }
        };
        self.hosts.iter().map(of).collect()
    }
}

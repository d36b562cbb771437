//! An LLDP agent (802.1AB clause 9), without input or output of its own: when a frame is due, and what
//! neighbours have advertised.

use wire::MacAddress;
use wire::dcbx::Advertisement;
use wire::lldp::{Application, EtsTlv, PfcTlv};

const SECOND: u64 = 1_000_000_000;
/// `msgTxInterval`, `msgTxHold`, `msgFastTx` and `txFastInit` as 802.1AB recommends them (clause 9.2.5).
const INTERVAL: u64 = 30 * SECOND;
const FAST_INTERVAL: u64 = SECOND;
const FAST_FRAMES: u8 = 4;
/// Seconds for which a frame is valid: `msgTxInterval` times `msgTxHold`, and one.
pub(super) const VALID_SECONDS: u16 = 30 * 4 + 1;
/// Neighbours of a port at most; further ones are not noted.
const NEIGHBOURS_MAX: usize = 4;

/// The last advertisement of a neighbour.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Neighbour {
    /// Chassis and port.
    key: Vec<u8>,
    until: u64,
    /// A program in the host sent it, and not the adapter.
    pub(crate) is_program: bool,
    pub(crate) mac: MacAddress,
    pub(crate) system: String,
    pub(crate) port: String,
    pub(crate) ets: Option<EtsTlv>,
    pub(crate) recommended: Option<EtsTlv>,
    pub(crate) pfc: Option<PfcTlv>,
    pub(crate) applications: Vec<Application>,
    pub(crate) has_dcbx: bool,
}

impl Neighbour {
    fn of(said: &Advertisement<'_>, mac: MacAddress, is_program: bool, now: u64) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let identifier = |(subtype, id): (u8, &[u8])| match <[u8; 6]>::try_from(id) {
            // Subtype 3 of a port is a MAC address.
            Ok(address) if subtype == 3 => MacAddress(address).to_string(),
            _ => text(id),
        };
        Self {
            key: key(said),
            until: now + u64::from(said.seconds) * SECOND,
            is_program,
            mac,
            system: text(said.system),
            port: identifier(said.port),
            ets: said.ets,
            recommended: said.recommended,
            pfc: said.pfc,
            applications: said
                .applications
                .map_or_else(Vec::new, |entries| entries.iter().collect()),
            has_dcbx: said.has_dcbx(),
        }
    }
}

fn key(said: &Advertisement<'_>) -> Vec<u8> {
    let ((chassis, chassis_id), (port, port_id)) = (said.chassis, said.port);
    [
        &[chassis, chassis_id.len() as u8],
        chassis_id,
        &[port],
        port_id,
    ]
    .concat()
}

/// The agent of a port. Times are nanoseconds.
#[derive(Debug)]
pub(crate) struct Agent {
    /// When the next frame is due; never while the link is down.
    due: u64,
    sent_at: Option<u64>,
    /// Frames of a fast start that are left.
    fast: u8,
    pub(crate) neighbours: Vec<Neighbour>,
}

impl Agent {
    /// An agent of a port without link.
    pub(super) const fn new() -> Self {
        Self {
            due: u64::MAX,
            sent_at: None,
            fast: 0,
            neighbours: Vec::new(),
        }
    }

    /// The link is there: the first frame is due at once.
    pub(super) fn start(&mut self, now: u64) {
        (self.due, self.fast) = (now, FAST_FRAMES);
    }

    /// The link is down, or the port sends nothing from now on.
    pub(super) fn stop(&mut self) {
        *self = Self::new();
    }

    pub(super) fn is_started(&self) -> bool {
        self.due != u64::MAX
    }

    /// The settings that the port advertises have changed: a frame is due at once.
    pub(super) fn announce(&mut self, now: u64) {
        if self.is_started() {
            self.due = now;
        }
    }

    /// When something is to be done next.
    pub(super) fn next(&self) -> u64 {
        self.neighbours
            .iter()
            .map(|neighbour| neighbour.until)
            .fold(self.due, u64::min)
    }

    /// Whether a frame is to be sent now; it is taken as sent.
    pub(super) fn sends(&mut self, now: u64) -> bool {
        if self.due > now {
            return false;
        }
        self.fast = self.fast.saturating_sub(1);
        self.sent_at = Some(now);
        self.due = now
            + if self.fast > 0 {
                FAST_INTERVAL
            } else {
                INTERVAL
            };
        true
    }

    /// Processes a neighbour's advertisement. A new neighbour starts the fast transmission of 802.1AB, so
    /// that it receives a frame soon, at the rate of a fast start at most.
    pub(super) fn hear(
        &mut self,
        said: &Advertisement<'_>,
        mac: MacAddress,
        is_program: bool,
        now: u64,
    ) {
        if !self.is_started() {
            return;
        }
        let key = key(said);
        let known = self
            .neighbours
            .iter()
            .position(|neighbour| neighbour.key == key);
        if said.seconds == 0 {
            known
                .into_iter()
                .for_each(|at| drop(self.neighbours.remove(at)));
            return;
        }
        let neighbour = Neighbour::of(said, mac, is_program, now);
        match known {
            Some(at) => self.neighbours[at] = neighbour,
            None if self.neighbours.len() < NEIGHBOURS_MAX => {
                self.neighbours.push(neighbour);
                self.fast = FAST_FRAMES;
                let soon = self
                    .sent_at
                    .map_or(now, |sent| now.max(sent + FAST_INTERVAL));
                self.due = self.due.min(soon);
            }
            None => {}
        }
    }

    /// Removes neighbours whose advertisements have expired.
    pub(super) fn expire(&mut self, now: u64) {
        self.neighbours.retain(|neighbour| neighbour.until > now);
    }

    /// Whether a program in the host takes part in DCBX in place of the adapter.
    pub(super) fn hears_program(&self) -> bool {
        self.neighbours
            .iter()
            .any(|neighbour| neighbour.is_program && neighbour.has_dcbx)
    }

    /// The DCBX peer of this port: the only neighbour that takes part in DCBX. With several there is no peer,
    /// because DCBX is for point-to-point links.
    pub(super) fn peer(&self) -> Option<&Neighbour> {
        let mut speak = self
            .neighbours
            .iter()
            .filter(|neighbour| neighbour.has_dcbx);
        let first = speak.next();
        first.filter(|_| speak.next().is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);

    fn said(port: &[u8], seconds: u16) -> Advertisement<'_> {
        let pfc = Some(PfcTlv {
            willing: false,
            macsec_bypass: false,
            capability: 8,
            enabled: 8,
        });
        Advertisement {
            chassis: (4, &[2, 0, 0, 0, 0, 1]),
            port: (5, port),
            seconds,
            system: b"leaf",
            ets: None,
            recommended: None,
            pfc,
            applications: None,
        }
    }

    /// Seconds at which frames leave within two minutes.
    fn sent(agent: &mut Agent, from: u64) -> Vec<u64> {
        (from..from + 120)
            .filter(|second| agent.sends(second * SECOND))
            .collect()
    }

    #[test]
    fn frames_come_fast_after_the_start_and_then_every_30_seconds() {
        let mut agent = Agent::new();
        assert!(sent(&mut agent, 0).is_empty(), "the link is down");
        agent.start(0);
        assert_eq!(sent(&mut agent, 0), [0, 1, 2, 3, 33, 63, 93]);
    }

    #[test]
    fn a_new_neighbour_begins_a_fast_start_and_news_leave_at_once() {
        let mut agent = Agent::new();
        agent.start(0);
        sent(&mut agent, 0);
        agent.hear(&said(b"eth0", 121), MAC, false, 120 * SECOND);
        assert_eq!(sent(&mut agent, 120)[..5], [120, 121, 122, 123, 153]);
        agent.announce(250 * SECOND);
        assert!(agent.sends(250 * SECOND));
        // A second after that frame, the next new neighbour starts another fast transmission.
        agent.expire(250 * SECOND);
        agent.hear(&said(b"eth1", 121), MAC, false, 250 * SECOND);
        assert_eq!(agent.next(), 251 * SECOND);
    }

    #[test]
    fn neighbours_expire_or_take_back_what_they_said() {
        let mut agent = Agent::new();
        agent.start(0);
        agent.hear(&said(b"eth0", 10), MAC, false, 0);
        assert!(
            agent
                .peer()
                .is_some_and(|peer| peer.port == "eth0" && peer.system == "leaf")
        );
        agent.expire(9 * SECOND);
        assert!(agent.peer().is_some());
        agent.expire(10 * SECOND);
        assert!(agent.peer().is_none());
        agent.hear(&said(b"eth0", 10), MAC, false, 0);
        agent.hear(&said(b"eth0", 0), MAC, false, 0);
        assert!(agent.neighbours.is_empty());
    }

    #[test]
    fn of_several_neighbours_with_dcbx_none_counts_and_their_number_is_bounded() {
        let mut agent = Agent::new();
        agent.start(0);
        for port in 0..20_u8 {
            agent.hear(&said(&[port], 121), MAC, port > 0, 0);
        }
        assert!(agent.peer().is_none() && agent.hears_program());
        assert_eq!(agent.neighbours.len(), NEIGHBOURS_MAX);
    }
}

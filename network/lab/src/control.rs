//! The control socket of a lab: an abstract Unix socket, which belongs to the user who started the lab.

use crate::LabError;
use crate::functions::{FunctionStatus, LiveAdapter};
use crate::lateness::LatenessSummary;
use crate::lldp::DcbxLink;
use crate::measurement::Measured;
use crate::network::HostCounters;
use crate::ports::Ports;
use crate::shape::Shape;
use crate::subnet::InfinibandPort;
use crate::tracking::{Numbers, Outcome};
use link::unix;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// Bytes of a message at most.
pub(crate) const MESSAGE_BYTES: usize = 128 << 10;

/// Flows in one message at most, and outcomes, which have a histogram each.
const FLOWS_PER_MESSAGE: usize = 1000;
const OUTCOMES_PER_MESSAGE: usize = 8;

/// Bytes of a text, which comes in several messages, at most.
const TEXT_BYTES_MAX: usize = 256 << 20;

/// How long a command waits for room in the lab's backlog.
const TIMEOUT: Duration = Duration::from_secs(5);

/// A request to a lab.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "kebab-case")]
pub(crate) enum Request {
    /// The state of the lab and its hosts.
    Status,
    /// The namespaces of a host.
    Enter { host: String },
    /// The end of the lab.
    Down,
    /// Takes a link down, or brings it up again.
    Link { ends: [String; 2], up: bool },
    /// The output of a command of a switch with a vendor's configuration.
    Show { switch: String, command: String },
    /// Writes packets of a port to a file, or ends that.
    Capture { port: String, path: Option<String> },
    /// Binds the lab to this connection: the lab ends with it.
    Own,
    /// Adds flows to the run that comes next.
    Track { flows: Vec<Numbers> },
    /// The times at which the run begins and ends, in nanoseconds of the lab's clock.
    Measure { begin_ns: u64, end_ns: Option<u64> },
    /// The end of the run, if it has none.
    Finish,
    /// Counters of the flows at the hosts that posted their messages.
    Outcomes { outcomes: Vec<Outcome> },
    /// The results of the run.
    Measured,
    /// Other values of the fabric file: all of them, or none where one cannot be set.
    Set { values: Vec<(String, String)> },
    /// Adapters with functions.
    Functions,
    /// The counters of ports, and findings, in the form of the simulator's report.
    Report { json: bool },
    /// The counters of ports.
    Ports,
    /// Nodes and links.
    Shape,
    /// The DCBX state of links.
    Dcbx,
}

/// An answer of a lab.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub(crate) enum Answer {
    Status(Status),
    Enter { variables: Vec<(String, String)> },
    Done,
    Text { text: String, more: bool },
    Error { error: String },
}

/// A lab and its hosts.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Status {
    /// The name of the lab.
    pub name: String,
    /// The title of its file.
    pub title: String,
    /// The PID of the lab.
    pub process: u32,
    /// Nanoseconds of its clock since it began.
    pub now_ns: u64,
    /// The factor by which its clock is slower than the machine's.
    pub slowdown: u64,
    /// How late packets were handled.
    pub lateness: LatenessSummary,
    /// The time that the shortest link takes for a packet of the longest kind, ns: the 99.9th percentile of
    /// lateness is compared with it.
    pub shortest_link_ns: u64,
    /// Whether lateness was within it.
    pub valid: bool,
    /// Packets that switches dropped.
    pub dropped: u64,
    /// Pause frames that switches and hosts sent.
    pub pauses: u64,
    /// Packets that switches marked.
    pub marked: u64,
    /// The hosts in which programs run.
    pub hosts: Vec<HostStatus>,
    /// How many simulated hosts there are besides.
    pub simulated: u32,
    /// Ports whose packets are written to files.
    pub captured: Vec<String>,
    /// The DCBX state of links of live hosts.
    #[serde(default)]
    pub dcbx: Vec<DcbxLink>,
}

/// A live host.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct HostStatus {
    /// The name of the host in the file.
    pub name: String,
    /// Its IPv4 address.
    pub v4: String,
    /// Its IPv6 address.
    pub v6: String,
    /// The addresses that it uses and the file does not name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub learned: Vec<String>,
    /// The MAC address of its interface.
    pub mac: String,
    /// Which function of another host's adapter it is, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<FunctionStatus>,
    /// Its port, on InfiniBand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub infiniband: Option<InfinibandPort>,
    /// Devices that programs have open.
    pub devices: u32,
    /// The counters of its devices and its kernel.
    pub counters: HostCounters,
}

/// An error of the connection to a lab.
fn failed(source: io::Error) -> LabError {
    match source.kind() {
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => LabError::Ended,
        _ => LabError::System {
            what: "the lab does not answer",
            source,
        },
    }
}

fn prefix() -> String {
    format!("rockery-lab-{}-", os::user())
}

/// The abstract name of a lab's socket.
pub(crate) fn socket_name(lab: &str) -> String {
    prefix() + lab
}

/// The names of this user's labs in this network namespace.
pub fn labs() -> Vec<String> {
    let prefix = format!("@{}", prefix());
    let table = fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let names = table
        .lines()
        .filter_map(|line| line.split_whitespace().last()?.strip_prefix(&prefix));
    let mut names: Vec<String> = names.map(str::to_owned).collect();
    names.sort();
    names.dedup();
    names
}

/// A connection to a lab.
#[derive(Debug)]
pub struct Client {
    socket: OwnedFd,
    /// When answers have to be there, where that is limited.
    deadline: Option<Instant>,
}

/// The environment variables and namespaces with which a process enters a host.
#[derive(Debug)]
pub struct Entered {
    /// Variables of its programs.
    pub(crate) variables: Vec<(String, String)>,
    /// User, PID, network, UTS, IPC and mount namespace.
    pub(crate) namespaces: Vec<OwnedFd>,
}

impl Client {
    /// Connects to a lab; without a name, to the one that runs.
    ///
    /// # Errors
    /// When there is none, or several.
    pub fn connect(name: Option<&str>) -> Result<Self, LabError> {
        Self::connected(name, TIMEOUT, None)
    }

    /// Connects to a lab that has to answer everything within a time from now.
    ///
    /// # Errors
    /// As [`Client::connect`], and when the lab does not accept the connection in time.
    pub fn connect_within(name: &str, time: Duration) -> Result<Self, LabError> {
        Self::connected(Some(name), time, Some(Instant::now() + time))
    }

    fn connected(
        name: Option<&str>,
        time: Duration,
        deadline: Option<Instant>,
    ) -> Result<Self, LabError> {
        let there = labs();
        let name = match (name, there.as_slice()) {
            (Some(name), _) => name,
            (None, [only]) => only,
            (None, []) => return Err(LabError::None),
            (None, _) => return Err(LabError::Several(there.join(", "))),
        };
        let socket =
            unix::connect(&socket_name(name), time).map_err(|source| match source.kind() {
                io::ErrorKind::ConnectionRefused if there.is_empty() => LabError::None,
                io::ErrorKind::ConnectionRefused => LabError::NoSuchLab {
                    name: name.to_owned(),
                    there: there.join(", "),
                },
                _ => LabError::System {
                    what: "the control socket",
                    source,
                },
            })?;
        let user =
            unix::peer_user(socket.as_raw_fd()).map_err(LabError::system("the control socket"))?;
        if user == os::user() {
            Ok(Self { socket, deadline })
        } else {
            Err(LabError::Foreign(user))
        }
    }

    fn ask(&self, request: &Request) -> Result<(Answer, Vec<OwnedFd>), LabError> {
        let bytes = serde_json::to_vec(request).map_err(|error| failed(error.into()))?;
        unix::send_fds(self.socket.as_raw_fd(), &bytes, &[]).map_err(failed)?;
        self.receive()
    }

    fn receive(&self) -> Result<(Answer, Vec<OwnedFd>), LabError> {
        if let Some(deadline) = self.deadline {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(failed(io::ErrorKind::TimedOut.into()));
            }
            // The socket counts in microseconds, and zero of them would be no limit.
            let left = left.max(Duration::from_millis(1));
            unix::set_timeouts(self.socket.as_raw_fd(), left).map_err(failed)?;
        }
        let mut bytes = vec![0; MESSAGE_BYTES];
        let received = unix::receive_fds::<{ unix::FDS_MAX }>(self.socket.as_raw_fd(), &mut bytes);
        let (length, fds) = received.map_err(failed)?;
        if length == 0 {
            return Err(LabError::Ended);
        }
        match serde_json::from_slice(&bytes[..length]) {
            Ok(Answer::Error { error }) => Err(LabError::Refused(error)),
            Ok(answer) => Ok((answer, fds.into_iter().flatten().collect())),
            Err(error) => Err(failed(error.into())),
        }
    }

    fn wrong() -> LabError {
        LabError::Refused("the lab is of another version of rockery".to_owned())
    }

    /// Hosts, counters and lateness of the lab.
    ///
    /// # Errors
    /// When the lab does not answer.
    pub fn status(&self) -> Result<Status, LabError> {
        let (Answer::Status(mut status), _) = self.ask(&Request::Status)? else {
            return Err(Self::wrong());
        };
        // In pieces: that of 64 hosts is longer than a message.
        let text = self.text(&Request::Dcbx)?;
        status.dcbx = serde_json::from_str(&text).map_err(|_| Self::wrong())?;
        Ok(status)
    }

    /// Ends the lab, and waits until nothing of it is left.
    ///
    /// # Errors
    /// When the lab does not answer.
    pub fn down(&self) -> Result<(), LabError> {
        self.ask(&Request::Down)?;
        // The end of the connection is the end of the process.
        let _ = unix::receive_next(self.socket.as_raw_fd(), &mut [0; 64]);
        Ok(())
    }

    /// Takes the link between two nodes down, or brings it up again.
    ///
    /// # Errors
    /// When there is no such link.
    pub fn link(&self, ends: [String; 2], up: bool) -> Result<(), LabError> {
        self.ask(&Request::Link { ends, up }).map(drop)
    }

    /// Has the packets of a port written to a file, in both directions; without a path, ends that. The path
    /// has to be absolute.
    ///
    /// # Errors
    /// When there is no such port, or the file cannot be written.
    pub fn capture(&self, port: &str, path: Option<&str>) -> Result<(), LabError> {
        let path = path.map(str::to_owned);
        self.ask(&Request::Capture {
            port: port.to_owned(),
            path,
        })
        .map(drop)
    }

    /// Has the lab end with this client.
    ///
    /// # Errors
    /// When the lab does not answer.
    pub fn own(&self) -> Result<(), LabError> {
        self.ask(&Request::Own).map(drop)
    }

    /// Has a run measured, from one time of the lab's clock to another or to [`Self::measured`]. The network
    /// begins anew: nothing is on its way, and nothing is counted.
    ///
    /// # Errors
    /// When the lab does not answer.
    pub fn measure(
        &self,
        flows: &[Numbers],
        begin_ns: u64,
        end_ns: Option<u64>,
    ) -> Result<(), LabError> {
        for flows in flows.chunks(FLOWS_PER_MESSAGE) {
            self.ask(&Request::Track {
                flows: flows.to_vec(),
            })?;
        }
        self.ask(&Request::Measure { begin_ns, end_ns }).map(drop)
    }

    /// Ends the run, and returns its results. `outcomes` are the counters of the posters of messages.
    ///
    /// # Errors
    /// When no run is measured.
    pub fn measured(&self, outcomes: &[Outcome]) -> Result<Measured, LabError> {
        self.ask(&Request::Finish)?;
        for outcomes in outcomes.chunks(OUTCOMES_PER_MESSAGE) {
            self.ask(&Request::Outcomes {
                outcomes: outcomes.to_vec(),
            })?;
        }
        let text = self.text(&Request::Measured)?;
        serde_json::from_str(&text).map_err(|_| Self::wrong())
    }

    /// Sets values of the fabric file while the lab runs: paths and their values, all of them or none.
    ///
    /// # Errors
    /// When a value is wrong, or is one that cannot change.
    pub fn set(&self, values: &[(String, String)]) -> Result<(), LabError> {
        self.ask(&Request::Set {
            values: values.to_vec(),
        })
        .map(drop)
    }

    /// The adapters with functions, as they are at this moment.
    ///
    /// # Errors
    /// When the lab does not answer.
    pub fn functions(&self) -> Result<Vec<LiveAdapter>, LabError> {
        serde_json::from_str(&self.text(&Request::Functions)?).map_err(|_| Self::wrong())
    }

    /// The output of a switch with a vendor's configuration for a command.
    ///
    /// # Errors
    /// When there is no such switch or command.
    pub fn show(&self, switch: &str, command: &str) -> Result<String, LabError> {
        self.text(&Request::Show {
            switch: switch.to_owned(),
            command: command.to_owned(),
        })
    }

    /// The counters of ports, and findings, in the form of the simulator's report: a table or JSON.
    ///
    /// # Errors
    /// When the lab does not answer.
    pub fn report(&self, json: bool) -> Result<String, LabError> {
        self.text(&Request::Report { json })
    }

    /// The counters of ports: of those that have sent the most bytes, if there are many.
    ///
    /// # Errors
    /// When the lab does not answer.
    pub fn ports(&self) -> Result<Ports, LabError> {
        serde_json::from_str(&self.text(&Request::Ports)?).map_err(|_| Self::wrong())
    }

    /// The nodes and links, with those that are down.
    ///
    /// # Errors
    /// When the lab does not answer.
    pub fn shape(&self) -> Result<Shape, LabError> {
        serde_json::from_str(&self.text(&Request::Shape)?).map_err(|_| Self::wrong())
    }

    /// A text, which comes in pieces.
    fn text(&self, request: &Request) -> Result<String, LabError> {
        let (mut answer, _) = self.ask(request)?;
        let mut whole = String::new();
        loop {
            let Answer::Text { text, more } = answer else {
                return Err(Self::wrong());
            };
            whole += &text;
            if !more {
                return Ok(whole);
            }
            if whole.len() > TEXT_BYTES_MAX {
                return Err(Self::wrong());
            }
            (answer, _) = self.receive()?;
        }
    }

    /// Requests the variables and namespaces of a host.
    ///
    /// # Errors
    /// When there is no such host.
    pub fn host(&self, host: &str) -> Result<Entered, LabError> {
        match self.ask(&Request::Enter {
            host: host.to_owned(),
        })? {
            (Answer::Enter { variables }, namespaces) => Ok(Entered {
                variables,
                namespaces,
            }),
            _ => Err(Self::wrong()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: Duration = Duration::from_millis(100);

    /// The socket of a lab of this test's own.
    fn lab(name: &str) -> (String, OwnedFd) {
        let name = format!("{name}{}", std::process::id());
        let listener = unix::listen(&socket_name(&name), 4).unwrap();
        (name, listener)
    }

    #[test]
    fn a_lab_that_is_stopped_does_not_hold_up_its_client() {
        let (name, _listener) = lab("stopped");
        let client = Client::connect_within(&name, TIME).unwrap();
        assert!(matches!(client.status(), Err(LabError::System { .. })));
        // The time is that of all answers together.
        assert!(matches!(client.ports(), Err(LabError::System { .. })));
    }

    #[test]
    fn a_lab_that_ends_before_its_answer_has_ended() {
        let (name, listener) = lab("ending");
        let client = Client::connect_within(&name, TIME).unwrap();
        drop(listener);
        assert!(matches!(client.status(), Err(LabError::Ended)));
        assert!(matches!(
            Client::connect_within(&name, TIME),
            Err(LabError::None | LabError::NoSuchLab { .. })
        ));
    }
}

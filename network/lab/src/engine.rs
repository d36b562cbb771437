//! The loop of a lab: the network runs up to the time of the clock, and the ports of hosts are served.

mod captures;

use crate::LabError;
use crate::capture::{CAPTURED_MAX, Capture};
use crate::changes;
use crate::clock::Clock;
use crate::control::{Answer, HostStatus, MESSAGE_BYTES, Request, Status};
use crate::device::Device;
use crate::functions::{Cables, FunctionStatus, adapters_of};
use crate::inspect::{self, nothing_measured, text};
use crate::link_changes;
use crate::listener::accept;
use crate::lldp::Lldp;
use crate::measurement::Measurement;
use crate::namespaces::{ATTACH, RUNTIME, Spaces};
use crate::network::{Network, Port, neighbours_of};
use crate::plan::{LiveHost, Plan};
use crate::ports::Ports;
use crate::shape::Shape;
use crate::subnet::{Connections, Greeted, LiveSubnet};
use crate::tracking::Numbers;
use crate::watched::Watched;
use fabric::{Span, Time};
use link::unix;
use os::epoll::Epoll;
use sim::report::{Report, table_so_far};
use sim::world::World;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// Sockets are looked at so often while packets move, in nanoseconds of the machine.
const SOCKETS_EVERY: u64 = 20_000;
/// How long the loop polls before it sleeps: what waking takes.
const POLLS_FOR: u64 = 30_000;
/// Descriptors that one wait returns at most.
const EVENTS: usize = 64;
/// The longest sleep.
const SLEEP_MAX: u64 = 1_000_000_000;
/// Connections of commands at once.
const COMMANDS_MAX: usize = 64;

/// The descriptors that a lab was started with.
pub(crate) struct Held {
    pub(crate) control: OwnedFd,
    pub(crate) signals: OwnedFd,
    pub(crate) user: OwnedFd,
    pub(crate) pid: OwnedFd,
    pub(crate) spaces: Vec<Spaces>,
}

/// A lab that runs.
pub(crate) struct Engine {
    plan: Plan,
    clock: Clock,
    world: World,
    network: Network,
    epoll: Epoll<EVENTS>,
    held: Held,
    commands: BTreeMap<RawFd, OwnedFd>,
    /// Devices that have connected and sent no message yet, with the place of their host.
    greetings: BTreeMap<RawFd, (OwnedFd, usize)>,
    /// The shortest one of the file as it was read: nodes of the network are driven by themselves for so
    /// long.
    least_delay: Span,
    cables: Cables,
    lldp: Lldp,
    /// The InfiniBand subnet, if the links are such.
    subnet: Option<LiveSubnet>,
    device_files: Connections,
    captures: Vec<Capture>,
    measurement: Measurement,
    /// The connection with which the lab ends.
    owner: Option<RawFd>,
    /// The connection of the command that ends the lab: it is closed when the lab has ended.
    ends: Option<OwnedFd>,
    stops: bool,
}

impl Engine {
    pub(crate) fn new(plan: Plan, slowdown: u32, mut held: Held) -> Result<Self, LabError> {
        let world = new_world(&plan)?;
        let least_delay = plan.shortest_delay();
        let cables = Cables::default();
        let neighbours = neighbours_of(&plan.hosts);
        let ports = plan
            .hosts
            .iter()
            .zip(&mut held.spaces)
            .map(|(host, spaces)| {
                let known = neighbours.get(&host.vlan()).cloned().unwrap_or_default();
                let port = Port::made(host, spaces.tap.take(), spaces.interfaces.take(), known);
                if let Some(tap) = port.tap.as_ref().filter(|_| host.function.is_some()) {
                    tap.set_carrier(cables.carrier(&plan.experiment.network, host.number));
                }
                port
            });
        let clock = Clock::new(slowdown);
        let ports = ports.collect();
        let network = Network::new(plan.experiment.network.hosts.len(), ports, clock);
        let epoll = Epoll::new().map_err(LabError::system("epoll"))?;
        let watch = |fd: RawFd, what: Watched| {
            epoll
                .add_as(fd, what.number())
                .map_err(LabError::system("a descriptor cannot be watched"))
        };
        watch(held.signals.as_raw_fd(), Watched::Signals)?;
        watch(held.control.as_raw_fd(), Watched::Control)?;
        let subnet = LiveSubnet::new(&plan.experiment.network, &plan.hosts);
        for (place, spaces) in held.spaces.iter_mut().enumerate() {
            watch(spaces.listener.as_raw_fd(), Watched::Attach(place))?;
            // Without a subnet the name is free, so programs do not wait for an answer.
            spaces.management.take_if(|_| subnet.is_none());
            if let Some(listener) = &spaces.management {
                watch(listener.as_raw_fd(), Watched::DeviceFiles(place))?;
            }
            if let Some(tap) = &network.ports[place].tap {
                watch(tap.raw(), Watched::Tap(place))?;
            }
        }
        let lldp = Lldp::new(
            &plan,
            &cables.down(&plan.experiment.network),
            link::lab::monotonic(),
        );
        Ok(Self {
            plan,
            clock,
            world,
            network,
            epoll,
            held,
            commands: BTreeMap::new(),
            greetings: BTreeMap::new(),
            least_delay,
            cables,
            lldp,
            subnet,
            device_files: Connections::default(),
            captures: Vec::new(),
            measurement: Measurement::default(),
            owner: None,
            ends: None,
            stops: false,
        })
    }

    /// Runs until the lab is ended. Returns the connection of the command that ended it.
    pub(crate) fn run(mut self) -> Option<OwnedFd> {
        let (mut active_at, mut looked_at) = (link::lab::monotonic(), 0);
        while !self.stops {
            self.network.active = false;
            self.wake_ports();
            self.advance();
            self.network.flush();
            self.serve_subnet();
            self.serve_lldp();
            self.write_captures();
            self.drop_broken();
            let now = link::lab::monotonic();
            if self.network.active {
                active_at = now;
            }
            if now - looked_at > SOCKETS_EVERY {
                looked_at = now;
                // What has come is worked on before the loop may sleep.
                if self.look(0) {
                    continue;
                }
            }
            if now - active_at > POLLS_FOR {
                self.sleep();
            } else if !self.network.active {
                std::thread::yield_now();
            }
        }
        self.ends
    }

    /// Runs the InfiniBand subnet up to the time of the clock, and hands records to programs.
    fn serve_subnet(&mut self) {
        if let Some(subnet) = &mut self.subnet {
            subnet.run(self.clock.now());
            subnet.follow(&mut self.world, &mut self.network);
            subnet.serve_interfaces(self.clock.now(), &mut self.network);
            self.device_files.answer_resolved(subnet);
            self.device_files.flush(subnet);
        }
    }

    /// The time of the next event of the InfiniBand subnet.
    fn next_of_subnet(&self) -> Time {
        let now = self.clock.now();
        let next = self.subnet.as_ref().map(LiveSubnet::next_event);
        next.map_or(Time::NEVER, |next| {
            next.min(self.device_files.next_try(now))
        })
    }

    /// Passes frames of LLDP between ports, which then operate with what they agree to.
    fn serve_lldp(&mut self) {
        self.lldp.serve(link::lab::monotonic(), &mut self.network);
        self.lldp.apply(&self.plan, &mut self.world, false);
    }

    /// Runs the network up to the time of the clock. A run that is measured begins and ends at its very
    /// moment, however late that is noticed.
    fn advance(&mut self) {
        if let Some((begin, world)) = self.measurement.take_beginning(self.clock.now()) {
            self.world = world;
            if let Some(subnet) = &mut self.subnet {
                subnet.renew();
                subnet.follow(&mut self.world, &mut self.network);
            }
            self.network.restart(self.clock.beginning_at(begin), begin);
            self.network.tracking = Some(self.measurement.take_tracking());
            self.captures
                .iter()
                .for_each(|one| self.world.set_capture(one.link, true, CAPTURED_MAX));
            self.wake_ports();
        }
        if self.measurement.ends_by(self.network.clock.now()) {
            self.world
                .run_live(self.measurement.end(), &mut self.network);
            self.measurement.finish(&self.world, &mut self.network);
        }
        self.world
            .run_live(self.network.clock.now(), &mut self.network);
        self.network.take_payloads();
    }

    /// Has the network poll ports that have a packet, and had none before.
    fn wake_ports(&mut self) {
        for port in &mut self.network.ports {
            if !port.asks && port.has_more() {
                port.asks = true;
                // Packets of devices have stamps; a frame of the kernel enters when it is found, and not at
                // the time that the network had reached when the lab went to sleep.
                let at = if port.has_stamped() {
                    Time(0)
                } else {
                    self.network.clock.now()
                };
                self.world.wake_live(port.host.number, at);
            }
        }
    }

    /// Sleeps until something comes, or something happens in the network.
    fn sleep(&mut self) {
        let ports = &self.network.ports;
        let awake = ports
            .iter()
            .flat_map(|port| &port.devices)
            .filter(|device| device.sleep())
            .count();
        if awake == 0 {
            let until = |clock: &Clock, next: Time| match next {
                Time::NEVER => SLEEP_MAX,
                next => clock.until(next).min(SLEEP_MAX),
            };
            let sleep = until(&self.network.clock, self.world.next_event());
            let sleep = sleep.min(until(&self.clock, self.next_of_subnet()));
            let sleep = sleep.min(self.lldp.next().saturating_sub(link::lab::monotonic()));
            self.look(sleep);
        }
        self.network
            .ports
            .iter()
            .flat_map(|port| &port.devices)
            .for_each(Device::wake);
    }

    /// Looks at descriptors, waiting for `nanoseconds` at most. False when there was nothing.
    fn look(&mut self, nanoseconds: u64) -> bool {
        let mut found = false;
        for number in self.epoll.wait(Some(Duration::from_nanos(nanoseconds))) {
            found = true;
            match Watched::of(number) {
                Watched::Signals => self.stops = true,
                Watched::Control => self.accept_command(),
                Watched::Command(fd) => self.command(fd),
                Watched::Attach(place) => self.accept_device(place),
                Watched::DeviceFiles(place) => self.accept_device_file(place),
                Watched::DeviceFile(fd) => self.read_device_file(fd),
                Watched::Greeting(fd) => self.greet(fd),
                Watched::Device(place, fd) => {
                    let devices = &mut self.network.ports[place].devices;
                    let gone = devices
                        .iter_mut()
                        .any(|device| device.raw() == fd && !device.attend());
                    if gone {
                        let _ = self.epoll.remove(fd);
                        self.network.leave(place, fd);
                    }
                }
                Watched::Tap(place) => {
                    if let Some(tap) = &mut self.network.ports[place].tap {
                        tap.set_readable();
                    }
                }
            }
        }
        found
    }

    fn accept_device_file(&mut self, place: usize) {
        let listener = self.held.spaces[place].management.as_ref();
        let Some(Ok(socket)) = listener.map(|listener| accept(listener.as_raw_fd())) else {
            return;
        };
        let fd = socket.as_raw_fd();
        let host = self.plan.hosts[place].number as usize;
        if self
            .epoll
            .add_as(fd, Watched::DeviceFile(fd).number())
            .is_ok()
        {
            self.device_files.add(socket, host);
        }
    }

    fn read_device_file(&mut self, fd: RawFd) {
        let Some(subnet) = &mut self.subnet else {
            return;
        };
        subnet.count(self.clock.now(), &self.world);
        if self.device_files.read(fd, self.clock.now(), subnet) == Greeted::Ended {
            let _ = self.epoll.remove(fd);
        }
    }

    fn accept_device(&mut self, place: usize) {
        let Ok(socket) = accept(self.held.spaces[place].listener.as_raw_fd()) else {
            return;
        };
        let fd = socket.as_raw_fd();
        if self
            .epoll
            .add_as(fd, Watched::Greeting(fd).number())
            .is_ok()
        {
            self.greetings.insert(fd, (socket, place));
        }
    }

    fn greet(&mut self, fd: RawFd) {
        let Some((socket, place)) = self.greetings.remove(&fd) else {
            return;
        };
        let _ = self.epoll.remove(fd);
        // The connection of a device that is not admitted is closed.
        let welcome = self.network.ports[place]
            .host
            .welcome(self.clock.slowdown());
        let Ok(device) = Device::welcome(socket, &welcome) else {
            return;
        };
        if self
            .epoll
            .add_as(fd, Watched::Device(place, fd).number())
            .is_ok()
        {
            self.network.ports[place].devices.push(device);
        }
    }

    fn detach(&mut self, place: usize, fd: RawFd) {
        let _ = self.epoll.remove(fd);
        self.network.detach(place, fd);
    }

    /// Detaches devices whose memory holds what no device writes.
    fn drop_broken(&mut self) {
        for (host, fd) in std::mem::take(&mut self.network.broken) {
            if let Some(place) = self.network.index_of_host(host) {
                self.detach(place, fd);
            }
        }
    }

    fn accept_command(&mut self) {
        let Ok(socket) = accept(self.held.control.as_raw_fd()) else {
            return;
        };
        let fd = socket.as_raw_fd();
        let is_ours = unix::peer_user(fd).is_ok_and(|user| user == os::user());
        if is_ours
            && self.commands.len() < COMMANDS_MAX
            && self.epoll.add_as(fd, Watched::Command(fd).number()).is_ok()
        {
            self.commands.insert(fd, socket);
        }
    }

    fn command(&mut self, fd: RawFd) {
        let mut bytes = vec![0; MESSAGE_BYTES];
        let length = match unix::receive_now(fd, &mut bytes) {
            Ok(length) if length > 0 => length,
            _ => {
                let _ = self.epoll.remove(fd);
                self.commands.remove(&fd);
                self.stops |= self.owner == Some(fd);
                return;
            }
        };
        let mut fds = Vec::new();
        let answer = match serde_json::from_slice(&bytes[..length]) {
            Ok(Request::Own) => {
                self.owner = Some(fd);
                Answer::Done
            }
            Ok(request) => self.answer(request, &mut fds),
            Err(_) => Answer::Error {
                error: "the command is of another version of rockery".to_owned(),
            },
        };
        inspect::send(fd, answer, &fds);
        if self.stops {
            self.ends = self.commands.remove(&fd);
        }
    }

    fn answer(&mut self, request: Request, fds: &mut Vec<RawFd>) -> Answer {
        match request {
            Request::Status => {
                if let Some(subnet) = &mut self.subnet {
                    subnet.count(self.clock.now(), &self.world);
                }
                Answer::Status(self.status())
            }
            Request::Enter { host } => self.enter(&host, fds),
            Request::Down => {
                self.stops = true;
                Answer::Done
            }
            Request::Link { ends, up } => self.set_link(&ends, up),
            Request::Own => Answer::Done,
            Request::Track { flows } => self.track(&flows),
            Request::Measure { begin_ns, end_ns } => self.measure(begin_ns, end_ns),
            Request::Finish => self.finish(),
            Request::Outcomes { outcomes } => {
                self.measurement.outcomes.extend(outcomes);
                Answer::Done
            }
            Request::Measured => {
                let measured = self.measurement.measured(&self.plan, self.clock.slowdown());
                measured.map_or_else(nothing_measured, |measured| {
                    text(serde_json::to_string(&measured).unwrap_or_default())
                })
            }
            Request::Capture { port, path } => self.capture(&port, path.as_deref()),
            Request::Set { values } => self.set(&values),
            Request::Functions => {
                let adapters = adapters_of(&self.plan.experiment.network);
                text(serde_json::to_string(&adapters).unwrap_or_default())
            }
            Request::Show { switch, command } => {
                let dcbx = self.lldp.table(&self.plan, &switch);
                let (experiment, results) = (&self.plan.experiment, self.world.results());
                let shown = inspect::show(experiment, &results, &switch, &command, dcbx);
                shown.map_or_else(|error| Answer::Error { error }, text)
            }
            Request::Ports => {
                let now_ns = self.clock.now().0 / 1000;
                let ports = Ports::of(&self.plan.experiment, &self.world.results(), now_ns);
                text(serde_json::to_string(&ports).unwrap_or_default())
            }
            Request::Shape => {
                let down = self.cables.down(&self.plan.experiment.network);
                text(serde_json::to_string(&Shape::of(&self.plan, &down)).unwrap_or_default())
            }
            Request::Dcbx => {
                text(serde_json::to_string(&self.lldp.status(&self.plan)).unwrap_or_default())
            }
            Request::Report { json } => {
                let mut report = Report::new(&self.plan.experiment, &self.world.results(), true);
                report.findings.extend(self.lldp.findings(&self.plan));
                report.findings.sort_by_key(|finding| finding.severity);
                text(if json {
                    report.json() + "\n"
                } else {
                    table_so_far(&report)
                })
            }
        }
    }

    fn set_link(&mut self, ends: &[String; 2], up: bool) -> Answer {
        let links = link_changes::links_between(&self.plan.experiment, ends);
        if links.is_empty() {
            return Answer::Error {
                error: format!("no link is between {} and {}", ends[0], ends[1]),
            };
        }
        let before = self.cables.down(&self.plan.experiment.network);
        for link in links {
            if up {
                self.cables.plug(link)
            } else {
                self.cables.pull(link)
            }
        }
        self.set_links(&before);
        Answer::Done
    }

    /// Takes links down and up that are not as before. The kernels of hosts see the state of their cables.
    fn set_links(&mut self, before: &BTreeSet<u32>) {
        let network = &self.plan.experiment.network;
        let after = self.cables.down(network);
        self.lldp.set_links(&after, link::lab::monotonic());
        for link in before.symmetric_difference(&after) {
            self.world.set_link(*link, !after.contains(link));
            if let Some(subnet) = &mut self.subnet {
                subnet.set_cable(self.clock.now(), *link, !after.contains(link));
            }
        }
        // An interface of IP over InfiniBand has a link while its port is in the broadcast group.
        for port in self.network.ports.iter().filter(|port| port.ip.is_none()) {
            if let Some(tap) = &port.tap {
                tap.set_carrier(self.cables.carrier(network, port.host.number));
            }
        }
    }

    fn track(&mut self, flows: &[Numbers]) -> Answer {
        let all = &self.plan.whole.scenario.flows;
        for numbers in flows {
            let Some(flow) = all.get(numbers.flow as usize) else {
                return Answer::Error {
                    error: format!("the file has no flow {}", numbers.flow),
                };
            };
            let out_of_order = self.plan.whole.scenario.hosts[flow.to as usize].out_of_order;
            self.measurement.tracking.add(flow, *numbers, out_of_order);
        }
        Answer::Done
    }

    fn measure(&mut self, begin_ns: u64, end_ns: Option<u64>) -> Answer {
        let at = |ns: u64| Time(ns.saturating_mul(1000));
        match new_world(&self.plan) {
            Ok(mut world) => {
                let down = self.cables.down(&self.plan.experiment.network);
                down.into_iter()
                    .for_each(|link| world.set_link(link, false));
                self.lldp.apply(&self.plan, &mut world, true);
                let end = end_ns.map_or(Time::NEVER, |end| at(end.saturating_sub(begin_ns)));
                self.measurement.begin(at(begin_ns), end, world);
                Answer::Done
            }
            Err(error) => Answer::Error {
                error: error.to_string(),
            },
        }
    }

    fn finish(&mut self) -> Answer {
        self.advance();
        if self.measurement.is_running() {
            self.measurement.finish(&self.world, &mut self.network);
        }
        Answer::Done
    }

    fn set(&mut self, values: &[(String, String)]) -> Answer {
        let plan = match changes::changed(&self.plan, values) {
            Ok(plan) => plan,
            Err(error) => return Answer::Error { error },
        };
        if plan.shortest_delay() < self.least_delay {
            let least = self.least_delay.0 / 1000;
            let error =
                format!("a delay below {least} ns, the shortest when the lab began, cannot be set");
            return Answer::Error { error };
        }
        let links = |plan: &Plan| plan.experiment.scenario.topology.links().to_vec();
        for (number, (before, after)) in (0..).zip(links(&self.plan).into_iter().zip(links(&plan)))
        {
            if before.config != after.config {
                self.world
                    .set_link_config(number, after.ends.map(|end| end.node), after.config);
            }
        }
        let switches = |plan: &Plan| plan.experiment.scenario.switches.clone();
        for (number, (before, after)) in
            (0..).zip(switches(&self.plan).into_iter().zip(switches(&plan)))
        {
            if before != after && !self.world.reconfigure(number, &after) {
                let error = "that would move reserves of a buffer that packets are in".to_owned();
                return Answer::Error { error };
            }
        }
        if let Err(error) = self.network.set_macs(&plan.hosts) {
            return Answer::Error {
                error: format!("a host's kernel does not take the MAC address: {error}"),
            };
        }
        let down = self.cables.down(&self.plan.experiment.network);
        self.plan = plan;
        self.set_links(&down);
        self.network.set_hosts(&self.plan.hosts);
        let cards = self.plan.experiment.scenario.cards.iter();
        cards
            .flat_map(|card| &card.functions)
            .for_each(|function| self.world.set_function(function));
        self.lldp.update(&self.plan, link::lab::monotonic());
        self.lldp.apply(&self.plan, &mut self.world, true);
        Answer::Done
    }

    fn enter(&self, name: &str, fds: &mut Vec<RawFd>) -> Answer {
        let Some(place) = self.plan.hosts.iter().position(|host| host.name == name) else {
            let names: Vec<&str> = self
                .plan
                .hosts
                .iter()
                .map(|host| host.name.as_str())
                .collect();
            let error = format!(
                "no live host is called {name}; there are: {}",
                names.join(", ")
            );
            return Answer::Error { error };
        };
        let spaces = &self.held.spaces[place];
        let namespaces = [
            &self.held.user,
            &self.held.pid,
            &spaces.net,
            &spaces.uts,
            &spaces.ipc,
            &spaces.mnt,
        ];
        fds.extend(namespaces.iter().map(|fd| fd.as_raw_fd()));
        let mut variables = self.plan.hosts[place].variables.clone();
        variables.push((host::settings::LAB.to_owned(), ATTACH.to_owned()));
        variables.push((host::settings::LAB_CLOCK.to_owned(), self.clock.variable()));
        variables.push(("XDG_RUNTIME_DIR".to_owned(), RUNTIME.to_owned()));
        Answer::Enter { variables }
    }

    fn status(&self) -> Status {
        let results = self.world.results();
        let ports = || results.switches.iter().flat_map(|switch| &switch.ports);
        let lateness = self.network.lateness.summary();
        let shortest_link_ns = self.plan.shortest_link().0 / 1000;
        let fabric = &self.plan.experiment.network;
        let function = |host: &LiveHost| {
            let function = host.function?;
            Some(FunctionStatus {
                of: fabric.hosts[function.of as usize].name.clone(),
                vf: function.number,
                up: self.cables.carrier(fabric, host.number),
                dropped: results.hosts[host.number as usize].function_drops,
            })
        };
        let infiniband = |host: &LiveHost| {
            let subnet = self.subnet.as_ref()?;
            Some(subnet.port_status(host.number as usize))
        };
        let hosts = self.network.ports.iter().map(|port| HostStatus {
            name: port.host.name.clone(),
            mac: crate::frame::mac_text(port.host.mac),
            function: function(&port.host),
            infiniband: infiniband(&port.host),
            v4: port.host.v4.to_string(),
            v6: port.host.v6.to_string(),
            learned: port.learned.iter().map(IpAddr::to_string).collect(),
            devices: port.devices.iter().filter(|device| !device.leaves).count() as u32,
            counters: port.counters,
        });
        Status {
            name: self.plan.name.clone(),
            title: self.plan.experiment.file.title.clone(),
            process: std::process::id(),
            now_ns: self.clock.now().0 / 1000,
            slowdown: self.clock.slowdown(),
            valid: lateness.p999_ns <= shortest_link_ns,
            lateness,
            shortest_link_ns,
            dropped: ports()
                .map(|port| port.ingress.dropped.iter().sum::<u64>())
                .sum(),
            pauses: ports().map(|port| port.ingress.pauses_sent).sum(),
            marked: ports()
                .map(|port| {
                    port.queues
                        .iter()
                        .map(|queue| queue.marked_packets)
                        .sum::<u64>()
                })
                .sum(),
            hosts: hosts.collect(),
            dcbx: Vec::new(),
            captured: self
                .captures
                .iter()
                .map(|capture| capture.port.clone())
                .collect(),
            simulated: (self.plan.experiment.network.hosts.len() - self.plan.hosts.len()) as u32,
        }
    }
}

/// The network of a plan.
fn new_world(plan: &Plan) -> Result<World, LabError> {
    let mut world = World::new(&plan.experiment.scenario)?;
    for (number, switch) in (0..).zip(&plan.experiment.network.switches) {
        switch
            .watchdog
            .into_iter()
            .for_each(|watchdog| world.set_watchdog_of(number, watchdog));
    }
    plan.hosts
        .iter()
        .for_each(|host| world.set_live(host.number));
    Ok(world)
}

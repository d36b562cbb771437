//! Captures of a running lab: which ports are captured, and what is written to their files.

use super::Engine;
use crate::capture::{self, CAPTURED_MAX, Capture};
use crate::control::Answer;
use crate::subnet_capture::management_record;
use fabric::Time;
use sim::world::CapturedFrame;

/// Names of ports in a message at most.
const NAMES_MAX: usize = 16;

impl Engine {
    /// Appends what was captured to the files.
    pub(super) fn write_captures(&mut self) {
        if self.captures.is_empty() {
            return;
        }
        let captured = self.world.take_captured();
        let frames = captured.iter().filter_map(|packet| {
            let content = |token, frame: &CapturedFrame| self.network.frame_of(token, frame);
            let frame = capture::frame_of(&self.plan.experiment, packet, content)?;
            Some((packet.link, packet.at, frame))
        });
        let crossed = self
            .subnet
            .as_mut()
            .map(|subnet| subnet.take_crossed(self.clock.now()));
        let managed = crossed.iter().flatten();
        let managed =
            managed.map(|crossed| (crossed.link as u32, crossed.at, management_record(crossed)));
        // Frames of LLDP are Ethernet's.
        let lldp = self.lldp.take_crossed().into_iter();
        let lldp = lldp.filter(|_| crossed.is_none());
        let mut frames: Vec<(u32, Time, Vec<u8>)> = frames.chain(lldp).chain(managed).collect();
        frames.sort_by_key(|(_, at, _)| *at);
        self.network.release_kept();
        if frames.is_empty() {
            return;
        }
        let broken: Vec<String> = self
            .captures
            .iter_mut()
            .filter_map(|capture| (!capture.write(&frames)).then(|| capture.port.clone()))
            .collect();
        broken.iter().for_each(|port| self.end_capture(port));
    }

    /// Begins to write packets of a port to a file, or ends that.
    pub(super) fn capture(&mut self, port: &str, path: Option<&str>) -> Answer {
        let Some((link, _)) = self.plan.experiment.port(port) else {
            let network = &self.plan.experiment.network;
            let ends = network.topology.links().iter().flat_map(|link| link.ends);
            let names: Vec<String> = ends
                .take(NAMES_MAX)
                .map(|end| network.port_name(end))
                .collect();
            let error = format!("no port is called {port}; there are {}", names.join(", "));
            return Answer::Error { error };
        };
        let Some(path) = path else {
            if !self.captures.iter().any(|capture| capture.port == port) {
                return Answer::Error {
                    error: format!("port {port} is not captured"),
                };
            }
            self.end_capture(port);
            return Answer::Done;
        };
        match Capture::new(port, link, path, self.subnet.is_some()) {
            Ok(capture) => {
                self.end_capture(port);
                self.captures.push(capture);
                self.world.set_capture(link, true, CAPTURED_MAX);
                if let Some(subnet) = &mut self.subnet {
                    subnet.set_capture(link, true);
                }
                self.network.keeps = true;
                Answer::Done
            }
            Err(error) => Answer::Error {
                error: format!("{path}: {error}"),
            },
        }
    }

    fn end_capture(&mut self, port: &str) {
        let Some(at) = self
            .captures
            .iter()
            .position(|capture| capture.port == port)
        else {
            return;
        };
        let link = self.captures.remove(at).link;
        if !self.captures.iter().any(|capture| capture.link == link) {
            self.world.set_capture(link, false, CAPTURED_MAX);
            if let Some(subnet) = &mut self.subnet {
                subnet.set_capture(link, false);
            }
        }
        if self.captures.is_empty() {
            self.network.keeps = false;
            self.network.release_kept();
        }
    }
}

//! The queue pairs of flows, connected from the beginning, and what posts their requests.

use super::{ScenarioError, WorldBuilder, poster};
use crate::world::host::{Host, Poster, gid};
use crate::world::link_state::STREAM_FLOWS;
use crate::world::part::Part;
use crate::world::results::Latency;
use crate::world::scenario::{Flow, HostConfig, Transfer};
use crate::world::{collective, storage};
use fabric::{Pcg32, Time};
use rnic::{
    Access, AddressVector, AttrMask, Capacity, Destination, Device, Instant, QpAttr, QpInit,
    QpType, State,
};
use std::collections::VecDeque;
use wire::{Psn, Qpn};

/// READs that a queue pair has under way at once: the limit of adapters.
const READS_MAX: u8 = 16;

/// The two ends of a flow: the host that posts its work requests comes first.
struct FlowEnds {
    hosts: [u32; 2],
    qpns: [Qpn; 2],
}

impl WorldBuilder<'_> {
    /// Makes the queue pairs of all flows.
    pub(super) fn connect(&self, parts: &mut [Part]) -> Result<(), ScenarioError> {
        for (number, flow) in (0_u32..).zip(&self.scenario.flows) {
            if self.scenario.hosts[flow.from as usize].uet.is_some() {
                self.connect_uet(parts, number);
                continue;
            }
            let ends = self.create_pair(parts, flow)?;
            let datagram = self.bring_up_pair(parts, number, &ends)?;
            if matches!(flow.operation, Transfer::Send | Transfer::Datagram) {
                let receiver = self.host(parts, ends.hosts[1]);
                (0..flow.depth).for_each(|_| receiver.post_receive(Time(0), ends.qpns[1]));
            }
            if flow.operation.is_storage() {
                self.add_storage(parts, flow, &ends)?;
                parts
                    .iter_mut()
                    .for_each(|part| part.receiving[number as usize].both_ways = true);
            }
            if flow.operation.is_collective() {
                self.add_pipe(parts, number, &ends);
                parts
                    .iter_mut()
                    .for_each(|part| part.receiving[number as usize].both_ways = true);
            }
            let part = usize::from(self.host_at[ends.hosts[0] as usize].0);
            parts[part].unfinished += 1;
            self.add_poster(parts, number, &ends, datagram);
        }
        Ok(())
    }

    /// Both ends of a flow of Ultra Ethernet's transport, which has no queue pairs.
    fn connect_uet(&self, parts: &mut [Part], number: u32) {
        let flow = &self.scenario.flows[number as usize];
        let random = Pcg32::new(self.scenario.seed, STREAM_FLOWS + u64::from(number));
        if let Some(endpoint) = &mut self.host(parts, flow.from).uet {
            endpoint.add_sender(number, flow.to, random);
        }
        if let Some(endpoint) = &mut self.host(parts, flow.to).uet {
            endpoint.add_receiver(number, flow.from);
        }
        let part = usize::from(self.host_at[flow.from as usize].0);
        parts[part].unfinished += 1;
        let ends = FlowEnds {
            hosts: [flow.from, flow.to],
            qpns: [Qpn::new(0); 2],
        };
        self.add_poster(parts, number, &ends, None);
    }

    fn create_pair(&self, parts: &mut [Part], flow: &Flow) -> Result<FlowEnds, ScenarioError> {
        let poster = poster(flow);
        let other = if poster == flow.from {
            flow.to
        } else {
            flow.from
        };
        let hosts = [poster, other];
        let mut qpns = [Qpn::new(0); 2];
        for (qpn, host) in qpns.iter_mut().zip(hosts) {
            *qpn = self
                .host(parts, host)
                .create(flow, &self.scenario.hosts[flow.from as usize])
                .map_err(|reason| fault(host, reason))?;
        }
        Ok(FlowEnds { hosts, qpns })
    }

    /// Brings both queue pairs to RTS. Returns where a flow of datagrams sends them.
    fn bring_up_pair(
        &self,
        parts: &mut [Part],
        number: u32,
        ends: &FlowEnds,
    ) -> Result<Option<Box<Destination>>, ScenarioError> {
        let flow = &self.scenario.flows[number as usize];
        let FlowEnds { hosts, qpns } = *ends;
        let mut datagram = None;
        for (this, other) in [(0, 1), (1, 0)] {
            let timing = &self.scenario.hosts[hosts[this] as usize];
            let [data, _] = flow.marks.of(timing);
            let attr = attributes(timing, data.dscp, number, hosts[other], qpns[other]);
            if this == 0 && flow.operation == Transfer::Datagram {
                let (vector, qpn) = (attr.vector, attr.destination);
                datagram = Some(Box::new(Destination {
                    vector,
                    qpn,
                    qkey: attr.qkey,
                }));
            }
            let host = self.host(parts, hosts[this]);
            bring_up(&mut host.device, qpns[this], &attr, flow, Instant(0))
                .map_err(|reason| fault(hosts[this], reason))?;
        }
        Ok(datagram)
    }

    /// Lets both hosts take part in a flow of a storage workload.
    fn add_storage(
        &self,
        parts: &mut [Part],
        flow: &Flow,
        ends: &FlowEnds,
    ) -> Result<(), ScenarioError> {
        let FlowEnds { hosts, qpns } = *ends;
        let receives = storage::requests(flow, &self.scenario.hosts[flow.from as usize])[1];
        let keys = hosts.map(|host| self.host(parts, host).keys);
        for (this, other) in [(0, 1), (1, 0)] {
            let host = self.host(parts, hosts[this]);
            (0..receives).for_each(|_| host.post_receive(Time(0), qpns[this]));
            let poster = (this == 0).then_some(host.posters.len() as u32);
            host.store
                .as_mut()
                .ok_or(ScenarioError::NoStorage(hosts[this]))?
                .add(flow, qpns[this], keys[other], poster);
        }
        Ok(())
    }

    /// Gives both hosts their end of a pipe.
    fn add_pipe(&self, parts: &mut [Part], number: u32, ends: &FlowEnds) {
        let plan = self.scenario.collectives.as_ref();
        let Some(pipe) = plan.and_then(|plan| plan.pipe_of(number)) else {
            return;
        };
        let flow = &self.scenario.flows[number as usize];
        let receives = collective::requests(flow)[1];
        let keys = ends.hosts.map(|host| self.host(parts, host).keys);
        for (this, other) in [(0, 1), (1, 0)] {
            let host = self.host(parts, ends.hosts[this]);
            (0..receives).for_each(|_| host.post_receive(Time(0), ends.qpns[this]));
            host.add_pipe(collective::PipeEnd {
                pipe,
                sends: this == 0,
                qpn: ends.qpns[this],
                keys: keys[other],
                messages: flow.messages,
            });
        }
    }

    fn add_poster(
        &self,
        parts: &mut [Part],
        number: u32,
        ends: &FlowEnds,
        datagram: Option<Box<Destination>>,
    ) {
        let flow = self.scenario.flows[number as usize];
        let trace = flow
            .trace
            .and_then(|trace| self.scenario.traces.get(trace as usize));
        let peer = self.host(parts, ends.hosts[1]).keys;
        let host = self.host(parts, ends.hosts[0]);
        // Jobs begin by themselves.
        if !flow.operation.is_collective() {
            host.starts.push(host.posters.len() as u32);
        }
        host.posters.push(Poster {
            flow,
            number,
            qpn: ends.qpns[0],
            peer_qpn: ends.qpns[1],
            datagram,
            peer,
            posted: 0,
            completed: 0,
            errors: 0,
            failed: false,
            posts: VecDeque::new(),
            started: Time::NEVER,
            first_completion: Time::NEVER,
            last_completion: Time::NEVER,
            latency: Latency::default(),
            trace: trace.cloned(),
            handed: 0,
            ready_at: Time::NEVER,
        });
    }
}

impl Host {
    /// A queue pair for one end of a flow.
    fn create(&mut self, flow: &Flow, config: &HostConfig) -> Result<Qpn, rnic::Error> {
        let kind = queue_pair_type(flow);
        let [sends, receives] = match flow.operation {
            Transfer::Send | Transfer::Datagram => [flow.depth, 2 * flow.depth],
            Transfer::StorageRead | Transfer::StorageWrite => storage::requests(flow, config),
            Transfer::Collective => collective::requests(flow),
            _ => [flow.depth, 1],
        };
        self.device.create_qp(&QpInit {
            kind,
            pd: Some(self.pd),
            xrcd: None,
            send_cq: Some(self.cq),
            receive_cq: Some(self.cq),
            srq: None,
            capacity: Capacity {
                send_wr: sends,
                receive_wr: receives,
                send_sge: 1,
                receive_sge: 1,
                inline: 0,
            },
            signal_all: true,
        })
    }
}

fn queue_pair_type(flow: &Flow) -> QpType {
    match flow.operation {
        Transfer::UnreliableWrite => QpType::Uc,
        Transfer::Datagram => QpType::Ud,
        _ => QpType::Rc,
    }
}

fn attributes(config: &HostConfig, dscp: u8, flow: u32, peer: u32, qpn: Qpn) -> QpAttr {
    QpAttr {
        port: 1,
        access: Access::LOCAL_WRITE | Access::REMOTE,
        path_mtu: config.mtu,
        destination: qpn,
        receive_psn: Psn::new(0),
        send_psn: Psn::new(0),
        vector: AddressVector {
            destination: gid(peer),
            hop_limit: 64,
            traffic_class: dscp << 2,
            // The number of the flow: packets carry it, and the UDP source port is made from it.
            flow_label: flow + 1,
            ..AddressVector::default()
        },
        max_rd_atomic: READS_MAX,
        max_dest_rd_atomic: READS_MAX,
        min_rnr_timer: 1,
        timeout: config.timeout,
        retry_count: config.retries,
        rnr_retry: 7,
        ..QpAttr::default()
    }
}

fn bring_up(
    device: &mut Device,
    qpn: Qpn,
    attr: &QpAttr,
    flow: &Flow,
    now: Instant,
) -> Result<(), rnic::Error> {
    use AttrMask as M;
    let kind = queue_pair_type(flow);
    let (mut init, mut receive, mut send) = (M::PKEY_INDEX | M::PORT, M::empty(), M::SQ_PSN);
    match kind {
        QpType::Ud => init |= M::QKEY,
        _ => {
            init |= M::ACCESS_FLAGS;
            receive |= M::AV | M::PATH_MTU | M::DEST_QPN | M::RQ_PSN;
        }
    }
    if kind == QpType::Rc {
        receive |= M::MAX_DEST_RD_ATOMIC | M::MIN_RNR_TIMER;
        send |= M::TIMEOUT | M::RETRY_CNT | M::RNR_RETRY | M::MAX_QP_RD_ATOMIC;
    }
    for (state, mask) in [
        (State::Init, init),
        (State::ReadyToReceive, receive),
        (State::ReadyToSend, send),
    ] {
        device.modify_qp(qpn, &QpAttr { state, ..*attr }, mask | M::STATE, now)?;
    }
    Ok(())
}

fn fault(host: u32, reason: rnic::Error) -> ScenarioError {
    ScenarioError::Device { host, reason }
}

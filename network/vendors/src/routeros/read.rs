//! Texts of RouterOS, read as intents.

use std::collections::BTreeMap;

use super::write::first_lane;
use crate::routeros::{
    QosProfile, QueueSchedule, RouterOsConfig, RouterOsPort, Threshold, TrustMode,
};

use crate::highest_rate::HighestRate;
use crate::intent::{Ecn, Intent, Pause, Port, Queue, Schedule, Trust};
use crate::outcome::Outcomes;
use crate::path_spread::PathSpread;
use crate::text::{ReadError, lines};

/// The rate of one lane of the fastest ports with lanes that MikroTik's switches have.
const LANE_BPS_MAX: u64 = 50_000_000_000;

pub(crate) fn read(file: &str, text: &str) -> Result<(Vec<Intent>, Outcomes), ReadError> {
    // A text that is none is refused.
    lines(file, text, &['#'])?;
    let mut config = RouterOsConfig::default();
    let mut outcomes = config.run_with_outcomes(file, text)?;
    let intents = of_config(&config);
    for port in intents.iter().flat_map(|intent| &intent.ports) {
        let link = config.links.get(&port.name);
        if let Some(line) = link.and_then(|link| link.disabled) {
            outcomes.within(vec![port.name.clone()]);
            outcomes.down(line);
        }
    }
    outcomes.within(Vec::new());
    Ok((intents, outcomes))
}

/// The intents of the ports that a configuration covers. Lanes that are configured alike are one port, which
/// has the name of the first; lanes that differ are ports of their own.
pub(crate) fn of_config(config: &RouterOsConfig) -> Vec<Intent> {
    let untouched = RouterOsPort::default();
    let mut modules: BTreeMap<String, Vec<(&String, &RouterOsPort)>> = BTreeMap::new();
    for (name, port) in config.ports.iter().filter(|(_, port)| **port != untouched) {
        modules
            .entry(first_lane(name))
            .or_default()
            .push((name, port));
    }
    let mut found: Vec<Intent> = Vec::new();
    for (first, mut lanes) in modules {
        // Where the first lane has no settings, it differs from those that have.
        if lanes[0].0 != &first
            && !is_broken_out(&lanes)
            && let Some(lane) = config.ports.get_key_value(&first)
        {
            lanes.insert(0, lane);
        }
        let differ = lanes.iter().any(|(_, port)| *port != lanes[0].1);
        let own = lanes.len().min(if differ { usize::MAX } else { 1 });
        for (name, port) in lanes.into_iter().take(own) {
            found.push(of_port(config, if differ { name } else { &first }, port));
        }
    }
    found
}

/// Whether lanes are links of their own: a rate of a queue that is no more than that of one lane says so.
fn is_broken_out(lanes: &[(&String, &RouterOsPort)]) -> bool {
    let rates = lanes
        .iter()
        .flat_map(|(_, port)| port.egress_rates.into_iter().flatten());
    let highest = rates.max().unwrap_or(0);
    (1..=LANE_BPS_MAX).contains(&highest)
}

fn of_port(config: &RouterOsConfig, name: &str, port: &RouterOsPort) -> Intent {
    let offloaded = config.offloaded;
    let dscp = core::array::from_fn(|value| class_of(config, config.dscp.get(&(value as u8))));
    let pcp = core::array::from_fn(|value| class_of(config, config.pcp.get(&(value as u8))));
    let trust = Trust::of(
        port.trust_l3 != TrustMode::Ignore,
        port.trust_l2 != TrustMode::Ignore,
    );
    let own = config
        .profiles
        .iter()
        .find(|profile| profile.name == port.profile && !profile.disabled);
    let pfc = config
        .pfc
        .iter()
        .find(|profile| profile.name == port.pfc && !profile.disabled);
    // The lanes of a port are one link: what one of them has, the link has.
    let lanes = config
        .links
        .iter()
        .filter(|(lane, _)| first_lane(lane) == first_lane(name));
    let links = || lanes.clone().map(|(_, link)| link);
    let rated = (0..8).fold(0_u8, |mask, queue| {
        mask | u8::from(port.egress_rates[queue].is_some()) << queue
    });
    let mut intent = Intent {
        trust: if offloaded { trust } else { Trust::None },
        dscp,
        pcp,
        default_class: own.filter(|_| offloaded).map_or(0, |own| own.traffic_class),
        remark: own
            .filter(|_| offloaded && !trust.dscp())
            .map(|own| (own.dscp, own.pcp)),
        queues: queues(config, port),
        pfc_send: pfc
            .filter(|pfc| offloaded && pfc.tx)
            .map_or(0, |pfc| pfc.traffic_classes),
        pfc_obey: pfc
            .filter(|pfc| offloaded && pfc.rx)
            .map_or(0, |pfc| pfc.traffic_classes & rated),
        pause: Pause::default(),
        watchdog: None,
        dcbx: config.dcbx,
        mtu: links()
            .filter_map(|link| link.l2mtu.max(link.mtu))
            .max()
            .unwrap_or(1500),
        ports: Vec::new(),
        host: None,
        global_pause: links().any(|link| link.pause),
        spread: PathSpread::Flows,
        unknown: Vec::new(),
    };
    if let Some(pfc) = pfc.filter(|_| intent.pfc_send != 0) {
        let bytes = |own: Threshold| own.bytes(config.shared_bytes());
        intent.pause = Pause {
            xoff: pfc.pause_threshold.map(bytes),
            xon: pfc.resume_threshold.map(bytes),
            headroom: None,
        };
    }
    let mbps = take_rates(&mut intent, port);
    intent.ports.push(Port {
        name: name.to_owned(),
        mbps,
        metres: None,
    });
    intent
}

/// Takes the rates of queues; the speed of the port in Mb/s is the fastest one of queues that obey pauses,
/// which need a rate.
fn take_rates(intent: &mut Intent, port: &RouterOsPort) -> Option<u32> {
    let rate_of = |class: usize| port.egress_rates[class].filter(|bps| *bps > 0);
    let obeys = intent.pfc_obey;
    let obeyed = |class: usize| obeys >> class & 1 == 1;
    let fastest = (0..8)
        .filter(|class| obeyed(*class))
        .filter_map(rate_of)
        .max();
    for (class, queue) in intent.queues.iter_mut().enumerate() {
        let own = rate_of(class).filter(|bps| !(obeyed(class) && Some(*bps) == fastest));
        queue.rate = own.map(HighestRate::of);
    }
    fastest.map(|bps| (bps / 1_000_000) as u32)
}

/// The class of a header's value: that of its profile, or of the profile `default`.
fn class_of(config: &RouterOsConfig, profile: Option<&String>) -> u8 {
    let is_own = |own: &&QosProfile| profile == Some(&own.name) && !own.disabled;
    let found = config.profiles.iter().find(is_own);
    let found = found.or(config.profiles.first());
    found.map_or(0, |found| found.traffic_class)
}

fn queues(config: &RouterOsConfig, port: &RouterOsPort) -> [Queue; 8] {
    let mut queues = [Queue::WEIGHTED; 8];
    let manager = config
        .tx_managers
        .iter()
        .find(|manager| manager.name == port.tx_manager);
    let Some(manager) = manager.filter(|_| config.offloaded) else {
        return queues;
    };
    for (queue, own) in queues.iter_mut().zip(&manager.queues) {
        queue.schedule = match own.schedule {
            QueueSchedule::Strict => Schedule::Strict,
            QueueSchedule::High => Schedule::Weighted(own.weight),
            QueueSchedule::Low => Schedule::Background(own.weight),
        };
        queue.ecn = (own.shared && (manager.ecn || own.ecn)).then_some(Ecn::Automatic);
    }
    queues
}

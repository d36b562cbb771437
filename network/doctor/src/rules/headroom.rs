//! Headroom of lossless classes against the length of the cables.

use fabric::headroom::Headroom;
use fabric::{Rate, Span};

use super::switch::{One, UNKNOWN_DATA};
use super::{Finding, SwitchFacts, cost};
use crate::cost_simulation::{Case, NS_PER_METRE};
use crate::marks::Marks;
use vendors::Area;
use vendors::intent::{Intent, Port};

/// Response time of the peer in nanoseconds, in the headroom that is proposed.
const RESPONSE_NS: u64 = 600;

pub(super) fn check(switch: &SwitchFacts, marks: Marks, found: &mut Vec<Finding>) {
    found.extend(overcommitted(switch, marks));
    for intent in &switch.groups {
        let is_known = intent.pfc_send != 0 && intent.unknown(Area::Pfc).is_none();
        let Some(headroom) = intent.pause.headroom.filter(|_| is_known) else {
            continue;
        };
        let own = One {
            switch,
            intent,
            marks,
        };
        let known = intent.ports.iter().filter_map(Cable::of);
        let Some(cable) = known.max_by_key(Cable::bandwidth_delay) else {
            // Nothing is too little with any cable.
            if headroom == 0 {
                found.push(none(&own));
            }
            continue;
        };
        let least = cable.bytes_on_the_way() + u64::from(intent.mtu);
        if u64::from(headroom) < least {
            found.push(too_small(&own, &cable, headroom, least));
        }
    }
}

/// Pools that are larger than the chip's memory: the driver refuses the lossless groups, and a switch that
/// restarts without loss of traffic (warm reboot) does not come up.
fn overcommitted(switch: &SwitchFacts, marks: Marks) -> Option<Finding> {
    let (pools, own) = switch.pools?;
    let shown = switch.shown.memory.as_ref();
    let memory = shown.map(|shown| shown.value).or(own)?;
    if pools <= memory {
        return None;
    }
    let intent = switch.groups.iter().find(|group| group.pfc_send != 0)?;
    let one = One {
        switch,
        intent,
        marks,
    };
    let what = format!(
        "the pools have {pools} bytes with their headroom (size and xoff), and the chip has {memory}: it \
         refuses lossless groups, which are lossy then"
    );
    let fix = format!(
        "\"BUFFER_POOL\": size and xoff of {memory} bytes at most, together: xoff is not a part of size"
    );
    let seen = one.evidence(&["\"xoff\"", "BUFFER_POOL"]);
    let mut lossy = intent.clone();
    lossy.pfc_send = 0;
    let consequence = match one.case(&lossy).zip(one.case(intent)) {
        Some((now, fixed)) => cost(&now, &fixed),
        None => UNKNOWN_DATA,
    };
    Some(one.say("switch-memory", what, seen, consequence, fix))
}

/// The cable at a port.
struct Cable<'a> {
    port: &'a Port,
    mbps: u32,
    metres: u32,
}

impl<'a> Cable<'a> {
    /// `None` if the rate or the length is not known.
    fn of(port: &'a Port) -> Option<Self> {
        Some(Self {
            port,
            mbps: port.mbps?,
            metres: port.metres?,
        })
    }

    /// The product of rate and length, in proportion to the bytes on the way.
    fn bandwidth_delay(&self) -> u64 {
        u64::from(self.mbps) * u64::from(self.metres)
    }

    /// Bytes that are on both directions of the cable.
    fn bytes_on_the_way(&self) -> u64 {
        2 * u64::from(self.metres) * u64::from(NS_PER_METRE) * u64::from(self.mbps) / 8000
    }
}

/// No headroom at all, with a cable whose length is not known.
fn none(one: &One<'_>) -> Finding {
    let mtu = one.intent.mtu;
    let what = format!(
        "nothing of the buffer is kept for packets that arrive after a pause: one frame alone has {mtu} bytes"
    );
    let fix = "a part of the buffer for lossless classes, and for their headroom".to_owned();
    let seen = one.evidence(&["lossless-headroom", "lossless", "headroom"]);
    let consequence = one.against(|intent| intent.pause.headroom = None);
    one.say("switch-headroom", what, seen, consequence, fix)
}

fn too_small(one: &One<'_>, cable: &Cable<'_>, headroom: u32, least: u64) -> Finding {
    let Cable { port, mbps, metres } = *cable;
    let rate = Rate::from_bps(u64::from(mbps) * 1_000_000);
    let gbps = f64::from(mbps) / 1000.0;
    let needed = Headroom {
        rate,
        delay: Span::from_ns(u64::from(metres) * u64::from(NS_PER_METRE)),
        our_frame_max_bytes: one.intent.mtu,
        peer_frame_max_bytes: one.intent.mtu,
        response: Span::from_ns(RESPONSE_NS),
        cell_bytes: 1,
        frame_min_bytes: 64,
    };
    let needed = needed.bytes();
    let case = |headroom: u32| {
        let mut switch = Intent {
            ..one.intent.clone()
        };
        switch.pause.headroom = Some(headroom);
        let delay_ns = metres.saturating_mul(NS_PER_METRE);
        one.case(&switch).map(|case| Case {
            delay_ns,
            gbps: (mbps / 1000).clamp(1, 800),
            ..case
        })
    };
    let consequence = match case(headroom).zip(case(needed)) {
        Some((now, fixed)) => cost(&now, &fixed),
        None => UNKNOWN_DATA,
    };
    let what = format!(
        "{headroom} bytes of headroom are less than the {least} that {metres} m of cable at {gbps} Gb/s and \
         one frame hold (port {})",
        port.name
    );
    let fix = format!(
        "headroom (xoff of the buffer profile) of {needed} bytes, or the cable's true length"
    );
    let seen = one.evidence(&[&headroom.to_string(), "headroom", "xoff"]);
    one.say("switch-headroom", what, seen, consequence, fix)
}

//! Intents, written for `mlnx_qos`: what fits, and the text.

use std::fmt::Write;

use crate::intent::{Fit, Intent, Schedule};
use crate::linux::write::{fit_host, port_name, write_host};

/// Bits per second of 1 Gb/s, the unit of `--ratelimit`.
pub(super) const GIGABIT: u64 = 1_000_000_000;

/// The largest rate of a traffic class in bits per second.
const RATE_MAX: u64 = 10_000 * GIGABIT;

pub(crate) fn fit(intent: &mut Intent, fit: &mut Fit) {
    fit.host(intent);
    fit.one_trust(intent);
    fit.percents(intent);
    fit.rates(intent, GIGABIT, RATE_MAX);
    if let Some(host) = &mut intent.host
        && host.willing
    {
        fit.add_note("the operating system sets DCB, and not the switch");
        host.willing = false;
    }
    fit_host(intent, fit);
}

pub(crate) fn write(intent: &Intent) -> String {
    let mut text = String::from(
        "# Install as /usr/local/sbin/rockery-roce.sh, which rockery-roce.service runs.\n",
    );
    let port = port_name(intent);
    let trust = if intent.trust.dscp() { "dscp" } else { "pcp" };
    let _ = writeln!(
        text,
        "mlnx_qos -i {port} --dcbx os\nmlnx_qos -i {port} --trust {trust}"
    );
    if intent.trust.dscp() {
        // The default priority of an adapter is the DSCP divided by eight.
        for value in (0..64_u8).filter(|value| intent.dscp[usize::from(*value)] != value / 8) {
            let class = intent.dscp[usize::from(value)];
            let _ = writeln!(text, "mlnx_qos -i {port} --dscp2prio set,{value},{class}");
        }
    }
    let list = |one: &dyn Fn(usize) -> String| (0..8).map(one).collect::<Vec<_>>().join(",");
    let pfc = list(&|class| u8::from(intent.lossless(class as u8)).to_string());
    let tsa = list(&|class| match intent.queues[class].schedule {
        Schedule::Strict => "strict".to_owned(),
        Schedule::Weighted(_) | Schedule::Background(_) => "ets".to_owned(),
    });
    let bandwidth = list(&|class| match intent.queues[class].schedule {
        Schedule::Strict => "0".to_owned(),
        Schedule::Weighted(percent) | Schedule::Background(percent) => percent.to_string(),
    });
    let _ = writeln!(
        text,
        "mlnx_qos -i {port} --pfc {pfc}\n\
         mlnx_qos -i {port} --prio_tc 0,1,2,3,4,5,6,7 --tsa {tsa} --tcbw {bandwidth}"
    );
    if intent.queues.iter().any(|queue| queue.rate.is_some()) {
        // Whole Gb/s; 0 is no limit.
        let rates = list(&|class| {
            let rate = intent.queues[class].rate;
            rate.map_or(0, |rate| rate.bps / GIGABIT).to_string()
        });
        let _ = writeln!(text, "mlnx_qos -i {port} --ratelimit {rates}");
    }
    write_host(&mut text, intent);
    text
}

//! Messages that arrive at random times, with published distributions of lengths.

use super::FLOWS_MAX;
use crate::random::RunRng;
use crate::world::{Flow, Transfer};
use fabric::Time;
use fabric_file::Network;
use fabric_file::schema::{Sizes, Workload};
use units::Ratio;

/// Up to so many bytes, of ten thousand messages so many. Between two entries evenly.
type SizeTable = &'static [(u64, u64)];

/// Alizadeh et al., "Data Center TCP", SIGCOMM 2010, figure 4, as HPCC's authors tabulate it.
const WEB_SEARCH: SizeTable = &[
    (0, 0),
    (10_000, 1_500),
    (20_000, 2_000),
    (30_000, 3_000),
    (50_000, 4_000),
    (80_000, 5_300),
    (200_000, 6_000),
    (1_000_000, 7_000),
    (2_000_000, 8_000),
    (5_000_000, 9_000),
    (10_000_000, 9_700),
    (30_000_000, 10_000),
];

/// Alibaba's block storage, 2019, as HPCC's authors tabulate it.
const STORAGE: SizeTable = &[
    (0, 0),
    (4_000, 2_293),
    (8_000, 6_921),
    (16_000, 8_061),
    (32_000, 9_047),
    (64_000, 9_353),
    (128_000, 9_677),
    (256_000, 9_753),
    (2_000_000, 10_000),
];

/// Messages that arrive at random times, at a load.
pub(super) struct Arrivals<'a> {
    pub(super) workload: &'a Workload,
    pub(super) number: u32,
    pub(super) load: Ratio,
    pub(super) end: Time,
    pub(super) network: &'a Network,
}

/// The messages of each sender, in their order.
pub(super) fn arrivals(
    all: &Arrivals<'_>,
    from: &[u32],
    to: &[u32],
    operation: Transfer,
    rng: &mut RunRng,
) -> Result<Vec<Flow>, String> {
    let rates = super::attached_rates(all.network);
    let load = all.load.0 as f64 / (1_u64 << 32) as f64;
    let table = all.workload.sizes.map(|sizes| match sizes {
        Sizes::WebSearch => WEB_SEARCH,
        Sizes::Storage => STORAGE,
    });
    let mean = table.map_or(all.workload.message.0 as f64, mean);
    let mut flows = Vec::new();
    for sender in from {
        let others: Vec<u32> = to.iter().copied().filter(|host| host != sender).collect();
        if others.is_empty() || load <= 0.0 {
            continue;
        }
        let gap_ps = mean * 8e12 / (rates[*sender as usize].bps() as f64 * load);
        let mut at = all.workload.start.0.0 as f64;
        loop {
            at += rng.exponential(gap_ps);
            if at >= all.end.0 as f64 {
                break;
            }
            if flows.len() >= FLOWS_MAX {
                return Err(format!("more than {FLOWS_MAX} messages come"));
            }
            let bytes = table.map_or(all.workload.message.0, |table| length(table, rng));
            flows.push(Flow {
                operation,
                start: Time(at as u64),
                workload: all.number,
                ..Flow::write(
                    *sender,
                    rng.pick(&others),
                    u32::try_from(bytes.max(1)).unwrap_or(1 << 30),
                )
            });
        }
    }
    if flows.is_empty() {
        Err("nothing comes".to_owned())
    } else {
        Ok(flows)
    }
}

fn mean(table: SizeTable) -> f64 {
    let piece =
        |pair: &[(u64, u64)]| (pair[1].1 - pair[0].1) as f64 * (pair[0].0 + pair[1].0) as f64 / 2e4;
    table.windows(2).map(piece).sum()
}

fn length(table: SizeTable, rng: &mut RunRng) -> u64 {
    let throw = rng.below(10_000 << 20);
    let at = table.windows(2).find(|pair| throw < pair[1].1 << 20);
    let Some(&[(from, low), (to, high)]) = at else {
        return 1;
    };
    let part = u128::from(throw - (low << 20));
    from + (u128::from(to - from) * part / u128::from((high - low) << 20)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_as_the_tables_say() {
        for (table, average) in [(WEB_SEARCH, 1_711_250.0), (STORAGE, 40_000.0)] {
            assert!(
                (mean(table) / average - 1.0).abs() < 0.25,
                "{}",
                mean(table)
            );
            let mut rng = RunRng::new(3);
            let thrown: Vec<u64> = (0..40_000).map(|_| length(table, &mut rng)).collect();
            let sum: u64 = thrown.iter().sum();
            assert!((sum as f64 / 4e4 / mean(table) - 1.0).abs() < 0.03);
            for (bytes, part) in table {
                let below = thrown.iter().filter(|length| *length <= bytes).count() as f64 / 4e4;
                assert!(
                    (below - *part as f64 / 1e4).abs() < 0.01,
                    "{bytes}: {below}"
                );
            }
        }
    }
}

//! Why latency grows with depth: a closed queueing network of one station and a delay, by mean value analysis
//! (Reiser and Lavenberg, 1980).
//!
//! The station is what takes one command at a time, with the service time that the highest rate shows; the
//! delay is the rest of what one command alone takes. Where depth only fills the delay, latency does not grow
//! and the rate does; from there on each further command only waits.

/// Latency in microseconds with 1, 2, … `depth` commands at once.
pub(crate) fn latencies(alone_us: f64, service_us: f64, depth: usize) -> Vec<f64> {
    let delay = (alone_us - service_us).max(0.0);
    let mut waiting = 0.0;
    (1..=depth)
        .map(|commands| {
            let at_station = service_us * (1.0 + waiting);
            let latency = at_station + delay;
            let rate = commands as f64 / latency;
            waiting = rate * at_station;
            latency
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_command_takes_what_it_takes_and_many_wait_for_the_station() {
        let found = latencies(10.0, 1.0, 100);
        assert!((found[0] - 10.0).abs() < 1e-9);
        // Little's law with the station always busy.
        assert!((found[99] - 100.0).abs() < 0.5, "{}", found[99]);
        assert!(found.windows(2).all(|pair| pair[0] <= pair[1]));
        assert_eq!(latencies(1.0, 2.0, 1), [2.0]);
    }
}

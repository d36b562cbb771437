//! Static rates (`ibv_rate`). Programs convert them; the device does not limit a queue pair by them.

use ffi::exports;

/// Value of `ibv_rate`, multiple of 2.5 Gb/s (-1 where it is none), rate in Mb/s.
const RATES: [(i32, i32, i32); 23] = [
    (2, 1, 2_500),
    (5, 2, 5_000),
    (3, 4, 10_000),
    (6, 8, 20_000),
    (4, 12, 30_000),
    (7, 16, 40_000),
    (8, 24, 60_000),
    (9, 32, 80_000),
    (10, 48, 120_000),
    (11, -1, 14_062),
    (12, -1, 56_250),
    (13, -1, 112_500),
    (14, -1, 168_750),
    (15, -1, 25_781),
    (16, -1, 103_125),
    (17, -1, 206_250),
    (18, -1, 309_375),
    (19, 11, 28_125),
    (20, 20, 53_125),
    (21, 160, 425_000),
    (22, 240, 637_500),
    (23, 320, 850_000),
    (24, 480, 1_275_000),
];

/// `IBV_RATE_MAX`: no limit.
const MAX: i32 = 0;

fn rate_entry(rate: i32) -> Option<&'static (i32, i32, i32)> {
    RATES.iter().find(|(value, _, _)| *value == rate)
}

exports! {
    fn ibv_rate_to_mult(rate: i32) -> plain(i32) {
        rate_entry(rate).map_or(-1, |(_, multiple, _)| *multiple)
    }

    fn mult_to_ibv_rate(multiple: i32) -> plain(i32) {
        let found = RATES.iter().find(|(_, known, _)| multiple > 0 && *known == multiple);
        found.map_or(MAX, |(rate, _, _)| *rate)
    }

    fn ibv_rate_to_mbps(rate: i32) -> plain(i32) {
        rate_entry(rate).map_or(-1, |(_, _, mbps)| *mbps)
    }

    fn mbps_to_ibv_rate(mbps: i32) -> plain(i32) {
        RATES.iter().find(|(_, _, known)| *known == mbps).map_or(MAX, |(rate, _, _)| *rate)
    }
}

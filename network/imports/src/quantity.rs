//! Quantities as ns-3 has them.

use fabric::{Rate, Span};

/// A number and what is behind it.
fn split(text: &str) -> Option<(f64, &str)> {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    Some((number.parse().ok()?, unit))
}

/// The whole number next to a value, if it has one.
fn whole(value: f64) -> Option<u64> {
    // Above this, numbers with decimals have gaps between whole ones.
    const MOST: f64 = 9_007_199_254_740_992.0;
    let rounded = value.round();
    (0.0..=MOST).contains(&rounded).then_some(rounded as u64)
}

/// A rate such as `100Gbps` or `50Mb/s`; a number alone is bits per second.
pub(crate) fn rate(text: &str) -> Option<Rate> {
    let (number, unit) = split(text)?;
    let unit = unit.strip_suffix("ps").or(unit.strip_suffix("/s"));
    let (prefix, bits) = match unit {
        None if text.ends_with(|c: char| c.is_ascii_digit()) => ("", 1.0),
        None => return None,
        Some(unit) => match (unit.strip_suffix('b'), unit.strip_suffix('B')) {
            (Some(prefix), _) => (prefix, 1.0),
            (_, Some(prefix)) => (prefix, 8.0),
            _ => return None,
        },
    };
    let factor = match prefix {
        "" => 1.0,
        "k" | "K" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        "Ki" => 1024.0,
        "Mi" => 1_048_576.0,
        "Gi" => 1_073_741_824.0,
        _ => return None,
    };
    let rate = whole(number * factor * bits).filter(|bps| *bps > 0)?;
    Some(Rate::from_bps(rate))
}

/// A time such as `0.001ms` or `500ns`; a number alone is seconds.
pub(crate) fn time(text: &str) -> Option<Span> {
    let (number, unit) = split(text)?;
    let factor = match unit {
        "ps" => 1.0,
        "ns" => 1e3,
        "us" => 1e6,
        "ms" => 1e9,
        "s" | "" => 1e12,
        _ => return None,
    };
    whole(number * factor).map(Span)
}

/// Seconds with decimals, in nanoseconds.
pub(crate) fn seconds_ns(seconds: f64) -> Option<u64> {
    whole(seconds * 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_times_have_the_units_of_ns3() {
        for (text, bps) in [
            ("100Gbps", 100_000_000_000),
            ("2880Gbps", 2_880_000_000_000),
            ("50Mb/s", 50_000_000),
            ("0.5Gbps", 500_000_000),
            ("1GBps", 8_000_000_000),
            ("25000000000", 25_000_000_000),
        ] {
            assert_eq!(rate(text), Some(Rate::from_bps(bps)), "{text}");
        }
        for (text, ps) in [
            ("0.001ms", 1_000_000),
            ("0.000025ms", 25_000),
            ("1000ns", 1_000_000),
            ("2", 2_000_000_000_000),
        ] {
            assert_eq!(time(text), Some(Span(ps)), "{text}");
        }
        for text in ["", "Gbps", "0Gbps", "1Xbps", "-1Gbps", "1e400Gbps"] {
            assert_eq!(rate(text), None, "{text}");
        }
        for text in ["ms", "1 h", "9e99s", "99999999999999999999s"] {
            assert_eq!(time(text), None, "{text}");
        }
    }
}

//! Values in rules: times, sizes, ratios, error numbers.

use crate::RuleError;
use core::fmt;
use core::time::Duration;

/// Units of time, longest first.
const TIMES: &[(&str, u64)] = &[
    ("min", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

/// Units of sizes, largest first.
const SIZES: &[(&str, u64)] = &[
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
    ("B", 1),
];

/// A number before a unit, with digits and at most one point.
fn with_unit(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let end = text.find(|digit: char| !digit.is_ascii_digit() && digit != '.')?;
    let (number, unit) = text.split_at(end);
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || part.len() > 9 || (number.contains('.') && part.is_empty()) {
        return None;
    }
    let scaled = whole.parse::<u64>().ok()?.checked_mul(*factor)?;
    let divisor = 10_u128.pow(part.len() as u32);
    let part = match part {
        "" => 0,
        digits => u128::from(digits.parse::<u64>().ok()?) * u128::from(*factor) / divisor,
    };
    scaled.checked_add(part as u64)
}

/// The shortest exact text of a value in one of the units; the last unit is 1.
fn in_unit(value: u64, units: &[(&str, u64)]) -> String {
    let exact = units
        .iter()
        .find(|(_, factor)| value != 0 && value.is_multiple_of(*factor));
    let (name, factor) = exact.or(units.last()).copied().unwrap_or(("", 1));
    format!("{}{name}", value / factor)
}

/// A time with its unit, such as `10us`.
pub(crate) fn time(text: &str) -> Result<Duration, RuleError> {
    let wrong = || {
        RuleError::wrong(
            "time",
            text,
            "write a number with ns, us, ms, s or min: 10us",
        )
    };
    with_unit(text, TIMES)
        .map(Duration::from_nanos)
        .ok_or_else(wrong)
}

/// The text of a time.
pub(crate) fn time_text(time: Duration) -> String {
    in_unit(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), TIMES)
}

/// Units of rates, in bits per second.
const RATES: &[(&str, u64)] = &[
    ("Gb/s", 1_000_000_000),
    ("Mb/s", 1_000_000),
    ("kb/s", 1_000),
    ("b/s", 1),
];

/// A rate in bits per second.
pub(crate) fn rate(text: &str) -> Result<u64, RuleError> {
    let wrong = || {
        RuleError::wrong(
            "rate",
            text,
            "write a number with Gb/s, Mb/s, kb/s or b/s: 1Gb/s",
        )
    };
    with_unit(text, RATES)
        .filter(|rate| *rate > 0)
        .ok_or_else(wrong)
}

/// The text of a rate.
pub(crate) fn rate_text(rate: u64) -> String {
    in_unit(rate, RATES)
}

/// A number of bytes, with or without its unit.
pub(crate) fn size(text: &str) -> Result<u64, RuleError> {
    let wrong = || RuleError::wrong("size", text, "write bytes, as in 4096 or 4KiB");
    text.parse()
        .ok()
        .or_else(|| with_unit(text, SIZES))
        .ok_or_else(wrong)
}

/// The smallest and the largest size of `4096`, `4KiB..`, `..64` or `1..100`.
pub(crate) fn sizes(text: &str) -> Result<(u64, u64), RuleError> {
    let Some((from, to)) = text.split_once("..") else {
        return size(text).map(|size| (size, size));
    };
    let from = if from.is_empty() { 0 } else { size(from)? };
    let to = if to.is_empty() { u64::MAX } else { size(to)? };
    if from > to {
        return Err(RuleError::Never(format!("no size is in {text}")));
    }
    Ok((from, to))
}

/// The text of a range of sizes.
pub(crate) fn sizes_text(from: u64, to: u64) -> String {
    match (from, to) {
        (from, to) if from == to => from.to_string(),
        (from, u64::MAX) => format!("{from}.."),
        (from, to) => format!("{from}..{to}"),
    }
}

/// A whole number.
pub(crate) fn number(text: &str, what: &'static str) -> Result<u64, RuleError> {
    let hex = text.strip_prefix("0x");
    let parsed = hex.map_or_else(|| text.parse(), |digits| u64::from_str_radix(digits, 16));
    parsed.map_err(|_| RuleError::wrong(what, text, "write a whole number, as in 100 or 0x64"))
}

/// A whole number of at least 1.
pub(crate) fn count(text: &str, what: &'static str) -> Result<u64, RuleError> {
    match number(text, what)? {
        0 => Err(RuleError::wrong(what, text, "write 1 or more")),
        count => Ok(count),
    }
}

/// A probability as a ratio of integers, so that no rounding decides: `1%`, `0.01`, `1/100`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ratio {
    /// Occasions on which something happens,
    pub part: u64,
    /// of so many. Not 0.
    pub whole: u64,
}

impl Ratio {
    /// Reads a probability of more than 0 and at most 1.
    pub(crate) fn parse(text: &str) -> Result<Self, RuleError> {
        let remedy = "write more than 0 and at most 1, as in 1%, 0.01 or 1/100";
        let wrong = || RuleError::wrong("probability", text, remedy);
        let ratio = match (text.strip_suffix('%'), text.split_once('/')) {
            (Some(percent), _) => Self::decimal(percent, 100),
            (None, Some((part, whole))) => match (part.parse(), whole.parse()) {
                (Ok(part), Ok(whole)) => Some(Self { part, whole }),
                _ => None,
            },
            (None, None) => Self::decimal(text, 1),
        };
        ratio
            .filter(|ratio| ratio.part > 0 && ratio.part <= ratio.whole)
            .ok_or_else(wrong)
    }

    fn decimal(text: &str, whole: u64) -> Option<Self> {
        let (digits, part) = text.split_once('.').unwrap_or((text, ""));
        let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if !is_plain(digits) || !is_plain(part) || part.len() > 9 || digits.len() > 3 {
            return None;
        }
        let part = part.trim_end_matches('0');
        let joined = format!("{digits}{part}").parse().ok()?;
        let whole = 10_u64.pow(part.len() as u32).checked_mul(whole)?;
        Some(Self {
            part: joined,
            whole,
        })
    }

    /// Whether something happens, for a uniformly distributed number.
    pub(crate) fn includes(self, random: u64) -> bool {
        u128::from(random) * u128::from(self.whole) < u128::from(self.part) << 64
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.part, self.whole)
    }
}

macro_rules! errnos {
    ($($name:ident)*) => {
        /// Error numbers by name.
        const ERRNOS: &[(&str, i32)] = &[$((stringify!($name), libc::$name)),*];
    };
}

errnos! {
    ENOMEM EINVAL EAGAIN EBUSY EIO ENODEV ENOSPC EFAULT EPERM EACCES EOPNOTSUPP ENOSYS EINTR ETIMEDOUT
    ENOENT ENXIO E2BIG EBADF EEXIST ENFILE EMFILE EFBIG ERANGE EMSGSIZE ENOBUFS EPROTONOSUPPORT EPROTO
    EADDRINUSE EADDRNOTAVAIL ENETDOWN ENETUNREACH ECONNABORTED ECONNRESET ECONNREFUSED EISCONN ENOTCONN
    EHOSTDOWN EHOSTUNREACH EALREADY EINPROGRESS ESTALE EREMOTEIO ECANCELED EOVERFLOW ENODATA
}

/// The highest error number of Linux (`MAX_ERRNO`).
const ERRNO_MAX: i32 = 4095;

/// An error number, by name or as a number.
pub(crate) fn errno(text: &str) -> Result<i32, RuleError> {
    if let Some((_, number)) = ERRNOS.iter().find(|(name, _)| *name == text) {
        return Ok(*number);
    }
    let number = text.parse().ok().filter(|n| (1..=ERRNO_MAX).contains(n));
    number.ok_or_else(|| {
        let known = ERRNOS.iter().map(|(name, _)| *name);
        let remedy = match crate::names::closest(text, known) {
            Some(name) => format!("did you mean {name}?"),
            None => {
                "write a name of errno(3), such as ENOMEM, EAGAIN or EIO, or its number".to_owned()
            }
        };
        RuleError::wrong("error number", text, remedy)
    })
}

/// The name of an error number, or the number.
pub(crate) fn errno_text(errno: i32) -> String {
    let found = ERRNOS.iter().find(|(_, number)| *number == errno);
    found.map_or_else(|| errno.to_string(), |(name, _)| (*name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_sizes_are_exact() {
        for (text, ns) in [
            ("1ns", 1),
            ("1.5us", 1500),
            ("2s", 2_000_000_000),
            ("0s", 0),
        ] {
            assert_eq!(time(text), Ok(Duration::from_nanos(ns)), "{text}");
        }
        for text in [
            "",
            "5",
            "s",
            ".5s",
            "5.s",
            "-1s",
            "1h",
            "99999999999999min",
            "1 s",
        ] {
            assert!(time(text).is_err(), "{text}");
        }
        assert_eq!(time_text(Duration::from_micros(1500)), "1500us");
        assert_eq!(time_text(Duration::ZERO), "0ns");
        assert_eq!((size("4KiB"), size("4096")), (Ok(4096), Ok(4096)));
        assert_eq!(sizes("4KiB.."), Ok((4096, u64::MAX)));
        assert_eq!(sizes("..64"), Ok((0, 64)));
        assert!(matches!(sizes("5..4"), Err(RuleError::Never(_))));
    }

    #[test]
    fn probabilities_are_ratios() {
        let ratio = |part, whole| Ok(Ratio { part, whole });
        assert_eq!(Ratio::parse("1%"), ratio(1, 100));
        assert_eq!(Ratio::parse("0.25"), ratio(25, 100));
        assert_eq!(Ratio::parse("12.5%"), ratio(125, 1000));
        assert_eq!(Ratio::parse("3/7"), ratio(3, 7));
        assert_eq!(Ratio::parse("1"), ratio(1, 1));
        for text in ["0", "101%", "2", "1/0", "-1", "x", "", "1e-3", "5/3"] {
            assert!(Ratio::parse(text).is_err(), "{text}");
        }
        let one = Ratio { part: 1, whole: 1 };
        assert!(one.includes(u64::MAX) && one.includes(0));
        let half = Ratio { part: 1, whole: 2 };
        assert!(half.includes((1 << 63) - 1) && !half.includes(1 << 63));
    }

    #[test]
    fn error_numbers_have_names() {
        assert_eq!(errno("ENOMEM"), Ok(libc::ENOMEM));
        assert_eq!(errno("12"), Ok(12));
        let error = errno("ENOMEN").unwrap_err().to_string();
        assert_eq!(error, "`ENOMEN` is no error number: did you mean ENOMEM?");
        assert!(errno("0").is_err() && errno("4096").is_err());
        assert_eq!(
            (errno_text(libc::EIO), errno_text(4000)),
            ("EIO".into(), "4000".into())
        );
    }
}

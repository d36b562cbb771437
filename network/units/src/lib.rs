//! Quantities in text form: a number and its unit. A number alone is refused, since its unit would be
//! ambiguous.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::borrow::{Cow, ToOwned};
use alloc::format;
use alloc::string::{String, ToString};
use core::fmt;
use fabric::{RATE_BPS_MAX, RATE_BPS_MIN, Rate, Span};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A quantity with its text form.
pub trait Quantity: Sized {
    /// The name of the quantity in messages and in the documentation.
    const NAME: &'static str;
    /// The accepted forms, with examples.
    const GRAMMAR: &'static str;
    /// Parses the text; `None` when it is something else or out of range.
    fn parse(text: &str) -> Option<Self>;
    /// Converts a number without a unit, where only one unit is possible.
    fn from_number(_number: f64) -> Option<Self> {
        None
    }
}

/// A bit rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bandwidth(pub Rate);

/// Floating-point operations per second.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ComputeRate(pub u64);

/// A span of time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Timespan(pub Span);

/// A number of bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Size(pub u64);

/// The length of a cable, in millimetres.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Length(pub u64);

/// A part of one, in units of 2^-32.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ratio(pub u64);

/// The chance that a bit arrives wrong, in units of 2^-64.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct BitErrors(pub u64);

/// Width and speed of an InfiniBand link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InfinibandSpeed(pub infiniband::LinkSpeed);

/// A GUID of InfiniBand (EUI-64), which is not 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Guid(pub u64);

/// How much of a buffer may be used: see [`fabric::config::Limit`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Threshold(pub fabric::config::Limit);

/// A size, or `None` for the one that is needed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeadroomSize(pub Option<u32>);

/// [`Ratio`] of the whole.
const WHOLE: u64 = 1 << 32;

/// Bit errors are read in units of 1/2^56, so that digits before the exponent fit as well.
const BIT_ERRORS_SHIFT: u32 = 8;

/// [`BitErrors`] of the whole.
const BITS_WHOLE: f64 = 18_446_744_073_709_551_616.0;

/// Picoseconds per metre of cable: light in fibre, whose refractive index is about 1.5, and in copper much
/// the same (802.1Q annex N reckons with it as well).
const PS_PER_METRE: u64 = 5_000;

/// Decimals are read to this many places.
const DECIMALS_MAX: usize = 12;

const TIMES: &[(&str, u128)] = &[
    ("ps", 1),
    ("ns", 1_000),
    ("\u{b5}s", 1_000_000),
    ("\u{3bc}s", 1_000_000),
    ("us", 1_000_000),
    ("ms", 1_000_000_000),
    ("s", 1_000_000_000_000),
    ("min", 60_000_000_000_000),
];

const SIZES: &[(&str, u128)] = &[
    ("B", 1),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
];

/// In bits per second. `Gbps` and `G` are what vendors write.
const RATES: &[(&str, u128)] = &[
    ("Tb/s", 1_000_000_000_000),
    ("Gb/s", 1_000_000_000),
    ("Mb/s", 1_000_000),
    ("kb/s", 1_000),
    ("b/s", 1),
    ("Tbps", 1_000_000_000_000),
    ("Gbps", 1_000_000_000),
    ("Mbps", 1_000_000),
    ("GB/s", 8_000_000_000),
    ("MB/s", 8_000_000),
    ("T", 1_000_000_000_000),
    ("G", 1_000_000_000),
    ("M", 1_000_000),
];

const COMPUTE_RATES: &[(&str, u128)] = &[
    ("FLOP/s", 1),
    ("GFLOP/s", 1_000_000_000),
    ("TFLOP/s", 1_000_000_000_000),
    ("PFLOP/s", 1_000_000_000_000_000),
];

const LENGTHS: &[(&str, u128)] = &[("mm", 1), ("cm", 10), ("m", 1_000), ("km", 1_000_000)];

/// A number with its unit, in units of the table; rounded to the nearest.
fn quantity(text: &str, units: &[(&str, u128)]) -> Option<u64> {
    let text = text.trim();
    let end = text
        .find(|c: char| !c.is_ascii_digit() && !matches!(c, '.' | '_'))
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let unit = unit.trim_start();
    let (_, scale) = units.iter().find(|(name, _)| *name == unit)?;
    decimal(number, *scale)
}

/// `number` times `scale`, rounded to the nearest.
fn decimal(number: &str, scale: u128) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = |text: &str| {
        text.bytes()
            .filter(|byte| *byte != b'_')
            .collect::<alloc::vec::Vec<u8>>()
    };
    let (whole, fraction) = (digits(whole), digits(fraction));
    if whole.is_empty() || fraction.len() > DECIMALS_MAX {
        return None;
    }
    let mut value: u128 = 0;
    for digit in whole.iter().chain(&fraction) {
        value = value
            .checked_mul(10)?
            .checked_add(u128::from(digit.checked_sub(b'0').filter(|d| *d < 10)?))?;
    }
    let divisor = 10_u128.pow(fraction.len() as u32);
    let scaled = value.checked_mul(scale)?.checked_add(divisor / 2)? / divisor;
    u64::try_from(scaled).ok()
}

/// A part: `0.2`, `20%` or `1/256`, in units of 1/`whole`.
fn part(text: &str, whole: u64) -> Option<u64> {
    let text = text.trim();
    if let Some(percent) = text.strip_suffix('%') {
        return Some(
            (u128::from(decimal(percent.trim_end(), u128::from(whole) * 1000)?) / 1000 / 100)
                as u64,
        );
    }
    if let Some((over, under)) = text.split_once('/') {
        let (over, under): (u64, u64) = (over.trim().parse().ok()?, under.trim().parse().ok()?);
        return u64::try_from(
            (u128::from(over) * u128::from(whole)).checked_div(u128::from(under))?,
        )
        .ok();
    }
    if let Some((mantissa, exponent)) = text.split_once(['e', 'E']) {
        let exponent: i32 = exponent.parse().ok()?;
        let divisor = 10_u128.checked_pow(exponent.checked_neg()?.try_into().ok()?)?;
        return Some((u128::from(decimal(mantissa, u128::from(whole))?) / divisor) as u64);
    }
    decimal(text, u128::from(whole))
}

/// The largest unit in which the value is whole, and then the value.
fn in_units(value: u64, units: &[(&'static str, u128)]) -> String {
    let whole = |scale: u128| value != 0 && u128::from(value) % scale == 0;
    let best = units
        .iter()
        .filter(|(_, scale)| whole(*scale))
        .max_by_key(|(_, scale)| *scale);
    let (name, scale) = best.copied().unwrap_or(units[0]);
    format!("{}{name}", u128::from(value) / scale)
}

impl Quantity for Bandwidth {
    const NAME: &'static str = "a rate";
    const GRAMMAR: &'static str = "\"100Gb/s\", \"2.5Gb/s\" or \"800Mb/s\"";
    fn parse(text: &str) -> Option<Self> {
        let bps = quantity(text, RATES)?;
        (RATE_BPS_MIN..=RATE_BPS_MAX)
            .contains(&bps)
            .then(|| Self(Rate::from_bps(bps)))
    }
}

impl Quantity for ComputeRate {
    const NAME: &'static str = "a rate of floating-point operations";
    const GRAMMAR: &'static str = "\"312TFLOP/s\" or \"1.98PFLOP/s\"";
    fn parse(text: &str) -> Option<Self> {
        let rate = quantity(text, COMPUTE_RATES)?;
        (rate > 0).then_some(Self(rate))
    }
}

impl Quantity for Timespan {
    const NAME: &'static str = "a time";
    const GRAMMAR: &'static str = "\"600ns\", \"5us\", \"1.5ms\" or \"2s\"";
    fn parse(text: &str) -> Option<Self> {
        quantity(text, TIMES).map(|ps| Self(Span(ps)))
    }
}

impl Quantity for Size {
    const NAME: &'static str = "a size";
    const GRAMMAR: &'static str = "\"64KiB\", \"8MiB\" or \"10MB\" (KiB is 1024 bytes, kB is 1000)";
    fn parse(text: &str) -> Option<Self> {
        quantity(text, SIZES).map(Self)
    }
}

impl Quantity for Length {
    const NAME: &'static str = "a length";
    const GRAMMAR: &'static str = "\"3m\" or \"2km\"";
    fn parse(text: &str) -> Option<Self> {
        quantity(text, LENGTHS).map(Self)
    }
}

impl Length {
    /// Propagation delay of the cable.
    pub const fn delay(self) -> Span {
        Span(self.0.saturating_mul(PS_PER_METRE / 1_000))
    }
}

impl Quantity for Ratio {
    const NAME: &'static str = "a part of the whole";
    const GRAMMAR: &'static str = "\"20%\", \"1/256\", \"1e-6\" or 0.2";
    fn parse(text: &str) -> Option<Self> {
        part(text, WHOLE).filter(|part| *part <= WHOLE).map(Self)
    }
    fn from_number(number: f64) -> Option<Self> {
        (0.0..=1.0)
            .contains(&number)
            .then_some(Self((number * WHOLE as f64) as u64))
    }
}

impl Ratio {
    /// The ratio as a 32-bit chance, in which certainty is one less than the whole.
    pub const fn chance(self) -> u32 {
        if self.0 >= WHOLE {
            u32::MAX
        } else {
            self.0 as u32
        }
    }
}

impl Quantity for BitErrors {
    const NAME: &'static str = "a bit error rate";
    const GRAMMAR: &'static str = "\"1e-12\" or 1e-12 (at most 1e-6)";
    fn parse(text: &str) -> Option<Self> {
        let units = part(text, 1 << (u64::BITS - BIT_ERRORS_SHIFT))?;
        let rate = units.checked_mul(1 << BIT_ERRORS_SHIFT)?;
        (rate <= fabric::topology::BIT_ERRORS_MAX).then_some(Self(rate))
    }
    fn from_number(number: f64) -> Option<Self> {
        let rate = (number >= 0.0).then_some((number * BITS_WHOLE) as u64)?;
        (rate <= fabric::topology::BIT_ERRORS_MAX).then_some(Self(rate))
    }
}

impl Quantity for InfinibandSpeed {
    const NAME: &'static str = "a speed of InfiniBand";
    const GRAMMAR: &'static str = "\"4x QDR\" or \"12x EDR\" (1x, 2x, 4x, 8x or 12x; SDR, DDR, QDR, \
        FDR10, FDR, EDR, HDR, NDR or XDR)";
    fn parse(text: &str) -> Option<Self> {
        infiniband::LinkSpeed::parse(text.trim()).map(Self)
    }
}

impl Quantity for Guid {
    const NAME: &'static str = "a GUID";
    const GRAMMAR: &'static str = "\"0x0002c90300001234\" or \"0002:c903:0000:1234\", and not 0";
    fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let digits: String = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
            Some(digits) => digits.to_owned(),
            None => {
                let groups = text.split(':');
                let whole = groups.clone().count() == 4 && groups.clone().all(|g| g.len() == 4);
                whole.then(|| groups.collect())?
            }
        };
        let plain = digits.bytes().all(|digit| digit.is_ascii_hexdigit()) && digits.len() <= 16;
        let number = plain.then(|| u64::from_str_radix(&digits, 16).ok())??;
        (number != 0).then_some(Self(number))
    }
}

impl Quantity for Threshold {
    const NAME: &'static str = "a limit";
    const GRAMMAR: &'static str =
        "\"256KiB\", \"alpha 1/8\" (of what is free of the shared buffer) or \"none\"";
    fn parse(text: &str) -> Option<Self> {
        use fabric::config::{ALPHA_ONE, Limit};
        let limit = match text.trim().strip_prefix("alpha") {
            Some(alpha) => Limit::Dynamic(part(alpha, u64::from(ALPHA_ONE))?.try_into().ok()?),
            None if text.trim() == "none" => Limit::None,
            None => Limit::Static(Size::parse(text)?.0.try_into().ok()?),
        };
        Some(Self(limit))
    }
}

impl Quantity for HeadroomSize {
    const NAME: &'static str = "a headroom";
    const GRAMMAR: &'static str =
        "\"auto\" (what 802.1Q annex N asks for), or a size such as \"160KiB\"";
    fn parse(text: &str) -> Option<Self> {
        if text.trim() == "auto" {
            return Some(Self(None));
        }
        Some(Self(Some(Size::parse(text)?.0.try_into().ok()?)))
    }
}

impl fmt::Display for HeadroomSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str("auto"),
            Some(bytes) => Size(u64::from(bytes)).fmt(f),
        }
    }
}

impl fmt::Display for Bandwidth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&in_units(self.0.bps(), &RATES[..5]))
    }
}

impl fmt::Display for ComputeRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&in_units(self.0, COMPUTE_RATES))
    }
}

impl fmt::Display for Timespan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&in_units(self.0.0, &TIMES[..7]))
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&in_units(self.0, SIZES))
    }
}

impl fmt::Display for Length {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&in_units(self.0, LENGTHS))
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => f.write_str("0%"),
            part if WHOLE.is_multiple_of(part) && part < WHOLE / 100 => {
                write!(f, "1/{}", WHOLE / part)
            }
            part => write!(
                f,
                "{}%",
                (part as f64 / WHOLE as f64 * 1e8 + 0.5) as u64 as f64 / 1e6
            ),
        }
    }
}

impl fmt::Display for BitErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => f.write_str("0"),
            rate => write!(f, "{:.2e}", rate as f64 / BITS_WHOLE),
        }
    }
}

impl fmt::Display for InfinibandSpeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:016x}", self.0)
    }
}

impl fmt::Display for Threshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use fabric::config::{ALPHA_ONE, Limit};
        match self.0 {
            Limit::None => f.write_str("none"),
            Limit::Static(bytes) => Size(u64::from(bytes)).fmt(f),
            Limit::Dynamic(alpha)
                if alpha != 0 && ALPHA_ONE.is_multiple_of(alpha) && alpha < ALPHA_ONE =>
            {
                write!(f, "alpha 1/{}", ALPHA_ONE / alpha)
            }
            Limit::Dynamic(alpha) => write!(f, "alpha {}", f64::from(alpha) / f64::from(ALPHA_ONE)),
        }
    }
}

struct QuantityVisitor<Q>(core::marker::PhantomData<Q>);

impl<Q: Quantity> de::Visitor<'_> for QuantityVisitor<Q> {
    type Value = Q;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, such as {}", Q::NAME, Q::GRAMMAR)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Q, E> {
        Q::parse(text).ok_or_else(|| {
            E::custom(format_args!(
                "\"{text}\" is not {}; write {}",
                Q::NAME,
                Q::GRAMMAR
            ))
        })
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<Q, E> {
        Q::from_number(number).ok_or_else(|| {
            E::custom(format_args!(
                "{number} is not {}; write {}",
                Q::NAME,
                Q::GRAMMAR
            ))
        })
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Q, E> {
        self.visit_f64(number as f64)
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Q, E> {
        self.visit_f64(number as f64)
    }
}

macro_rules! text_form {
    ($($name:ident $schema:literal $pattern:literal),* $(,)?) => {$(
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_any(QuantityVisitor::<Self>(core::marker::PhantomData))
            }
        }
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.to_string())
            }
        }
        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                $schema.into()
            }
            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({
                    "type": if $pattern.starts_with("any ") {
                        serde_json::json!(["string", "number"])
                    } else {
                        serde_json::json!("string")
                    },
                    "pattern": $pattern.trim_start_matches("any "),
                    "x-quantity": Self::NAME,
                })
            }
        }
    )*};
}

text_form! {
    Bandwidth "Bandwidth" r"^\s*[0-9][0-9_.]*\s*([kMGT]?b/s|[MGT]bps|[MG]B/s|[MGT])\s*$",
    ComputeRate "ComputeRate" r"^\s*[0-9][0-9_.]*\s*[GTP]?FLOP/s\s*$",
    Timespan "Timespan" r"^\s*[0-9][0-9_.]*\s*([pnumµμ]?s|min)\s*$",
    Size "Size" r"^\s*[0-9][0-9_.]*\s*([kMGT]?B|[KMGT]iB)\s*$",
    Length "Length" r"^\s*[0-9][0-9_.]*\s*(mm|cm|m|km)\s*$",
    Ratio "Ratio" r"any ^\s*[0-9][0-9_.]*([eE]-[0-9]+|\s*%|\s*/\s*[0-9]+)?\s*$",
    BitErrors "BitErrors" r"any ^\s*[0-9][0-9_.]*([eE]-[0-9]+)?\s*$",
    InfinibandSpeed "InfinibandSpeed"
        r"^\s*(1|2|4|8|12)[xX]\s*([sSdDqQeEhHnNxX][dD][rR]|[fF][dD][rR](10)?)\s*$",
    Guid "Guid" r"^\s*(0[xX][0-9a-fA-F]{1,16}|[0-9a-fA-F]{4}(:[0-9a-fA-F]{4}){3})\s*$",
    HeadroomSize "Headroom" r"^\s*(auto|[0-9][0-9_.]*\s*([kMGT]?B|[KMGT]iB))\s*$",
    Threshold "Threshold"
        r"^\s*(none|[0-9][0-9_.]*\s*([kMGT]?B|[KMGT]iB)|alpha\s+[0-9][0-9_.]*\s*(%|/\s*[0-9]+)?)\s*$",
}

/// A name for the documentation, without its article.
pub fn bare_name(name: &str) -> String {
    name.trim_start_matches("a ").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use fabric::config::Limit;

    #[test]
    fn units_say_what_is_counted() {
        assert_eq!(
            Bandwidth::parse("100Gb/s").unwrap().0.bps(),
            100_000_000_000
        );
        assert_eq!(
            Bandwidth::parse("100.0Gbps").unwrap().0.bps(),
            100_000_000_000
        );
        assert_eq!(
            Bandwidth::parse("12.5 GB/s").unwrap().0.bps(),
            100_000_000_000
        );
        let rate = ComputeRate::parse("1.98 PFLOP/s").unwrap();
        assert_eq!(rate.0, 1_980_000_000_000_000);
        assert_eq!(ComputeRate::parse(&rate.to_string()), Some(rate));
        assert_eq!(ComputeRate::parse("0TFLOP/s"), None);
        assert_eq!(Timespan::parse("1.5us").unwrap().0, Span(1_500_000));
        assert_eq!(Timespan::parse("5 \u{b5}s").unwrap().0, Span(5_000_000));
        assert_eq!(Size::parse("8MiB").unwrap().0, 8 << 20);
        assert_eq!(Size::parse("1_000kB").unwrap().0, 1_000_000);
        assert_eq!(Length::parse("10m").unwrap().delay(), Span::from_ns(50));
        assert_eq!(Ratio::parse("1/256").unwrap().0, 1 << 24);
        assert_eq!(Ratio::parse("50%").unwrap().0, 1 << 31);
        assert_eq!(Ratio::parse("1e-6").unwrap().0, 4294);
        assert_eq!(Ratio::parse("100%").unwrap().chance(), u32::MAX);
        assert_eq!(BitErrors::parse("0").unwrap().0, 0);
        for (text, per_million_million) in [("1e-12", 1), ("50e-12", 50), ("2.5e-10", 250)] {
            let rate = BitErrors::parse(text).unwrap();
            assert!(
                rate.0.abs_diff(18_446_744 * per_million_million) < 300 * per_million_million,
                "{rate:?}"
            );
            let number = BitErrors::from_number(text.parse().unwrap()).unwrap();
            assert!(
                number.0.abs_diff(rate.0) < 300 * per_million_million,
                "{number:?}"
            );
            assert_eq!(
                BitErrors::parse(&rate.to_string())
                    .unwrap()
                    .0
                    .abs_diff(rate.0)
                    / 300,
                0,
                "{rate}"
            );
        }
        assert_eq!(
            Threshold::parse("alpha 1/8").unwrap().0,
            Limit::Dynamic(8192)
        );
        assert_eq!(
            Threshold::parse("256KiB").unwrap().0,
            Limit::Static(262_144)
        );
    }

    #[test]
    fn what_could_mean_two_things_means_nothing() {
        for text in [
            "",
            "100",
            "Gb/s",
            "100 gigabit",
            "-1Gb/s",
            "1e3Gb/s",
            "100KB",
            "1.2.3Gb/s",
            "0b/s",
        ] {
            assert_eq!(Bandwidth::parse(text), None, "{text}");
            assert_eq!(Size::parse(text), None, "{text}");
        }
        assert_eq!(Ratio::parse("101%"), None);
        assert_eq!(Timespan::parse("99999999999999999999s"), None);
        assert_eq!(Ratio::parse("1/0"), None);
        assert_eq!(BitErrors::parse("1e-5"), None);
        assert_eq!(BitErrors::from_number(0.1), None);
    }

    #[test]
    fn guids_are_read_as_tools_and_as_sysfs_print_them() {
        for text in [
            "0x0002c90300001234",
            "0002:c903:0000:1234",
            "0x2C90300001234",
        ] {
            assert_eq!(
                Guid::parse(text),
                Some(Guid(0x0002_c903_0000_1234)),
                "{text}"
            );
        }
        for text in [
            "",
            "0x",
            "0x0",
            "0000:0000:0000:0000",
            "1234",
            "0x+12",
            "0x10002c90300001234",
            "1:2:3:4",
        ] {
            assert_eq!(Guid::parse(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        for text in ["100Gb/s", "2500Mb/s", "1b/s"] {
            assert_eq!(
                Bandwidth::parse(text)
                    .map(|rate| rate.to_string())
                    .as_deref()
                    .unwrap_or("1b/s"),
                text
            );
        }
        for text in ["5us", "0ps", "1500ns"] {
            assert_eq!(Timespan::parse(text).unwrap().to_string(), text);
        }
        for text in ["64KiB", "1MB", "0B", "4097B"] {
            assert_eq!(Size::parse(text).unwrap().to_string(), text);
        }
        for text in ["20%", "1/256", "0%", "100%", "0.5%"] {
            assert_eq!(Ratio::parse(text).unwrap().to_string(), text);
        }
        for text in ["4x QDR", "12x FDR10", "1x SDR"] {
            assert_eq!(InfinibandSpeed::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(
            Guid::parse("0x00ff").unwrap().to_string(),
            "0x00000000000000ff"
        );
        for text in ["none", "alpha 1/8", "alpha 4", "1MiB"] {
            assert_eq!(Threshold::parse(text).unwrap().to_string(), text);
        }
    }
}

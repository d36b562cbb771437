//! Widths and speeds of links: codes of PortInfo (IBTA 14.2.5.6), names, and the data rate after coding
//! (IBTA volume 2, chapter 5).

use core::fmt;
use fabric::Rate;

/// Number of lanes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Width {
    /// One lane, as cables of the first adapters have.
    X1,
    /// Two lanes, as half of a split HDR port has.
    X2,
    /// Four lanes, as nearly every port has.
    X4,
    /// Eight lanes, which cables rarely have.
    X8,
    /// Twelve lanes, as links between large switches had.
    X12,
}

impl Width {
    /// All widths, the narrowest first.
    pub const ALL: [Self; 5] = [Self::X1, Self::X2, Self::X4, Self::X8, Self::X12];

    /// The number of lanes.
    pub const fn lanes(self) -> u8 {
        match self {
            Self::X1 => 1,
            Self::X2 => 2,
            Self::X4 => 4,
            Self::X8 => 8,
            Self::X12 => 12,
        }
    }

    /// The bit of LinkWidthActive, LinkWidthSupported and LinkWidthEnabled.
    pub const fn code(self) -> u8 {
        match self {
            Self::X1 => 1,
            Self::X4 => 2,
            Self::X8 => 4,
            Self::X12 => 8,
            Self::X2 => 16,
        }
    }
}

/// Signalling of a lane.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Speed {
    /// Single data rate: 2.5 Gb/s, 8b/10b.
    Sdr,
    /// Double data rate: 5 Gb/s, 8b/10b.
    Ddr,
    /// Quad data rate: 10 Gb/s, 8b/10b.
    Qdr,
    /// Fourteen data rate with 10.3125 Gb/s, of Mellanox alone: 64b/66b.
    Fdr10,
    /// Fourteen data rate: 14.0625 Gb/s, 64b/66b.
    Fdr,
    /// Enhanced data rate: 25.78125 Gb/s, 64b/66b.
    Edr,
    /// High data rate: 53.125 Gb/s, 257b/256b and RS(544,514).
    Hdr,
    /// Next data rate: 106.25 Gb/s, 257b/256b and RS(544,514).
    Ndr,
    /// Extreme data rate: 212.5 Gb/s, 257b/256b and RS(544,514).
    Xdr,
}

impl Speed {
    /// All speeds, the slowest first.
    pub const ALL: [Self; 9] = [
        Self::Sdr,
        Self::Ddr,
        Self::Qdr,
        Self::Fdr10,
        Self::Fdr,
        Self::Edr,
        Self::Hdr,
        Self::Ndr,
        Self::Xdr,
    ];

    /// The name in capitals, as tools print it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sdr => "SDR",
            Self::Ddr => "DDR",
            Self::Qdr => "QDR",
            Self::Fdr10 => "FDR10",
            Self::Fdr => "FDR",
            Self::Edr => "EDR",
            Self::Hdr => "HDR",
            Self::Ndr => "NDR",
            Self::Xdr => "XDR",
        }
    }

    /// Data bits per second of one lane: what is left after coding.
    pub const fn lane_bps(self) -> u64 {
        match self {
            Self::Sdr => 2_000_000_000,
            Self::Ddr => 4_000_000_000,
            Self::Qdr => 8_000_000_000,
            Self::Fdr10 => 10_000_000_000,
            Self::Fdr => 13_636_363_636,
            Self::Edr => 25_000_000_000,
            Self::Hdr => 50_000_000_000,
            Self::Ndr => 100_000_000_000,
            Self::Xdr => 200_000_000_000,
        }
    }

    /// The rate of one lane as Linux names it in `rate`, in units of 0.1 Gb/s: the signalling rate up to QDR,
    /// and rounded figures above.
    const fn nominal_tenths(self) -> u32 {
        match self {
            Self::Sdr => 25,
            Self::Ddr => 50,
            Self::Qdr | Self::Fdr10 => 100,
            Self::Fdr => 140,
            Self::Edr => 250,
            Self::Hdr => 500,
            Self::Ndr => 1_000,
            Self::Xdr => 2_000,
        }
    }

    /// The code of LinkSpeedActive: 1, 2 and 4 up to QDR. FDR10 and what is faster report QDR there.
    pub const fn code(self) -> u8 {
        match self {
            Self::Sdr => 1,
            Self::Ddr => 2,
            _ => 4,
        }
    }

    /// The bit of LinkSpeedExtActive; 0 up to FDR10.
    pub const fn extended_code(self) -> u8 {
        match self {
            Self::Fdr => 1,
            Self::Edr => 2,
            Self::Hdr => 4,
            Self::Ndr => 8,
            _ => 0,
        }
    }

    /// The code of LinkSpeedExtActive2, which XDR alone has.
    pub const fn extended_code_2(self) -> u8 {
        if matches!(self, Self::Xdr) { 1 } else { 0 }
    }
}

/// Width and speed of a link.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LinkSpeed {
    /// Number of lanes.
    pub width: Width,
    /// Signalling of each lane.
    pub speed: Speed,
}

impl LinkSpeed {
    /// Parses the text that tools print: `4xQDR`, `4x QDR` or `4X EDR`, in capitals or not.
    pub fn parse(text: &str) -> Option<Self> {
        let at = text.find(['x', 'X'])?;
        let (lanes, name) = (text.get(..at)?, text.get(at + 1..)?.trim_start());
        let lanes: u8 = lanes.parse().ok()?;
        Some(Self {
            width: Width::ALL
                .into_iter()
                .find(|width| width.lanes() == lanes)?,
            speed: Speed::ALL
                .into_iter()
                .find(|speed| speed.name().eq_ignore_ascii_case(name))?,
        })
    }

    /// The rate at which packets pass, after coding.
    pub fn rate(self) -> Rate {
        Rate::from_bps(self.speed.lane_bps() * u64::from(self.width.lanes()))
    }

    /// The rate as Linux prints it in sysfs: `40 Gb/sec (4X QDR)`.
    pub fn sysfs(self) -> impl fmt::Display {
        SysfsRate(self)
    }
}

impl fmt::Display for LinkSpeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x {}", self.width.lanes(), self.speed.name())
    }
}

/// The `rate` file of a port.
struct SysfsRate(LinkSpeed);

impl fmt::Display for SysfsRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LinkSpeed { width, speed } = self.0;
        let tenths = speed.nominal_tenths() * u32::from(width.lanes());
        write!(f, "{}", tenths / 10)?;
        if tenths % 10 != 0 {
            write!(f, ".{}", tenths % 10)?;
        }
        write!(f, " Gb/sec ({}X {})", width.lanes(), speed.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    fn parsed(text: &str) -> LinkSpeed {
        LinkSpeed::parse(text).unwrap()
    }

    #[test]
    fn speeds_are_read_in_the_forms_that_tools_print() {
        for text in ["4xQDR", "4x QDR", "4X QDR", "4x qdr"] {
            assert_eq!(
                parsed(text),
                LinkSpeed {
                    width: Width::X4,
                    speed: Speed::Qdr
                }
            );
        }
        for text in [
            "", "x", "4x", "QDR", "3x QDR", "4x QDRS", "40 Gb/s", "4 x QDR",
        ] {
            assert_eq!(LinkSpeed::parse(text), None, "{text}");
        }
        for width in Width::ALL {
            for speed in Speed::ALL {
                let both = LinkSpeed { width, speed };
                assert_eq!(parsed(&both.to_string()), both);
            }
        }
    }

    #[test]
    fn rates_are_those_after_coding() {
        let rate = |text: &str| parsed(text).rate().bps();
        assert_eq!(rate("4x SDR"), 8_000_000_000);
        assert_eq!(rate("4x QDR"), 32_000_000_000);
        assert_eq!(rate("4x FDR"), 54_545_454_544);
        assert_eq!(rate("4x NDR"), 400_000_000_000);
    }

    #[test]
    fn sysfs_prints_rates_as_linux_does() {
        let sysfs = |text: &str| parsed(text).sysfs().to_string();
        assert_eq!(sysfs("1x SDR"), "2.5 Gb/sec (1X SDR)");
        assert_eq!(sysfs("4x QDR"), "40 Gb/sec (4X QDR)");
        assert_eq!(sysfs("4x FDR"), "56 Gb/sec (4X FDR)");
        assert_eq!(sysfs("4x EDR"), "100 Gb/sec (4X EDR)");
        assert_eq!(sysfs("12x NDR"), "1200 Gb/sec (12X NDR)");
    }
}

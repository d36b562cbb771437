//! The temperature of a controller, and the warnings about it (Base 5.16.1.3, 5.27.1.3).

use wire::nvme::feature;

use super::events::Event;
use super::session::Controller;
use super::temperature::{TEMPERATURE_KELVIN, WARNING_TEMPERATURE_KELVIN};

/// The bit of a temperature that reached a threshold, in the critical warning of the SMART log page.
const TEMPERATURE_WARNING: u8 = 1 << 1;

/// The selectors of a temperature threshold, in bits 16 to 21 of dword 11.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Threshold {
    is_under: bool,
}

impl Threshold {
    const OVER: Self = Self { is_under: false };
    const UNDER: Self = Self { is_under: true };

    /// Parses dword 11. The composite temperature is the only one: there are no further sensors. `sets`
    /// allows the selector of all temperatures, which only Set Features may use.
    pub(super) const fn parse(cdw11: u32, sets: bool) -> Option<Self> {
        const ALL: u32 = 0xf;
        let is_composite = match cdw11 >> 16 & 0xf {
            0 => true,
            ALL => sets,
            _ => false,
        };
        match cdw11 >> 20 & 3 {
            0 if is_composite => Some(Self::OVER),
            1 if is_composite => Some(Self::UNDER),
            _ => None,
        }
    }

    /// The key of the threshold among the values of the feature.
    pub(super) const fn key(self) -> u32 {
        self.is_under as u32
    }

    /// The threshold of a controller whose host has set none, in kelvins.
    pub(super) const fn default_kelvin(self) -> u16 {
        if self.is_under {
            0
        } else {
            WARNING_TEMPERATURE_KELVIN
        }
    }
}

impl Controller {
    fn threshold_kelvin(&self, threshold: Threshold) -> u16 {
        let set = self.features.get(&(feature::TEMPERATURE, threshold.key()));
        set.map_or(threshold.default_kelvin(), |kelvin| *kelvin as u16)
    }

    /// The critical warning of the SMART log page.
    pub(super) fn critical_warning(&self) -> u8 {
        let is_over = TEMPERATURE_KELVIN >= self.threshold_kelvin(Threshold::OVER);
        let is_under = TEMPERATURE_KELVIN <= self.threshold_kelvin(Threshold::UNDER);
        if is_over || is_under {
            TEMPERATURE_WARNING
        } else {
            0
        }
    }

    /// Reports that the temperature is beyond a threshold, after the host has changed a threshold or enabled
    /// the event.
    pub(super) fn report_temperature(&mut self) {
        if self.critical_warning() & TEMPERATURE_WARNING != 0 {
            self.raise(Event::Temperature);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threshold_is_of_the_composite_temperature() {
        assert_eq!(Threshold::parse(300, false), Some(Threshold::OVER));
        assert_eq!(
            Threshold::parse(1 << 20 | 300, true),
            Some(Threshold::UNDER)
        );
        assert_eq!(Threshold::parse(0xf << 16, true), Some(Threshold::OVER));
        for (cdw11, sets) in [
            (0xf << 16, false),
            (1 << 16, true),
            (8 << 16, true),
            (2 << 20, true),
        ] {
            assert_eq!(Threshold::parse(cdw11, sets), None, "{cdw11:#x}");
        }
    }
}

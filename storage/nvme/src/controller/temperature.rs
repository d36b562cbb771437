//! The temperatures that a controller reports.

/// The composite temperature: 25 degrees Celsius, as in a machine room.
pub(super) const TEMPERATURE_KELVIN: u16 = 298;
/// WCTEMP: the default of the over temperature threshold.
pub(super) const WARNING_TEMPERATURE_KELVIN: u16 = 343;
/// CCTEMP: the temperature at which the controller says that it no longer works.
pub(super) const CRITICAL_TEMPERATURE_KELVIN: u16 = 353;

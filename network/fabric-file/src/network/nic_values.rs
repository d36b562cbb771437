//! Values of `[nic.NAME]` that adapters cannot have. A value is refused, never replaced by the nearest one.

use super::NetworkBuilder;
use crate::error::Mistake;
use crate::schema::{NicTable, Pcie};
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use units::{Ratio, Size};

/// Largest size that adapters count in 32 bits.
const BYTES_MAX: u64 = u32::MAX as u64;

/// Largest number of bytes of headers around payload.
const OVERHEAD_MAX: u64 = u16::MAX as u64;

/// Link widths of PCI Express.
const WIDTHS: [u8; 7] = [1, 2, 4, 8, 12, 16, 32];

/// Payload sizes of PCI Express.
const PAYLOADS: [u32; 6] = [128, 256, 512, 1024, 2048, 4096];

/// A wrong value: the field below the table, the reason, and what to write.
type Wrong = (&'static str, String, &'static str);

impl NetworkBuilder<'_> {
    /// Checks sizes, weights and the PCIe link of an adapter's table.
    pub(super) fn check_nic_sizes(&mut self, table: &str, nic: &NicTable) {
        let sizes = [
            ("window", nic.window, BYTES_MAX),
            (
                "data-overhead",
                nic.data_overhead.unwrap_or(Size(0)),
                OVERHEAD_MAX,
            ),
            (
                "control-overhead",
                nic.control_overhead.unwrap_or(Size(0)),
                OVERHEAD_MAX,
            ),
            ("swift.additive", nic.swift.additive, BYTES_MAX),
            ("hpcc.additive", nic.hpcc.additive, BYTES_MAX),
            ("timely.segment", nic.timely.segment, BYTES_MAX),
        ];
        let too_large = |(field, size, most): (&'static str, Size, u64)| -> Option<Wrong> {
            let what = format!("{} bytes are more than {most}, the most", size.0);
            (size.0 > most).then_some((field, what, "a smaller size"))
        };
        let wrong = sizes.into_iter().filter_map(too_large);
        let wrong = wrong
            .chain(weight(nic.dcqcn.g))
            .chain(nic.pcie.as_ref().and_then(generation))
            .chain(nic.pcie.as_ref().and_then(width))
            .chain(nic.pcie.as_ref().and_then(payload))
            .chain(super::transports::mistakes(nic));
        for (field, what, instead) in wrong {
            self.wrong(Mistake::Value, &format!("{table}.{field}"), what, instead);
        }
    }
}

/// DCQCN's `g`: adapters shift by its exponent.
fn weight(g: Ratio) -> Option<Wrong> {
    let is_shift = g.0.is_power_of_two() && g.0 < 1 << 32;
    let what = || "it is no power of two below 1, and adapters shift by its exponent".to_owned();
    (!is_shift).then(|| ("dcqcn.g", what(), "such as \"1/256\" or \"1/16\""))
}

fn generation(link: &Pcie) -> Option<Wrong> {
    let what = || format!("{} is no generation of PCI Express", link.generation);
    let is_known = (1..=6).contains(&link.generation);
    (!is_known).then(|| ("pcie.generation", what(), "1 to 6"))
}

fn width(link: &Pcie) -> Option<Wrong> {
    let what = || format!("PCI Express has no links of {} lanes", link.width);
    let is_known = WIDTHS.contains(&link.width);
    (!is_known).then(|| ("pcie.width", what(), "1, 2, 4, 8, 12, 16 or 32"))
}

fn payload(link: &Pcie) -> Option<Wrong> {
    if link.receive_buffer.0 > BYTES_MAX {
        let what = format!(
            "{} bytes are more than {BYTES_MAX}, the most",
            link.receive_buffer.0
        );
        return Some(("pcie.receive-buffer", what, "a smaller size"));
    }
    let what = || format!("PCI Express has no packets of {} bytes", link.payload);
    let is_known = PAYLOADS.contains(&link.payload);
    (!is_known).then(|| ("pcie.payload", what(), "128, 256, 512, 1024, 2048 or 4096"))
}

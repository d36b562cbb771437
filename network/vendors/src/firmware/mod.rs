//! Tools of firmware and of cards: `mst`, `mlxconfig`, `flint`, `mlxlink`, `mlxreg` and their `mst…` twins,
//! `devlink`, `ethtool -i` and `-m`, `lldptool`, `lspci -nn`, and what drivers write into the kernel's log.
//!
//! Layouts are those of published outputs: NVIDIA's firmware tools (MFT) and mstflint, the kernel's devlink
//! documentation, and drivers/net/ethernet/mellanox/mlx5/core/events.c.

mod acceleration;
mod cards;
mod kernel_log;
mod module;
mod settings;
mod versions;

use crate::facts::HostFacts;
use crate::sections::Section;
use crate::text::ReadError;

/// Takes the facts of one section; whether it is one of these tools that no other reader knows.
pub(crate) fn take(section: &Section<'_>, host: &mut HostFacts) -> Result<bool, ReadError> {
    let words: Vec<&str> = section.command.split_whitespace().collect();
    let has = |word: &str| words.contains(&word);
    // Windows has the same tools; Linux users call them by sudo.
    let program = match words.as_slice() {
        ["sudo", program, ..] | [program, ..] => program.trim_end_matches(".exe"),
        [] => "",
    };
    let is_query = has("q") || has("query");
    match program.rsplit('/').next().unwrap_or_default() {
        "mst" if has("status") => versions::mst(section, host)?,
        "mlxconfig" | "mstconfig" if is_query => settings::take(section, host)?,
        "flint" | "mstflint" if is_query => versions::flint(section, host)?,
        "mlxreg" | "mstreg" if has("ROCE_ACCL") && has("--get") => {
            acceleration::take(section, host)?;
        }
        "mlxlink" | "mstlink" => module::mlxlink(section, host)?,
        "devlink" if has("info") => versions::devlink(section, host)?,
        "ethtool" if has("-i") => versions::ethtool(section, host)?,
        "ethtool" if has("-m") => module::ethtool(section, host)?,
        "lldptool" => module::lldptool(section, host)?,
        // Other readers take the rest of these outputs.
        "lspci" => {
            cards::lspci(section, host);
            return Ok(false);
        }
        "dmesg" => {
            kernel_log::take(section, host);
            return Ok(false);
        }
        _ => return Ok(false),
    }
    Ok(true)
}

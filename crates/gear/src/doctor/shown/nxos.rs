//! Cisco NX-OS: `show interface priority-flow-control`.

use super::super::sections::Section;
use super::Shown;
use crate::text::ReadError;

/// Rows `Ethernet1/2  Auto On   (8)  4088353  1890`: mode, whether it is in operation, a bit for each
/// priority in hexadecimal, received and sent pauses.
pub(super) fn priority_flow_control(section: &Section<'_>, shown: &mut Shown) -> Result<(), ReadError> {
    for line in &section.lines {
        let words = line.words();
        let [port, mode, state, ..] = words.as_slice() else { continue };
        if !port.starts_with("Eth") {
            continue;
        }
        let enabled = match mode.to_ascii_lowercase().as_str() {
            "on" => Some(true),
            "off" => Some(false),
            "auto" => None,
            _ => return Err(section.wrong(line, "the mode on, off or auto was expected")),
        };
        let lower = state.to_ascii_lowercase();
        let value = if lower == "off" {
            0
        } else if let Some(rest) = lower.strip_prefix("on") {
            let bits = if rest.is_empty() { words.get(3).copied().unwrap_or_default() } else { rest };
            let bits = bits.trim_matches(['(', ')']).trim_start_matches("0x");
            u8::from_str_radix(bits, 16)
                .map_err(|_| section.wrong(line, "the bits of priorities were expected"))?
        } else {
            return Err(section.wrong(line, "the state on or off was expected"));
        };
        let own = shown.port(port);
        own.pfc_enabled = enabled.map(|enabled| section.fact(line, enabled));
        own.pfc = Some(section.fact(line, value));
    }
    Ok(())
}

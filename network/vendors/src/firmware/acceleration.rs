//! `mlxreg --reg_name ROCE_ACCL --get` (and `mstreg`): whether RoCE of an adapter takes packets in any order
//! (NVIDIA, MLNX_OFED: "Out-of-Order (OOO) Data Placement").

use super::cards::card;
use crate::facts::HostFacts;
use crate::sections::Section;
use crate::text::ReadError;

/// Takes the rows `FIELD | VALUE`.
pub(super) fn take(section: &Section<'_>, host: &mut HostFacts) -> Result<(), ReadError> {
    let target = section.argument("-d").or(section.argument("--device"));
    let name = target.unwrap_or_default().to_owned();
    for line in &section.lines {
        let Some((field, value)) = line.text.split_once('|') else {
            let is_head = line.text.starts_with(['=', '-']) || line.text.starts_with("Sending");
            match is_head {
                true => continue,
                false => return Err(section.wrong(line, "FIELD | VALUE was expected")),
            }
        };
        if field.trim() != "adaptive_routing_forced_en" {
            continue;
        }
        let digits = value.trim().trim_start_matches("0x");
        let number = u32::from_str_radix(digits, 16)
            .map_err(|_| section.wrong(line, "a hexadecimal number was expected"))?;
        card(host, &name).out_of_order = Some(section.fact(line, number & 1 == 1));
    }
    Ok(())
}

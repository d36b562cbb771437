//! Facts of `dcb -j` of iproute2 (`dcb/dcb_{pfc,app,ets}.c`): one object, in an array where the program
//! prints one for each command.

use serde_json::Value;

use super::adapter::interface;
use crate::facts::{Adapter, HostFacts};
use crate::sections::Section;
use crate::text::{Line, ReadError, dscp_named};

/// Takes the facts of `dcb [-j] pfc|app|ets|apptrust show dev IF`; whether the command is one of them.
pub(crate) fn take(section: &Section<'_>, host: &mut HostFacts) -> Result<bool, ReadError> {
    let words: Vec<&str> = section.command.split_whitespace().collect();
    let is_option = |word: &&str| word.starts_with('-');
    let is_json = words
        .iter()
        .filter(|word| is_option(word))
        .any(|word| *word == "--json" || (!word.starts_with("--") && word.contains('j')));
    let rest: Vec<&str> = words.into_iter().filter(|word| !is_option(word)).collect();
    let (object, name) = match rest.as_slice() {
        ["dcb", object, "show", "dev", name, ..] => (*object, *name),
        _ => return Ok(false),
    };
    if !matches!(object, "pfc" | "app" | "ets" | "apptrust") {
        return Ok(false);
    }
    let Some(first) = section
        .lines
        .iter()
        .find(|line| !line.text.trim().is_empty())
    else {
        return Ok(true);
    };
    let Some(adapter) = interface(section, host, name)? else {
        return Ok(true);
    };
    if !is_json {
        return plain(section, object, adapter).map(|()| true);
    }
    let text: Vec<&str> = section.lines.iter().map(|line| line.text).collect();
    let wrong = |_| section.wrong(first, "it is not what dcb -j prints");
    let value: Value = serde_json::from_str(&text.join("\n")).map_err(wrong)?;
    let value = value.get(0).unwrap_or(&value);
    // The line that names a value, if the output has several.
    let line = |key: &str| {
        section
            .lines
            .iter()
            .find(|line| line.text.contains(key))
            .unwrap_or(first)
    };
    match object {
        "pfc" => pfc(section, line("prio_pfc"), value, adapter),
        "app" => applications(section, line("dscp_prio"), value, adapter),
        "ets" => ets(section, line("tc_tsa"), value, adapter),
        _ => Ok(()),
    }?;
    Ok(true)
}

/// A pair `3:on`, or with the name of a DSCP `AF31:3`.
fn pair(word: &str) -> Option<(u8, &str)> {
    let (key, value) = word.split_once(':')?;
    let number = key.parse().ok().or_else(|| dscp_named(key))?;
    Some((number, value))
}

/// Output without `-j`: lines `prio-pfc 0:off 1:off …`.
fn plain(section: &Section<'_>, object: &str, adapter: &mut Adapter) -> Result<(), ReadError> {
    let (mut shares, mut weighted) = (Vec::new(), None);
    for line in &section.lines {
        let words = line.words();
        let Some((key, rest)) = words.split_first() else {
            continue;
        };
        let pairs = || -> Result<Vec<(u8, &str)>, ReadError> {
            let found: Option<Vec<(u8, &str)>> = rest.iter().map(|word| pair(word)).collect();
            found.ok_or_else(|| section.wrong(line, "pairs NUMBER:VALUE were expected"))
        };
        match (object, *key) {
            ("pfc", "prio-pfc") => {
                let on = pairs()?.into_iter().filter(|(_, value)| *value == "on");
                let mask = on.fold(0, |mask, (priority, _)| mask | 1 << (priority & 7));
                adapter.pfc = Some(section.fact(line, mask));
            }
            ("app", "dscp-prio") => {
                let mut map = [0; 64];
                for (dscp, priority) in pairs()? {
                    let priority: u8 = section.number(line, priority)?;
                    let entry = map.get_mut(usize::from(dscp));
                    let entry = entry.filter(|_| priority < 8).ok_or_else(|| {
                        section.wrong(line, "DSCPs to 63 and priorities to 7 were expected")
                    })?;
                    *entry = priority;
                }
                adapter.dscp = Some(section.fact(line, map));
                adapter
                    .trusts_dscp
                    .get_or_insert_with(|| section.fact(line, true));
            }
            ("ets", "tc-tsa") => {
                let ets = pairs()?.into_iter().filter(|(_, kind)| *kind == "ets");
                weighted = Some(ets.fold(0_u8, |mask, (class, _)| mask | 1 << (class & 7)));
            }
            ("ets", "tc-bw") => {
                for (class, share) in pairs()? {
                    shares.push((line, class & 7, section.number::<u8>(line, share)?));
                }
            }
            ("ets", "prio-tc") => {
                for (priority, class) in pairs()? {
                    let class: u8 = section.number(line, class)?;
                    adapter.class_of_priority.insert(priority & 7, class & 7);
                }
            }
            ("apptrust", "order" | "order:") => {
                adapter.trusts_dscp = Some(section.fact(line, rest.contains(&"dscp")));
            }
            _ => {}
        }
    }
    // Strict classes have no share. The kinds of classes may follow their shares.
    for (line, class, share) in shares {
        let is_weighted = weighted.is_none_or(|mask| mask >> class & 1 == 1);
        let share = section.fact(line, is_weighted.then_some(share));
        adapter.shares.insert(class, share);
    }
    Ok(())
}

/// Eight values of a key; `None` where the output does not have it.
fn eight<T>(
    section: &Section<'_>,
    line: &Line<'_>,
    value: &Value,
    key: &str,
    read: impl Fn(&Value) -> Option<T>,
) -> Result<Option<[T; 8]>, ReadError> {
    let Some(found) = value.get(key) else {
        return Ok(None);
    };
    let found: Option<Vec<T>> = found
        .as_array()
        .and_then(|values| values.iter().map(read).collect());
    let found = found.and_then(|values| <[T; 8]>::try_from(values).ok());
    found
        .map(Some)
        .ok_or_else(|| section.wrong(line, &format!("{key}: eight values were expected")))
}

fn small(value: &Value, below: u64) -> Option<u8> {
    value
        .as_u64()
        .filter(|number| *number < below)
        .map(|number| number as u8)
}

fn pfc(
    section: &Section<'_>,
    line: &Line<'_>,
    value: &Value,
    adapter: &mut Adapter,
) -> Result<(), ReadError> {
    if let Some(on) = eight(section, line, value, "prio_pfc", Value::as_bool)? {
        let mask = on
            .iter()
            .rev()
            .fold(0, |mask, on| mask << 1 | u8::from(*on));
        adapter.pfc = Some(section.fact(line, mask));
    }
    Ok(())
}

/// The map of DSCPs: those without an entry have priority 0. Without entries it is unknown whether the DSCP
/// is trusted.
fn applications(
    section: &Section<'_>,
    line: &Line<'_>,
    value: &Value,
    adapter: &mut Adapter,
) -> Result<(), ReadError> {
    let entries = value
        .get("dscp_prio")
        .and_then(Value::as_array)
        .filter(|entries| !entries.is_empty());
    let Some(entries) = entries else {
        return Ok(());
    };
    let mut map = [0; 64];
    for entry in entries {
        let pair = entry
            .get(0)
            .and_then(|dscp| small(dscp, 64))
            .zip(entry.get(1).and_then(|at| small(at, 8)));
        let (dscp, priority) = pair.ok_or_else(|| {
            section.wrong(line, "pairs of DSCP (0 to 63) and priority were expected")
        })?;
        map[usize::from(dscp)] = priority;
    }
    adapter.dscp = Some(section.fact(line, map));
    adapter.trusts_dscp = Some(section.fact(line, true));
    Ok(())
}

fn ets(
    section: &Section<'_>,
    line: &Line<'_>,
    value: &Value,
    adapter: &mut Adapter,
) -> Result<(), ReadError> {
    let kinds = eight(section, line, value, "tc_tsa", |kind| {
        kind.as_str().map(str::to_owned)
    })?;
    let shares = eight(section, line, value, "tc_bw", |share| small(share, 101))?;
    if let (Some(kinds), Some(shares)) = (kinds, shares) {
        for (class, (kind, share)) in (0_u8..).zip(kinds.iter().zip(shares)) {
            adapter
                .shares
                .insert(class, section.fact(line, (kind == "ets").then_some(share)));
        }
    }
    if let Some(classes) = eight(section, line, value, "prio_tc", |class| small(class, 8))? {
        adapter.class_of_priority = (0_u8..).zip(classes).collect();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::read_host;

    /// The layout of iproute2's `dcb/dcb_pfc.c`, `dcb_app.c` and `dcb_ets.c`; the values are ours.
    fn host(pfc: &str, app: &str) -> String {
        format!(
            "==> sysfs <==\n/sys/class/infiniband/mlx5_0/ports/1/link_layer: Ethernet\n\
             /sys/class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/0: eth0\n\
             ==> dcb -j pfc show dev eth0 <==\n[{{\"pfc_cap\":8,\"macsec_bypass\":false,\"delay\":0,\
             \"prio_pfc\":[{pfc}]}}]\n\
             ==> dcb -j app show dev eth0 <==\n[{{\"dscp_prio\":[{app}]}}]\n\
             ==> dcb -j ets show dev eth0 <==\n[{{\"willing\":false,\"cbs\":false,\"ets_cap\":8,\
             \"tc_bw\":[50,0,0,50,0,0,0,0],\
             \"tc_tsa\":[\"ets\",\"strict\",\"strict\",\"ets\",\"strict\",\"strict\",\"strict\",\"strict\"],\
             \"prio_tc\":[0,1,2,3,4,5,6,7]}}]\n"
        )
    }

    const ON: &str = "false,false,false,true,false,false,false,false";

    #[test]
    fn maps_and_shares_are_read() {
        let host = read_host("host", &host(ON, "[26,3],[48,6]")).unwrap();
        let adapter = &host.adapters[0];
        assert_eq!(adapter.pfc.as_ref().map(|pfc| pfc.value), Some(1 << 3));
        let map = adapter.dscp.as_ref().unwrap();
        assert_eq!((map.value[26], map.value[48], map.value[0]), (3, 6, 0));
        assert!(map.seen.text.contains("dscp_prio") && map.seen.line > 5);
        assert_eq!(adapter.shares[&3].value, Some(50));
        assert_eq!(adapter.shares[&1].value, None);
        assert_eq!(adapter.class_of_priority[&7], 7);
    }

    #[test]
    fn pfc_that_is_off_is_read_and_garbled_output_is_named() {
        let off = ["false"; 8].join(",");
        let pfc = |text: &str| {
            let host = read_host("host", text).unwrap();
            host.adapters[0].pfc.as_ref().map(|pfc| pfc.value)
        };
        assert_eq!(pfc(&host(&off, "[26,3]")), Some(0));
        assert_eq!(pfc(&host(ON, "[26,3]")), Some(1 << 3));
        // Without entries it is unknown whether the DSCP is trusted.
        let host_without = read_host("host", &host(ON, "")).unwrap();
        assert!(
            host_without.adapters[0].dscp.is_none()
                && host_without.adapters[0].trusts_dscp.is_none()
        );
        for (pfc, app) in [
            ("true", "[26,3]"),
            (ON, "[64,3]"),
            (ON, "[26]"),
            (ON, "[26,3"),
        ] {
            let host = read_host("host", &host(pfc, app)).unwrap();
            assert_eq!(host.left.len(), 1, "{pfc} {app}: {:?}", host.left);
        }
    }
}

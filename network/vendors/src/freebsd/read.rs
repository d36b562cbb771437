//! Texts of FreeBSD, read as intents.

use crate::intent::{HostSettings, Intent, Port};
use crate::text::{ReadError, lines, number, shortened};

pub(crate) fn read(file: &str, text: &str) -> Result<Vec<Intent>, ReadError> {
    let (mut section, mut name, mut functions) = (None, String::new(), 0);
    for line in lines(file, text, &['#'])? {
        let wrong = |what: &str| {
            ReadError::new(
                file,
                line.number,
                format!("\"{}\": {what}", shortened(line.text)),
            )
        };
        if let Some(head) = line.text.strip_suffix('{') {
            let head = head.trim();
            if section.is_some() || !(matches!(head, "PF" | "DEFAULT") || head.starts_with("VF-")) {
                return Err(wrong("a section is PF, DEFAULT or VF-n"));
            }
            section = Some(head);
            continue;
        }
        if line.text == "}" {
            section.take().ok_or_else(|| wrong("no section is open"))?;
            continue;
        }
        let pair = line.text.trim_end_matches(';').split_once([':', '=']);
        let (key, value) = pair.ok_or_else(|| wrong("it is no setting"))?;
        let value = value.trim().trim_matches('"');
        match (section, key.trim()) {
            (Some("PF"), "device") => value.clone_into(&mut name),
            (Some("PF"), "num_vfs") => {
                functions = number(file, line.number, value, 0..=65_535)? as u16
            }
            (Some(_), _) => {}
            (None, _) => return Err(wrong("it stands in no section")),
        }
    }
    if name.is_empty() {
        return Err(ReadError::new(
            file,
            1,
            "the section PF with a device is missing",
        ));
    }
    let host = HostSettings {
        device: name.clone(),
        functions,
        ..HostSettings::default()
    };
    let ports = vec![Port {
        name,
        gbps: None,
        metres: None,
    }];
    Ok(vec![Intent {
        ports,
        host: Some(host),
        ..Intent::nothing()
    }])
}

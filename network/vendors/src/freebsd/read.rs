//! Texts of FreeBSD, read as intents.

use crate::intent::{HostSettings, Intent, Port};
use crate::outcome::Outcomes;
use crate::text::{Line, ReadError, lines, number, shortened};

pub(crate) fn read(file: &str, text: &str) -> Result<(Vec<Intent>, Outcomes), ReadError> {
    let lines = lines(file, text, &['#'])?;
    let mut outcomes = Outcomes::of(file, &lines);
    let mut reading = Reading::default();
    for line in &lines {
        outcomes.take(line.number, reading.line(file, line));
    }
    let Reading {
        name, functions, ..
    } = reading;
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
        mbps: None,
        metres: None,
    }];
    let intent = Intent {
        ports,
        host: Some(host),
        ..Intent::nothing()
    };
    Ok((vec![intent], outcomes))
}

/// The settings read so far.
#[derive(Default)]
struct Reading<'a> {
    section: Option<&'a str>,
    name: String,
    functions: u16,
}

impl<'a> Reading<'a> {
    fn line(&mut self, file: &str, line: &Line<'a>) -> Result<(), ReadError> {
        let wrong = |what: &str| {
            let text = shortened(line.text);
            ReadError::new(file, line.number, format!("\"{text}\": {what}"))
        };
        if let Some(head) = line.text.strip_suffix('{') {
            let head = head.trim();
            let is_known = matches!(head, "PF" | "DEFAULT") || head.starts_with("VF-");
            if self.section.is_some() || !is_known {
                return Err(wrong(
                    "a section is PF, DEFAULT or VF-n, and contains no other",
                ));
            }
            self.section = Some(head);
            return Ok(());
        }
        if line.text == "}" {
            let closed = self.section.take();
            return closed
                .map(|_| ())
                .ok_or_else(|| wrong("the end of a section, and none has begun"));
        }
        let pair = line.text.trim_end_matches(';').split_once([':', '=']);
        let (key, value) = pair.ok_or_else(|| {
            wrong("neither a setting (name : value;) nor the head of a section (PF {)")
        })?;
        let value = value.trim();
        let string = serde_json::from_str::<String>(value).ok();
        let value = string.as_deref().unwrap_or(value.trim_matches('"'));
        match (self.section, key.trim()) {
            (Some("PF"), "device") => value.clone_into(&mut self.name),
            (Some("PF"), "num_vfs") => {
                self.functions = number(file, line.number, value, 0..=65_535)? as u16;
            }
            (Some(_), _) => {}
            (None, _) => {
                return Err(wrong(
                    "a setting outside of the sections PF, DEFAULT and VF-n",
                ));
            }
        }
        Ok(())
    }
}

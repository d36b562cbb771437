//! The journal: one line of JSON for each fault.

use crate::{Decision, Occasion};
use core::fmt::{self, Write as _};
use core::time::Duration;

/// A fault that happened.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// Time since the beginning of the process's faults.
    pub at: Duration,
    /// ID of the process that met it.
    pub pid: u32,
    /// Name of the process.
    pub process: &'a str,
    /// What was decided.
    pub decision: Decision,
    /// On which occasion.
    pub occasion: &'a Occasion<'a>,
}

/// Text in JSON's quotes.
struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for one in self.0.chars() {
            match one {
                '"' | '\\' => write!(f, "\\{one}")?,
                _ if (one as u32) < 0x20 => write!(f, "\\u{:04x}", one as u32)?,
                _ => f.write_char(one)?,
            }
        }
        f.write_char('"')
    }
}

impl fmt::Display for Entry<'_> {
    /// Without the end of the line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            at,
            pid,
            process,
            decision,
            occasion,
        } = self;
        write!(f, "{{\"at_ns\":{},\"pid\":{pid}", at.as_nanos())?;
        write!(f, ",\"process\":{}", Quoted(process))?;
        write!(
            f,
            ",\"rule\":{},\"occasion\":{}",
            decision.rule, decision.occasion
        )?;
        write!(f, ",\"point\":\"{}\"", occasion.point)?;
        write!(f, ",\"fault\":\"{}\"", decision.action)?;
        if let Some(device) = occasion.device {
            write!(f, ",\"device\":{}", Quoted(device))?;
        }
        if let Some(kind) = occasion.kind {
            write!(f, ",\"type\":\"{kind}\"")?;
        }
        if let Some(qpn) = occasion.qpn {
            write!(f, ",\"qpn\":{qpn}")?;
        }
        if let Some(peer) = occasion.peer {
            write!(f, ",\"peer\":\"{peer}\"")?;
        }
        if let Some(opcode) = occasion.opcode {
            write!(f, ",\"opcode\":\"{opcode}\"")?;
        }
        if let Some(packet) = occasion.packet {
            write!(f, ",\"opcode\":\"{packet}\"")?;
        }
        if let Some(message) = occasion.message {
            write!(f, ",\"opcode\":\"{message}\"")?;
        }
        if let Some(size) = occasion.size {
            write!(f, ",\"size\":{size}")?;
        }
        f.write_char('}')
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Action, Opcode, Point};

    #[test]
    fn an_entry_is_json_with_what_is_known() {
        let occasion = Occasion {
            opcode: Some(Opcode::Send),
            size: Some(64),
            ..Occasion::at(Point::Call("post_send"))
        };
        let decision = Decision {
            rule: 2,
            occasion: 7,
            action: Action::Fail(libc::ENOMEM),
        };
        let entry = Entry {
            at: Duration::from_micros(5),
            pid: 12,
            process: "a\"b\n",
            decision,
            occasion: &occasion,
        };
        let value: serde_json::Value = serde_json::from_str(&entry.to_string()).unwrap();
        let expected = serde_json::json!({
            "at_ns": 5000, "pid": 12, "process": "a\"b\n", "rule": 2, "occasion": 7, "point": "post_send",
            "fault": "fail ENOMEM", "opcode": "send", "size": 64,
        });
        assert_eq!(value, expected);
    }
}

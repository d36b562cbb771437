//! Selects the sockets that become rsockets: all, or those that `/etc/rdma/rsocket/preload_config` lists, in
//! rdma-core's format. A line has a program's name (or its beginning), a domain, a type and a protocol; `*`
//! matches any value, and `#` begins a comment.

use core::ffi::c_int;
use std::ffi::CStr;
use std::sync::OnceLock;

const FILE: &str = "/etc/rdma/rsocket/preload_config";

/// A line of the file. `None` matches any value.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Entry {
    program: Option<String>,
    domain: Option<c_int>,
    kind: Option<c_int>,
    protocol: Option<c_int>,
}

/// Settings from the environment.
pub(crate) struct Settings {
    entries: Vec<Entry>,
    program: String,
    /// `RDMAV_FORK_SAFE`: connections are established so that a program may fork before it uses them.
    pub(crate) forks: bool,
    /// `RS_SQ_SIZE`, `RS_RQ_SIZE` and `RS_INLINE`: options for each new rsocket.
    pub(crate) send_queue: Option<c_int>,
    pub(crate) receive_queue: Option<c_int>,
    pub(crate) inline_bytes: Option<c_int>,
}

/// The settings, read on first use.
pub(crate) fn settings() -> &'static Settings {
    static SETTINGS: OnceLock<Settings> = OnceLock::new();
    SETTINGS.get_or_init(|| {
        let number = |name: &str| -> Option<c_int> {
            let value = environment::variable(name)?.into_string().ok()?;
            value.trim().parse().ok()
        };
        let positive = |name: &str| number(name).filter(|value| *value > 0);
        Settings {
            entries: parse(&std::fs::read_to_string(FILE).unwrap_or_default()),
            program: program(),
            forks: number("RDMAV_FORK_SAFE").is_some_and(|value| value != 0),
            send_queue: positive("RS_SQ_SIZE"),
            receive_queue: positive("RS_RQ_SIZE"),
            inline_bytes: positive("RS_INLINE"),
        }
    })
}

impl Settings {
    /// Whether a socket becomes an rsocket. `kind` is the type without flags.
    pub(crate) fn takes(&self, domain: c_int, kind: c_int, protocol: c_int) -> bool {
        let protocol = match (kind, protocol) {
            (libc::SOCK_STREAM, 0 | libc::IPPROTO_TCP) => libc::IPPROTO_TCP,
            (libc::SOCK_DGRAM, 0 | libc::IPPROTO_UDP) => libc::IPPROTO_UDP,
            _ => return false,
        };
        if domain != libc::AF_INET && domain != libc::AF_INET6 {
            return false;
        }
        let is = |wanted: Option<c_int>, value| wanted.is_none_or(|wanted| wanted == value);
        self.entries.is_empty()
            || self.entries.iter().any(|entry| {
                let name = entry.program.as_deref().unwrap_or_default();
                let begins = self
                    .program
                    .get(..name.len())
                    .is_some_and(|it| it.eq_ignore_ascii_case(name));
                begins
                    && is(entry.domain, domain)
                    && is(entry.kind, kind)
                    && is(entry.protocol, protocol)
            })
    }
}

/// Parses the file. Invalid lines are ignored.
fn parse(text: &str) -> Vec<Entry> {
    let line = |line: &str| -> Option<Entry> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [program, domain, kind, protocol] = words[..] else {
            return None;
        };
        Some(Entry {
            program: (program != "*").then(|| program.to_owned()),
            domain: one_of(
                domain,
                &[("INET", libc::AF_INET), ("INET6", libc::AF_INET6)],
                &["AF_", "PF_"],
            )?,
            kind: one_of(
                kind,
                &[("STREAM", libc::SOCK_STREAM), ("DGRAM", libc::SOCK_DGRAM)],
                &["SOCK_"],
            )?,
            protocol: one_of(
                protocol,
                &[("TCP", libc::IPPROTO_TCP), ("UDP", libc::IPPROTO_UDP)],
                &["IPPROTO_"],
            )?,
        })
    };
    text.lines()
        .filter(|text| !text.starts_with('#'))
        .filter_map(line)
        .collect()
}

/// Parses a word: `Some(None)` for `*`, `None` for an unknown one.
fn one_of(word: &str, known: &[(&str, c_int)], prefixes: &[&str]) -> Option<Option<c_int>> {
    if word == "*" {
        return Some(None);
    }
    let upper = word.to_ascii_uppercase();
    let plain = prefixes
        .iter()
        .find_map(|prefix| upper.strip_prefix(prefix))
        .unwrap_or(&upper);
    known
        .iter()
        .find(|(name, _)| *name == plain)
        .map(|(_, value)| Some(*value))
}

/// Name of the program without its folder.
fn program() -> String {
    // SAFETY: the C library has a variable of this name and type.
    unsafe extern "C" {
        static program_invocation_short_name: *const core::ffi::c_char;
    }
    // SAFETY: the C library sets it before any library is initialised, to a string that stays.
    unsafe {
        if program_invocation_short_name.is_null() {
            return String::new();
        }
        CStr::from_ptr(program_invocation_short_name)
            .to_string_lossy()
            .into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(text: &str, program: &str) -> Settings {
        Settings {
            entries: parse(text),
            program: program.to_owned(),
            forks: false,
            send_queue: None,
            receive_queue: None,
            inline_bytes: None,
        }
    }

    #[test]
    fn without_config_file_all_ip_sockets_become_rsockets() {
        let all = settings("# nothing\n\n", "curl");
        assert!(all.takes(libc::AF_INET, libc::SOCK_STREAM, 0));
        assert!(all.takes(libc::AF_INET6, libc::SOCK_DGRAM, libc::IPPROTO_UDP));
        assert!(!all.takes(libc::AF_UNIX, libc::SOCK_STREAM, 0));
        assert!(!all.takes(libc::AF_INET, libc::SOCK_RAW, 0));
        assert!(!all.takes(libc::AF_INET, libc::SOCK_STREAM, libc::IPPROTO_SCTP));
    }

    #[test]
    fn config_file_selects_sockets() {
        let list =
            "curl * STREAM *\niperf* INET stream tcp\niperf INET6 SOCK_STREAM IPPROTO_TCP\nx y z\n";
        let stream = (libc::SOCK_STREAM, 0);
        let takes = |program, domain, (kind, protocol)| {
            settings(list, program).takes(domain, kind, protocol)
        };
        assert!(takes("curl", libc::AF_INET, stream) && takes("CURL", libc::AF_INET6, stream));
        assert!(!takes("curl", libc::AF_INET, (libc::SOCK_DGRAM, 0)));
        assert!(
            takes("iperf3", libc::AF_INET6, stream),
            "a name is how a program's begins"
        );
        assert!(
            !takes("iperf3", libc::AF_INET, stream),
            "a star is not part of a name"
        );
        assert!(!takes("wget", libc::AF_INET, stream));
    }
}

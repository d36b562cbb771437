//! Defaults of sockets, from the host's `/etc/rdma/rsocket` as in rdma-core.

use super::protocol::{scale, unscale};
use super::sizes::{BYTES, INLINE_BYTES_MAX, REQUESTS, Sizes};
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

/// The folder; each file in it holds one number.
const FOLDER: &str = "/etc/rdma/rsocket";
/// Upper limit of `polling_time`.
const SPIN_MAX: Duration = Duration::from_secs(1);

/// Defaults of this host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Defaults {
    pub(super) sizes: Sizes,
    /// Time that a blocking call polls before it sleeps, because a wake-up takes as long.
    pub(super) spin: Duration,
    /// Whether calls poll for longer where that has helped: not where a file names the time.
    pub(super) adapts: bool,
}

impl Default for Defaults {
    fn default() -> Self {
        Self {
            sizes: Sizes::default(),
            spin: Duration::from_micros(30),
            adapts: true,
        }
    }
}

/// The defaults, read from the files on first use.
pub(super) fn of_this_host() -> &'static Defaults {
    static DEFAULTS: OnceLock<Defaults> = OnceLock::new();
    DEFAULTS.get_or_init(|| read(Path::new(FOLDER)))
}

/// A file that is missing or has no number leaves the default unchanged.
fn read(folder: &Path) -> Defaults {
    let number = |name: &str| -> Option<u32> {
        std::fs::read_to_string(folder.join(name))
            .ok()?
            .split_whitespace()
            .next()?
            .parse()
            .ok()
    };
    let requests = |name| number(name).map(|value| value.clamp(*REQUESTS.start(), *REQUESTS.end()));
    let bytes =
        |name| number(name).map(|value| (value as usize).clamp(*BYTES.start(), *BYTES.end()) & !1);
    let Defaults { sizes, spin, .. } = Defaults::default();
    let polling_time = number("polling_time");
    Defaults {
        sizes: Sizes {
            sends: requests("sqsize_default").unwrap_or(sizes.sends),
            receives: requests("rqsize_default").unwrap_or(sizes.receives),
            inline_bytes: number("inline_default")
                .map_or(sizes.inline_bytes, |value| value.min(INLINE_BYTES_MAX)),
            send_bytes: bytes("wmem_default").unwrap_or(sizes.send_bytes),
            receive_bytes: bytes("mem_default").unwrap_or(sizes.receive_bytes),
            mappings: number("iomap_size").map_or(sizes.mappings, |value| unscale(scale(value))),
        },
        spin: polling_time.map_or(spin, |microseconds| {
            Duration::from_micros(microseconds.into()).min(SPIN_MAX)
        }),
        adapts: polling_time.is_none(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_from_files_are_limited_to_valid_values() {
        let folder = std::env::temp_dir().join(format!("rsocket-defaults-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
        write("mem_default", "300001\n");
        write("wmem_default", "1");
        write("sqsize_default", "99999999");
        write("polling_time", "0");
        write("iomap_size", "many");
        let found = read(&folder);
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(
            (found.sizes.receive_bytes, found.sizes.send_bytes),
            (300_000, *BYTES.start())
        );
        assert_eq!(
            (found.sizes.sends, found.sizes.mappings),
            (*REQUESTS.end(), 0)
        );
        assert_eq!((found.spin, found.adapts), (Duration::ZERO, false));
        assert_eq!(read(&folder), Defaults::default());
    }
}

//! Processor time and memory of processes, from `/proc`.

use std::fs::read_to_string;
use std::path::Path;
use std::time::Duration;

/// A clock tick is a hundredth of a second for programs, whatever the kernel has (`sysconf(_SC_CLK_TCK)`).
const TICK: Duration = Duration::from_millis(10);

/// User and system time of a process or thread, given its folder in `/proc`; zero when it has ended.
pub fn processor_time(folder: &Path) -> Duration {
    time_in(&read_to_string(folder.join("stat")).unwrap_or_default())
}

/// The sum of fields 14 and 15 of a `stat` file (proc(5)). The second field is a name in parentheses, which
/// may have blanks in it.
fn time_in(stat: &str) -> Duration {
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks = fields
        .split_whitespace()
        .skip(11)
        .take(2)
        .filter_map(|field| field.parse::<u32>().ok());
    ticks.map(|ticks| TICK * ticks).sum()
}

/// The most memory that a process has had resident so far, in KiB; `None` when it has ended.
pub fn peak_resident_kib(process: u32) -> Option<u64> {
    status(process, "VmHWM:")
}

/// The number in a line of a process's `status` file, by the name at its beginning (proc(5)); `None` when
/// the process has ended or there is no such line.
pub fn status(process: u32, name: &str) -> Option<u64> {
    let status = read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_user_and_system_time() {
        let stat = "7 (a ) name) S 1 7 7 0 -1 4194304 90 0 0 0 150 25 900 900 20 0 1 0";
        assert_eq!(time_in(stat), Duration::from_millis(1750));
        assert_eq!(time_in(""), Duration::ZERO);
    }

    #[test]
    fn this_process_has_memory_and_threads() {
        let own = std::process::id();
        // The peak is read last, because other tests take memory meanwhile.
        let resident = status(own, "VmRSS:");
        assert!(resident > Some(0) && peak_resident_kib(own) >= resident);
        assert!(status(own, "Threads:") >= Some(1));
        assert_eq!(status(own, "NoSuchLine:"), None);
    }
}

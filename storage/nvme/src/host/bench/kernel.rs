//! What Linux counts of threads and of the machine, from `/proc` (proc(5)).

use std::fs::{read_dir, read_to_string};
use std::path::Path;

/// All threads of a process together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Process {
    /// Processor time of the threads in nanoseconds.
    pub(super) ran_ns: u64,
    /// Context switches of the threads.
    pub(super) switches: u64,
}

impl Process {
    pub(super) fn now(process: u32) -> Option<Self> {
        let threads = read_dir(format!("/proc/{process}/task")).ok()?;
        let mut sum = Self {
            ran_ns: 0,
            switches: 0,
        };
        for thread in threads.flatten() {
            let text = read_to_string(thread.path().join("schedstat")).unwrap_or_default();
            let ran = text.split(' ').next();
            sum.ran_ns += ran.and_then(|number| number.parse().ok()).unwrap_or(0);
            sum.switches += switches_of(&thread.path()).unwrap_or(0);
        }
        Some(sum)
    }

    pub(super) const fn since(self, earlier: Self) -> Self {
        Self {
            ran_ns: self.ran_ns.saturating_sub(earlier.ran_ns),
            switches: self.switches.saturating_sub(earlier.switches),
        }
    }
}

/// Context switches of a thread, given its folder: those it waited for, and those the kernel forced.
pub(super) fn switches_of(folder: &Path) -> Option<u64> {
    switches_in(&read_to_string(folder.join("status")).ok()?)
}

fn switches_in(status: &str) -> Option<u64> {
    let of = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().parse::<u64>().ok()
    };
    Some(of("voluntary_ctxt_switches:")? + of("nonvoluntary_ctxt_switches:")?)
}

/// The whole machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Machine {
    /// Interrupts since it was started.
    interrupts: u64,
    /// By processor: ticks that it worked, and all ticks.
    cores: Vec<[u64; 2]>,
}

impl Machine {
    pub(super) fn now() -> Option<Self> {
        Self::of(&read_to_string("/proc/stat").ok()?)
    }

    fn of(stat: &str) -> Option<Self> {
        let line = stat.lines().find_map(|line| line.strip_prefix("intr "))?;
        let interrupts = line.split(' ').next()?.parse().ok()?;
        let cores = stat.lines().filter_map(|line| {
            let (number, ticks) = line.strip_prefix("cpu")?.split_once(' ')?;
            // The line without a number has the sum of all.
            number.parse::<u32>().ok()?;
            // user, nice, system, idle, iowait, irq, softirq, steal; the rest is in these already.
            let ticks: Vec<u64> = ticks
                .split(' ')
                .take(8)
                .map(|ticks| ticks.parse().unwrap_or(0))
                .collect();
            let all: u64 = ticks.iter().sum();
            let idle: u64 = ticks.iter().skip(3).take(2).sum();
            Some([all - idle, all])
        });
        Some(Self {
            interrupts,
            cores: cores.collect(),
        })
    }

    /// Interrupts since, and how busy each processor was.
    pub(super) fn since(&self, earlier: &Self) -> (u64, Vec<f64>) {
        let cores = self.cores.iter().zip(&earlier.cores);
        let busy = cores.map(|(now, then)| {
            let [worked, all] = [0, 1].map(|index| now[index].saturating_sub(then[index]));
            worked as f64 / all.max(1) as f64
        });
        let interrupts = self.interrupts.saturating_sub(earlier.interrupts);
        (interrupts, busy.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_of_both_kinds_are_added() {
        let status = "Name:\tx\nvoluntary_ctxt_switches:\t150\nnonvoluntary_ctxt_switches:\t545\n";
        assert_eq!(switches_in(status), Some(695));
        assert_eq!(switches_in("Name:\tx\n"), None);
    }

    #[test]
    fn a_machine_has_interrupts_and_processors() {
        let stat = |busy: u32, idle: u32, interrupts: u32| {
            let text = format!(
                "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 {busy} 0 0 {idle} 0 0 0 0 0 0\n\
                 cpu1 5 0 0 5 0 0 0 0 0 0\nintr {interrupts} 0 9 0\nctxt 12\n"
            );
            Machine::of(&text).expect("counters")
        };
        let since = stat(40, 70, 4711).since(&stat(10, 60, 4000));
        assert_eq!(since, (711, vec![0.75, 0.0]));
        assert_eq!(Machine::of("cpu0 1 2 3 4\n"), None);
    }

    #[test]
    fn a_process_that_waits_has_switches() {
        let own = std::process::id();
        let before = Process::now(own).expect("this process");
        std::thread::sleep(std::time::Duration::from_millis(1));
        let since = Process::now(own).expect("this process").since(before);
        assert!(since.switches >= 1, "{since:?}");
        assert_eq!(Process::now(u32::MAX), None);
    }
}

//! The machine on which something was measured.

use std::fmt;
use std::fs::read_to_string;

use serde::{Deserialize, Serialize};

/// Processor and kernel.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Machine {
    /// Model of the processor.
    pub processor: String,
    /// Processors that this process may use.
    pub cores: usize,
    /// Release of the kernel.
    pub kernel: String,
}

impl Machine {
    /// Reads processor, cores and kernel of the machine that this process runs on.
    pub fn this() -> Self {
        let read = |path: &str| read_to_string(path).unwrap_or_default();
        let info = read("/proc/cpuinfo");
        let model = info
            .lines()
            .find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        Self {
            processor: model.map_or_else(
                || "unknown processor".to_owned(),
                |(_, name)| name.to_owned(),
            ),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            processor,
            cores,
            kernel,
        } = self;
        let plural = if *cores == 1 { "" } else { "s" };
        write!(f, "{processor}, {cores} processor{plural}, Linux {kernel}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_described_in_one_line() {
        let machine = |cores| Machine {
            processor: "Model".into(),
            cores,
            kernel: "6.1".into(),
        };
        assert_eq!(machine(2).to_string(), "Model, 2 processors, Linux 6.1");
        assert_eq!(machine(1).to_string(), "Model, 1 processor, Linux 6.1");
        let this = Machine::this();
        assert!(
            this.cores > 0 && !this.processor.is_empty() && !this.kernel.is_empty(),
            "{this}"
        );
    }
}

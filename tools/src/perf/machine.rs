//! Description of the machine in a record: facts that influence latencies.

use std::fs;

use serde::{Deserialize, Serialize};

/// The machine at the beginning of a run. `None`: not reported by this kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Machine {
    pub(super) host: String,
    pub(super) kernel: String,
    pub(super) arch: String,
    pub(super) processor: Option<String>,
    /// Processors online.
    pub(super) processors: usize,
    /// Running under a hypervisor, as the processor reports.
    pub(super) virtual_machine: bool,
    /// Load averages of 1, 5 and 15 minutes.
    pub(super) load: Option<String>,
    /// Frequency governor of the first processor.
    pub(super) governor: Option<String>,
    /// Processors without other tasks (`isolcpus`), and without ticks (`nohz_full`).
    pub(super) isolated: Option<String>,
    pub(super) nohz_full: Option<String>,
    /// Transparent huge pages: the mode in brackets.
    pub(super) huge_pages: Option<String>,
    pub(super) clocksource: Option<String>,
    /// This program was built with optimisation.
    pub(super) optimized: bool,
}

impl Machine {
    pub(super) fn here() -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let field = |name: &str| {
            let line = cpuinfo.lines().find(|line| line.starts_with(name))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        };
        let host = nix::unistd::gethostname().unwrap_or_default();
        let cpu = "/sys/devices/system/cpu";
        Self {
            host: host.to_string_lossy().into_owned(),
            kernel: line("/proc/sys/kernel/osrelease").unwrap_or_default(),
            arch: std::env::consts::ARCH.to_owned(),
            processor: field("model name"),
            processors: std::thread::available_parallelism().map_or(0, usize::from),
            virtual_machine: field("flags")
                .is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor")),
            load: line("/proc/loadavg")
                .map(|text| text.split(' ').take(3).collect::<Vec<_>>().join(" ")),
            governor: line(&format!("{cpu}/cpu0/cpufreq/scaling_governor")),
            isolated: line(&format!("{cpu}/isolated")),
            nohz_full: line(&format!("{cpu}/nohz_full")),
            huge_pages: line("/sys/kernel/mm/transparent_hugepage/enabled"),
            clocksource: line("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
            optimized: !cfg!(debug_assertions),
        }
    }
}

/// Only line of a file; `None` for an empty file.
fn line(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let text = text.trim();
    (!text.is_empty() && text != "(null)").then(|| text.to_owned())
}

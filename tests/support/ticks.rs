//! Processor time of other processes.

/// Processor time of a process, in ticks of 10 ms (proc(5), `utime` and `stime`).
pub fn processor_ticks(process: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The program's name is in parentheses and may have spaces.
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum()
}

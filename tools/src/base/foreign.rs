//! Options of perftest, `ibv_*_pingpong` and `rping` that are missing here. The error names the C
//! program, and a replacement.

/// Names of an option, and its replacement.
type Foreign = (&'static [&'static str], &'static str);

/// Options of perftest that are missing here (`perftest_parameters.c`).
const PERFTEST: &[Foreign] = &[
    (&["-X", "--vector"], "events come by completion vector 0; leave it out"),
    (&["-R", "--rdma_cm", "-z", "--comm_rdma_cm"], "the two ends meet over TCP; leave it out"),
    (&["-w", "--limit_bw", "-y", "--limit_msgrate"], "there is no limit of the rate"),
    (&["--burst_size", "--typical_pkt_size"], "there is no limit of the rate"),
    (&["--rate_limit", "--rate_limit_type", "--rate_units"], "there is no limit of the rate"),
    (&["-f", "--margin"], "use --warmup N; the time of --duration begins after it"),
    (&["--perform_warm_up"], "each run begins with a warm-up; use --warmup N for its length"),
    (&["--run_infinitely"], "use --duration SECONDS; Ctrl-C ends a run with its report"),
    (&["-N", "--noPeak"], "the rate is always sampled over time; leave it out"),
    (&["-C", "--report-cycles"], "times are nanoseconds"),
    (&["-H", "--report-histogram", "--report-histogrm"], "use --json or --out, with all samples"),
    (&["-U", "--report-unsorted"], "use --json or --out, with all samples in a histogram"),
    (&["--report_gbits"], "both MB/s and Gb/s are reported; leave it out"),
    (&["--report-both", "--report-per-port"], "use --json, which tells of both directions"),
    (&["--output"], "use --json and jq"),
    (&["--out_json"], "use --json, or --out FILE"),
    (&["-W", "--report-counters"], "use `rdma statistic`"),
    (&["--cpu_util"], "use perf or pidstat beside it"),
    (&["--mcg", "-M", "--MGID"], "there is no multicast; UD goes to one peer"),
    (&["-O", "--dualport"], "use two runs, each with its --ib-port"),
    (&["-L", "--hop_limit"], "the hop limit is the library's default, 64"),
    (&["--flow_label", "--dlid", "--pkey_index"], "addresses follow from the port and the GID"),
    (&["--retry_count"], "the count is the library's default; --qp-timeout sets the time of one"),
    (&["--recv_post_list"], "receives are posted one by one"),
    (&["--inline_recv"], "receives are never inline"),
    (&["--mr_per_qp", "--use_hugepages"], "memory is registered once, in huge pages where it can"),
    (&["--mmap", "--mmap-offset", "--odp", "--use-null-mr"], "messages are in plain memory"),
    (&["--write_with_imm", "--send_with_imm"], "use `uverbs pingpong --opcode write-imm`"),
    (&["--data_validation", "--data_validation_debug"], "use --check"),
    (&["--payload_file_path"], "contents are a pattern; --check verifies them"),
    (&["--pin_cores", "--cpu_id"], "use --cpu N"),
    (&["--numa_node", "--disable_numa"], "use --cpu N, or numactl"),
    (&["--ipv6", "--ipv6-addr", "--bind_source_ip"], "HOST may be an IPv6 address; leave it out"),
    (&["--force-link", "--reversed", "--dont_xchg_versions"], "leave it out"),
    (&["--tcp", "--wait_destroy", "--use_old_post_send", "--no_lock"], "leave it out"),
    (&["--latency_gap"], "the next message follows at once"),
    (&["--disable_pcie_relaxed"], "ordering is relaxed nowhere; leave it out"),
];

/// Options of `ibv_rc_pingpong` (`rc_pingpong.c`) that are missing here, or have another letter.
const PINGPONG: &[Foreign] = &[
    (&["-l"], "use -S or --sl"),
    (&["-o", "--odp", "-O", "--iodp", "-P", "--prefetch"], "memory is registered at once"),
    (&["-t", "--ts"], "completions carry no times; latencies are reported anyway"),
    (&["-j", "--dm"], "messages are in host memory"),
    (&["-N", "--new_send"], "leave it out, the peer doesn't notice"),
];

/// Options of `rping` (`rping.c`) that are missing here, or have another letter.
const RPING: &[Foreign] = &[
    (&["-S"], "use -s or --size"),
    (&["-c"], "name the server: `uverbs rping HOST`"),
    (&["-a"], "on the client HOST is an argument; on the server use --bind"),
    (&["-I"], "use --device"),
    (&["-v"], "use --text"),
    (&["-V"], "every ping is verified; leave it out"),
    (&["-P", "-q"], "the server serves one client; leave it out"),
];

/// Replacement for an option of a C program that `command` resembles; `None` for unknown options.
pub(crate) fn instead(command: &str, option: &str) -> Option<String> {
    let option = option.split('=').next().unwrap_or(option);
    let (table, program) = match command {
        "perf" => (PERFTEST, "perftest"),
        "pingpong" => (PINGPONG, "ibv_rc_pingpong"),
        "rping" => (RPING, "rping"),
        _ => return None,
    };
    let (_, hint) = table.iter().find(|(names, _)| names.contains(&option))?;
    Some(format!("{option} is {program}'s, and not in uverbs {command}: {hint}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_is_told_by_any_of_its_names() {
        let said = instead("perf", "--run_infinitely").unwrap();
        assert!(said.starts_with("--run_infinitely is perftest's, and not in uverbs perf: use "));
        assert!(instead("perf", "--limit_bw=5").unwrap().starts_with("--limit_bw is"));
        assert!(instead("pingpong", "-l").unwrap().contains("ibv_rc_pingpong's"));
        assert_eq!(instead("perf", "--sise"), None);
        assert_eq!(instead("devices", "-e"), None);
    }

    /// Each name occurs once.
    #[test]
    fn every_name_has_one_answer() {
        for table in [PERFTEST, PINGPONG, RPING] {
            let names: Vec<_> = table.iter().flat_map(|(names, _)| names.iter()).collect();
            let set: std::collections::BTreeSet<_> = names.iter().collect();
            assert_eq!(names.len(), set.len());
        }
    }
}

//! Reports of the software HCA: its port and counters, by the names that Linux has for a ConnectX.

use uverbs_core::report::counters::{CounterSet, Counters};
use uverbs_core::report::place::PortPlace;

use crate::hca::{Hca, Traffic};
use crate::model::Device;

/// The only port.
const PORT: u32 = 1;
/// `IB_PORT_DOWN` and `IB_PORT_ACTIVE`.
const DOWN: u8 = 1;
const ACTIVE: u8 = 4;

pub(crate) fn port(active: bool) -> PortPlace {
    let mut place = PortPlace::new(PORT);
    place.state = Some(if active { ACTIVE } else { DOWN });
    place
}

/// Counters: `Port` as in sysfs's `counters`, `Hardware` as mlx5_ib's (the set that counts queue
/// pairs without a set), `Device` of this model's transport and wires.
pub(crate) fn counters(device: &Device, wires: &[(&str, Vec<(&'static str, u64)>)]) -> Counters {
    let hca = &device.hca;
    let mut report = Counters::default();
    report.extend(&CounterSet::Port(PORT), of_port(hca));
    report.extend(&CounterSet::Port(PORT), [("link_downed", device.link_downs())]);
    report.extend(&CounterSet::Port(PORT), NEVER.map(|name| (name, 0)));
    report.extend(&CounterSet::Hardware(PORT), of_queue_pairs(hca));
    report.extend(&CounterSet::Hardware(PORT), of_congestion(hca));
    report.extend(&CounterSet::Device, hca.stats().transport());
    for (wire, values) in wires {
        let named = values.iter().map(|(name, value)| (format!("{wire}_{name}"), *value));
        report.extend(&CounterSet::Device, named);
    }
    report.sort();
    report
}

/// Counters of events that this port can't have: it has no symbols, virtual lanes, credits,
/// switches or partition filters.
const NEVER: [&str; 10] = [
    "symbol_error",
    "link_error_recovery",
    "port_rcv_remote_physical_errors",
    "port_rcv_switch_relay_errors",
    "port_xmit_constraint_errors",
    "port_rcv_constraint_errors",
    "local_link_integrity_errors",
    "excessive_buffer_overrun_errors",
    "VL15_dropped",
    "port_xmit_wait",
];

/// Traffic of the port. The architecture counts data in words of four bytes (IBTA 16.1.4.1).
fn of_port(hca: &Hca) -> Vec<(&'static str, u64)> {
    let counts = hca.port_counters();
    let words = |of: [Traffic; 2]| of.map(|traffic| traffic.octets).iter().sum::<u64>() / 4;
    let packets = |of: [Traffic; 2]| of.map(|traffic| traffic.packets).iter().sum::<u64>();
    let sent = [counts.tx_unicast, counts.tx_multicast];
    let received = [counts.rx_unicast, counts.rx_multicast];
    vec![
        ("port_xmit_data", words(sent)),
        ("port_rcv_data", words(received)),
        ("port_xmit_packets", packets(sent)),
        ("port_rcv_packets", packets(received)),
        ("unicast_xmit_packets", counts.tx_unicast.packets),
        ("unicast_rcv_packets", counts.rx_unicast.packets),
        ("multicast_xmit_packets", counts.tx_multicast.packets),
        ("multicast_rcv_packets", counts.rx_multicast.packets),
        ("port_rcv_errors", hca.stats().malformed),
    ]
}

/// Congestion, by mlx5_ib's names (`hw/mlx5/counters.c`).
fn of_congestion(hca: &Hca) -> [(&'static str, u64); 3] {
    let stats = hca.stats();
    [
        ("np_ecn_marked_roce_packets", stats.congested),
        ("np_cnp_sent", stats.cnps_sent),
        ("rp_cnp_handled", stats.cnps_received),
    ]
}

fn of_queue_pairs(hca: &Hca) -> Vec<(&'static str, u64)> {
    let counts = hca.q_counters(0);
    vec![
        ("rx_write_requests", counts.rx_write_requests),
        ("rx_read_requests", counts.rx_read_requests),
        ("rx_atomic_requests", counts.rx_atomic_requests),
        ("out_of_buffer", counts.out_of_buffer),
        ("out_of_sequence", counts.out_of_sequence),
        ("duplicate_request", counts.duplicate_request),
        ("rnr_nak_retry_err", counts.rnr_nak_retry_err),
        ("packet_seq_err", counts.packet_seq_err),
        ("implied_nak_seq_err", counts.implied_nak_seq_err),
        ("local_ack_timeout_err", counts.local_ack_timeout_err),
        ("resp_local_length_error", counts.resp_local_length_error),
        ("resp_cqe_error", counts.resp_cqe_error),
        ("req_cqe_error", counts.req_cqe_error),
        ("req_remote_invalid_request", counts.req_remote_invalid_request),
        ("req_remote_access_errors", counts.req_remote_access_errors),
        ("resp_remote_access_errors", counts.resp_remote_access_errors),
        ("resp_cqe_flush_error", counts.resp_cqe_flush_error),
        ("req_cqe_flush_error", counts.req_cqe_flush_error),
    ]
}

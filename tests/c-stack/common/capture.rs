//! Captures of rings, doorbell records and doorbell pages as text. Both sides of a comparison use
//! this writer.
//!
//! ```text
//! case inline 17 at 3
//! qp 40 record 00000000 0000003d
//! sq 40 64 3c <hex>          qpn, WQEBBs of the ring, counter of the first pending, their bytes
//! rq 40 16 40 2 <hex>        qpn, WQEs of the ring, bytes of one, counter of the first pending
//!                            one, their bytes
//! srq 1 record 00000005
//! lq 1 16 64 5 3 <hex>       srqn, WQEs of the list, bytes of one, counter and slot of the first
//!                            pending one, their bytes in the order of the list
//! cq 1 record 00000007 00000000
//! uar 11 900 <hex>           page, offset, 64 bytes; blocks of zeros are left out
//! ```

use std::fmt::Write as _;
use std::time::Duration;

use uverbs_softhca::{Pending, PendingRing, SoftHca};

/// Bytes per line of a doorbell page.
const BLOCK: usize = 64;
/// Time that passes in a step.
const TICK: Duration = Duration::from_micros(1);
/// Limit of work slices; nothing here needs as many.
const MANY: usize = 100_000;

/// Formats all pending writes as the case `name`.
pub fn text(name: &str, pending: &Pending) -> String {
    let mut text = format!("case {name}\n");
    // Writing to a string cannot fail.
    for qp in &pending.qps {
        let [rcv, snd] = words(&qp.record);
        let _ = writeln!(text, "qp {:x} record {rcv} {snd}", qp.qpn);
        if let Some(PendingRing { entries, first, bytes, .. }) = &qp.send {
            let _ = writeln!(text, "sq {:x} {entries} {first:x} {}", qp.qpn, hex(bytes));
        }
        if let Some(PendingRing { entries, entry_bytes, first, bytes }) = &qp.recv {
            let _ =
                writeln!(text, "rq {:x} {entries} {entry_bytes} {first:x} {}", qp.qpn, hex(bytes));
        }
    }
    for srq in &pending.srqs {
        let _ = writeln!(text, "srq {:x} record {}", srq.srqn, hex(&srq.record));
        let PendingRing { entries, entry_bytes, first, bytes } = &srq.ring;
        let (number, slot, bytes) = (srq.srqn, srq.slot, hex(bytes));
        let _ = writeln!(text, "lq {number:x} {entries} {entry_bytes} {first:x} {slot:x} {bytes}");
    }
    for cq in &pending.cqs {
        let [ci, arm] = words(&cq.record);
        let _ = writeln!(text, "cq {:x} record {ci} {arm}", cq.cqn);
    }
    for (page, bytes) in &pending.uars {
        for (at, block) in bytes.chunks(BLOCK).enumerate() {
            if block.iter().any(|byte| *byte != 0) {
                let _ = writeln!(text, "uar {page:x} {:x} {}", at * BLOCK, hex(block));
            }
        }
    }
    text
}

/// Steps a device until it is idle, and zeroes the doorbell pages. Advances its clock, so that
/// completions have different times.
pub fn settle(device: &SoftHca) {
    device.advance(TICK);
    device.step_until_idle(MANY);
    device.clear_uars();
}

/// WQEBBs of a queue pair's send ring, and the producer counter.
pub fn place(device: &SoftHca, qpn: u32) -> Option<(u32, u16)> {
    let pending = device.pending();
    let send = pending.qps.into_iter().find(|qp| qp.qpn == qpn)?.send?;
    let behind = send.bytes.len() / send.entry_bytes as usize;
    Some((send.entries, send.first.wrapping_add(behind as u16)))
}

fn words(record: &[u8; 8]) -> [String; 2] {
    [hex(&record[..4]), hex(&record[4..])]
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

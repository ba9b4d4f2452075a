//! Description of an event, in a line or field by field.

use uverbs_mlx5_prm::cqe::{CqeOpcode, OpOwn, mlx5_cqe64, mlx5_err_cqe};
use uverbs_mlx5_prm::ctrl::{OpmodIdxOpcode, QpnDs, mlx5_wqe_ctrl_seg};
use uverbs_mlx5_prm::doorbell::{MLX5_CQ_DOORBELL, NUMBER_MASK};
use uverbs_mlx5_prm::opcode::Opcode;
use uverbs_mlx5_prm::syndrome::Syndrome;
use uverbs_softhca::wire::Packet;
use zerocopy::FromBytes;

use super::event::{Event, Kind};
use crate::explain::{self, Explained, Transport};

/// Main fields of the event.
pub(super) fn line(event: &Event) -> String {
    match event.kind {
        Kind::Ioctl => ioctl(event),
        Kind::Mmap => {
            let [len, offset, result] = ["len", "offset", "result"].map(|name| event.field(name));
            format!("{len} bytes at {offset}: {result}")
        }
        Kind::Doorbell => doorbell(event),
        Kind::Wqe => wqe(event),
        Kind::Receive => {
            let of = if event.field("shared") == "true" { "a shared queue" } else { "its queue" };
            format!("QP {} takes receive {} of {of}", event.field("qpn"), event.field("index"))
        }
        Kind::Sent | Kind::Received => {
            let (from, to) = (event.field("from"), event.field("to"));
            format!("{} {from} -> {to}", packet(event))
        }
        Kind::Cqe => cqe(event),
    }
}

/// Full explanation of events with bytes.
pub(super) fn whole(event: &Event) -> Option<Explained> {
    let bytes = event.bytes("bytes");
    match event.kind {
        Kind::Ioctl => explain::ioctl(&bytes),
        Kind::Wqe => {
            let named = |transport: &Transport| transport.is(event.field("service"));
            let transport = Transport::ALL.into_iter().find(named)?;
            explain::wqe(&bytes, transport)
        }
        Kind::Receive => explain::recv(&bytes, event.field("shared") == "true"),
        Kind::Sent | Kind::Received => explain::packet(&bytes),
        Kind::Cqe => explain::cqe(&bytes),
        Kind::Mmap | Kind::Doorbell => None,
    }
}

fn ioctl(event: &Event) -> String {
    let name = command(&event.bytes("bytes"));
    let took = event.number("took") as f64 / 1000.0;
    format!("{name}: {} in {took:.1} us", event.field("result"))
}

/// Name of the method without the common prefix, or name of the write command.
fn command(bytes: &[u8]) -> String {
    let whole = explain::ioctl(bytes).map(|explained| explained.what().to_owned());
    let whole = whole.unwrap_or_else(|| "a command that can't be read".to_owned());
    let mut name = whole.rsplit(": ").next().unwrap_or_default();
    for all in ["UVERBS_METHOD_", "MLX5_IB_METHOD_", "IB_USER_VERBS_CMD_", "IB_USER_VERBS_EX_CMD_"]
    {
        name = name.strip_prefix(all).unwrap_or(name);
    }
    name.to_owned()
}

/// Eight bytes of a doorbell: the first two words of a control segment for a send queue, arm word
/// and number for a completion queue.
fn doorbell(event: &Event) -> String {
    let (offset, value) = (event.number("offset") as usize, event.number("value"));
    let (high, low) = ((value >> 32) as u32, value as u32);
    let page = event.number("uar");
    if offset == MLX5_CQ_DOORBELL {
        return format!("UAR {page}: arms CQ {:#x}", low & NUMBER_MASK);
    }
    let (first, second) = (OpmodIdxOpcode(high), QpnDs(low));
    let index = first.wqe_index();
    format!("UAR {page}, {offset:#x}: QP {:#x}, up to the WQE at {index}", second.qpn())
}

fn wqe(event: &Event) -> String {
    let bytes = event.bytes("bytes");
    let Ok((ctrl, _)) = mlx5_wqe_ctrl_seg::read_from_prefix(&bytes) else {
        return "cut".to_owned();
    };
    let (opcode, index, ds) = (ctrl.opcode(), ctrl.word0().wqe_index(), ctrl.word1().ds());
    format!("QP {} {opcode} at {index}, {ds} segments of 16 bytes", event.field("qpn"))
}

/// Opcode, PSN and destination of a packet.
pub(super) fn packet(event: &Event) -> String {
    let bytes = event.bytes("bytes");
    // The ICRC is left out; it is invalid on wires that need no ICRC.
    let mut plain = bytes.clone();
    if let Some(icrc) = plain.last_chunk_mut::<4>() {
        *icrc = [0; 4];
    }
    match Packet::parse(&plain) {
        Ok(packet) => {
            let (opcode, psn, payload) = (packet.opcode(), packet.psn(), packet.payload().len());
            let qpn = packet.bth().dest_qp();
            let payload = if payload == 0 { String::new() } else { format!(", {payload} bytes") };
            format!("{opcode:?} PSN {psn} to QP {qpn:#x}{payload}")
        }
        Err(_) => format!("{} bytes", bytes.len()),
    }
}

fn cqe(event: &Event) -> String {
    let bytes = event.bytes("bytes");
    let cqn = event.field("cqn");
    let Ok(entry) = mlx5_cqe64::read_from_bytes(&bytes) else { return format!("CQ {cqn}: cut") };
    let kind = CqeOpcode(OpOwn(entry.op_own).opcode());
    let (word, index) = (entry.sop_drop_qpn.get(), entry.wqe_counter.get());
    let (opcode, qpn) = (Opcode((word >> 24) as u8), word & NUMBER_MASK);
    let failed = matches!(kind, CqeOpcode::REQ_ERR | CqeOpcode::RESP_ERR);
    let what = match mlx5_err_cqe::read_from_bytes(&bytes) {
        Ok(error) if failed => Syndrome(error.syndrome).to_string(),
        _ if kind == CqeOpcode::REQ => opcode.to_string(),
        _ => format!("{} bytes", entry.byte_cnt.get()),
    };
    format!("CQ {cqn} {kind}: QP {qpn:#x}, WQE {index}, {what}")
}

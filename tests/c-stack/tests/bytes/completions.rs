//! Prints completions of our provider in the format of `c/bytes.c`: every member of `ibv_wc`, or
//! the results of an extended queue's functions.

use std::fmt::Write as _;

use uverbs::tags::TagInfo;
use uverbs::{Completed, Completion, Failure, Mlx5, Status};

/// `IBV_WC_*` flags.
const GRH: u32 = 1;
const WITH_IMM: u32 = 2;
const IP_CSUM_OK: u32 = 4;
const WITH_INV: u32 = 8;
const TM_SYNC_REQ: u32 = 16;
const TM_MATCH: u32 = 32;
const TM_DATA_VALID: u32 = 64;

const RECV: u32 = 128;
pub(crate) const BIND_MW: u32 = 5;
pub(crate) const LOCAL_INV: u32 = 6;
pub(crate) const DRIVER1: u32 = 135;

/// Opcode and flags of a completion.
fn kind(completed: Completed, tags: Option<TagInfo>, rekey: u32) -> (u32, u32) {
    let has_header = tags.is_some_and(|info| info.header.is_some());
    match completed {
        Completed::Send => (0, 0),
        Completed::Write => (1, 0),
        Completed::Read => (2, 0),
        Completed::CompareSwap => (3, 0),
        Completed::FetchAdd => (4, 0),
        Completed::Rekey => (rekey, 0),
        Completed::Recv => (RECV, 0),
        Completed::RecvWriteImm => (129, 0),
        Completed::TagAdded => (130, 0),
        Completed::TagRemoved => (131, 0),
        Completed::TagsSynced => (132, 0),
        Completed::TagFound => (133, TM_MATCH),
        // Only the first completion of a message has the header.
        Completed::TagRecv if has_header => (133, TM_MATCH | TM_DATA_VALID),
        Completed::TagRecv => (133, TM_DATA_VALID),
        Completed::RecvUnexpected => (133, 0),
        Completed::RecvNoTag => (134, 0),
        other => panic!("{other:?}"),
    }
}

/// Number of a status (`enum ibv_wc_status`).
fn status(status: Status) -> u32 {
    match status {
        Status::LocalLength => 1,
        Status::LocalQpOperation => 2,
        Status::LocalProtection => 4,
        Status::Flushed => 5,
        Status::MemoryWindowBind => 6,
        Status::BadResponse => 7,
        Status::LocalAccess => 8,
        Status::RemoteInvalidRequest => 9,
        Status::RemoteAccess => 10,
        Status::RemoteOperation => 11,
        Status::RetryExceeded => 12,
        Status::RnrRetryExceeded => 13,
        Status::RemoteInvalidRdRequest => 15,
        Status::RemoteAborted => 16,
        Status::ResponseTimeout => 20,
        Status::TagNotFound => 22,
        Status::RendezvousIncomplete => 23,
        _ => 21,
    }
}

fn flags(completion: &Completion<'_, Mlx5>, of_tags: u32, sent_immediate: bool) -> u32 {
    let packet = completion.packet();
    let checked = packet.ip_checksum_ok && packet.transport_checksum_ok;
    let is_recv = completion.is_recv();
    [
        (sent_immediate || completion.immediate().is_some(), WITH_IMM),
        (completion.invalidated().is_some(), WITH_INV),
        (is_recv && completion.sender().has_grh(), GRH),
        (is_recv && checked, IP_CSUM_OK),
        (completion.tag_info().is_some_and(|info| info.wants_sync), TM_SYNC_REQ),
    ]
    .into_iter()
    .filter(|(has, _)| *has)
    .fold(of_tags, |all, (_, flag)| all | flag)
}

/// Members of `ibv_wc` and results of an extended queue's functions that the API lacks.
#[derive(Clone, Copy)]
pub(crate) struct Besides {
    /// The send had immediate data.
    pub(crate) sent_immediate: bool,
    /// Member `pkey_index` of a message without immediate data or key: libmlx5 puts a datagram's
    /// P_Key there.
    pub(crate) pkey: Option<u16>,
    /// Opcode of a key operation.
    pub(crate) rekey: u32,
}

pub(crate) fn print(
    to: &mut String,
    side: usize,
    completion: &Completion<'_, Mlx5>,
    besides: Besides,
) {
    let (number, vendor, done) = match completion.result() {
        Ok(completed) => (0, 0, Some(completed)),
        Err(Failure { status: failed, vendor_syndrome, .. }) => {
            (status(failed), vendor_syndrome, None)
        }
    };
    let (name, id, qpn) = (["A", "B"][side], completion.id(), completion.qpn());
    let _ = write!(to, "wc {name} {id} status {number} vendor {vendor:x} qp {qpn:x}");
    let Some(completed) = done else { return };
    let (opcode, of_tags) = kind(completed, completion.tag_info(), besides.rekey);
    let flags = flags(completion, of_tags, besides.sent_immediate);
    let _ = write!(to, " opcode {opcode} flags {flags:x}");
    let bytes = completion.byte_len();
    if (2..=4).contains(&opcode) {
        let _ = write!(to, " bytes {bytes}");
    }
    if opcode & RECV == 0 || opcode == DRIVER1 {
        return;
    }
    let _ = write!(to, " bytes {bytes}");
    if let Some(immediate) = completion.immediate() {
        let _ = write!(to, " imm {immediate:x}");
    }
    if let Some(key) = completion.invalidated() {
        let _ = write!(to, " key {key:x}");
    }
    let from = completion.sender();
    let (src, lid, level) = (from.qpn(), from.lid(), from.service_level());
    let shared = completion.immediate().or(completion.invalidated());
    let pkey = besides.pkey.map_or(0, |pkey| shared.map_or(pkey, |value| value as u16));
    let path = completion.path_bits();
    let _ = write!(to, " src {src:x} pkey {pkey:x} slid {lid:x} sl {level:x} path {path:x}");
}

/// Prints the results of a tag-matching queue.
pub(crate) fn print_tags(to: &mut String, completion: &Completion<'_, Mlx5>) {
    let Some(info) = completion.tag_info() else { return };
    let flags = match completion.result() {
        Ok(completed) => kind(completed, Some(info), 0).1,
        Err(failure) if failure.status == Status::RendezvousIncomplete => TM_MATCH | TM_DATA_VALID,
        Err(_) => 0,
    };
    let sync = if info.wants_sync { " sync" } else { "" };
    let found = if flags & TM_MATCH != 0 { " match" } else { "" };
    let there = if flags & TM_DATA_VALID != 0 { " data" } else { "" };
    let _ = write!(to, " tags{sync}{found}{there}");
    if let Some(header) = info.header {
        let _ = write!(to, " {:x} {:x}", header.tag, header.app_ctx);
    }
}

/// Prints the results of an extended queue's other functions.
pub(crate) fn print_others(to: &mut String, completion: &Completion<'_, Mlx5>, packets: bool) {
    let Ok(completed) = completion.result() else { return };
    let ticks = completion.timestamp().unwrap_or_default();
    let _ = write!(to, " ticks {ticks} now 1");
    if packets && completed == Completed::Recv {
        let vlan = completion.packet().vlan_tag.unwrap_or(0);
        let _ = write!(to, " vlan {vlan:x} flow {:x}", completion.qpn());
    }
}

//! Memory copies by the device: golden bytes, capabilities, setup of a queue pair.
#![allow(unsafe_code, reason = "posts")]

use std::sync::Arc;

use uverbs_core::attr::{AccessFlags, InitAttr, QpState};
use uverbs_core::error::Error;
use uverbs_core::provider::{ContextOps, CqInit, Provider, QpInit, SendOps};
use uverbs_core::queues::work::{PostError, SendFlags, Wr};
use uverbs_kernel_abi::mlx5::*;
use uverbs_mlx5_prm::cmd::caps::{DMA_MMO_QP, DMA_MMO_SQ, LOG_DMA_MMO_MAX_SIZE};

use super::door::{Door, LKEY};
use super::fixture::SendSide;
use super::wqe::golden;
use crate::send::wqe::WqeLimits;
use crate::{Context, CopyCaps, CopyEnd, CopyScratch, Mlx5, allow_copies};

const ROOM: WqeLimits = WqeLimits { max_sge: 8, max_inline: 220 };
const FROM: CopyEnd = CopyEnd { addr: 0x7f01_0203_0405, lkey: 0xaabb_ccdd };
const TO: CopyEnd = CopyEnd { addr: 0x7f11_1213_1415, lkey: 0x0011_2233 };

/// Opens a device that answers QUERY_HCA_CAP with a list filled by `fill`.
fn open(fill: impl FnOnce(&mut [u8])) -> (Arc<Door>, Context) {
    let door = Door::new();
    let mut caps = vec![0; 16 + 4096];
    fill(&mut caps[16..]);
    door.answers.lock().unwrap().caps = caps;
    let context = Mlx5::open(door.core()).unwrap();
    (door, context)
}

fn post(side: &mut SendSide, wr: Wr, len: u64, scratch: &CopyScratch) -> Result<u32, PostError> {
    let mut at = side.sq.begin();
    // SAFETY: the cursor is the test's; no device reads the ring.
    let posted = unsafe { side.sq.post_copy(&mut at, wr, (FROM, TO, len), scratch) };
    // SAFETY: the cursor is the test's; no device reads the ring.
    unsafe { side.sq.ring(at) };
    posted
}

/// Also of 2 GiB, which is encoded as 0.
#[test]
#[cfg_attr(miri, ignore = "maps memory")]
fn a_copy_names_scratch_memory_and_both_places() {
    let (_door, context) = open(|_| {});
    let scratch = context.copy_scratch(&context.alloc_pd().unwrap()).unwrap();
    let mut side = SendSide::new(2, ROOM, true);
    for (slot, len, bytes) in [(0, 0x1_2345, "00 01 23 45"), (1, 1 << 31, "00 00 00 00")] {
        side.stain(0xee);
        let wr = Wr { id: 7, flags: SendFlags::SIGNALED };
        assert_eq!(post(&mut side, wr, len, &scratch), Ok(slot));
        let written = side.bytes(slot, 64);
        let expected = golden(&format!(
            "
            01 00 {slot:02x} 2f | opmod: DMA, wqe_index, opcode MMO
            12 34 56 04 | qpn, ds
            00 00 00 08 | signature, stream, fm_ce_se: signaled
            00 00 00 00 | imm
            00 00 00 00 | mmo_control
            00 c0 ff ee | key of scratch memory
            {scratch_at}
            {bytes} | byte_count
            aa bb cc dd | key
            00 00 7f 01 02 03 04 05 | from
            {bytes} | byte_count
            00 11 22 33 | key
            00 00 7f 11 12 13 14 15 | to
        ",
            scratch_at = written[24..32].iter().map(|b| format!("{b:02x} ")).collect::<String>(),
        ));
        assert_eq!(written, expected, "\n{}", side.sq.dump(slot));
        assert_eq!(u32::from_be_bytes(written[20..24].try_into().unwrap()), LKEY);
        let at = u64::from_be_bytes(written[24..32].try_into().unwrap());
        assert!(at != 0 && at.is_multiple_of(64), "{at:#x}");
        side.assert_guards();
        side.retire(slot + 1);
    }
    for (len, refused) in [(0, PostError::BadData), ((1 << 31) + 1, PostError::MessageTooLong)] {
        assert_eq!(post(&mut side, Wr::new(8), len, &scratch), Err(refused));
    }
}

#[test]
#[cfg_attr(miri, ignore = "maps memory")]
fn a_device_says_what_it_copies() {
    let caps = |fill: fn(&mut [u8])| open(fill).1.copy_caps().unwrap();
    assert_eq!(caps(|_| {}), None);
    assert_eq!(caps(|list| LOG_DMA_MMO_MAX_SIZE.set(list, 20)), None);
    let found = caps(|list| {
        DMA_MMO_SQ.set(list, 1);
        LOG_DMA_MMO_MAX_SIZE.set(list, 20);
    });
    assert_eq!(found, Some(CopyCaps { max_len: 1 << 20, must_allow: false }));
    // Without a reported limit the limit is 2 GiB (rdma-core `mlx5.c:get_hca_general_caps`).
    let found = caps(|list| DMA_MMO_QP.set(list, 1));
    assert_eq!(found, Some(CopyCaps { max_len: 1 << 31, must_allow: true }));
}

/// INIT2INIT_QP with bits at their offsets in `mlx5_ifc_init2init_qp_in_bits`.
#[test]
#[cfg_attr(miri, ignore = "maps memory")]
fn a_queue_pair_in_init_is_told() {
    let (door, context) = open(|list| DMA_MMO_QP.set(list, 1));
    let (cq, _) = context.create_cq(&CqInit::new(10)).unwrap();
    let pd = context.alloc_pd().unwrap();
    let qp = context.create_qp(&QpInit::new(pd, Arc::clone(&cq), cq)).unwrap().core;
    let early = allow_copies(&qp).unwrap_err();
    assert!(matches!(early, Error::State { needs: QpState::Init, .. }), "{early}");
    qp.bring(&InitAttr { port: 1, pkey_index: 0, access: AccessFlags::empty() }).unwrap();
    allow_copies(&qp).unwrap();
    let sent = door.sent(MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_MODIFY);
    let [sent] = &sent[..] else { panic!("{sent:?}") };
    let mut wanted = vec![0; sent.bytes(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_IN).len()];
    wanted[..2].copy_from_slice(&0x50e_u16.to_be_bytes());
    // `qpc_ext`, and the number.
    wanted[8..12].copy_from_slice(&(0x8000_0000 | qp.qpn()).to_be_bytes());
    // `opt_param_mask_95_32`, and `mmo` of the extension.
    wanted[0x840 / 8..][..8].copy_from_slice(&8_u64.to_be_bytes());
    wanted[0x880 / 8] = 0x80 >> 2;
    assert_eq!(sent.bytes(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_IN), wanted);
}

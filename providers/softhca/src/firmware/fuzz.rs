//! Fuzz target: sequences of commands among existing objects.

use std::sync::Arc;
use std::time::Duration;

use uverbs_mlx5_prm::cmd::header::cmd_in;
use uverbs_mlx5_prm::cmd::opcode::{CmdOpcode, CmdStatus};
use uverbs_mlx5_prm::cmd::{cq, dct, eq, mkey, qp, rq, simple};

use super::Firmware;
use crate::board::memory::DeviceMemory;
use crate::board::profile::Profile;
use crate::feed::Feed;
use crate::firmware::base::table::TABLE;
use crate::hca::testing::Arena;
use crate::hca::{Hca, HcaConfig};
use crate::wire::Fabric;
use uverbs_front::backend::context::LinkLayer;
use uverbs_front::backend::number::UarNumber;

/// Commands of one run.
const STEPS: usize = 64;
/// Bytes of the host's memory.
const MEMORY: usize = 1 << 18;
const PAGE: u64 = 4096;
/// More than any command's fixed output, with room for lists.
const OUTPUT: usize = 4096;

/// Numbers of the objects that each run begins with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Objects {
    /// Start of the memory of the objects' rings, eight pages.
    pub(crate) base: u64,
    pub(crate) uar: u64,
    pub(crate) pd: u64,
    /// Key for all memory, by bus address.
    pub(crate) mkey: u64,
    pub(crate) eq: u64,
    pub(crate) cq: u64,
    pub(crate) srq: u64,
}

/// Runs arbitrary commands, most of them nearly valid, among objects of each kind. Afterwards the
/// device is reset, and a driver brings it up.
pub(crate) fn mailboxes(data: &[u8]) {
    let mut feed = Feed::new(data);
    let arena = Arena::new(MEMORY);
    let link = if feed.u8() & 1 == 0 { LinkLayer::InfiniBand } else { LinkLayer::Ethernet };
    let config = HcaConfig { link, max_mkey: 1 << 20, ..HcaConfig::default() };
    let profile = Profile::new(1, config);
    let wire = Box::new(Fabric::default().attach(&[]));
    let hca = Hca::new(profile.hca.clone(), Box::new(arena.clone()), wire);
    let memory = Arc::new(DeviceMemory::new());
    let mut firmware = Firmware::new(profile, hca, Arc::new(arena.clone()), memory);
    let objects = bring_up(arena.base(), |input| ok(&mut firmware, input));
    let mut now = Duration::ZERO;
    for _ in 0..STEPS {
        if feed.is_empty() {
            break;
        }
        match feed.below(8) {
            0 => {
                now += Duration::from_micros(feed.u8().into());
                firmware.step(now);
                while firmware.hca.next_event().is_some() {}
            }
            1 => {
                let (offset, value) = (u32::from(feed.u8()) * 0x20 % 0x1000, feed.u64());
                firmware.hca.doorbell(UarNumber(objects.uar as u32), offset, value);
            }
            _ => {
                if let Some((input, len)) = command(&mut feed, &objects) {
                    firmware.execute(&input, &mut vec![0; len]);
                }
            }
        }
    }
    for _ in 0..1000 {
        now += Duration::from_millis(10);
        firmware.step(now);
    }
    firmware.reset();
    bring_up(arena.base(), |input| ok(&mut firmware, input));
}

/// An arbitrary command, and the length of its output.
pub(crate) fn command(feed: &mut Feed<'_>, objects: &Objects) -> Option<(Vec<u8>, usize)> {
    let entry = &TABLE[feed.below(TABLE.len())];
    // Commands that destroy everything are rare.
    let ends = [CmdOpcode::TEARDOWN_HCA, CmdOpcode::DISABLE_HCA];
    if ends.contains(&entry.opcode) && feed.u8() != 0 {
        return None;
    }
    let mut input = template(entry.opcode, objects).unwrap_or_else(|| {
        let mut input = vec![0; entry.input];
        // Object numbers are in the third word.
        input[11] = feed.u8();
        input
    });
    cmd_in::OP_MOD.set(&mut input, u64::from(feed.u8() & 3));
    feed.edit(&mut input[4..]);
    if feed.u8() & 3 == 0 {
        input.extend_from_slice(feed.bytes(256));
    }
    if feed.u8() == 0 {
        input.truncate(feed.below(64).max(16));
    }
    cmd_in::OPCODE.set(&mut input, entry.opcode.0.into());
    Some((input, if feed.u8() == 0 { entry.output } else { OUTPUT }))
}

fn ok(firmware: &mut Firmware, input: &[u8]) -> Vec<u8> {
    let mut output = vec![0; 16];
    let outcome = firmware.execute(input, &mut output);
    assert_eq!(outcome.status, CmdStatus::OK, "{outcome:?}");
    output
}

/// Brings the device up as a driver does, with one object of each kind. `ok` executes a command,
/// which must succeed, and returns the first 16 bytes of its output.
pub(crate) fn bring_up(base: u64, mut ok: impl FnMut(&[u8]) -> Vec<u8>) -> Objects {
    let mut objects = Objects { base, ..Objects::default() };
    let mut ok = |opcode: CmdOpcode, mut input: Vec<u8>| {
        cmd_in::OPCODE.set(&mut input, opcode.0.into());
        ok(&input)
    };
    ok(CmdOpcode::ENABLE_HCA, vec![0; 16]);
    ok(CmdOpcode::INIT_HCA, vec![0; 32]);
    objects.uar = simple::alloc_uar_out::UAR.get(&ok(CmdOpcode::ALLOC_UAR, vec![0; 16]));
    objects.pd = simple::alloc_pd_out::PD.get(&ok(CmdOpcode::ALLOC_PD, vec![0; 16]));
    let mut make = |opcode: CmdOpcode, objects: &Objects| {
        number(&ok(opcode, template(opcode, objects).unwrap()))
    };
    objects.mkey = make(CmdOpcode::CREATE_MKEY, &objects) << 8;
    objects.eq = make(CmdOpcode::CREATE_EQ, &objects) & 0xff;
    objects.cq = make(CmdOpcode::CREATE_CQ, &objects);
    objects.srq = make(CmdOpcode::CREATE_RMP, &objects);
    make(CmdOpcode::CREATE_QP, &objects);
    make(CmdOpcode::CREATE_DCT, &objects);
    objects
}

/// Object number in the output of CREATE: bits 23:0 of the third word.
pub(crate) fn number(output: &[u8]) -> u64 {
    u64::from_be_bytes(output[4..12].try_into().unwrap()) & 0xff_ffff
}

fn with_page(len: usize, page: u64) -> Vec<u8> {
    let mut input = vec![0; len];
    input.extend(page.to_be_bytes());
    input
}

/// A command that creates an object, and succeeds.
pub(crate) fn template(opcode: CmdOpcode, objects: &Objects) -> Option<Vec<u8>> {
    let page = |number: u64| objects.base + number * PAGE;
    Some(match opcode {
        CmdOpcode::CREATE_MKEY => {
            let mut input = vec![0; mkey::create_mkey_in::SIZE];
            let context = mkey::create_mkey_in::MEMORY_KEY_MKEY_ENTRY.of_mut(&mut input);
            for right in
                [mkey::mkc::LW, mkey::mkc::RW, mkey::mkc::RR, mkey::mkc::A, mkey::mkc::LENGTH64]
            {
                right.set(context, 1);
            }
            mkey::mkc::PD.set(context, objects.pd);
            mkey::mkc::QPN.set(context, 0xff_ffff);
            input
        }
        CmdOpcode::CREATE_EQ => {
            let mut input = with_page(eq::create_eq_in::SIZE, page(1));
            let context = eq::create_eq_in::EQ_CONTEXT_ENTRY.of_mut(&mut input);
            eq::eqc::LOG_EQ_SIZE.set(context, 3);
            eq::eqc::UAR_PAGE.set(context, objects.uar);
            eq::create_eq_in::EVENT_BITMASK.of_mut(&mut input)[..8].fill(0xff);
            input
        }
        CmdOpcode::CREATE_CQ => {
            let mut input = with_page(cq::create_cq_in::SIZE, page(2));
            let context = cq::create_cq_in::CQ_CONTEXT.of_mut(&mut input);
            cq::cqc::LOG_CQ_SIZE.set(context, 4);
            cq::cqc::UAR_PAGE.set(context, objects.uar);
            cq::cqc::C_EQN_OR_APU_ELEMENT.set(context, objects.eq);
            cq::cqc::DBR_ADDR.set(context, page(3));
            input
        }
        CmdOpcode::CREATE_QP => {
            let mut input = with_page(qp::create_qp_in::SIZE, page(4));
            let context = qp::create_qp_in::QPC.of_mut(&mut input);
            qp::qpc::PD.set(context, objects.pd);
            qp::qpc::LOG_RQ_SIZE.set(context, 4);
            qp::qpc::LOG_SQ_SIZE.set(context, 4);
            qp::qpc::UAR_PAGE.set(context, objects.uar);
            qp::qpc::CQN_SND.set(context, objects.cq);
            qp::qpc::CQN_RCV.set(context, objects.cq);
            qp::qpc::DBR_ADDR.set(context, page(5));
            input
        }
        CmdOpcode::CREATE_RMP => {
            let mut input = with_page(rq::create_rmp_in::SIZE, page(6));
            let queue = rq::rmpc::WQ.of_mut(rq::create_rmp_in::CTX.of_mut(&mut input));
            rq::wq::LOG_WQ_SZ.set(queue, 4);
            rq::wq::LOG_WQ_STRIDE.set(queue, 5);
            rq::wq::PD.set(queue, objects.pd);
            rq::wq::DBR_ADDR.set(queue, page(7));
            input
        }
        CmdOpcode::CREATE_DCT => {
            let mut input = vec![0; dct::create_dct_in::SIZE];
            let context = dct::create_dct_in::DCT_CONTEXT_ENTRY.of_mut(&mut input);
            dct::dctc::PD.set(context, objects.pd);
            dct::dctc::CQN.set(context, objects.cq);
            dct::dctc::SRQN_XRQN.set(context, objects.srq);
            dct::dctc::MTU.set(context, 3);
            dct::dctc::PORT.set(context, 1);
            input
        }
        _ => return None,
    })
}

//! XRC: domains, their queues, initiators and targets.

use std::os::fd::AsRawFd;

use nix::errno::Errno;
use uverbs_kernel_abi::mlx5::{mlx5_ib_create_qp, mlx5_ib_create_srq};
use uverbs_kernel_abi::objects::*;
use uverbs_kernel_abi::qp::*;
use uverbs_kernel_abi::srq::{IB_UVERBS_SRQT_BASIC, IB_UVERBS_SRQT_XRC};
use uverbs_kernel_abi::write::IB_USER_VERBS_CMD_OPEN_XRCD;
use uverbs_kernel_abi::xrcd::{ib_uverbs_open_xrcd, ib_uverbs_open_xrcd_resp};

use super::case;
use crate::case::{Case, World};
use crate::cmd::Cmd;
use crate::rig::Rig;
use crate::want::{EAGAIN, EBADF, EBUSY, EINVAL, ENOENT, EOPNOTSUPP, Want};

const OPEN: &str = "core/uverbs_cmd.c:ib_uverbs_open_xrcd";
const CLOSE: &str = "core/uverbs_std_types.c:uverbs_free_xrcd";
const SRQ: &str = "core/uverbs_std_types_srq.c:UVERBS_METHOD_SRQ_CREATE";
const QP: &str = "core/uverbs_std_types_qp.c:UVERBS_METHOD_QP_CREATE";
const OPEN_QP: &str = "core/uverbs_cmd.c:ib_uverbs_open_qp; core/verbs.c:ib_open_qp";
const STATES: &str = "core/verbs.c:qp_state_table; core/uverbs_cmd.c:modify_qp_mask";

const CREAT: u32 = libc::O_CREAT as u32;
const EXCL: u32 = libc::O_EXCL as u32;
/// `IB_QP_ATTR_STANDARD_BITS`.
const STANDARD: u32 = (IB_QP_DEST_QPN << 1) - 1;

/// Attributes that the kernel drops for initiators and for targets.
const NOT_INI: u32 = IB_QP_MAX_DEST_RD_ATOMIC | IB_QP_MIN_RNR_TIMER;
const NOT_TGT: u32 = IB_QP_MAX_QP_RD_ATOMIC | IB_QP_RETRY_CNT | IB_QP_RNR_RETRY;
const INIT: u32 = IB_QP_PKEY_INDEX | IB_QP_PORT | IB_QP_ACCESS_FLAGS;
const RTR: u32 = IB_QP_AV | IB_QP_PATH_MTU | IB_QP_DEST_QPN | IB_QP_RQ_PSN;

/// A change on the way up, of initiators (`ini`) or targets.
struct Step {
    ini: bool,
    from: u8,
    required: u32,
    optional: u32,
}

const STEPS: [Step; 6] = [
    Step { ini: true, from: IB_QPS_RESET, required: INIT, optional: 0 },
    Step {
        ini: true,
        from: IB_QPS_INIT,
        required: RTR,
        optional: IB_QP_ACCESS_FLAGS | IB_QP_PKEY_INDEX,
    },
    Step {
        ini: true,
        from: IB_QPS_RTR,
        required: IB_QP_TIMEOUT
            | IB_QP_RETRY_CNT
            | IB_QP_RNR_RETRY
            | IB_QP_SQ_PSN
            | IB_QP_MAX_QP_RD_ATOMIC,
        optional: IB_QP_CUR_STATE | IB_QP_ACCESS_FLAGS | IB_QP_PATH_MIG_STATE,
    },
    Step { ini: false, from: IB_QPS_RESET, required: INIT, optional: 0 },
    Step {
        ini: false,
        from: IB_QPS_INIT,
        required: RTR | IB_QP_MAX_DEST_RD_ATOMIC | IB_QP_MIN_RNR_TIMER,
        optional: IB_QP_ACCESS_FLAGS | IB_QP_PKEY_INDEX,
    },
    Step {
        ini: false,
        from: IB_QPS_RTR,
        required: IB_QP_TIMEOUT | IB_QP_SQ_PSN,
        optional: IB_QP_CUR_STATE | IB_QP_ACCESS_FLAGS | IB_QP_MIN_RNR_TIMER | IB_QP_PATH_MIG_STATE,
    },
];

fn open(rig: &Rig, fd: i32, oflags: u32) -> Cmd {
    let request = ib_uverbs_open_xrcd { response: 0, fd: fd.cast_unsigned(), oflags };
    let room = size_of::<ib_uverbs_open_xrcd_resp>();
    rig.write(IB_USER_VERBS_CMD_OPEN_XRCD, &request, room)
}

fn domain(rig: &Rig, fd: i32, oflags: u32) -> Result<u32, Errno> {
    let cmd = open(rig, fd, oflags);
    rig.send(&cmd)?;
    Ok(rig.answer(&cmd, UVERBS_ATTR_CORE_OUT))
}

/// SRQ.CREATE of a queue for XRC.
fn create_srq(rig: &Rig, xrcd: u32) -> Cmd {
    let request = mlx5_ib_create_srq { uidx: 5, ..rig.srq_request() };
    rig.create_srq()
        .without(UVERBS_ATTR_UHW_IN)
        .input(&rig.memory, UVERBS_ATTR_UHW_IN, &request)
        .edit(UVERBS_ATTR_CREATE_SRQ_TYPE, |attr| attr.data = IB_UVERBS_SRQT_XRC.into())
        .handle(UVERBS_ATTR_CREATE_SRQ_XRCD_HANDLE, xrcd)
        .handle(UVERBS_ATTR_CREATE_SRQ_CQ_HANDLE, rig.cq())
        .output(&rig.memory, UVERBS_ATTR_CREATE_SRQ_RESP_SRQ_NUM, 4)
}

/// QP.CREATE of a target.
fn create_target(rig: &Rig, xrcd: u32) -> Cmd {
    rig.create_qp()
        .without(UVERBS_ATTR_CREATE_QP_PD_HANDLE)
        .without(UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE)
        .without(UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE)
        .without(UVERBS_ATTR_UHW_IN)
        .edit(UVERBS_ATTR_CREATE_QP_TYPE, |attr| attr.data = IB_UVERBS_QPT_XRC_TGT.into())
        .handle(UVERBS_ATTR_CREATE_QP_XRCD_HANDLE, xrcd)
}

/// QP.CREATE of an initiator.
fn create_initiator(rig: &Rig) -> Cmd {
    let cmd = rig.create_qp().without(UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE);
    let cap = cmd.find(UVERBS_ATTR_CREATE_QP_CAP).expect("sizes").data;
    rig.memory.edit(cap, |cap: &mut ib_uverbs_qp_cap| {
        (cap.max_recv_wr, cap.max_recv_sge) = (0, 0);
    });
    let driver = cmd.find(UVERBS_ATTR_UHW_IN).expect("driver data").data;
    rig.memory.edit(driver, |request: &mut mlx5_ib_create_qp| {
        (request.rq_wqe_count, request.rq_wqe_shift) = (0, 0);
    });
    cmd.edit(UVERBS_ATTR_CREATE_QP_TYPE, |attr| attr.data = IB_UVERBS_QPT_XRC_INI.into())
}

/// A target's handle and number.
fn target(rig: &Rig, xrcd: u32) -> Result<(u32, u32), Errno> {
    let cmd = create_target(rig, xrcd);
    let handle = rig.send(&cmd)?[0].data as u32;
    Ok((handle, rig.answer(&cmd, UVERBS_ATTR_CREATE_QP_RESP_QP_NUM)))
}

fn open_qp(rig: &Rig, xrcd: u32, qpn: u32, kind: u8) -> Cmd {
    let request = ib_uverbs_open_qp {
        user_handle: 0xabc,
        pd_handle: xrcd,
        qpn,
        qp_type: kind,
        ..Default::default()
    };
    let room = size_of::<ib_uverbs_create_qp_resp>();
    rig.write(uverbs_kernel_abi::write::IB_USER_VERBS_CMD_OPEN_QP, &request, room)
}

/// A request with every field filled in.
fn request(rig: &Rig, qp: u32, to: u8, mask: u32) -> ib_uverbs_modify_qp {
    let (init, rts) = (rig.to_init(), rig.to_rts());
    ib_uverbs_modify_qp {
        qp_handle: qp,
        attr_mask: IB_QP_STATE | mask,
        qp_state: to,
        port_num: init.port_num,
        qp_access_flags: init.qp_access_flags,
        timeout: rts.timeout,
        retry_cnt: rts.retry_cnt,
        rnr_retry: rts.rnr_retry,
        sq_psn: rts.sq_psn,
        max_rd_atomic: rts.max_rd_atomic,
        ..rig.to_rtr()
    }
}

/// Each attribute added to a good request, or taken from it.
fn masks(step: &'static Step) -> impl Iterator<Item = Case> {
    // `cases/modify.rs` covers the attributes that move the path: other rules refuse them.
    let others = (0..32).filter(|bit| 1u32 << bit != IB_QP_ALT_PATH && 1u32 << bit != IB_QP_AV);
    others.map(move |bit| {
        let mask = 1u32 << bit;
        let dropped = if step.ini { NOT_INI } else { NOT_TGT };
        let (verb, want) = match mask {
            _ if (IB_QP_STATE | step.required) & mask != 0 => ("without", EINVAL),
            _ if (step.optional | dropped) & mask != 0 => ("with", Want::Ok),
            _ if STANDARD & mask != 0 => ("with", EINVAL),
            _ => ("with", EOPNOTSUPP),
        };
        let kind = if step.ini { "initiator" } else { "target" };
        let name = format!("{kind}, from {} {verb} bit {bit}", step.from);
        case("XRC", name, STATES, want, move |rig| {
            let qp = match step.ini {
                true => rig.send(&create_initiator(rig))?[0].data as u32,
                false => target(rig, domain(rig, -1, CREAT)?)?.0,
            };
            let of_kind = STEPS.iter().filter(|before| before.ini == step.ini);
            for before in of_kind.take_while(|before| before.from < step.from) {
                rig.send(&rig.modify(&request(rig, qp, before.from + 1, before.required)))?;
            }
            let mut request = request(rig, qp, step.from + 1, step.required);
            request.attr_mask ^= mask;
            request.cur_qp_state = step.from;
            rig.run(&rig.modify(&request))
        })
    })
}

type Run = fn(&Rig) -> Result<String, Errno>;

fn with(name: &'static str, source: &'static str, want: Want, run: Run) -> Case {
    case("XRC", name, source, want, run)
}

fn domains() -> Vec<Case> {
    vec![
        with("a domain", OPEN, Want::Ok, |rig| rig.run(&open(rig, -1, CREAT))),
        with("a domain without O_CREAT", OPEN, Want::Ok, |rig| rig.run(&open(rig, -1, 0))),
        with("of no file", OPEN, EBADF, |rig| rig.run(&open(rig, 12_345, CREAT))),
        with("of a negative file", OPEN, EBADF, |rig| rig.run(&open(rig, -2, CREAT))),
        with("of a file that names none", OPEN, EAGAIN, |rig| {
            let file = std::fs::File::open("/proc/self/exe").expect("a file");
            rig.run(&open(rig, file.as_raw_fd(), 0))
        }),
        with("of a file, twice", OPEN, Want::Is("EINVAL, EBUSY, EAGAIN"), |rig| {
            let file = std::fs::File::open("/proc/self/exe").expect("a file");
            let fd = file.as_raw_fd();
            let first = domain(rig, fd, CREAT | EXCL)?;
            let exclusive = rig.run(&open(rig, fd, CREAT | EXCL)).unwrap_err();
            let (second, _) = (domain(rig, fd, 0)?, target(rig, first)?);
            let close = |handle: u32| rig.run(&rig.destroy(UVERBS_OBJECT_XRCD, handle));
            let busy = close(first).unwrap_err();
            close(second)?;
            let other = std::fs::File::open("/dev/null").expect("a file");
            let none = rig.run(&open(rig, other.as_raw_fd(), EXCL)).unwrap_err();
            Ok(format!("{exclusive:?}, {busy:?}, {none:?}"))
        }),
        with("closed", CLOSE, Want::Ok, |rig| {
            rig.run(&rig.destroy(UVERBS_OBJECT_XRCD, domain(rig, -1, CREAT)?))
        }),
        with("closed with a target", CLOSE, EBUSY, |rig| {
            let xrcd = domain(rig, -1, CREAT)?;
            target(rig, xrcd)?;
            rig.run(&rig.destroy(UVERBS_OBJECT_XRCD, xrcd))
        }),
        with("closed with a queue", CLOSE, EBUSY, |rig| {
            let xrcd = domain(rig, -1, CREAT)?;
            rig.send(&create_srq(rig, xrcd))?;
            rig.run(&rig.destroy(UVERBS_OBJECT_XRCD, xrcd))
        }),
    ]
}

fn queues() -> Vec<Case> {
    vec![
        with("a queue", SRQ, Want::Is("a number"), |rig| {
            let cmd = create_srq(rig, domain(rig, -1, CREAT)?);
            rig.send(&cmd)?;
            let number: u32 = rig.answer(&cmd, UVERBS_ATTR_CREATE_SRQ_RESP_SRQ_NUM);
            Ok(if number == 0 { "none" } else { "a number" }.to_owned())
        }),
        with("a queue without a domain", SRQ, ENOENT, |rig| {
            let cmd = create_srq(rig, domain(rig, -1, CREAT)?);
            rig.run(&cmd.without(UVERBS_ATTR_CREATE_SRQ_XRCD_HANDLE))
        }),
        with("a queue without a CQ", SRQ, ENOENT, |rig| {
            let cmd = create_srq(rig, domain(rig, -1, CREAT)?);
            rig.run(&cmd.without(UVERBS_ATTR_CREATE_SRQ_CQ_HANDLE))
        }),
        with("a queue of a PD for a domain", SRQ, EINVAL, |rig| {
            rig.run(&create_srq(rig, rig.pd()))
        }),
        with("a plain queue with a domain", SRQ, Want::Ok, |rig| {
            let cmd = create_srq(rig, domain(rig, -1, CREAT)?);
            let kind = u64::from(IB_UVERBS_SRQT_BASIC);
            rig.run(&cmd.edit(UVERBS_ATTR_CREATE_SRQ_TYPE, |attr| attr.data = kind))
        }),
        with("a queue without a user index", SRQ, EINVAL, |rig| {
            let cmd = create_srq(rig, domain(rig, -1, CREAT)?).without(UVERBS_ATTR_UHW_IN);
            let request = rig.srq_request();
            let head = [request.buf_addr, request.db_addr, 0];
            rig.run(&cmd.input(&rig.memory, UVERBS_ATTR_UHW_IN, &head))
        }),
        with("a queue's CQ is in use", SRQ, EBUSY, |rig| {
            let cmd = create_srq(rig, domain(rig, -1, CREAT)?);
            rig.send(&cmd)?;
            rig.run(&rig.destroy(UVERBS_OBJECT_CQ, rig.cq()))
        }),
        with("a queue, destroyed beside a target", SRQ, Want::Ok, |rig| {
            let xrcd = domain(rig, -1, CREAT)?;
            let srq = rig.send(&create_srq(rig, xrcd))?;
            let srq = handle_of(&srq, UVERBS_ATTR_CREATE_SRQ_HANDLE);
            target(rig, xrcd)?;
            rig.run(&rig.destroy(UVERBS_OBJECT_SRQ, srq))
        }),
        with("a queue for a queue pair of RC", QP, EINVAL, |rig| {
            let srq = rig.send(&create_srq(rig, domain(rig, -1, CREAT)?))?;
            let srq = handle_of(&srq, UVERBS_ATTR_CREATE_SRQ_HANDLE);
            rig.run(&rig.create_qp().handle(UVERBS_ATTR_CREATE_QP_SRQ_HANDLE, srq))
        }),
    ]
}

/// A domain, or a handle of nothing.
fn some_domain(rig: &Rig) -> u32 {
    domain(rig, -1, CREAT).unwrap_or(999)
}

/// OPEN_XRCD that works, and so on.
pub(crate) fn open_domain(rig: &Rig) -> Cmd {
    open(rig, -1, CREAT)
}

pub(crate) fn close_domain(rig: &Rig) -> Cmd {
    rig.destroy(UVERBS_OBJECT_XRCD, some_domain(rig))
}

pub(crate) fn queue(rig: &Rig) -> Cmd {
    create_srq(rig, some_domain(rig))
}

pub(crate) fn new_target(rig: &Rig) -> Cmd {
    create_target(rig, some_domain(rig))
}

pub(crate) fn new_initiator(rig: &Rig) -> Cmd {
    create_initiator(rig)
}

pub(crate) fn open_target(rig: &Rig) -> Cmd {
    let xrcd = some_domain(rig);
    let qpn = target(rig, xrcd).map_or(0, |(_, qpn)| qpn);
    open_qp(rig, xrcd, qpn, IB_UVERBS_QPT_XRC_TGT)
}

fn handle_of(sent: &[uverbs_kernel_abi::ioctl::ib_uverbs_attr], id: u16) -> u32 {
    sent.iter().find(|attr| attr.attr_id == id).map_or(0, |attr| attr.data as u32)
}

fn queue_pairs() -> Vec<Case> {
    vec![
        with("an initiator", QP, Want::Ok, |rig| rig.run(&create_initiator(rig))),
        with("an initiator with a queue", QP, EINVAL, |rig| {
            let cmd = create_initiator(rig);
            rig.run(&cmd.handle(UVERBS_ATTR_CREATE_QP_SRQ_HANDLE, rig.srq()))
        }),
        with("an initiator with a domain", QP, EINVAL, |rig| {
            let xrcd = domain(rig, -1, CREAT)?;
            rig.run(&create_initiator(rig).handle(UVERBS_ATTR_CREATE_QP_XRCD_HANDLE, xrcd))
        }),
        with("a target", QP, Want::Ok, |rig| rig.run(&create_target(rig, domain(rig, -1, CREAT)?))),
        with("a target without a domain", QP, ENOENT, |rig| {
            let cmd = create_target(rig, domain(rig, -1, CREAT)?);
            rig.run(&cmd.without(UVERBS_ATTR_CREATE_QP_XRCD_HANDLE))
        }),
        with("a target with a PD", QP, EINVAL, |rig| {
            let cmd = create_target(rig, domain(rig, -1, CREAT)?);
            rig.run(&cmd.handle(UVERBS_ATTR_CREATE_QP_PD_HANDLE, rig.pd()))
        }),
        with("a target with a plain queue", QP, EINVAL, |rig| {
            let cmd = create_target(rig, domain(rig, -1, CREAT)?);
            rig.run(&cmd.handle(UVERBS_ATTR_CREATE_QP_SRQ_HANDLE, rig.srq()))
        }),
        with("a target opened", OPEN_QP, Want::Ok, |rig| {
            let xrcd = domain(rig, -1, CREAT)?;
            let (_, qpn) = target(rig, xrcd)?;
            rig.run(&open_qp(rig, xrcd, qpn, IB_UVERBS_QPT_XRC_TGT))
        }),
        with("a target opened as another type", OPEN_QP, EINVAL, |rig| {
            let xrcd = domain(rig, -1, CREAT)?;
            let (_, qpn) = target(rig, xrcd)?;
            rig.run(&open_qp(rig, xrcd, qpn, IB_UVERBS_QPT_RC))
        }),
        with("a target opened in another domain", OPEN_QP, EINVAL, |rig| {
            let (xrcd, other) = (domain(rig, -1, CREAT)?, domain(rig, -1, CREAT)?);
            let (_, qpn) = target(rig, xrcd)?;
            rig.run(&open_qp(rig, other, qpn, IB_UVERBS_QPT_XRC_TGT))
        }),
        with("a target of no number", OPEN_QP, EINVAL, |rig| {
            let xrcd = domain(rig, -1, CREAT)?;
            rig.run(&open_qp(rig, xrcd, 0xff_fff0, IB_UVERBS_QPT_XRC_TGT))
        }),
        with("a target of no domain", OPEN_QP, EINVAL, |rig| {
            rig.run(&open_qp(rig, 999, 1, IB_UVERBS_QPT_XRC_TGT))
        }),
        with("a target outlives who made it", OPEN_QP, Want::Is("EBUSY, EINVAL"), |rig| {
            let xrcd = domain(rig, -1, CREAT)?;
            let (first, qpn) = target(rig, xrcd)?;
            let open = open_qp(rig, xrcd, qpn, IB_UVERBS_QPT_XRC_TGT);
            rig.send(&open)?;
            let second: u32 = rig.answer(&open, UVERBS_ATTR_CORE_OUT);
            rig.send(&rig.destroy(UVERBS_OBJECT_QP, first))?;
            rig.send(&rig.modify(&request(rig, second, IB_QPS_INIT, INIT)))?;
            let busy = rig.run(&rig.destroy(UVERBS_OBJECT_XRCD, xrcd)).unwrap_err();
            rig.send(&rig.destroy(UVERBS_OBJECT_QP, second))?;
            let gone = rig.run(&open).unwrap_err();
            rig.send(&rig.destroy(UVERBS_OBJECT_XRCD, xrcd))?;
            Ok(format!("{busy:?}, {gone:?}"))
        }),
        with("who opened a target may bring it up", OPEN_QP, Want::Ok, |rig| {
            let xrcd = domain(rig, -1, CREAT)?;
            let (first, qpn) = target(rig, xrcd)?;
            let open = open_qp(rig, xrcd, qpn, IB_UVERBS_QPT_XRC_TGT);
            rig.send(&open)?;
            let second: u32 = rig.answer(&open, UVERBS_ATTR_CORE_OUT);
            rig.send(&rig.modify(&request(rig, first, IB_QPS_INIT, INIT)))?;
            let needs = RTR | IB_QP_MAX_DEST_RD_ATOMIC | IB_QP_MIN_RNR_TIMER;
            rig.run(&rig.modify(&request(rig, second, IB_QPS_RTR, needs)))
        }),
    ]
}

pub(super) fn cases() -> Vec<Case> {
    let mut all = domains();
    all.extend(queues());
    all.extend(queue_pairs());
    all.extend(STEPS.iter().flat_map(masks));
    all.into_iter().map(|case| case.only(World::Mlx5, "soft-RoCE has no XRC")).collect()
}

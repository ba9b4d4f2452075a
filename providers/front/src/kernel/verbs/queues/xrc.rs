//! XRC domains, and target queue pairs, which belong to a domain instead of a process
//! (`ib_uverbs_open_xrcd`, `ib_uverbs_open_qp` in `core/uverbs_cmd.c`; `create_xrc_qp_user` in
//! `core/verbs.c`; `create_xrc_tgt_qp` in `hw/mlx5/qp.c`).

use nix::errno::Errno;
use nix::fcntl::OFlag;
use uverbs_kernel_abi::objects::{
    UVERBS_ATTR_CREATE_QP_RESP_CAP, UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, UVERBS_OBJECT_QP,
    UVERBS_OBJECT_XRCD,
};
use uverbs_kernel_abi::qp::{
    IB_UVERBS_QPT_XRC_TGT, ib_uverbs_create_qp_resp, ib_uverbs_open_qp, ib_uverbs_qp_cap,
};
use uverbs_kernel_abi::write::{IB_USER_VERBS_CMD_OPEN_QP, IB_USER_VERBS_CMD_OPEN_XRCD};
use uverbs_kernel_abi::xrcd::{ib_uverbs_open_xrcd, ib_uverbs_open_xrcd_resp};

use crate::backend::context::{QpContext, Service};
use crate::backend::error::errno;
use crate::backend::number::{Pdn, Qpn, Queue};
use crate::kernel::call::{Call, Write};
use crate::kernel::state::objects::{Object, Qp, Xrcd};
use crate::kernel::user;

/// OPEN_XRCD.
pub(crate) const OPEN_XRCD: Write = Write {
    command: IB_USER_VERBS_CMD_OPEN_XRCD,
    request: size_of::<ib_uverbs_open_xrcd>(),
    response: size_of::<ib_uverbs_open_xrcd_resp>(),
    handler: open,
};

/// OPEN_QP.
pub(crate) const OPEN_QP: Write = Write {
    command: IB_USER_VERBS_CMD_OPEN_QP,
    request: size_of::<ib_uverbs_open_qp>(),
    response: size_of::<ib_uverbs_create_qp_resp>(),
    handler: open_qp,
};

fn open(call: &mut Call<'_>) -> Result<(), Errno> {
    let request: ib_uverbs_open_xrcd = call.request()?;
    let file = match request.fd.cast_signed() {
        -1 => None,
        fd => Some(user::file(fd)?),
    };
    let handle = call.new_handle(UVERBS_OBJECT_XRCD)?;
    let flags = OFlag::from_bits_retain(request.oflags.cast_signed());
    let number = match file {
        None => call.device.xrc.open_private()?,
        Some(file) => {
            let (create, exclusive) =
                (flags.contains(OFlag::O_CREAT), flags.contains(OFlag::O_EXCL));
            call.device.xrc.open_shared(file, create, exclusive)?
        }
    };
    call.put_object(handle, Object::Xrcd(Xrcd { number }));
    call.respond(&ib_uverbs_open_xrcd_resp { xrcd_handle: handle })
}

/// Parameters of a target: its domain, and the receiver of its events.
pub(crate) struct TargetAsked {
    pub(crate) xrcd: u32,
    pub(crate) user_handle: u64,
    pub(crate) event_file: Option<u32>,
    pub(crate) handle: u32,
    pub(crate) cap: ib_uverbs_qp_cap,
}

/// The end of QP.CREATE for a target. The driver's request is ignored.
pub(crate) fn create_target(call: &mut Call<'_>, asked: &TargetAsked) -> Result<(), Errno> {
    let domain = call.file.objects.xrcd(asked.xrcd)?.number;
    let device = &mut *call.device;
    let cq = device.xrc.driver_cq(&mut device.hca).map_err(errno)?;
    // PD 0 belongs to no process: the SRQ that a packet names determines the accessible memory.
    let context = QpContext { xrcd: domain, ..QpContext::bare(Service::Xrc, Pdn(0), cq) };
    let qpn = device.hca.create_qp(context).map_err(errno)?.number();
    device.xrc.add_target(qpn, domain);
    put(call, qpn, asked);
    call.output_or_zero(UVERBS_ATTR_CREATE_QP_RESP_CAP, &asked.cap)?;
    call.output(UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, &qpn.0)
}

fn open_qp(call: &mut Call<'_>) -> Result<(), Errno> {
    let request: ib_uverbs_open_qp = call.request()?;
    let handle = call.new_handle(UVERBS_OBJECT_QP)?;
    // This command returns `EINVAL` for a handle that is no domain.
    let domain = call.file.objects.xrcd(request.pd_handle).map_err(|_| Errno::EINVAL)?.number;
    if request.qp_type != IB_UVERBS_QPT_XRC_TGT {
        return Err(Errno::EINVAL);
    }
    let qpn = Qpn(request.qpn);
    call.device.xrc.open_target(qpn, domain)?;
    let asked = TargetAsked {
        xrcd: request.pd_handle,
        user_handle: request.user_handle,
        event_file: None,
        handle,
        cap: ib_uverbs_qp_cap::default(),
    };
    put(call, qpn, &asked);
    let response = ib_uverbs_create_qp_resp { qp_handle: handle, qpn: qpn.0, ..Default::default() };
    call.respond(&response)
}

/// Creates the handle of a target, newly created or opened.
fn put(call: &mut Call<'_>, qpn: Qpn, asked: &TargetAsked) {
    call.file.objects.hold(asked.xrcd);
    call.device.qp_owners.entry(Queue::Qp(qpn)).or_default().push((call.file.id, asked.handle));
    let qp = Qp {
        lag_port: 1,
        qpn,
        kind: IB_UVERBS_QPT_XRC_TGT,
        held: vec![asked.xrcd],
        user_handle: asked.user_handle,
        async_file: call.file.events.async_file(asked.event_file),
        async_events: 0,
        cap: ib_uverbs_qp_cap::default(),
        sq_sig_all: false,
        groups: Default::default(),
        pinned: 0,
        _uar: None,
        raw: None,
    };
    call.put_object(asked.handle, Object::Qp(Box::new(qp)));
}

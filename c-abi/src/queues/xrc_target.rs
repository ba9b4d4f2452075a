//! Targets of XRC: queue pairs without queues, which belong to a domain.
//!
//! # Safety
//!
//! By C's contract (crate root), a pointer is null only where the header allows it, otherwise valid
//! for its type, and an object is in use only until its destruction. This object owns the kernel's
//! handle.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Arc;

use uverbs_core::Errno;
use uverbs_core::attr::QpState;
use uverbs_core::commands::qp::QpCreated;
use uverbs_core::error::Error;
use uverbs_core::objects::context::unique_id;
use uverbs_core::objects::qp_object::QpObject;

use crate::base::answer::{given, null};
use crate::base::live::Kind;
use crate::base::object::Named;
use crate::device::context::Context;
use crate::post::send::SendSide;
use crate::post::table;
use crate::post::wr;
use crate::queues::qp::{Qp, Target, XRC_RECV};
use crate::queues::xrcd::Xrcd;
use crate::sys::{Cond, Mutex, ibv_context, ibv_qp, ibv_qp_open_attr};

/// `IBV_QP_OPEN_ATTR_*`.
const OPEN_NUM: u32 = 1;
const OPEN_XRCD: u32 = 2;
const OPEN_CONTEXT: u32 = 4;
const OPEN_TYPE: u32 = 8;
const OPEN_KNOWN: u32 = 15;

/// Wraps a target that the kernel just created or opened in the domain.
fn target(of: &Xrcd, created: QpCreated, id: u64, qp_context: *mut c_void) -> *mut ibv_qp {
    let base = ibv_qp {
        context: of.context_ptr(),
        qp_context,
        pd: null_mut(),
        send_cq: null_mut(),
        recv_cq: null_mut(),
        srq: null_mut(),
        handle: created.handle,
        qp_num: created.qpn,
        state: 0,
        qp_type: XRC_RECV,
        mutex: Mutex::default(),
        cond: Cond::default(),
        events_completed: 0,
    };
    let (core, number) = (Arc::clone(of.core().context()), (created.handle, created.qpn));
    // SAFETY: the kernel just returned the handle, and this object alone ends it.
    let object = unsafe { QpObject::new(core, number, id, QpState::Reset) };
    let qp = Qp::target(
        wr::functions(&SendSide::None, base),
        table::functions(&SendSide::None, XRC_RECV),
        Target { object, _domain: Arc::clone(of.core()) },
    );
    let qp = of.context().left().give(Kind::Qp, qp);
    of.context().names().add(id, Named::Qp(qp.expose_provenance()));
    qp.cast()
}

/// Creates an XRC target.
pub(crate) fn create(of: &Xrcd, qp_context: *mut c_void) -> Result<*mut ibv_qp, Error> {
    let (id, domain) = (unique_id(), of.core().open("create_qp")?);
    let created = of.context().core().uverbs().create_xrc_target(domain.handle(), id)?;
    Ok(target(of, created, id, qp_context))
}

/// Opens an existing target of the domain by its number.
pub(crate) unsafe extern "C" fn open_qp(
    context: *mut ibv_context,
    attr: *const ibv_qp_open_attr,
) -> *mut ibv_qp {
    // SAFETY: by C's contract.
    let (context, attr) = unsafe { (Context::of(context), &*attr) };
    if attr.comp_mask & !OPEN_KNOWN != 0 {
        return null(Errno::EOPNOTSUPP);
    }
    let needed = OPEN_NUM | OPEN_XRCD | OPEN_TYPE;
    if attr.comp_mask & needed != needed || attr.qp_type != XRC_RECV {
        return null(Errno::EINVAL);
    }
    let qp_context = if attr.comp_mask & OPEN_CONTEXT == 0 { null_mut() } else { attr.qp_context };
    // SAFETY: by C's contract.
    let of = unsafe { Xrcd::of(attr.xrcd) };
    let (id, uverbs) = (unique_id(), context.core().uverbs());
    let opened = of.core().open("open_qp").and_then(|domain| {
        let opened = uverbs.open_xrc_target(domain.handle(), attr.qp_num, id)?;
        Ok(target(of, opened, id, qp_context))
    });
    given(opened)
}

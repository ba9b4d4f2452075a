//! Indirection tables of work queues, and queue pairs that spread packets over them by hash (RSS).
//!
//! # Safety
//!
//! By C's contract (crate root), a pointer is null only where the header allows it, otherwise valid
//! for its type, and an object is in use only until its destruction.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::ffi::c_int;
use std::ptr::null_mut;
use std::slice;
use std::sync::Arc;

use uverbs_core::Errno;
use uverbs_core::attr::{HashFields, RssHash};
use uverbs_core::error::Error;
use uverbs_core::objects::rss::IndTableCore;
use uverbs_core::provider::ContextOps;
use uverbs_kernel_abi::mlx5::MLX5_RX_HASH_FUNC_TOEPLITZ;
use uverbs_kernel_abi::wq::IB_USER_VERBS_MAX_LOG_IND_TBL_SIZE;

use crate::base::answer::{code, kept, null};
use crate::base::live::Kind;
use crate::base::object::Named;
use crate::device::context::Context;
use crate::memory::pd::Pd;
use crate::post::send::SendSide;
use crate::post::table;
use crate::post::wr;
use crate::queues::qp::{Qp, RAW_PACKET};
use crate::queues::wq::Wq;
use crate::sys::{
    Cond, Mutex, ibv_context, ibv_qp, ibv_qp_init_attr_ex, ibv_rwq_ind_table,
    ibv_rwq_ind_table_init_attr, ibv_rx_hash_conf,
};

#[repr(C)]
struct Table {
    c: ibv_rwq_ind_table,
    core: Arc<IndTableCore>,
}

impl Table {
    /// # Safety
    ///
    /// C's contract.
    unsafe fn of<'a>(table: *const ibv_rwq_ind_table) -> &'a Self {
        // SAFETY: by C's contract; C's struct is the first member of this object.
        unsafe { &*table.cast() }
    }
}

pub(crate) unsafe extern "C" fn create_rwq_ind_table(
    context: *mut ibv_context,
    attr: *const ibv_rwq_ind_table_init_attr,
) -> *mut ibv_rwq_ind_table {
    // SAFETY: by C's contract.
    let (of, attr) = unsafe { (Context::of(context), &*attr) };
    if attr.comp_mask != 0 || attr.log_ind_tbl_size > IB_USER_VERBS_MAX_LOG_IND_TBL_SIZE {
        return null(Errno::EINVAL);
    }
    // SAFETY: C's contract: the table has as many entries.
    let list = unsafe { slice::from_raw_parts(attr.ind_tbl, 1 << attr.log_ind_tbl_size) };
    // SAFETY: C's contract: the table has as many entries.
    let queues = list.iter().map(|wq| unsafe { Arc::clone(Wq::of(*wq).core()) }).collect();
    let made = of.ops().create_ind_table(queues).map(|core| {
        let c = ibv_rwq_ind_table {
            context,
            ind_tbl_handle: core.handle() as c_int,
            ind_tbl_num: core.number() as c_int,
            comp_mask: 0,
        };
        Box::new(Table { c, core })
    });
    kept(of.left(), Kind::Table, made).cast()
}

pub(crate) unsafe extern "C" fn destroy_rwq_ind_table(table: *mut ibv_rwq_ind_table) -> c_int {
    // SAFETY: by C's contract.
    let (of, context) = unsafe { (Table::of(table), Context::of((*table).context)) };
    // SAFETY: C's contract: no queue pair is made over it any more.
    let done = unsafe { of.core.destroy() };
    if done.is_ok() {
        // SAFETY: the object was kept as a box of this type, and is destroyed.
        drop(unsafe { context.left().take::<Table>(Kind::Table, table.cast()) });
    }
    code(done)
}

/// Converts C's hash attributes, with the kernel's checks (`hw/mlx5/qp.c`,
/// `create_rss_raw_qp_tir`).
///
/// # Safety
///
/// C's contract.
unsafe fn hash(conf: &ibv_rx_hash_conf) -> Result<RssHash, Error> {
    let refuse = |errno| Err(Error::kernel("create_qp", errno));
    let mut key = [0; 40];
    if conf.rx_hash_function != MLX5_RX_HASH_FUNC_TOEPLITZ {
        return refuse(Errno::EOPNOTSUPP);
    }
    if usize::from(conf.rx_hash_key_len) != key.len() {
        return refuse(Errno::EINVAL);
    }
    // SAFETY: C's contract: the key is as long as that.
    let given =
        unsafe { slice::from_raw_parts(conf.rx_hash_key, usize::from(conf.rx_hash_key_len)) };
    key.copy_from_slice(given);
    // The kernel checks the fields.
    Ok(RssHash { key, fields: HashFields::from_bits_retain(conf.rx_hash_fields_mask) })
}

/// Creates a queue pair over an indirection table: it receives packets by flow rules, and has no
/// queues.
///
/// # Safety
///
/// C's contract; the attributes name a domain, and a table and a hash.
pub(crate) unsafe fn create_qp(attr: &ibv_qp_init_attr_ex) -> Result<*mut ibv_qp, Error> {
    let cap = &attr.cap;
    let receives = cap.max_recv_wr != 0 || cap.max_recv_sge != 0;
    let queues = receives || !attr.recv_cq.is_null() || !attr.srq.is_null();
    // Requirements of the kernel, checked first by C's library (`ibv_icmd_create_qp`,
    // `check_qp_attr`).
    if queues || cap.max_send_wr != 0 || attr.qp_type != RAW_PACKET {
        return Err(Error::kernel("create_qp", Errno::EINVAL));
    }
    // SAFETY: by C's contract.
    let (of, table) = unsafe { (Pd::of(attr.pd), Table::of(attr.rwq_ind_tbl.cast())) };
    // SAFETY: by C's contract.
    let hash = unsafe { hash(&attr.rx_hash_conf) }?;
    let core = of.context().ops().create_rss_qp(of.core(), &table.core, &hash)?;
    let object = core.object();
    let base = ibv_qp {
        context: of.context_ptr(),
        qp_context: attr.qp_context,
        pd: attr.pd,
        send_cq: attr.send_cq,
        recv_cq: null_mut(),
        srq: null_mut(),
        handle: object.handle(),
        qp_num: object.qpn(),
        state: 0,
        qp_type: attr.qp_type,
        mutex: Mutex::default(),
        cond: Cond::default(),
        events_completed: 0,
    };
    let id = object.event_id();
    let functions = table::functions(&SendSide::None, attr.qp_type);
    let qp = Qp::spread(wr::functions(&SendSide::None, base), functions, core);
    let qp = of.context().left().give(Kind::Qp, qp);
    of.context().names().add(id, Named::Qp(qp.expose_provenance()));
    Ok(qp.cast())
}

//! Attributes of queue pairs, between C's structs and the kernel's.

use uverbs_core::attr::{QpAttrMask, QpCap, RawQpAttr};
use uverbs_kernel_abi::ah::ib_uverbs_ah_attr;
use uverbs_kernel_abi::qp::{ib_uverbs_qp_attr, ib_uverbs_qp_dest, ib_uverbs_query_qp_resp};

use crate::sys::{ibv_ah_attr, ibv_gid, ibv_global_route, ibv_qp_attr, ibv_qp_cap};

pub(crate) fn cap_of(c: &ibv_qp_cap) -> QpCap {
    QpCap {
        max_send_wr: c.max_send_wr,
        max_recv_wr: c.max_recv_wr,
        max_send_sge: c.max_send_sge,
        max_recv_sge: c.max_recv_sge,
        max_inline_data: c.max_inline_data,
    }
}

pub(crate) fn cap_to(cap: &QpCap) -> ibv_qp_cap {
    ibv_qp_cap {
        max_send_wr: cap.max_send_wr,
        max_recv_wr: cap.max_recv_wr,
        max_send_sge: cap.max_send_sge,
        max_recv_sge: cap.max_recv_sge,
        max_inline_data: cap.max_inline_data,
    }
}

fn dest(c: &ibv_ah_attr) -> ib_uverbs_qp_dest {
    ib_uverbs_qp_dest {
        dgid: c.grh.dgid.raw,
        flow_label: c.grh.flow_label,
        dlid: c.dlid,
        reserved: 0,
        sgid_index: c.grh.sgid_index,
        hop_limit: c.grh.hop_limit,
        traffic_class: c.grh.traffic_class,
        sl: c.sl,
        src_path_bits: c.src_path_bits,
        static_rate: c.static_rate,
        is_global: c.is_global,
        port_num: c.port_num,
    }
}

fn ah(dest: &ib_uverbs_qp_dest) -> ibv_ah_attr {
    ibv_ah_attr {
        grh: ibv_global_route {
            dgid: ibv_gid { raw: dest.dgid },
            flow_label: dest.flow_label,
            sgid_index: dest.sgid_index,
            hop_limit: dest.hop_limit,
            traffic_class: dest.traffic_class,
        },
        dlid: dest.dlid,
        sl: dest.sl,
        src_path_bits: dest.src_path_bits,
        static_rate: dest.static_rate,
        is_global: dest.is_global,
        port_num: dest.port_num,
    }
}

/// Converts a change for the command: attributes in the mask, zeros elsewhere.
pub(crate) fn change(c: &ibv_qp_attr, mask: QpAttrMask) -> RawQpAttr {
    let mut to = RawQpAttr::default();
    let base = &mut to.base;
    let has = |attribute| mask.contains(attribute);
    // C programs may leave attributes outside the mask uninitialised.
    macro_rules! set {
        ($($attribute:ident: $($field:ident)+;)*) => {
            $(if has(QpAttrMask::$attribute) { $(base.$field = c.$field as _;)+ })*
        };
    }
    set! {
        CUR_STATE: cur_qp_state;
        EN_SQD_ASYNC_NOTIFY: en_sqd_async_notify;
        ACCESS_FLAGS: qp_access_flags;
        PKEY_INDEX: pkey_index;
        PORT: port_num;
        QKEY: qkey;
        PATH_MTU: path_mtu;
        TIMEOUT: timeout;
        RETRY_CNT: retry_cnt;
        RNR_RETRY: rnr_retry;
        RQ_PSN: rq_psn;
        MAX_QP_RD_ATOMIC: max_rd_atomic;
        ALT_PATH: alt_pkey_index alt_port_num alt_timeout;
        MIN_RNR_TIMER: min_rnr_timer;
        SQ_PSN: sq_psn;
        MAX_DEST_RD_ATOMIC: max_dest_rd_atomic;
        PATH_MIG_STATE: path_mig_state;
        DEST_QPN: dest_qp_num;
        STATE: qp_state;
    }
    if has(QpAttrMask::AV) {
        base.dest = dest(&c.ah_attr);
    }
    if has(QpAttrMask::ALT_PATH) {
        base.alt_dest = dest(&c.alt_ah_attr);
    }
    if has(QpAttrMask::RATE_LIMIT) {
        to.rate_limit = c.rate_limit;
    }
    to
}

/// Converts the reply of QUERY_QP.
pub(crate) fn attr(from: &ib_uverbs_query_qp_resp, cap: ibv_qp_cap) -> ibv_qp_attr {
    ibv_qp_attr {
        qp_state: from.qp_state.into(),
        cur_qp_state: from.cur_qp_state.into(),
        path_mtu: from.path_mtu.into(),
        path_mig_state: from.path_mig_state.into(),
        qkey: from.qkey,
        rq_psn: from.rq_psn,
        sq_psn: from.sq_psn,
        dest_qp_num: from.dest_qp_num,
        qp_access_flags: from.qp_access_flags,
        cap,
        ah_attr: ah(&from.dest),
        alt_ah_attr: ah(&from.alt_dest),
        pkey_index: from.pkey_index,
        alt_pkey_index: from.alt_pkey_index,
        en_sqd_async_notify: 0,
        sq_draining: from.sq_draining,
        max_rd_atomic: from.max_rd_atomic,
        max_dest_rd_atomic: from.max_dest_rd_atomic,
        min_rnr_timer: from.min_rnr_timer,
        port_num: from.port_num,
        timeout: from.timeout,
        retry_cnt: from.retry_cnt,
        rnr_retry: from.rnr_retry,
        alt_port_num: from.alt_port_num,
        alt_timeout: from.alt_timeout,
        rate_limit: 0,
    }
}

/// Converts an address of the connection manager.
pub(crate) fn ah_from_kernel(from: &ib_uverbs_ah_attr) -> ibv_ah_attr {
    ibv_ah_attr {
        grh: ibv_global_route {
            dgid: ibv_gid { raw: from.grh.dgid },
            flow_label: from.grh.flow_label,
            sgid_index: from.grh.sgid_index,
            hop_limit: from.grh.hop_limit,
            traffic_class: from.grh.traffic_class,
        },
        dlid: from.dlid,
        sl: from.sl,
        src_path_bits: from.src_path_bits,
        static_rate: from.static_rate,
        is_global: from.is_global,
        port_num: from.port_num,
    }
}

/// Converts attributes of the connection manager.
pub(crate) fn attr_from_kernel(from: &ib_uverbs_qp_attr) -> ibv_qp_attr {
    ibv_qp_attr {
        qp_state: from.qp_state,
        cur_qp_state: from.cur_qp_state,
        path_mtu: from.path_mtu,
        path_mig_state: from.path_mig_state,
        qkey: from.qkey,
        rq_psn: from.rq_psn,
        sq_psn: from.sq_psn,
        dest_qp_num: from.dest_qp_num,
        qp_access_flags: from.qp_access_flags,
        cap: ibv_qp_cap {
            max_send_wr: from.max_send_wr,
            max_recv_wr: from.max_recv_wr,
            max_send_sge: from.max_send_sge,
            max_recv_sge: from.max_recv_sge,
            max_inline_data: from.max_inline_data,
        },
        ah_attr: ah_from_kernel(&from.ah_attr),
        alt_ah_attr: ah_from_kernel(&from.alt_ah_attr),
        pkey_index: from.pkey_index,
        alt_pkey_index: from.alt_pkey_index,
        en_sqd_async_notify: from.en_sqd_async_notify,
        sq_draining: from.sq_draining,
        max_rd_atomic: from.max_rd_atomic,
        max_dest_rd_atomic: from.max_dest_rd_atomic,
        min_rnr_timer: from.min_rnr_timer,
        port_num: from.port_num,
        timeout: from.timeout,
        retry_cnt: from.retry_cnt,
        rnr_retry: from.rnr_retry,
        alt_port_num: from.alt_port_num,
        alt_timeout: from.alt_timeout,
        rate_limit: 0,
    }
}

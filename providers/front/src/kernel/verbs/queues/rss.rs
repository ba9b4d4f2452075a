//! Tables of work queues, and queue pairs that spread packets over them by a hash
//! (`ib_uverbs_ex_create_rwq_ind_table` in `core/uverbs_cmd.c`; `mlx5_ib_create_rwq_ind_table` and
//! `create_rss_raw_qp_tir` in `hw/mlx5/qp.c`).

use std::collections::BTreeSet;
use std::mem::offset_of;

use nix::errno::Errno;
use uverbs_kernel_abi::mlx5::{
    MLX5_QP_FLAG_TIR_ALLOW_SELF_LB_MC, MLX5_QP_FLAG_TIR_ALLOW_SELF_LB_UC, MLX5_RX_HASH_DST_IPV4,
    MLX5_RX_HASH_DST_IPV6, MLX5_RX_HASH_DST_PORT_TCP, MLX5_RX_HASH_DST_PORT_UDP,
    MLX5_RX_HASH_FUNC_TOEPLITZ, MLX5_RX_HASH_INNER, MLX5_RX_HASH_IPSEC_SPI, MLX5_RX_HASH_SRC_IPV4,
    MLX5_RX_HASH_SRC_IPV6, MLX5_RX_HASH_SRC_PORT_TCP, MLX5_RX_HASH_SRC_PORT_UDP,
    mlx5_ib_create_qp_resp, mlx5_ib_create_qp_rss, mlx5_ib_create_rwq_ind_tbl_resp,
};
use uverbs_kernel_abi::objects::{
    UVERBS_ATTR_CORE_IN, UVERBS_ATTR_CREATE_QP_CAP, UVERBS_ATTR_CREATE_QP_EVENT_FD,
    UVERBS_ATTR_CREATE_QP_HANDLE, UVERBS_ATTR_CREATE_QP_PD_HANDLE,
    UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE, UVERBS_ATTR_CREATE_QP_RESP_CAP,
    UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE,
    UVERBS_ATTR_CREATE_QP_SOURCE_QPN, UVERBS_ATTR_CREATE_QP_SRQ_HANDLE,
    UVERBS_ATTR_CREATE_QP_USER_HANDLE, UVERBS_ATTR_CREATE_QP_XRCD_HANDLE, UVERBS_ATTR_UHW_OUT,
    UVERBS_OBJECT_RWQ_IND_TBL,
};
use uverbs_kernel_abi::qp::{
    IB_UVERBS_QP_CREATE_SQ_SIG_ALL, IB_UVERBS_QPT_RAW_PACKET, ib_uverbs_qp_cap,
};
use uverbs_kernel_abi::wq::{
    IB_USER_VERBS_MAX_LOG_IND_TBL_SIZE, ib_uverbs_ex_create_rwq_ind_table,
    ib_uverbs_ex_create_rwq_ind_table_resp,
};
use uverbs_kernel_abi::write::{
    IB_USER_VERBS_CMD_FLAG_EXTENDED, IB_USER_VERBS_EX_CMD_CREATE_RWQ_IND_TBL,
};
use zerocopy::{FromBytes, IntoBytes};

use crate::backend::number::Qpn;
use crate::backend::steering::{
    HashContext, HashFunction, Selector, Spread, TirContext, hash_field,
};
use crate::kernel::call::{Call, Write, zero_extended};
use crate::kernel::state::flows;
use crate::kernel::state::objects::{IndTable, Object, Qp};
use crate::kernel::state::raw_queues::RawQueues;
use crate::kernel::verbs::queues::qp_request::{check_flags, flags};
use crate::kernel::verbs::queues::raw_packet::domain;

/// All hash fields that mlx5_ib reports, for any device (`mlx5_ib_query_device`).
pub(crate) const TOLD_FIELDS: u64 = IPV4 | IPV6 | TCP | UDP | MLX5_RX_HASH_INNER;
const IPV4: u64 = MLX5_RX_HASH_SRC_IPV4 | MLX5_RX_HASH_DST_IPV4;
const IPV6: u64 = MLX5_RX_HASH_SRC_IPV6 | MLX5_RX_HASH_DST_IPV6;
const TCP: u64 = MLX5_RX_HASH_SRC_PORT_TCP | MLX5_RX_HASH_DST_PORT_TCP;
const UDP: u64 = MLX5_RX_HASH_SRC_PORT_UDP | MLX5_RX_HASH_DST_PORT_UDP;

/// Extended CREATE_RWQ_IND_TBL.
pub(crate) const EX_CREATE_RWQ_IND_TBL: Write = Write {
    command: IB_USER_VERBS_CMD_FLAG_EXTENDED | IB_USER_VERBS_EX_CMD_CREATE_RWQ_IND_TBL,
    request: 0,
    response: 0,
    handler: create_table,
};

fn create_table(call: &mut Call<'_>) -> Result<(), Errno> {
    let bytes = call.bytes(UVERBS_ATTR_CORE_IN)?.unwrap_or_default();
    let (request, rest) =
        ib_uverbs_ex_create_rwq_ind_table::read_from_prefix(&bytes).map_err(|_| Errno::ENOSPC)?;
    if request.comp_mask != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let log_size = request.log_ind_tbl_size;
    if log_size > IB_USER_VERBS_MAX_LOG_IND_TBL_SIZE {
        return Err(Errno::EINVAL);
    }
    let list = rest.get(..size_of::<u32>() << log_size).ok_or(Errno::ENOSPC)?;
    if rest[list.len()..].iter().any(|byte| *byte != 0) {
        return Err(Errno::EOPNOTSUPP);
    }
    let handles = list.chunks_exact(size_of::<u32>()).map(zero_extended::<u32>);
    let queues: Vec<u32> = handles.collect();
    let numbers = queues.iter().map(|queue| Ok(call.file.objects.wq(*queue)?.rqn.0));
    let numbers: Vec<u32> = numbers.collect::<Result<_, Errno>>()?;
    let handle = call.new_handle(UVERBS_OBJECT_RWQ_IND_TBL)?;
    // From here on as `mlx5_ib_create_rwq_ind_table`.
    if call.driver_input()?.iter().any(|byte| *byte != 0) {
        return Err(Errno::EOPNOTSUPP);
    }
    let room = call.len(UVERBS_ATTR_UHW_OUT);
    if numbers.len() > call.device.config.max_spread as usize
        || room != 0 && room < size_of::<mlx5_ib_create_rwq_ind_tbl_resp>()
    {
        return Err(Errno::EINVAL);
    }
    let number = call.device.flows.number();
    call.device.hca.steering().add_spread(number, numbers).map_err(flows::errno)?;
    queues.iter().for_each(|queue| call.file.objects.hold(*queue));
    call.put_object(handle, Object::IndTable(IndTable { number, queues }));
    let response_length = size_of::<u32>() as u32;
    call.driver_output(response_length.as_bytes())?;
    let response = ib_uverbs_ex_create_rwq_ind_table_resp {
        comp_mask: 0,
        response_length: call.response_length::<ib_uverbs_ex_create_rwq_ind_table_resp>(),
        ind_tbl_handle: handle,
        ind_tbl_num: number,
    };
    call.respond(&response)
}

/// QP.CREATE with an indirection table.
pub(crate) fn create_qp(call: &mut Call<'_>, kind: u8, table: u32) -> Result<(), Errno> {
    let cap: ib_uverbs_qp_cap = call.input(UVERBS_ATTR_CREATE_QP_CAP)?;
    let user_handle: u64 = call.input(UVERBS_ATTR_CREATE_QP_USER_HANDLE)?;
    if call.has(UVERBS_ATTR_CREATE_QP_XRCD_HANDLE) {
        return Err(Errno::EINVAL);
    }
    let pd = call.object(UVERBS_ATTR_CREATE_QP_PD_HANDLE).ok_or(Errno::ENOENT)?;
    let receives = [UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE, UVERBS_ATTR_CREATE_QP_SRQ_HANDLE];
    if (cap.max_recv_wr, cap.max_recv_sge) != (0, 0) || receives.iter().any(|at| call.has(*at)) {
        return Err(Errno::EINVAL);
    }
    let send_cq = match cap.max_send_wr {
        0 => None,
        _ => Some(call.object(UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE).ok_or(Errno::ENOENT)?),
    };
    let flags = flags(call)?;
    check_flags(kind, flags & !IB_UVERBS_QP_CREATE_SQ_SIG_ALL)?;
    // `check_qp_attr`: the QP has no send queue.
    if send_cq.is_some() || kind != IB_UVERBS_QPT_RAW_PACKET {
        return Err(Errno::EINVAL);
    }
    if call.has(UVERBS_ATTR_CREATE_QP_SOURCE_QPN) {
        return Err(Errno::EOPNOTSUPP);
    }
    let request = driver_request(call)?;
    let Some(Object::IndTable(of)) = call.file.objects.get(table) else {
        return Err(Errno::EINVAL);
    };
    let (spread, places) = (Spread::Table(of.number), of.queues.len());
    let context = TirContext {
        spread,
        hash: hash(&request, places)?,
        domain: domain(call.file.id),
        hears_own_unicast: request.flags & MLX5_QP_FLAG_TIR_ALLOW_SELF_LB_UC != 0,
        hears_own_multicast: request.flags & MLX5_QP_FLAG_TIR_ALLOW_SELF_LB_MC != 0,
    };
    let tir = call.device.flows.number();
    call.device.hca.steering().add_tir(tir, context).map_err(flows::errno)?;
    let held = vec![pd, table];
    held.iter().for_each(|handle| call.file.objects.hold(*handle));
    let event_file = call.object(UVERBS_ATTR_CREATE_QP_EVENT_FD);
    let qp = Qp {
        lag_port: 1,
        qpn: Qpn(0),
        kind,
        held,
        user_handle,
        async_file: call.file.events.async_file(event_file),
        async_events: 0,
        cap,
        sq_sig_all: false,
        groups: BTreeSet::new(),
        pinned: 0,
        _uar: None,
        raw: Some(RawQueues::spread(tir)),
    };
    let handle = call.object(UVERBS_ATTR_CREATE_QP_HANDLE).ok_or(Errno::ENOENT)?;
    call.put_object(handle, Object::Qp(Box::new(qp)));
    call.driver_output(mlx5_ib_create_qp_resp::default().as_bytes())?;
    call.output_or_zero(UVERBS_ATTR_CREATE_QP_RESP_CAP, &cap)?;
    // The QP has no number: 0 is reserved.
    call.output(UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, &0u32)
}

/// Parses the driver's request (`process_udata_size`, `process_vendor_flags`).
fn driver_request(call: &Call<'_>) -> Result<mlx5_ib_create_qp_rss, Errno> {
    let bytes = call.driver_input()?;
    let least = offset_of!(mlx5_ib_create_qp_resp, ece_options);
    if bytes.len() < size_of::<mlx5_ib_create_qp_rss>() || call.len(UVERBS_ATTR_UHW_OUT) < least {
        return Err(Errno::EINVAL);
    }
    if bytes[size_of::<mlx5_ib_create_qp_rss>()..].iter().any(|byte| *byte != 0) {
        return Err(Errno::EINVAL);
    }
    let request: mlx5_ib_create_qp_rss = zero_extended(&bytes);
    // This device lacks tunnel offloads, and a QP without sends has no payload for CQEs.
    let known = MLX5_QP_FLAG_TIR_ALLOW_SELF_LB_UC | MLX5_QP_FLAG_TIR_ALLOW_SELF_LB_MC;
    match request.flags & !known {
        0 => Ok(request),
        _ => Err(Errno::EINVAL),
    }
}

/// Hash parameters (`create_rss_raw_qp_tir`) for a table of `places` queues.
fn hash(request: &mlx5_ib_create_qp_rss, places: usize) -> Result<HashContext, Errno> {
    let asked = request.rx_hash_fields_mask;
    if request.comp_mask != 0
        || asked & MLX5_RX_HASH_INNER != 0
        || request.rx_hash_function != MLX5_RX_HASH_FUNC_TOEPLITZ
    {
        return Err(Errno::EOPNOTSUPP);
    }
    let mut key = [0; 40];
    if usize::from(request.rx_key_len) != key.len() {
        return Err(Errno::EINVAL);
    }
    key.copy_from_slice(&request.rx_hash_key[..40]);
    // Without hash fields the table must have one queue.
    if asked == 0 && places > 1 {
        return Err(Errno::EINVAL);
    }
    let l4 = [TCP, UDP, MLX5_RX_HASH_IPSEC_SPI];
    if asked & IPV4 != 0 && asked & IPV6 != 0
        || l4.iter().filter(|kind| asked & **kind != 0).count() > 1
    {
        return Err(Errno::EINVAL);
    }
    let fields = [
        (MLX5_RX_HASH_SRC_IPV4 | MLX5_RX_HASH_SRC_IPV6, hash_field::SRC_IP),
        (MLX5_RX_HASH_DST_IPV4 | MLX5_RX_HASH_DST_IPV6, hash_field::DST_IP),
        (MLX5_RX_HASH_SRC_PORT_TCP | MLX5_RX_HASH_SRC_PORT_UDP, hash_field::SRC_PORT),
        (MLX5_RX_HASH_DST_PORT_TCP | MLX5_RX_HASH_DST_PORT_UDP, hash_field::DST_PORT),
        (MLX5_RX_HASH_IPSEC_SPI, hash_field::IPSEC_SPI),
    ];
    let fields = fields.iter().filter(|(of, _)| asked & of != 0).map(|(_, field)| field);
    let selector =
        Selector { ipv6: asked & IPV6 != 0, udp: asked & UDP != 0, fields: fields.sum() };
    Ok(HashContext { function: HashFunction::Toeplitz, symmetric: false, key, selector })
}

//! Sizes of rings.

use uverbs_core::attr::{DeviceAttr, DeviceCaps, QpCap, QpType, SendOpSet};
use uverbs_core::error::Error;
use uverbs_kernel_abi::mlx5::{MLX5_USER_INLINE_MODE_NONE, mlx5_ib_alloc_ucontext_resp};
use uverbs_mlx5_prm::ctrl::{DS_BYTES, DS_MAX, MLX5_SEND_WQE_BB};
use uverbs_mlx5_prm::data::{INLINE_HEADER, inline_bytes};

use crate::send::packet::Packets;

const CREATE_QP: &str = "create_qp";
const CREATE_SRQ: &str = "create_srq";
const CREATE_CQ: &str = "create_cq";
const CREATE_WQ: &str = "create_wq";

/// Bytes before the data of a connected WQE: control and remote address segment.
const HEAD: u32 = 2 * DS_BYTES as u32;
/// Bytes before the data of a datagram's WQE: control segment and address vector.
const DATAGRAM_HEAD: u32 = 4 * DS_BYTES as u32;
/// Bytes of an atomic's WQE: control, remote address, operands, one data segment.
const ATOMIC: u32 = 4 * DS_BYTES as u32;
/// Bytes of an address vector, which a WQE of a DC initiator also has.
const VECTOR: u32 = 3 * DS_BYTES as u32;
/// Bytes of the segment that names a shared receive queue, which a WQE of an XRC initiator also
/// has.
const XRC: u32 = DS_BYTES as u32;
/// Bytes of a WQE that binds a window or invalidates or rewrites a key: control, UMR control, key
/// context, and one WQEBB for the list (rdma-core `verbs.c:_sq_overhead`).
const REKEY: u32 = 3 * MLX5_SEND_WQE_BB as u32;
const UNIT: u32 = MLX5_SEND_WQE_BB as u32;
const SEGMENT: u32 = DS_BYTES as u32;
/// Maximum WQEBBs of a ring (`log_max_qp_sz`): half the range of the 16-bit counters in WQEs and
/// doorbell records, so that a full ring differs from an empty one.
const MAX_RING: u32 = 1 << 15;
/// Maximum CQEs of a ring: indexes of completion queues have 24 bits.
const MAX_CQE: u32 = 1 << 24;

/// Limits of the device, from `GET_CONTEXT` and `QUERY_DEVICE`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Maximum bytes of a send WQE.
    send_bytes: u32,
    /// Maximum bytes of a receive WQE.
    recv_bytes: u32,
    /// Maximum WQEBBs of a send queue, a power of two.
    send_units: u32,
    /// Maximum WQEs of a receive queue, a power of two.
    pub(crate) recv_entries: u32,
    /// Maximum WQEs of a shared receive queue, a power of two.
    shared_entries: u32,
    /// Maximum SGEs of a work request.
    sge: u32,
    /// Maximum CQEs of a completion queue, minus one.
    pub(crate) cqe: u32,
    /// Number of completion vectors.
    vectors: u32,
    pub(crate) packets: Packets,
}

/// The largest power of two up to `limit`; 0 for 0.
fn power_of_two_within(limit: u32) -> u32 {
    limit.checked_ilog2().map_or(0, |log| 1 << log)
}

fn check(what: &'static str, value: u32, limit: u32) -> Result<(), Error> {
    if value <= limit {
        return Ok(());
    }
    Err(Error::Limit { verb: CREATE_QP, what, value: value.into(), limit: limit.into() })
}

impl Limits {
    pub(crate) fn comp_vectors(&self) -> u32 {
        self.vectors
    }

    /// Maximum parts that a work request can assign to an indirect key.
    pub(crate) fn parts(&self) -> u32 {
        // All WQEBBs of the shortest UMR except the last are its header.
        self.send_bytes.saturating_sub(REKEY - UNIT) / UNIT * (UNIT / SEGMENT)
    }

    pub(crate) fn new(
        context: &mlx5_ib_alloc_ucontext_resp,
        device: &DeviceAttr,
        vectors: u32,
    ) -> Self {
        // The six-bit `ds` field limits WQEs to less than the kernel allows (1024 bytes).
        let ds_bytes = u32::from(DS_MAX) * SEGMENT;
        Self {
            send_bytes: u32::from(context.max_sq_desc_sz).min(ds_bytes) / SEGMENT * SEGMENT,
            recv_bytes: context.max_rq_desc_sz.into(),
            send_units: power_of_two_within(context.max_send_wqebb.min(MAX_RING)),
            recv_entries: power_of_two_within(context.max_recv_wr.min(MAX_RING)),
            shared_entries: power_of_two_within(context.max_srq_recv_wr.min(MAX_RING)),
            sge: device.max_sge,
            cqe: device.max_cqe.min(MAX_CQE - 1),
            vectors,
            packets: Packets {
                // 0 means that the kernel does not report it (rdma-core `mlx5.c:mlx5_set_context`).
                wants_header: context.eth_min_inline != MLX5_USER_INLINE_MODE_NONE,
                fills: device.caps.contains(DeviceCaps::RAW_IP_CSUM),
            },
        }
    }
}

/// Size and capacities of a send queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SendSize {
    /// Number of WQEBBs, a power of two; 0 for no queue.
    pub(crate) units: u32,
    /// Number of WQEs of the largest size.
    pub(crate) max_wr: u32,
    /// Maximum SGEs of a WQE.
    pub(crate) max_sge: u32,
    /// Maximum inline bytes of a WQE.
    pub(crate) max_inline: u32,
}

impl SendSize {
    /// Computes the size. A WQE is as long as its longest form: control and remote address with a
    /// gather list or inline data, or an atomic. The caller gets the space that rounding up to
    /// WQEBBs adds.
    ///
    /// rdma-core `verbs.c:mlx5_calc_send_wqe` reserves the header of an atomic or a UMR in every
    /// WQE, 128 bytes more than a WRITE needs; the device does not require it.
    pub(crate) fn new(
        qp_type: QpType,
        ops: Option<SendOpSet>,
        cap: &QpCap,
        limits: &Limits,
    ) -> Result<Self, Error> {
        if cap.max_send_wr == 0 {
            return Ok(Self::default());
        }
        let ops = ops.unwrap_or(SendOpSet::of(qp_type));
        // Capacities assume the transport's longest header, whichever operations were requested.
        let (head, address) = match qp_type {
            QpType::RawPacket => (limits.packets.head() * SEGMENT, 0),
            QpType::Ud => (DATAGRAM_HEAD, 0),
            QpType::Dci => (HEAD + VECTOR, VECTOR),
            QpType::XrcIni => (HEAD + XRC, XRC),
            _ => (HEAD, 0),
        };
        let least = if ops.contains(SendOpSet::REKEY) {
            REKEY
        } else if ops.contains(SendOpSet::ATOMIC) {
            ATOMIC + address
        } else {
            head
        };
        let room = limits.send_bytes.saturating_sub(head);
        let inline_limit = room.saturating_sub(INLINE_HEADER as u32);
        check("max_send_sge", cap.max_send_sge, limits.sge.min(room / SEGMENT))?;
        check("max_inline_data", cap.max_inline_data, inline_limit)?;
        // A datagram of one SGE starts a second WQEBB, so there is always room for one SGE.
        let gather = head + cap.max_send_sge.max(1) * SEGMENT;
        let inline = match cap.max_inline_data {
            0 => 0,
            bytes => head + inline_bytes(bytes as usize) as u32,
        };
        let wqe = gather.max(inline).max(least).next_multiple_of(UNIT);
        let per_wqe = wqe / UNIT;
        check("max_send_wr", cap.max_send_wr, limits.send_units / per_wqe)?;
        // No overflow: the product is at most `send_units`.
        let units = (cap.max_send_wr * per_wqe).next_power_of_two();
        let payload = wqe.min(limits.send_bytes).saturating_sub(head);
        Ok(Self {
            units,
            max_wr: units / per_wqe,
            max_sge: (payload / SEGMENT).min(limits.sge),
            max_inline: payload.saturating_sub(INLINE_HEADER as u32),
        })
    }

    /// Ring of a queue for window binds as libmlx5 makes it: with the header of a UMR before the
    /// data of every WQE, rounded up to a power of two (verbs.c, `mlx5_calc_sq_size`). Programs
    /// rely on the room. Unchanged if such a ring exceeds the device's limit.
    pub(crate) fn as_libmlx5(self, cap: &QpCap, limits: &Limits) -> Self {
        // Without sends `new` checks no capacity.
        if self.units == 0 {
            return self;
        }
        let inline = match cap.max_inline_data {
            0 => 0,
            bytes => inline_bytes(bytes as usize) as u32,
        };
        let per_wqe = (REKEY + inline.max(cap.max_send_sge * SEGMENT)).div_ceil(UNIT);
        // No overflow: `new` has checked all three capacities.
        let units = (cap.max_send_wr * per_wqe).next_power_of_two();
        if units > limits.send_units {
            return self;
        }
        let room = per_wqe * UNIT - REKEY - INLINE_HEADER as u32;
        let max_inline = self.max_inline.min(room).max(cap.max_inline_data);
        Self { units, max_wr: units / per_wqe, max_inline, ..self }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.units as usize * MLX5_SEND_WQE_BB
    }
}

/// Size and capacities of a receive queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RecvSize {
    /// Number of WQEs, a power of two; 0 for no queue.
    pub(crate) entries: u32,
    /// Log2 of the size of a WQE.
    pub(crate) shift: u32,
    /// Maximum SGEs of a WQE.
    pub(crate) max_sge: u32,
}

impl RecvSize {
    /// Size of a queue pair's receive queue.
    pub(crate) fn of_qp(cap: &QpCap, limits: &Limits) -> Result<Self, Error> {
        if cap.max_recv_wr == 0 {
            return Ok(Self::default());
        }
        let most_sge = Self::most_sge(limits);
        check("max_recv_sge", cap.max_recv_sge, most_sge)?;
        check("max_recv_wr", cap.max_recv_wr, limits.recv_entries)?;
        Ok(Self::round(cap.max_recv_wr, cap.max_recv_sge, limits))
    }

    /// Size of a work queue (rdma-core `verbs.c:mlx5_calc_rwq_size`).
    pub(crate) fn of_wq(max_wr: u32, max_sge: u32, limits: &Limits) -> Result<Self, Error> {
        Error::limit(CREATE_WQ, "max_sge", max_sge, Self::most_sge(limits))?;
        if max_wr == 0 || max_wr > limits.recv_entries {
            let (value, limit) = (max_wr.into(), limits.recv_entries.min(max_wr.max(1)).into());
            return Err(Error::Limit { verb: CREATE_WQ, what: "max_wr", value, limit });
        }
        Ok(Self::round(max_wr, max_sge, limits))
    }

    fn most_sge(limits: &Limits) -> u32 {
        limits.sge.min(limits.recv_bytes / SEGMENT)
    }

    /// Rounds as rdma-core `verbs.c:mlx5_calc_rq_size`: the size of a WQE is a power of two, and
    /// the ring has at least 64 bytes, so that the send queue after it starts at a WQEBB.
    fn round(max_wr: u32, max_sge: u32, limits: &Limits) -> Self {
        let stride = (max_sge.max(1) * SEGMENT).next_power_of_two();
        Self {
            entries: max_wr.next_power_of_two().max(UNIT / stride.min(UNIT)),
            shift: stride.ilog2(),
            max_sge: (stride / SEGMENT).min(limits.sge).max(max_sge),
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        (self.entries as usize) << self.shift
    }
}

/// Size and capacities of a shared receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SrqSize {
    /// Number of WQEs, a power of two; one of them can't be posted.
    pub(crate) entries: u32,
    /// Log2 of the size of a WQE.
    pub(crate) shift: u32,
    /// Maximum SGEs of a WQE.
    pub(crate) max_sge: u32,
}

impl SrqSize {
    /// Computes the size as rdma-core `srq.c:mlx5_alloc_srq_buf`, without the second half of the
    /// ring, which it reserves for receives with page faults: frames are pinned. A WQE has a link
    /// segment, and at least 32 bytes.
    pub(crate) fn new(max_wr: u32, max_sge: u32, limits: &Limits) -> Result<Self, Error> {
        // Segments in the largest WQE, whose size is a power of two.
        let room = power_of_two_within(limits.recv_bytes) / SEGMENT;
        // `max_srq_sge` of the device; it may exceed `max_sge`, which is for send queues, too.
        let most = room.saturating_sub(1);
        Error::limit(CREATE_SRQ, "max_sge", max_sge, most)?;
        let limit = limits.shared_entries.saturating_sub(1);
        if max_wr == 0 || max_wr > limit {
            let (value, limit) = (max_wr.into(), limit.min(max_wr.max(1)).into());
            return Err(Error::Limit { verb: CREATE_SRQ, what: "max_wr", value, limit });
        }
        let stride = ((max_sge.max(1) + 1) * SEGMENT).next_power_of_two();
        Ok(Self {
            entries: (max_wr + 1).next_power_of_two(),
            shift: stride.ilog2(),
            max_sge: stride / SEGMENT - 1,
        })
    }

    pub(crate) fn bytes(&self) -> usize {
        (self.entries as usize) << self.shift
    }
}

/// CQEs of a ring for `entries` completions, at most `limit`: a power of two, and at least one more
/// than requested from the kernel (rdma-core `verbs.c:create_cq`).
pub(crate) fn cq_entries(verb: &'static str, entries: u32, limit: u32) -> Result<u32, Error> {
    if entries == 0 || entries > limit {
        let (value, limit) = (entries.into(), if entries == 0 { 1 } else { limit.into() });
        return Err(Error::Limit { verb, what: "entries", value, limit });
    }
    // No overflow: at most 2^24.
    Ok((entries + 1).next_power_of_two())
}

/// Rejects a completion vector that does not exist.
pub(crate) fn check_vector(vector: u32, limits: &Limits) -> Result<(), Error> {
    if vector < limits.vectors {
        return Ok(());
    }
    let (value, limit) = (vector.into(), limits.vectors.saturating_sub(1).into());
    Err(Error::Limit { verb: CREATE_CQ, what: "comp_vector", value, limit })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMITS: Limits = Limits {
        send_bytes: 1008,
        recv_bytes: 512,
        send_units: 1 << 15,
        recv_entries: 1 << 15,
        shared_entries: 1 << 15,
        sge: 30,
        cqe: (1 << 22) - 1,
        vectors: 8,
        packets: Packets { wants_header: true, fills: true },
    };

    fn cap(wr: u32, sge: u32, inline: u32) -> QpCap {
        QpCap {
            max_send_wr: wr,
            max_recv_wr: wr,
            max_send_sge: sge,
            max_recv_sge: sge,
            max_inline_data: inline,
        }
    }

    #[test]
    fn rounding_is_given_to_the_caller() {
        let size = SendSize::new(QpType::Rc, None, &cap(16, 1, 0), &LIMITS).unwrap();
        assert_eq!(size, SendSize { units: 16, max_wr: 16, max_sge: 2, max_inline: 28 });
        let size = SendSize::new(QpType::Rc, None, &cap(16, 1, 29), &LIMITS).unwrap();
        assert_eq!(size, SendSize { units: 32, max_wr: 16, max_sge: 6, max_inline: 92 });
        let size = SendSize::new(QpType::Rc, None, &cap(100, 4, 128), &LIMITS).unwrap();
        assert_eq!(size, SendSize { units: 512, max_wr: 170, max_sge: 10, max_inline: 156 });
        // UC needs no more WQEBBs than RC.
        let size = SendSize::new(QpType::Uc, None, &cap(16, 1, 0), &LIMITS).unwrap();
        assert_eq!(size, SendSize { units: 16, max_wr: 16, max_sge: 2, max_inline: 28 });
        let size = SendSize::new(QpType::Uc, None, &cap(16, 4, 140), &LIMITS).unwrap();
        assert_eq!(size, SendSize { units: 64, max_wr: 21, max_sge: 10, max_inline: 156 });
        // The header of a datagram fills one WQEBB, and there is always room for an SGE after it,
        // so that a frame can be posted.
        let size = SendSize::new(QpType::Ud, None, &cap(16, 0, 0), &LIMITS).unwrap();
        assert_eq!(size, SendSize { units: 32, max_wr: 16, max_sge: 4, max_inline: 60 });
        let size = SendSize::new(QpType::Ud, None, &cap(16, 1, 0), &LIMITS).unwrap();
        assert_eq!(size, SendSize { units: 32, max_wr: 16, max_sge: 4, max_inline: 60 });
        let size = SendSize::new(QpType::Ud, None, &cap(16, 1, 61), &LIMITS).unwrap();
        assert_eq!(size, SendSize { units: 64, max_wr: 21, max_sge: 8, max_inline: 124 });
        // A queue of libmlx5 for ten has room for sixteen, and as many are made for that number.
        let ops = Some(SendOpSet::of(QpType::Rc) | SendOpSet::REKEY);
        let asked = cap(10, 1, 0);
        let size = SendSize::new(QpType::Rc, ops, &asked, &LIMITS).unwrap();
        assert_eq!((size.units, size.max_wr), (32, 10));
        for wr in [10, 16] {
            let size = size.as_libmlx5(&cap(wr, 1, 0), &LIMITS);
            assert_eq!((size.units, size.max_wr), (64, 16));
        }
        assert_eq!(size.as_libmlx5(&cap(10_000, 1, 0), &LIMITS), size);
        let none = SendSize::default();
        assert_eq!(none.as_libmlx5(&cap(0, u32::MAX, u32::MAX), &LIMITS), none);
        let size = RecvSize::of_qp(&cap(1, 1, 0), &LIMITS).unwrap();
        assert_eq!(size, RecvSize { entries: 4, shift: 4, max_sge: 1 });
        let size = RecvSize::of_qp(&cap(100, 3, 0), &LIMITS).unwrap();
        assert_eq!(size, RecvSize { entries: 128, shift: 6, max_sge: 4 });
    }

    #[test]
    fn what_a_queue_is_made_for_has_room() {
        let of = |qp_type, ops| SendSize::new(qp_type, ops, &cap(16, 1, 0), &LIMITS).unwrap();
        let rekey = of(QpType::Rc, Some(SendOpSet::of(QpType::Rc) | SendOpSet::REKEY));
        assert_eq!((rekey.units, rekey.max_wr), (64, 21), "three WQEBBs each");
        assert_eq!(of(QpType::Uc, None), of(QpType::Rc, Some(SendOpSet::SEND)));
        // Control and address vector fill one WQEBB, and an SGE starts another.
        let datagrams = of(QpType::Ud, None);
        assert_eq!((datagrams.units, datagrams.max_wr, datagrams.max_sge), (32, 16, 4));
    }

    #[test]
    fn no_requests_no_queue() {
        assert_eq!(
            SendSize::new(QpType::Rc, None, &cap(0, 99, 9999), &LIMITS),
            Ok(SendSize::default())
        );
        assert_eq!(RecvSize::of_qp(&cap(0, 99, 9999), &LIMITS), Ok(RecvSize::default()));
    }

    #[test]
    fn limits_name_the_nearest_value() {
        let limit = |error: Error| match error {
            Error::Limit { what, limit, .. } => (what, limit),
            other => panic!("{other}"),
        };
        let send = |cap| limit(SendSize::new(QpType::Rc, None, &cap, &LIMITS).unwrap_err());
        assert_eq!(send(cap(1, 31, 0)), ("max_send_sge", 30));
        assert_eq!(send(cap(1, 1, 973)), ("max_inline_data", 972));
        assert_eq!(send(cap(32769, 1, 0)), ("max_send_wr", 32768));
        assert_eq!(send(cap(u32::MAX, 1, 64)), ("max_send_wr", 16384));
        let datagram = |cap| limit(SendSize::new(QpType::Ud, None, &cap, &LIMITS).unwrap_err());
        assert_eq!(datagram(cap(1, 31, 0)), ("max_send_sge", 30));
        assert_eq!(datagram(cap(1, 1, 941)), ("max_inline_data", 940));
        assert_eq!(datagram(cap(u32::MAX, 1, 0)), ("max_send_wr", 16384));
        let recv = |cap| limit(RecvSize::of_qp(&cap, &LIMITS).unwrap_err());
        assert_eq!(recv(cap(1, u32::MAX, 0)), ("max_recv_sge", 30));
        assert_eq!(recv(cap(u32::MAX, 1, 0)), ("max_recv_wr", 32768));
        assert_eq!(limit(cq_entries(CREATE_CQ, 0, LIMITS.cqe).unwrap_err()), ("entries", 1));
        assert_eq!(
            limit(cq_entries(CREATE_CQ, u32::MAX, LIMITS.cqe).unwrap_err()),
            ("entries", (1 << 22) - 1)
        );
        assert_eq!(cq_entries(CREATE_CQ, (1 << 22) - 1, LIMITS.cqe), Ok(1 << 22));
        assert_eq!(cq_entries(CREATE_CQ, 1, LIMITS.cqe), Ok(2));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        /// Granted sizes are at least as requested, and a rejected request succeeds at the limit
        /// that the error names.
        #[test]
        fn grants_are_enough(
            wr in 1u32..40_000, sge in 0u32..40, inline in 0u32..1100, which in 0..3usize,
        ) {
            let mut cap = cap(wr, sge, inline);
            let (kind, head) = [(QpType::Rc, 32), (QpType::Uc, 32), (QpType::Ud, 64)][which];
            let size = loop {
                match SendSize::new(kind, None, &cap, &LIMITS) {
                    Ok(size) => break size,
                    Err(Error::Limit { what, value, limit, .. }) => {
                        prop_assert!(limit < value);
                        match what {
                            "max_send_wr" => cap.max_send_wr = limit as u32,
                            "max_send_sge" => cap.max_send_sge = limit as u32,
                            _ => cap.max_inline_data = limit as u32,
                        }
                    }
                    Err(other) => panic!("{other}"),
                }
            };
            prop_assert!(size.units.is_power_of_two() && size.units <= LIMITS.send_units);
            prop_assert!(size.max_wr >= cap.max_send_wr);
            prop_assert!(size.max_sge >= cap.max_send_sge);
            prop_assert!(size.max_inline >= cap.max_inline_data);
            let inline = match size.max_inline as usize {
                0 => head,
                bytes => head + inline_bytes(bytes) as u32,
            };
            let largest = (head + 16 * size.max_sge).max(inline);
            prop_assert!(largest <= 1008);
            prop_assert!(largest.max(64).div_ceil(64) * size.max_wr <= size.units);
        }
    }
}

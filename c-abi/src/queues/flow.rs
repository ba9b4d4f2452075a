//! Flow rules: converts C's specifications for the kernel (rdma-core `cmd.c`,
//! `ib_spec_to_kern_spec`; `providers/mlx5/verbs.c`, `mlx5_create_flow`).
//!
//! # Safety
//!
//! By C's contract (crate root), a pointer is null only where the header allows it, otherwise valid
//! for its type, and an object is in use only until its destruction. The attributes are followed by
//! the number of specifications that they state, each of the length in its header. Specifications
//! may be unaligned.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::ffi::c_int;
use std::mem::offset_of;
use std::slice;
use std::sync::Arc;

use uverbs_core::Errno;
use uverbs_core::error::Error;
use uverbs_core::objects::context::ContextCore;
use uverbs_kernel_abi::flow as abi;
use uverbs_kernel_abi::mlx5::{mlx5_ib_create_flow, mlx5_ib_flow_counters_data};
use zerocopy::IntoBytes;

use crate::base::answer::{code, null};
use crate::base::live::Kind;
use crate::device::context::Context;
use crate::device::counters::{Counters, Points};
use crate::queues::qp::Qp;
use crate::sys::{ibv_context, ibv_counters, ibv_flow, ibv_flow_attr, ibv_qp};

/// `IBV_FLOW_SPEC_IPV4_EXT`: C's longer IPv4 specification, which is the kernel's IPv4.
const IPV4_EXT: u32 = 0x32;
/// Bytes of a specification's header: type, length and padding.
const HEAD: usize = 8;

/// Layout of a specification's filters: C's value, followed by its mask.
struct Filter {
    /// Type for the kernel.
    kind: u32,
    /// Offset of the value in C's struct.
    at: usize,
    /// Bytes of value and mask that the kernel knows, and their size in the command.
    len: usize,
    room: usize,
    /// True if C's filters may be longer, with zeros in the mask (`get_filters_size`).
    grows: bool,
}

/// Filter layout of a type, for outer and inner (tunnel) headers.
fn filter(kind: u32) -> Option<Filter> {
    let outer = kind & !abi::IB_FLOW_SPEC_INNER;
    let fixed = |at, len| Some(Filter { kind, at, len, room: len, grows: false });
    let grows = |kind, len, room| Some(Filter { kind, at: HEAD, len, room, grows: true });
    match outer {
        // Members of 1 and 2 bytes: no padding behind the length.
        abi::IB_FLOW_SPEC_ETH => fixed(6, size_of::<abi::ib_uverbs_flow_eth_filter>()),
        abi::IB_FLOW_SPEC_TCP | abi::IB_FLOW_SPEC_UDP => {
            fixed(6, size_of::<abi::ib_uverbs_flow_tcp_udp_filter>())
        }
        // Two addresses: the kernel accepts the shorter struct.
        abi::IB_FLOW_SPEC_IPV4 => fixed(HEAD, 8),
        IPV4_EXT => {
            let len = size_of::<abi::ib_uverbs_flow_ipv4_filter>();
            grows(kind - IPV4_EXT + abi::IB_FLOW_SPEC_IPV4, len, len)
        }
        abi::IB_FLOW_SPEC_IPV6 => {
            let room = size_of::<abi::ib_uverbs_flow_ipv6_filter>();
            grows(kind, offset_of!(abi::ib_uverbs_flow_ipv6_filter, hop_limit) + 1, room)
        }
        abi::IB_FLOW_SPEC_ESP => fixed(HEAD, 8),
        abi::IB_FLOW_SPEC_MPLS => fixed(HEAD, 4),
        // Types without an inner form.
        abi::IB_FLOW_SPEC_GRE if kind == outer => fixed(HEAD, 8),
        abi::IB_FLOW_SPEC_VXLAN_TUNNEL if kind == outer => grows(kind, 4, 4),
        _ => None,
    }
}

impl Filter {
    /// Value and mask for the kernel, from C's whole specification.
    fn bytes(&self, spec: &[u8]) -> Result<Vec<u8>, Errno> {
        let theirs = if self.grows { spec.len().saturating_sub(HEAD) / 2 } else { self.len };
        if theirs < self.len {
            return Err(Errno::EINVAL);
        }
        let part = |at: usize, len| spec.get(at..at + len).ok_or(Errno::EINVAL);
        let (value, mask) = (part(self.at, self.len)?, part(self.at + theirs, theirs)?);
        let (mask, more) = mask.split_at(self.len);
        if more.iter().any(|byte| *byte != 0) {
            return Err(Errno::EOPNOTSUPP);
        }
        let mut bytes = Vec::with_capacity(2 * self.room);
        for given in [value, mask] {
            bytes.extend_from_slice(given);
            bytes.resize(bytes.len() + self.room - self.len, 0);
        }
        Ok(bytes)
    }
}

/// Converted specifications.
#[derive(Default)]
struct Specs {
    bytes: Vec<u8>,
    count: Option<*const ibv_counters>,
}

impl Specs {
    /// Adds a specification with this body.
    fn put(&mut self, kind: u32, body: &[u8]) {
        let size = (size_of::<abi::ib_uverbs_flow_spec_hdr>() + body.len()) as u16;
        let head = abi::ib_uverbs_flow_spec_hdr { r#type: kind, size, reserved: 0 };
        self.bytes.extend_from_slice(head.as_bytes());
        self.bytes.extend_from_slice(body);
    }

    /// Converts and adds a specification of C.
    ///
    /// # Safety
    ///
    /// C's contract.
    unsafe fn add(&mut self, kind: u32, spec: &[u8]) -> Result<(), Errno> {
        let word = |len: usize| spec.get(HEAD..HEAD + len).ok_or(Errno::EINVAL);
        match kind {
            abi::IB_FLOW_SPEC_ACTION_TAG => self.put(kind, &[word(4)?, &[0; 4]].concat()),
            abi::IB_FLOW_SPEC_ACTION_DROP => self.put(kind, &[]),
            // This library creates no action handles.
            abi::IB_FLOW_SPEC_ACTION_HANDLE => return Err(Errno::EOPNOTSUPP),
            abi::IB_FLOW_SPEC_ACTION_COUNT => {
                let at = word(size_of::<*const ibv_counters>())?.as_ptr();
                // SAFETY: C's contract: the specification holds a pointer.
                let counters = unsafe { at.cast::<*const ibv_counters>().read_unaligned() };
                // SAFETY: by C's contract.
                let handle = unsafe { Counters::of(counters) }.handle();
                self.put(kind, &[handle.as_bytes(), &[0; 4]].concat());
                // A rule of mlx5 has at most one set of counters (`get_flow_mcounters`).
                if self.count.replace(counters).is_some() {
                    return Err(Errno::EINVAL);
                }
            }
            _ => {
                let filter = filter(kind).ok_or(Errno::EINVAL)?;
                let bytes = filter.bytes(spec)?;
                self.put(filter.kind, &bytes);
            }
        }
        Ok(())
    }

    /// Converts the specifications that follow the attributes.
    ///
    /// # Safety
    ///
    /// C's contract.
    unsafe fn of(attr: *const ibv_flow_attr) -> Result<Self, Errno> {
        let mut specs = Self::default();
        // SAFETY: by C's contract.
        let mut at: *const u8 = unsafe { attr.add(1) }.cast();
        // SAFETY: by C's contract.
        for _ in 0..unsafe { (*attr).num_of_specs } {
            // SAFETY: by C's contract; each specification begins with its header.
            let kind = unsafe { at.cast::<u32>().read_unaligned() };
            // SAFETY: by C's contract; each specification begins with its header.
            let size = unsafe { at.add(4).cast::<u16>().read_unaligned() };
            // SAFETY: by C's contract; the specification is as long as its header says.
            let spec = unsafe { slice::from_raw_parts(at, size.into()) };
            // SAFETY: by C's contract; the specification is as long as its header says.
            unsafe { specs.add(kind, spec) }?;
            at = at.wrapping_add(size.into());
        }
        Ok(specs)
    }
}

/// A flow rule; dropping it ends it.
#[repr(C)]
pub(crate) struct Flow {
    c: ibv_flow,
    core: Arc<ContextCore>,
    /// `None` after the kernel destroyed the rule.
    handle: Option<u32>,
    /// Counters of the rule.
    points: Option<Arc<Points>>,
}

impl Flow {
    /// Wraps a rule that the kernel just created and that has no other owner.
    pub(crate) fn made(
        context: *mut ibv_context,
        core: Arc<ContextCore>,
        handle: u32,
    ) -> Box<Self> {
        let c = ibv_flow { comp_mask: 0, context, handle };
        Box::new(Self { c, core, handle: Some(handle), points: None })
    }

    fn destroy(&mut self) -> Result<(), Error> {
        let Some(handle) = self.handle else { return Ok(()) };
        // SAFETY: the handle is this rule's and is destroyed once.
        unsafe { self.core.uverbs().destroy_flow(handle) }?;
        self.handle = None;
        if let Some(points) = self.points.take() {
            points.unbind();
        }
        Ok(())
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        // A refusal is ignored: closing the file ends the rule.
        let _ = self.destroy();
    }
}

/// # Safety
///
/// C's contract.
unsafe fn create(qp: *mut ibv_qp, attr: *const ibv_flow_attr) -> Result<Box<Flow>, Error> {
    // SAFETY: by C's contract.
    let (of, c, given) = unsafe { (Qp::of(qp), &*qp, &*attr) };
    // SAFETY: by C's contract.
    let specs = unsafe { Specs::of(attr) };
    let specs = specs.map_err(|errno| Error::kernel("create_flow", errno))?;
    let request = abi::ib_uverbs_create_flow {
        comp_mask: 0,
        qp_handle: c.handle,
        flow_attr: abi::ib_uverbs_flow_attr {
            r#type: given.r#type,
            size: specs.bytes.len() as u16,
            priority: given.priority,
            num_of_specs: given.num_of_specs,
            reserved: [0; 2],
            port: given.port,
            flags: given.flags,
        },
    };
    let rule = [request.as_bytes(), &specs.bytes].concat();
    // SAFETY: by C's contract.
    let points = specs.count.map(|counters| Arc::clone(unsafe { Counters::of(counters) }.points()));
    let core = Arc::clone(of.object().context());
    let make = |driver: &[u8]| {
        // SAFETY: the queue pair is the program's; memory that the driver's part names lives for
        // the call, says `bind`.
        unsafe { core.uverbs().create_flow(&rule, driver) }
    };
    let plain = mlx5_ib_create_flow { ncounters_data: 0, reserved: 0 };
    let handle = match &points {
        None => make(plain.as_bytes())?,
        Some(points) => points.bind(|described| {
            let first = described.is_some();
            let head = mlx5_ib_create_flow { ncounters_data: first.into(), reserved: 0 };
            let list = described.unwrap_or_default();
            let data = mlx5_ib_flow_counters_data {
                counters_data: if first { list.as_ptr().expose_provenance() as u64 } else { 0 },
                ncounters: list.len() as u32,
                reserved: 0,
            };
            make(&[head.as_bytes(), data.as_bytes()].concat())
        })?,
    };
    let c = ibv_flow { comp_mask: 0, context: c.context, handle };
    Ok(Box::new(Flow { c, core, handle: Some(handle), points }))
}

pub(crate) unsafe extern "C" fn create_flow(
    qp: *mut ibv_qp,
    attr: *mut ibv_flow_attr,
) -> *mut ibv_flow {
    // SAFETY: by C's contract.
    match unsafe { create(qp, attr) } {
        // SAFETY: by C's contract.
        Ok(flow) => unsafe { Context::of(flow.c.context) }.left().give(Kind::Flow, flow).cast(),
        Err(error) => null(error.to_errno()),
    }
}

pub(crate) unsafe extern "C" fn destroy_flow(flow: *mut ibv_flow) -> c_int {
    // SAFETY: by C's contract.
    let done = unsafe { &mut *flow.cast::<Flow>() }.destroy();
    if done.is_ok() {
        // SAFETY: the object was kept as a box of this type, and is destroyed.
        drop(unsafe { Context::of((*flow).context).left().take::<Flow>(Kind::Flow, flow.cast()) });
    }
    code(done)
}

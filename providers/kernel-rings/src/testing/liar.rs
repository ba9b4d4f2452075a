//! A kernel whose answers are true, nearly, or any: a door around a test's, which changes what
//! comes back as a fuzzer's bytes say. mlx5 includes this file.
//!
//! What the contract of [`UverbsDoor`] leans on stays true: mappings are as long as was asked for.
#![allow(unsafe_code, reason = "passes commands on, and changes the outputs that they name")]

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};

use uverbs_core::attr::{AccessFlags, AhAttr, Gid, GlobalRoute, Path, QpCap, QpType};
use uverbs_core::commands::Uverbs;
use uverbs_core::doors::UverbsDoor;
use uverbs_core::doors::words::parse;
use uverbs_core::memory::pages::Pages;
use uverbs_core::objects::context::ContextCore;
use uverbs_core::objects::mr::MrCore;
use uverbs_core::provider::{
    AhOps, ContextOps, CqInit, CqOps, NewQp, NewSrq, Provider, QpInit, RecvOps, RqOps, SendOps,
    SrqInit,
};
use uverbs_core::queues::work::{Data, Destination, PostError, SendOp, Sge, Wr};
use uverbs_core::{Errno, Error};
use uverbs_kernel_abi::objects::*;
use uverbs_kernel_abi::write::{IB_USER_VERBS_CMD_ALLOC_PD, IB_USER_VERBS_CMD_REG_MR};

/// Objects of one run, and posts to each queue.
const OBJECTS: usize = 16;
const POSTS: u64 = 600;
/// Ends that are refused, of all runs of a process: the memory of such an object is leaked, since
/// the device may go on with it.
const MOST_REFUSED: u32 = 4000;
static REFUSED: AtomicU32 = AtomicU32::new(0);
/// Peer of datagrams.
const PEER: AhAttr = AhAttr {
    port: 1,
    path: Path {
        dlid: 0,
        grh: Some(GlobalRoute {
            dgid: Gid([1; 16]),
            sgid_index: 0,
            hop_limit: 1,
            traffic_class: 0,
            flow_label: 0,
        }),
        service_level: 0,
        src_path_bits: 0,
        static_rate: 0,
    },
};
/// Longest mapping: a kernel maps no more than it has.
const MOST: usize = 1 << 26;

/// A door that changes answers as a fuzzer's bytes say.
#[derive(Debug)]
pub struct Liar {
    door: Arc<dyn UverbsDoor>,
    /// Which attributes of the driver's own methods are outputs.
    of_driver: fn(u16, u16, u16) -> bool,
    bytes: Mutex<VecDeque<u8>>,
    /// Objects of each kind that were made, less those whose end was asked for.
    left: Mutex<BTreeMap<u16, i64>>,
    /// Queue pairs whose end was refused: each keeps its region of inline data.
    buried: AtomicU32,
}

impl Liar {
    /// Answers by `door`, changed by `data`. `of_driver` tells outputs of the driver's own methods,
    /// by object, method and attribute.
    pub fn new(
        door: Arc<dyn UverbsDoor>,
        of_driver: fn(u16, u16, u16) -> bool,
        data: &[u8],
    ) -> Arc<Self> {
        let bytes = Mutex::new(data.iter().copied().collect());
        Arc::new(Self { door, of_driver, bytes, left: Mutex::default(), buried: AtomicU32::new(0) })
    }

    /// An open device of this kernel.
    pub fn core(self: &Arc<Self>, driver: u32) -> Arc<ContextCore> {
        ContextCore::new(Uverbs::new(Arc::clone(self) as _, driver))
    }

    /// Checks that all that was made has ended, or that the kernel said that it won't.
    ///
    /// # Panics
    ///
    /// When objects are left.
    pub fn check(&self) {
        let left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let buried = i64::from(self.buried.load(Relaxed));
        let may_be = |kind: u16| match kind {
            UVERBS_OBJECT_MR => buried,
            UVERBS_OBJECT_PD => buried.min(1),
            _ => 0,
        };
        let fits = |(kind, count): (&u16, &i64)| (0..=may_be(*kind)).contains(count);
        assert!(left.iter().all(fits), "objects are left: {left:?}, {buried} refused");
    }

    fn is_done(&self) -> bool {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    fn u8(&self) -> u8 {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner).pop_front().unwrap_or(0)
    }

    fn u32(&self) -> u32 {
        u32::from_ne_bytes([self.u8(), self.u8(), self.u8(), self.u8()])
    }

    fn count(&self, object: u16, more: i64) {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        *left.entry(object).or_default() += more;
    }

    /// Changes some bytes of an output.
    fn spoil(&self, to: *mut u8, len: usize) {
        for _ in 0..self.u8() % 4 {
            let at = usize::from(u16::from_ne_bytes([self.u8(), self.u8()])) % len.max(1);
            let value = self.u8();
            if at < len {
                // SAFETY: within an output that the command borrows.
                unsafe { to.wrapping_add(at).write(value) };
            }
        }
    }
}

/// Object that a command makes, and the attribute with its handle. In the write layout an output
/// has the handle.
fn made(object: u16, method: u16, write: Option<u32>) -> Option<(u16, Option<u16>)> {
    Some(match (object, method) {
        (UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_CREATE) => (object, Some(UVERBS_ATTR_CREATE_CQ_HANDLE)),
        (UVERBS_OBJECT_QP, UVERBS_METHOD_QP_CREATE) => (object, Some(UVERBS_ATTR_CREATE_QP_HANDLE)),
        (UVERBS_OBJECT_SRQ, UVERBS_METHOD_SRQ_CREATE) => {
            (object, Some(UVERBS_ATTR_CREATE_SRQ_HANDLE))
        }
        (UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE) => match write? & 0xff {
            IB_USER_VERBS_CMD_ALLOC_PD => (UVERBS_OBJECT_PD, None),
            IB_USER_VERBS_CMD_REG_MR => (UVERBS_OBJECT_MR, None),
            _ => return None,
        },
        _ => return None,
    })
}

fn ends(object: u16, method: u16) -> bool {
    matches!(
        (object, method),
        (UVERBS_OBJECT_PD, UVERBS_METHOD_PD_DESTROY)
            | (UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_DESTROY)
            | (UVERBS_OBJECT_QP, UVERBS_METHOD_QP_DESTROY)
            | (UVERBS_OBJECT_SRQ, UVERBS_METHOD_SRQ_DESTROY)
            | (UVERBS_OBJECT_MR, UVERBS_METHOD_MR_DESTROY)
    )
}

/// True for an attribute of a method that is an output. Outputs look as inputs do.
fn is_output(object: u16, method: u16, id: u16) -> bool {
    match (object, method) {
        // A driver's own objects have other attributes by this number.
        (0x1000.., _) => false,
        _ if id == UVERBS_ATTR_UHW_OUT => true,
        (UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE) => id == UVERBS_ATTR_CORE_OUT,
        (UVERBS_OBJECT_DEVICE, UVERBS_METHOD_GET_CONTEXT) => {
            [UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS, UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT]
                .contains(&id)
        }
        (UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_PORT) => id == UVERBS_ATTR_QUERY_PORT_RESP,
        (UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_GID_ENTRY) => {
            id == UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY
        }
        (UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_GID_TABLE) => {
            [UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES, UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES]
                .contains(&id)
        }
        (UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_CREATE) => id == UVERBS_ATTR_CREATE_CQ_RESP_CQE,
        (UVERBS_OBJECT_QP, UVERBS_METHOD_QP_CREATE) => {
            [UVERBS_ATTR_CREATE_QP_RESP_CAP, UVERBS_ATTR_CREATE_QP_RESP_QP_NUM].contains(&id)
        }
        (UVERBS_OBJECT_SRQ, UVERBS_METHOD_SRQ_CREATE) => [
            UVERBS_ATTR_CREATE_SRQ_RESP_MAX_WR,
            UVERBS_ATTR_CREATE_SRQ_RESP_MAX_SGE,
            UVERBS_ATTR_CREATE_SRQ_RESP_SRQ_NUM,
        ]
        .contains(&id),
        _ => false,
    }
}

// SAFETY: passes commands and mappings on to the door within, and changes numbers in answers alone.
// No device is behind it, so memory is free also after a refused end.
unsafe impl UverbsDoor for Liar {
    unsafe fn ioctl(&self, command: &mut [u64]) -> Result<(), Errno> {
        let (header, attrs) = parse(command).ok_or(Errno::EINVAL)?;
        let (object, method) = (header.object_id, header.method_id);
        let attrs: Vec<_> = attrs.collect();
        if ends(object, method) {
            self.count(object, -1);
        }
        let lie = self.u8() % 8;
        let is_refused = || !ends(object, method) || REFUSED.fetch_add(1, Relaxed) < MOST_REFUSED;
        if lie == 7 && is_refused() {
            let is_qp = ends(object, method) && object == UVERBS_OBJECT_QP;
            self.buried.fetch_add(is_qp.into(), Relaxed);
            return Err(Errno::from_raw(match self.u8() {
                other @ 0..128 => other.into(),
                _ => self.u32().cast_signed(),
            }));
        }
        // SAFETY: the caller's own promise.
        unsafe { self.door.ioctl(command) }?;
        let find = |id: u16| attrs.iter().position(|attr| attr.attr_id == id);
        let write = find(UVERBS_ATTR_WRITE_CMD).map(|at| attrs[at].data as u32);
        let made = made(object, method, write);
        if let Some((kind, _)) = made {
            self.count(kind, 1);
        }
        if lie >= 4 {
            let is_output =
                |id| is_output(object, method, id) || (self.of_driver)(object, method, id);
            for attr in attrs.iter().filter(|attr| is_output(attr.attr_id)) {
                let to = std::ptr::with_exposed_provenance_mut(attr.data as usize);
                self.spoil(to, attr.len.into());
            }
            if let Some(at) = made.and_then(|(_, handle)| find(handle?)).filter(|_| lie == 6) {
                // Header of three words, attributes of two, of which the second is the data.
                command[3 + 2 * at + 1] = self.u32().into();
            }
        }
        Ok(())
    }

    fn mmap(&self, len: usize, offset: u64) -> Result<Pages, Errno> {
        if len > MOST || self.u8() % 16 == 15 {
            return Err(Errno::EINVAL);
        }
        self.door.mmap(len, offset)
    }
}

/// Asks, makes objects and uses them, as the bytes say. Errors are values that have a text.
///
/// # Errors
///
/// The error of a query, or of the protection domain.
///
/// # Panics
///
/// When an error has no text.
pub fn objects<P: Provider>(context: &P::Context, liar: &Liar) -> Result<(), Error> {
    let told = (context.query_device()?, context.query_port(1)?);
    let gids = context.core().uverbs().query_gid_table(usize::from(liar.u8()))?;
    let _ = format!("{told:?} {gids:?}");
    let pd = context.alloc_pd()?;
    let (mut cqs, mut qps, mut srqs, mut mrs) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..OBJECTS {
        if liar.is_done() {
            break;
        }
        match (liar.u8() % 6, cqs.last()) {
            (0, _) | (_, None) => {
                let mut init = CqInit::new(size(liar));
                init.comp_vector = u32::from(liar.u8() & 1);
                keep(context.create_cq(&init), &mut cqs);
            }
            (1, _) => {
                let mut init = SrqInit::new(pd.clone());
                (init.max_wr, init.max_sge) = (size(liar), size(liar) % 64);
                keep(context.create_srq(&init), &mut srqs);
            }
            (2, _) => {
                let (uverbs, len) = (context.core().uverbs(), 4096);
                let memory = Pages::anonymous(len).expect("a page");
                let addr = memory.as_ptr().expose_provenance() as u64;
                let rights = AccessFlags::LOCAL_WRITE;
                // SAFETY: new memory, and no device is there.
                let keys = unsafe { uverbs.reg_mr(pd.handle(), addr, len as u64, addr, rights) };
                // SAFETY: just made, and ended by this alone.
                let region = keys.map(|keys| unsafe {
                    MrCore::new(pd.clone(), keys.handle, keys.lkey, keys.rkey)
                });
                keep(region.map(|region| (region, memory)), &mut mrs);
            }
            (_, Some((cq, _))) => {
                let mut init = QpInit::new(pd.clone(), cq.clone(), cq.clone());
                init.qp_type = [QpType::Rc, QpType::Uc, QpType::Ud][usize::from(liar.u8() % 3)];
                init.cap = QpCap {
                    max_send_wr: size(liar),
                    max_recv_wr: size(liar),
                    max_send_sge: 1,
                    max_recv_sge: 1,
                    max_inline_data: size(liar) % 128,
                };
                keep(context.create_qp(&init), &mut qps);
            }
        }
    }
    let sge = Sge { addr: 0x1000, len: 8, lkey: 1 };
    let ah = context.create_ah(&pd, &PEER).ok();
    for NewQp { sq, rq, .. } in &mut qps {
        sends(sq, sge, ah.as_ref());
        rq.enable(true);
        receives(rq, sge);
    }
    srqs.iter_mut().for_each(|NewSrq { srq, .. }: &mut NewSrq<P>| receives(srq, sge));
    for (_, cq) in &mut cqs {
        // A ring that was said to be at another's place may have entries.
        for _ in 0..POSTS {
            if cq.next().is_none() {
                break;
            }
        }
    }
    Ok(())
}

fn keep<T>(made: Result<T, Error>, list: &mut Vec<T>) {
    match made {
        Ok(made) => list.push(made),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Few, some, or more than there are.
fn size(liar: &Liar) -> u32 {
    match liar.u8() {
        few @ 0..250 => (few % 40).into(),
        250..253 => 300,
        253 => u32::MAX,
        254 => u32::MAX - 1,
        _ => 1 << 31,
    }
}

/// Fills a send queue, of datagrams by the handle `ah`.
fn sends<S: SendOps>(sq: &mut S, sge: Sge, ah: Option<&S::Ah>) {
    sq.enable(true);
    let mut at = sq.begin();
    for id in 0..POSTS {
        let (wr, data) = (Wr::new(id), Data::One(sge));
        // SAFETY: no device reads it; of the last `begin`.
        let posted = unsafe { sq.post(&mut at, wr, SendOp::Send, data) };
        let posted = match (posted, ah) {
            (Err(PostError::BadOperation), Some(ah)) => {
                let to = Destination { ah, peer: ah.peer(7, 1) };
                // SAFETY: no device reads it; of the last `begin`, and of the same domain.
                unsafe { sq.post_to(&mut at, wr, SendOp::Send, to, data) }
            }
            (posted, _) => posted,
        };
        if posted.is_err() {
            break;
        }
    }
    // SAFETY: of the last `begin`.
    unsafe { sq.ring(at) };
}

/// Fills a queue of receives.
fn receives(rq: &mut impl RecvOps, sge: Sge) {
    let mut at = rq.begin();
    for id in 0..POSTS {
        // SAFETY: no device writes it; of the last `begin`.
        if unsafe { rq.post(&mut at, id, &[sge]) }.is_err() {
            break;
        }
    }
    // SAFETY: of the last `begin`.
    unsafe { rq.ring(at) };
}

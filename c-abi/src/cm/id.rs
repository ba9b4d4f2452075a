//! Ids (`rdma_cm_id`): lifetime, addresses and options.
//!
//! # Safety
//!
//! By C's contract (crate root), a pointer is null only where the header allows it, otherwise valid
//! for its type, and an object is in use only until its destruction. Programs read and write
//! members of C's struct, too, so the members are accessed by pointer.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::ptr::{null_mut, with_exposed_provenance, with_exposed_provenance_mut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use libc::{AF_INET, AF_INET6, sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage};
use uverbs_core::Errno;
use uverbs_core::commands::cm::{SockAddr, Ucma};
use uverbs_core::error::Error;
use uverbs_kernel_abi::rdma_cm::{RDMA_PS_IPOIB, RDMA_PS_UDP};

use super::channel::Channel;
use super::device;
use super::done;
use super::ece::Options;
use super::endpoint;
use super::event;
use super::invalid;
use super::multicast::{self, Group};
use super::resolve::Resolution;
use super::sys::{rdma_cm_id, rdma_event_channel};
use crate::base::object::Acks;
use crate::sys::ibv_qp_init_attr;

/// `IBV_QPT_RC`, `IBV_QPT_UD`.
const RC: u32 = 2;
pub(crate) const UD: u32 = 4;

/// State of an id beyond C's struct.
#[derive(Default)]
pub(crate) struct State {
    /// Synchronous: each call waits for its event on the id's private channel.
    pub(crate) waits: bool,
    /// Attributes of the queue pairs of a listener's connections.
    pub(crate) init: Option<ibv_qp_init_attr>,
    /// READs and atomics: as responder, and as initiator.
    pub(crate) serves: u8,
    pub(crate) asks: u8,
    /// The queue pair could not be brought up, so later events of the connection are dropped.
    pub(crate) failed: bool,
    pub(crate) ece: Options,
    pub(crate) groups: Vec<Group>,
    pub(crate) resolution: Resolution,
}

// SAFETY: by C's contract the attributes point to memory that any thread of the program may use.
unsafe impl Send for State {}

#[repr(C)]
pub(crate) struct Id {
    c: rdma_cm_id,
    /// Key that names the id in events.
    key: u64,
    /// Number of the id in the connection manager.
    number: u32,
    state: Mutex<State>,
    acks: Acks,
}

/// Ids by the key in their events.
static IDS: Mutex<Option<HashMap<u64, usize>>> = Mutex::new(None);

/// Returns a new key, never 0, which names an id or a membership in events.
pub(crate) fn unique_key() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

fn ids<T>(with: impl FnOnce(&mut HashMap<u64, usize>) -> T) -> T {
    with(IDS.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default())
}

/// Returns the id with this key and counts an event of it as delivered. The id is not destroyed
/// before the program acknowledges the event.
pub(crate) fn deliver(key: u64) -> Option<*mut rdma_cm_id> {
    ids(|known| {
        let at = *known.get(&key)?;
        let id: *mut rdma_cm_id = with_exposed_provenance_mut(at);
        // SAFETY: an id is removed from the table before it is destroyed.
        unsafe { Id::of(id) }.acks.deliver();
        Some(id)
    })
}

impl Id {
    /// # Safety
    ///
    /// C's contract.
    pub(crate) unsafe fn of<'a>(id: *const rdma_cm_id) -> &'a Self {
        let at = id.expose_provenance();
        // SAFETY: by C's contract; C's struct is the first member of this object.
        unsafe { &*with_exposed_provenance::<Self>(at) }
    }

    pub(crate) fn key(&self) -> u64 {
        self.key
    }

    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    pub(crate) fn acks(&self) -> &Acks {
        &self.acks
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Connection manager commands of the channel of an id.
///
/// # Safety
///
/// C's contract.
pub(crate) unsafe fn ucma<'a>(id: *const rdma_cm_id) -> &'a Ucma {
    // SAFETY: C's contract: the channel outlives its ids.
    unsafe { Channel::of((*id).channel).ucma() }
}

/// Creates C's struct for an id that the connection manager knows.
pub(crate) fn give(
    (channel, waits): (*mut rdma_event_channel, bool),
    (key, number): (u64, u32),
    context: *mut c_void,
    (ps, qp_type): (u32, u32),
) -> *mut rdma_cm_id {
    // SAFETY: all members are numbers, addresses or pointers that may be null.
    let mut c: rdma_cm_id = unsafe { std::mem::zeroed() };
    (c.channel, c.context, c.ps, c.qp_type) = (channel, context, ps, qp_type);
    let state = Mutex::new(State { waits, ..State::default() });
    let id = Box::into_raw(Box::new(Id { c, key, number, state, acks: Acks::default() }));
    ids(|known| known.insert(key, id.expose_provenance()));
    id.cast()
}

/// Creates an id; without a channel, synchronous on a private one.
pub(crate) fn create(
    channel: *mut rdma_event_channel,
    context: *mut c_void,
    ps: u32,
    qp_type: u32,
) -> Result<*mut rdma_cm_id, Error> {
    let space = u16::try_from(ps).map_err(|_| invalid("rdma_create_id"))?;
    let waits = channel.is_null();
    let own = if waits { Some(Channel::open()?) } else { None };
    let key = unique_key();
    let made = |ucma: &Ucma| ucma.create_id(key, space, qp_type as u8);
    let number = match &own {
        Some(own) => made(own.ucma())?,
        // SAFETY: by C's contract.
        None => made(unsafe { Channel::of(channel) }.ucma())?,
    };
    let channel = own.map_or(channel, |own| Box::into_raw(own).cast());
    Ok(give((channel, waits), (key, number), context, (ps, qp_type)))
}

pub(crate) unsafe extern "C" fn create_id(
    channel: *mut rdma_event_channel,
    id: *mut *mut rdma_cm_id,
    context: *mut c_void,
    ps: u32,
) -> c_int {
    let datagrams = [RDMA_PS_UDP, RDMA_PS_IPOIB].map(u32::from).contains(&ps);
    let made = create(channel, context, ps, if datagrams { UD } else { RC });
    // SAFETY: by C's contract.
    done(made.map(|made| unsafe { *id = made }))
}

pub(crate) unsafe extern "C" fn destroy_id(id: *mut rdma_cm_id) -> c_int {
    // SAFETY: by C's contract.
    let (of, ucma) = unsafe { (Id::of(id), ucma(id)) };
    if let Err(error) = ucma.destroy_id(of.number) {
        return done(Err(error));
    }
    ids(|known| known.remove(&of.key));
    multicast::forget(of);
    // SAFETY: by C's contract; the event kept by the last call belongs to the id.
    unsafe {
        if !(*id).event.is_null() {
            event::ack_cm_event((*id).event);
        }
    }
    of.acks.wait();
    let waits = of.state().waits;
    // SAFETY: by C's contract, this is the last use of the id; its private channel has no other
    // user.
    unsafe {
        if waits {
            super::channel::destroy_event_channel((*id).channel);
        }
        drop(Box::from_raw(id.cast::<Id>()));
    }
    0
}

pub(crate) unsafe extern "C" fn migrate_id(
    id: *mut rdma_cm_id,
    channel: *mut rdma_event_channel,
) -> c_int {
    // SAFETY: by C's contract.
    done(unsafe { migrate(id, channel) })
}

/// Moves an id to another channel, or to a private one without `channel`.
///
/// # Safety
///
/// C's contract.
pub(crate) unsafe fn migrate(
    id: *mut rdma_cm_id,
    channel: *mut rdma_event_channel,
) -> Result<(), Error> {
    // SAFETY: by C's contract.
    let (of, old) = unsafe { (Id::of(id), (*id).channel) };
    let had_own = of.state().waits;
    if had_own && channel.is_null() {
        return Err(invalid("rdma_migrate_id"));
    }
    let own = if channel.is_null() { Some(Channel::open()?) } else { None };
    // SAFETY: by C's contract.
    let from = unsafe { Channel::of(old) }.ucma();
    match &own {
        Some(own) => own.ucma().migrate_id(of.number, from)?,
        // SAFETY: by C's contract.
        None => unsafe { Channel::of(channel) }.ucma().migrate_id(of.number, from)?,
    }
    let waits = own.is_some();
    let new = own.map_or(channel, |own| Box::into_raw(own).cast());
    // SAFETY: by C's contract; a private channel has no other user, and its last event is dropped
    // with it.
    unsafe {
        if had_own {
            if !(*id).event.is_null() {
                event::ack_cm_event((*id).event);
                (*id).event = null_mut();
            }
            super::channel::destroy_event_channel(old);
        }
        (*id).channel = new;
    }
    of.state().waits = waits;
    Ok(())
}

/// Converts a C address to the commands' form; its family gives its length.
///
/// # Errors
///
/// `EINVAL` for null or an unknown family, as C's library refuses an address without a length
/// (`ucma_addrlen`).
///
/// # Safety
///
/// C's contract; `addr` may be null.
pub(crate) unsafe fn address(addr: *const sockaddr) -> Result<SockAddr, Error> {
    // SAFETY: by C's contract.
    let Some(family) = (unsafe { addr.as_ref() }).map(|addr| c_int::from(addr.sa_family)) else {
        return Err(invalid("rdma_bind_addr"));
    };
    let len = length(family).ok_or_else(|| invalid("rdma_bind_addr"))?;
    // SAFETY: C's contract: an address of this family.
    let bytes = unsafe { std::slice::from_raw_parts(addr.cast::<u8>(), len) };
    Ok(SockAddr::new(bytes).unwrap_or(SockAddr::NONE))
}

/// Bytes of an address of this family; `None` if unknown.
pub(crate) fn length(family: c_int) -> Option<usize> {
    match family {
        AF_INET => Some(size_of::<sockaddr_in>()),
        AF_INET6 => Some(size_of::<sockaddr_in6>()),
        _ => None,
    }
}

/// Copies an address into C's struct.
pub(crate) fn put(to: &mut sockaddr_storage, bytes: &[u8]) {
    let len = bytes.len().min(size_of::<sockaddr_storage>());
    // SAFETY: the storage has room for the bytes, and any bytes are an address.
    unsafe {
        (&raw mut *to).cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), len);
    }
}

/// Queries addresses and device of an id into C's struct.
///
/// # Safety
///
/// C's contract.
pub(crate) unsafe fn refresh(id: *mut rdma_cm_id) -> Result<(), Error> {
    // SAFETY: by C's contract.
    let (of, ucma) = unsafe { (Id::of(id), ucma(id)) };
    let answer = ucma.query_addr(of.number)?;
    // SAFETY: by C's contract.
    unsafe {
        put(&mut (*id).route.addr.src, &answer.src_addr);
        put(&mut (*id).route.addr.dst, &answer.dst_addr);
        if answer.node_guid == 0 || !(*id).verbs.is_null() {
            return Ok(());
        }
        let opened = device::find(u64::from_be(answer.node_guid))?;
        ((*id).verbs, (*id).port_num) = (opened.verbs, answer.port_num);
        (*id).route.addr.ib.pkey = answer.pkey.to_be();
        if (*id).pd.is_null() {
            (*id).pd = opened.pd;
        }
    }
    Ok(())
}

pub(crate) unsafe extern "C" fn bind_addr(id: *mut rdma_cm_id, addr: *mut sockaddr) -> c_int {
    // SAFETY: by C's contract.
    done(unsafe { address(addr) }.and_then(|addr| {
        // SAFETY: by C's contract.
        unsafe {
            ucma(id).bind(Id::of(id).number, &addr)?;
            refresh(id)
        }
    }))
}

pub(crate) unsafe extern "C-unwind" fn resolve_addr(
    id: *mut rdma_cm_id,
    from: *mut sockaddr,
    to: *mut sockaddr,
    timeout_ms: c_int,
) -> c_int {
    let from = match from.is_null() {
        true => Ok(SockAddr::NONE),
        // SAFETY: by C's contract.
        false => unsafe { address(from) },
    };
    // SAFETY: by C's contract.
    let begun = from.and_then(|from| Ok((from, unsafe { address(to) }?)));
    let begun = begun.and_then(|(from, to)| {
        // SAFETY: by C's contract.
        unsafe {
            ucma(id).resolve_addr(Id::of(id).number, &from, &to, timeout_ms as u32)?;
            put(&mut (*id).route.addr.dst, to.as_bytes());
            endpoint::complete(id)
        }
    });
    done(begun)
}

pub(crate) unsafe extern "C-unwind" fn resolve_route(
    id: *mut rdma_cm_id,
    timeout_ms: c_int,
) -> c_int {
    // SAFETY: by C's contract.
    done(unsafe {
        let begun = ucma(id).resolve_route(Id::of(id).number, timeout_ms as u32);
        begun.and_then(|()| endpoint::complete(id))
    })
}

pub(crate) unsafe extern "C" fn set_option(
    id: *mut rdma_cm_id,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: usize,
) -> c_int {
    // SAFETY: by C's contract.
    done(unsafe {
        let value = crate::post::request::memory(value.cast(), len);
        ucma(id).set_option(Id::of(id).number, level as u32, name as u32, value)
    })
}

/// Port of an address, network byte order.
fn port(addr: &sockaddr_storage) -> u16 {
    let at: *const sockaddr_storage = addr;
    // SAFETY: the storage has room for either kind.
    unsafe {
        match c_int::from(addr.ss_family) {
            AF_INET => (*at.cast::<sockaddr_in>()).sin_port,
            AF_INET6 => (*at.cast::<sockaddr_in6>()).sin6_port,
            _ => 0,
        }
    }
}

pub(crate) unsafe extern "C" fn get_src_port(id: *mut rdma_cm_id) -> u16 {
    // SAFETY: by C's contract.
    port(unsafe { &(*id).route.addr.src })
}

pub(crate) unsafe extern "C" fn get_dst_port(id: *mut rdma_cm_id) -> u16 {
    // SAFETY: by C's contract.
    port(unsafe { &(*id).route.addr.dst })
}

/// Error of a synchronous call from the status of its event.
pub(crate) fn told(status: c_int) -> Error {
    Error::kernel("rdma_get_cm_event", Errno::from_raw(status.abs()))
}

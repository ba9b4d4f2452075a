//! A cache of registrations: memory that is sent again is not registered again.
//!
//! # Safety
//!
//! Only `Arc<[u8]>` is registered, read-only. The handle owns the region and a clone of the `Arc`.
#![allow(unsafe_code, reason = "registers memory by address")]

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use uverbs_core::Errno;
use uverbs_core::attr::AccessFlags;
use uverbs_core::error::Error;
use uverbs_core::memory::bytes::RegisteredBytes;

use crate::ProtectionDomain;

impl ProtectionDomain {
    /// Registers the program's bytes in place, to be sent or written to peers. The device may read
    /// the bytes, and neither device nor program writes them. A [`RegistrationCache`] keeps such
    /// registrations.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`] for no bytes; [`Error::Memlock`]; [`Error::Kernel`]: `ENOMEM` if kernel or
    /// device is out of memory.
    pub fn register_bytes(&self, bytes: &Arc<[u8]>) -> Result<RegisteredBytes, Error> {
        let len = bytes.len() as u64;
        if len == 0 {
            let (verb, what) = ("reg_mr", "length");
            return Err(Error::Limit { verb, what, value: 0, limit: 1 });
        }
        let addr = bytes.as_ptr().cast_mut();
        let iova = addr.expose_provenance() as u64;
        // SAFETY: without the right to write the device only reads; the handle made next keeps the
        // bytes until the region is deregistered, and safe code can't write what an `Arc` shares.
        let region = unsafe { self.pin(addr, len, iova, AccessFlags::empty()) }?;
        // SAFETY: the region covers exactly these bytes, without the right to write.
        Ok(unsafe { RegisteredBytes::new(Arc::clone(bytes), region) })
    }
}

/// Counters of a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct CacheCounts {
    /// Lookups that found a cached registration.
    pub hits: u64,
    /// Lookups that registered the bytes.
    pub misses: u64,
    /// Registrations evicted to make room for others.
    pub evictions: u64,
    /// Registrations that the program invalidated.
    pub invalidations: u64,
}

/// Keeps the latest registrations, up to a number of registrations and of bytes; the least recently
/// used one goes first.
///
/// A registration costs a system call, and time for each page. Cached bytes stay in memory: the
/// cache has a clone of the `Arc`. [`invalidate`](Self::invalidate) drops it at once. Outstanding
/// handles and posts keep their registrations.
///
/// ```
/// # let context = uverbs::device("softhca0")?.open()?;
/// # let pd = context.alloc_pd()?;
/// # let mut cq = context.create_cq(256)?;
/// # let mut qp = context.queue_pair(&pd, &cq).build()?;
/// # qp.prepare(&Default::default())?;
/// # qp.connect_to_self()?;
/// use std::sync::Arc;
/// use uverbs::memory::RegistrationCache;
///
/// let mut cache = RegistrationCache::new(&pd, 64, 1 << 30);
/// let page: Arc<[u8]> = Arc::from(vec![7; 100_000]);
/// for id in 0..3 {
///     # qp.post_recv(9, pd.slab(100_000, 1)?.take().unwrap())?;
///     let mut batch = qp.batch();
///     batch.send(id, cache.get(&page)?)?; // not copied, and registered once
///     batch.ring();
///     # for _ in 0..2 { cq.wait(std::time::Duration::from_secs(20))?.result?; }
/// }
/// assert_eq!((cache.counts().misses, cache.counts().hits), (1, 2));
/// # Ok::<(), uverbs::Error>(())
/// ```
#[derive(Debug)]
pub struct RegistrationCache {
    pd: ProtectionDomain,
    max_regions: usize,
    max_bytes: usize,
    /// Registrations by address; a cached `Arc` doesn't move.
    regions: HashMap<usize, Cached>,
    /// Registrations by last use, the oldest first.
    order: BTreeMap<u64, usize>,
    now: u64,
    bytes: usize,
    counts: CacheCounts,
}

#[derive(Debug)]
struct Cached {
    bytes: RegisteredBytes,
    used: u64,
}

impl RegistrationCache {
    /// An empty cache for up to `max_regions` registrations and `max_bytes` bytes in total.
    #[must_use]
    pub fn new(pd: &ProtectionDomain, max_regions: usize, max_bytes: usize) -> Self {
        Self {
            pd: pd.clone(),
            max_regions,
            max_bytes,
            regions: HashMap::new(),
            order: BTreeMap::new(),
            now: 0,
            bytes: 0,
            counts: CacheCounts::default(),
        }
    }

    /// Returns `bytes` as registered memory: a cached registration or a new one, which replaces
    /// others as needed. Bytes longer than the whole cache are registered and not kept.
    ///
    /// # Errors
    ///
    /// As [`ProtectionDomain::register_bytes`], if no cached registration is left to give up.
    pub fn get(&mut self, bytes: &Arc<[u8]>) -> Result<RegisteredBytes, Error> {
        let at = address(bytes);
        self.now += 1;
        let now = self.now;
        if let Some(entry) = self.regions.get_mut(&at) {
            self.order.remove(&entry.used);
            self.order.insert(now, at);
            entry.used = now;
            self.counts.hits += 1;
            return Ok(entry.bytes.clone());
        }
        let keep = bytes.len() <= self.max_bytes && self.max_regions > 0;
        while keep
            && (self.regions.len() >= self.max_regions || self.bytes > self.max_bytes - bytes.len())
        {
            self.evict();
        }
        let made = loop {
            match self.pd.register_bytes(bytes) {
                Err(error) if is_room(&error) && self.evict() => {}
                made => break made?,
            }
        };
        self.counts.misses += 1;
        if keep {
            self.bytes += bytes.len();
            self.order.insert(now, at);
            self.regions.insert(at, Cached { bytes: made.clone(), used: now });
        }
        Ok(made)
    }

    /// Drops the registration of `bytes` and the cache's clone of them. True if it was cached.
    pub fn invalidate(&mut self, bytes: &Arc<[u8]>) -> bool {
        let found = self.remove(address(bytes));
        self.counts.invalidations += u64::from(found);
        found
    }

    /// Drops all cached registrations.
    pub fn clear(&mut self) {
        self.counts.invalidations += self.regions.len() as u64;
        self.regions.clear();
        self.order.clear();
        self.bytes = 0;
    }

    /// Counters so far.
    #[must_use]
    pub fn counts(&self) -> CacheCounts {
        self.counts
    }

    /// Number of cached registrations.
    #[must_use]
    pub fn len(&self) -> usize {
        self.regions.len()
    }

    /// True if the cache has no registrations.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.regions.is_empty()
    }

    /// Total bytes of the cached registrations.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Evicts the least recently used registration. False if the cache is empty.
    fn evict(&mut self) -> bool {
        let Some((_, at)) = self.order.first_key_value() else { return false };
        self.counts.evictions += 1;
        self.remove(*at)
    }

    fn remove(&mut self, at: usize) -> bool {
        let Some(Cached { bytes, used }) = self.regions.remove(&at) else { return false };
        self.order.remove(&used);
        self.bytes -= bytes.len();
        true
    }
}

/// Key of an `Arc`'s entry. No other `Arc` has the address while the cache holds a clone.
fn address(bytes: &Arc<[u8]>) -> usize {
    bytes.as_ptr().addr()
}

/// True for errors that evicting other registrations may cure.
fn is_room(error: &Error) -> bool {
    matches!(error, Error::Memlock { .. } | Error::Kernel { errno: Errno::ENOMEM, .. })
}

//! A host of the rig: a device, its memory, and a key for it.

use super::*;
use crate::hca::dma::RegionAccess;
use uverbs_front::backend::context::{Access, MkeyContext};
use uverbs_front::backend::error::HcaEvent;
use uverbs_front::backend::region::Region;

/// One device and its memory.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) hca: Hca,
    pub(crate) arena: Arena,
    pub(crate) address: Address,
    pub(crate) link: LinkControl,
    /// Key over the buffer with all rights.
    pub(crate) key: Key,
    pub(crate) buf: Region,
    next: u64,
}

impl Hca {
    #[cfg(test)]
    pub(crate) fn groups(&self) -> usize {
        self.groups.len()
    }

    pub(crate) fn connections(&self) -> usize {
        self.targets.connections()
    }

    pub(crate) fn set_placement(&mut self, on: bool) {
        self.common.config.placement = on;
    }

    pub(crate) fn set_min_ack_timeout(&mut self, code: u8) {
        self.common.config.min_ack_timeout = code;
    }
}

impl Host {
    pub(crate) fn on(
        wire: Box<dyn Wire>,
        address: Address,
        link: LinkControl,
        config: &HcaConfig,
    ) -> Host {
        let arena = Arena::new(ARENA_LEN);
        let mut hca = Hca::new(
            HcaConfig { min_ack_timeout: 0, placement: true, ..config.clone() },
            Box::new(arena.clone()),
            wire,
        );
        hca.set_addresses(&[address.gid], 0);
        // Pages in reverse order, so that a translation that ignores the list shows.
        let pages = (0..BUF_LEN >> 12).rev().map(|page| BASE + (page << 12)).collect();
        let buf = Region::Pages { page_shift: 12, offset: 0, pages, len: BUF_LEN };
        let next = BASE + BUF_LEN;
        let mut host = Host { hca, arena, address, link, key: Key(0), buf, next };
        host.key = Key(host.key(PD, BUF_LEN, Access::all()));
        host
    }

    pub(crate) fn alloc(&mut self, len: u64, align: u64) -> u64 {
        let at = self.next.next_multiple_of(align);
        self.next = at + len;
        assert!(self.next <= BASE + ARENA_LEN as u64, "arena is full");
        at
    }

    pub(crate) fn put(&self, offset: u64, data: &[u8]) {
        self.buf.write(&self.arena, offset, data).unwrap();
    }

    pub(crate) fn get(&self, offset: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.buf.read(&self.arena, offset, &mut bytes).unwrap();
        bytes
    }

    pub(crate) fn put_u64(&self, offset: u64, value: u64) {
        self.put(offset, &value.to_ne_bytes());
    }

    pub(crate) fn get_u64(&self, offset: u64) -> u64 {
        u64::from_ne_bytes(self.get(offset, 8).try_into().unwrap())
    }

    /// Another key over the buffer.
    pub(crate) fn key(&mut self, pd: Pdn, len: u64, access: Access) -> u32 {
        let region = self.buf.clone();
        let ctx = MkeyContext {
            pd,
            iova: IOVA,
            len,
            access,
            remote_invalidate: true,
            region,
            ..MkeyContext::default()
        };
        self.hca.create_mkey(ctx).unwrap().0
    }

    pub(crate) fn events(&mut self) -> Vec<HcaEvent> {
        std::iter::from_fn(|| self.hca.next_event()).collect()
    }

    pub(crate) fn store(&self, addr: u64, big_endian: u32) {
        self.arena.store_u32(addr, big_endian.to_be()).unwrap();
    }
}

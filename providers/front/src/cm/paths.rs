//! Paths, as records of InfiniBand's subnet administration (IBTA vol 1, 15.2.5.16), read and set by
//! programs.

use std::net::SocketAddr;

use uverbs_core::Errno;
use uverbs_kernel_abi::rdma_cm::rdma_ucm_query_path_resp;
use zerocopy::IntoBytes;

use super::header::gid;
use super::id::{Id, IdNumber, State};
use super::manager::{HOP_LIMIT, Manager, Param, event};

/// Bytes of a `struct ib_path_rec_data` (kernel `rdma/ib_user_sa.h`): flags, four reserved bytes,
/// the record.
const LEN: usize = 72;
const RECORD: usize = 8;
/// `IB_PATH_GMP | IB_PATH_PRIMARY | IB_PATH_BIDIRECTIONAL`.
const FLAGS: u32 = 0b10_1011;
/// Selector of a record's field: exactly this value.
const EXACTLY: u8 = 2 << 6;
/// Packet life time, as in Linux for RoCE since 6.12 (`cma.c`, `CMA_IBOE_PACKET_LIFETIME`).
const LIFE_TIME: u8 = 16;

impl Manager {
    /// GIDs of both addresses, zeros without a device (`cma.c:rdma_read_gids`).
    pub(super) fn gids_of(&self, id: &Id) -> ([u8; 16], [u8; 16]) {
        if id.connection.here.gid != [0; 16] {
            let (here, there) = (id.connection.here.gid, id.connection.there.gid);
            return (self.port_gid(here), self.port_gid(there));
        }
        let of = |addr: Option<SocketAddr>| {
            addr.filter(|_| self.has_device(id))
                .map_or([0; 16], |addr| self.port_gid(gid(addr.ip())))
        };
        (of(id.local), of(id.peer))
    }

    /// Answers a query for the id's path, if it has one (`ucma_query_path`).
    pub(super) fn give_path(&self, id: &Id, room: Option<&mut [u8]>) -> Result<(), Errno> {
        const HEAD: usize = size_of::<rdma_ucm_query_path_resp>();
        let room = room.filter(|room| room.len() >= HEAD).ok_or(Errno::ENOSPC)?;
        let has = id.state == State::RouteResolved || id.state >= State::ReqSent;
        let head = rdma_ucm_query_path_resp { num_paths: has.into(), reserved: 0 };
        room[..HEAD].copy_from_slice(head.as_bytes());
        // Linux requires one byte more than the entry's length.
        if let Some(entry) = room.get_mut(HEAD..).filter(|rest| has && rest.len() > LEN) {
            entry[..4].copy_from_slice(&FLAGS.to_ne_bytes());
            self.put_record(id, &mut entry[RECORD..LEN]);
        }
        Ok(())
    }

    fn put_record(&self, id: &Id, record: &mut [u8]) {
        let (own, peer) = self.gids_of(id);
        record.fill(0);
        record[8..24].copy_from_slice(&peer);
        record[24..40].copy_from_slice(&own);
        let (here, there) = (id.connection.here.gid, id.connection.there.gid);
        match (self.lid(there), self.lid(here)) {
            (Some(dlid), Some(slid)) => {
                record[40..42].copy_from_slice(&dlid.to_be_bytes());
                record[42..44].copy_from_slice(&slid.to_be_bytes());
            }
            _ => record[47] = HOP_LIMIT,
        }
        record[48] = id.tos;
        // The path is reversible.
        record[49] = 0x80;
        record[50..52].fill(0xff);
        let agreed = Some(id.connection.mtu).filter(|&mtu| mtu != 0);
        record[54] = EXACTLY | agreed.or(id.path_mtu).unwrap_or(self.host.mtu);
        record[55] = EXACTLY;
        record[56] = EXACTLY | LIFE_TIME;
    }

    /// Sets a path instead of resolving one (`ucma_set_ib_path`, `rdma_set_ib_path`).
    pub(super) fn set_path(&mut self, number: IdNumber, value: &[u8]) -> Result<(), Errno> {
        let (entries, rest) = value.as_chunks::<LEN>();
        let is_path = |entry: &&[u8; LEN]| entry[..4] == FLAGS.to_ne_bytes();
        let entry = entries.iter().find(is_path).filter(|_| rest.is_empty());
        let id = self.ids.get_mut(number).ok_or(Errno::ENOENT)?;
        let record = &entry.ok_or(Errno::EINVAL)?[RECORD..];
        if id.state != State::AddressResolved {
            return Err(Errno::EINVAL);
        }
        // Messages come from the local address, for any source in the path
        // (`cma.c:cma_connect_ib`).
        id.connection.there.gid.copy_from_slice(&record[8..24]);
        if let Some(subnet) = &self.host.subnet {
            id.connection.there.gid = subnet.resolve(id.connection.there.gid);
        }
        (id.tos, id.path_mtu) = (record[48], Some(record[54] & 0x3f));
        id.state = State::RouteResolved;
        self.tell(number, event::ROUTE_RESOLVED, 0, Param::None);
        Ok(())
    }
}

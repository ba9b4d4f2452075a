//! Paths as InfiniBand's subnet administration has them, given and asked for.

use uverbs_core::attr::{Gid, Mtu};
use uverbs_core::commands::cm::PATH_LEN as LEN;
use uverbs_core::error::Error;
use uverbs_kernel_abi::rdma_cm::{RDMA_OPTION_IB, RDMA_OPTION_IB_PATH};

use super::Id;

/// A `struct ib_path_rec_data` (kernel `rdma/ib_user_sa.h`) is flags, four bytes for later, and the
/// record.
const RECORD: usize = 8;
/// For connection management, the first choice, and both directions: what Linux takes a record by,
/// and gives it with (kernel `ucma.c`, `ucma_set_ib_path`, `ucma_query_path`).
const GMP: u32 = 1;
const PRIMARY: u32 = 1 << 1;
const OUTBOUND: u32 = 1 << 3;
const INBOUND_REVERSE: u32 = 1 << 5;
const FLAGS: u32 = GMP | PRIMARY | OUTBOUND | INBOUND_REVERSE;
/// The value is exactly this (IBTA 15.2.5.16, the selectors).
const EXACTLY: u8 = 2;

/// A path. `struct ibv_path_record`; IBTA vol 1, 15.2.5.16.
///
/// ```
/// use uverbs::Mtu;
/// use uverbs::cm::PathRecord;
///
/// let path = PathRecord {
///     slid: 3,
///     dlid: 7,
///     mtu: Mtu::Mtu2048,
///     ..PathRecord::new("fe80::2:c903:1:2:3".parse()?, "fe80::2:c903:4:5:6".parse()?)
/// };
/// assert!(path.reversible);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "ibv_path_record")]
pub struct PathRecord {
    /// The service that it is for; 0 is any.
    pub service_id: u64,
    /// The peer's port.
    pub dgid: Gid,
    /// The own port.
    pub sgid: Gid,
    /// The peer's LID; of no use on RoCE.
    pub dlid: u16,
    /// The own LID; of no use on RoCE.
    pub slid: u16,
    /// 20 bits.
    pub flow_label: u32,
    /// Routers that packets may pass. Above 1 they have a global header.
    pub hop_limit: u8,
    /// Traffic class of the global header.
    pub traffic_class: u8,
    /// Answers take the same way.
    pub reversible: bool,
    /// The partition.
    pub pkey: u16,
    /// Service level, 0 to 15.
    pub service_level: u8,
    /// Path MTU.
    pub mtu: Mtu,
    /// `enum ibv_rate`; 0 is the port's own.
    pub rate: u8,
    /// Packet lifetime: 4.096 µs times two to this, 0 to 63. Connections derive their timeouts from
    /// it.
    pub packet_life_time: u8,
}

impl PathRecord {
    /// A path between two ports of a subnet: in the default partition, both ways, with 1,024 bytes
    /// a packet, and Linux's packet life time for RoCE, 0.27 s.
    #[must_use]
    pub const fn new(sgid: Gid, dgid: Gid) -> Self {
        Self {
            service_id: 0,
            dgid,
            sgid,
            dlid: 0,
            slid: 0,
            flow_label: 0,
            hop_limit: 0,
            traffic_class: 0,
            reversible: true,
            pkey: 0xffff,
            service_level: 0,
            mtu: Mtu::Mtu1024,
            rate: 0,
            packet_life_time: 16,
        }
    }

    fn to_kernel(self) -> Result<[u8; LEN], Error> {
        let verb = "rdma_set_option";
        Error::limit(verb, "flow label", self.flow_label, 0xf_ffff)?;
        Error::limit(verb, "service level", self.service_level.into(), 15)?;
        Error::limit(verb, "rate", self.rate.into(), 63)?;
        Error::limit(verb, "packet life time", self.packet_life_time.into(), 63)?;
        let mut bytes = [0; LEN];
        bytes[..4].copy_from_slice(&FLAGS.to_ne_bytes());
        let record = &mut bytes[RECORD..];
        record[..8].copy_from_slice(&self.service_id.to_be_bytes());
        record[8..24].copy_from_slice(&self.dgid.0);
        record[24..40].copy_from_slice(&self.sgid.0);
        record[40..42].copy_from_slice(&self.dlid.to_be_bytes());
        record[42..44].copy_from_slice(&self.slid.to_be_bytes());
        let flow = self.flow_label << 8 | u32::from(self.hop_limit);
        record[44..48].copy_from_slice(&flow.to_be_bytes());
        record[48] = self.traffic_class;
        // Number of paths requested: one.
        record[49] = u8::from(self.reversible) << 7 | 1;
        record[50..52].copy_from_slice(&self.pkey.to_be_bytes());
        record[52..54].copy_from_slice(&u16::from(self.service_level).to_be_bytes());
        record[54] = EXACTLY << 6 | self.mtu.raw() & 0x3f;
        record[55] = EXACTLY << 6 | self.rate;
        record[56] = EXACTLY << 6 | self.packet_life_time;
        Ok(bytes)
    }

    fn from_kernel(bytes: &[u8; LEN]) -> Self {
        let record = &bytes[RECORD..];
        let short = |at: usize| u16::from_be_bytes([record[at], record[at + 1]]);
        let gid = |at: usize| Gid(std::array::from_fn(|byte| record[at + byte]));
        let flow = u32::from_be_bytes([record[44], record[45], record[46], record[47]]);
        Self {
            service_id: u64::from_be_bytes(std::array::from_fn(|byte| record[byte])),
            dgid: gid(8),
            sgid: gid(24),
            dlid: short(40),
            slid: short(42),
            flow_label: flow >> 8 & 0xf_ffff,
            hop_limit: flow as u8,
            traffic_class: record[48],
            reversible: record[49] & 0x80 != 0,
            pkey: short(50),
            service_level: (short(52) & 15) as u8,
            mtu: Mtu::from_raw(record[54] & 0x3f),
            rate: record[55] & 0x3f,
            packet_life_time: record[56] & 0x3f,
        }
    }
}

impl Id {
    /// Sets the id's path, in place of [`resolve_route`](Self::resolve_route), without a query to
    /// the subnet manager. [`RouteResolved`](super::EventKind::RouteResolved) follows. For programs
    /// that know their network.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`] for a value over its field; [`Error::Kernel`]: `EINVAL` unless the address
    /// was resolved and the route wasn't.
    #[doc(alias = "RDMA_OPTION_IB_PATH")]
    pub fn set_path(&self, path: &PathRecord) -> Result<(), Error> {
        let value = path.to_kernel()?;
        self.channel().ucma().set_option(self.number(), RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &value)
    }

    /// Paths of the id, the primary first. Two if an alternate path was loaded; empty before the
    /// route is resolved, and on iWARP.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `ENXIO` of a removed device.
    #[doc(alias = "rdma_query_path")]
    pub fn paths(&self) -> Result<Vec<PathRecord>, Error> {
        let bytes = self.channel().ucma().query_path(self.number())?;
        Ok(bytes.iter().map(PathRecord::from_kernel).collect())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn records_come_back(
            service_id: u64,
            gids: [[u8; 16]; 2],
            lids: [u16; 2],
            flow_label in 0..=0xf_ffff_u32,
            [hop_limit, traffic_class]: [u8; 2],
            reversible: bool,
            pkey: u16,
            service_level in 0..16_u8,
            [mtu, rate, packet_life_time] in [0..64_u8, 0..64, 0..64],
        ) {
            let ([dgid, sgid], [dlid, slid]) = (gids.map(Gid), lids);
            let mtu = Mtu::from_raw(mtu);
            let path = PathRecord {
                service_id, dgid, sgid, dlid, slid, flow_label, hop_limit, traffic_class,
                reversible, pkey, service_level, mtu, rate, packet_life_time,
            };
            prop_assert_eq!(PathRecord::from_kernel(&path.to_kernel().unwrap()), path);
        }
    }

    /// Word and bit of each field come from kernel `sa_query.c`, `path_rec_table`.
    #[test]
    fn the_bytes_are_those_of_the_table() {
        let gid = |first: u8| Gid(std::array::from_fn(|at| first + at as u8));
        let path = PathRecord {
            service_id: 0x0102_0304_0506_0708,
            dlid: 0x1112,
            slid: 0x1314,
            flow_label: 0x2_3456,
            hop_limit: 0x21,
            traffic_class: 0x31,
            pkey: 0x8001,
            service_level: 9,
            mtu: Mtu::Mtu4096,
            rate: 3,
            packet_life_time: 18,
            ..PathRecord::new(gid(0x60), gid(0x40))
        };
        let bytes = path.to_kernel().unwrap();
        assert_eq!((&bytes[..4], &bytes[4..8]), (&43u32.to_ne_bytes()[..], &[0; 4][..]));
        let words: Vec<u32> =
            bytes[8..].chunks(4).map(|word| u32::from_be_bytes(word.try_into().unwrap())).collect();
        assert_eq!(words[..2], [0x0102_0304, 0x0506_0708]);
        assert_eq!((words[2], words[6]), (0x4041_4243, 0x6061_6263));
        assert_eq!(words[10..12], [0x1112_1314, 0x0234_5621]);
        // Traffic class, reversible and one path, P_Key; then SL, MTU, rate; then the life time.
        assert_eq!(words[12..15], [0x3181_8001, 0x0009_8583, 0x9200_0000]);
        let long = PathRecord { flow_label: 1 << 20, ..path }.to_kernel().unwrap_err();
        assert!(long.to_string().contains("flow label"), "{long}");
    }
}

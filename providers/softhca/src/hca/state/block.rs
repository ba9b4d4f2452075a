//! Blocks of compressed CQEs. Completions of one queue pair that differ only in the fields of a
//! mini CQE are written as one whole CQE, the title, and arrays of eight mini CQEs (PRM "CQE
//! compression"; read by Linux `en_rx.c:mlx5e_decompress_cqes_start`).

use std::ops::Range;

use uverbs_mlx5_prm::cqe::{
    CqeOpcode, MINI_CQES, MLX5_CQE_COMPRESSED, OpOwn, mlx5_cqe64, mlx5_mini_cqe8,
};
use zerocopy::{FromZeros, IntoBytes, transmute, transmute_ref};

use crate::hca::state::cq::CQE_LEN;
use uverbs_front::backend::context::MiniCqe;

/// Maximum completions in a block (`cqe_compression_max_num`).
pub(crate) const MAX_BLOCK: usize = 64;

/// Fields of a responder CQE with the packet's RSS hash and checksum.
const HASH: Range<usize> = 12..16;
const CHECKSUM: Range<usize> = 20..22;

/// CQEs that wait to be compressed.
#[derive(Debug, Default)]
pub(super) struct Block {
    waiting: Vec<[u8; CQE_LEN]>,
}

impl Block {
    /// True if a CQE can follow the waiting ones in a block.
    pub(super) fn fits(&self, next: &[u8; CQE_LEN], mini: MiniCqe) -> bool {
        let (Some(title), Some(last)) = (self.waiting.first(), self.waiting.last()) else {
            return true;
        };
        let counter = |bytes: &[u8; CQE_LEN]| view(bytes).wqe_counter.get();
        let follows = is_send(next) || counter(next) == counter(last).wrapping_add(1);
        self.waiting.len() < MAX_BLOCK && follows && common(title, mini) == common(next, mini)
    }

    /// True if no CQE waits.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn add(&mut self, cqe: [u8; CQE_LEN]) {
        self.waiting.push(cqe);
    }

    pub(super) fn take(&mut self) -> Vec<[u8; CQE_LEN]> {
        std::mem::take(&mut self.waiting)
    }
}

fn view(bytes: &[u8; CQE_LEN]) -> &mlx5_cqe64 {
    transmute_ref!(bytes)
}

fn is_send(bytes: &[u8; CQE_LEN]) -> bool {
    view(bytes).opcode() == CqeOpcode::REQ
}

/// True if a mini CQE can carry all that a CQE reports: it has no immediate data, no inline payload
/// and no solicited event.
pub(super) fn is_plain(bytes: &[u8; CQE_LEN]) -> bool {
    let op_own = OpOwn(view(bytes).op_own);
    let opcode = CqeOpcode(op_own.opcode());
    matches!(opcode, CqeOpcode::REQ | CqeOpcode::RESP_SEND) && op_own.format() == 0 && !op_own.se()
}

/// Fields that all CQEs of a block share: all fields that mini CQEs lack, except the timestamp,
/// which is the title's, and the checksum, which is lost where mini CQEs have the hash.
fn common(bytes: &[u8; CQE_LEN], mini: MiniCqe) -> [u8; CQE_LEN] {
    let mut cqe = *view(bytes);
    cqe.byte_cnt.set(0);
    cqe.timestamp.set(0);
    cqe.wqe_counter.set(0);
    if cqe.opcode() == CqeOpcode::REQ {
        cqe.sop_drop_qpn.set(cqe.sop_drop_qpn().with_sop(0).0);
    }
    let mut rest: [u8; CQE_LEN] = transmute!(cqe);
    if !is_send(bytes) {
        rest[CHECKSUM].fill(0);
        if mini == MiniCqe::Hash {
            rest[HASH].fill(0);
        }
    }
    rest
}

/// Builds the title of a block, without its owner bit, and its arrays.
pub(super) fn compress(
    all: &[[u8; CQE_LEN]],
    mini: MiniCqe,
) -> ([u8; CQE_LEN], Vec<[u8; CQE_LEN]>) {
    let short = |bytes: &[u8; CQE_LEN]| {
        let cqe = view(bytes);
        if is_send(bytes) {
            let opcode = cqe.sop_drop_qpn().sop();
            return mlx5_mini_cqe8::of_send(cqe.wqe_counter.get(), opcode, cqe.byte_cnt.get());
        }
        let mut short = mlx5_mini_cqe8 { byte_cnt: cqe.byte_cnt, ..Default::default() };
        match mini {
            MiniCqe::Checksum => short.checksum.as_mut_bytes().copy_from_slice(&bytes[CHECKSUM]),
            MiniCqe::Hash => short.as_mut_bytes()[..4].copy_from_slice(&bytes[HASH]),
        }
        short
    };
    let array = |some: &[[u8; CQE_LEN]]| {
        let mut array = <[mlx5_mini_cqe8; MINI_CQES]>::new_zeroed();
        for (mini, bytes) in array.iter_mut().zip(some) {
            *mini = short(bytes);
        }
        transmute!(array)
    };
    let mut title = all.first().map_or_else(mlx5_cqe64::new_zeroed, |first| *view(first));
    title.byte_cnt.set(all.len() as u32);
    title.op_own |= MLX5_CQE_COMPRESSED;
    (transmute!(title), all.chunks(MINI_CQES).map(array).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const QPN: u32 = 0x1234;

    fn cqe(opcode: CqeOpcode, counter: u16, bytes: u32) -> [u8; CQE_LEN] {
        let mut cqe = mlx5_cqe64::new_zeroed();
        cqe.byte_cnt.set(bytes);
        cqe.wqe_counter.set(counter);
        cqe.sop_drop_qpn.set(u32::from(counter % 7) << 24 | QPN);
        if opcode != CqeOpcode::REQ {
            cqe.sop_drop_qpn.set(QPN);
        }
        cqe.timestamp.set(counter.into());
        cqe.op_own = OpOwn::ZERO.with_opcode(opcode.0).0;
        transmute!(cqe)
    }

    /// Checks byte by byte, as Linux reads them (`struct mlx5_mini_cqe8`).
    #[test]
    fn a_block_is_a_title_and_arrays() {
        let all: Vec<_> = (0..9)
            .map(|n| cqe(CqeOpcode::RESP_SEND, 0xfffc_u16.wrapping_add(n), 0x10 + u32::from(n)))
            .collect();
        let (title, arrays) = compress(&all, MiniCqe::Checksum);
        assert_eq!(title[44..48], [0, 0, 0, 9], "how many they are");
        assert_eq!(title[60..62], [0xff, 0xfc], "the first receive");
        assert_eq!(title[63], 0x2c, "a message, compressed, the device's bit not set");
        assert_eq!(arrays.len(), 2);
        assert_eq!(arrays[0][..8], [0, 0, 0, 0, 0, 0, 0, 0x10]);
        assert_eq!(arrays[0][56..], [0, 0, 0, 0, 0, 0, 0, 0x17]);
        assert_eq!(arrays[1][..8], [0, 0, 0, 0, 0, 0, 0, 0x18]);
        assert_eq!(arrays[1][8..], [0; 56]);
        let (title, arrays) =
            compress(&[5, 9].map(|n| cqe(CqeOpcode::REQ, n, 3)), MiniCqe::Checksum);
        assert_eq!(title[63], 0x0c);
        assert_eq!(arrays[0][..16], [0, 5, 5, 0, 0, 0, 0, 3, 0, 9, 2, 0, 0, 0, 0, 3]);
    }

    #[test]
    fn only_what_differs_in_little_fits() {
        let mut block = Block::default();
        let receive = |counter| cqe(CqeOpcode::RESP_SEND, counter, 1);
        let fits = |block: &Block, next: &[u8; CQE_LEN]| block.fits(next, MiniCqe::Checksum);
        assert!(fits(&block, &receive(7)), "whatever is the first one");
        block.add(receive(7));
        assert!(
            fits(&block, &receive(8)) && !fits(&block, &receive(9)) && !fits(&block, &receive(7))
        );
        assert!(!fits(&block, &cqe(CqeOpcode::REQ, 8, 1)));
        let mut other = receive(8);
        other[59] ^= 1;
        assert!(!fits(&block, &other), "another queue pair's");
        // Bytes 40 to 43 are tag-matching fields, and the first 16 may hold a tag header.
        for at in [0, 15, 40, 41, 42, 43] {
            let mut other = receive(8);
            other[at] ^= 1;
            assert!(!fits(&block, &other), "{at}");
        }
        for counter in 8..7 + MAX_BLOCK as u16 {
            assert!(fits(&block, &receive(counter)));
            block.add(receive(counter));
        }
        assert!(!fits(&block, &receive(7 + MAX_BLOCK as u16)), "there is a limit");
        let mut solicited = receive(1);
        solicited[63] |= 2;
        assert!(is_plain(&receive(1)) && !is_plain(&solicited));
        assert!(!is_plain(&cqe(CqeOpcode::RESP_SEND_IMM, 1, 1)));
        assert!(!is_plain(&cqe(CqeOpcode::REQ_ERR, 1, 1)));
    }

    /// Mini CQEs have the hash, so packets of different hashes and checksums share a block.
    #[test]
    fn a_block_of_hashes_has_them() {
        let packet = |counter: u16| {
            let mut bytes = cqe(CqeOpcode::RESP_SEND, counter, 60);
            bytes[HASH].copy_from_slice(&(0xabcd_0000 | u32::from(counter)).to_be_bytes());
            bytes[CHECKSUM].copy_from_slice(&counter.to_be_bytes());
            bytes
        };
        let mut block = Block::default();
        block.add(packet(1));
        assert!(block.fits(&packet(2), MiniCqe::Hash));
        assert!(!block.fits(&packet(2), MiniCqe::Checksum), "mini CQEs lack the hash");
        let (_, arrays) = compress(&[packet(1), packet(2)], MiniCqe::Hash);
        assert_eq!(arrays[0][..8], [0xab, 0xcd, 0, 1, 0, 0, 0, 60]);
        assert_eq!(arrays[0][8..16], [0xab, 0xcd, 0, 2, 0, 0, 0, 60]);
    }
}

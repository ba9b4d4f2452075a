//! Program's memory as work requests name it: pieces with keys.

use uverbs_kernel_abi::efa::io::{
    EFA_IO_COMP_STATUS_LOCAL_ERROR_BAD_LENGTH, EFA_IO_COMP_STATUS_LOCAL_ERROR_INVALID_LKEY,
};
use uverbs_kernel_abi::mr::IB_UVERBS_ACCESS_LOCAL_WRITE;

use super::memory;
use super::message::{Checked, Refusal};
use super::request::{Content, Piece};
use super::world::World;

impl World {
    /// Address of a piece in the program's memory, if its key covers it with these rights.
    pub(crate) fn find(&self, board: usize, pd: u32, piece: Piece, access: u32) -> Option<u64> {
        let mr = self.mr(board, piece.key)?;
        let offset = piece.addr.checked_sub(mr.iova)?;
        let is_inside = offset.checked_add(piece.len.into())? <= mr.len;
        let is_granted = mr.pd == pd && mr.access & access == access;
        (is_inside && is_granted).then(|| mr.addr + offset)
    }

    /// Bytes of a work request.
    pub(crate) fn read(&self, board: usize, pd: u32, content: &Content) -> Checked<Vec<u8>> {
        let pieces = match content {
            Content::Inline(bytes) => return Ok(bytes.clone()),
            Content::Pieces(pieces) => pieces,
        };
        let bad = || Refusal::Failed(EFA_IO_COMP_STATUS_LOCAL_ERROR_INVALID_LKEY);
        let mut all = Vec::new();
        for piece in pieces {
            let at = self.find(board, pd, *piece, 0).ok_or_else(bad)?;
            let start = all.len();
            all.resize(start + piece.len as usize, 0);
            memory::read(at, &mut all[start..]).map_err(|_| bad())?;
        }
        Ok(all)
    }

    /// Writes bytes to pieces, behind `skip` bytes.
    pub(crate) fn scatter(
        &self,
        board: usize,
        pd: u32,
        pieces: &[Piece],
        skip: u64,
        bytes: &[u8],
    ) -> Checked<()> {
        let room: u64 = pieces.iter().map(|piece| u64::from(piece.len)).sum();
        if skip + bytes.len() as u64 > room {
            return Err(Refusal::Failed(EFA_IO_COMP_STATUS_LOCAL_ERROR_BAD_LENGTH));
        }
        let bad = || Refusal::Failed(EFA_IO_COMP_STATUS_LOCAL_ERROR_INVALID_LKEY);
        let (mut skip, mut rest) = (skip, bytes);
        for piece in pieces {
            let at = self.find(board, pd, *piece, IB_UVERBS_ACCESS_LOCAL_WRITE).ok_or_else(bad)?;
            let skipped = skip.min(piece.len.into());
            skip -= skipped;
            let (now, later) =
                rest.split_at(rest.len().min((u64::from(piece.len) - skipped) as usize));
            memory::write(at + skipped, now).map_err(|_| bad())?;
            rest = later;
        }
        Ok(())
    }
}

//! Work requests of the rig, and their WQEs.

use super::*;

/// A send to be posted.
#[derive(Clone, Debug)]
pub(crate) struct Wr {
    pub(crate) opcode: Opcode,
    pub(crate) flags: FmCeSe,
    pub(crate) imm: u32,
    /// Stream of a DC initiator.
    pub(crate) stream: u16,
    pub(crate) remote: Option<(u64, u32)>,
    pub(crate) atomic: Option<(u64, u64)>,
    /// SGEs: offset in the buffer, bytes, key.
    pub(crate) list: Vec<(u64, u32, Key)>,
    pub(crate) inline: Option<Vec<u8>>,
    /// Address segment of the service, behind the control segment.
    pub(crate) address: Vec<u8>,
}

impl Wr {
    pub(crate) fn new(opcode: Opcode) -> Wr {
        Wr {
            opcode,
            flags: FmCeSe::ZERO.with_ce(FmCeSe::CE_CQE),
            imm: 0,
            stream: 0,
            remote: None,
            atomic: None,
            list: Vec::new(),
            inline: None,
            address: Vec::new(),
        }
    }
    pub(crate) fn flags(mut self, flags: FmCeSe) -> Wr {
        self.flags = flags;
        self
    }
    pub(crate) fn unsignaled(self) -> Wr {
        self.flags(FmCeSe::ZERO)
    }
    pub(crate) fn imm(mut self, imm: u32) -> Wr {
        self.imm = imm;
        self
    }
    pub(crate) fn stream(mut self, stream: u16) -> Wr {
        self.stream = stream;
        self
    }
    pub(crate) fn remote(mut self, offset: u64, rkey: Key) -> Wr {
        self.remote = Some((IOVA + offset, rkey.0));
        self
    }
    pub(crate) fn atomic(mut self, swap_add: u64, compare: u64) -> Wr {
        self.atomic = Some((swap_add, compare));
        self
    }
    pub(crate) fn seg(mut self, offset: u64, len: u32, key: Key) -> Wr {
        self.list.push((offset, len, key));
        self
    }
    pub(crate) fn inline(mut self, data: &[u8]) -> Wr {
        self.inline = Some(data.to_vec());
        self
    }

    pub(crate) fn bytes(&self, qpn: Qpn, index: u16) -> Vec<u8> {
        let mut body = self.address.clone();
        if let Some((va, rkey)) = self.remote {
            body.extend_from_slice(mlx5_wqe_raddr_seg::new(va, rkey).as_bytes());
        }
        if let Some((swap_add, compare)) = self.atomic {
            body.extend_from_slice(mlx5_wqe_atomic_seg::new(swap_add, compare).as_bytes());
        }
        if let Some(data) = &self.inline {
            let end = body.len() + inline_bytes(data.len());
            body.extend_from_slice(mlx5_wqe_inline_seg::new(data.len() as u32).as_bytes());
            body.extend_from_slice(data);
            body.resize(end, 0);
        }
        for &(offset, len, key) in &self.list {
            body.extend_from_slice(
                mlx5_wqe_data_seg::new(len, key.0, IOVA.wrapping_add(offset)).as_bytes(),
            );
        }
        let ds = body.len() / 16 + 1;
        let word0 = OpmodIdxOpcode::ZERO.with_wqe_index(index).with_opcode(self.opcode.0);
        let word1 = QpnDs::ZERO.with_qpn(qpn.0).with_ds(ds as u8);
        let mut ctrl = mlx5_wqe_ctrl_seg::new(word0, word1, self.flags, self.imm);
        ctrl.dci_stream_channel_id.set(self.stream);
        [ctrl.as_bytes(), &body].concat()
    }
}

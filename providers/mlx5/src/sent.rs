//! Operations of successful sends, by the opcode of their WQEs.

use uverbs_core::queues::completion::Completed;
use uverbs_mlx5_prm::opcode::Opcode;

/// Operation of a send, by the opcode of its WQE.
pub(crate) const SENDS: [Completed; 256] = {
    let mut sends = [Completed::Send; 256];
    let mut opcode = 0;
    while opcode < sends.len() {
        sends[opcode] = match Opcode(opcode as u8) {
            Opcode::SEND | Opcode::SEND_IMM | Opcode::SEND_INVAL => Completed::Send,
            Opcode::RDMA_WRITE | Opcode::RDMA_WRITE_IMM => Completed::Write,
            Opcode::RDMA_READ => Completed::Read,
            Opcode::ATOMIC_CS => Completed::CompareSwap,
            Opcode::ATOMIC_FA => Completed::FetchAdd,
            Opcode::UMR => Completed::Rekey,
            Opcode::MMO => Completed::Copy,
            other => Completed::Other(other.0),
        };
        opcode += 1;
    }
    sends
};

/// Operation of a successful send, by the opcode of its WQE, and whether it carried immediate data.
#[must_use]
pub const fn sent(opcode: u8) -> (Completed, bool) {
    let immediate = matches!(Opcode(opcode), Opcode::SEND_IMM | Opcode::RDMA_WRITE_IMM);
    (SENDS[opcode as usize], immediate)
}

//! FLUSH and ATOMIC WRITE by the software HCA, which mlx5 has no work requests of.
#![allow(unsafe_code, reason = "writes into a send ring")]

use uverbs::provider::AnySq;
use uverbs::softhca::Placement;
use uverbs::softhca::SoftHca;

use super::Side;

/// Opcode of a NOP (PRM, "Opcodes").
const NOP: u8 = 0;

/// Posts a placement: a NOP, which the device (`client`'s, and no other program's) carries out as
/// the operation. It completes as `Completed::Other(0)`.
pub fn place(hca: &SoftHca, client: &mut Side, id: u64, operation: Placement) {
    let AnySq::Mlx5(sq) = client.qp.send_queue().provider() else {
        panic!("not the mlx5 provider's");
    };
    let raw = sq.raw_parts();
    hca.place(raw.qpn, raw.producer as u16, operation).expect("a queue pair of the device");
    let mut batch = client.qp.batch();
    batch.send_inline(id, b"").expect("room in the queue");
    // The last byte of the control segment's first word.
    let opcode = raw.buf.wrapping_add(raw.producer as usize * raw.stride % raw.bytes + 3);
    // SAFETY: in the ring, of a WQE that the device doesn't know of before the doorbell.
    unsafe { opcode.write_volatile(NOP) };
    batch.ring();
}

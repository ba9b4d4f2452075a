//! Registers, read and written by ACCESS_REG.

use uverbs_mlx5_prm::cmd::hca::{access_register_in, access_register_out};
use uverbs_mlx5_prm::cmd::register::{paos_reg, pmtu_reg, ptys_reg, pvlc_reg};

use crate::board::capabilities::SPEED_EDR;
use crate::firmware::Firmware;
use crate::firmware::base::call::{Call, Refusal};

/// Register numbers (Linux `include/linux/mlx5/driver.h`, `MLX5_REG_*`).
mod reg {
    pub(super) const PMTU: u64 = 0x5003;
    pub(super) const PTYS: u64 = 0x5004;
    pub(super) const PAOS: u64 = 0x5006;
    pub(super) const PPCNT: u64 = 0x5008;
    pub(super) const PVLC: u64 = 0x500f;
    pub(super) const NODE_DESC: u64 = 0x6001;
    pub(super) const HOST_ENDIANNESS: u64 = 0x7004;
}

/// `op_mod`: read.
const READ: u16 = 1;
/// `MLX5_PTYS_IB`.
const PROTO_IB: u64 = 1;
/// `MLX5_PTYS_EN`, and 100GBASE-CR4 (`MLX5E_100GBASE_CR4`).
const PROTO_ETHERNET: u64 = 1 << 2;
const SPEED_100G: u64 = 1 << 20;
/// Bytes of the largest frame, and of a frame with a packet of 1500.
const MAX_FRAME: u64 = 9216;
const USUAL_FRAME: u64 = 1522;
/// Four lanes (`MLX5_PTYS_WIDTH_4X`).
const WIDTH_4X: u64 = 1 << 2;
/// Only VL0.
const ONE_VL: u64 = 1;
const UP: u64 = 1;
pub(crate) const NODE_DESCRIPTION: &[u8] = b"softhca";

impl Firmware {
    pub(crate) fn access_register(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        let number = access_register_in::REGISTER_ID.get(call.input);
        let written = access_register_in::REGISTER_DATA.of(call.input);
        let read = access_register_out::REGISTER_DATA.of_mut(call.output);
        if call.op_mod != READ {
            return match number {
                reg::PMTU => {
                    self.set_frame_size(pmtu_reg::ADMIN_MTU.get(written));
                    Ok(())
                }
                // The host's byte order and the port's administrative state: a driver's write has
                // no effect.
                reg::HOST_ENDIANNESS | reg::PAOS | reg::NODE_DESC => Ok(()),
                _ => Err(Refusal::param("no such register to write")),
            };
        }
        let (most, mtu) = match self.profile.hca.is_ethernet() {
            true => (MAX_FRAME, if self.nic.mtu == 0 { USUAL_FRAME } else { self.nic.mtu }),
            false => [u64::from(self.hca.config().active_mtu.bytes()); 2].into(),
        };
        match number {
            reg::PTYS => {
                ptys_reg::LOCAL_PORT.set(read, ptys_reg::LOCAL_PORT.get(written));
                ptys_reg::PROTO_MASK.set(read, ptys_reg::PROTO_MASK.get(written));
                if ptys_reg::PROTO_MASK.get(written) & PROTO_IB != 0 {
                    for width in [
                        ptys_reg::IB_LINK_WIDTH_CAPABILITY,
                        ptys_reg::IB_LINK_WIDTH_ADMIN,
                        ptys_reg::IB_LINK_WIDTH_OPER,
                    ] {
                        width.set(read, WIDTH_4X);
                    }
                    for speed in [
                        ptys_reg::IB_PROTO_CAPABILITY,
                        ptys_reg::IB_PROTO_ADMIN,
                        ptys_reg::IB_PROTO_OPER,
                    ] {
                        speed.set(read, SPEED_EDR.into());
                    }
                }
                if ptys_reg::PROTO_MASK.get(written) & PROTO_ETHERNET != 0 {
                    for speed in [
                        ptys_reg::ETH_PROTO_CAPABILITY,
                        ptys_reg::ETH_PROTO_ADMIN,
                        ptys_reg::ETH_PROTO_OPER,
                    ] {
                        speed.set(read, SPEED_100G);
                    }
                }
            }
            reg::PMTU => {
                pmtu_reg::LOCAL_PORT.set(read, pmtu_reg::LOCAL_PORT.get(written));
                pmtu_reg::MAX_MTU.set(read, most);
                pmtu_reg::ADMIN_MTU.set(read, mtu);
                pmtu_reg::OPER_MTU.set(read, mtu);
            }
            reg::PVLC => {
                pvlc_reg::LOCAL_PORT.set(read, pvlc_reg::LOCAL_PORT.get(written));
                pvlc_reg::VL_HW_CAP.set(read, ONE_VL);
                pvlc_reg::VL_ADMIN.set(read, ONE_VL);
                pvlc_reg::VL_OPERATIONAL.set(read, ONE_VL);
            }
            reg::PAOS => {
                paos_reg::LOCAL_PORT.set(read, paos_reg::LOCAL_PORT.get(written));
                paos_reg::ADMIN_STATUS.set(read, UP);
                paos_reg::OPER_STATUS.set(read, UP);
            }
            reg::NODE_DESC => {
                for (to, from) in read.iter_mut().zip(NODE_DESCRIPTION) {
                    *to = *from;
                }
            }
            reg::PPCNT => Self::port_counters(written, read),
            _ => return Err(Refusal::param("no such register to read")),
        }
        Ok(())
    }
}

//! Management packets to the device itself: the subnet management agent, which describes the port
//! (IBTA vol 1, 14.2.5; queried by Linux `hw/mlx5/mad.c`). Set is unsupported: the port configures
//! itself.

use uverbs_mlx5_prm::cmd::vport::{mad_ifc_in, mad_ifc_out};

use crate::board::capabilities::{LINK_UP, MANAGER_LID, PORT_ACTIVE, WIDTH_4X};
use crate::board::profile::VENDOR_ID;
use crate::firmware::Firmware;
use crate::firmware::base::call::{Call, Refusal};
use crate::firmware::device::register::NODE_DESCRIPTION;
use crate::firmware::device::vport::CAPABILITIES;

/// Offsets in a packet (13.4.3, 14.2.1.1).
mod at {
    use std::ops::Range;

    pub(super) const CLASS: usize = 1;
    pub(super) const METHOD: usize = 3;
    pub(super) const STATUS: Range<usize> = 4..6;
    pub(super) const ATTRIBUTE: Range<usize> = 16..18;
    pub(super) const MODIFIER: Range<usize> = 20..24;
    pub(super) const DATA: Range<usize> = 64..128;
}

/// Subnet management classes: LID routed and directed route.
const CLASSES: [u8; 2] = [0x01, 0x81];
const GET: u8 = 0x01;
const GET_RESP: u8 = 0x81;
/// Status: no such attribute or method; no such table entry (13.4.7).
const UNSUPPORTED: u16 = 3 << 2;
const INVALID: u16 = 7 << 2;

/// Attributes (14.2.5).
mod attribute {
    pub(super) const NODE_DESCRIPTION: u16 = 0x10;
    pub(super) const NODE_INFO: u16 = 0x11;
    pub(super) const GUID_INFO: u16 = 0x14;
    pub(super) const PORT_INFO: u16 = 0x15;
    pub(super) const PKEY_TABLE: u16 = 0x16;
}

/// GUIDs and P_Keys in a block.
const GUIDS: usize = 8;
const PKEYS: usize = 32;

type Data = [u8; 64];

impl Firmware {
    pub(crate) fn mad_ifc(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        let mad = mad_ifc_in::MAD.of(call.input);
        let out = mad_ifc_out::RESPONSE_MAD_PACKET.of_mut(call.output);
        out.copy_from_slice(mad);
        out[at::METHOD] = GET_RESP;
        let (attribute, modifier) = (be16(&mad[at::ATTRIBUTE]), be32(&mad[at::MODIFIER]));
        let answer = match (CLASSES.contains(&mad[at::CLASS]), mad[at::METHOD]) {
            (true, GET) => self.attribute(attribute, modifier),
            _ => Err(UNSUPPORTED),
        };
        match answer {
            Ok(data) => out[at::DATA].copy_from_slice(&data),
            Err(status) => out[at::STATUS].copy_from_slice(&status.to_be_bytes()),
        }
        Ok(())
    }

    fn attribute(&self, attribute: u16, modifier: u32) -> Result<Data, u16> {
        let mut data = [0; 64];
        match attribute {
            attribute::NODE_DESCRIPTION => {
                data[..NODE_DESCRIPTION.len()].copy_from_slice(NODE_DESCRIPTION);
            }
            attribute::NODE_INFO => self.node_info(&mut data),
            attribute::PORT_INFO => self.port_info(&mut data),
            attribute::GUID_INFO => {
                let len = self.profile.hca.gid_table_len() as usize;
                let first = block(modifier, GUIDS, len)?;
                for (slot, gid) in
                    data.chunks_exact_mut(8).zip(self.profile.gids.iter().skip(first))
                {
                    slot.copy_from_slice(&gid.gid[8..]);
                }
            }
            attribute::PKEY_TABLE => {
                let len = usize::from(self.profile.hca.pkey_table_len());
                // The upper half of the modifier is for switches.
                let first = block(modifier & 0xffff, PKEYS, len)?;
                for (slot, index) in data.chunks_exact_mut(2).zip(first..len) {
                    slot.copy_from_slice(&self.profile.pkey(index as u16).to_be_bytes());
                }
            }
            _ => return Err(UNSUPPORTED),
        }
        Ok(data)
    }

    fn node_info(&self, data: &mut Data) {
        // Versions of the base and of the class; a channel adapter with one port.
        data[..4].copy_from_slice(&[1, 1, 1, 1]);
        for guid in [4, 12, 20] {
            data[guid..guid + 8].copy_from_slice(&self.profile.guid.to_be_bytes());
        }
        data[28..30].copy_from_slice(&self.profile.hca.pkey_table_len().to_be_bytes());
        data[30..32].copy_from_slice(&self.profile.hca.part.to_be_bytes());
        // LocalPortNum in the high byte, VendorID below.
        data[36..40].copy_from_slice(&(1 << 24 | VENDOR_ID).to_be_bytes());
    }

    fn port_info(&self, data: &mut Data) {
        /// 10 Gb/s a lane, and by the extended field 25 (14.2.5.6).
        const SPEEDS: u8 = 0b111;
        const SPEED_10: u8 = 4;
        const SPEED_EXT_25: u8 = 2;
        const EXTENDED_SPEEDS: u32 = 1 << 14;
        let mtu = self.hca.config().active_mtu as u8;
        if let Some(first) = self.profile.gids.first() {
            data[8..16].copy_from_slice(&first.gid[..8]);
        }
        data[16..18].copy_from_slice(&self.profile.lid.to_be_bytes());
        data[18..20].copy_from_slice(&MANAGER_LID.to_be_bytes());
        let capabilities = CAPABILITIES as u32 | EXTENDED_SPEEDS;
        data[20..24].copy_from_slice(&capabilities.to_be_bytes());
        data[28] = 1;
        data[29..32].fill(WIDTH_4X);
        data[32] = SPEEDS << 4 | PORT_ACTIVE;
        data[33] = LINK_UP << 4 | 2;
        data[35] = SPEED_10 << 4 | SPEEDS;
        data[36] = mtu << 4;
        // One virtual lane.
        data[37] = 1 << 4;
        data[41] = mtu;
        data[43] = 1 << 4;
        data[50] = self.profile.hca.gid_table_len() as u8;
        data[62] = SPEED_EXT_25 << 4 | SPEED_EXT_25;
        data[63] = SPEED_EXT_25;
    }
}

/// Index of a block's first entry. Fails beyond the table.
fn block(number: u32, size: usize, len: usize) -> Result<usize, u16> {
    let first = (number as usize).checked_mul(size).filter(|first| *first < len);
    first.ok_or(INVALID)
}

fn be16(bytes: &[u8]) -> u16 {
    bytes.try_into().map_or(0, u16::from_be_bytes)
}

fn be32(bytes: &[u8]) -> u32 {
    bytes.try_into().map_or(0, u32::from_be_bytes)
}

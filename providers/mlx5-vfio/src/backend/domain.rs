//! Domains. The front has its numbers for them. The device's are allocated when an object first
//! needs one, and end with the function: a domain without objects grants nothing.

use std::collections::BTreeMap;

use uverbs_front::backend::error::{HcaError, Noun};
use uverbs_front::backend::number::Pdn;
use uverbs_mlx5_prm::cmd::Field;
use uverbs_mlx5_prm::cmd::opcode::CmdOpcode;
use uverbs_mlx5_prm::cmd::simple::{
    alloc_pd_out, alloc_transport_domain_out, alloc_xrcd_out, dealloc_transport_domain_in,
};

use super::{Firmware, SHORT};

/// The device's numbers by the front's.
#[derive(Debug, Default)]
pub(super) struct Domains {
    pds: BTreeMap<u32, u32>,
    xrcds: BTreeMap<u32, u32>,
    /// Transport domains, with the number of their objects. They end with their last object.
    transport: BTreeMap<u32, (u32, u32)>,
}

impl Firmware {
    /// Protection domain.
    pub(super) fn pd(&mut self, pd: Pdn) -> Result<u32, HcaError> {
        if let Some(known) = self.domains.pds.get(&pd.0) {
            return Ok(*known);
        }
        let number = self.alloc(CmdOpcode::ALLOC_PD, alloc_pd_out::PD)?;
        self.domains.pds.insert(pd.0, number);
        Ok(number)
    }

    /// XRC domain.
    pub(super) fn xrcd(&mut self, xrcd: u32) -> Result<u32, HcaError> {
        if let Some(known) = self.domains.xrcds.get(&xrcd) {
            return Ok(*known);
        }
        let number = self.alloc(CmdOpcode::ALLOC_XRCD, alloc_xrcd_out::XRCD)?;
        self.domains.xrcds.insert(xrcd, number);
        Ok(number)
    }

    /// Returns the transport domain for one more object, allocating it for the first.
    pub(super) fn join_domain(&mut self, domain: u32) -> Result<u32, HcaError> {
        if let Some((number, users)) = self.domains.transport.get_mut(&domain) {
            *users += 1;
            return Ok(*number);
        }
        let opcode = CmdOpcode::ALLOC_TRANSPORT_DOMAIN;
        let number = self.alloc(opcode, alloc_transport_domain_out::TRANSPORT_DOMAIN)?;
        self.domains.transport.insert(domain, (number, 1));
        Ok(number)
    }

    /// Removes an object from its transport domain, and frees the domain after the last one.
    pub(super) fn leave_domain(&mut self, domain: u32) {
        let Some((number, users)) = self.domains.transport.get_mut(&domain) else { return };
        *users -= 1;
        if *users == 0 {
            let (field, number) = (dealloc_transport_domain_in::TRANSPORT_DOMAIN, *number);
            self.domains.transport.remove(&domain);
            // A refused domain stays, without objects, until the function is reset.
            let mut input = [0; SHORT];
            field.set(&mut input, number.into());
            let _ = self.function.command(CmdOpcode::DEALLOC_TRANSPORT_DOMAIN, 0, &input, SHORT);
        }
    }

    fn alloc(&self, opcode: CmdOpcode, number: Field) -> Result<u32, HcaError> {
        let output = self.create(opcode, &[0; SHORT], SHORT, Noun::Qp)?;
        Ok(number.get32(&output))
    }
}

//! Umems: memory that a process registered for the queues of its commands (PRM "CREATE_UMEM"; Linux
//! `hw/mlx5/devx.c`, `devx_umem_reg_cmd_alloc`).
//!
//! In a command whose context a process wrote, a bit says that rings, doorbell records and pages
//! are in umems: Linux sets it in each of them (`hw/mlx5/devx.c`, `devx_set_umem_valid` and
//! `devx_handle_mkey_create`). Addresses in such a command are the process's claim; taken as bus
//! addresses they would give it all of the machine's memory.

use uverbs_mlx5_prm::cmd::cq::{RESIZE_CQ, modify_cq_in};
use uverbs_mlx5_prm::cmd::mkey::create_mkey_in;
use uverbs_mlx5_prm::cmd::opcode::{CmdOpcode, CmdStatus};
use uverbs_mlx5_prm::cmd::rq::{create_rmp_in, create_xrc_srq_in, create_xrq_in, rmpc, wq, xrqc};
use uverbs_mlx5_prm::cmd::sq::{create_rq_in, create_sq_in, rqc, sqc};
use uverbs_mlx5_prm::cmd::umem::{create_umem_in, create_umem_out, destroy_umem_in, umem};

use crate::firmware::Firmware;
use crate::firmware::base::call::{Call, Refusal};
use crate::firmware::base::owner::User;
use crate::hca::dma::RegionAccess;
use uverbs_front::backend::region::Region;

/// Log2 of the smallest page, and base of `log_page_size`.
const PAGE_SHIFT: u64 = 12;
/// Log2 of the largest page. No command has enough pages to overflow their bytes.
const MAX_PAGE_SHIFT: u64 = 40;
/// Bytes of a doorbell record.
const RECORD: u64 = 8;

/// Flag in the low bits of a page's address: the device may write to it (Linux `hw/mlx5/mlx5_ib.h`,
/// `MLX5_IB_MTT_WRITE`).
const WRITABLE: u64 = 1 << 1;

/// A registered range of memory.
#[derive(Debug)]
pub(crate) struct Umem {
    region: Region,
    /// User that registered it.
    owner: User,
    /// The device may write to its pages.
    writable: bool,
}

/// True if a command names a umem for an object that can't use one here: only completion queues and
/// queue pairs can.
pub(crate) fn is_too_much(opcode: CmdOpcode, call: &Call<'_>) -> bool {
    let input = call.input;
    let ring = |wq: &[u8]| wq::WQ_UMEM_VALID.is_set(wq);
    match opcode {
        CmdOpcode::CREATE_MKEY => create_mkey_in::MKEY_UMEM_VALID.is_set(input),
        // A modification without a new ring may have the bit, too.
        CmdOpcode::MODIFY_CQ => {
            call.op_mod == RESIZE_CQ && modify_cq_in::CQ_UMEM_VALID.is_set(input)
        }
        CmdOpcode::CREATE_RMP => ring(rmpc::WQ.of(create_rmp_in::CTX.of(input))),
        CmdOpcode::CREATE_RQ => ring(rqc::WQ.of(create_rq_in::CTX.of(input))),
        CmdOpcode::CREATE_SQ => ring(sqc::WQ.of(create_sq_in::CTX.of(input))),
        CmdOpcode::CREATE_XRQ => ring(xrqc::WQ.of(create_xrq_in::XRQ_CONTEXT.of(input))),
        CmdOpcode::CREATE_XRC_SRQ => create_xrc_srq_in::XRC_SRQ_UMEM_VALID.is_set(input),
        _ => false,
    }
}

impl Firmware {
    pub(crate) fn create_umem(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        let context = create_umem_in::UMEM.of(call.input);
        // The list follows the structure, which is the end of the fixed part.
        let list = call.input.get(create_umem_in::SIZE..).unwrap_or_default();
        let count = umem::NUM_OF_MTT.get(context);
        if count > (list.len() / 8) as u64 {
            return Err(Refusal::param("fewer pages than the memory has"));
        }
        let shift = PAGE_SHIFT + umem::LOG_PAGE_SIZE.get(context);
        if shift > MAX_PAGE_SHIFT {
            return Err(Refusal::param("log_page_size"));
        }
        let offset = umem::PAGE_OFFSET.get(context);
        let len = (count << shift).checked_sub(offset);
        let len = len.ok_or(Refusal::param("page_offset"))?;
        let pages = list.chunks_exact(8).take(count as usize);
        let pages: Vec<_> =
            pages.filter_map(|pa| pa.try_into().ok().map(u64::from_be_bytes)).collect();
        let writable = pages.iter().all(|pa| pa & WRITABLE != 0);
        let pages = pages.iter().map(|pa| pa & !((1 << PAGE_SHIFT) - 1)).collect();
        let region = Region::Pages { page_shift: shift as u8, offset, pages, len };
        if !region.is_sound() {
            return Err(Refusal::param("page_offset"));
        }
        let id = self.umem_ids.take().ok_or(Refusal::NO_NUMBER)?;
        let owner = User::of(call);
        self.umems.insert(id, Umem { region, owner, writable });
        create_umem_out::UMEM_ID.set(call.output, id.into());
        Ok(())
    }

    pub(crate) fn destroy_umem(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        let id = destroy_umem_in::UMEM_ID.get32(call.input);
        self.umem(call, id)?;
        let in_cqs = self.cqs.values().any(|cq| cq.umems.contains(&Some(id)));
        if in_cqs || self.qps.values().any(|qp| qp.umems.contains(&Some(id))) {
            return Err(Refusal::new(CmdStatus::RES_BUSY, "a queue lies in it"));
        }
        self.umems.remove(&id);
        self.umem_ids.give_back(id);
        Ok(())
    }

    /// Finds a umem of the command's user. Numbers are easily guessed, so the owner is checked.
    fn registered(&self, call: &Call<'_>, id: u32) -> Result<&Umem, Refusal> {
        let umem = self.umems.get(&id).filter(|umem| umem.owner == User::of(call));
        umem.ok_or(Refusal::resource("no such registered memory"))
    }

    /// Memory of a umem that the device reads.
    pub(crate) fn umem(&self, call: &Call<'_>, id: u32) -> Result<&Region, Refusal> {
        Ok(&self.registered(call, id)?.region)
    }

    /// Memory of a umem that the device writes: read-only registrations may contain pages of other
    /// owners.
    pub(crate) fn writable_umem(&self, call: &Call<'_>, id: u32) -> Result<&Region, Refusal> {
        let umem = self.registered(call, id)?;
        match umem.writable {
            true => Ok(&umem.region),
            false => Err(Refusal::param("the registered memory is not to be written")),
        }
    }

    /// Bus address of a doorbell record. In a umem, the context has an offset instead of an
    /// address. `umems` are the numbers for ring and record: both or neither.
    pub(crate) fn record(
        &self,
        call: &Call<'_>,
        umems: [Option<u32>; 2],
        addr: u64,
    ) -> Result<u64, Refusal> {
        let id = match umems {
            [_, Some(id)] => id,
            [None, None] => return Ok(addr),
            [Some(_), None] => return Err(Refusal::param("dbr_umem_valid")),
        };
        let record = self.umem(call, id)?.addr_of(addr, RECORD);
        record.map_err(|_| Refusal::param("the doorbell record is not in the registered memory"))
    }
}

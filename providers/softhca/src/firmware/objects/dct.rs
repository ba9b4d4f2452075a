//! Targets of dynamic connections (Linux `hw/mlx5/qp.c`, `mlx5_ib_modify_dct`; `hw/mlx5/qpc.c`).

use uverbs_mlx5_prm::cmd::Field;
use uverbs_mlx5_prm::cmd::dct::{
    arm_dct_in, create_dct_in, create_dct_out, dctc, destroy_dct_in, drain_dct_in, query_dct_in,
    query_dct_out,
};

use crate::firmware::Firmware;
use crate::firmware::base::call::{Call, Refusal};
use uverbs_front::backend::config::agree;
use uverbs_front::backend::context::{Access, DctContext, Mtu};
use uverbs_front::backend::number::{Cqn, Pdn, Qpn, Srqn};

impl Firmware {
    pub(crate) fn create_dct(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        let context = create_dct_in::DCT_CONTEXT_ENTRY.of(call.input);
        let pd = dctc::PD.get32(context);
        if !self.simple.has_pd(call, pd) {
            return Err(Refusal::resource("no such protection domain"));
        }
        self.cqs.check(call, dctc::CQN.get32(context))?;
        self.srqs.check(call, dctc::SRQN_XRQN.get32(context))?;
        let mut access = Access::empty();
        for (field, right) in [
            (dctc::RRE, Access::REMOTE_READ),
            (dctc::RWE, Access::REMOTE_WRITE),
            (dctc::RAE, Access::REMOTE_ATOMIC),
        ] {
            access.set(right, field.is_set(context));
        }
        let byte = |field: Field| field.get(context) as u8;
        let dctn = self.hca.create_dct(DctContext {
            pd: Pdn(pd),
            cq: Cqn(dctc::CQN.get32(context)),
            srq: Srqn(dctc::SRQN_XRQN.get32(context)),
            key: dctc::DC_ACCESS_KEY.get(context),
            user_index: dctc::USER_INDEX.get32(context),
            cqe_version: 1,
            access,
            pkey_index: dctc::PKEY_INDEX.get(context) as u16,
            path_mtu: Mtu::from_code(byte(dctc::MTU)).ok_or(Refusal::param("mtu"))?,
            min_rnr_timer: byte(dctc::MIN_RNR_NAK),
            counter_set: byte(dctc::COUNTER_SET_ID),
            ece: 0,
        })?;
        let mut kept = Box::new([0; dctc::SIZE]);
        kept.copy_from_slice(context);
        self.dcts.insert(call, dctn.0, kept);
        create_dct_out::DCTN.set(call.output, dctn.0.into());
        let ece = agree(self.hca.config().ece, dctc::ECE.get32(context));
        create_dct_out::ECE.set(call.output, ece.into());
        Ok(())
    }

    pub(crate) fn drain_dct(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        let dctn = drain_dct_in::DCTN.get32(call.input);
        self.dcts.get(call, dctn)?;
        Ok(self.hca.drain_dct(Qpn(dctn))?)
    }

    pub(crate) fn destroy_dct(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        let dctn = destroy_dct_in::DCTN.get32(call.input);
        self.dcts.get(call, dctn)?;
        self.hca.destroy_dct(Qpn(dctn))?;
        self.dcts.remove(call, dctn).map(drop)
    }

    pub(crate) fn query_dct(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        let dctn = query_dct_in::DCTN.get32(call.input);
        let kept = self.dcts.get(call, dctn)?;
        let (state, violations) = self.hca.query_dct(Qpn(dctn))?;
        let out = query_dct_out::DCT_CONTEXT_ENTRY.of_mut(call.output);
        out.copy_from_slice(&**kept);
        dctc::STATE.set(out, state as u64);
        dctc::DC_ACCESS_KEY_VIOLATION_COUNT.set(out, violations.into());
        Ok(())
    }

    pub(crate) fn arm_dct(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        let dctn = arm_dct_in::DCT_NUMBER.get32(call.input);
        self.dcts.get(call, dctn)?;
        Ok(self.hca.arm_dct(Qpn(dctn))?)
    }
}

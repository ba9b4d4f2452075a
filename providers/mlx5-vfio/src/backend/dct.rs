//! Targets of dynamic connections (Linux `hw/mlx5/qp.c`, `mlx5_ib_modify_dct`; `hw/mlx5/qpc.c`).

use std::time::{Duration, Instant};

use uverbs_mlx5_prm::cmd::dct::{
    create_dct_in, create_dct_out, dctc, destroy_dct_in, drain_dct_in, query_dct_in, query_dct_out,
};
use uverbs_mlx5_prm::cmd::opcode::CmdOpcode;

use super::{Firmware, SHORT};
use uverbs_front::backend::context::{Access, DctContext};
use uverbs_front::backend::error::{HcaError, Noun};
use uverbs_front::backend::number::{Qpn, Queue};

/// State of a drained target (`MLX5_DCTC_STATE_DRAINED`).
const DRAINED: u64 = 2;
/// Longest wait for a target's last answers, and the pause between two looks.
const DRAINS: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(1);
/// The only port of a function.
const PORT: u64 = 1;
/// Hops of a target's answers.
const HOP_LIMIT: u64 = 64;

impl Firmware {
    pub(super) fn make_dct(&mut self, context: &DctContext) -> Result<Qpn, HcaError> {
        let pd = self.pd(context.pd)?;
        let mut input = vec![0; create_dct_in::SIZE];
        let dctc = create_dct_in::DCT_CONTEXT_ENTRY.of_mut(&mut input);
        for (right, field) in [
            (Access::REMOTE_READ, dctc::RRE),
            (Access::REMOTE_WRITE, dctc::RWE),
            (Access::REMOTE_ATOMIC, dctc::RAE),
        ] {
            field.set(dctc, context.access.contains(right).into());
        }
        for (field, value) in [
            (dctc::PD, pd.into()),
            (dctc::CQN, context.cq.0.into()),
            (dctc::SRQN_XRQN, context.srq.0.into()),
            (dctc::USER_INDEX, context.user_index.into()),
            (dctc::DC_ACCESS_KEY, context.key),
            (dctc::PKEY_INDEX, context.pkey_index.into()),
            (dctc::MTU, context.path_mtu as u64),
            (dctc::MIN_RNR_NAK, context.min_rnr_timer.into()),
            (dctc::COUNTER_SET_ID, context.counter_set.into()),
            (dctc::PORT, PORT),
            (dctc::ECE, self.supported(context.ece).into()),
            (dctc::HOP_LIMIT, HOP_LIMIT),
        ] {
            field.set(dctc, value);
        }
        let outlen = create_dct_out::SIZE;
        let output = self.create(CmdOpcode::CREATE_DCT, &input, outlen, Noun::Dct)?;
        let dctn = Qpn(create_dct_out::DCTN.get32(&output));
        self.eces.insert(Queue::Dct(dctn), create_dct_out::ECE.get32(&output));
        Ok(dctn)
    }

    /// Drains and destroys a target (`mlx5_core_destroy_dct`).
    pub(super) fn end_dct(&mut self, dctn: Qpn) -> Result<(), HcaError> {
        let object = (Noun::Dct, dctn.0);
        let mut input = [0; SHORT];
        drain_dct_in::DCTN.set(&mut input, dctn.0.into());
        self.run(CmdOpcode::DRAIN_DCT, 0, &input, SHORT, object)?;
        let start = Instant::now();
        // After the limit the firmware itself refuses the destruction.
        while !self.is_drained(dctn)? && start.elapsed() < DRAINS {
            std::thread::sleep(PAUSE);
        }
        self.destroy(CmdOpcode::DESTROY_DCT, destroy_dct_in::DCTN, object)?;
        self.eces.remove(&Queue::Dct(dctn));
        Ok(())
    }

    fn is_drained(&self, dctn: Qpn) -> Result<bool, HcaError> {
        let mut input = [0; SHORT];
        query_dct_in::DCTN.set(&mut input, dctn.0.into());
        let (outlen, object) = (query_dct_out::SIZE, (Noun::Dct, dctn.0));
        let output = self.run(CmdOpcode::QUERY_DCT, 0, &input, outlen, object)?;
        Ok(dctc::STATE.get(query_dct_out::DCT_CONTEXT_ENTRY.of(&output)) == DRAINED)
    }
}

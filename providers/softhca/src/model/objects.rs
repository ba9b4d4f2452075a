//! Objects, events and management datagrams of a software HCA.

use std::time::Duration;

use uverbs_mlx5_prm::cmd::header::cmd_in;
use uverbs_mlx5_prm::cmd::mkey::{create_mkey_in, create_mkey_out};
use uverbs_mlx5_prm::cmd::opcode::CmdOpcode;

use crate::firmware::base::call::Call;
use crate::firmware::device::caps::Capabilities;
use crate::firmware::objects::{mkey, qp};
use crate::hca::Hca;
use crate::wire::Address;
use uverbs_front::backend::command::Refusal;
use uverbs_front::backend::context::{
    CqContext, DctContext, MkeyContext, Moderation, QpAttrs, QpContext, QpState, QpTransition,
    Service, SrqContext,
};
use uverbs_front::backend::error::{HcaError, HcaEvent};
use uverbs_front::backend::number::{Cqn, Key, Qpn, Queue, Srqn, UarNumber};
use uverbs_front::backend::region::Region;
use uverbs_front::backend::steering::Steering;
use uverbs_front::backend::{Backend, Mad};

impl Backend for Hca {
    fn create_mkey(&mut self, context: MkeyContext) -> Result<Key, HcaError> {
        self.create_mkey(context)
    }

    fn modify_mkey(&mut self, key: Key, context: MkeyContext) -> Result<Key, HcaError> {
        self.modify_mkey(key, context).map(|()| key)
    }

    fn destroy_mkey(&mut self, key: Key) -> Result<(), HcaError> {
        self.destroy_mkey(key)
    }

    fn windows_on(&self, key: Key) -> usize {
        self.windows_on(key)
    }

    fn create_cq(&mut self, context: CqContext) -> Result<Cqn, HcaError> {
        self.create_cq(context)
    }

    fn resize_cq(
        &mut self,
        cqn: Cqn,
        region: Region,
        log_entries: u8,
        cqe_size: u32,
    ) -> Result<(), HcaError> {
        self.resize_cq(cqn, region, log_entries, cqe_size)
    }

    fn moderate_cq(&mut self, cqn: Cqn, moderation: Moderation) -> Result<(), HcaError> {
        self.moderate_cq(cqn, moderation)
    }

    fn cqe_size(&self, cqn: Cqn) -> Result<u32, HcaError> {
        self.cqe_size(cqn)
    }

    fn destroy_cq(&mut self, cqn: Cqn) -> Result<(), HcaError> {
        self.destroy_cq(cqn)
    }

    fn create_qp(&mut self, context: QpContext) -> Result<Queue, HcaError> {
        let QpContext { service, domain, options, .. } = context;
        let (sends, receives) = (context.sq.is_some(), context.rq.is_some());
        let kind = context.kind();
        let qpn = self.create_qp(context)?;
        if service == Service::Raw && sends {
            self.steering().add_sender(qpn.0, domain);
        }
        if service == Service::Raw && receives {
            self.steering().set_queue(qpn.0, options);
        }
        Ok(kind(qpn))
    }

    fn modify_qp(
        &mut self,
        queue: Queue,
        to: QpTransition,
        attrs: &QpAttrs,
    ) -> Result<(), HcaError> {
        self.modify_qp(queue.number(), to, attrs)
    }

    fn query_qp(&self, queue: Queue) -> Result<(QpState, QpAttrs), HcaError> {
        self.query_qp(queue.number())
    }

    fn destroy_qp(&mut self, queue: Queue) -> Result<(), HcaError> {
        let qpn = queue.number();
        self.destroy_qp(qpn)?;
        self.steering().remove_sender(qpn.0);
        self.steering().remove_queue(qpn.0);
        Ok(())
    }

    fn create_srq(&mut self, context: SrqContext) -> Result<Srqn, HcaError> {
        self.create_srq(context)
    }

    fn modify_srq(&mut self, srqn: Srqn, limit: u16) -> Result<(), HcaError> {
        self.modify_srq(srqn, limit)
    }

    fn query_srq(&self, srqn: Srqn) -> Result<u16, HcaError> {
        self.query_srq(srqn)
    }

    fn destroy_srq(&mut self, srqn: Srqn) -> Result<(), HcaError> {
        self.destroy_srq(srqn)
    }

    fn create_dct(&mut self, context: DctContext) -> Result<Qpn, HcaError> {
        self.create_dct(context)
    }

    fn abandon_dct(&mut self, dctn: Qpn) -> Result<(), HcaError> {
        self.abandon_dct(dctn)
    }

    fn command(&mut self, input: &[u8], output: &mut [u8]) {
        if let Err(refusal) = command(self, input, output) {
            refusal.answer(output);
        }
    }

    fn steering(&mut self) -> &mut dyn Steering {
        self
    }

    fn doorbell(&mut self, uar: UarNumber, offset: u32, value: u64) {
        self.doorbell(uar, offset, value);
    }

    fn next_event(&mut self) -> Option<HcaEvent> {
        self.next_event()
    }

    fn resolve(&self, gid: [u8; 16]) -> [u8; 16] {
        self.resolve(gid)
    }

    fn mac(&mut self, gid: &[u8; 16]) -> Result<[u8; 6], HcaError> {
        Ok(mac(gid))
    }

    fn next_mad(&mut self) -> Option<Mad> {
        self.next_mad()
    }

    fn next_left(&mut self) -> Option<Address> {
        self.next_left()
    }

    fn send_mad(&mut self, src: Address, dst: Address, bytes: &[u8]) {
        self.send_mad(src, dst, bytes);
    }

    fn flush_mads(&mut self) {
        self.flush_mads();
    }

    fn set_client_slice(&mut self, is_client_slice: bool) {
        Hca::set_client_slice(self, is_client_slice);
    }

    fn step(&mut self, now: Duration) -> bool {
        self.step(now)
    }

    fn needs_looks(&self) -> bool {
        self.needs_looks()
    }

    fn next_deadline(&self) -> Option<Duration> {
        self.next_deadline()
    }

    fn leave(&mut self) {
        self.leave();
    }

    fn produced(&self, cqn: Cqn) -> u32 {
        self.produced(cqn)
    }

    fn may_send(&self, qpn: Qpn, key: Key, range: (u64, u64), writes: bool) -> bool {
        self.may_send(qpn, key, range, writes)
    }
}

/// Executes a command of DEVX: QUERY_HCA_CAP, CREATE_MKEY of a free key, the reset of a stream.
fn command(hca: &mut Hca, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    match CmdOpcode(cmd_in::OPCODE.get(input) as u16) {
        CmdOpcode::QUERY_HCA_CAP => {
            let op_mod = cmd_in::OP_MOD.get(input) as u16;
            let config = hca.config();
            let capabilities =
                Capabilities { vhca_id: 0, config, atomic_mode: 0, log_uars_in_page: 0 };
            capabilities.query(&mut Call { input, output, op_mod });
            Ok(())
        }
        CmdOpcode::CREATE_MKEY => {
            let context = create_mkey_in::MEMORY_KEY_MKEY_ENTRY.of(input);
            let key = mkey::create_free(hca, context)?;
            create_mkey_out::MKEY_INDEX.set(output, key.index().into());
            Ok(())
        }
        CmdOpcode::RTS2RTS_QP => qp::reset_stream(hca, input),
        _ => Err(Refusal::param("no such command in process")),
    }
}

/// MAC of a peer. Software devices have no neighbour table: a link-local GID contains the MAC
/// (`rdma_get_ll_mac`), and for an IPv4 address it is derived as in `Profile`.
fn mac(gid: &[u8; 16]) -> [u8; 6] {
    match gid {
        [0xfe, 0x80, 0, 0, 0, 0, 0, 0, a, b, c, _, _, d, e, f] => [a ^ 2, *b, *c, *d, *e, *f],
        [.., c, d] => [0x02, 0xca, 0x05, 0x00, *c, *d],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Link-local GID of the interface 02:ca:05:00:03:04, and its mapped IPv4 address.
    const GIDS: [[u8; 16]; 2] = [
        [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0x00, 0xca, 0x05, 0xff, 0xfe, 0x00, 3, 4],
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 86, 3, 4],
    ];

    #[test]
    fn both_gids_of_a_device_lead_to_its_mac() {
        assert_eq!(GIDS.map(|gid| mac(&gid)), [[0x02, 0xca, 0x05, 0x00, 3, 4]; 2]);
    }
}

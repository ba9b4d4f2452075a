//! Counters of queue pair sets and of the port (Linux `hw/mlx5/counters.c`, `hw/mlx5/mad.c`).

use uverbs_mlx5_prm::cmd::register::ppcnt_reg;
use uverbs_mlx5_prm::cmd::simple::alloc_q_counter_out;
use uverbs_mlx5_prm::cmd::vport::{
    query_q_counter_in, query_q_counter_out, query_vport_counter_out, traffic_counter,
};

use crate::firmware::Firmware;
use crate::firmware::base::call::{Call, Refusal};
use crate::hca::Traffic;

impl Firmware {
    /// ALLOC_Q_COUNTER: allocates a set with all counters 0.
    pub(crate) fn alloc_q_counter(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        self.take_q_counter(call)?;
        self.hca.clear_q_counters(alloc_q_counter_out::COUNTER_SET_ID.get(call.output) as u8);
        Ok(())
    }

    pub(crate) fn query_q_counter(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        use query_q_counter_out::*;
        let set = query_q_counter_in::COUNTER_SET_ID.get32(call.input);
        if query_q_counter_in::OTHER_VPORT.is_set(call.input)
            || query_q_counter_in::AGGREGATE.is_set(call.input)
        {
            return Err(Refusal::param("there is one port, and no sum over several"));
        }
        if !self.simple.has_q_counter(set) {
            return Err(Refusal::resource("no such set of counters"));
        }
        let counts = *self.hca.q_counters(set as u8);
        for (field, count) in [
            (RX_WRITE_REQUESTS, counts.rx_write_requests),
            (RX_READ_REQUESTS, counts.rx_read_requests),
            (RX_ATOMIC_REQUESTS, counts.rx_atomic_requests),
            (OUT_OF_BUFFER, counts.out_of_buffer),
            (OUT_OF_SEQUENCE, counts.out_of_sequence),
            (DUPLICATE_REQUEST, counts.duplicate_request),
            (RNR_NAK_RETRY_ERR, counts.rnr_nak_retry_err),
            (PACKET_SEQ_ERR, counts.packet_seq_err),
            (IMPLIED_NAK_SEQ_ERR, counts.implied_nak_seq_err),
            (LOCAL_ACK_TIMEOUT_ERR, counts.local_ack_timeout_err),
            (REQ_RNR_RETRIES_EXCEEDED, counts.req_rnr_retries_exceeded),
            (RESP_LOCAL_LENGTH_ERROR, counts.resp_local_length_error),
            (RESP_CQE_ERROR, counts.resp_cqe_error),
            (REQ_CQE_ERROR, counts.req_cqe_error),
            (REQ_REMOTE_INVALID_REQUEST, counts.req_remote_invalid_request),
            (REQ_REMOTE_ACCESS_ERRORS, counts.req_remote_access_errors),
            (RESP_REMOTE_ACCESS_ERRORS, counts.resp_remote_access_errors),
            (REQ_TRANSPORT_RETRIES_EXCEEDED, counts.req_transport_retries_exceeded),
            (RESP_CQE_FLUSH_ERROR, counts.resp_cqe_flush_error),
            (REQ_CQE_FLUSH_ERROR, counts.req_cqe_flush_error),
        ] {
            // The fields have 32 bits, which wrap.
            field.set(call.output, count);
        }
        if query_q_counter_in::CLEAR.is_set(call.input) {
            self.hca.clear_q_counters(set as u8);
        }
        Ok(())
    }

    pub(crate) fn query_vport_counter(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        use query_vport_counter_out::*;
        let counts = *self.hca.port_counters();
        for (block, Traffic { packets, octets }) in [
            (RECEIVED_IB_UNICAST, counts.rx_unicast),
            (TRANSMITTED_IB_UNICAST, counts.tx_unicast),
            (RECEIVED_IB_MULTICAST, counts.rx_multicast),
            (TRANSMITTED_IB_MULTICAST, counts.tx_multicast),
        ] {
            let out = block.of_mut(call.output);
            traffic_counter::PACKETS.set(out, packets);
            traffic_counter::OCTETS.set(out, octets);
        }
        Ok(())
    }

    /// Register PPCNT. All groups are 0: this link has no symbol errors, never goes down, and
    /// discards no packet.
    pub(crate) fn port_counters(written: &[u8], read: &mut [u8]) {
        for field in [ppcnt_reg::SWID, ppcnt_reg::LOCAL_PORT, ppcnt_reg::PNAT, ppcnt_reg::GRP] {
            field.set(read, field.get(written));
        }
    }
}

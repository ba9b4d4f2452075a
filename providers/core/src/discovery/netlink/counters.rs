//! Counters: `RDMA_NLDEV_CMD_STAT_GET` (kernel `nldev.c`, `stat_get_doit_default_counter`,
//! `fill_res_counter_entry`).

use uverbs_kernel_abi::netlink::{
    RDMA_NLDEV_ATTR_PORT_INDEX, RDMA_NLDEV_ATTR_RES_LQPN, RDMA_NLDEV_ATTR_RES_PID,
    RDMA_NLDEV_ATTR_RES_QP, RDMA_NLDEV_ATTR_RES_QP_ENTRY, RDMA_NLDEV_ATTR_STAT_COUNTER,
    RDMA_NLDEV_ATTR_STAT_COUNTER_ENTRY, RDMA_NLDEV_ATTR_STAT_COUNTER_ID,
    RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY, RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_NAME,
    RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_VALUE, RDMA_NLDEV_ATTR_STAT_HWCOUNTERS,
    RDMA_NLDEV_ATTR_STAT_RES, RDMA_NLDEV_CMD_STAT_GET,
};

use super::{Errno, Kernel, NLM_F_DUMP, Queries, Session, entries, number, short, string};
use crate::report::counters::{Counter, CounterSet};

impl Queries {
    /// The driver's counters of a port.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the driver has none (`stat_get_doit_default_counter`).
    pub(in crate::discovery) fn port_counters(
        &mut self,
        index: u32,
        port: u32,
    ) -> Result<Vec<Counter>, crate::Errno> {
        port_counters(&mut self.0, index, port).map_err(crate::Errno::of_nix)
    }

    /// Counters that are bound to queue pairs.
    pub(in crate::discovery) fn qp_counters(
        &mut self,
        index: u32,
    ) -> Result<Vec<Counter>, crate::Errno> {
        qp_counters(&mut self.0, index).map_err(crate::Errno::of_nix)
    }
}

fn port_counters(
    session: &mut Session<impl Kernel>,
    index: u32,
    port: u32,
) -> Result<Vec<Counter>, Errno> {
    let mut found = Vec::new();
    let of_port = [(RDMA_NLDEV_ATTR_PORT_INDEX, port)];
    session.ask_device(RDMA_NLDEV_CMD_STAT_GET, 0, index, &of_port, |body| {
        found.extend(values(body, &CounterSet::Hardware(port))?);
        Ok(())
    })?;
    Ok(found)
}

pub(super) fn qp_counters(
    session: &mut Session<impl Kernel>,
    index: u32,
) -> Result<Vec<Counter>, Errno> {
    let mut found = Vec::new();
    let of_qps = [(RDMA_NLDEV_ATTR_STAT_RES, RDMA_NLDEV_ATTR_RES_QP.into())];
    session.ask_device(RDMA_NLDEV_CMD_STAT_GET, NLM_F_DUMP, index, &of_qps, |body| {
        let (table, entry) = (RDMA_NLDEV_ATTR_STAT_COUNTER, RDMA_NLDEV_ATTR_STAT_COUNTER_ENTRY);
        for entry in entries(body, table, entry)? {
            let qps = entries(entry, RDMA_NLDEV_ATTR_RES_QP, RDMA_NLDEV_ATTR_RES_QP_ENTRY)?;
            let set = CounterSet::QueuePairs {
                port: short(entry, RDMA_NLDEV_ATTR_PORT_INDEX).unwrap_or(0),
                id: short(entry, RDMA_NLDEV_ATTR_STAT_COUNTER_ID).unwrap_or(0),
                pid: short(entry, RDMA_NLDEV_ATTR_RES_PID),
                qpns: qps.iter().filter_map(|qp| short(qp, RDMA_NLDEV_ATTR_RES_LQPN)).collect(),
            };
            found.extend(values(entry, &set)?);
        }
        Ok(())
    })?;
    Ok(found)
}

/// Names and values in a message or an entry.
fn values(body: &[u8], set: &CounterSet) -> Result<Vec<Counter>, Errno> {
    let (table, entry) = (RDMA_NLDEV_ATTR_STAT_HWCOUNTERS, RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY);
    let of_entry = |entry: &[u8]| {
        let name = string(entry, RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_NAME)?;
        let value = number(entry, RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_VALUE)?;
        Some(Counter::new(set.clone(), name, value))
    };
    entries(body, table, entry)?.into_iter().map(|e| of_entry(e).ok_or(Errno::EBADMSG)).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::fuzz::{Script, attr};
    use super::*;

    fn hw(all: &[(&str, u64)]) -> Vec<u8> {
        let one = |(name, value): &(&str, u64)| {
            let name = [name.as_bytes(), b"\0"].concat();
            let entry = [
                attr(RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_NAME, &name),
                attr(RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_VALUE, &value.to_ne_bytes()),
            ];
            // Nested attributes have a flag in their type.
            attr(RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY | 0x8000, &entry.concat())
        };
        let table: Vec<u8> = all.iter().flat_map(one).collect();
        attr(RDMA_NLDEV_ATTR_STAT_HWCOUNTERS | 0x8000, &table)
    }

    #[test]
    fn counters_of_a_port_are_read() {
        let body = hw(&[("sent_pkts", 7), ("rcvd_pkts", u64::MAX)]);
        let mut session = Session::new(Script::new(vec![body]));
        let found = port_counters(&mut session, 0, 1).unwrap();
        let set = CounterSet::Hardware(1);
        let expected = [("sent_pkts", 7), ("rcvd_pkts", u64::MAX)];
        assert_eq!(found, expected.map(|(name, value)| Counter::new(set.clone(), name, value)));
    }

    #[test]
    fn counters_of_queue_pairs_name_them() {
        let qp = |qpn: u32| {
            let lqpn = attr(RDMA_NLDEV_ATTR_RES_LQPN, &qpn.to_ne_bytes());
            attr(RDMA_NLDEV_ATTR_RES_QP_ENTRY | 0x8000, &lqpn)
        };
        let entry = [
            attr(RDMA_NLDEV_ATTR_PORT_INDEX, &1u32.to_ne_bytes()),
            attr(RDMA_NLDEV_ATTR_STAT_COUNTER_ID, &4u32.to_ne_bytes()),
            attr(RDMA_NLDEV_ATTR_RES_PID, &99u32.to_ne_bytes()),
            attr(RDMA_NLDEV_ATTR_RES_QP | 0x8000, &[qp(17), qp(18)].concat()),
            hw(&[("out_of_buffer", 5)]),
        ];
        let entry = attr(RDMA_NLDEV_ATTR_STAT_COUNTER_ENTRY | 0x8000, &entry.concat());
        let body = attr(RDMA_NLDEV_ATTR_STAT_COUNTER | 0x8000, &entry);
        let mut session = Session::new(Script::new(vec![body]));
        let found = qp_counters(&mut session, 0).unwrap();
        let set = CounterSet::QueuePairs { port: 1, id: 4, pid: Some(99), qpns: vec![17, 18] };
        assert_eq!(found, [Counter::new(set, "out_of_buffer", 5)]);
    }

    proptest! {
        #[test]
        fn a_cut_answer_is_an_error_and_never_half_a_table(cut in 1usize..80) {
            let body = hw(&[("sent_pkts", 7), ("rcvd_pkts", 8)]);
            let part = body[..body.len().saturating_sub(cut)].to_vec();
            let empty = part.is_empty();
            let mut session = Session::new(Script::new(vec![part]));
            let found = port_counters(&mut session, 0, 1);
            let expected = if empty { Ok(Vec::new()) } else { Err(Errno::EBADMSG) };
            prop_assert_eq!(found, expected);
        }
    }
}

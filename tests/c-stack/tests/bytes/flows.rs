//! Flow rules and their counters, in the order of `c/bytes.c`.

use std::net::{Ipv4Addr, Ipv6Addr};

use uverbs::flow::{
    EthMatch, Flow, FlowCounters, FlowRule, Ipv4Match, Ipv6Match, MacAddr, Masked, PortMatch,
};
use uverbs::{Context, Mlx5, QueuePair};

use crate::transports::Spoken;

/// Rules and counters of a queue pair.
pub(crate) struct Flows {
    flows: Vec<Flow>,
    counters: FlowCounters,
}

/// Rules: a field of every layer; fields of other layers; rules that need no field.
fn rules() -> [FlowRule; 5] {
    let eth = EthMatch {
        dst: Some(MacAddr([2, 0, 0, 0, 0, 2]).into()),
        src: Some(Masked {
            value: MacAddr([2, 0x55, 0, 0, 0, 0]),
            mask: MacAddr([0xff, 0xff, 0, 0, 0, 0]),
        }),
        ether_type: Some(0x0800.into()),
        vlan_tag: Some(Masked { value: 0x0123, mask: 0x0fff }),
    };
    let ipv4 = Ipv4Match {
        src: Some(Masked {
            value: Ipv4Addr::new(10, 1, 0, 0),
            mask: Ipv4Addr::new(255, 255, 0, 0),
        }),
        dst: Some(Ipv4Addr::new(10, 1, 2, 3).into()),
        protocol: Some(17.into()),
        tos: Some(Masked { value: 0x48, mask: 0xfc }),
    };
    let udp =
        PortMatch { dst: Some(4791.into()), src: Some(Masked { value: 0xc000, mask: 0xf000 }) };
    let ipv6 = Ipv6Match {
        src: Some(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1).into()),
        dst: Some(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2).into()),
        flow_label: Some(Masked { value: 0x12345, mask: 0xfffff }),
        next_header: Some(6.into()),
        traffic_class: Some(Masked { value: 0x60, mask: 0xf0 }),
    };
    let station = |last| MacAddr([2, 0, 0, 0, 1, last]);
    let to = |last| EthMatch { dst: Some(station(last).into()), ..Default::default() };
    [
        FlowRule::new().eth(eth).ipv4(ipv4).udp(udp).priority(3).tag(0x12_3456),
        FlowRule::new().ipv6(ipv6).tcp(PortMatch { dst: Some(80.into()), src: None }),
        FlowRule::new().eth(to(1)).priority(15).dropped(),
        FlowRule::new().eth(to(2)).and_go_on(),
        FlowRule::rest(),
    ]
}

impl Flows {
    /// Creates the rules. The second and the fourth count, with the same counters.
    pub(crate) fn new<T: Spoken>(
        context: &Context<Mlx5>,
        qp: &mut QueuePair<Mlx5, T>,
        phase: &impl Fn(&str),
    ) -> Self {
        phase("create_counters");
        let counters = context.flow_counters().unwrap();
        phase("create_flow");
        let each = rules().into_iter().enumerate();
        let flows = each
            .map(|(number, rule)| T::steer(qp, &rule, (number % 2 == 1).then_some(&counters)))
            .collect();
        phase("read_counters");
        let count = counters.read().unwrap();
        assert_eq!((count.packets, count.bytes), (0, 0));
        Self { flows, counters }
    }

    pub(crate) fn end(self, phase: &impl Fn(&str)) {
        phase("destroy_flow");
        for flow in self.flows {
            flow.destroy().unwrap();
        }
        phase("destroy_counters");
        drop(self.counters);
    }
}

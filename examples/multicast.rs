//! The multicast example of the RDMA-aware programming guide: one datagram to a group comes to all
//! its members.
//!
//! `cargo run --example multicast`

mod common;

use std::net::Ipv4Addr;
use std::time::Duration;

use common::{Outcome, PATIENCE, Table, shown};
use uverbs::multicast::MulticastGroup;
use uverbs::{Any, CompletionQueue, Context, Destination, GRH_LEN, LinkLayer, Local};
use uverbs::{ProtectionDomain, QueuePair, Ud};

/// A node of the network, which sends and receives datagrams.
struct Node {
    qp: QueuePair<Any, Ud>,
    cq: CompletionQueue,
    pd: ProtectionDomain,
}

impl Node {
    fn new(context: &Context) -> Outcome<Self> {
        let (pd, cq) = (context.alloc_pd()?, context.create_cq(256)?);
        let mut qp = context.queue_pair(&pd, &cq).ud().build()?;
        qp.bring_up(&Local::default())?;
        Ok(Self { qp, cq, pd })
    }

    /// A receive, with room for the header that precedes every datagram.
    fn expect(&mut self) -> Outcome {
        let frame = self.pd.slab(GRH_LEN + 64, 1)?.take().ok_or("no free frame")?;
        Ok(self.qp.post_recv(0, frame)?)
    }

    fn send(&mut self, text: &str, to: &Destination) -> Outcome {
        self.qp.send_queue().post_send_inline_to(1, text.as_bytes(), to)?;
        Ok(self.cq.wait(PATIENCE)?.result.map(drop)?)
    }

    /// Returns the message that has arrived, and posts a new receive.
    fn heard(&mut self) -> Outcome<String> {
        let Ok(done) = self.cq.wait(Duration::from_millis(100)) else { return Ok("-".to_owned()) };
        done.result?;
        self.expect()?;
        let frame = done.frame.ok_or("a receive gives its frame back")?;
        Ok(shown(&frame[GRH_LEN..]))
    }
}

fn main() -> Outcome {
    let context = uverbs::device_or_softhca()?.open()?;
    let infiniband = context.query_port(1)?.link_layer == LinkLayer::InfiniBand;
    // On InfiniBand a subnet manager would give the group its LID.
    let group = match infiniband {
        true => MulticastGroup { gid: "ff12::1:1".parse()?, lid: 0xc001 },
        false => MulticastGroup::ipv4(Ipv4Addr::new(239, 1, 2, 3)),
    };
    let mut nodes = (0..4).map(|_| Node::new(&context)).collect::<Outcome<Vec<_>>>()?;
    nodes.iter_mut().try_for_each(Node::expect)?;
    let qkey = Local::default().qkey;
    let to = nodes[0].qp.multicast_destination(&group, qkey)?;
    let wrong = nodes[0].qp.multicast_destination(&group, qkey ^ 1)?;

    let mut table = Table::new("members | sent by node 0 | node 0 | node 1 | node 2 | node 3");
    let mut members = Vec::new();
    for (change, text, to) in [
        ("nobody", "first", &to),
        ("1", "second", &to),
        ("1 and 2", "third", &to),
        ("1 and 2", "wrong Q_Key", &wrong),
        ("2", "fourth", &to),
    ] {
        // The members that this row has more, or fewer.
        match text {
            "second" => members.push(nodes[1].qp.attach(&group)?),
            "third" => members.push(nodes[2].qp.attach(&group)?),
            "fourth" => members.remove(0).detach().map_err(|refused| refused.error)?,
            _ => {}
        }
        nodes[0].send(text, to)?;
        let mut row = vec![change.to_owned(), text.to_owned()];
        for node in &mut nodes {
            row.push(node.heard()?);
        }
        table.line(row);
    }
    table.print();
    Ok(())
}

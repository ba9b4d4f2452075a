//! A custom provider: ConnectX's, whose send queues count the work requests that they post and
//! ring.
//!
//! `cargo run --example toy_provider`

#[path = "../common/mod.rs"]
mod common;
mod context;
mod provider;
mod send_queue;

use common::{Outcome, PATIENCE, Table};
use provider::Counting;
use uverbs::Local;

fn main() -> Outcome {
    // A software HCA speaks ConnectX's interface, whichever device the machine has.
    let context = uverbs::device("softhca0")?.open_as::<Counting>()?;
    let pd = context.alloc_pd()?;
    let mut cq = context.create_cq(256)?;
    let mut client = context.queue_pair(&pd, &cq).build()?;
    let mut server = context.queue_pair(&pd, &cq).build()?;
    let client_at = client.prepare(&Local::default())?;
    let server_at = server.prepare(&Local::default())?;
    server.connect(&client_at)?;
    client.connect(&server_at)?;
    let slab = pd.slab(64, 8)?;

    let mut table = Table::new("batch | work requests | doorbells");
    for (name, count, ring) in [("rung", 3, true), ("dropped", 2, false), ("empty", 0, true)] {
        for id in 0..if ring { count } else { 0 } {
            server.post_recv(id, slab.take().ok_or("no free frame")?)?;
        }
        let mut batch = client.batch();
        for id in 0..count {
            batch.send(id, slab.take().ok_or("no free frame")?)?;
        }
        if ring {
            batch.ring();
            for _ in 0..2 * count {
                cq.wait(PATIENCE)?.result?;
            }
        }
        let queue = client.send_queue().provider();
        table.row(&[&name, &queue.posted, &queue.rung]);
    }
    table.print();
    Ok(())
}

//! Many send to one: a server whose four clients share its receives, beside one with separate
//! receives for each client. A busy client uses the receives that quiet ones leave.
//!
//! `cargo run --example many_to_one`

mod common;

use common::{End, Outcome, PATIENCE, Table, connect, ending, open_to_all, shown};
use uverbs::event::AsyncElement;
use uverbs::{CompletionQueue, Context, QueuePair, SharedReceiveQueue};

const CLIENTS: usize = 4;
/// Receives of each client, or four times as many of all.
const EACH: u32 = 2;
/// Number of messages that each client sends, one client after the other.
const MESSAGES: [usize; CLIENTS] = [5, 1, 1, 1];
/// The server wants to know when fewer receives are left.
const LIMIT: u32 = 4;

/// A server's objects.
struct Server {
    cq: CompletionQueue,
    qps: Vec<QueuePair>,
    srq: Option<SharedReceiveQueue>,
}

/// A server and its clients.
fn set_up(context: &Context, shares: bool) -> Outcome<(Server, Vec<End>)> {
    let (pd, cq) = (context.alloc_pd()?, context.create_cq(256)?);
    let all = EACH * CLIENTS as u32;
    let slab = pd.slab(64, all as usize)?;
    let mut srq = match shares {
        true => Some(context.shared_receive_queue(&pd).max_wr(all).build()?),
        false => None,
    };
    let (mut qps, mut clients) = (Vec::new(), Vec::new());
    for _ in 0..CLIENTS {
        let builder = context.queue_pair(&pd, &cq).max_send_wr(1);
        let mut qp = match &srq {
            Some(srq) => builder.max_recv_wr(0).shared_receives(srq).build()?,
            None => builder.max_recv_wr(EACH).build()?,
        };
        let mut client = End::new(context)?;
        connect(&mut client.qp, &mut qp, &open_to_all())?;
        for (id, frame) in (0..EACH).map_while(|id| Some((u64::from(id), slab.take()?))) {
            match &mut srq {
                Some(srq) => srq.post(id, frame)?,
                None => qp.post_recv(id, frame)?,
            }
        }
        qps.push(qp);
        clients.push(client);
    }
    if let Some(srq) = &mut srq {
        srq.set_limit(LIMIT)?;
    }
    Ok((Server { cq, qps, srq }, clients))
}

fn main() -> Outcome {
    let context = uverbs::device_or_softhca()?.open()?;
    let mut table = Table::new("receives | client 0 | 1 | 2 | 3 | how client 0's last SEND ended");
    let mut order = Table::new("message | from | bytes");
    for (name, shares) in [("2 of each client", false), ("8 of all", true)] {
        let (mut server, mut clients) = set_up(&context, shares)?;
        let mut last = Vec::new();
        for (number, client) in clients.iter_mut().enumerate() {
            for message in 0..MESSAGES[number] {
                let text = format!("message {message} of client {number}");
                // A connection that failed sends no more.
                if client.qp.post_send_inline(0, text.as_bytes()).is_err() {
                    break;
                }
                let done = client.done()?;
                last.truncate(number);
                last.push(ending(&done));
                if done.result.is_err() {
                    break;
                }
            }
        }
        // One completion queue for all: each completion names the queue pair that it came by.
        let (mut arrived, mut count) = ([0; CLIENTS], 0);
        server.cq.poll_with(64, |mut done| {
            let from = server.qps.iter().position(|qp| qp.qpn() == done.qpn());
            let frame = done.take_frame().filter(|_| done.result().is_ok());
            if let (Some(from), Some(frame)) = (from, frame) {
                arrived[from] += 1;
                count += 1;
                if shares {
                    let text = shown(&frame);
                    order.row(&[&count, &format!("client {from}"), &text]);
                }
            }
        });
        let [a, b, c, d] = arrived;
        table.row(&[&name, &a, &b, &c, &d, &last.first().map_or("-", String::as_str)]);
        // Behind the fifth message fewer than four receives were left.
        if let Some(srq) = &server.srq {
            let event = context.async_events().next_within(PATIENCE)?;
            let ours = event.element == AsyncElement::Srq(srq.event_id());
            order.row(&[
                &"event",
                &if ours { "the queue" } else { "?" },
                &format!("{:?}", event.kind),
            ]);
        }
    }
    table.print();
    order.print();
    Ok(())
}

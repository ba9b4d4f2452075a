//! SEND, WRITE, WRITE with immediate data, READ and atomics compared: sides that take part,
//! completions, and the place of the bytes.
//!
//! `cargo run --example operations`

mod common;

use std::time::Duration;

use common::{Outcome, Table, connected, ending, open_to_all, shown};
use uverbs::{Frame, PostError, QueuePair, Remote};

/// Contents of the client's frame, the server's receive and the server's memory beforehand.
const BEFORE: [&[u8; 8]; 3] = [b"client's", b"receive.", b"server's"];

/// Posts an operation: with the client's frame, at a place in the server's memory.
type Post = fn(&mut QueuePair, Frame, Remote) -> Result<(), PostError>;

/// Each operation, with the later contents of frame, receive and memory. An atomic works on a
/// number, whose lowest byte is the first one on this machine.
const OPERATIONS: [(&str, Post, [&[u8]; 3]); 7] = [
    ("SEND", |qp, frame, _| Ok(qp.post_send(1, frame)?), [b"client's", b"client's", b"server's"]),
    (
        "SEND with immediate",
        |qp, frame, _| Ok(qp.post_send_imm(1, frame, 7)?),
        [b"client's", b"client's", b"server's"],
    ),
    (
        "WRITE",
        |qp, frame, to| Ok(qp.post_write(1, frame, to)?),
        [b"client's", b"receive.", b"client's"],
    ),
    (
        "WRITE with immediate",
        |qp, frame, to| Ok(qp.post_write_imm(1, frame, to, 7)?),
        [b"client's", b"", b"client's"],
    ),
    (
        "READ",
        |qp, frame, from| Ok(qp.post_read(1, frame, from)?),
        [b"server's", b"receive.", b"server's"],
    ),
    (
        "fetch and add 1",
        |qp, frame, at| Ok(qp.post_fetch_add(1, frame, at, 1)?),
        [b"server's", b"receive.", b"terver's"],
    ),
    (
        "compare and swap",
        |qp, frame, at| {
            Ok(qp.post_compare_swap(1, frame, at, word(b"server's"), word(b"swapped!"))?)
        },
        [b"server's", b"receive.", b"swapped!"],
    ),
];

const fn word(bytes: &[u8; 8]) -> u64 {
    u64::from_ne_bytes(*bytes)
}

fn main() -> Outcome {
    let context = uverbs::device_or_softhca()?.open()?;
    let mut told = Table::new("operation | client is told | server is told | immediate | receive");
    let mut held =
        Table::new("after the operation | client's frame | server's receive | server's memory");
    let [frame, receive, memory] = BEFORE.map(|bytes| text(bytes));
    held.row(&[&"(before)", &frame, &receive, &memory]);
    for (name, post, after) in OPERATIONS {
        let [mut client, mut server] = connected(&context, &open_to_all())?;
        // The server offers both: a receive, and memory that the client may do everything with.
        server.qp.post_recv(2, server.frame(BEFORE[1])?)?;
        let memory = server.pd.expose(8, open_to_all().access)?;
        memory.store(0, word(BEFORE[2]))?;
        let frame = client.frame(BEFORE[0])?;
        post(&mut client.qp, frame, memory.remote(0))?;

        let done = client.done()?;
        let frame = done.frame.as_ref().ok_or("each gives its frame back")?.to_vec();
        // The server's completion comes before the client's.
        let seen = server.cq.wait(Duration::from_millis(50)).ok();
        let says = seen.as_ref().map_or("nothing".to_owned(), ending);
        let immediate = seen.as_ref().and_then(|seen| seen.immediate);
        let immediate = immediate.map_or("-".to_owned(), |value| value.to_string());
        // A receive that is still posted comes back by a reset.
        let left = server.qp.reset(&mut [&mut server.cq])?.pop();
        let state = if left.is_some() { "still posted" } else { "used up" };
        told.row(&[&name, &ending(&done), &says, &immediate, &state]);

        let left = left.map(|(_, frame)| frame).or(seen.and_then(|seen| seen.frame));
        let receive = left.ok_or("the receive is somewhere")?.to_vec();
        let held_now = [frame, receive, memory.load(0)?.to_ne_bytes().to_vec()];
        assert_eq!(held_now, after.map(|bytes| bytes.to_vec()), "{name}");
        let [frame, receive, memory] = held_now.map(|bytes| text(&bytes));
        held.row(&[&name, &frame, &receive, &memory]);
    }
    told.print();
    held.print();
    Ok(())
}

fn text(bytes: &[u8]) -> String {
    if bytes.is_empty() { "(empty)".to_owned() } else { shown(bytes) }
}

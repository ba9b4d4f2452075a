//! A queue pair's states: attributes that each step sets, possible steps, posts in each state, and
//! the effect of a wrong attribute.
//!
//! `cargo run --example states`

mod common;

use std::collections::BTreeMap;
use std::time::Duration;

use common::{End, Outcome, Table, ending, open_to_all, path_to_itself};
use uverbs::attr::{InitAttr, QpAttr};
use uverbs::attr::{RtrAttr, RtsAttr};
use uverbs::{AckTimeout, Context, Endpoint, Local, Mtu, QpState};
use uverbs::{QpState::*, RnrTimer};

const STATES: [QpState; 5] = [Reset, Init, ReadyToReceive, ReadyToSend, Error];

fn main() -> Outcome {
    let context = uverbs::device_or_softhca()?.open()?;

    // Attributes that differ in the device's answer to a query after each step.
    let mut table = Table::new("step to | sets");
    let mut end = End::new(&context)?;
    for state in &STATES[1..] {
        let before = end.qp.query()?;
        bring(&context, &mut end, *state)?;
        table.row(&[state, &changed(&before, &end.qp.query()?)]);
    }
    table.print();

    let mut table = Table::new(
        "in | to RESET | to INIT | to RTR | to RTS | to ERR | post_recv | post_send | completed",
    );
    for (number, state) in STATES.iter().enumerate() {
        let brought = || -> Outcome<End> {
            let mut end = End::new(&context)?;
            STATES[1..=number].iter().try_for_each(|state| bring(&context, &mut end, *state))?;
            Ok(end)
        };
        let mut row = vec![state.to_string()];
        for to in STATES {
            row.push(match bring(&context, &mut brought()?, to) {
                Ok(()) => "yes".to_owned(),
                Err(uverbs::Error::State { .. }) => "no".to_owned(),
                Err(error) => format!("{:?}", error.to_errno()),
            });
        }
        let mut end = brought()?;
        let frame = end.frame(&[0; 8])?;
        let posts = [end.qp.post_recv(1, frame).is_ok(), end.qp.post_send_inline(2, b"me").is_ok()];
        row.extend(posts.map(|posted| if posted { "posted" } else { "refused" }.to_owned()));
        let mut done = BTreeMap::<String, u32>::new();
        while let Ok(completion) = end.cq.wait(Duration::from_millis(100)) {
            *done.entry(ending(&completion)).or_default() += 1;
        }
        let done = done.iter().map(|(what, count)| format!("{count} {what}"));
        row.push(done.collect::<Vec<_>>().join(", "));
        table.line(row);
    }
    table.print();

    let local = Local { psn: Some(100), ..open_to_all() };
    let mut table = Table::new("a SEND when | ends with");
    for (when, posted, tamper) in [
        ("all is right", true, (|_, _| ()) as fn(&mut Endpoint, &mut Endpoint)),
        ("the client names another queue pair", true, |_, server| server.qpn += 1000),
        ("the server expects an earlier first PSN", true, |client, _| client.psn -= 1),
        ("the server has posted no receive", false, |_, _| ()),
    ] {
        let (mut client, mut server) = (End::new(&context)?, End::new(&context)?);
        let (mut client_at, mut server_at) =
            (client.qp.prepare(&local)?, server.qp.prepare(&local)?);
        tamper(&mut client_at, &mut server_at);
        server.qp.connect(&client_at)?;
        client.qp.connect(&server_at)?;
        if posted {
            server.qp.post_recv(1, server.frame(&[0; 8])?)?;
        }
        client.qp.post_send_inline(2, b"hello")?;
        table.row(&[&when, &ending(&client.done()?)]);
    }
    table.print();
    Ok(())
}

/// One step of a queue pair that is its own peer.
fn bring(context: &Context, end: &mut End, to: QpState) -> uverbs::Result<()> {
    let (psn, dest_qpn) = (0x777, end.qp.qpn());
    match to {
        Reset => end.qp.reset(&mut [&mut end.cq]).map(drop),
        Init => end.qp.init(&InitAttr { port: 1, pkey_index: 0, access: open_to_all().access }),
        ReadyToReceive => end.qp.ready_to_receive(&RtrAttr {
            dest_qpn,
            rq_psn: psn,
            path_mtu: Mtu::Mtu256,
            path: path_to_itself(context)?,
            max_dest_rd_atomic: 1,
            min_rnr_timer: RnrTimer::DEFAULT,
        }),
        ReadyToSend => end.qp.ready_to_send(&RtsAttr {
            sq_psn: psn,
            max_rd_atomic: 1,
            timeout: AckTimeout::DEFAULT,
            retry_count: 7,
            rnr_retry: 6,
        }),
        _ => end.qp.fail(),
    }
}

/// The names of the attributes that differ.
fn changed(before: &QpAttr, after: &QpAttr) -> String {
    // A field to a line.
    let fields = |attr: &QpAttr| format!("{attr:#?}").replace("\n        ", " ");
    let (before, after) = (fields(before), fields(after));
    let differ = before.lines().zip(after.lines()).filter(|(one, other)| one != other);
    let names = differ.filter_map(|(_, field)| Some(field.trim().split_once(':')?.0));
    names.collect::<Vec<_>>().join(", ")
}

//! Arbitrary bytes from a peer in place of its test, its address and its result.

use std::sync::atomic::AtomicBool;

use uverbs::any_transport::{AnyEndpoint, TransportName};
use uverbs::attr::Ece;
use uverbs::{Endpoint, Gid, Mtu, Remote};

use super::message::{Done, Hello, LINE, Message, Qp};
use super::{Control, PROGRAM, VERSION, terms};
use crate::base::error::{Error, check_printable};
use crate::link::doorbell::Doorbell;
use crate::link::operation::Operation;
use crate::link::tcp::Stream;
use crate::link::verify::Who;
use crate::perf::shape::{Shape, Test};
use crate::perf::side::Hand;

const SIZE: u32 = 64;
/// Queue pairs per side.
const QPS: u32 = 3;

fn shape() -> Shape {
    Shape {
        op: Operation::Write,
        test: Test::Bw,
        iters: Some(1),
        duration_s: None,
        warmup: 0,
        inline: 0,
        qps: QPS,
        tx_depth: 1,
        rx_depth: None,
        cq_mod: 1,
        post_list: 1,
        outs: None,
        bidirectional: false,
        port: 1,
        gid_index: None,
        mtu: None,
        qp_timeout: None,
        sl: 0,
        traffic_class: 0,
        doorbell: Doorbell::Blueflame,
        connection: TransportName::Rc,
        use_srq: false,
        cpu: None,
        events: false,
        check: false,
        timeout_s: 1.0,
    }
}

fn hand(number: u32) -> Hand {
    let gid = Some(Gid([9; 16]));
    let (mtu, rd_atomic) = (Mtu::Mtu1024, 4);
    let endpoint =
        Endpoint { lid: 0, qpn: number, psn: 7, mtu, rd_atomic, gid, ece: Ece::default() };
    let memory = Remote { addr: 0xdead_beef_0000, rkey: number };
    Hand { endpoint: AnyEndpoint::Connected(endpoint), memory }
}

/// Bytes of the peer: valid lines in any order, changed lines, and arbitrary bytes.
fn words(data: &[u8]) -> Vec<u8> {
    let mut bytes = data.iter().copied();
    let mut said = Vec::new();
    let mut number = 0;
    while let Some(op) = bytes.next() {
        let mut next = || bytes.next().unwrap_or(0);
        let mut line = match op % 8 {
            0 => {
                let (program, version) = (PROGRAM.to_owned(), VERSION);
                Message::Hello(Hello { program, version, terms: terms(&shape(), SIZE) }).line()
            }
            1 => {
                number += 1;
                Message::Qp(Qp::new(number - 1, &hand(next().into()))).line()
            }
            2 => Message::Ready.line(),
            3 => Message::Alive.line(),
            4 => Message::Done(Done { messages: next().into(), ..Done::default() }).line(),
            5 => {
                let text = (0..next()).map(|_| char::from(next())).collect();
                Message::Failed(text).line()
            }
            6 => (0..usize::from(next()) * 16).map(|_| next()).collect(),
            _ => (0..next()).map(|_| next()).chain([b'\n']).collect(),
        };
        for _ in 0..op >> 6 {
            let at = usize::from(next()) % line.len().max(1);
            let value = next();
            if let Some(byte) = line.get_mut(at) {
                *byte = value;
            }
        }
        said.extend(line);
    }
    said
}

/// Runs the exchange with such a peer to its end.
fn meet(control: &mut Control) -> Result<(), Error> {
    let never = AtomicBool::new(false);
    let own: Vec<Hand> = (0..QPS).map(hand).collect();
    control.agree(&shape(), SIZE, &never)?;
    let theirs = control.swap(&own, &never)?;
    assert_eq!(theirs.len(), own.len());
    control.ready(QPS, &never)?;
    control.start();
    control.wait_done(&never)?;
    control.done(Done::default(), &never)
}

/// The exchange of either role succeeds or ends in a printable error. At most a line and the bytes
/// read with it are kept of the peer's bytes.
pub(crate) fn perf(data: &[u8]) {
    let Some((&first, rest)) = data.split_first() else { return };
    // A peer that sends all lines correctly reaches the end.
    let right = [0, 1, 0, 1, 0, 1, 0, 2];
    let start = if first & 2 != 0 { words(&right) } else { Vec::new() };
    let said = [start, words(rest)].concat();
    let (stream, _there) =
        Stream::that_said(&said, if first & 1 != 0 { Who::Server } else { Who::Client });
    let mut control = Control::new(stream);
    if let Err(error) = meet(&mut control) {
        check_printable(&error);
    }
    assert!(control.pending.len() <= 2 * LINE, "{} bytes are kept", control.pending.len());
}

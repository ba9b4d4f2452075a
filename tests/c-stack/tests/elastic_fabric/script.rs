//! Scripts for `c/efa.c`, and their cases.

use std::fmt;

/// Bit of an operation with immediate data.
pub(crate) const IMM: u32 = 16;
/// Operations by number (`enum efa_io_send_op_type`).
pub(crate) const SEND: u32 = 0;
pub(crate) const READ: u32 = 1;
pub(crate) const WRITE: u32 = 2;
/// Bytes of a GRH, in front of a datagram.
const GRH: u32 = 40;
/// Place of buffers in the memory.
const TO: u32 = 0x10000;
const REMOTE: u32 = 0x28000;

/// Sizes of a queue pair.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) is_srd: bool,
    pub(crate) sends: u32,
    pub(crate) recvs: u32,
    pub(crate) sges: u32,
    pub(crate) inline: u32,
}

/// SGEs by offset and length.
type List = Vec<(u32, u32)>;

/// Operation of a work request, whether its data is inline, and its data.
type Wanted = (u32, bool, List);

#[derive(Clone, Debug)]
pub(crate) struct Send {
    pub(crate) id: u64,
    pub(crate) op: u32,
    pub(crate) is_inline: bool,
    pub(crate) imm: u32,
    pub(crate) remote: u32,
    pub(crate) list: List,
}

/// A line of a script.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Queue(Shape),
    Recv(u64, List),
    Give,
    Send(Send),
    /// Posts what was added, by `post`, `wr` or `abort`.
    Post(&'static str),
    Dump(String),
    Settle,
    Poll,
    Arm,
    Event,
    Fail,
    Gone,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |f: &mut fmt::Formatter<'_>, list: &[(u32, u32)]| {
            write!(f, " {}", list.len())?;
            list.iter().try_for_each(|(offset, len)| write!(f, " {offset} {len}"))
        };
        match self {
            Self::Queue(shape) => {
                let Shape { is_srd, sends, recvs, sges, inline } = *shape;
                write!(f, "queue {} {sends} {recvs} {sges} {inline}", u8::from(is_srd))
            }
            Self::Recv(id, places) => {
                write!(f, "recv {id}")?;
                list(f, places)
            }
            Self::Give => f.write_str("give"),
            Self::Send(send) => {
                let Send { id, op, is_inline, imm, remote, list: places } = send;
                write!(f, "send {id} {op} {} {imm} {remote}", u8::from(*is_inline))?;
                list(f, places)
            }
            Self::Post(how) => f.write_str(how),
            Self::Dump(name) => write!(f, "dump {name}"),
            Self::Settle => f.write_str("settle"),
            Self::Poll => f.write_str("poll"),
            Self::Arm => f.write_str("arm"),
            Self::Event => f.write_str("event"),
            Self::Fail => f.write_str("fail"),
            Self::Gone => f.write_str("gone"),
        }
    }
}

/// Shapes of queue pairs: both transports, one and two SGEs, with and without inline data, rings
/// that turn soon and late, and sizes that are rounded up.
const SHAPES: [Shape; 7] = [
    Shape { is_srd: true, sends: 8, recvs: 8, sges: 2, inline: 32 },
    Shape { is_srd: true, sends: 1, recvs: 1, sges: 1, inline: 0 },
    Shape { is_srd: true, sends: 5, recvs: 3, sges: 2, inline: 7 },
    Shape { is_srd: true, sends: 64, recvs: 64, sges: 1, inline: 32 },
    Shape { is_srd: false, sends: 8, recvs: 8, sges: 2, inline: 32 },
    Shape { is_srd: false, sends: 3, recvs: 5, sges: 1, inline: 1 },
    Shape { is_srd: false, sends: 32, recvs: 16, sges: 2, inline: 0 },
];

/// Steps of a script that is being written.
struct Writer {
    steps: Vec<Step>,
    shape: Shape,
    id: u64,
}

impl Writer {
    fn next(&mut self) -> u64 {
        self.id += 1;
        self.id
    }

    fn is_received(op: u32) -> bool {
        op & !IMM == SEND || op & IMM != 0
    }

    /// One work request for each of `ops`, of data in `list`, with receives of `pieces` SGEs.
    fn chain(&mut self, name: &str, how: &'static str, sends: &[Wanted]) {
        let (mut receives, pieces) = (0, self.shape.sges);
        // SRD takes receives in another order than it sends.
        let bytes = sends.iter().filter(|(op, ..)| op & !IMM == SEND);
        let bytes = bytes.map(|(.., list)| list.iter().map(|(_, len)| len).sum::<u32>()).max();
        for (op, ..) in sends {
            if how == "abort" || !Self::is_received(*op) {
                continue;
            }
            let room = bytes.unwrap_or(0) + if self.shape.is_srd { 0 } else { GRH };
            let id = self.next();
            let first = room / 2;
            let list = match pieces {
                1 => vec![(TO, room)],
                _ => vec![(TO, first), (TO + 0x8000, room - first)],
            };
            self.steps.push(Step::Recv(id, list));
            receives += 1;
        }
        if receives != 0 {
            self.steps.push(Step::Give);
        }
        for (op, is_inline, list) in sends {
            let id = self.next();
            let imm = if op & IMM == 0 { 0 } else { 0x0102_0304 ^ id as u32 };
            let remote = if op & !IMM == SEND { 0 } else { REMOTE + id as u32 % 64 };
            let (op, is_inline, list) = (*op, *is_inline, list.clone());
            self.steps.push(Step::Send(Send { id, op, is_inline, imm, remote, list }));
        }
        let name = format!("{how}-{name}");
        self.steps.extend([Step::Post(how), Step::Dump(name.clone()), Step::Settle]);
        self.steps.extend([Step::Poll, Step::Dump(format!("{name}-done"))]);
    }

    /// Each operation at each size, by each way to post.
    fn sizes(&mut self, ops: &[u32]) {
        for op in ops {
            let is_send = op & !IMM == SEND;
            let sizes: &[u32] = match is_send {
                true => &[0, 1, 31, 32, 33, 64, 4096, 8888],
                false => &[0, 1, 31, 32, 33, 64, 4096, 65_535, 65_536, 80_000],
            };
            for (at, size) in sizes.iter().enumerate() {
                let offset = at as u32 * 3;
                let mut lists = vec![vec![(offset, *size)]];
                if is_send && self.shape.sges > 1 {
                    lists.push(vec![(offset, size / 3), (offset + 0x9000, size - size / 3)]);
                }
                if *size == 0 {
                    lists.push(Vec::new());
                }
                for list in lists {
                    let name = format!("op{op}-{size}-in-{}", list.len());
                    for how in if is_send { &["wr", "post"][..] } else { &["wr"] } {
                        self.chain(&name, how, &[(*op, false, list.clone())]);
                    }
                }
            }
        }
    }

    /// Inline data of every length, whole and in pieces.
    fn inlines(&mut self) {
        for op in [SEND, SEND | IMM] {
            for size in 0..=self.shape.inline {
                let whole = vec![(size, size)];
                let pieces = vec![(1, size / 3), (100, size - size / 3 * 2), (200, size / 3)];
                let two = vec![(1, size / 2), (300, size - size / 2)];
                self.chain(&format!("op{op}-inline-{size}"), "wr", &[(op, true, whole.clone())]);
                self.chain(&format!("op{op}-inline-{size}"), "post", &[(op, true, whole)]);
                self.chain(&format!("op{op}-pieces-{size}"), "wr", &[(op, true, pieces)]);
                if self.shape.sges > 1 {
                    self.chain(&format!("op{op}-pieces-{size}"), "post", &[(op, true, two)]);
                }
            }
        }
    }

    /// Lists of each length that the queue has room for, some of which are dropped.
    fn chains(&mut self, ops: &[u32]) {
        for count in 1..=self.shape.sends.min(self.shape.recvs) as usize {
            let of = |ops: &[u32]| -> Vec<_> {
                let ops = ops.iter().cycle().take(count).enumerate();
                ops.map(|(at, op)| (*op, false, vec![(at as u32 * 7, at as u32)])).collect()
            };
            self.chain(&format!("chain-{count}"), "abort", &of(ops));
            self.chain(&format!("chain-{count}"), "wr", &of(ops));
            self.chain(&format!("chain-{count}"), "post", &of(&[SEND, SEND | IMM]));
        }
    }
}

/// All cases, of a device with or without WRITEs.
pub(crate) fn steps(writes: bool) -> Vec<Step> {
    let mut writer = Writer { steps: Vec::new(), shape: SHAPES[0], id: 0 };
    for shape in SHAPES {
        writer.shape = shape;
        writer.steps.push(Step::Queue(shape));
        let ops = match (shape.is_srd, writes) {
            (true, true) => &[SEND, SEND | IMM, READ, WRITE, WRITE | IMM][..],
            (true, false) => &[SEND, SEND | IMM, READ],
            (false, _) => &[SEND, SEND | IMM],
        };
        writer.sizes(ops);
        writer.inlines();
        writer.chains(ops);
        writer.steps.extend([Step::Arm, Step::Dump("armed".to_owned())]);
        writer.chain("after-arming", "wr", &[(SEND, false, vec![(0, 16)])]);
        writer.steps.extend([Step::Event, Step::Arm, Step::Dump("armed-again".to_owned())]);
        let id = writer.next();
        writer.steps.extend([Step::Recv(id, vec![(0, 64)]), Step::Give, Step::Fail]);
        writer.steps.extend([Step::Settle, Step::Event, Step::Poll]);
        writer.steps.extend([Step::Dump("flushed".to_owned()), Step::Gone]);
    }
    writer.steps
}

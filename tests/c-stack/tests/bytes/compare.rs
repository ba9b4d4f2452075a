//! Compares the captures of both sides.

use std::fmt::{self, Write as _};
use std::ops::Range;

use uverbs_mlx5_prm::doorbell::MLX5_CQ_DOORBELL;
use uverbs_mlx5_prm::wqe::{RecvKind, RecvView, Service, WqeView};

use crate::record::{
    Case, Ring, chose_port, meaning, recv_meaning, shared_meaning, wqe_bytes, wqes,
};

/// One difference.
#[derive(Debug)]
pub(crate) struct Difference {
    /// Key in the table of differences.
    pub(crate) key: String,
    /// Text that explains the difference.
    pub(crate) detail: String,
}

/// Numbers of compared items. `bytes` counts rings, records, doorbell pages and commands.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) cases: usize,
    pub(crate) wqes: usize,
    pub(crate) doorbells: usize,
    pub(crate) completions: usize,
    pub(crate) bytes: usize,
    pub(crate) commands: usize,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cases, wqes, doorbells, completions, bytes, commands } = self;
        write!(
            f,
            "{cases} cases, {wqes} WQEs, {doorbells} doorbells, {completions} completions, {commands} commands, {bytes} bytes"
        )
    }
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.cases += other.cases;
        self.wqes += other.wqes;
        self.doorbells += other.doorbells;
        self.completions += other.completions;
        self.bytes += other.bytes;
        self.commands += other.commands;
    }
}

/// Compares all cases. `theirs` is libmlx5's side. `immediates`: also compares the immediate field
/// of operations that have none.
pub(crate) fn captures(
    theirs: &[Case],
    ours: &[Case],
    immediates: bool,
    service: Service,
) -> (Vec<Difference>, Counts) {
    let (case, differences, counts) = (String::new(), Vec::new(), Counts::default());
    let mut all = Comparison { case, immediates, service, differences, counts };
    if theirs.len() != ours.len() {
        all.differs("cases", || format!("{} / {} captures", theirs.len(), ours.len()));
    }
    for (theirs, ours) in theirs.iter().zip(ours) {
        all.case = ours.name.clone();
        all.counts.cases += 1;
        all.compare(theirs, ours);
    }
    (all.differences, all.counts)
}

struct Comparison {
    case: String,
    immediates: bool,
    service: Service,
    differences: Vec<Difference>,
    counts: Counts,
}

/// Format in which bytes are printed.
#[derive(Clone, Copy)]
enum Kind {
    Send,
    Recv,
    Bytes,
}

impl Comparison {
    fn differs(&mut self, key: &str, detail: impl FnOnce() -> String) {
        let detail = format!("case {:?}: {key}\n{}", self.case, detail());
        self.differences.push(Difference { key: key.to_owned(), detail });
    }

    fn compare(&mut self, theirs: &Case, ours: &Case) {
        if theirs.name != ours.name {
            self.differs("case name", || format!("{:?} / {:?}", theirs.name, ours.name));
        }
        if !theirs.records.keys().eq(ours.records.keys()) {
            self.differs("queues", || format!("{:?} / {:?}", theirs.records, ours.records));
        }
        for ((name, theirs), ours) in theirs.records.iter().zip(ours.records.values()) {
            let kind = name.split(' ').next().unwrap_or_default();
            let key = format!("record of a {kind}");
            self.bytes(&key, Kind::Bytes, theirs, ours, whole(&(0..theirs.len())));
        }
        for (name, theirs, ours) in [
            ("send queue", &theirs.sends, &ours.sends),
            ("receive queue", &theirs.recvs, &ours.recvs),
        ] {
            if !theirs.keys().eq(ours.keys()) {
                self.differs(name, || "other queue pairs have one".to_owned());
            }
            for (theirs, ours) in theirs.values().zip(ours.values()) {
                self.ring(name, theirs, ours);
            }
        }
        self.lists(theirs, ours);
        self.registers(theirs, ours);
        for (case, who) in [(theirs, "libmlx5's"), (ours, "our")] {
            self.doorbells(case, who);
        }
        if theirs.notes != ours.notes {
            self.differs("completions", || {
                format!("{}\n /\n{}", theirs.notes.join("\n"), ours.notes.join("\n"))
            });
        }
        self.counts.completions += theirs.notes.len();
    }

    /// Compares shared receive queues: posted slots, their order and contents.
    fn lists(&mut self, theirs: &Case, ours: &Case) {
        if !theirs.lists.keys().eq(ours.lists.keys()) {
            self.differs("shared queues", || "other numbers".to_owned());
        }
        for ((slot, theirs), (ours_slot, ours)) in theirs.lists.values().zip(ours.lists.values()) {
            // libmlx5 also formats slots for receives that wait for page faults.
            let shape =
                |slot: &u32, ring: &Ring| (ring.stride, ring.first, *slot, ring.bytes.len());
            if shape(slot, theirs) != shape(ours_slot, ours) {
                self.differs("shared queue: bytes of one, counter, slot, bytes pending", || {
                    format!("{:x?} / {:x?}", shape(slot, theirs), shape(ours_slot, ours))
                });
            }
            let pairs = theirs.bytes.chunks(theirs.stride).zip(ours.bytes.chunks(ours.stride));
            for (theirs, ours) in pairs {
                self.counts.wqes += 1;
                let ranges = [shared_meaning(theirs)];
                self.bytes("shared receive WQE", Kind::Bytes, theirs, ours, &ranges);
            }
        }
    }

    fn ring(&mut self, name: &str, theirs: &Ring, ours: &Ring) {
        let shape = |ring: &Ring| (ring.entries, ring.stride, ring.first, ring.bytes.len());
        if shape(theirs) != shape(ours) {
            self.differs(&format!("{name}: entries, bytes of one, counter, bytes pending"), || {
                format!("{:x?} / {:x?}", shape(theirs), shape(ours))
            });
        }
        if name == "receive queue" {
            for (theirs, ours) in
                theirs.bytes.chunks(theirs.stride).zip(ours.bytes.chunks(ours.stride))
            {
                self.counts.wqes += 1;
                self.bytes("receive WQE", Kind::Recv, theirs, ours, &[recv_meaning(theirs)]);
            }
            return;
        }
        let (theirs, ours) = (wqes(theirs), wqes(ours));
        if theirs.len() != ours.len() {
            self.differs("number of send WQEs", || format!("{} / {}", theirs.len(), ours.len()));
        }
        for (theirs, ours) in theirs.into_iter().zip(ours) {
            self.counts.wqes += 1;
            self.send("send WQE", theirs, ours);
        }
    }

    /// Compares a send WQE. UDP source ports may differ if both sides chose them.
    fn send(&mut self, key: &str, theirs: &[u8], ours: &[u8]) {
        if chose_port(theirs, self.service) != chose_port(ours, self.service) {
            self.differs("UDP source port", || dump(theirs, ours));
        }
        self.bytes(key, Kind::Send, theirs, ours, &meaning(theirs, self.immediates, self.service));
    }

    /// Compares the given ranges of the first side; different lengths are a difference.
    fn bytes(
        &mut self,
        key: &str,
        kind: Kind,
        theirs: &[u8],
        ours: &[u8],
        ranges: &[Range<usize>],
    ) {
        let same = |range: &Range<usize>| theirs.get(range.clone()) == ours.get(range.clone());
        self.counts.bytes += ranges.iter().map(ExactSizeIterator::len).sum::<usize>();
        if theirs.len() != ours.len() || !ranges.iter().all(same) {
            let service = self.service;
            self.differs(key, || {
                format!("{}\n{}", dump(theirs, ours), decoded(kind, service, theirs, ours))
            });
        }
    }

    /// Compares doorbell pages. The first eight bytes of a half are the doorbell; with more bytes
    /// it is a WQE.
    fn registers(&mut self, theirs: &Case, ours: &Case) {
        if !theirs.registers.keys().eq(ours.registers.keys()) {
            self.differs("doorbell's place", || {
                let places = |case: &Case| {
                    let keys = case.registers.keys();
                    keys.map(|(page, at)| format!("{page:#x}+{at:#x}")).collect::<Vec<_>>()
                };
                format!("{:?} / {:?}", places(theirs), places(ours))
            });
        }
        for (key, theirs) in &theirs.registers {
            let Some(ours) = ours.registers.get(key) else { continue };
            self.counts.doorbells += 1;
            if key.1 == 0 {
                // Doorbell of a completion queue.
                self.bytes("arm doorbell", Kind::Bytes, theirs, ours, whole(&(0..theirs.len())));
                continue;
            }
            let copy = |bytes: &[u8]| bytes[8..].iter().any(|byte| *byte != 0);
            if copy(theirs) != copy(ours) {
                self.differs("doorbell of eight bytes against BlueFlame", || dump(theirs, ours));
            } else if copy(theirs) {
                let len = wqe_bytes(theirs).min(theirs.len());
                let (theirs, ours) = (&theirs[..len], &ours[..len.min(ours.len())]);
                self.send("BlueFlame", theirs, ours);
            } else {
                self.bytes("doorbell", Kind::Bytes, &theirs[..8], &ours[..8], whole(&(0..8)));
            }
        }
    }

    /// Checks one side: the doorbell of a completion queue is its arm word and its number.
    fn arm(&mut self, case: &Case, register: &[u8], who: &str) {
        let bell = &register[MLX5_CQ_DOORBELL..][..8];
        let number = u32::from_be_bytes(bell[4..].try_into().unwrap());
        let record = case.records.get(&format!("cq {number:x}"));
        if record.is_none_or(|record| record[4..] != bell[..4]) {
            self.differs(&format!("{who} arm doorbell against {who} record"), || dump(bell, &[]));
        }
    }

    /// Checks one side: a doorbell is the head of a pending WQE; a BlueFlame write is its WQEBBs,
    /// and zeros after them.
    fn doorbells(&mut self, case: &Case, who: &str) {
        for ((_, offset), register) in &case.registers {
            if *offset == 0 {
                self.arm(case, register, who);
                continue;
            }
            let all = case.sends.values().flat_map(|ring| {
                wqes(ring).into_iter().map(move |wqe| {
                    let at = wqe.as_ptr().addr() - ring.bytes.as_ptr().addr();
                    let end = at + wqe.len().next_multiple_of(ring.stride);
                    &ring.bytes[at..end.min(ring.bytes.len())]
                })
            });
            let found = all.into_iter().any(|units| {
                let copied = units.len().min(register.len());
                let head = register[8..].iter().all(|byte| *byte == 0);
                register[..8] == units[..8]
                    && (head
                        || register[..copied] == units[..copied]
                            && register[copied..].iter().all(|byte| *byte == 0))
            });
            if !found {
                self.differs(&format!("{who} doorbell against {who} ring"), || dump(register, &[]));
            }
        }
    }
}

/// List with one range.
fn whole(range: &Range<usize>) -> &[Range<usize>] {
    std::slice::from_ref(range)
}

/// Formats both sides' bytes, sixteen a line, and marks differences.
pub(crate) fn dump(theirs: &[u8], ours: &[u8]) -> String {
    let mut text = String::new();
    let row = |bytes: &[u8], at: usize| -> String {
        let row = bytes.iter().skip(at).take(16).map(|byte| format!("{byte:02x}"));
        row.collect::<Vec<_>>().join(" ")
    };
    for at in (0..theirs.len().max(ours.len())).step_by(16) {
        let (left, right) = (row(theirs, at), row(ours, at));
        let mark = if left == right { ' ' } else { '*' };
        let _ = writeln!(text, "{mark} {at:03x}  libmlx5 {left}\n{mark}      ours    {right}");
    }
    text
}

fn decoded(kind: Kind, service: Service, theirs: &[u8], ours: &[u8]) -> String {
    let one = |bytes: &[u8]| match kind {
        Kind::Send => WqeView::parse(bytes, service).map(|wqe| wqe.to_string()),
        Kind::Recv => RecvView::parse(bytes, RecvKind::Rq).map(|wqe| wqe.to_string()),
        Kind::Bytes => Ok(String::new()),
    };
    let one = |bytes: &[u8]| one(bytes).unwrap_or_else(|error| error.to_string());
    format!("libmlx5: {}\nours: {}", one(theirs), one(ours))
}

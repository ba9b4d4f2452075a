//! Compares the command logs of both sides (`src/log.rs`), phase by phase.

use std::collections::BTreeMap;

use crate::compare::{Counts, Difference, dump};

/// A command, or an mmap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Command {
    /// Object, method and write command: `0.0(0x9)`.
    pub(crate) name: String,
    pub(crate) attrs: Vec<Attr>,
    pub(crate) result: String,
}

/// Attribute of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attr {
    pub(crate) id: u16,
    /// `in8`, `out12`, `idr`.
    pub(crate) kind: String,
    pub(crate) bytes: Vec<u8>,
}

/// Field of a payload: name, offset, length. `*` before the name: an address in the process, left
/// out of the comparison. `?`: such an address, or 0.
type Field = (&'static str, usize, usize);

/// `UVERBS_ATTR_CORE_OUT`.
const CORE_OUT: u16 = 1;

/// `struct ib_uverbs_modify_qp`.
const MODIFY_QP: &[Field] = &[
    ("dest.dgid", 0, 16),
    ("dest.flow_label", 16, 4),
    ("dest.dlid", 20, 2),
    ("dest.reserved", 22, 2),
    ("dest.sgid_index", 24, 1),
    ("dest.hop_limit", 25, 1),
    ("dest.traffic_class", 26, 1),
    ("dest.sl", 27, 1),
    ("dest.src_path_bits", 28, 1),
    ("dest.static_rate", 29, 1),
    ("dest.is_global", 30, 1),
    ("dest.port_num", 31, 1),
    ("alt_dest", 32, 32),
    ("qp_handle", 64, 4),
    ("attr_mask", 68, 4),
    ("qkey", 72, 4),
    ("rq_psn", 76, 4),
    ("sq_psn", 80, 4),
    ("dest_qp_num", 84, 4),
    ("qp_access_flags", 88, 4),
    ("pkey_index", 92, 2),
    ("alt_pkey_index", 94, 2),
    ("qp_state", 96, 1),
    ("cur_qp_state", 97, 1),
    ("path_mtu", 98, 1),
    ("path_mig_state", 99, 1),
    ("en_sqd_async_notify", 100, 1),
    ("max_rd_atomic", 101, 1),
    ("max_dest_rd_atomic", 102, 1),
    ("min_rnr_timer", 103, 1),
    ("port_num", 104, 1),
    ("timeout", 105, 1),
    ("retry_cnt", 106, 1),
    ("rnr_retry", 107, 1),
    ("alt_port_num", 108, 1),
    ("alt_timeout", 109, 1),
    ("reserved", 110, 2),
];

/// `struct mlx5_ib_create_qp`.
const CREATE_QP: &[Field] = &[
    ("*buf_addr", 0, 8),
    ("*db_addr", 8, 8),
    ("sq_wqe_count", 16, 4),
    ("rq_wqe_count", 20, 4),
    ("rq_wqe_shift", 24, 4),
    ("flags", 28, 4),
    ("uidx", 32, 4),
    ("bfreg_index", 36, 4),
    ("?sq_buf_addr", 40, 8),
    ("ece_options", 48, 4),
    ("reserved", 52, 4),
];

/// `struct mlx5_ib_create_cq`.
const CREATE_CQ: &[Field] = &[
    ("*buf_addr", 0, 8),
    ("*db_addr", 8, 8),
    ("cqe_size", 16, 4),
    ("cqe_comp_en", 20, 1),
    ("cqe_comp_res_format", 21, 1),
    ("flags", 22, 2),
    ("uar_page_index", 24, 2),
    ("reserved", 26, 6),
];

/// `struct ib_uverbs_create_ah`.
const CREATE_AH: &[Field] = &[
    ("*response", 0, 8),
    ("*user_handle", 8, 8),
    ("pd_handle", 16, 4),
    ("reserved", 20, 4),
    ("dgid", 24, 16),
    ("flow_label", 40, 4),
    ("sgid_index", 44, 1),
    ("hop_limit", 45, 1),
    ("traffic_class", 46, 1),
    ("grh.reserved", 47, 1),
    ("dlid", 48, 2),
    ("sl", 50, 1),
    ("src_path_bits", 51, 1),
    ("static_rate", 52, 1),
    ("is_global", 53, 1),
    ("port_num", 54, 1),
    ("attr.reserved", 55, 1),
];

/// `struct ib_uverbs_open_qp`. libmlx5 leaves the last bytes unset (`verbs.c:mlx5_open_qp`).
const OPEN_QP: &[Field] = &[
    ("*response", 0, 8),
    ("*user_handle", 8, 8),
    ("pd_handle", 16, 4),
    ("qpn", 20, 4),
    ("qp_type", 24, 1),
    ("*reserved", 25, 7),
];

/// `struct mlx5_ib_create_srq`.
const CREATE_SRQ: &[Field] = &[
    ("*buf_addr", 0, 8),
    ("*db_addr", 8, 8),
    ("flags", 16, 4),
    ("reserved0", 20, 4),
    ("uidx", 24, 4),
    ("reserved1", 28, 4),
];

/// `struct mlx5_ib_create_wq`.
const CREATE_WQ: &[Field] = &[
    ("*buf_addr", 0, 8),
    ("*db_addr", 8, 8),
    ("rq_wqe_count", 16, 4),
    ("rq_wqe_shift", 20, 4),
    ("user_index", 24, 4),
    ("flags", 28, 4),
    ("comp_mask", 32, 4),
    ("striding", 36, 12),
];

/// Bytes of `struct mlx5_ib_create_qp`. A queue pair over an indirection table has a longer struct.
const CREATE_QP_LEN: usize = 56;

/// `struct ib_uverbs_qp_cap`.
const CAP: &[Field] = &[
    ("max_send_wr", 0, 4),
    ("max_recv_wr", 4, 4),
    ("max_send_sge", 8, 4),
    ("max_recv_sge", 12, 4),
    ("max_inline_data", 16, 4),
];

/// `struct mlx5_ib_alloc_ucontext_req_v2`.
const CONTEXT: &[Field] = &[
    ("total_num_bfregs", 0, 4),
    ("num_low_latency_bfregs", 4, 4),
    ("flags", 8, 4),
    ("comp_mask", 12, 4),
    ("max_cqe_version", 16, 1),
    ("reserved", 17, 7),
    ("lib_caps", 24, 8),
];

/// `struct mlx5_ib_create_flow` with counters.
const CREATE_FLOW: &[Field] = &[
    ("ncounters_data", 0, 4),
    ("reserved", 4, 4),
    ("*counters_data", 8, 8),
    ("ncounters", 16, 4),
    ("data.reserved", 20, 4),
];

/// Fields of a payload of this length; empty if it is compared as a whole.
fn fields(command: &str, attr: u16, len: usize) -> &'static [Field] {
    match (command, attr) {
        ("0.0(0x80000032)", 0x1000) if len > 8 => CREATE_FLOW,
        ("0.3", 0x1000) => CONTEXT,
        // ALLOC_PD, CREATE_COMP_CHANNEL, QUERY_QP: address of the response.
        ("0.0(0x3)" | "0.0(0x11)", 0) => &[("*response", 0, 8)],
        ("0.0(0x19)", 0) => &[("*response", 0, 8), ("qp_handle", 8, 4), ("attr_mask", 12, 4)],
        ("0.0(0xe)", 0) => {
            &[("*response", 0, 8), ("pd_handle", 8, 4), ("mw_type", 12, 1), ("reserved", 13, 3)]
        }
        ("0.0(0x9)", 0) => &[
            ("*response", 0, 8),
            ("start", 8, 8),
            ("length", 16, 8),
            ("hca_va", 24, 8),
            ("pd_handle", 32, 4),
            ("access_flags", 36, 4),
        ],
        ("0.0(0x13)", 0) => &[("*response", 0, 8), ("cq_handle", 8, 4), ("cqe", 12, 4)],
        ("0.0(0x13)", 0x1000) => {
            &[("*buf_addr", 0, 8), ("cqe_size", 8, 2), ("reserved0", 10, 2), ("reserved1", 12, 4)]
        }
        ("0.0(0x1a)", 0) => MODIFY_QP,
        ("0.0(0x22)", 0) => &[("*response", 0, 8), ("srq_handle", 8, 4), ("reserved", 12, 4)],
        ("0.0(0x22)", 1) => {
            &[("max_wr", 0, 4), ("max_sge", 4, 4), ("srq_limit", 8, 4), ("reserved", 12, 4)]
        }
        ("0.0(0x25)", 0) => &[("*response", 0, 8), ("fd", 8, 4), ("oflags", 12, 4)],
        ("0.0(0x28)", 0) => OPEN_QP,
        ("0.0(0x5)", 0) => CREATE_AH,
        ("3.0", 2) => &[("*user_handle", 0, 8)],
        ("3.0", 0x1000) => CREATE_CQ,
        ("4.0", 7) => &[("*user_handle", 0, 8)],
        ("4.0", 8 | 0xd) => CAP,
        ("4.0", 0x1000) if len <= CREATE_QP_LEN => CREATE_QP,
        ("5.0", 4) => &[("*user_handle", 0, 8)],
        ("5.0", 0x1000) => CREATE_SRQ,
        ("c.0", 3) => &[("*user_handle", 0, 8)],
        ("c.0", 0x1000) => CREATE_WQ,
        _ => &[],
    }
}

/// Tests for attributes that are descriptors; their numbers depend on the process.
fn is_descriptor(command: &str, attr: u16) -> bool {
    matches!(
        (command, attr),
        ("10.0", 0)
            | ("0.0(0x11)", 1)
            | ("3.0", 3)
            | ("3.0", 7)
            | ("4.0", 0xc)
            | ("5.0", 0xa)
            | ("c.0", 5)
            | ("7.4", 5)
    )
}

/// Tests for the response of a refused write command: it is absent, and only its address is logged.
fn is_unanswered(command: &str, attr: &Attr) -> bool {
    command.starts_with("0.0(") && attr.id == CORE_OUT && attr.kind.starts_with("in")
}

/// Tests for a byte that depends on the process, and is left out of the comparison.
pub(crate) fn is_left_out(command: &str, attr: &Attr, byte: usize) -> bool {
    let mut fields = fields(command, attr.id, attr.bytes.len()).iter();
    is_descriptor(command, attr.id)
        || is_unanswered(command, attr)
        || fields.any(|&(name, at, len)| {
            let mut bytes = attr.bytes.iter().skip(at).take(len);
            // The address is present if any of its bytes is not 0.
            let address = name.starts_with('?') && bytes.any(|byte| *byte != 0);
            (name.starts_with('*') || address) && (at..at + len).contains(&byte)
        })
}

/// Phase of a program: name and commands.
pub(crate) type Phase = (String, Vec<Command>);

/// Reads a log into phases.
pub(crate) fn read(text: &str) -> Vec<Phase> {
    let mut phases: Vec<Phase> = vec![("before".to_owned(), Vec::new())];
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("# ") {
            phases.push((name.to_owned(), Vec::new()));
            continue;
        }
        let (line, result) = line.rsplit_once(" = ").unwrap();
        let mut words = line.split(' ').skip(2);
        let name = words.next().unwrap().to_owned();
        let attrs = if name == "mmap" {
            let (id, kind) = (0, words.collect::<Vec<_>>().join(" "));
            vec![Attr { id, kind, bytes: Vec::new() }]
        } else {
            words.map(attr).collect()
        };
        let command = Command { name, attrs, result: result.to_owned() };
        phases.last_mut().unwrap().1.push(command);
    }
    phases
}

fn attr(word: &str) -> Attr {
    let (id, rest) = word.split_once(':').unwrap();
    let (kind, value) = rest.split_once('=').unwrap();
    let id = u16::from_str_radix(id, 16).unwrap();
    let bytes = match kind {
        "idr" => value.parse::<i64>().unwrap().to_le_bytes().to_vec(),
        _ => {
            let digits = value.as_bytes().chunks(2).map(|pair| str::from_utf8(pair).unwrap());
            digits.map(|pair| u8::from_str_radix(pair, 16).unwrap_or(0xee)).collect()
        }
    };
    Attr { id, kind: kind.to_owned(), bytes }
}

/// Compares two logs.
pub(crate) fn compare(theirs: &[Phase], ours: &[Phase]) -> (Vec<Difference>, Counts) {
    let mut all = Comparison::default();
    let names = |side: &[Phase]| side.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    if names(theirs) != names(ours) {
        all.differs("phases".to_owned(), format!("{:?} / {:?}", names(theirs), names(ours)));
    }
    for ((name, theirs), (_, ours)) in theirs.iter().zip(ours) {
        all.phase = name.split(' ').next().unwrap_or_default().to_owned();
        all.phase(theirs, ours);
    }
    (all.differences, all.counts)
}

#[derive(Default)]
struct Comparison {
    phase: String,
    differences: Vec<Difference>,
    counts: Counts,
}

impl Comparison {
    fn differs(&mut self, key: String, detail: String) {
        let key = format!("{}: {key}", self.phase);
        self.differences.push(Difference { detail: format!("{key}\n{detail}"), key });
    }

    /// Pairs the commands in order. A command of one side only is a difference.
    fn phase(&mut self, theirs: &[Command], ours: &[Command]) {
        for (left, right) in pairs(theirs, ours, |command| command.name.clone()) {
            match (left, right) {
                (Some(theirs), Some(ours)) => self.command(theirs, ours),
                (Some(command), None) => {
                    self.differs(format!("{} only libmlx5", command.name), format!("{command:?}"));
                }
                (None, Some(command)) => {
                    self.differs(format!("{} only ours", command.name), format!("{command:?}"));
                }
                (None, None) => {}
            }
        }
    }

    fn command(&mut self, theirs: &Command, ours: &Command) {
        let name = &theirs.name;
        self.counts.commands += 1;
        if theirs.result != ours.result {
            let key = format!("{name} result {} / {}", theirs.result, ours.result);
            self.differs(key, format!("{theirs:?}\n{ours:?}"));
        }
        let order = |command: &Command, other: &Command| {
            let common = |attr: &&Attr| other.attrs.iter().any(|other| other.id == attr.id);
            command.attrs.iter().filter(common).map(|attr| attr.id).collect::<Vec<_>>()
        };
        if order(theirs, ours) != order(ours, theirs) {
            let key = format!("{name} order of attributes");
            self.differs(key, format!("{theirs:?}\n{ours:?}"));
        }
        let by_id = |command: &Command| {
            let attrs = command.attrs.iter().map(|attr| (attr.id, attr.clone()));
            attrs.collect::<BTreeMap<_, _>>()
        };
        let (theirs, ours) = (by_id(theirs), by_id(ours));
        for (id, attr) in &theirs {
            match ours.get(id) {
                Some(ours) => self.attr(name, attr, ours),
                None => {
                    let key = format!("{name} attribute {id:#x} {} only libmlx5", attr.kind);
                    self.differs(key, format!("{attr:x?}"));
                }
            }
        }
        for (id, attr) in ours.iter().filter(|(id, _)| !theirs.contains_key(id)) {
            let key = format!("{name} attribute {id:#x} {} only ours", attr.kind);
            self.differs(key, format!("{attr:x?}"));
        }
    }

    fn attr(&mut self, command: &str, theirs: &Attr, ours: &Attr) {
        let id = theirs.id;
        if theirs.kind != ours.kind {
            let key = format!("{command} attribute {id:#x} {} / {}", theirs.kind, ours.kind);
            self.differs(key, dump(&theirs.bytes, &ours.bytes));
        }
        if is_descriptor(command, id) || is_unanswered(command, theirs) {
            return;
        }
        let fields = fields(command, id, theirs.bytes.len());
        if fields.is_empty() {
            self.counts.bytes += theirs.bytes.len();
            if theirs.bytes != ours.bytes && theirs.kind == ours.kind {
                let key = format!(
                    "{command} attribute {id:#x} value {} / {}",
                    short(&theirs.bytes),
                    short(&ours.bytes)
                );
                self.differs(key, dump(&theirs.bytes, &ours.bytes));
            }
            return;
        }
        let whole =
            |attr: &Attr| fields.iter().map(|field| field.2).sum::<usize>() == attr.bytes.len();
        if !whole(theirs) && theirs.kind == ours.kind {
            let key = format!("{command} attribute {id:#x} has other fields than listed");
            self.differs(key, dump(&theirs.bytes, &ours.bytes));
        }
        for &(name, at, len) in fields.iter().filter(|field| !field.0.starts_with('*')) {
            let get = |attr: &Attr| {
                let bytes = attr.bytes.get(at..at + len)?;
                let is_address = name.starts_with('?') && bytes.iter().any(|byte| *byte != 0);
                Some(if is_address { b"address".to_vec() } else { bytes.to_vec() })
            };
            self.counts.bytes += len;
            if get(theirs) != get(ours) {
                let value =
                    |attr: &Attr| get(attr).map_or("none".to_owned(), |bytes| short(&bytes));
                let key = format!("{command} {name} {} / {}", value(theirs), value(ours));
                self.differs(key, dump(&theirs.bytes, &ours.bytes));
            }
        }
    }
}

/// Formats a value as a number if it has at most eight bytes.
fn short(bytes: &[u8]) -> String {
    match bytes.len() {
        0..=8 => {
            let mut all = [0; 8];
            all[..bytes.len()].copy_from_slice(bytes);
            format!("{:#x}", u64::from_le_bytes(all))
        }
        len => format!("({len} bytes)"),
    }
}

/// Longest common subsequence of both sides, and the elements between.
fn pairs<'a, T>(
    left: &'a [T],
    right: &'a [T],
    key: impl Fn(&T) -> String,
) -> Vec<(Option<&'a T>, Option<&'a T>)> {
    let mut longest = vec![vec![0; right.len() + 1]; left.len() + 1];
    for i in (0..left.len()).rev() {
        for j in (0..right.len()).rev() {
            longest[i][j] = if key(&left[i]) == key(&right[j]) {
                longest[i + 1][j + 1] + 1
            } else {
                longest[i + 1][j].max(longest[i][j + 1])
            };
        }
    }
    let (mut i, mut j) = (0, 0);
    let mut all = Vec::new();
    while i < left.len() || j < right.len() {
        if i < left.len() && j < right.len() && key(&left[i]) == key(&right[j]) {
            all.push((Some(&left[i]), Some(&right[j])));
            (i, j) = (i + 1, j + 1);
        } else if j == right.len() || i < left.len() && longest[i + 1][j] >= longest[i][j + 1] {
            all.push((Some(&left[i]), None));
            i += 1;
        } else {
            all.push((None, Some(&right[j])));
            j += 1;
        }
    }
    all
}

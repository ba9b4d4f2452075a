//! Changes our side's record one by one: the comparison must report each.

use uverbs_mlx5_prm::doorbell::MLX5_CQ_DOORBELL;
use uverbs_mlx5_prm::wqe::Service;

use crate::commands::{self, Phase};
use crate::compare::Difference;
use crate::differences::Table;
use crate::record::{Case, LID, VECTOR, chose_port, meaning, wqe_bytes};
use crate::{Side, compared};

/// Changes a case; false if it has nothing to change.
type Mutation = (&'static str, &'static str, fn(&mut Case) -> bool);

/// First WQE of a send ring.
fn wqe(case: &mut Case) -> Option<&mut Vec<u8>> {
    case.sends.values_mut().map(|ring| &mut ring.bytes).find(|bytes| !bytes.is_empty())
}

/// First doorbell record of a kind of queue.
fn record<'a>(case: &'a mut Case, kind: &str) -> Option<&'a mut Vec<u8>> {
    let mut records = case.records.iter_mut().filter(|(name, _)| name.starts_with(kind));
    records.next().map(|(_, record)| record)
}

fn flip(case: &mut Case, at: usize, bit: u8) -> bool {
    wqe(case).and_then(|bytes| bytes.get_mut(at)).map(|byte| *byte ^= bit).is_some()
}

const MUTATIONS: &[Mutation] = &[
    ("opcode", "send WQE", |case| flip(case, 3, 2)),
    ("WQE index", "send WQE", |case| flip(case, 2, 1)),
    ("QP number", "send WQE", |case| flip(case, 6, 1)),
    ("signature byte", "send WQE", |case| flip(case, 8, 1)),
    ("flags", "send WQE", |case| flip(case, 11, 8)),
    ("immediate", "send WQE", |case| {
        let with = wqe(case).is_some_and(|bytes| matches!(bytes[3], 0x09 | 0x0b));
        with && flip(case, 15, 1)
    }),
    ("length of the WQE", "send WQE", |case| flip(case, 7, 1)),
    ("a byte of inline data", "send WQE", |case| {
        // The last compared byte.
        let Some(bytes) = wqe(case) else { return false };
        let end = meaning(&bytes[..wqe_bytes(bytes)], true, Service::Rc);
        let Some(last) = end.last().filter(|range| range.start == 32) else { return false };
        bytes[last.end - 1] ^= 1;
        true
    }),
    ("a WQE moved by one byte", "send WQE", |case| {
        wqe(case).map(|bytes| bytes[..64].rotate_right(1)).is_some()
    }),
    ("send record off by one", "record of a qp", |case| {
        record(case, "qp").map(|record| record[7] = record[7].wrapping_add(1)).is_some()
    }),
    ("records swapped", "record of a qp", |case| {
        let record = record(case, "qp").filter(|record| record[..4] != record[4..]);
        record.map(|record| record.rotate_right(4)).is_some()
    }),
    ("consumer index off by one", "record of a cq", |case| {
        record(case, "cq").map(|record| record[3] = record[3].wrapping_add(1)).is_some()
    }),
    ("the register's other half", "doorbell's place", |case| {
        let Some((key, bytes)) = case.registers.pop_first() else { return false };
        case.registers.insert((key.0, key.1 ^ 0x100), bytes);
        true
    }),
    ("the register of another page", "doorbell's place", |case| {
        let Some((key, bytes)) = case.registers.pop_first() else { return false };
        case.registers.insert((key.0 + 1, key.1), bytes);
        true
    }),
    ("no doorbell", "doorbell's place", |case| case.registers.pop_first().is_some()),
    ("a doorbell with its words swapped", "our doorbell against our ring", |case| {
        case.registers.values_mut().next().map(|bytes| bytes[..8].rotate_right(4)).is_some()
    }),
    ("a doorbell for BlueFlame", "doorbell of eight bytes against BlueFlame", |case| {
        let mut copies =
            case.registers.values_mut().filter(|bytes| bytes[8..].iter().any(|&b| b != 0));
        copies.next().map(|bytes| bytes[8..].fill(0)).is_some()
    }),
    ("BlueFlame one block short", "our doorbell against our ring", |case| {
        let mut copies =
            case.registers.values_mut().filter(|bytes| bytes[64..].iter().any(|&b| b != 0));
        copies.next().map(|bytes| bytes[64..].fill(0)).is_some()
    }),
    ("a byte behind the BlueFlame write", "our doorbell against our ring", |case| {
        case.registers.values_mut().next().map(|bytes| bytes[255] ^= 1).is_some()
    }),
    ("a receive's length", "receive WQE", |case| {
        let mut rings = case.recvs.values_mut().filter(|ring| !ring.bytes.is_empty());
        rings.next().map(|ring| ring.bytes[3] ^= 1).is_some()
    }),
    ("a receive list without its end", "receive WQE", |case| {
        let rings = case.recvs.values_mut().filter(|ring| ring.bytes.len() >= ring.stride);
        let mut ends = rings.filter_map(|ring| {
            let end = crate::record::recv_meaning(&ring.bytes[..ring.stride]).end;
            (end >= 16 && ring.bytes[end - 12..end - 8] == [0, 0, 1, 0]).then_some((ring, end))
        });
        ends.next().map(|(ring, end)| ring.bytes[end - 10] = 0).is_some()
    }),
    ("the ring's counter", "send queue: entries, bytes of one, counter, bytes pending", |case| {
        case.sends.values_mut().next().map(|ring| ring.first ^= 1).is_some()
    }),
    ("a completion lost", "completions", |case| case.notes.pop().is_some()),
    ("another wr_id", "completions", |case| {
        case.notes.first_mut().map(|note| *note = note.replacen(' ', " 1", 2)).is_some()
    }),
];

const OF_LISTS: &[Mutation] = &[
    ("a shared receive's link", "shared receive WQE", |case| {
        let mut rings = case.lists.values_mut().filter(|(_, ring)| !ring.bytes.is_empty());
        rings.next().map(|(_, ring)| ring.bytes[3] ^= 1).is_some()
    }),
    ("a shared receive's length", "shared receive WQE", |case| {
        let mut rings = case.lists.values_mut().filter(|(_, ring)| !ring.bytes.is_empty());
        rings.next().map(|(_, ring)| ring.bytes[19] ^= 1).is_some()
    }),
    (
        "a list from another slot",
        "shared queue: bytes of one, counter, slot, bytes pending",
        |case| case.lists.values_mut().next().map(|(slot, _)| *slot ^= 1).is_some(),
    ),
    ("a shared queue's record", "record of a srq", |case| {
        record(case, "srq").map(|record| record[3] ^= 1).is_some()
    }),
];

/// Arm doorbell of the case.
fn arm(case: &mut Case) -> Option<&mut [u8]> {
    let mut registers = case.registers.iter_mut().filter(|((_, offset), _)| *offset == 0);
    registers.next().map(|(_, bytes)| &mut bytes[MLX5_CQ_DOORBELL..][..8])
}

const OF_ARMS: &[Mutation] = &[
    ("an arm's sequence number", "arm doorbell", |case| {
        arm(case).map(|at| at[0] ^= 0x10).is_some()
    }),
    ("an arm for solicited", "arm doorbell", |case| arm(case).map(|at| at[0] ^= 1).is_some()),
    ("an arm's consumer index", "arm doorbell", |case| arm(case).map(|at| at[3] ^= 1).is_some()),
    ("an arm's queue", "arm doorbell", |case| arm(case).map(|at| at[7] ^= 3).is_some()),
    ("an arm that isn't in its record", "our arm doorbell against our record", |case| {
        arm(case).map(|at| at[3] ^= 1).is_some()
    }),
    ("no arm", "doorbell's place", |case| {
        let keys = case.registers.keys().find(|(_, offset)| *offset == 0).copied();
        keys.and_then(|key| case.registers.remove(&key)).is_some()
    }),
    ("an arm's record", "record of a cq", |case| {
        record(case, "cq").map(|record| record[4] ^= 0x20).is_some()
    }),
    ("an event lost", "completions", |case| {
        case.notes.last().is_some_and(|note| note.starts_with("event"))
            && case.notes.pop().is_some()
    }),
];

/// As [`are_all_found`], with changes of arm doorbells.
pub(crate) fn of_arms(table: &mut Table, theirs: &Side, ours: &Side) {
    are_found(OF_ARMS, table, theirs, ours);
}

/// Applies each mutation to up to ten cases, one at a time.
pub(crate) fn are_all_found(table: &mut Table, theirs: &Side, ours: &Side) {
    are_found(MUTATIONS, table, theirs, ours);
}

pub(crate) fn of_lists(table: &mut Table, theirs: &Side, ours: &Side) {
    are_found(OF_LISTS, table, theirs, ours);
}

fn are_found(mutations: &[Mutation], table: &mut Table, theirs: &Side, ours: &Side) {
    for &(name, key, change) in mutations {
        let mut tried = 0;
        for (at, case) in ours.cases.iter().enumerate().step_by(7) {
            let mut changed = case.clone();
            if tried == 10 || !change(&mut changed) {
                continue;
            }
            tried += 1;
            let found = unexpected(table, [theirs, ours], at, changed);
            assert!(
                found.iter().any(|difference| difference.key == key),
                "{name} in {:?} was not found as {key:?}: {found:#?}",
                case.name
            );
        }
        assert!(tried > 0, "no case for: {name}");
    }
}

/// Changes each byte of the address vectors of up to a hundred cases. A UDP port chosen by the
/// sender is compared only for being one.
pub(crate) fn of_address_vectors(table: &mut Table, theirs: &Side, ours: &Side) {
    let (mut vectors, mut ports) = (0, 0);
    for (at, case) in ours.cases.iter().enumerate().rev() {
        let Some(wqe) = wqe(&mut case.clone()).map(|bytes| bytes[..VECTOR.end].to_vec()) else {
            continue;
        };
        let chose = chose_port(&wqe, ours.service);
        for byte in VECTOR {
            let (bit, key) = match (chose && LID.contains(&byte), byte == LID.start) {
                (false, _) => (1, "send WQE"),
                (true, true) => (0x80, "UDP source port"),
                (true, false) => continue,
            };
            let mut changed = case.clone();
            flip(&mut changed, byte, bit);
            let found = unexpected(table, [theirs, ours], at, changed);
            assert!(
                found.iter().any(|difference| difference.key == key),
                "byte {byte} in {:?} was not found as {key:?}: {found:#?}",
                case.name
            );
        }
        *(if chose { &mut ports } else { &mut vectors }) += 1;
        if vectors + ports == 100 {
            break;
        }
    }
    // The last DC cases all use one address.
    let wanted = if ours.service == Service::Ud { 5 } else { -1 };
    assert!(vectors > 20 && ports > wanted, "{vectors} {ports}");
}

/// Changes each byte of the peer's queue number, of up to a hundred cases.
pub(crate) fn of_peers_queues(table: &mut Table, theirs: &Side, ours: &Side) {
    let mut tried = 0;
    for (at, case) in ours.cases.iter().enumerate().rev() {
        if wqe(&mut case.clone()).is_none_or(|bytes| bytes.len() < 32) {
            continue;
        }
        for byte in 16..20 {
            let mut changed = case.clone();
            flip(&mut changed, byte, 1);
            let found = unexpected(table, [theirs, ours], at, changed);
            assert!(
                found.iter().any(|difference| difference.key == "send WQE"),
                "byte {byte} in {:?} was not found: {found:#?}",
                case.name
            );
        }
        tried += 1;
        if tried == 100 {
            break;
        }
    }
    assert_eq!(tried, 100);
}

/// Differences that the table lacks, with our case `at` changed.
fn unexpected(
    table: &mut Table,
    [theirs, ours]: [&Side; 2],
    at: usize,
    changed: Case,
) -> Vec<Difference> {
    let one = |case: Case| Side {
        way: ours.way.clone(),
        service: ours.service,
        cases: vec![case],
        commands: Vec::new(),
    };
    let (found, _) = compared(&one(theirs.cases[at].clone()), &one(changed));
    table.sort(found).1
}

/// Removes every command and every attribute, and changes every byte of every attribute.
pub(crate) fn of_commands(table: &mut Table, theirs: &Side, ours: &Side) {
    let mut tried = 0;
    for (theirs, ours) in theirs.commands.iter().zip(&ours.commands) {
        let mut count = |ours: &Phase| {
            let (found, _) =
                commands::compare(std::slice::from_ref(theirs), std::slice::from_ref(ours));
            table.sort(found)
        };
        let number = |(known, unknown): (usize, Vec<_>)| (known, unknown.len());
        let unmoved = number(count(ours));
        for at in 0..ours.1.len() {
            let mut changed = ours.clone();
            let command = changed.1.remove(at);
            assert_ne!(number(count(&changed)), unmoved, "without {command:?}");
            // A command that only one side has is a difference in any case.
            if command.name == "mmap" || !theirs.1.iter().any(|other| other.name == command.name) {
                continue;
            }
            for (index, attr) in command.attrs.iter().enumerate() {
                let mut changed = ours.clone();
                changed.1[at].attrs.remove(index);
                assert_ne!(number(count(&changed)), unmoved, "{}: {attr:?}", command.name);
                for byte in 0..attr.bytes.len() {
                    let mut changed = ours.clone();
                    // Several bits: sizes differ by one bit, and could then equal libmlx5's.
                    changed.1[at].attrs[index].bytes[byte] ^= 0x55;
                    let seen = !count(&changed).1.is_empty();
                    let meant = !commands::is_left_out(&command.name, attr, byte);
                    assert_eq!(seen, meant, "byte {byte} of {attr:x?} of {}", command.name);
                    tried += 1;
                }
            }
        }
    }
    assert!(tried > 2000, "{tried}");
}

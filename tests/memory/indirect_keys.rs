//! Indirect keys: reads and writes through one range of addresses over scattered memory,
//! invalidation, and refusals.

use common::{LIMIT, Side, local, pair_with, pattern, soft};
use uverbs::attr::SendOpSet;
use uverbs::memory::{ExposedPart, IndirectKey, KeyLayout, KeyParts};
use uverbs::raw::{Data, Sge};
use uverbs::softhca::SoftHca;
use uverbs::{
    AccessFlags, Batch, Completed, Error, ExposedMemory, PostError, QueuePairBuilder, Remote,
    Status, WorkCompletion,
};

const NOTHING: AccessFlags = AccessFlags::empty();
const BOTH: AccessFlags = AccessFlags::REMOTE_READ.union(AccessFlags::REMOTE_WRITE);
const NO_KEYS: &str = "its kernel has no indirect keys";

fn with_keys(builder: QueuePairBuilder) -> QueuePairBuilder {
    let ops = SendOpSet::of(uverbs::attr::QpType::Rc) | SendOpSet::REKEY;
    builder.max_send_wr(32).send_ops(ops)
}

fn pair() -> (Side, Side) {
    pair_with(&local(), with_keys)
}

fn key(side: &Side, parts: u32) -> IndirectKey {
    side.context.alloc_indirect_key(&side.pd, parts).unwrap()
}

/// Memory filled with a pattern; peers have no rights.
fn filled(side: &Side, len: usize, seed: u8) -> ExposedMemory {
    let memory = side.pd.expose(len, NOTHING).unwrap();
    memory.write(0, &pattern(len, seed)).unwrap();
    memory
}

fn bytes(memory: &ExposedMemory) -> Vec<u8> {
    let mut all = vec![0; memory.len()];
    memory.read(0, &mut all).unwrap();
    all
}

fn map_list(side: &mut Side, key: &mut IndirectKey, parts: &[ExposedPart], access: AccessFlags) {
    let before = key.rkey();
    let mut batch = side.qp.batch();
    let now = batch.map_list(70, key, parts, access).unwrap();
    batch.ring();
    assert_eq!(side.done().result, Ok(Completed::Rekey));
    assert_eq!((now, now & !0xff), (key.rkey(), before & !0xff));
    assert_ne!(now, before, "who has the old key can't use the new layout");
}

fn unmap(side: &mut Side, key: &IndirectKey) {
    let mut batch = side.qp.batch();
    batch.unmap(71, key).unwrap();
    batch.ring();
    assert_eq!(side.done().result, Ok(Completed::Rekey));
}

/// Posts one work request, and returns its completion.
fn post(side: &mut Side, one: impl FnOnce(&mut Batch<'_>)) -> WorkCompletion {
    let mut batch = side.qp.batch();
    one(&mut batch);
    batch.ring();
    side.wait()
}

fn write(side: &mut Side, bytes: &[u8], to: Remote) -> WorkCompletion {
    side.qp.post_write_inline(60, bytes, to).unwrap();
    side.wait()
}

fn status(completion: &WorkCompletion) -> Option<Status> {
    completion.result.err().map(|failure| failure.status)
}

#[test]
fn a_list_is_one_range() {
    if common::not_on_rdmavt("the device has no indirect keys") {
        return;
    }
    if common::not_on_rxe(NO_KEYS) {
        return;
    }
    let (mut client, mut server) = pair();
    let (one, two) = (filled(&client, 8192, 1), filled(&client, 4096, 2));
    // Out of order, over the end of a page, of one byte, and twice.
    let places = [(&two, 5, 100), (&one, 4000, 300), (&one, 0, 1), (&two, 5, 3)];
    let parts = places.map(|(memory, offset, len)| memory.part(offset, len).unwrap());
    let mut key = key(&client, 4);
    map_list(&mut client, &mut key, &parts, NOTHING);
    assert_eq!((key.len(), key.max_parts()), (404, 4));
    let expected: Vec<u8> = places
        .iter()
        .flat_map(|(memory, offset, len)| bytes(memory)[*offset..offset + len].to_vec())
        .collect();
    // Gathered by one WRITE, whole and from the middle over the end of a part.
    let there = server.pd.expose(404, BOTH).unwrap();
    for (offset, len) in [(0, 404), (90, 250), (403, 1)] {
        let part = key.part(offset, len).unwrap();
        let done = post(&mut client, |batch| batch.write(1, part, there.remote(0)).unwrap());
        assert_eq!(done.result, Ok(Completed::Write));
        let (from, len) = (offset as usize, len as usize);
        assert_eq!(bytes(&there)[..len], expected[from..from + len]);
    }
    // Sent, and received into another.
    let mut theirs = self::key(&server, 2);
    let [left, right] = [0, 1].map(|_| server.pd.expose(64, NOTHING).unwrap());
    let into = [left.part(0, 10).unwrap(), right.part(3, 20).unwrap()];
    map_list(&mut server, &mut theirs, &into, NOTHING);
    let mut batch = server.qp.recv_batch();
    batch.post(2, theirs.part(0, 30).unwrap()).unwrap();
    batch.ring();
    let part = key.part(80, 30).unwrap();
    let sent = post(&mut client, |batch| batch.send(3, part).unwrap());
    assert_eq!(sent.result, Ok(Completed::Send));
    let received = server.done();
    assert_eq!((received.result, received.byte_len), (Ok(Completed::Recv), 30));
    assert_eq!(bytes(&left)[..11], [&expected[80..90], &[0]].concat());
    assert_eq!(bytes(&right)[..24], [&[0; 3], &expected[90..110], &[0]].concat());
}

/// A column of a matrix of each side by one READ, and by one WRITE.
#[test]
fn a_column_of_a_matrix_is_one_range() {
    if common::not_on_rdmavt("the device has no indirect keys") {
        return;
    }
    const SIDE: usize = 100;
    if common::not_on_rxe(NO_KEYS) {
        return;
    }
    let (mut client, mut server) = pair();
    let (ours, theirs) = (filled(&client, SIDE * SIDE, 1), filled(&server, SIDE * SIDE, 2));
    let column = |matrix: &ExposedMemory, at: usize, width: u16| {
        matrix.blocks(at, width, SIDE as u16, SIDE as u32).unwrap()
    };
    let mut keys = [key(&client, 2), key(&server, 3)];
    assert_eq!(keys[0].max_parts(), 4, "lists take whole units");
    let mut batch = client.qp.batch();
    batch.map_interleaved(1, &mut keys[0], &[column(&ours, 7, 3)], NOTHING).unwrap();
    batch.ring();
    let mut batch = server.qp.batch();
    // Two columns side by side in the range, which are apart in the matrix.
    let pieces = [column(&theirs, 40, 1), column(&theirs, 90, 2)];
    batch.map_interleaved(1, &mut keys[1], &pieces, BOTH).unwrap();
    batch.ring();
    let [done, also] = [client.done(), server.done()];
    assert_eq!([done.result, also.result], [Ok(Completed::Rekey); 2]);
    let [ours_key, theirs_key] = &keys;
    assert_eq!([ours_key.len(), theirs_key.len()], [300; 2]);

    let (mut expected, source) = (bytes(&ours), bytes(&theirs));
    let whole = ours_key.part(0, 300).unwrap();
    let (part, from) = (whole.clone(), theirs_key.remote(0));
    let done = post(&mut client, |batch| batch.read(2, part, from).unwrap());
    assert_eq!(done.result, Ok(Completed::Read));
    for row in 0..SIDE {
        let at = row * SIDE;
        expected[at + 7] = source[at + 40];
        expected[at + 8..at + 10].copy_from_slice(&source[at + 90..at + 92]);
    }
    assert!(bytes(&ours) == expected, "the column, and nothing else");

    ours.write(0, &pattern(SIDE * SIDE, 3)).unwrap();
    let done = post(&mut client, |batch| batch.write(3, whole, from).unwrap());
    assert_eq!(done.result, Ok(Completed::Write));
    let (mut expected, source) = (source, bytes(&ours));
    for row in 0..SIDE {
        let at = row * SIDE;
        expected[at + 40] = source[at + 7];
        expected[at + 90..at + 92].copy_from_slice(&source[at + 8..at + 10]);
    }
    assert!(bytes(&theirs) == expected, "the columns, and nothing else");
}

#[test]
fn the_next_work_request_finds_the_layout() {
    if common::not_on_rdmavt("the device has no indirect keys") {
        return;
    }
    if common::not_on_rxe(NO_KEYS) {
        return;
    }
    let (mut client, server) = pair();
    let there = server.pd.expose(64, BOTH).unwrap();
    let memory = filled(&client, 4096, 5);
    let mut key = key(&client, 1);
    for round in 0..20 {
        let mut batch = client.qp.batch();
        let part = memory.part(round * 64, 64).unwrap();
        batch.map_list(1, &mut key, &[part], NOTHING).unwrap();
        batch.write(2, key.part(0, 64).unwrap(), there.remote(0)).unwrap();
        batch.ring();
        assert_eq!([client.done().id, client.done().id], [1, 2]);
        assert_eq!(bytes(&there), bytes(&memory)[round * 64..][..64]);
    }
}

#[test]
fn what_a_key_does_not_name_is_refused() {
    if common::not_on_rdmavt("the device has no indirect keys") {
        return;
    }
    if common::not_on_rxe(NO_KEYS) {
        return;
    }
    // Past the end, far outside, and without the right to write.
    for (offset, access) in [(35, BOTH), (1 << 40, BOTH), (0, AccessFlags::REMOTE_READ)] {
        let (mut client, mut server) = pair();
        let memory = filled(&server, 4096, 1);
        let parts = [memory.part(100, 20).unwrap(), memory.part(200, 20).unwrap()];
        let mut key = key(&server, 2);
        map_list(&mut server, &mut key, &parts, access);
        let mut batch = client.qp.batch();
        let frame = client.pd.slab(40, 1).unwrap().take().unwrap();
        batch.read(1, frame, key.remote(0)).unwrap();
        batch.ring();
        assert_eq!(client.done().result, Ok(Completed::Read), "the key is good");
        let done = write(&mut client, &[7; 6], key.remote(offset));
        assert_eq!(status(&done), Some(Status::RemoteAccess), "{offset}, {access:?}");
        assert!(bytes(&memory) == pattern(4096, 1), "nothing was written");
    }
    // Errors of this side's arguments are found before the post.
    let (mut client, _server) = pair();
    let memory = filled(&client, 64, 1);
    let mut key = key(&client, 1);
    assert!(key.part(0, 1).is_err(), "it has no layout");
    map_list(&mut client, &mut key, &[memory.part(0, 64).unwrap()], NOTHING);
    assert!(key.part(0, 65).is_err() && key.part(64, 1).is_err() && key.part(63, 1).is_ok());
    for (offset, len, stride, count) in [(0, 1, 8, 9), (60, 5, 0, 1), (0, 0, 1, 1), (0, 8, 8, 0)] {
        assert!(memory.blocks(offset, len, stride, count).is_err());
    }
    assert!(memory.blocks(0, 8, 8, 8).is_ok() && memory.blocks(63, 1, 0, u32::MAX).is_ok());
}

#[test]
fn an_invalidated_key_in_use_is_an_error() {
    if common::not_on_rdmavt("the device has no indirect keys") {
        return;
    }
    if common::not_on_rxe(NO_KEYS) {
        return;
    }
    // By this side's own work request.
    let (mut client, server) = pair();
    let there = server.pd.expose(64, BOTH).unwrap();
    let memory = filled(&client, 64, 1);
    let mut ours = key(&client, 1);
    map_list(&mut client, &mut ours, &[memory.part(0, 64).unwrap()], NOTHING);
    unmap(&mut client, &ours);
    let part = ours.part(0, 8).unwrap();
    let done = post(&mut client, |batch| batch.write(1, part, there.remote(0)).unwrap());
    assert_eq!(status(&done), Some(Status::LocalProtection));
    assert_eq!(bytes(&there), [0; 64]);

    // By a peer; taken away by its owner, by the peer itself, by another layout, or with the key.
    for how in ["unmapped", "handed back", "laid out anew", "dropped"] {
        let (mut client, mut server) = pair();
        let (memory, other) = (filled(&server, 64, 1), filled(&server, 64, 2));
        let mut theirs = key(&server, 1);
        map_list(&mut server, &mut theirs, &[memory.part(0, 64).unwrap()], BOTH);
        let place = theirs.remote(0);
        write(&mut client, &[9; 8], place).result.unwrap();
        match how {
            "unmapped" => unmap(&mut server, &theirs),
            "handed back" => {
                server.expect(9, 64);
                let mut batch = client.qp.batch();
                batch.send_invalidate_inline(1, b"done with it", theirs.rkey()).unwrap();
                batch.ring();
                assert_eq!(client.done().result, Ok(Completed::Send));
                assert_eq!(server.done().result, Ok(Completed::Recv));
            }
            "laid out anew" => {
                map_list(&mut server, &mut theirs, &[other.part(0, 64).unwrap()], BOTH);
            }
            _ => drop(theirs),
        }
        let done = write(&mut client, &[8; 8], place);
        assert_eq!(status(&done), Some(Status::RemoteAccess), "{how}");
        assert_eq!(bytes(&memory)[..8], [9; 8], "{how}");
        assert!(bytes(&other) == pattern(64, 2), "{how}");
    }
}

/// The key keeps its memory alive, also while only a work request holds the key.
#[test]
fn memory_stays_while_a_key_names_it() {
    if common::not_on_rdmavt("the device has no indirect keys") {
        return;
    }
    if common::not_on_rxe(NO_KEYS) {
        return;
    }
    let (mut client, mut server) = pair();
    let mut theirs = key(&server, 2);
    let memory = filled(&server, 4096, 1);
    map_list(&mut server, &mut theirs, &[memory.part(8, 8).unwrap()], BOTH);
    drop(memory);
    let frame = client.slab(8, 1).take().unwrap();
    client.qp.post_read(1, frame, theirs.remote(0)).unwrap();
    assert_eq!(client.done().frame.unwrap()[..], pattern(4096, 1)[8..16]);
    let there = server.pd.expose(64, BOTH).unwrap();
    let mut ours = key(&client, 2);
    let memory = filled(&client, 64, 3);
    let mut batch = client.qp.batch();
    batch.map_list(1, &mut ours, &[memory.part(0, 64).unwrap()], NOTHING).unwrap();
    batch.write(2, ours.part(0, 64).unwrap(), there.remote(0)).unwrap();
    drop((ours, memory));
    batch.ring();
    assert_eq!([client.done().id, client.done().id], [1, 2]);
    assert!(bytes(&there) == pattern(64, 3));
}

#[test]
fn bad_layouts_are_refused_at_once() {
    if common::not_on_rdmavt("the device has no indirect keys") {
        return;
    }
    if common::not_on_rxe(NO_KEYS) {
        return;
    }
    let (_client, mut server) = pair();
    let (context, memory) = (server.context.clone(), filled(&server, 4096, 1));
    let refused = context.alloc_indirect_key(&server.pd, 53);
    let limit = Error::Limit { verb: "alloc_mw", what: "max_parts", value: 53, limit: 52 };
    assert_eq!(refused.unwrap_err(), limit);
    let another = common::device().open().unwrap();
    let refused = context.alloc_indirect_key(&another.alloc_pd().unwrap(), 1);
    assert!(matches!(refused, Err(Error::Invalid { verb: "alloc_mw", .. })), "{refused:?}");

    let other = context.alloc_pd().unwrap();
    let foreign = other.expose(64, NOTHING).unwrap();
    let mut foreign_key = context.alloc_indirect_key(&other, 4).unwrap();
    let mut key = key(&server, 4);
    let before = key.rkey();
    let part = |memory: &ExposedMemory, len| memory.part(0, len).unwrap();
    let (one, of_other) = (part(&memory, 8), part(&foreign, 8));
    let mut batch = server.qp.batch();
    let mut list = |key: &mut IndirectKey, parts: &[ExposedPart], access| {
        batch.map_list(1, key, parts, access).unwrap_err()
    };
    assert_eq!(list(&mut key, &[], BOTH), PostError::BadData);
    assert_eq!(list(&mut key, &[part(&memory, 0)], BOTH), PostError::BadData);
    let bind = AccessFlags::MW_BIND;
    assert_eq!(list(&mut key, std::slice::from_ref(&one), bind), PostError::BadData);
    let five: [_; 5] = std::array::from_fn(|_| one.clone());
    assert_eq!(list(&mut key, &five, BOTH), PostError::TooManySges);
    let many: Vec<_> = (0..53).map(|_| one.clone()).collect();
    assert_eq!(list(&mut key, &many, BOTH), PostError::TooManySges);
    let mixed = [one.clone(), of_other.clone()];
    assert_eq!(list(&mut key, &mixed, BOTH), PostError::ForeignBuffer);
    let foreign_list = list(&mut foreign_key, &[of_other], BOTH);
    assert_eq!(foreign_list, PostError::ForeignBuffer);
    let blocks = |count| memory.blocks(0, 8, 16, count).unwrap();
    let mut turns = |blocks: &[_]| batch.map_interleaved(1, &mut key, blocks, BOTH).unwrap_err();
    assert_eq!(turns(&[]), PostError::BadData);
    assert_eq!(turns(&[blocks(2), blocks(3)]), PostError::BadData);
    let four: [_; 4] = std::array::from_fn(|_| blocks(2));
    assert_eq!(turns(&four), PostError::TooManySges, "the head takes the place of one");
    assert_eq!(batch.unmap(1, &foreign_key), Err(PostError::ForeignBuffer));
    drop(batch);
    assert_eq!(key.rkey(), before, "nothing was posted");

    // Without room for such work requests.
    let mut plain = Side::new(&common::device(), &local(), |builder| builder);
    plain.qp.connect_to_self().unwrap();
    let memory = filled(&plain, 64, 1);
    let mut key = self::key(&plain, 1);
    let mut batch = plain.qp.batch();
    let refused = batch.map_list(1, &mut key, &[part(&memory, 8)], BOTH);
    assert_eq!(refused, Err(PostError::BadOperation));
    assert_eq!(batch.unmap(1, &key), Err(PostError::BadOperation));
}

/// Fifty-two parts, also over the end of the ring; and a queue that is shorter than that.
#[test]
fn as_many_parts_as_there_can_be() {
    if common::not_on_rdmavt("the device has no indirect keys") {
        return;
    }
    if common::not_on_rxe(NO_KEYS) {
        return;
    }
    let (mut client, server) = pair();
    let there = server.pd.expose(52 * 16, BOTH).unwrap();
    let memory = filled(&client, 52 * 100, 1);
    let mut key = key(&client, 52);
    let parts: Vec<_> = (0..52).map(|at| memory.part(at * 100, 16).unwrap()).collect();
    let blocks: Vec<_> = (0..51).map(|at| memory.blocks(at * 100, 8, 8, 2).unwrap()).collect();
    let all = bytes(&memory);
    let expected = parts.iter().enumerate().flat_map(|(at, _)| all[at * 100..][..16].to_vec());
    let expected: Vec<u8> = expected.collect();
    let halves = (0..2).flat_map(|half| (0..51).map(move |at| at * 100 + half * 8));
    let interleaved: Vec<u8> = halves.flat_map(|at| all[at..at + 8].to_vec()).collect();
    for round in 0..12 {
        let mut batch = client.qp.batch();
        let expected = if round % 2 == 0 {
            batch.map_list(1, &mut key, &parts, NOTHING).unwrap();
            &expected
        } else {
            batch.map_interleaved(1, &mut key, &blocks, NOTHING).unwrap();
            &interleaved
        };
        let len = expected.len();
        batch.write(2, key.part(0, len as u32).unwrap(), there.remote(0)).unwrap();
        batch.ring();
        assert_eq!([client.done().id, client.done().id], [1, 2]);
        assert!(bytes(&there)[..len] == expected[..], "{round}");
    }
    let ops = SendOpSet::of(uverbs::attr::QpType::Rc) | SendOpSet::REKEY;
    let mut small =
        Side::new(&common::device(), &local(), |builder| builder.max_send_wr(1).send_ops(ops));
    small.qp.connect_to_self().unwrap();
    let memory = filled(&small, 64, 1);
    let mut key = self::key(&small, 52);
    let parts: Vec<_> = (0..52).map(|_| memory.part(0, 1).unwrap()).collect();
    let mut batch = small.qp.batch();
    let refused = batch.map_list(1, &mut key, &parts, NOTHING);
    assert_eq!(refused, Err(PostError::TooManySges), "a ring of four units");
    batch.map_list(1, &mut key, &parts[..4], NOTHING).unwrap();
    batch.ring();
    assert_eq!(small.done().result, Ok(Completed::Rekey));
}

/// A raw post can name memory of another domain, or none.
#[test]
#[allow(unsafe_code, reason = "raw posts, over exposed memory that lives until the end")]
fn a_part_that_is_not_the_domains_is_refused_by_the_device() {
    if common::not_on_rdmavt("the device has no indirect keys") {
        return;
    }
    if common::not_on_rxe(NO_KEYS) {
        return;
    }
    for what in ["another domain's", "nobody's", "over the end"] {
        let (mut client, server) = pair();
        let there = server.pd.expose(64, BOTH).unwrap();
        let (memory, other) = (filled(&client, 64, 1), client.context.alloc_pd().unwrap());
        let foreign = other.expose(64, BOTH).unwrap();
        let good = memory.sge(0, 8);
        let bad = match what {
            "another domain's" => foreign.sge(0, 8),
            "nobody's" => Sge { lkey: 0xffff_fe00, ..good },
            _ => memory.sge(60, 8),
        };
        let key = key(&client, 2);
        let list = [good, bad];
        let (old, access) = (key.rkey(), AccessFlags::LOCAL_WRITE);
        let op = KeyLayout { old, new: old, access, parts: KeyParts::List(&list) };
        let mut batch = client.qp.batch();
        // SAFETY: all that is there lives until the queue pair is gone.
        unsafe { batch.raw().lay_out(1, &op) }.unwrap();
        let data = Data::One(Sge { addr: 0, len: 16, lkey: old });
        // SAFETY: all that is there lives until the queue pair is gone.
        unsafe { batch.raw().write(2, data, there.remote(0)) }.unwrap();
        batch.ring();
        // The layout itself is refused, or its use.
        let done = client.wait();
        let failed = if done.result.is_ok() { client.wait() } else { done };
        let known = [Some(Status::LocalProtection), Some(Status::MemoryWindowBind)];
        assert!(known.contains(&status(&failed)), "{what}: {failed:?}");
        assert_eq!(bytes(&there), [0; 64], "{what}");
    }
}

/// The key goes when its layout is over, so that its number isn't another's meanwhile.
#[test]
fn a_key_dropped_with_its_layout_outstanding_is_kept_until_that_is_over() {
    if !common::only_on_softhca("the test steps the device") {
        return;
    }
    let hca = SoftHca::builder().stepped().build().unwrap();
    let context = soft(&hca).open().unwrap();
    let pd = context.alloc_pd().unwrap();
    let mut cq = context.create_cq(64).unwrap();
    let mut qp = with_keys(context.queue_pair(&pd, &cq)).max_recv_wr(16).build().unwrap();
    qp.prepare(&local()).unwrap();
    qp.connect_to_self().unwrap();
    let memory = pd.expose(4096, NOTHING).unwrap();
    let mut key = context.alloc_indirect_key(&pd, 1).unwrap();
    let handle = key.handle();
    let mut batch = qp.batch();
    batch.map_list(1, &mut key, &[memory.part(0, 8).unwrap()], BOTH).unwrap();
    batch.ring();
    drop(key);
    let other = context.alloc_indirect_key(&pd, 1).unwrap();
    assert_ne!(other.handle(), handle, "the first still has its own");
    hca.step_until_idle(10_000);
    assert_eq!(cq.wait(LIMIT).unwrap().result, Ok(Completed::Rekey));
    let third = context.alloc_indirect_key(&pd, 1).unwrap();
    assert_eq!(third.handle(), handle, "it is free now");
}

#[test]
fn a_device_without_them_says_so() {
    if !common::is_rxe() {
        return;
    }
    let context = common::device().open().unwrap();
    let refused = context.alloc_indirect_key(&context.alloc_pd().unwrap(), 1);
    assert!(matches!(refused, Err(Error::Unsupported { verb: "alloc_mw", .. })), "{refused:?}");
}

/// Polling copies an inline CQE's data to the address that the work request names; a key's
/// addresses count from its beginning.
#[test]
fn what_a_completion_brings_is_not_copied_to_a_key() {
    if common::not_on_rdmavt("the device has no indirect keys") {
        return;
    }
    if common::not_on_rxe(NO_KEYS) {
        return;
    }
    let (mut client, mut server) =
        pair_with(&local(), |builder| with_keys(builder).scatter_to_cqe());
    let far = server.pd.expose(64, BOTH | AccessFlags::REMOTE_ATOMIC).unwrap();
    let near = filled(&client, 64, 1);
    let mut key = key(&client, 2);
    let parts = [near.part(0, 32).unwrap(), near.part(32, 32).unwrap()];
    map_list(&mut client, &mut key, &parts, NOTHING);
    let refused = PostError::BadOperation;
    let mut batch = client.qp.batch();
    let part = || key.part(0, 8).unwrap();
    assert_eq!(batch.read(1, part(), far.remote(0)).unwrap_err().error, refused);
    assert_eq!(batch.fetch_add(2, part(), far.remote(0), 1).unwrap_err().error, refused);
    let swapped = batch.compare_swap(3, part(), far.remote(0), 0, 1);
    assert_eq!(swapped.unwrap_err().error, refused);
    batch.ring();
    assert_eq!(client.qp.post_recv(4, part()).unwrap_err().error, refused);
    // Without inline CQEs nothing is copied, and the receive works.
    server.qp.post_recv(5, server.pd.slab(64, 1).unwrap().take().unwrap()).unwrap();
    let mut batch = client.qp.batch();
    batch.send(6, part()).unwrap();
    batch.ring();
    assert_eq!(client.done().result, Ok(Completed::Send));
    assert_eq!(server.done().frame.unwrap()[..], pattern(64, 1)[..8]);
}

/// A length of 0 is one of 2 GiB elsewhere in work requests.
#[test]
fn empty_parts_are_left_out() {
    if common::not_on_rdmavt("the device has no indirect keys") {
        return;
    }
    if common::not_on_rxe(NO_KEYS) {
        return;
    }
    let (mut client, server) = pair();
    let (here, there) = (filled(&client, 64, 1), filled(&client, 64, 2));
    let far = server.pd.expose(64, BOTH).unwrap();
    let mut key = key(&client, 3);
    let parts = [here.part(0, 0), there.part(8, 16), here.part(4, 0)].map(Result::unwrap);
    map_list(&mut client, &mut key, &parts, NOTHING);
    let mut batch = client.qp.batch();
    batch.write(1, key.part(0, 16).unwrap(), far.remote(0)).unwrap();
    batch.ring();
    assert_eq!(client.done().result, Ok(Completed::Write));
    assert_eq!(bytes(&far)[..16], pattern(64, 2)[8..24]);
}

//! Reliable connection: every operation, at every size that is special, byte for byte.
#![allow(unsafe_code, reason = "raw posts are part of what is tested")]

use common::{Side, pair, pair_with, pattern};
use uverbs::raw::{Data, Sge};
use uverbs::{AccessFlags, Completed, DoorbellMode, ExposedMemory, Wr};

/// Message lengths around zero, one packet, several packets, and many.
const SIZES: [usize; 12] = [0, 1, 15, 16, 17, 255, 4095, 4096, 4097, 8192, 65_537, 1 << 20];

fn exposed(side: &Side, len: usize) -> ExposedMemory {
    let access = AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_ATOMIC;
    side.pd.expose(len, access).expect("expose")
}

fn contents(memory: &ExposedMemory, offset: usize, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    memory.read(offset, &mut bytes).expect("in range");
    bytes
}

#[test]
fn send_arrives_at_every_size_with_and_without_immediate_data() {
    let (mut client, mut server) = pair();
    for (round, size) in SIZES.into_iter().enumerate() {
        let seed = round as u8;
        for imm in [None, Some(0x0102_0304 + round as u32)] {
            server.expect(round as u64, size);
            let frame = client.filled(size, seed);
            let mut batch = client.qp.batch();
            match imm {
                None => batch.send(77, frame).unwrap(),
                Some(imm) => batch.send_imm(77, frame, imm).unwrap(),
            }
            batch.ring();
            let received = server.done();
            assert_eq!(received.id, round as u64);
            assert_eq!(received.result, Ok(Completed::Recv));
            assert_eq!((received.byte_len as usize, received.immediate), (size, imm));
            assert_eq!(received.qpn, server.qp.qpn());
            assert!(received.is_recv);
            let frame = received.frame.expect("the frame comes back");
            assert!(*frame == pattern(size, seed)[..], "{size} bytes differ");
            let sent = client.done();
            assert_eq!((sent.id, sent.result), (77, Ok(Completed::Send)));
            assert!(*sent.frame.expect("the frame comes back") == pattern(size, seed)[..]);
        }
    }
}

#[test]
fn write_and_read_move_every_size() {
    let (mut client, server) = pair();
    let memory = exposed(&server, (1 << 20) + 64);
    for (round, size) in SIZES.into_iter().enumerate() {
        let seed = round as u8 + 100;
        memory.write(0, &vec![0xee; size + 64]).unwrap();
        let frame = client.filled(size, seed);
        let mut batch = client.qp.batch();
        batch.write(1, frame, memory.remote(32)).unwrap();
        batch.ring();
        assert_eq!(client.done().result, Ok(Completed::Write));
        assert!(contents(&memory, 32, size) == pattern(size, seed), "{size} bytes differ");
        assert_eq!(contents(&memory, 0, 32), [0xee; 32], "nothing before");
        assert_eq!(contents(&memory, 32 + size, 32), [0xee; 32], "nothing behind");

        let frame = client.filled(size, 0);
        let mut batch = client.qp.batch();
        batch.read(2, frame, memory.remote(32)).unwrap();
        batch.ring();
        let read = client.done();
        assert_eq!(read.result, Ok(Completed::Read));
        assert_eq!(read.byte_len as usize, size);
        assert!(*read.frame.unwrap() == pattern(size, seed)[..], "{size} bytes differ");
    }
}

#[test]
fn write_with_immediate_uses_up_a_receive() {
    let (mut client, mut server) = pair();
    let memory = exposed(&server, 8192);
    for size in [0, 1, 5000] {
        server.expect(3, 16);
        let frame = client.filled(size, 9);
        let mut batch = client.qp.batch();
        batch.write_imm(4, frame, memory.remote(0), 0xdead_beef).unwrap();
        batch.ring();
        let received = server.done();
        assert_eq!(received.result, Ok(Completed::RecvWriteImm));
        assert_eq!((received.id, received.immediate), (3, Some(0xdead_beef)));
        assert_eq!(received.byte_len as usize, size);
        assert!(contents(&memory, 0, size) == pattern(size, 9));
        client.done();
    }
}

#[test]
fn atomics_return_the_old_value_and_change_it_once() {
    let (mut client, server) = pair();
    let memory = exposed(&server, 64);
    memory.store(8, 1000).unwrap();
    let slab = client.slab(8, 1);
    let mut old = |post: &dyn Fn(&mut uverbs::Batch<'_>, uverbs::Frame), expected| {
        let mut batch = client.qp.batch();
        post(&mut batch, slab.take().expect("the one frame is back"));
        batch.ring();
        let done = client.done();
        assert_eq!((done.result, done.byte_len), (Ok(expected), 8));
        u64::from_ne_bytes(done.frame.unwrap()[..8].try_into().unwrap())
    };
    let at = memory.remote(8);
    let mut add = |value| {
        old(&|batch, frame| batch.fetch_add(1, frame, at, value).unwrap(), Completed::FetchAdd)
    };
    assert_eq!(add(5), 1000);
    assert_eq!(add(u64::MAX), 1005, "wraps");
    let mut swap = |compare, value| {
        let post = |batch: &mut uverbs::Batch<'_>, frame| {
            batch.compare_swap(1, frame, at, compare, value).unwrap();
        };
        old(&post, Completed::CompareSwap)
    };
    assert_eq!(swap(1004, 7), 1004, "equal: swapped");
    assert_eq!(swap(1004, 8), 7, "not equal: left");
    assert_eq!(memory.load(8), Ok(7));
    assert_eq!((memory.load(0), memory.load(16)), (Ok(0), Ok(0)), "neighbours are left alone");
}

#[test]
fn inline_data_of_every_length_is_copied_when_posted() {
    let (mut client, mut server) = pair_with(&common::local(), |qp| qp.max_inline_data(200));
    let limit = client.qp.cap().max_inline_data as usize;
    assert!(limit >= 200);
    let memory = exposed(&server, 4096);
    // Enough of them to pass the end of the ring at every alignment.
    for size in 0..=limit {
        let seed = size as u8;
        server.expect(1, limit);
        let mut data = pattern(size, seed);
        let mut batch = client.qp.batch();
        batch.send_inline(2, &data).unwrap();
        batch.write_inline(Wr::new(3), &data, memory.remote(0)).unwrap();
        data.fill(0);
        batch.ring();
        let received = server.done();
        assert!(*received.frame.unwrap() == pattern(size, seed)[..], "{size} bytes differ");
        assert_eq!((client.done().id, client.done().id), (2, 3));
        assert!(contents(&memory, 0, size) == pattern(size, seed), "{size} bytes differ");
    }
    let mut batch = client.qp.batch();
    let error = batch.send_inline(2, &vec![0; limit + 1]).unwrap_err();
    assert_eq!(error, uverbs::PostError::InlineTooLong);
}

#[test]
fn gather_and_scatter_lists_of_every_length_pass_the_rings_end() {
    const MAX: usize = 6;
    let (mut client, mut server) =
        pair_with(&common::local(), |qp| qp.max_send_wr(8).max_send_sge(6).max_recv_sge(6));
    let (out, into) = (exposed(&client, 4096), exposed(&server, 4096));
    out.write(0, &pattern(4096, 5)).unwrap();
    for round in 0..64 {
        let pieces = round % (MAX + 1);
        // Pieces of different lengths, some of them empty, in an irregular order.
        let sizes: Vec<usize> = (0..pieces).map(|piece| (piece * 37 + round * 11) % 150).collect();
        let total: usize = sizes.iter().sum();
        let mut at = 0;
        let gather: Vec<Sge> = sizes
            .iter()
            .map(|&size| {
                at += 160;
                out.sge(at, size as u32)
            })
            .collect();
        let expected: Vec<u8> = (0..pieces)
            .flat_map(|piece| {
                let start = 160 * (piece + 1);
                pattern(4096, 5)[start..start + sizes[piece]].to_vec()
            })
            .collect();
        into.write(0, &[0; 4096]).unwrap();
        // The receive is cut elsewhere: 100 bytes a piece, in falling order of address.
        let scatter: Vec<Sge> = (0..MAX).map(|piece| into.sge(3000 - piece * 300, 200)).collect();
        let mut batch = server.qp.recv_batch();
        // SAFETY: the memory outlives the queue pairs, and only `read` and `write` look at it.
        unsafe { batch.post_raw(1, &scatter) }.unwrap();
        batch.ring();
        let mut batch = client.qp.batch();
        // SAFETY: the memory outlives the queue pairs, and only `read` and `write` look at it.
        unsafe { batch.raw().send(2, Data::List(&gather)) }.unwrap();
        batch.ring();
        let received = server.done();
        assert_eq!(received.byte_len as usize, total, "round {round}");
        client.done();
        let got: Vec<u8> =
            (0..MAX).flat_map(|piece| contents(&into, 3000 - piece * 300, 200)).collect();
        assert!(got[..total] == expected[..], "round {round}: {pieces} pieces differ");
        assert!(got[total..].iter().all(|&byte| byte == 0), "round {round}: too much written");
    }
}

#[test]
fn chains_with_unsignaled_and_fenced_requests_complete_in_order() {
    let (mut client, server) = pair();
    let memory = exposed(&server, 4096);
    memory.store(0, 10).unwrap();
    let slab = client.slab(64, 16);
    for round in 0..40u64 {
        let mut batch = client.qp.batch();
        let value = (round + 1).to_ne_bytes();
        batch.write_inline(Wr::new(1).unsignaled(), &value, memory.remote(64)).unwrap();
        let mut frame = slab.take().unwrap();
        frame.set_len(8);
        batch.read(2, frame, memory.remote(64)).unwrap();
        // Without the fence this could overtake the READ.
        batch
            .write_inline(Wr::new(3).fenced(), &u64::MAX.to_ne_bytes(), memory.remote(64))
            .unwrap();
        let mut frame = slab.take().unwrap();
        frame.set_len(8);
        batch.fetch_add(Wr::new(4).unsignaled(), frame, memory.remote(0), 1).unwrap();
        let mut frame = slab.take().unwrap();
        frame.set_len(8);
        batch.fetch_add(5, frame, memory.remote(0), 1).unwrap();
        batch.ring();
        let read = client.done();
        assert_eq!(read.id, 2, "the unsignaled write makes no completion");
        assert_eq!(
            *read.frame.unwrap(),
            value,
            "the READ saw the first WRITE and not the fenced one"
        );
        assert_eq!(client.done().id, 3);
        let added = client.done();
        assert_eq!(added.id, 5);
        assert_eq!(added.frame.unwrap()[..8], (11 + 2 * round).to_ne_bytes());
    }
    assert_eq!(memory.load(0), Ok(90));
    // The frames of the unsignaled requests went back to the slab.
    assert_eq!(std::iter::from_fn(|| slab.take().map(std::mem::forget)).count(), 16);
}

#[test]
fn both_doorbell_modes_and_long_batches_reach_the_device() {
    for mode in [DoorbellMode::BlueFlame, DoorbellMode::NonCached] {
        let (mut client, server) = pair_with(&common::local(), |qp| qp.doorbell(mode));
        let memory = exposed(&server, 8 * 1024);
        let mut sent = 0u64;
        for len in [1u64, 2, 31, 32, 1, 1, 64, 100] {
            let mut batch = client.qp.batch();
            for _ in 0..len {
                sent += 1;
                let to = memory.remote((sent % 1024) as usize * 8);
                batch.write_inline(sent, &sent.to_ne_bytes(), to).unwrap();
            }
            batch.ring();
            for id in sent - len + 1..=sent {
                assert_eq!(client.done().id, id, "{mode:?}");
            }
        }
        for value in 1..=sent {
            assert_eq!(memory.load(value as usize * 8), Ok(value), "{mode:?}");
        }
    }
}

#[test]
fn the_three_ways_of_polling_agree() {
    let (mut client, server) = pair();
    let memory = exposed(&server, 64);
    let post = |client: &mut Side| {
        let mut batch = client.qp.batch();
        for id in 0..8 {
            batch.write_inline(id, &[1], memory.remote(0)).unwrap();
        }
        batch.ring();
    };
    let started = std::time::Instant::now();

    post(&mut client);
    let mut ids = Vec::new();
    while ids.len() < 8 && started.elapsed() < common::LIMIT {
        let mut burst = client.cq.poll(3);
        while let Some(completion) = burst.next() {
            assert_eq!(completion.result(), Ok(Completed::Write));
            ids.push(completion.id());
        }
    }
    assert_eq!(ids, (0..8).collect::<Vec<_>>());

    post(&mut client);
    ids.clear();
    while ids.len() < 8 && started.elapsed() < common::LIMIT {
        let before = ids.len();
        let count = client.cq.poll_with(3, |completion| ids.push(completion.id()));
        assert!(count <= 3 && ids.len() == before + count);
    }
    assert_eq!(ids, (0..8).collect::<Vec<_>>());

    post(&mut client);
    ids.clear();
    let mut places: [uverbs::WorkCompletion; 3] = Default::default();
    while ids.len() < 8 && started.elapsed() < common::LIMIT {
        let count = client.cq.poll_into(&mut places);
        ids.extend(places[..count].iter().map(|completion| completion.id));
    }
    assert_eq!(ids, (0..8).collect::<Vec<_>>());
}

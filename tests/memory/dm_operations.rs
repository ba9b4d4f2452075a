//! Operations on device memory: effects of a processor's access at their addresses.

use std::sync::Arc;
use std::thread;

use uverbs::memory::{DeviceMemory, DmOp, DmOperation};
use uverbs::{Error, OutOfRange};

/// Device memory, an increment on it and a test-and-set. `None`: the device does not support these.
fn operations(len: usize) -> Option<(DeviceMemory, DmOperation, DmOperation)> {
    let context = common::device().open().expect("open");
    let memory = match context.alloc_device_memory(len, 0) {
        Err(Error::Unsupported { verb: "alloc_dm", .. }) => {
            common::skip("the device has no device memory");
            return None;
        }
        made => made.expect("alloc_dm"),
    };
    let increment = match memory.map_operation(DmOp::INCREMENT) {
        Err(Error::Unsupported { verb: "dm_map_op_addr", what }) => {
            assert_eq!(what, "operation 0 on device memory");
            common::skip("the device has no operations on its memory");
            return None;
        }
        mapped => mapped.expect("an increment"),
    };
    let set = memory.map_operation(DmOp::TEST_AND_SET).expect("a test-and-set");
    memory.write(0, &vec![0; len]).expect("cleared");
    Some((memory, increment, set))
}

fn byte(memory: &DeviceMemory, offset: usize) -> u8 {
    let mut word = [0; 4];
    memory.read(offset / 4 * 4, &mut word).expect("read");
    word[offset % 4]
}

#[test]
fn increments_add_and_a_test_and_set_tells_and_sets() {
    let Some((memory, increment, set)) = operations(6016) else { return };
    assert_eq!((increment.op(), set.op().raw()), (DmOp::INCREMENT, 1));
    // Also behind the first page.
    for offset in [0, 1, 6, 4095, 4096, 6015] {
        increment.write(offset, 2).expect("add");
        increment.write(offset, 250).expect("add");
        assert_eq!(byte(&memory, offset), 252);
        increment.write(offset, 7).expect("add");
        assert_eq!(byte(&memory, offset), 3, "it counts round");
        assert_eq!(set.read(offset), Ok(3));
        assert_eq!(byte(&memory, offset), 1);
        assert_eq!(set.read(offset), Ok(1));
    }
    assert_eq!((byte(&memory, 2), byte(&memory, 5)), (0, 0), "neighbours stay");
}

#[test]
fn threads_lose_no_increment() {
    let Some((memory, increment, _)) = operations(64) else { return };
    let increment = Arc::new(increment);
    let all = (0..4).map(|_| {
        let increment = Arc::clone(&increment);
        thread::spawn(move || (0..25).for_each(|_| increment.write(9, 2).expect("add")))
    });
    all.collect::<Vec<_>>().into_iter().for_each(|one| one.join().expect("it ends"));
    assert_eq!(byte(&memory, 9), 200);
}

#[test]
fn one_lock_has_one_owner() {
    let Some((_, _, set)) = operations(64) else { return };
    let set = Arc::new(set);
    let all = (0..4).map(|_| {
        let set = Arc::clone(&set);
        thread::spawn(move || (0..64).filter(|at| set.read(*at) == Ok(0)).count())
    });
    let owners: usize =
        all.collect::<Vec<_>>().into_iter().map(|one| one.join().expect("it ends")).sum();
    assert_eq!(owners, 64, "each byte was free once");
}

#[test]
fn what_is_not_there_is_refused_by_name() {
    let Some((memory, increment, set)) = operations(64) else { return };
    for offset in [64, 4096, usize::MAX] {
        let wanted = Error::OutOfRange(OutOfRange { offset, wanted: 1, len: 64 });
        assert_eq!(increment.write(offset, 1), Err(wanted.clone()));
        assert_eq!(set.read(offset), Err(wanted));
    }
    for op in [31, 200] {
        let error = memory.map_operation(DmOp::from_raw(op)).expect_err("no device has it");
        assert!(matches!(error, Error::Unsupported { verb: "dm_map_op_addr", .. }), "{error}");
    }
    // The addresses keep the memory, and one asks for them again.
    let again = memory.map_operation(DmOp::INCREMENT).expect("mapped twice");
    drop((increment, memory));
    again.write(3, 4).expect("add");
    assert_eq!(set.read(3), Ok(4));
}

//! Arbitrary bytes end in an errno or success, never in a panic or hang.

use std::sync::OnceLock;

use crate::SoftHca;
use proptest::prelude::*;
use uverbs_kernel_abi::ioctl::{ib_uverbs_attr, ib_uverbs_ioctl_hdr};
use uverbs_kernel_abi::objects::*;

use super::rig::*;

/// Existing objects and methods, and some that do not exist.
const METHODS: &[(u16, u16)] = &[
    (0, 0),
    (0, 2),
    (0, 3),
    (0, 4),
    (0, 5),
    (0, 6),
    (1, 0),
    (3, 0),
    (3, 1),
    (4, 0),
    (4, 1),
    (6, 0),
    (7, 1),
    (7, 3),
    (16, 0),
    (0x1000, 0x1000),
    (0x1008, 0x1000),
    (0x1008, 0x1001),
    (5, 0),
    (0x1003, 0x1000),
];

fn arena() -> &'static (u64, u64) {
    static ARENA: OnceLock<(u64, u64)> = OnceLock::new();
    ARENA.get_or_init(|| Arena::new(1 << 20).range())
}

fn data() -> impl Strategy<Value = u64> {
    let (base, len) = *arena();
    prop_oneof![
        4 => (0..len).prop_map(move |at| base + at),
        4 => 0..8u64,
        2 => (0..64u64).prop_map(|bit| 1 << bit),
        // Numbers of write commands that random bytes would hardly meet.
        2 => prop::sample::select(vec![9, 25, 26, 1 | 1 << 31, 26 | 1 << 31]),
        1 => any::<u64>(),
        1 => Just(base + len - 3),
    ]
}

fn attr() -> impl Strategy<Value = ib_uverbs_attr> {
    let id = prop_oneof![8 => 0..15u16, 4 => 0x1000..0x1005u16, 1 => any::<u16>()];
    let len = prop_oneof![
        4 => prop::sample::select(vec![0u16, 4, 8, 16, 20, 32, 40, 48, 56, 112, 128, 176, 304]),
        1 => 0..600u16,
        1 => any::<u16>()
    ];
    (id, len, 0..4u16, data(), prop::bool::weighted(0.03)).prop_map(
        |(attr_id, len, flags, data, odd)| ib_uverbs_attr {
            attr_id,
            len,
            flags,
            attr_data: [u8::from(odd), 0],
            data,
        },
    )
}

fn command() -> impl Strategy<Value = Cmd> {
    let method =
        prop_oneof![12 => prop::sample::select(METHODS.to_vec()), 1 => any::<(u16, u16)>()];
    (method, prop::collection::vec(attr(), 0..16)).prop_map(|((object_id, method_id), attrs)| Cmd {
        header: ib_uverbs_ioctl_hdr { object_id, method_id, driver_id: 1, ..Default::default() },
        attrs,
    })
}

/// Closes the descriptors that a command opened, so that thousands of cases don't exhaust them.
fn close_new_files(cmd: &Cmd, attrs: &[ib_uverbs_attr]) {
    if cmd.header.object_id == UVERBS_OBJECT_ASYNC_EVENT {
        let id = UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE;
        let fd = attrs.iter().find(|attr| attr.attr_id == id).unwrap().data_s64();
        nix::unistd::close(i32::try_from(fd).unwrap()).unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 256,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn plausible_commands(
        context in any::<bool>(),
        commands in prop::collection::vec(command(), 1..24),
    ) {
        let rig = Rig::bare(SoftHca::builder().stepped().memlock_limit(1 << 20));
        if context {
            rig.get_context().send(rig.door()).unwrap();
            rig.pd();
            let uar = rig.uar();
            rig.cq(uar.page_id, 3);
        }
        for cmd in &commands {
            if let Ok(attrs) = cmd.send(rig.door()) {
                close_new_files(cmd, &attrs);
            }
        }
        rig.hca.step_until_idle(100);
        let hca = rig.hca.clone();
        drop(rig);
        prop_assert_eq!(hca.pinned_bytes(), 0);
    }

    #[test]
    fn words_without_sense(mut words in prop::collection::vec(any::<u64>(), 0..40)) {
        let rig = Rig::new();
        // SAFETY: the device answers wild addresses with EFAULT.
        let _ = unsafe { rig.door().ioctl(&mut words) };
    }

    /// A correct command with one change: it works, or it is refused and leaves no state.
    #[test]
    fn spoilt_commands(which in 0..3usize, at in any::<prop::sample::Index>(), bit in 0..128u32) {
        let rig = Rig::new();
        let (pd, uar) = (rig.pd(), rig.uar());
        let cq = rig.cq(uar.page_id, 3);
        let cmd = match which {
            0 => rig.uar_cmd().0,
            1 => rig.cq_cmd(uar.page_id, 3).0,
            _ => rig.qp_cmd(uar.page_id, pd, cq.handle).0,
        };
        let before = rig.hca.pinned_bytes();
        let mut cmd = cmd;
        let attr = at.get(&cmd.attrs);
        let mut value = u128::from_ne_bytes(zerocopy::transmute!(*attr));
        value ^= 1 << bit;
        let spoilt: ib_uverbs_attr = zerocopy::transmute!(value.to_ne_bytes());
        let index = at.index(cmd.attrs.len());
        cmd.attrs[index] = spoilt;
        if cmd.send(rig.door()).is_err() {
            prop_assert_eq!(rig.hca.pinned_bytes(), before);
            let next = rig.pd();
            prop_assert_eq!(next, 3);
        }
    }
}

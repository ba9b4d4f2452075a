//! Many objects, one after the other and from several threads: nothing is left of any.
//!
//! `UVERBS_TEST_OBJECTS` is how many of each; ten thousand unless said otherwise.

mod common;

use std::fs;
use std::process::Command;
use std::thread;

use common::{local, soft};
use uverbs::softhca::SoftHca;
use uverbs::{AccessFlags, Context, Device};
use uverbs_kernel_abi::mlx5::MLX5_IB_OBJECT_UAR;

const THREADS: usize = 4;

fn count() -> usize {
    std::env::var("UVERBS_TEST_OBJECTS").map_or(10_000, |count| count.parse().unwrap())
}

/// Makes and drops `count` of each object on one open device.
fn churn(context: &Context, count: usize) {
    let pd = context.alloc_pd().unwrap();
    let port = context.local_port(&local()).unwrap();
    let channel = context.create_comp_channel().unwrap();
    for _ in 0..count {
        drop(context.alloc_pd().unwrap());
    }
    for _ in 0..count {
        drop(context.create_comp_channel().unwrap());
    }
    for _ in 0..count {
        drop(pd.expose(64, AccessFlags::REMOTE_WRITE).unwrap());
    }
    for _ in 0..count {
        drop(context.completion_queue(4).channel(&channel).build().unwrap());
    }
    let cq = context.completion_queue(64).channel(&channel).build().unwrap();
    for index in 0..count {
        let builder = context.queue_pair(&pd, &cq).max_send_wr(4).max_recv_wr(4);
        let mut qp = builder.build().unwrap();
        match index % 3 {
            // Dropped in RESET, after it was brought up, or destroyed by name with a receive in it.
            0 => drop(qp),
            1 => {
                let endpoint = qp.prepare_on(&port).unwrap();
                qp.connect(&endpoint).unwrap();
            }
            _ => {
                qp.prepare_on(&port).unwrap();
                qp.post_recv(1, pd.slab(64, 1).unwrap().take().unwrap()).unwrap();
                drop(qp.destroy().unwrap());
            }
        }
    }
}

/// Objects and pinned bytes.
const NOTHING: (usize, u64) = (0, 0);

/// What a software HCA has. Doorbell pages don't count: they are taken when queues need them, up to
/// 16 registers and the page that all share, and kept until the device is closed.
fn left(hca: &SoftHca) -> (usize, u64) {
    let mut objects = hca.objects();
    let pages = objects.remove(&MLX5_IB_OBJECT_UAR).unwrap_or(0);
    assert!(pages <= 17, "{pages} doorbell pages");
    (objects.values().sum(), hca.pinned_bytes())
}

/// Objects of each kind that the kernel's resource tracking knows of the device.
fn tracked(device: &Device) -> Option<String> {
    let output = Command::new("rdma").args(["resource", "show"]).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let name = format!(" {}: ", device.name());
    text.lines().find(|line| line.contains(&name)).map(str::to_owned)
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn of_ten_thousand_of_each_nothing_is_left() {
    let device = common::device();
    let before = tracked(&device);
    if before.is_none() {
        common::skip("its count by the kernel: no resource tracking of this device here");
    }
    let hca = SoftHca::builder().build().unwrap();
    let on_softhca = std::env::var_os("UVERBS_TEST_DEVICE").is_none();
    let device = if on_softhca { soft(&hca) } else { device };
    // Once before: what is opened for good at the first use is no leak.
    churn(&device.open().unwrap(), 1);
    let open = descriptors();
    let context = device.open().unwrap();
    churn(&context, count());
    assert_eq!(left(&hca), NOTHING, "one after the other");
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| churn(&context, count() / THREADS));
        }
    });
    assert_eq!(left(&hca), NOTHING, "in parallel");
    drop(context);
    assert_eq!((hca.objects().len(), hca.pinned_bytes()), (0, 0), "the device is closed");
    assert_eq!(descriptors(), open, "open files");
    assert_eq!(tracked(&device), before, "the kernel's count");
}

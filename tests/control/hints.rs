//! Refusals of a kernel, each by the command that Linux refuses so: the error names the cause.

use std::sync::Arc;

use common::{local, only_on_softhca};
use uverbs::attr::{GlobalRoute, Path};
use uverbs::softhca::SoftHca;
use uverbs::unstable::doors::{DeviceRecord, DeviceSource, Faulty, UverbsDoor};
use uverbs::{AccessFlags, AhAttr, Context, Device, Errno, Error, ProtectionDomain};
use uverbs_kernel_abi::objects as abi;
use uverbs_kernel_abi::write::{
    IB_USER_VERBS_CMD_ALLOC_PD, IB_USER_VERBS_CMD_CREATE_AH, IB_USER_VERBS_CMD_MODIFY_QP,
    IB_USER_VERBS_CMD_REG_MR,
};

/// A device whose kernel refuses what it is told to.
#[derive(Debug)]
struct Refusing {
    hca: SoftHca,
    door: Arc<Faulty>,
}

impl DeviceSource for Refusing {
    fn record(&self) -> &DeviceRecord {
        self.hca.record()
    }

    fn open(&self) -> Result<Arc<dyn UverbsDoor>, Errno> {
        Ok(Arc::clone(&self.door) as _)
    }

    fn pkey(&self, port: u8, index: u16) -> Result<u16, Errno> {
        self.hca.pkey(port, index)
    }
}

fn refusing() -> (Arc<Faulty>, Device) {
    let hca = SoftHca::builder().build().unwrap();
    let door = Arc::new(Faulty::new(hca.open().unwrap()));
    let source = Refusing { hca, door: Arc::clone(&door) };
    (door, Device::from_source(Arc::new(source)))
}

/// Opens the device, whose kernel then refuses one command, and returns the error of `act`.
fn refused<T: std::fmt::Debug>(
    refuse: impl FnOnce(&Faulty),
    act: impl FnOnce(&Context, &ProtectionDomain) -> Result<T, Error>,
) -> Error {
    let (door, device) = refusing();
    let context = device.open().unwrap();
    let pd = context.alloc_pd().unwrap();
    refuse(&door);
    let error = act(&context, &pd).unwrap_err();
    assert_eq!(door.pending(), 0, "the kernel refused nothing: {error}");
    error
}

fn check(error: &Error, errno: Errno, word: &str) {
    assert_eq!(error.errno(), Some(errno), "{error}");
    assert!(error.to_string().contains(word), "{error}");
}

/// Error of opening a device whose kernel refuses GET_CONTEXT, with DEVX and without.
fn not_opened(errno: Errno) -> Error {
    let (door, device) = refusing();
    door.fail(abi::UVERBS_OBJECT_DEVICE, abi::UVERBS_METHOD_GET_CONTEXT, 1, errno);
    door.fail(abi::UVERBS_OBJECT_DEVICE, abi::UVERBS_METHOD_GET_CONTEXT, 1, errno);
    let error = device.open().unwrap_err();
    assert_eq!(door.pending(), 0);
    error
}

fn queue_pair(context: &Context, pd: &ProtectionDomain) -> Result<uverbs::QueuePair, Error> {
    let cq = context.create_cq(256)?;
    context.queue_pair(pd, &cq).build()
}

/// Kernel `core/cgroup.c`.
#[test]
fn the_rdma_cgroups_limit_is_named() {
    if !only_on_softhca("the kernel is the test's") {
        return;
    }
    let errno = Errno::EAGAIN;
    check(&not_opened(errno), errno, "rdma.max");
    let (qp, cq) = (abi::UVERBS_OBJECT_QP, abi::UVERBS_OBJECT_CQ);
    let errors = [
        refused(|door| door.fail(qp, abi::UVERBS_METHOD_QP_CREATE, 1, errno), queue_pair),
        refused(
            |door| door.fail(cq, abi::UVERBS_METHOD_CQ_CREATE, 1, errno),
            |context, _| context.create_cq(256),
        ),
        refused(
            |door| door.fail_write(IB_USER_VERBS_CMD_REG_MR, 1, errno),
            |_, pd| pd.expose(64, AccessFlags::REMOTE_WRITE),
        ),
        refused(
            |door| door.fail_write(IB_USER_VERBS_CMD_ALLOC_PD, 1, errno),
            |context, _| context.alloc_pd(),
        ),
    ];
    errors.iter().for_each(|error| check(error, errno, "rdma.max"));
}

/// Kernel `core/security.c`, `uverbs_cmd.c:modify_qp`, `core/addr.c:addr_resolve_neigh`.
#[test]
fn the_reasons_of_a_refused_change_of_state_are_named() {
    if !only_on_softhca("the kernel is the test's") {
        return;
    }
    for (errno, word) in
        [(Errno::EACCES, "SELinux"), (Errno::EPERM, "Q_Key"), (Errno::ETIMEDOUT, "ip neigh")]
    {
        let error = refused(
            |door| door.fail_write(IB_USER_VERBS_CMD_MODIFY_QP, 1, errno),
            |context, pd| queue_pair(context, pd)?.prepare(&local()),
        );
        assert!(error.to_string().starts_with("modify_qp"), "{error}");
        check(&error, errno, word);
    }
    let errno = Errno::ETIMEDOUT;
    let error = refused(
        |door| door.fail_write(IB_USER_VERBS_CMD_CREATE_AH, 1, errno),
        |context, pd| {
            let own = context.query_gid(1, 0)?.gid;
            let grh = GlobalRoute {
                dgid: own,
                sgid_index: 0,
                hop_limit: 1,
                traffic_class: 0,
                flow_label: 0,
            };
            let path = Path {
                dlid: 0,
                grh: Some(grh),
                service_level: 0,
                src_path_bits: 0,
                static_rate: 0,
            };
            context.create_ah(pd, &AhAttr { port: 1, path })
        },
    );
    check(&error, errno, "ip neigh");
}

/// Kernel `uverbs_main.c:ib_uverbs_open`.
#[test]
fn the_network_namespace_of_a_device_is_named() {
    #[derive(Debug)]
    struct Elsewhere(DeviceRecord);
    impl DeviceSource for Elsewhere {
        fn record(&self) -> &DeviceRecord {
            &self.0
        }
        fn open(&self) -> Result<Arc<dyn UverbsDoor>, Errno> {
            Err(Errno::EPERM)
        }
        fn pkey(&self, _: u8, _: u16) -> Result<u16, Errno> {
            Err(Errno::EPERM)
        }
    }
    let device = Device::from_source(Arc::new(Elsewhere(DeviceRecord::new("mlx5_0", 1))));
    check(&device.open().unwrap_err(), Errno::EPERM, "netns");
}

/// Kernel `cmd.c:mlx5_cmd_do`.
#[test]
fn a_refusal_by_firmware_says_where_its_reason_is() {
    if !only_on_softhca("the kernel is the test's") {
        return;
    }
    let errno = Errno::EREMOTEIO;
    let srq = abi::UVERBS_OBJECT_SRQ;
    let error = refused(
        |door| door.fail(srq, abi::UVERBS_METHOD_SRQ_CREATE, 1, errno),
        |context, pd| context.shared_receive_queue(pd).build(),
    );
    check(&error, errno, "dmesg");
}

/// Linux has GET_CONTEXT as an ioctl since 5.6, and QP_CREATE since 5.8. Before 5.7 the doorbell
/// pages of mlx5_ib are static.
#[test]
fn a_kernel_that_is_too_old_is_named() {
    if !only_on_softhca("the kernel is the test's") {
        return;
    }
    let errno = Errno::EPROTONOSUPPORT;
    check(&not_opened(errno), errno, "Linux 5.8");
    let qp = abi::UVERBS_OBJECT_QP;
    let error = refused(|door| door.fail(qp, abi::UVERBS_METHOD_QP_CREATE, 1, errno), queue_pair);
    check(&error, errno, "Linux 5.8");
}

//! Door of a program to the connection manager of its software HCA.

use std::sync::Arc;

use uverbs_core::Errno;
use uverbs_core::doors::cm::CmDoor;
use uverbs_front::cm_door::CmFile;
use uverbs_front::door::Runner;

use crate::handle::Handle;
use crate::hca::Hca;
use crate::model::Kernel;
use crate::progress;

/// Device of a door.
struct Opener(Handle);

impl Runner for Opener {
    type Device = Hca;

    fn change<T>(&self, act: impl FnOnce(&mut Kernel) -> T) -> T {
        self.0.change(act)
    }

    fn look<T>(&self, act: impl FnOnce(&Kernel) -> T) -> T {
        act(&self.0.lock())
    }

    fn progress(&self) {
        progress::work(&self.0);
    }

    fn send_off(&self) {
        self.0.send_off();
    }

    fn leave(&self) {
        self.0.leave();
    }
}

/// Opens a door of the device's connection manager.
///
/// # Errors
///
/// `ENODEV` if the device is gone; the system's error if it has no more descriptors.
pub(crate) fn open(device: &Handle) -> Result<Arc<dyn CmDoor>, Errno> {
    Ok(Arc::new(CmFile::open(Opener(device.clone()))?))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::{Duration, Instant};

    use uverbs_core::doors::DeviceSource;
    use uverbs_core::doors::cm::CmCommand;
    use uverbs_kernel_abi::rdma_cm::*;
    use zerocopy::{FromBytes, IntoBytes};

    use super::*;
    use crate::SoftHca;
    use crate::wire::{Frame, Wire, WireFull};

    /// Wire that refuses all frames for a while after the first was offered.
    #[derive(Debug)]
    struct Slow {
        since: Option<Instant>,
        taken: Arc<AtomicUsize>,
    }

    impl Wire for Slow {
        fn transmit(&mut self, frame: Frame) -> Result<(), WireFull> {
            if self.since.get_or_insert_with(Instant::now).elapsed() < Duration::from_millis(3) {
                return Err(WireFull(frame));
            }
            self.taken.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }

        fn receive(&mut self) -> Option<Frame> {
            None
        }
    }

    fn tell(
        door: &dyn CmDoor,
        number: u32,
        mut request: impl IntoBytes + FromBytes,
        answer: &mut (impl IntoBytes + FromBytes),
    ) {
        let command = CmCommand {
            number,
            request: request.as_mut_bytes(),
            answer: Some(answer.as_mut_bytes()),
            value: None,
        };
        door.command(command).unwrap();
    }

    #[test]
    fn a_message_that_the_wire_did_not_take_has_left_before_the_program_may_end() {
        let taken = Arc::new(AtomicUsize::new(0));
        let wire = Box::new(Slow { since: None, taken: Arc::clone(&taken) });
        let own = Ipv4Addr::new(10, 0, 0, 1).into();
        let device = SoftHca::builder().wire(wire).gids(&[own]).build().unwrap();
        let door = device.open_cm().unwrap();
        let ask = rdma_ucm_create_id { uid: 1, ps: RDMA_PS_TCP, ..Default::default() };
        let mut made = rdma_ucm_create_id_resp::default();
        tell(&*door, RDMA_USER_CM_CMD_CREATE_ID, ask, &mut made);
        let id = made.id;
        let mut to = rdma_ucm_resolve_addr { id, timeout_ms: 1, ..Default::default() };
        to.dst_size = 16;
        to.dst_addr[..8].copy_from_slice(&[2, 0, 0x1d, 0x2f, 10, 0, 0, 2]);
        tell(&*door, RDMA_USER_CM_CMD_RESOLVE_ADDR, to, &mut 0u8);
        let route = rdma_ucm_resolve_route { id, timeout_ms: 1 };
        tell(&*door, RDMA_USER_CM_CMD_RESOLVE_ROUTE, route, &mut 0u8);
        let conn_param = rdma_ucm_conn_param { qp_num: 5, valid: 1, ..Default::default() };
        let connect = rdma_ucm_connect { id, conn_param, ..Default::default() };
        tell(&*door, RDMA_USER_CM_CMD_CONNECT, connect, &mut 0u8);
        assert_eq!(taken.load(Ordering::Relaxed), 1);
    }
}

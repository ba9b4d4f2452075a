//! Context and device: `GET_CONTEXT`, `QUERY_CONTEXT`, extended `QUERY_DEVICE`, `QUERY_PORT`,
//! `QUERY_PORT_SPEED`.
//!
//! # Safety
//!
//! The payloads of these commands contain no address.
#![allow(unsafe_code, reason = "ioctls; each block says why no payload carries an address")]

use uverbs_kernel_abi::device::{ib_uverbs_ex_query_device, ib_uverbs_ex_query_device_resp};
use uverbs_kernel_abi::objects::{
    UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT, UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS,
    UVERBS_ATTR_QUERY_CONTEXT_CORE_SUPPORT, UVERBS_ATTR_QUERY_CONTEXT_NUM_COMP_VECTORS,
    UVERBS_ATTR_QUERY_PORT_PORT_NUM, UVERBS_ATTR_QUERY_PORT_RESP,
    UVERBS_ATTR_QUERY_PORT_SPEED_PORT_NUM, UVERBS_ATTR_QUERY_PORT_SPEED_RESP,
    UVERBS_METHOD_GET_CONTEXT, UVERBS_METHOD_QUERY_CONTEXT, UVERBS_METHOD_QUERY_PORT,
    UVERBS_METHOD_QUERY_PORT_SPEED, UVERBS_OBJECT_DEVICE,
};
use uverbs_kernel_abi::port::ib_uverbs_query_port_resp_ex;
use uverbs_kernel_abi::write::{
    IB_USER_VERBS_CMD_FLAG_EXTENDED, IB_USER_VERBS_EX_CMD_QUERY_DEVICE,
};
use zerocopy::{FromZeros, IntoBytes};

use crate::Errno;
use crate::attr::{DeviceAttr, PortAttr};
use crate::commands::Uverbs;
use crate::error::Error;

/// Response of `GET_CONTEXT` common to all drivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextInfo {
    /// Number of completion vectors; a completion queue's vector is smaller.
    pub num_comp_vectors: u32,
    /// `IB_UVERBS_CORE_SUPPORT_*`.
    pub core_support: u64,
}

impl Uverbs {
    /// Creates the file's context. The first command, sent once. `uhw_in` is the driver's part of
    /// the request, `uhw_out` the buffer for its response.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EINVAL` if the context exists, or the driver rejects its part of the
    /// request.
    #[doc(alias = "ibv_open_device")]
    pub fn get_context(&self, uhw_in: &[u8], uhw_out: &mut [u8]) -> Result<ContextInfo, Error> {
        let (mut vectors, mut support) = ([0; 4], [0; 8]);
        let command = self
            .command(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_GET_CONTEXT)
            .output(UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS, &mut vectors)
            .output(UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT, &mut support)
            .uhw_in(uhw_in)
            .uhw_out(uhw_out);
        // SAFETY: no driver's alloc_ucontext request holds an address (mlx5, rxe: rdma/*-abi.h).
        unsafe { command.send(&**self.door(), "open_device") }?;
        let core_support = u64::from_ne_bytes(support);
        self.set_core_support(core_support);
        Ok(ContextInfo { num_comp_vectors: u32::from_ne_bytes(vectors), core_support })
    }

    /// Repeats the response of [`get_context`](Self::get_context) for a file that other code
    /// opened, with the driver's part in attribute `id`. Since Linux 5.9.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EINVAL` for a file without context, `EIO` for a device that is gone,
    /// `EOPNOTSUPP` or `EPROTONOSUPPORT` from a driver without the query.
    #[doc(alias = "ibv_import_device")]
    pub fn query_context(&self, id: u16, driver: &mut [u8]) -> Result<ContextInfo, Error> {
        let (mut vectors, mut support) = ([0; 4], [0; 8]);
        let command = self
            .command(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_CONTEXT)
            .output(UVERBS_ATTR_QUERY_CONTEXT_NUM_COMP_VECTORS, &mut vectors)
            .output(UVERBS_ATTR_QUERY_CONTEXT_CORE_SUPPORT, &mut support)
            .output(id, driver);
        // SAFETY: there are no inputs.
        unsafe { command.send(&**self.door(), "import_device") }?;
        let core_support = u64::from_ne_bytes(support);
        self.set_core_support(core_support);
        Ok(ContextInfo { num_comp_vectors: u32::from_ne_bytes(vectors), core_support })
    }

    /// Queries the device attributes. `uhw_out` receives the driver's part.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`].
    #[doc(alias = "ibv_query_device_ex")]
    pub fn query_device_ex(&self, uhw_out: &mut [u8]) -> Result<DeviceAttr, Error> {
        let request = ib_uverbs_ex_query_device::default();
        let mut answer = ib_uverbs_ex_query_device_resp::new_zeroed();
        let (request, out) = (request.as_bytes(), answer.as_mut_bytes());
        let command = IB_USER_VERBS_CMD_FLAG_EXTENDED | IB_USER_VERBS_EX_CMD_QUERY_DEVICE;
        // SAFETY: the request is a mask of zeroes.
        unsafe { self.invoke_write("query_device", command, request, out, &[], uhw_out) }?;
        Ok(DeviceAttr::from_abi(&answer))
    }

    /// Queries the state of `port`, counted from 1.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`] for a port that does not exist; [`Error::Kernel`].
    #[doc(alias = "ibv_query_port")]
    pub fn query_port(&self, port: u8) -> Result<PortAttr, Error> {
        let mut answer = ib_uverbs_query_port_resp_ex::new_zeroed();
        let command = self
            .command(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_PORT)
            .constant(UVERBS_ATTR_QUERY_PORT_PORT_NUM, u64::from(port))
            .output(UVERBS_ATTR_QUERY_PORT_RESP, answer.as_mut_bytes());
        // SAFETY: the only input is a port number.
        unsafe { command.send(&**self.door(), "query_port") }
            .map_err(|refused| self.explain_port(refused, port))?;
        Ok(PortAttr::from_abi(&answer))
    }

    /// Queries the current speed of `port`, from 1, in units of 100 megabits per second; 0 while it
    /// is down. Since Linux 7.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] from an older kernel, or a driver without the query; [`Error::Limit`]
    /// for a port that does not exist; [`Error::Kernel`].
    #[doc(alias = "ibv_query_port_speed")]
    pub fn query_port_speed(&self, port: u8) -> Result<u64, Error> {
        let (verb, mut speed) = ("query_port_speed", [0; 8]);
        let command = self
            .command(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_PORT_SPEED)
            .constant(UVERBS_ATTR_QUERY_PORT_SPEED_PORT_NUM, u64::from(port))
            .output(UVERBS_ATTR_QUERY_PORT_SPEED_RESP, &mut speed);
        // SAFETY: the only input is a port number.
        let sent = unsafe { command.send(&**self.door(), verb) };
        sent.map_err(|refused| match refused.errno() {
            Some(Errno::EPROTONOSUPPORT | Errno::EOPNOTSUPP) => Error::Unsupported {
                verb,
                what: "querying the speed of a port (needs Linux 7)".to_owned(),
            },
            _ => self.explain_port(refused, port),
        })?;
        Ok(u64::from_ne_bytes(speed))
    }
}

//! Explains a request that the kernel rejected with `EINVAL`. The kernel names no attribute, so the
//! device's limits are queried and compared with the request. Only a rejection costs these
//! commands.

use uverbs_kernel_abi::qp::{
    IB_QP_ALT_PATH, IB_QP_MAX_DEST_RD_ATOMIC, IB_QP_MAX_QP_RD_ATOMIC, IB_QP_PKEY_INDEX, IB_QP_PORT,
    ib_uverbs_modify_qp,
};

use crate::Errno;
use crate::commands::Uverbs;
use crate::error::Error;

impl Uverbs {
    /// Returns `refused`, or an error that says that the port does not exist.
    #[cold]
    pub(crate) fn explain_port(&self, refused: Error, port: u8) -> Error {
        self.explained(refused, |verb| self.check_port(verb, "port", port))
    }

    /// Returns `refused`, or an error that names the attribute of MODIFY_QP that exceeds the
    /// device's limits.
    #[cold]
    pub(crate) fn explain_modify(&self, refused: Error, attr: &ib_uverbs_modify_qp) -> Error {
        self.explained(refused, |verb| self.check_modify(verb, attr))
    }

    fn explained(
        &self,
        refused: Error,
        check: impl FnOnce(&'static str) -> Result<(), Error>,
    ) -> Error {
        let Error::Kernel { verb, errno: Errno::EINVAL, .. } = refused else { return refused };
        match check(verb) {
            Err(limit @ Error::Limit { .. }) => limit,
            // No limit is exceeded, or the device does not answer: the kernel's error is returned.
            _ => refused,
        }
    }

    fn check_port(&self, verb: &'static str, what: &'static str, port: u8) -> Result<(), Error> {
        let count = self.query_device_ex(&mut [])?.phys_port_count;
        if port == 0 {
            return Err(Error::Limit { verb, what, value: 0, limit: 1 });
        }
        Error::limit(verb, what, port.into(), count.into())
    }

    fn check_modify(&self, verb: &'static str, attr: &ib_uverbs_modify_qp) -> Result<(), Error> {
        let names = |bit| attr.attr_mask & bit != 0;
        if names(IB_QP_PORT) {
            self.check_port(verb, "port", attr.port_num)?;
            if names(IB_QP_PKEY_INDEX) {
                self.check_pkey(verb, "P_Key index", attr.port_num, attr.pkey_index)?;
            }
        }
        if names(IB_QP_ALT_PATH) {
            let (port, index) = (attr.alt_port_num, attr.alt_pkey_index);
            self.check_port(verb, "alternate port", port)?;
            self.check_pkey(verb, "alternate P_Key index", port, index)?;
        }
        if !names(IB_QP_MAX_QP_RD_ATOMIC | IB_QP_MAX_DEST_RD_ATOMIC) {
            return Ok(());
        }
        let device = self.query_device_ex(&mut [])?;
        if names(IB_QP_MAX_QP_RD_ATOMIC) {
            let (value, limit) = (attr.max_rd_atomic, device.max_qp_init_rd_atom);
            Error::limit(verb, "max_rd_atomic", value.into(), limit)?;
        }
        if names(IB_QP_MAX_DEST_RD_ATOMIC) {
            let (value, limit) = (attr.max_dest_rd_atomic, device.max_qp_rd_atom);
            Error::limit(verb, "max_dest_rd_atomic", value.into(), limit)?;
        }
        Ok(())
    }

    fn check_pkey(
        &self,
        verb: &'static str,
        what: &'static str,
        port: u8,
        index: u16,
    ) -> Result<(), Error> {
        let last = self.query_port(port)?.pkey_table_len.saturating_sub(1);
        Error::limit(verb, what, index.into(), last.into())
    }
}

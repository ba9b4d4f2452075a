//! Extended reliable connections (XRC): one connection reaches every shared receive queue of the
//! peer's domain, so processes of a host need one connection per host and not one per process.
//!
//! # Safety
//!
//! A post passes on its caller's contract; a domain is wrapped as the kernel answers it.
#![allow(unsafe_code, reason = "hands posts on to the provider, wraps a kernel object by number")]

use std::fmt;
use std::os::fd::AsFd;
use std::str::FromStr;
use std::sync::Arc;

use uverbs_core::attr::XrcFile;
use uverbs_core::error::{EndpointError, Error};
use uverbs_core::objects::xrcd::XrcdCore;
use uverbs_core::provider::{ContextOps, SendOps};
use uverbs_core::queues::work::{Data, PostError, SendOp, Target, Wr};

use crate::provider::Provider;
use crate::transport::XrcIni;
use crate::transport::directed::{Atomics, Cursor, Directed};
use crate::{Context, Refused};

/// An XRC domain: its targets receive into its shared receive queues. One that a file names is
/// shared with every process that opens it by the same file. A cheap handle: clones share it, and
/// it is closed when the last thing made from it is gone.
///
/// ```
/// # let context = uverbs::device("softhca0")?.open()?;
/// # let pd = context.alloc_pd()?;
/// # let mut cq = context.create_cq(512)?;
/// use uverbs::Local;
///
/// // The side that receives: a domain, in it a target for the connection and a queue.
/// let domain = context.xrc_domain()?;
/// let mut target = context.xrc_target(&domain)?;
/// let mut srq = context.shared_receive_queue(&pd).xrc(&domain, &cq).build()?;
/// srq.post(1, pd.slab(64, 1)?.take().expect("it is new"))?;
/// let (there, queue) = (target.prepare(&Local::default())?, srq.remote());
///
/// // The side that sends: an initiator, connected to the target, which sends to the queue.
/// let mut initiator = context.queue_pair(&pd, &cq).xrc().build()?;
/// let here = initiator.prepare(&Local::default())?;
/// initiator.connect(&there)?;
/// target.connect(&here)?;
/// let mut batch = initiator.batch();
/// batch.send_inline_to(2, b"hello", &queue)?;
/// batch.ring();
/// # let wait = std::time::Duration::from_secs(20);
/// # for _ in 0..2 {
/// let done = cq.wait(wait)?;
/// # if done.result? != uverbs::Completed::Recv { continue; }
/// assert_eq!(done.frame.expect("a receive has one")[..], b"hello"[..]);
/// assert_eq!(done.qpn, target.qpn());
/// # }
/// # Ok::<(), uverbs::Error>(())
/// ```
#[derive(Clone, Debug)]
#[doc(alias = "ibv_xrcd")]
pub struct XrcDomain {
    core: Arc<XrcdCore>,
}

impl<P: Provider> Context<P> {
    /// Creates an XRC domain for this open device only.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] on a device without XRC; [`Error::Kernel`]: `ENOMEM` if the device
    /// has no more.
    #[doc(alias = "ibv_open_xrcd")]
    pub fn xrc_domain(&self) -> Result<XrcDomain, Error> {
        // As C programs ask for it: no file, and O_CREAT.
        self.open_xrcd(None, XrcFile::OrNew)
    }

    /// Opens the XRC domain that a file names, by its inode and for this device. The file's
    /// contents don't matter, and it may be closed and unlinked afterwards. The domain ends when
    /// all processes that opened it have closed it.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] on a device without XRC; [`Error::Kernel`]: `EAGAIN` for
    /// [`XrcFile::Existing`] if the domain doesn't exist, `EINVAL` for [`XrcFile::New`] if it does.
    #[doc(alias = "ibv_open_xrcd")]
    pub fn shared_xrc_domain(&self, file: impl AsFd, which: XrcFile) -> Result<XrcDomain, Error> {
        self.open_xrcd(Some(file.as_fd()), which)
    }

    fn open_xrcd(
        &self,
        file: Option<std::os::fd::BorrowedFd<'_>>,
        which: XrcFile,
    ) -> Result<XrcDomain, Error> {
        let core = self.provider().core();
        let handle = core.uverbs().open_xrcd(file, which).map_err(|error| match error.errno() {
            Some(crate::Errno::EOPNOTSUPP) => {
                let what = "XRC on this device".to_owned();
                Error::Unsupported { verb: "open_xrcd", what }
            }
            _ => error,
        })?;
        // SAFETY: the kernel just gave out the handle, so no other owner has it.
        Ok(XrcDomain { core: unsafe { XrcdCore::new(Arc::clone(core), handle) } })
    }
}

impl XrcDomain {
    pub(crate) fn core(&self) -> &Arc<XrcdCore> {
        &self.core
    }

    /// The kernel's handle, for commands that the program sends.
    #[must_use]
    pub fn handle(&self) -> u32 {
        self.core.handle()
    }

    /// Closes it now. Nothing can be made from its clones afterwards.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`], with the domain, which stays usable: `EBUSY` while this open device has a
    /// target or a queue made from it.
    #[doc(alias = "ibv_close_xrcd")]
    pub fn close(self) -> Result<(), Refused<Self>> {
        match self.core.close() {
            Ok(()) => Ok(()),
            Err(error) => Err(Refused::new(error, self)),
        }
    }
}

/// Address of a peer's shared receive queue, which an XRC work request names. It travels as text.
///
/// ```
/// let queue: uverbs::xrc::RemoteSrq = "srqn=0x00002a".parse()?;
/// assert_eq!((queue.srqn(), queue.to_string().as_str()), (42, "srqn=0x00002a"));
/// # Ok::<(), uverbs::EndpointError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RemoteSrq {
    srqn: u32,
}

impl RemoteSrq {
    pub(crate) fn of(srqn: u32) -> Self {
        Self { srqn }
    }

    /// The queue of this number.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`] over 24 bits.
    pub fn new(srqn: u32) -> Result<Self, Error> {
        Error::limit("post_send", "SRQ number", srqn, 0xff_ffff)?;
        Ok(Self { srqn })
    }

    /// SRQ number.
    #[must_use]
    pub fn srqn(&self) -> u32 {
        self.srqn
    }
}

impl fmt::Display for RemoteSrq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "srqn={:#08x}", self.srqn)
    }
}

impl FromStr for RemoteSrq {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        Ok(Self { srqn: crate::qp::endpoint::number(text, "srqn", 0xff_ffff)? })
    }
}

impl Atomics for XrcIni {}

impl Directed for XrcIni {
    type To<P: Provider> = RemoteSrq;

    #[inline]
    fn domain<P: Provider>(_: &RemoteSrq) -> Option<u64> {
        None
    }

    #[inline]
    unsafe fn post<P: Provider>(
        sq: &mut P::Sq,
        at: &mut Cursor<P>,
        wr: Wr,
        op: SendOp,
        to: &RemoteSrq,
        data: Data<'_>,
    ) -> Result<u32, PostError> {
        // SAFETY: the caller upholds this function's contract.
        unsafe { sq.post_to_target(at, wr, op, Target::Srq(to.srqn), data) }
    }
}

//! Shared receive queues of any provider: a part of the macro `any!`. Names resolve in the file
//! that uses the macro.

/// Writes [`SrqOps`](uverbs_core::provider::SrqOps) of `AnySrq` for all providers.
macro_rules! forward {
    ($($(#[$cfg:meta])* $variant:ident = $provider:ty),+) => {
        // SAFETY: passes everything on to the one provider that the object is of.
        unsafe impl SrqOps for AnySrq {
            fn set_limit(&mut self, core: &SrqCore, limit: u32) -> Result<(), Error> {
                match self { $($(#[$cfg])* Self::$variant(srq) => srq.set_limit(core, limit),)+ }
            }

            fn resize(&mut self, core: &SrqCore, max_wr: u32) -> Result<u32, Error> {
                match self { $($(#[$cfg])* Self::$variant(srq) => srq.resize(core, max_wr),)+ }
            }

            fn begin_tags(&mut self) {
                match self { $($(#[$cfg])* Self::$variant(srq) => srq.begin_tags(),)+ }
            }

            unsafe fn change_tags(
                &mut self,
                wr: TagWr,
                op: &TagOp,
            ) -> Result<TagHandle, PostError> {
                match self {
                    // SAFETY: the caller upholds this function's contract.
                    $($(#[$cfg])* Self::$variant(srq) => unsafe { srq.change_tags(wr, op) },)+
                }
            }

            unsafe fn own_tag(&mut self, tag: TagHandle, held: Held) {
                match self {
                    // SAFETY: the caller upholds this function's contract.
                    $($(#[$cfg])* Self::$variant(srq) => unsafe { srq.own_tag(tag, held) },)+
                }
            }

            unsafe fn ring_tags(&mut self) {
                // SAFETY: the caller upholds this function's contract.
                match self { $($(#[$cfg])* Self::$variant(srq) => unsafe { srq.ring_tags() },)+ }
            }

            unsafe fn repost(&mut self, index: u32) -> bool {
                // SAFETY: contract of `repost`.
                match self { $($(#[$cfg])* Self::$variant(srq) => unsafe { srq.repost(index) },)+ }
            }

            fn close_tags(&mut self) -> Result<(), Error> {
                match self { $($(#[$cfg])* Self::$variant(srq) => srq.close_tags(),)+ }
            }
        }
    };
}

pub(super) use forward;

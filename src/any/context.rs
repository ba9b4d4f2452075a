//! Part of `any!` that creates objects. Names resolve in the file that uses the macro.

/// Writes [`ContextOps`](uverbs_core::provider::ContextOps) of `AnyContext` for all providers.
macro_rules! forward {
    ($($(#[$cfg:meta])* $variant:ident = $provider:ty),+) => {
        // SAFETY: passes everything on to the one provider that the object is of.
        unsafe impl ContextOps<Any> for AnyContext {
            fn core(&self) -> &Arc<ContextCore> {
                match self { $($(#[$cfg])* Self::$variant(context) => context.core(),)+ }
            }

            fn query_device(&self) -> Result<DeviceAttr, Error> {
                match self { $($(#[$cfg])* Self::$variant(context) => context.query_device(),)+ }
            }

            fn device_attr(&self) -> &DeviceAttr {
                match self { $($(#[$cfg])* Self::$variant(context) => context.device_attr(),)+ }
            }

            fn comp_vectors(&self) -> u32 {
                match self { $($(#[$cfg])* Self::$variant(context) => context.comp_vectors(),)+ }
            }

            fn query_port(&self, port: u8) -> Result<PortAttr, Error> {
                match self { $($(#[$cfg])* Self::$variant(context) => context.query_port(port),)+ }
            }

            fn alloc_dm(&self, len: usize, log_align: u32) -> Result<DmCore, Error> {
                match self {
                    $($(#[$cfg])* Self::$variant(context) => context.alloc_dm(len, log_align),)+
                }
            }

            unsafe fn import_dm(&self, handle: u32) -> Result<DmCore, Error> {
                match self {
                    // SAFETY: the caller upholds this function's contract.
                    $($(#[$cfg])* Self::$variant(context) => unsafe { context.import_dm(handle) },)+
                }
            }

            fn map_clock(&self) -> Result<DeviceClock, Error> {
                match self { $($(#[$cfg])* Self::$variant(context) => context.map_clock(),)+ }
            }

            fn create_flow(
                &self,
                to: Steered,
                rule: &FlowRule,
                counters: Option<Arc<CountersCore>>,
            ) -> Result<FlowCore, Error> {
                match self {
                    $($(#[$cfg])*
                      Self::$variant(context) => context.create_flow(to, rule, counters),)+
                }
            }

            fn create_counters(&self) -> Result<CountersCore, Error> {
                match self { $($(#[$cfg])* Self::$variant(context) => context.create_counters(),)+ }
            }

            fn create_comp_cntr(&self) -> Result<CompCntrCore, Error> {
                match self {
                    $($(#[$cfg])* Self::$variant(context) => context.create_comp_cntr(),)+
                }
            }

            fn alloc_indirect(
                &self,
                pd: &Arc<PdCore>,
                parts: u32,
            ) -> Result<(MwCore, u32), Error> {
                match self {
                    $($(#[$cfg])* Self::$variant(context) => context.alloc_indirect(pd, parts),)+
                }
            }

            fn dc_rd_atomic(&self) -> Option<u32> {
                match self { $($(#[$cfg])* Self::$variant(context) => context.dc_rd_atomic(),)+ }
            }

            fn null_lkey(&self) -> Option<u32> {
                match self { $($(#[$cfg])* Self::$variant(context) => context.null_lkey(),)+ }
            }

            fn alloc_pd(&self) -> Result<Arc<PdCore>, Error> {
                match self { $($(#[$cfg])* Self::$variant(context) => context.alloc_pd(),)+ }
            }

            unsafe fn import_pd(&self, handle: u32) -> Result<Arc<PdCore>, Error> {
                match self {
                    // SAFETY: the caller upholds this function's contract.
                    $($(#[$cfg])* Self::$variant(context) => unsafe { context.import_pd(handle) },)+
                }
            }

            fn create_cq(&self, init: &CqInit) -> Result<(Arc<CqCore>, AnyCq), Error> {
                match self {
                    $($(#[$cfg])* Self::$variant(context) => {
                        let (core, cq) = context.create_cq(init)?;
                        Ok((core, AnyCq::$variant(cq)))
                    })+
                }
            }

            fn create_qp(&self, init: &QpInit) -> Result<NewQp<Any>, Error> {
                match self {
                    $($(#[$cfg])* Self::$variant(context) => {
                        let NewQp { core, sq, rq } = context.create_qp(init)?;
                        let (sq, rq) = (AnySq::$variant(sq), AnyRq::$variant(rq));
                        Ok(NewQp { core, sq, rq })
                    })+
                }
            }

            fn create_srq(&self, init: &SrqInit) -> Result<NewSrq<Any>, Error> {
                match self {
                    $($(#[$cfg])* Self::$variant(context) => {
                        let NewSrq { core, srq } = context.create_srq(init)?;
                        Ok(NewSrq { core, srq: AnySrq::$variant(srq) })
                    })+
                }
            }

            fn create_wq(&self, init: &WqInit) -> Result<NewWq<Any>, Error> {
                match self {
                    $($(#[$cfg])* Self::$variant(context) => {
                        let NewWq { core, rq } = context.create_wq(init)?;
                        Ok(NewWq { core, rq: AnyRq::$variant(rq) })
                    })+
                }
            }

            fn create_ind_table(
                &self,
                queues: Vec<Arc<WqCore>>,
            ) -> Result<Arc<IndTableCore>, Error> {
                match self {
                    $($(#[$cfg])* Self::$variant(context) => context.create_ind_table(queues),)+
                }
            }

            fn create_rss_qp(
                &self,
                pd: &Arc<PdCore>,
                table: &Arc<IndTableCore>,
                hash: &RssHash,
            ) -> Result<Arc<RssCore>, Error> {
                match self {
                    $($(#[$cfg])*
                      Self::$variant(context) => context.create_rss_qp(pd, table, hash),)+
                }
            }

            fn create_ah(&self, pd: &Arc<PdCore>, attr: &AhAttr) -> Result<AnyAh, Error> {
                match self {
                    $($(#[$cfg])*
                      Self::$variant(context) => context.create_ah(pd, attr).map(AnyAh::$variant),)+
                }
            }
        }
    };
}

pub(super) use forward;

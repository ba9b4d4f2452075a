//! The provider of each kernel driver.
//!
//! # Safety
//!
//! Every object made of a context has the context's provider.
#![allow(unsafe_code, reason = "implements an unsafe trait")]

use std::sync::Arc;

use uverbs_core::error::Error;
use uverbs_core::objects::context::ContextCore;
use uverbs_core::provider::Provider;
#[cfg(feature = "any-efa")]
use uverbs_efa::Efa;
use uverbs_kernel_abi::driver_id;
use uverbs_mlx5::Mlx5;
#[cfg(feature = "any-rdmavt")]
use uverbs_rdmavt::Rdmavt;
use uverbs_rxe::Rxe;
#[cfg(feature = "any-siw")]
use uverbs_siw::Siw;

use super::{Any, AnyAh, AnyContext, AnyCq, AnyRq, AnySq, AnySrq};

/// Calls `$call` of the provider of the device's driver.
macro_rules! by_driver {
    ($core:ident, $call:ident, $verb:literal) => {
        match $core.uverbs().driver_id() {
            driver_id::RDMA_DRIVER_MLX5 => Mlx5::$call($core).map(AnyContext::Mlx5),
            driver_id::RDMA_DRIVER_RXE => Rxe::$call($core).map(AnyContext::Rxe),
            #[cfg(feature = "any-siw")]
            driver_id::RDMA_DRIVER_SIW => Siw::$call($core).map(AnyContext::Siw),
            #[cfg(feature = "any-rdmavt")]
            driver_id::RDMA_DRIVER_HFI1 | driver_id::RDMA_DRIVER_QIB => {
                Rdmavt::$call($core).map(AnyContext::Rdmavt)
            }
            #[cfg(feature = "any-efa")]
            driver_id::RDMA_DRIVER_EFA => Efa::$call($core).map(AnyContext::Efa),
            other => Err(no_provider($verb, other)),
        }
    };
}

// SAFETY: every object made of a context has the context's provider, so all objects of one context
// have one provider.
unsafe impl Provider for Any {
    type Context = AnyContext;
    type Cq = AnyCq;
    type Sq = AnySq;
    type Rq = AnyRq;
    type Srq = AnySrq;
    type Ah = AnyAh;

    const NAME: &'static str = "any";

    fn open(core: Arc<ContextCore>) -> Result<AnyContext, Error> {
        by_driver!(core, open, "open_device")
    }

    fn import(core: Arc<ContextCore>) -> Result<AnyContext, Error> {
        by_driver!(core, import, "import_device")
    }
}

/// Error of a device whose driver `Any` has no provider for.
fn no_provider(verb: &'static str, driver: u32) -> Error {
    let other = match driver {
        driver_id::RDMA_DRIVER_SIW => {
            ", and for siw with `open_as::<Siw>` or the feature `any-siw`"
        }
        driver_id::RDMA_DRIVER_HFI1 | driver_id::RDMA_DRIVER_QIB => {
            ", and for rdmavt (hfi1, qib) with `open_as::<Rdmavt>` or the feature `any-rdmavt`"
        }
        driver_id::RDMA_DRIVER_EFA => {
            ", and for efa with `open_as::<Efa>` or the feature `any-efa`"
        }
        _ => "",
    };
    let what = format!(
        "the device's driver (RDMA driver id {driver}); there are providers for mlx5 and rxe{other}"
    );
    Error::Unsupported { verb, what }
}

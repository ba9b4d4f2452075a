//! Shared by the programs that connect by `uverbs::cm`. Counterpart: `c/connecting.h`.

use std::net::IpAddr;

use uverbs::{CompletionQueue, Context, ProtectionDomain, QueuePair};

pub type Done<T> = Result<T, Box<dyn std::error::Error>>;

/// Objects that queue pairs are created from.
pub struct Domain {
    context: Context,
    pd: ProtectionDomain,
    cq: CompletionQueue,
}

impl Domain {
    pub fn open(context: Context) -> Done<Self> {
        let (pd, cq) = (context.alloc_pd()?, context.create_cq(16)?);
        Ok(Self { context, pd, cq })
    }

    pub fn queue_pair(&self) -> Done<QueuePair> {
        let builder = self.context.queue_pair(&self.pd, &self.cq).max_send_wr(4).max_recv_wr(4);
        Ok(builder.overcommit().build()?)
    }
}

/// Address to connect to: `UVERBS_TEST_ADDRESS`, or the IPv4 address in GID `UVERBS_TEST_GID` of
/// `UVERBS_TEST_DEVICE`.
pub fn find_address() -> Done<IpAddr> {
    if let Ok(address) = std::env::var("UVERBS_TEST_ADDRESS") {
        return Ok(address.parse()?);
    }
    let index: u32 = std::env::var("UVERBS_TEST_GID")?.parse()?;
    let context = uverbs::open(&std::env::var("UVERBS_TEST_DEVICE")?)?;
    let table = context.query_gid_table()?;
    let entry = table.iter().find(|entry| entry.index == index).ok_or("no such GID")?;
    Ok(entry.gid.to_ip())
}

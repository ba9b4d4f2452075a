//! Doors around a door: one records what passes, one answers with faults. They stack.

pub mod faulty;
pub mod recorder;

pub use faulty::Faulty;
pub use recorder::{Recorded, RecordedAttr, Recorder};

/// The command number of an `INVOKE_WRITE`, `None` for other methods.
fn write_command(words: &[u64]) -> Option<u32> {
    use uverbs_kernel_abi::objects::{
        UVERBS_ATTR_WRITE_CMD, UVERBS_METHOD_INVOKE_WRITE, UVERBS_OBJECT_DEVICE,
    };
    let (header, mut attrs) = crate::ioctl::parse(words)?;
    if (header.object_id, header.method_id) != (UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE) {
        return None;
    }
    attrs.find(|attr| attr.attr_id == UVERBS_ATTR_WRITE_CMD).map(|attr| attr.data as u32)
}

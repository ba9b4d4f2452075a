//! Attributes of ioctl methods: their kind, size and use (`include/rdma/uverbs_ioctl.h`).

use uverbs_kernel_abi::objects::{UVERBS_ATTR_UHW_IN, UVERBS_ATTR_UHW_OUT};

/// Access of a method to the object that an attribute names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// `UVERBS_ACCESS_NEW`: the handle is an output.
    New,
    /// `UVERBS_ACCESS_READ`: the object must exist.
    Read,
    /// `UVERBS_ACCESS_DESTROY`: the object is destroyed before the handler runs.
    Destroy,
}

/// Kind of an attribute (`enum uverbs_attr_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Data from user space: in the attribute up to 8 bytes, otherwise at its address.
    In,
    /// Address of a buffer for data to user space.
    Out,
    /// A handle of the object type.
    Idr(u16, Use),
    /// A handle of any type (`UVERBS_IDR_ANY_OBJECT`).
    AnyIdr,
    /// A file descriptor of the object type.
    Fd(u16, Use),
}

/// Specification of an attribute of a method.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttrSpec {
    /// `UVERBS_ATTR_*` or `MLX5_IB_ATTR_*`.
    pub(crate) id: u16,
    pub(crate) kind: Kind,
    /// Shortest and longest payload in bytes.
    pub(crate) min: u16,
    pub(crate) max: u16,
    /// A longer payload is accepted if the rest is zero (`zero_trailing`).
    pub(crate) grows: bool,
    pub(crate) mandatory: bool,
    /// Read during the check of the attribute, so that a bad address is reported before errors of
    /// later attributes.
    pub(crate) read_early: bool,
}

impl AttrSpec {
    const fn new(id: u16, kind: Kind, min: usize, max: usize, grows: bool) -> Self {
        assert!(min <= max && max <= u16::MAX as usize);
        Self {
            id,
            kind,
            min: min as u16,
            max: max as u16,
            grows,
            mandatory: true,
            read_early: false,
        }
    }

    /// `UVERBS_ATTR_PTR_IN` of `UVERBS_ATTR_TYPE`: exactly `len` bytes.
    pub(crate) const fn ptr_in(id: u16, len: usize) -> Self {
        Self::new(id, Kind::In, len, len, false)
    }

    /// `UVERBS_ATTR_PTR_IN` of `UVERBS_ATTR_MIN_SIZE`.
    pub(crate) const fn ptr_in_min(id: u16, min: usize) -> Self {
        Self::new(id, Kind::In, min, u16::MAX as usize, false)
    }

    /// `UVERBS_ATTR_PTR_IN` of `UVERBS_ATTR_SIZE`, from one byte on.
    pub(crate) const fn ptr_in_upto(id: u16, max: usize) -> Self {
        Self::new(id, Kind::In, 1, max, false)
    }

    /// `UVERBS_ATTR_PTR_IN` of `UVERBS_ATTR_STRUCT`: may grow with zeros.
    pub(crate) const fn struct_in(id: u16, min: usize, len: usize) -> Self {
        Self::new(id, Kind::In, min, len, true)
    }

    /// `UVERBS_ATTR_CONST_IN`: a number in 8 bytes.
    pub(crate) const fn const_in(id: u16) -> Self {
        Self::new(id, Kind::In, 8, 8, false)
    }

    /// `UVERBS_ATTR_FLAGS_IN`: bits in 4 or 8 bytes.
    pub(crate) const fn flags_in(id: u16) -> Self {
        Self::new(id, Kind::In, 4, 8, false)
    }

    /// `UVERBS_ATTR_PTR_OUT` of `UVERBS_ATTR_TYPE`.
    pub(crate) const fn ptr_out(id: u16, len: usize) -> Self {
        Self::new(id, Kind::Out, len, len, false)
    }

    /// `UVERBS_ATTR_PTR_OUT` of `UVERBS_ATTR_MIN_SIZE`.
    pub(crate) const fn ptr_out_min(id: u16, min: usize) -> Self {
        Self::new(id, Kind::Out, min, u16::MAX as usize, false)
    }

    /// `UVERBS_ATTR_PTR_OUT` of `UVERBS_ATTR_STRUCT`.
    pub(crate) const fn struct_out(id: u16, min: usize, len: usize) -> Self {
        Self::new(id, Kind::Out, min, len, true)
    }

    /// `UVERBS_ATTR_IDR`.
    pub(crate) const fn idr(id: u16, object: u16, access: Use) -> Self {
        Self::new(id, Kind::Idr(object, access), 0, 0, false)
    }

    /// `UVERBS_ATTR_IDR` of `UVERBS_IDR_ANY_OBJECT`.
    pub(crate) const fn any_idr(id: u16) -> Self {
        Self::new(id, Kind::AnyIdr, 0, 0, false)
    }

    /// `UVERBS_ATTR_FD`.
    pub(crate) const fn fd(id: u16, object: u16, access: Use) -> Self {
        Self::new(id, Kind::Fd(object, access), 0, 0, false)
    }

    /// `UVERBS_ATTR_UHW`, the driver's input.
    pub(crate) const UHW_IN: Self = Self::ptr_in_min(UVERBS_ATTR_UHW_IN, 0).optional();
    /// `UVERBS_ATTR_UHW`, the driver's output.
    pub(crate) const UHW_OUT: Self = Self::ptr_out_min(UVERBS_ATTR_UHW_OUT, 0).optional();

    /// `UA_ALLOC_AND_COPY`.
    pub(crate) const fn read_early(mut self) -> Self {
        self.read_early = true;
        self
    }

    /// `UA_OPTIONAL`.
    pub(crate) const fn optional(mut self) -> Self {
        self.mandatory = false;
        self
    }
}

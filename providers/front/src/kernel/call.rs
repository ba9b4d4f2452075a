//! A command in progress. Header and attributes are checked against the method table; the handler
//! gets a checked view.
//!
//! The order of the checks and their errnos follow `drivers/infiniband/core/uverbs_ioctl.c`
//! (`ib_uverbs_ioctl`, `ib_uverbs_cmd_verbs`, `ib_uverbs_run_method`, `uverbs_set_attr`,
//! `uverbs_process_attr`).

use nix::errno::Errno;
use uverbs_kernel_abi::ioctl::{
    UVERBS_ATTR_F_MANDATORY, UVERBS_ATTR_F_VALID_OUTPUT, UVERBS_ATTR_INLINE_MAX, ib_uverbs_attr,
    ib_uverbs_ioctl_hdr,
};
use uverbs_kernel_abi::objects::{
    UVERBS_ATTR_UHW_IN, UVERBS_ATTR_UHW_OUT, UVERBS_OBJECT_RWQ_IND_TBL, UVERBS_OBJECT_WQ,
};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::kernel::attr::{AttrSpec, Kind, Use};
use crate::kernel::state::device::Device;
use crate::kernel::state::file::File;
use crate::kernel::state::objects::{Destroyed, Object};
use crate::kernel::user::{clear_user, copy_from_user, copy_to_user, is_cleared, page_size};

const HEADER: usize = size_of::<ib_uverbs_ioctl_hdr>();
const ATTR: usize = size_of::<ib_uverbs_attr>();

/// One method of one object.
#[derive(Debug)]
pub(crate) struct Method {
    pub(crate) object: u16,
    pub(crate) method: u16,
    pub(crate) attrs: &'static [AttrSpec],
    pub(crate) handler: Handler,
}

/// One write command.
#[derive(Debug)]
pub(crate) struct Write {
    /// `IB_USER_VERBS_CMD_*`, or `IB_USER_VERBS_EX_CMD_*` with `IB_USER_VERBS_CMD_FLAG_EXTENDED`.
    pub(crate) command: u32,
    /// Minimum bytes of the request and of the room for the response; 0 for extended commands,
    /// which `uapi_create_write` (`core/uverbs_uapi.c`) gives no minimum.
    pub(crate) request: usize,
    pub(crate) response: usize,
    pub(crate) handler: fn(&mut Call<'_>) -> Result<(), Errno>,
}

/// All methods and write commands of a device.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) methods: &'static [Method],
    pub(crate) writes: &'static [Write],
    /// Handlers of methods that this device answers otherwise.
    pub(crate) instead: &'static [(u16, u16, Handler)],
    /// Objects of the device; empty: all.
    pub(crate) objects: &'static [u16],
}

/// Handler of a method.
pub(crate) type Handler = fn(&mut Call<'_>) -> Result<(), Errno>;

impl Table {
    fn method(&self, object: u16, method: u16) -> Option<&'static Method> {
        if !self.objects.is_empty() && !self.objects.contains(&object) {
            return None;
        }
        self.methods.iter().find(|known| known.object == object && known.method == method)
    }

    fn handler(&self, method: &Method) -> Handler {
        let mut instead = self.instead.iter();
        let found =
            instead.find(|(of, number, _)| (*of, *number) == (method.object, method.method));
        found.map_or(method.handler, |(.., handler)| *handler)
    }
}

impl Method {
    /// True if the method destroys an object.
    fn destroys(&self) -> bool {
        self.attrs.iter().any(|spec| matches!(spec.kind, Kind::Idr(_, Use::Destroy)))
    }
}

/// First number of driver objects (`UVERBS_ID_NS_SHIFT`, `rdma/ib_user_ioctl_cmds.h`).
const DRIVER_OBJECTS: u16 = 1 << 12;

/// An attribute that passed its checks.
#[derive(Clone, Copy, Debug)]
struct Attr {
    id: u16,
    kind: Kind,
    len: u16,
    data: u64,
    /// Index of the attribute in the command.
    index: usize,
    /// Handle of an IDR attribute; for an FD, index in the file's table of event files.
    object: u32,
}

/// A command in progress.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    pub(crate) device: &'a mut Device,
    pub(crate) file: &'a mut File,
    /// Methods and write commands of the device.
    pub(crate) table: &'static Table,
    words: &'a mut [u64],
    attrs: Vec<Attr>,
    /// Handles allocated by this command. If it fails they are freed with their objects.
    new_handles: Vec<u32>,
    new_event_files: Vec<u32>,
    /// Event counts of the object that the method's attribute destroyed.
    pub(crate) destroyed: Option<Destroyed>,
}

/// Executes one `RDMA_VERBS_IOCTL`.
pub(crate) fn ioctl(
    device: &mut Device,
    file: &mut File,
    table: &'static Table,
    words: &mut [u64],
) -> Result<(), Errno> {
    let bytes = words.as_bytes();
    let Ok((header, rest)) = ib_uverbs_ioctl_hdr::read_from_prefix(bytes) else {
        return Err(Errno::EFAULT);
    };
    let count = usize::from(header.num_attrs);
    if u64::from(header.length) > page_size() || usize::from(header.length) != HEADER + ATTR * count
    {
        return Err(Errno::EINVAL);
    }
    if header.reserved1 != 0 || header.reserved2 != 0 {
        return Err(Errno::EPROTONOSUPPORT);
    }
    if header.driver_id != device.driver() {
        return Err(Errno::EINVAL);
    }
    let method = table.method(header.object_id, header.method_id).ok_or(Errno::EPROTONOSUPPORT)?;
    // mlx5_ib has these objects on Ethernet only (`mlx5_ib_dev_common_roce_ops` in
    // `hw/mlx5/main.c`).
    let of_packets = matches!(header.object_id, UVERBS_OBJECT_WQ | UVERBS_OBJECT_RWQ_IND_TBL);
    if of_packets && !device.config.is_ethernet() {
        return Err(Errno::EPROTONOSUPPORT);
    }
    if device.gone && !(header.object_id < DRIVER_OBJECTS && method.destroys()) {
        // `uverbs_disassociate_api_pre` removes the driver's handlers, and
        // `rdma_lookup_get_uobject` lets only destroy commands through, so that a client can
        // release its objects.
        return Err(Errno::EIO);
    }
    if rest.len() < ATTR * count {
        return Err(Errno::EFAULT);
    }
    let given = rest
        .chunks_exact(ATTR)
        .take(count)
        .filter_map(|bytes| ib_uverbs_attr::read_from_bytes(bytes).ok())
        .collect::<Vec<_>>();
    let mut call = Call {
        device,
        file,
        table,
        words,
        attrs: Vec::with_capacity(count),
        new_handles: Vec::new(),
        new_event_files: Vec::new(),
        destroyed: None,
    };
    let result = call.run(method, &given);
    call.finish(result.is_ok());
    result
}

/// Handle that an attribute names. `rdma_lookup_get_uobject` refuses negative ids first.
fn handle(attr: &ib_uverbs_attr) -> Result<u32, Errno> {
    let id = i64::try_from(attr.data).map_err(|_| Errno::EINVAL)?;
    u32::try_from(id).map_err(|_| Errno::ENOENT)
}

impl Call<'_> {
    fn run(&mut self, method: &'static Method, given: &[ib_uverbs_attr]) -> Result<(), Errno> {
        for (index, attr) in given.iter().enumerate() {
            self.take_attr(method, index, attr)?;
        }
        for spec in method.attrs {
            if spec.mandatory && !self.has(spec.id) {
                return Err(Errno::EINVAL);
            }
        }
        let doomed = self.attrs.iter().find_map(|attr| match attr.kind {
            Kind::Idr(_, Use::Destroy) => Some(attr.object),
            _ => None,
        });
        if let Some(handle) = doomed {
            self.destroyed = Some(match self.file.dead.remove(&handle) {
                Some(destroyed) => destroyed,
                None => self.file.destroy(self.device, handle)?,
            });
        }
        self.table.handler(method)(self)?;
        // `ib_uverbs_run_method` assumes that the driver wrote its output. Driver methods number
        // their attributes from the same id on, so the kind has to be checked as well.
        if let Some(attr) = self.attr(UVERBS_ATTR_UHW_OUT)
            && attr.kind == Kind::Out
        {
            self.set_output(attr.index);
        }
        Ok(())
    }

    /// Checks an attribute (`uverbs_set_attr`, `uverbs_process_attr`).
    fn take_attr(
        &mut self,
        method: &'static Method,
        index: usize,
        attr: &ib_uverbs_attr,
    ) -> Result<(), Errno> {
        let Some(spec) = method.attrs.iter().find(|spec| spec.id == attr.attr_id) else {
            return match attr.flags & UVERBS_ATTR_F_MANDATORY {
                0 => Ok(()),
                _ => Err(Errno::EPROTONOSUPPORT),
            };
        };
        if self.has(spec.id) {
            return Err(Errno::EINVAL);
        }
        let reserved = attr.attr_data != [0, 0];
        let mut object = 0;
        match spec.kind {
            Kind::In | Kind::Out => {
                if spec.kind == Kind::In
                    && attr.len > spec.max
                    && spec.grows
                    && !tail_cleared(spec, attr)
                {
                    return Err(Errno::EOPNOTSUPP);
                }
                if attr.len < spec.min || (!spec.grows && attr.len > spec.max) || reserved {
                    return Err(Errno::EINVAL);
                }
                if spec.read_early && attr.len > UVERBS_ATTR_INLINE_MAX {
                    copy_from_user(attr.data, &mut vec![0; usize::from(attr.len)])?;
                }
            }
            Kind::Idr(..) | Kind::AnyIdr | Kind::Fd(..) if reserved || attr.len != 0 => {
                return Err(Errno::EINVAL);
            }
            Kind::Idr(kind, Use::New) => {
                object = self.new_handle(kind)?;
                self.set_data(index, u64::from(object));
            }
            Kind::Idr(kind, _) => {
                object = handle(attr)?;
                if !self.file.dead.contains_key(&object) {
                    self.file.objects.check(object, kind)?;
                }
            }
            Kind::AnyIdr => {
                object = handle(attr)?;
                self.file.objects.get(object).ok_or(Errno::ENOENT)?;
            }
            Kind::Fd(kind, Use::New) => {
                if !self.file.has_context() {
                    return Err(Errno::EINVAL);
                }
                object = self.file.events.open(kind)?;
                self.new_event_files.push(object);
                let fd = self.file.events.fd(object).ok_or(Errno::EBADF)?;
                self.set_data(index, u64::from(fd.cast_unsigned()));
            }
            Kind::Fd(kind, _) => object = self.file.events.lookup(attr.data_s64(), kind)?,
        }
        self.attrs.push(Attr {
            id: spec.id,
            kind: spec.kind,
            len: attr.len,
            data: attr.data,
            index,
            object,
        });
        Ok(())
    }

    /// Keeps or removes the objects that the command created (`bundle_destroy`).
    fn finish(&mut self, commit: bool) {
        if commit {
            for file in self.new_event_files.drain(..) {
                self.file.events.commit(file);
            }
            return;
        }
        for handle in self.new_handles.drain(..) {
            self.file.abandon(self.device, handle);
        }
        for file in self.new_event_files.drain(..) {
            self.file.events.abandon(file);
        }
    }

    fn attr(&self, id: u16) -> Option<Attr> {
        self.attrs.iter().find(|attr| attr.id == id).copied()
    }

    /// True if the attribute is present (`uverbs_attr_is_valid`).
    pub(crate) fn has(&self, id: u16) -> bool {
        self.attr(id).is_some()
    }

    /// Length of an attribute's payload; 0 without the attribute.
    pub(crate) fn len(&self, id: u16) -> usize {
        self.attr(id).map_or(0, |attr| usize::from(attr.len))
    }

    /// Handle of an IDR attribute, or event file of an FD attribute.
    pub(crate) fn object(&self, id: u16) -> Option<u32> {
        self.attr(id).map(|attr| attr.object)
    }

    /// Allocates a handle (`rdma_alloc_begin_uobject`), for an object that a write command creates.
    ///
    /// # Errors
    ///
    /// `EINVAL` before GET_CONTEXT (`ib_uverbs_get_ucontext_file`).
    pub(crate) fn new_handle(&mut self, kind: u16) -> Result<u32, Errno> {
        if !self.file.has_context() {
            return Err(Errno::EINVAL);
        }
        let handle = self.file.objects.reserve(kind)?;
        self.new_handles.push(handle);
        Ok(handle)
    }

    /// Opens an event file (CREATE_COMP_CHANNEL) that belongs to the command.
    pub(crate) fn new_event_file(&mut self, kind: u16) -> Result<u32, Errno> {
        let file = self.file.events.open(kind)?;
        self.new_event_files.push(file);
        Ok(file)
    }

    /// Puts an object behind a handle of this command.
    pub(crate) fn put_object(&mut self, handle: u32, object: Object) {
        self.file.objects.fill(handle, object);
    }

    /// Payload of an input; `None` without the attribute.
    ///
    /// # Errors
    ///
    /// `EFAULT`.
    pub(crate) fn bytes(&self, id: u16) -> Result<Option<Vec<u8>>, Errno> {
        let Some(attr) = self.attr(id) else {
            return Ok(None);
        };
        let len = usize::from(attr.len);
        if attr.len <= UVERBS_ATTR_INLINE_MAX {
            return Ok(attr.data.as_bytes().get(..len).map(<[u8]>::to_vec));
        }
        let mut bytes = vec![0; len];
        copy_from_user(attr.data, &mut bytes)?;
        Ok(Some(bytes))
    }

    /// Reads a mandatory input as a struct; a shorter input is extended with zeros
    /// (`uverbs_copy_from_or_zero`).
    pub(crate) fn input<T: FromBytes + IntoBytes>(&self, id: u16) -> Result<T, Errno> {
        let bytes = self.bytes(id)?.ok_or(Errno::ENOENT)?;
        Ok(zero_extended(&bytes))
    }

    /// Reads a number between 0 and `max` (`_uverbs_get_const`).
    pub(crate) fn constant(&self, id: u16, max: u64) -> Result<u64, Errno> {
        let attr = self.attr(id).ok_or(Errno::ENOENT)?;
        match attr.data {
            value if value <= max => Ok(value),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Reads flags (`uverbs_get_flags32`); 0 without the attribute.
    pub(crate) fn flags(&self, id: u16, allowed: u32) -> Result<u32, Errno> {
        let Some(attr) = self.attr(id) else {
            return Ok(0);
        };
        let value = match attr.len {
            8 => attr.data,
            4 => u64::from(zero_extended::<u32>(&attr.data.as_bytes()[..4])),
            _ => return Err(Errno::EINVAL),
        };
        if value & !u64::from(allowed) != 0 {
            return Err(Errno::EINVAL);
        }
        u32::try_from(value).map_err(|_| Errno::EINVAL)
    }

    /// Writes an output (`uverbs_copy_to`), cut to the buffer.
    pub(crate) fn output<T: IntoBytes + Immutable>(
        &mut self,
        id: u16,
        value: &T,
    ) -> Result<(), Errno> {
        self.output_bytes(id, value.as_bytes())
    }

    /// Writes an optional output (`uverbs_copy_to`, `IS_UVERBS_COPY_ERR`); ignored without the
    /// attribute.
    pub(crate) fn output_optional<T: IntoBytes + Immutable>(
        &mut self,
        id: u16,
        value: &T,
    ) -> Result<(), Errno> {
        match self.output(id, value) {
            Err(Errno::ENOENT) => Ok(()),
            other => other,
        }
    }

    /// Writes an output and clears the rest of the buffer (`uverbs_copy_to_struct_or_zero`).
    pub(crate) fn output_or_zero<T: IntoBytes + Immutable>(
        &mut self,
        id: u16,
        value: &T,
    ) -> Result<(), Errno> {
        let attr = self.attr(id).ok_or(Errno::ENOENT)?;
        let size = size_of::<T>();
        let len = usize::from(attr.len);
        if size < len {
            let tail = attr.data.checked_add(size as u64).ok_or(Errno::EFAULT)?;
            clear_user(tail, len - size)?;
        }
        self.output(id, value)
    }

    /// Writes bytes as [`Call::output`] does.
    pub(crate) fn output_bytes(&mut self, id: u16, bytes: &[u8]) -> Result<(), Errno> {
        let attr = self.attr(id).ok_or(Errno::ENOENT)?;
        let len = usize::from(attr.len).min(bytes.len());
        copy_to_user(attr.data, &bytes[..len])?;
        self.set_output(attr.index);
        Ok(())
    }

    /// Writes the driver's response (`ib_copy_to_udata`), cut to the client's buffer; ignored
    /// without one.
    pub(crate) fn driver_output(&mut self, bytes: &[u8]) -> Result<(), Errno> {
        match self.output_bytes(UVERBS_ATTR_UHW_OUT, bytes) {
            Err(Errno::ENOENT) => Ok(()),
            other => other,
        }
    }

    /// Writes a driver's response that needs a buffer: without one, `ib_copy_to_udata` writes to
    /// address 0. (Kernels after 6.19 do without.)
    pub(crate) fn driver_must_output(&mut self, bytes: &[u8]) -> Result<(), Errno> {
        match self.output_bytes(UVERBS_ATTR_UHW_OUT, bytes) {
            Err(Errno::ENOENT) => Err(Errno::EFAULT),
            other => other,
        }
    }

    /// The driver's input; empty without one.
    pub(crate) fn driver_input(&self) -> Result<Vec<u8>, Errno> {
        Ok(self.bytes(UVERBS_ATTR_UHW_IN)?.unwrap_or_default())
    }

    fn set_output(&mut self, index: usize) {
        let at = HEADER + ATTR * index + 4;
        if let Some(flags) = self.words.as_mut_bytes().get_mut(at..at + 2) {
            let value = u16::from_ne_bytes([flags[0], flags[1]]) | UVERBS_ATTR_F_VALID_OUTPUT;
            flags.copy_from_slice(&value.to_ne_bytes());
        }
    }

    fn set_data(&mut self, index: usize, value: u64) {
        let at = HEADER + ATTR * index + 8;
        if let Some(data) = self.words.as_mut_bytes().get_mut(at..at + 8) {
            data.copy_from_slice(&value.to_ne_bytes());
        }
    }
}

/// Reads a struct from bytes. Missing bytes are zero, surplus bytes are ignored.
pub(crate) fn zero_extended<T: FromBytes + IntoBytes>(bytes: &[u8]) -> T {
    let mut value = T::new_zeroed();
    let len = bytes.len().min(size_of::<T>());
    value.as_mut_bytes()[..len].copy_from_slice(&bytes[..len]);
    value
}

/// True if the payload is zero beyond the known length (`uverbs_is_attr_cleared`).
fn tail_cleared(spec: &AttrSpec, attr: &ib_uverbs_attr) -> bool {
    let known = usize::from(spec.max);
    let len = usize::from(attr.len);
    if attr.len > UVERBS_ATTR_INLINE_MAX {
        return attr
            .data
            .checked_add(known as u64)
            .is_some_and(|tail| is_cleared(tail, len - known));
    }
    attr.data.as_bytes()[known..len].iter().all(|byte| *byte == 0)
}

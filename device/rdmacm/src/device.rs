//! Devices that the process has opened, with the objects that identifiers share.

use crate::verbs::verbs;
use abi::{ibv_context, ibv_device_attr, ibv_gid, ibv_pd, ibv_port_attr, ibv_xrcd};
use core::ffi::CStr;
use ffi::Errno;
use ffi::lock;
use rnic::Gid;
use std::ptr::null_mut;
use std::sync::{Mutex, OnceLock};

/// Number of the only port of each device.
pub(crate) const PORT: u8 = 1;
/// Most entries of a device's GID table.
const GIDS_MAX: i32 = 16;

/// An open device. It stays open, because opening a device takes longer than most connections last.
pub struct OpenDevice {
    pub(crate) name: String,
    /// The port is one of an InfiniBand subnet.
    pub(crate) is_subnet: bool,
    context: usize,
    pd: OnceLock<usize>,
    xrcd: Mutex<usize>,
    /// READs and atomics that a queue pair of the device supports as a responder; the next field: as a
    /// requester.
    pub(crate) responder_resources_max: u8,
    pub(crate) initiator_depth_max: u8,
}

impl OpenDevice {
    /// Opens the device of this name.
    pub(crate) fn open(name: &str) -> Result<Self, Errno> {
        let context = open(name)?;
        // SAFETY: all zeros is a valid value: numbers.
        let mut attr: ibv_device_attr = unsafe { core::mem::zeroed() };
        // SAFETY: an open device, and room for its attributes.
        Errno::check_code(unsafe { (verbs()?.ibv_query_device)(context, &mut attr) })?;
        let depth = |value: i32| value.clamp(0, i32::from(u8::MAX)) as u8;
        let mut port = ibv_port_attr::default();
        // SAFETY: an open device, and room for the attributes of its port.
        Errno::check_code(unsafe { (verbs()?.ibv_query_port)(context, PORT, &mut port) })?;
        Ok(Self {
            name: name.to_owned(),
            is_subnet: port.link_layer == abi::IBV_LINK_LAYER_INFINIBAND as u8,
            context: context as usize,
            pd: OnceLock::new(),
            xrcd: Mutex::new(0),
            responder_resources_max: depth(attr.max_qp_rd_atom),
            initiator_depth_max: depth(attr.max_qp_init_rd_atom),
        })
    }

    /// The context that programs see.
    pub(crate) fn context(&self) -> *mut ibv_context {
        self.context as *mut ibv_context
    }

    /// The default protection domain, for queue pairs of programs that name none.
    pub fn pd(&self) -> Result<*mut ibv_pd, Errno> {
        if let Some(pd) = self.pd.get() {
            return Ok(*pd as *mut ibv_pd);
        }
        // SAFETY: the context is open for ever.
        let pd = Errno::check_pointer(unsafe { (verbs()?.ibv_alloc_pd)(self.context()) })?;
        if self.pd.set(pd as usize).is_err() {
            // Another thread was faster. SAFETY: this domain is not used.
            unsafe { (verbs()?.ibv_dealloc_pd)(pd) };
        }
        Ok(self.pd.get().map_or(pd, |pd| *pd as *mut ibv_pd))
    }

    /// The default XRC domain, opened on first use.
    pub(crate) fn xrcd(
        &self,
        open: impl FnOnce(*mut ibv_context) -> Result<*mut ibv_xrcd, Errno>,
    ) -> Result<*mut ibv_xrcd, Errno> {
        let mut xrcd = lock(&self.xrcd);
        if *xrcd == 0 {
            *xrcd = open(self.context())? as usize;
        }
        Ok(*xrcd as *mut ibv_xrcd)
    }

    /// The GID of a port in a subnet, whose IP addresses are none; the address itself for RoCE.
    pub(crate) fn gid_of(&self, address: Gid) -> Gid {
        let mut first = ibv_gid::default();
        let Ok(verbs) = verbs() else { return address };
        // SAFETY: the context is open for ever; there is room for a GID.
        let code = unsafe { (verbs.ibv_query_gid)(self.context(), PORT, 0, &mut first) };
        if self.is_subnet && code == 0 {
            Gid(first.raw)
        } else {
            address
        }
    }

    /// The index of a GID in the device's table.
    pub(crate) fn gid_index(&self, gid: Gid) -> Result<u8, Errno> {
        let query = verbs()?.ibv_query_gid;
        for index in 0..GIDS_MAX {
            let mut found = ibv_gid::default();
            // SAFETY: the context is open for ever; there is room for a GID.
            let code = unsafe { query(self.context(), PORT, index, &mut found) };
            if code == 0 && found.raw == gid.0 {
                return Ok(index as u8);
            }
        }
        Err(Errno(libc::EADDRNOTAVAIL))
    }

    /// The active MTU of the port (`enum ibv_mtu`); 0 if it cannot be queried.
    pub fn active_mtu(&self) -> u8 {
        self.port().active_mtu as u8
    }

    /// How many low bits of the port's LIDs are for paths.
    pub(crate) fn lmc(&self) -> u8 {
        self.port().lmc
    }

    /// The attributes of the port; all are 0 if it cannot be queried.
    fn port(&self) -> ibv_port_attr {
        let mut attr = ibv_port_attr::default();
        let Ok(verbs) = verbs() else { return attr };
        // SAFETY: an open device, and room for its attributes.
        let code = unsafe { (verbs.ibv_query_port)(self.context(), PORT, &mut attr) };
        if code == 0 {
            attr
        } else {
            ibv_port_attr::default()
        }
    }
}

/// Opens the device of this name in libibverbs's list.
fn open(name: &str) -> Result<*mut ibv_context, Errno> {
    let verbs = verbs()?;
    // SAFETY: the list is NULL or ends with NULL, its devices have names, and it is freed once.
    unsafe {
        let list = Errno::check_pointer((verbs.ibv_get_device_list)(null_mut()))?;
        let mut place = list;
        let mut context = Err(Errno::NO_DEVICE);
        while !(*place).is_null() {
            if CStr::from_ptr((verbs.ibv_get_device_name)(*place)).to_bytes() == name.as_bytes() {
                context = Errno::check_pointer((verbs.ibv_open_device)(*place));
                break;
            }
            place = place.add(1);
        }
        (verbs.ibv_free_device_list)(list);
        context
    }
}

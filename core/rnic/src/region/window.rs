//! Memory windows: their kinds, and their bindings to regions (IBTA 10.6.7.2).

use super::{Entry, Kind, Regions};
use crate::access::Access;
use crate::error::Error;
use crate::handle::{Pd, Window};
use crate::random::Random;
use crate::work::WindowBinding;
use wire::{Qpn, Rkey};

/// Memory window types (IBTA 10.6.7.2). Type 2 is 2B: bound to one queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WindowKind {
    /// Bound by a verb; any queue pair of the protection domain may use it.
    Type1,
    /// Bound by a work request, invalidated before it can be bound again.
    Type2,
}

impl Regions {
    pub(crate) fn alloc_window(
        &mut self,
        pd: Pd,
        kind: WindowKind,
        random: &mut Random,
    ) -> Result<(Window, Rkey), Error> {
        let kind = Kind::Window {
            kind,
            region: None,
            qpn: Qpn::new(0),
        };
        let access = Access::empty();
        let entry = Entry {
            key: 0,
            pd,
            start: 0,
            length: 0,
            iova: 0,
            access,
            kind,
            is_null: false,
        };
        let key = self.insert(entry, random)?;
        Ok((Window(self.serial(key)), Rkey(key)))
    }

    pub(crate) fn dealloc_window(&mut self, window: Window) -> Result<(), Error> {
        let key = self.window(window)?.key;
        self.unbind(window.0);
        self.remove(key);
        Ok(())
    }

    /// The key of a type 1 window's next binding: the consumer's byte counts up.
    pub(crate) fn next_window_key(&self, window: Window) -> Result<Rkey, Error> {
        let key = self.window(window)?.key;
        Ok(Rkey((key & !0xff) | (key.wrapping_add(1) & 0xff)))
    }

    /// Binds a window (IBTA 10.6.7.2). `None` means memory window bind error.
    pub(crate) fn bind(&mut self, qpn: Qpn, pd: Pd, binding: &WindowBinding) -> Option<()> {
        let window = *self.window(binding.window).ok()?;
        let Kind::Window {
            kind,
            region: bound,
            ..
        } = window.kind
        else {
            return None;
        };
        if window.pd != pd || (binding.rkey.0 ^ window.key) >> 8 != 0 {
            return None;
        }
        // A type 2 window must be invalid when it is bound, and its range not empty (o10-37.2.23,
        // 10.6.7.2.2).
        if kind == WindowKind::Type2 && (bound.is_some() || binding.length == 0) {
            return None;
        }
        if binding.length == 0 {
            self.unbind(binding.window.0);
            self.entry_mut(binding.window.0)?.key = binding.rkey.0;
            self.note_change(binding.rkey.0);
            return Some(());
        }
        let region = *self.entry(binding.region.0)?;
        let start = bindable(&region, pd, binding)?;
        self.unbind(binding.window.0);
        let bound_region = self.serial(region.key);
        if let Kind::Region { bindings } = &mut self.entry_mut(bound_region)?.kind {
            *bindings += 1;
        }
        let zero_based = binding.access.contains(Access::ZERO_BASED);
        let entry = self.entry_mut(binding.window.0)?;
        *entry = Entry {
            key: binding.rkey.0,
            start,
            length: binding.length,
            iova: if zero_based { 0 } else { binding.address },
            access: binding.access | (region.access & Access::ON_DEMAND),
            kind: Kind::Window {
                kind,
                region: Some(bound_region),
                qpn,
            },
            ..window
        };
        self.note_change(binding.rkey.0);
        Some(())
    }

    /// Invalidates the key of a type 2 window that is bound to `qpn` (LOCAL INVALIDATE and SEND with
    /// invalidate).
    pub(crate) fn invalidate(&mut self, qpn: Qpn, pd: Pd, key: Rkey) -> Option<()> {
        let entry = self.entry(key.0)?;
        match entry.kind {
            Kind::Window {
                kind: WindowKind::Type2,
                region: Some(_),
                qpn: bound,
            } if bound == qpn && entry.pd == pd => {
                let serial = self.serial(key.0);
                self.unbind(serial);
                Some(())
            }
            _ => None,
        }
    }

    fn window(&self, window: Window) -> Result<&Entry, Error> {
        self.slots
            .get(self.slot(window.0))
            .and_then(Option::as_ref)
            .filter(|entry| {
                self.serial(entry.key) == window.0 && matches!(entry.kind, Kind::Window { .. })
            })
            .ok_or(Error::NoSuchObject)
    }

    /// Ends the binding of the window with this serial number.
    fn unbind(&mut self, serial: u32) {
        let Some(entry) = self.entry_mut(serial) else {
            return;
        };
        let Kind::Window { region, .. } = &mut entry.kind else {
            return;
        };
        let Some(region) = region.take() else { return };
        let key = entry.key;
        self.note_change(key);
        if let Some(Entry {
            kind: Kind::Region { bindings },
            ..
        }) = self.entry_mut(region)
        {
            *bindings -= 1;
        }
    }
}

/// Address of the window's first byte, if the region permits the binding.
fn bindable(region: &Entry, pd: Pd, binding: &WindowBinding) -> Option<u64> {
    let writes = Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
    let allowed = matches!(region.kind, Kind::Region { .. })
        && region.pd == pd
        && region.access.contains(Access::BIND_WINDOW)
        && !region.access.contains(Access::ZERO_BASED)
        && (!binding.access.intersects(writes) || region.access.contains(Access::LOCAL_WRITE));
    let offset = binding.address.checked_sub(region.iova)?;
    let end = offset.checked_add(binding.length)?;
    (allowed && end <= region.length).then(|| region.start.wrapping_add(offset))
}

//! Memory that meets faults after it was registered: keys that expire, and pages of on-demand memory that are
//! not there.

use crate::context::Context;
use faults::{Action, Occasion, Point};
use ffi::lock;
use rnic::{Lkey, RegionInit};
use std::sync::Arc;
use std::time::Duration;

/// What the rules of faults name a registration by: its device, and its key.
fn owner(context: &Context, lkey: Lkey) -> (usize, u32) {
    (Arc::as_ptr(&context.device).addr(), lkey.value())
}

/// Asks the rules about memory that was registered.
#[cold]
pub(crate) fn registered(context: &Context, init: &RegionInit, lkey: Lkey) {
    let occasion = Occasion {
        device: Some(&context.device.info().name),
        size: Some(init.length),
        ..Occasion::at(Point::Call("reg_mr"))
    };
    let is_expiring = |action| matches!(action, Action::Expire(_));
    let expiring = host::faults::decide(&occasion, is_expiring);
    if let Some(Action::Expire(time)) = expiring.map(|decision| decision.action) {
        expire(context, lkey, time);
    }
    let is_on_demand = init.access.contains(rnic::Access::ON_DEMAND);
    let has_page =
        |action| is_on_demand && matches!(action, Action::OdpFault(offset) if offset < init.length);
    let losing = host::faults::decide(&occasion, has_page);
    if let Some(Action::OdpFault(offset)) = losing.map(|decision| decision.action) {
        host::faults::lose_page(owner(context, lkey), init.address.wrapping_add(offset));
    }
}

/// A registration ends: what rules have done to it ends too.
pub(crate) fn deregistered(context: &Context, lkey: Lkey) {
    if host::faults::is_on() {
        host::faults::forget_pages(owner(context, lkey));
    }
}

/// Has the device forget a registration after a time, of which the program knows nothing: it deregisters it
/// later, with success. One with bound windows stays.
fn expire(context: &Context, lkey: Lkey, time: Duration) {
    let device = Arc::downgrade(&context.device);
    let objects = context.weak_objects();
    host::faults::after(time, move || {
        let (Some(device), Some(objects)) = (device.upgrade(), objects.upgrade()) else {
            return;
        };
        let _inside = host::enter();
        let key = lkey.value();
        // Noted first: the program may deregister it as soon as the device does not have it.
        let is_registered = {
            let mut objects = lock(&objects);
            let is_registered = objects.regions.contains_key(&key);
            is_registered && objects.expired.insert(key)
        };
        let deregister = || device.with(|rnic, _| rnic.memory().deregister(lkey));
        if is_registered && deregister().is_err() {
            lock(&objects).expired.remove(&key);
        }
    });
}

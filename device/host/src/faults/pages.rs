//! Pages of on-demand memory that rules take away: to the device they are as unmapped ones, and to the
//! program they are there.

use os::page::page_size;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A page that a rule has taken away from a registration.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lost {
    /// The device and the key of the registration.
    owner: (usize, u32),
    page: u64,
}

static LOST: Mutex<Vec<Lost>> = Mutex::new(Vec::new());
/// Whether there were any, readable without the lock.
static ARE_ANY: AtomicBool = AtomicBool::new(false);

/// The pages, locked.
pub(super) type Held = MutexGuard<'static, Vec<Lost>>;

/// Locks the pages, for a fork: the child must not inherit them locked by another thread.
pub(super) fn hold() -> Held {
    LOST.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes the page of an address away from a registration, which `owner` names: its device, and its key.
pub fn lose_page(owner: (usize, u32), address: u64) {
    let page = address & !(page_size() - 1);
    hold().push(Lost { owner, page });
    ARE_ANY.store(true, Ordering::Relaxed);
}

/// A registration ends, and with it what rules have taken away from it.
pub fn forget_pages(owner: (usize, u32)) {
    if ARE_ANY.load(Ordering::Relaxed) {
        hold().retain(|lost| lost.owner != owner);
    }
}

/// Whether a page of this range is lost.
pub fn are_lost(address: u64, length: u64) -> bool {
    ARE_ANY.load(Ordering::Relaxed) && {
        let end = address.saturating_add(length);
        let is_within = |lost: &Lost| {
            lost.page < end && address < lost.page.saturating_add(page_size()) && length > 0
        };
        hold().iter().any(is_within)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_lost_to_every_range_that_touches_it_until_its_registration_ends() {
        let (owner, page) = ((1, 7), 16 * page_size());
        lose_page(owner, page + 5);
        assert!(are_lost(page, 1) && are_lost(page + page_size() - 1, 8));
        assert!(are_lost(page - 4, 5) && are_lost(0, u64::MAX));
        assert!(!are_lost(page - 4, 4) && !are_lost(page + page_size(), 8) && !are_lost(page, 0));
        forget_pages((1, 8));
        assert!(are_lost(page, 1));
        forget_pages(owner);
        assert!(!are_lost(page, 1));
    }
}

//! The simulated costs of one judgement: each once, and no more than a bound.

use std::cell::RefCell;
use std::collections::HashMap;

use crate::Consequence;
use crate::cost_simulation::{Case, Cost, compare};

/// Different costs that one judgement simulates. Each takes a tenth of a second, and a configuration of some
/// megabytes can have a fault with settings of its own at each of thousands of ports.
const MOST: usize = 32;

/// Why a finding has no cost where [`MOST`] others have one. The number is that constant.
const ENOUGH: Consequence =
    Consequence::NotSimulated("32 other settings of this input are, which is the most");

/// What was simulated, by the fabric files with the fault and without.
type Known = HashMap<[String; 2], Option<Cost>>;

thread_local! {
    static KNOWN: RefCell<Known> = RefCell::default();
}

/// Forgets the costs of an earlier judgement, so that the same input has the same findings.
pub(super) fn begin() {
    KNOWN.with_borrow_mut(Known::clear);
}

/// The cost of a network with a fault against the fixed one.
pub(super) fn cost(now: &Case, fixed: &Case) -> Consequence {
    let key = [now.fabric_file(), fixed.fabric_file()];
    let known = KNOWN.with_borrow(|known| match known.get(&key) {
        None if known.len() == MOST => Err(ENOUGH),
        found => Ok(found.copied()),
    });
    let found = match known {
        Ok(known) => known.unwrap_or_else(|| compare(now, fixed)),
        Err(enough) => return enough,
    };
    KNOWN.with_borrow_mut(|known| known.insert(key, found));
    found.map_or(
        Consequence::NotSimulated("the settings make no network"),
        Consequence::Simulated,
    )
}

//! The subnet management interface: what a node does with a packet that has a directed route
//! (IBTA 14.2.2, C14-9 to C14-13).

use crate::mad::{DirectedRoute, Mad, PATH_MAX};

/// The LID of packets without one.
pub(crate) const PERMISSIVE: u16 = 0xffff;

/// Where a packet goes next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// To the next node, by this port.
    Send(u8),
    /// To the agents of this node.
    Arrived,
    /// On by LIDs, to this one.
    Routed(u16),
    /// Nowhere: the route is not valid.
    Discard,
}

/// What a node does with a packet that it sends itself: the beginning of a route, or of the way back.
pub(crate) fn begin(mad: &mut Mad) -> Step {
    let (pointer, count) = (mad.hop_pointer(), mad.hop_count());
    if count > PATH_MAX {
        return Step::Discard;
    }
    if mad.returns() {
        return go_back(mad, count, pointer);
    }
    match (pointer, count) {
        (0, 0) => {
            mad.set_hop_pointer(1);
            Step::Arrived
        }
        (0, _) => {
            mad.set_hop_pointer(1);
            Step::Send(mad.initial_path(1))
        }
        _ => Step::Discard,
    }
}

/// What a node does with a packet that arrived at a port.
pub(crate) fn arrive(mad: &mut Mad, port: u8, is_switch: bool) -> Step {
    let (pointer, count) = (mad.hop_pointer(), mad.hop_count());
    if count > PATH_MAX {
        return Step::Discard;
    }
    if mad.returns() {
        return return_arrived(mad, is_switch);
    }
    if pointer == 0 && count > 0 {
        // A part that was routed by LIDs ends here, and the directed route begins.
        return if is_switch { begin(mad) } else { Step::Discard };
    }
    if pointer < count {
        if !is_switch {
            return Step::Discard;
        }
        mad.set_return_path(pointer, port);
        mad.set_hop_pointer(pointer + 1);
        return Step::Send(mad.initial_path(pointer + 1));
    }
    if pointer == count {
        if count > 0 {
            mad.set_return_path(count, port);
        }
        mad.set_hop_pointer(pointer + 1);
        return match mad.dr_dlid() {
            PERMISSIVE => Step::Arrived,
            lid if is_switch => Step::Routed(lid),
            _ => Step::Discard,
        };
    }
    if pointer == count + 1 {
        Step::Arrived
    } else {
        Step::Discard
    }
}

fn go_back(mad: &mut Mad, count: u8, pointer: u8) -> Step {
    if pointer != count + 1 {
        return Step::Discard;
    }
    mad.set_hop_pointer(count);
    if count == 0 {
        return Step::Arrived;
    }
    Step::Send(mad.return_path(count))
}

fn return_arrived(mad: &mut Mad, is_switch: bool) -> Step {
    let (pointer, count) = (mad.hop_pointer(), mad.hop_count());
    if pointer == count + 1 {
        // The way back along LIDs ends here, and the directed route begins.
        return if is_switch {
            go_back(mad, count, pointer)
        } else {
            Step::Discard
        };
    }
    match pointer {
        0 => Step::Arrived,
        1 => {
            mad.set_hop_pointer(0);
            match mad.dr_slid() {
                PERMISSIVE => Step::Arrived,
                lid if is_switch => Step::Routed(lid),
                _ => Step::Discard,
            }
        }
        pointer if pointer <= count && is_switch => {
            mad.set_hop_pointer(pointer - 1);
            Step::Send(mad.return_path(pointer - 1))
        }
        _ => Step::Discard,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mad::{class, method, put};

    fn packet(path: &[u8]) -> Mad {
        let mut mad = Mad::new(class::SUBNET_DIRECTED, 1, method::GET, 0x11, 0);
        mad.put_u32(32, 0xffff_ffff);
        mad.bytes_mut()[7] = path.len() as u8;
        for (index, port) in path.iter().enumerate() {
            put(&mut mad.bytes_mut()[..], 129 + index, *port);
        }
        mad
    }

    #[test]
    fn a_route_leads_through_switches_and_back() {
        let mut mad = packet(&[1, 7, 9]);
        assert_eq!(begin(&mut mad), Step::Send(1));
        assert_eq!(arrive(&mut mad, 3, true), Step::Send(7));
        assert_eq!(arrive(&mut mad, 4, true), Step::Send(9));
        assert_eq!(arrive(&mut mad, 1, false), Step::Arrived);
        assert_eq!(mad.hop_pointer(), 4);
        assert_eq!([1, 2, 3].map(|index| mad.return_path(index)), [3, 4, 1]);
        mad.set_returns();
        assert_eq!(begin(&mut mad), Step::Send(1));
        assert_eq!(arrive(&mut mad, 9, true), Step::Send(4));
        assert_eq!(arrive(&mut mad, 7, true), Step::Send(3));
        assert_eq!(arrive(&mut mad, 1, false), Step::Arrived);
        assert_eq!(mad.hop_pointer(), 0);
    }

    #[test]
    fn a_route_without_hops_stays_at_the_node() {
        let mut mad = packet(&[]);
        assert_eq!(begin(&mut mad), Step::Arrived);
        mad.set_returns();
        assert_eq!(begin(&mut mad), Step::Arrived);
        assert_eq!(mad.hop_pointer(), 0);
    }

    #[test]
    fn adapters_do_not_forward_and_odd_pointers_are_discarded() {
        let mut mad = packet(&[1, 2]);
        begin(&mut mad);
        assert_eq!(arrive(&mut mad.clone(), 1, false), Step::Discard);
        mad.set_hop_pointer(9);
        assert_eq!(arrive(&mut mad, 1, true), Step::Discard);
        let mut long = packet(&[1]);
        long.bytes_mut()[7] = 64;
        assert_eq!(begin(&mut long), Step::Discard);
    }

    #[test]
    fn a_directed_route_may_begin_or_end_at_a_lid() {
        let mut mad = packet(&[5]);
        mad.put_u16(34, 17);
        begin(&mut mad);
        assert_eq!(arrive(&mut mad, 2, true), Step::Routed(17));
        let mut mad = packet(&[5]);
        mad.put_u16(32, 3);
        assert_eq!(arrive(&mut mad, 2, true), Step::Send(5));
        assert_eq!(arrive(&mut mad, 1, false), Step::Arrived);
        mad.set_returns();
        assert_eq!(begin(&mut mad), Step::Send(1));
        assert_eq!(arrive(&mut mad, 5, true), Step::Routed(3));
    }
}

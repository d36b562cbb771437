//! The usual mistakes of RDMA programs, found in a trace.
//!
//! [`ends`] follows queue pairs, their requests and registered memory through the events. The rules look at
//! what it knows when something goes wrong: [`failed`] at completions and calls with an error, [`lost`] at
//! messages that are lost without an error, [`pairs`] at two queue pairs that are connected to each other,
//! [`use_of_queues`] at requests that are never completed, memory that ends before them, and work request
//! IDs.

mod ends;
mod failed;
mod lost;
mod mistake;
mod pairs;
mod transitions;
mod use_of_queues;

use crate::file::Trace;
use crate::kind::Kind;
use ends::Ends;
pub use mistake::{Finding, Mistake};

/// All mistakes of a trace, in the order of their calls; of one queue pair each kind of mistake once.
pub fn explain(trace: &Trace<'_>) -> Vec<Finding> {
    let mut ends = Ends::default();
    for (number, event) in trace.events() {
        match event.kind {
            Kind::Send => {
                failed::refused_send(&mut ends, number, &event);
                use_of_queues::sent(&mut ends, number, &event);
                ends.sent(number, &event);
            }
            Kind::Receive => {
                failed::refused_receive(&mut ends, number, &event);
                use_of_queues::received(&mut ends, number, &event);
                ends.received(number, &event);
            }
            Kind::Completion => {
                failed::completion(&mut ends, number, &event);
                lost::completion(&mut ends, &event);
                ends.completed(&event);
            }
            Kind::Modify => {
                transitions::check(&mut ends, number, &event);
                ends.modified(number, &event);
                pairs::check(&mut ends, number, &event);
            }
            Kind::Register => {
                failed::refused_region(&mut ends, number, &event);
                ends.registered(number, &event);
            }
            Kind::Deregister => {
                use_of_queues::deregistered(&mut ends, number, &event);
                ends.deregistered(number, &event);
            }
            Kind::Create => ends.created(number, &event),
            Kind::Destroy => {
                lost::ended(&mut ends, &event);
                use_of_queues::ended(&mut ends, &event);
                ends.destroyed(&event);
            }
            Kind::State => ends.state_seen(&event),
            Kind::AddressHandle => ends.handle_made(number, &event),
            Kind::Call | Kind::CmEvent | Kind::AsyncEvent => {}
        }
    }
    lost::at_the_end(&mut ends);
    use_of_queues::at_the_end(&mut ends);
    let mut findings = ends.into_findings();
    findings.sort_by_key(|finding| (finding.event, finding.mistake));
    findings
}

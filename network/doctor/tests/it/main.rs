//! Configurations and facts, through the public interface.

mod counters;
mod esxi;
mod firmware;
mod forms_of_switches;
mod freebsd;
mod functions;
mod garbled;
mod hosts;
mod infiniband;
mod inputs;
mod inputs_of_hosts;
mod junos;
mod lab;
mod limits;
mod manual;
mod nvue;
mod plans;
mod quoted;
mod round_trips;
mod sites;
mod spraying;
mod switches;
mod variations;
mod variations_of_hosts;
mod windows;
mod windows_shown;

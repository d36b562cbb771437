//! Configurations and facts, through the public interface.

mod garbled;
mod hosts;
mod lab;
mod manual;
mod round_trips;
mod switches;

//! Configurations and facts as users meet them.

mod garbled;
mod hosts;
mod lab;
mod manual;
mod round_trips;
mod switches;
